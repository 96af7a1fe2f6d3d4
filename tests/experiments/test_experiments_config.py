"""Configuration: every file composes, operators may be written as text, bad values are named."""

from __future__ import annotations

import copy
import dataclasses
import os
from pathlib import Path

import numpy as np
import pytest
from hydra.core.config_store import ConfigStore
from omegaconf import OmegaConf

from agents import STRATEGIES, get_strategy
from agents.__main__ import main
from agents.cli.arguments import CONF, compose, quoted, readable, store_strategies
from agents.runs.settings import settings_of
from agents.strategy import CONSTRUCTIONS, Entry, strategies_for
from gensor_gym import hardware, operators
from gensor_gym.hardware.cpuinfo import THREADS
from gensor_gym.measure.records.tables import read_table, write_table
from gensor_gym.measure.session import Session
from tests.support.thorough import thorough_but

GROUPS = ("operator", "experiment")
FILES = [(group, path.stem) for group in GROUPS for path in sorted((CONF / group).glob("*.yaml"))]
FILES += [("strategy", name) for name in strategies_for(CONSTRUCTIONS)]
SOME = [file for number, file in enumerate(FILES) if number % (2 if file[0] == "experiment" else 6) == 0]


@pytest.mark.parametrize(("group", "name"), thorough_but(FILES, *SOME), ids=[f"{group}/{name}" for group, name in FILES])
def test_everything_composes(group: str, name: str) -> None:
    config = compose([f"{group}={name}"])
    assert set(config) - {"study", "tasks"} == {
        "operators", "strategies", "hardware", "backend", "budget", "seed", "rounds", "output", "store", "recording",
        "figures", "wandb", "measure", "space", "processes",
        "tensorboard", "threads",
    }  # fmt: skip
    assert operators.resolve(_plain(config.operators))
    assert hardware.get(config.hardware)
    for key, values in config.strategies.items():
        hyperparameters = dict(values)
        name = hyperparameters.pop("of", key)  # an entry may be another strategy's variant
        assert name == "ppo" or get_strategy(name, **hyperparameters)


@pytest.mark.parametrize("name", ["config", "record", "reproduce"])
def test_hardware_is_chosen_by_name(name: str) -> None:
    assert compose(["hardware=rtx4090"], name).hardware == "rtx4090" and compose([], name).hardware == "host"


def test_hyperparameters_on_the_command_line_are_those_of_the_strategies() -> None:
    """Of all at once: composing them one by one takes seconds."""
    strategies = {name: dataclasses.asdict(get_strategy(name)) for name in strategies_for(CONSTRUCTIONS)}  # type: ignore[call-overload]
    fields = OmegaConf.to_container(OmegaConf.create(strategies))
    assert isinstance(fields, dict)
    every = f"strategy=[{','.join(fields)}]"
    assert OmegaConf.to_container(compose([every]).strategies) == fields
    last = {name: [*values][-1] for name, values in fields.items()}
    words = [f"strategies.{name}.{key}=7" for name, key in last.items()]
    others = [f"+strategies.other_{name}={{of: {name}}}" for name in fields]
    changed = {name: {**values, last[name]: 7} for name, values in fields.items()}
    assert compose([every, *words, *others]).strategies == changed | {f"other_{name}": {"of": name} for name in fields}


def test_a_strategy_of_your_own_needs_its_class_and_its_entry_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its fields are its configuration; a missing library is said by its search, and not by every command."""
    monkeypatch.setitem(STRATEGIES, "mine", Entry(f"{__name__}:Mine"))
    monkeypatch.setitem(STRATEGIES, "broken", Entry("agents.no_such_module:Broken"))
    monkeypatch.setattr(ConfigStore.instance(), "repo", copy.deepcopy(ConfigStore.instance().repo))
    store_strategies()
    config = compose(["strategy=[mine,broken]", "strategies.mine.patience=9", "budget.trials=2", "operator=gemv(m=4, k=4)"])
    assert config.strategies == {"mine": {"space": "compact", "patience": 9}, "broken": {}}
    assert [job.hyperparameters for job in settings_of(config).jobs] == [{"space": "compact", "patience": 9}, {}]


@dataclasses.dataclass(frozen=True)
class Mine:
    """A strategy that looks at one program."""

    space: str = "compact"
    patience: int = 3
    """Programs that it looks at no longer."""

    def search(self, session: Session, rng: np.random.Generator) -> None:
        """Measure the unscheduled program."""
        session.measure([session.graph.initial()])


def test_strategies_and_their_fields_are_listed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(": ")[0] for line in lines] == list(STRATEGIES) and all(len(line.split(": ")[1]) > 10 for line in lines)
    monkeypatch.setitem(STRATEGIES, "mine", Entry(f"{__name__}:Mine"))
    assert main(["mine"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "mine: A strategy that looks at one program.", "  space='compact'", "  patience=3  Programs that it looks at no longer."
    ]  # fmt: skip
    assert main(["nobody"]) == 2 and "['nobody']; strategies are ['a2c'" in capsys.readouterr().err


def test_values_and_groups_on_the_command_line() -> None:
    arguments = ["strategy=[markov,random_walk]", "operator=gemm(m=512, n=384, k=1000)", "strategies.markov.walkers=64"]
    config = compose([*arguments, "budget.trials=7", "seed=[0,3]", "hardware=h200", "backend=analytic"])
    assert config.operators == "gemm(m=512, n=384, k=1000)"
    assert list(config.strategies) == ["markov", "random_walk"]
    assert config.strategies.markov.walkers == 64
    settings = settings_of(config)
    assert [(job.seed, job.strategy) for job in settings.jobs] == [
        (0, "markov"), (0, "random_walk"), (3, "markov"), (3, "random_walk"),
    ]  # fmt: skip
    assert settings.jobs[0].budget.trials == 7


@pytest.mark.parametrize(
    ("value", "count"),
    [
        ("gemm(m=8, n=8, k=8)+bias+relu", 1),
        ("[gemm(m=8, n=8, k=8), roller/C0]", 2),
        ("['gemm(m=8, n=8, k=8)','gemv(m=4, k=4)']", 2),
        ("elementwise(name=gelu, shape=(7, 9))", None),
        ("roller/C1", 1),
        ("roller/C1*", 11),
        ("smoke", 4),
    ],
)
def test_operators_as_values(value: str, count: int | None) -> None:
    if count is None:
        with pytest.raises(ValueError, match="literal"):
            operators.resolve(_plain(compose([f"operator={value}"]).operators))
        return
    assert len(operators.resolve(_plain(compose([f"operator={value}"]).operators))) == count


def test_sweeps_over_operators_stay_sweeps() -> None:
    assert readable(["operator=default,smoke"]) == ["operator=default,smoke"]
    assert readable(["operator=gemm(m=1, n=2, k=3),gemv(m=1, k=2)"]) == [
        "operators='gemm(m=1, n=2, k=3)','gemv(m=1, k=2)'"
    ]
    assert quoted("[roller/C0,gemv(m=1, k=2)+relu]") == "[roller/C0,'gemv(m=1, k=2)+relu']"
    for mark in "'\"":  # the text of an operator may hold quotes
        text = f"gemm(m=1, n=2, k=3, dtype={mark}int8{mark})+bias"
        assert compose([f"operator={text}"]).operators == 'gemm(m=1, n=2, k=3, dtype="int8")+bias'
    assert quoted("""['gemm(m=1, n=2, k=3, dtype="int8")',gemv(1, 2)]""").endswith("""dtype="int8")','gemv(1, 2)']""")
    with pytest.raises(ValueError, match="not closed"):
        quoted("gemm(m=1")


