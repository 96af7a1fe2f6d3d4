"""A name that is not there is answered in one line with near ones: of commands, groups, keys, and all that is chosen by name."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException
from omegaconf import OmegaConf

from agents.__main__ import main as list_strategies
from agents.cli.arguments import CONF, compose
from agents.cli.words import in_a_line
from agents.exact.certify import main as certify
from agents.exact.explain import main as explain
from agents.exact.explain import replay
from agents.recording.store import main as store
from agents.strategy import get_strategy
from experiments import entry
from experiments.benches.bench import bench, suites
from experiments.board.submit import main as submit
from experiments.device.gpu import read_arguments
from experiments.tables.reproduce import known, reproduce
from gensor_gym import hardware, operators
from gensor_gym.codegen import targets
from gensor_gym.construction import ConstructionGraph
from gensor_gym.env.observation import group_slices
from gensor_gym.measure.backend import get_backend
from gensor_gym.registry import near
from tests.support.thorough import thorough_but

GROUPS = sorted(path.name for path in CONF.iterdir() if path.is_dir() and not path.name.startswith("_"))
PRIMARY = sorted(path.stem for path in CONF.glob("*.yaml") if not path.stem.startswith("_"))
H200 = "h200"


def wrong(name: str) -> str:
    """A name with a letter doubled: near to it, and no other's."""
    return name[:2] + name[1] + name[2:]


def said_by(call: Callable[[], object]) -> str:
    """The message of a refusal."""
    with pytest.raises((ValueError, HydraException)) as refused:
        call()
    error = refused.value
    return in_a_line(error) if isinstance(error, HydraException) else str(error)


def answered(text: str, name: str) -> bool:
    """Whether a message is one line that ends with near names, the one meant among them."""
    _, hint, found = text.rpartition("; did you mean ")
    return bool(hint) and "\n" not in text and name in found.removesuffix("?").split(" or ")


@pytest.mark.parametrize("name", ["compare", "sweep_table"])
def test_commands(name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["gensor", wrong(name)])
    with pytest.raises(SystemExit) as ended:
        entry.main()
    assert ended.value.code == 2 and answered(capsys.readouterr().err.strip(), name)


@pytest.mark.parametrize("group", GROUPS)
def test_groups_and_what_is_in_them(group: str) -> None:
    option = min(path.stem for path in (CONF / group).glob("*.yaml"))
    assert answered(said_by(lambda: compose([f"+{group}={wrong(option)}"])), option)
    assert answered(said_by(lambda: compose([f"{wrong(group)}={option}"])), group)


@pytest.mark.parametrize("name", thorough_but(PRIMARY, *PRIMARY[::8]))
def test_keys_of_every_configuration(name: str) -> None:
    config: Any = OmegaConf.to_container(compose([], name))
    key = max(config, key=len)
    assert answered(said_by(lambda: compose([f"{wrong(key)}=1"], name)), key), key
    within = ((k, i) for k, value in config.items() if isinstance(value, dict) for i in value if len(i) > 3)
    for outer, inner in list(within)[:1]:
        assert answered(said_by(lambda o=outer, i=inner: compose([f"{o}.{wrong(i)}=1"], name)), inner), (outer, inner)


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda n: operators.resolve(f"{n}(m=8, n=8, k=8)"), "gemm"),
        (lambda n: operators.resolve(n), "roller"),
        (lambda n: operators.resolve(f"split/v1/{n}"), "validation"),
        (lambda n: operators.resolve(f"gemm(m=8, n=8, k=8)+{n}"), "residual"),
        (lambda n: operators.resolve(f'gemm(m=8, n=8, k=8, dtype="{n}")'), "float16"),
        (lambda n: operators.resolve(f'elementwise("{n}", 8)'), "relu"),
        (hardware.get, "rtx4090"),
        (lambda n: ConstructionGraph("gemm(m=8, n=8, k=8)", H200, n), "extended"),
        (lambda n: get_backend(n, hardware.get(H200)), "analytic"),
        (lambda n: get_backend(n, hardware.get(H200)), "emulated"),
        (get_strategy, "local_search"),
        (lambda n: get_strategy("markov", **{n: 1}), "walkers"),
        (lambda n: group_slices([n]), "resources"),
        (lambda n: replay(ConstructionGraph("gemm(m=8, n=8, k=8)", H200), [n], None), "cache"),
        (targets.get, "cuda"),
        (lambda n: compose([f"strategy={n}"]), "markov_ext"),
        (lambda n: read_arguments([f"stages={n}"]), "operators"),
    ],
)
def test_names_of_the_gym_and_of_agents(call: Callable[[str], object], name: str) -> None:
    assert answered(said_by(lambda: call(wrong(name))), name)


def test_suites_and_tables(tmp_path: Path) -> None:
    suite, table = next(iter(suites())), next(iter(known()))
    assert answered(said_by(lambda: bench(OmegaConf.create({"suite": wrong(suite)}))), suite)
    assert answered(said_by(lambda: reproduce(OmegaConf.create({"table": wrong(table), "output": str(tmp_path)}))), table)


@pytest.mark.parametrize(
    ("main", "arguments", "name"),
    [
        (store, ["lisst", "x"], "list"),
        (store, ["prune", "x", "--appply"], "--apply"),
        (certify, ["gemmm(m=8, n=8, k=8)"], "gemm"),
        (certify, ["--spaace", "gensor"], "--space"),
        (explain, ["gemm(m=64, n=64, k=64)", "--actionns", "stop"], "--actions"),
        (submit, ["markoov"], "markov"),
        (list_strategies, ["rooller"], "roller"),
    ],
)
def test_words_of_commands_without_hydra(
    main: Callable[[list[str]], int], arguments: list[str], name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code = main(arguments)
    except SystemExit as ended:
        code = ended.code  # type: ignore[assignment]
    assert code and answered(capsys.readouterr().err.strip(), name)


@pytest.mark.parametrize(("words", "name"), [(["compare", "hardwaare=h200"], "hardware"), (["train", "agent=ppoo"], "ppo")])
def test_hydras_own_errors_are_one_line(words: list[str], name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["gensor", *words])
    said = io.StringIO()
    monkeypatch.setattr(sys, "stderr", said)
    try:
        with pytest.raises(SystemExit) as ended:
            entry.main()
    finally:
        GlobalHydra.instance().clear()
    assert ended.value.code == 2 and answered(said.getvalue().strip(), name)


def test_names_are_near_whatever_their_case_and_several_are_asked_at_once() -> None:
    assert near("crashd", ["OK", "CRASHED"]) == "; did you mean CRASHED?"
    assert near(["spalit", "vecto"], ["split", "vector"]) == "; did you mean split or vector?"
    assert near("nothing", ["split"]) == "" == near(None, ["split"])