def test_folders_may_be_named_in_any_letters() -> None:
    assert compose(["output=/home/józsef/мой run"]).output == "/home/józsef/мой run"
    assert readable(["x=1", "output='józsef'", "a=[é]", "b=c"]) == ["x=1", "output='józsef'", "a=[é]", "b=c"]


@pytest.mark.parametrize(
    ("overrides", "text"),
    [
        (["operator=nothing/C1"], "nothing/C1"),
        (["seed=-1"], "seed -1"),
        (["seed=[]"], "seed"),
        (["rounds=0"], "rounds is 0"),
        (["processes=0"], "processes is 0"),
        (["budget.trials=0"], "budget trials"),
        (["hardware=h200", "backend=cpu"], "cannot run"),
        (["backend=recorded", "hardware=h200"], "no table of h200"),
        (["wandb.mode=loud"], "wandb.mode"),
    ],
)
def test_bad_values_are_named(overrides: list[str], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        settings_of(compose(["strategy=random_walk", *overrides]))


def test_the_output_folder_follows_from_the_configuration() -> None:
    base = ["strategy=random_walk", "backend=analytic", "hardware=h200"]
    first, again, other = (settings_of(compose([*base, f"seed={seed}"])) for seed in (0, 0, 1))
    assert first.output == again.output != other.output
    assert first.store == first.output.parent / "trials.sqlite"
    assert settings_of(compose([*base, "output=/x/y"])).output == Path("/x/y")


def _plain(value: object) -> object:
    return OmegaConf.to_container(value) if OmegaConf.is_config(value) else value


def test_another_recording_is_another_experiment(tmp_path: Path) -> None:
    table = Path(__file__).parents[1] / "golden" / "recorded" / "gemv_m16_k64.parquet"
    copy = tmp_path / "copy.parquet"
    copy.write_bytes(table.read_bytes())
    base = ["backend=recorded", 'operator="gemv(m=16, k=64)"', "strategy=[random_walk]", "hardware=cascade_lake"]
    first = settings_of(compose([*base, f"recording={table}"]))
    assert settings_of(compose([*base, f"recording={copy}"])).output == first.output  # its content counts, not its place
    records = read_table(table)
    write_table(copy, records.records[:-1], records.about)
    for other in (f"recording={copy}", f"recording={table}?resample=5", f"recording={table}?resample=5&seed=1"):
        settings = settings_of(compose([*base, f"recording='{other.removeprefix('recording=')}'"]))
        assert settings.output != first.output and settings.jobs[0].key != first.jobs[0].key


def test_default_operators_are_of_the_test_part() -> None:
    """Policies were trained on another part."""
    default = _plain(compose([]).operators)
    assert {operators.part_of(op) for op in operators.resolve(default)} == {"test"}


def test_a_strategy_that_there_is_not_is_named_with_those_there_are() -> None:
    with pytest.raises(ValueError, match=r"no strategies \['markow'\]; strategies are \['a2c'"):
        readable(["strategy=[roller,markow],[random_walk]"])
    assert readable(["strategy=[roller],[random_walk]"]) == ["strategy=[roller],[random_walk]"]


def test_threads_are_those_of_kernels_and_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(THREADS, "2")
    words = ["operator=gemv(m=4, k=4)", "backend=analytic", "strategy=[random]"]
    assert settings_of(compose(words)).jobs[0].hardware.units == 2
    one = settings_of(compose([*words, "threads=1"])).jobs[0]
    assert one.hardware.units == 1 and os.environ[THREADS] == "1"
    with pytest.raises(ValueError, match="threads is 0; expected a whole number, 1 or more"):
        settings_of(compose([*words, "threads=0"]))
