"""The example package adds one of each; nothing of it is there until a run names it, and workers have what the run has."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from agents import optimize, strategy
from gensor_gym import hardware, operators
from gensor_gym.operators.registry import FACTORIES
from gensor_gym.registry import register

ROOT = Path(__file__).resolve().parents[1]
EXAMPLE = "my_gemm(m=48, n=32, k=24)+bias"
EACH = f"""
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
import numpy as np
import gensor_gym
from agents import optimize
from gensor_gym import hardware, operators, plugins

if __name__ == "__main__":
    refused = 0
    for take in (operators.parse, hardware.get):
        try:
            take({{operators.parse: "{EXAMPLE}", hardware.get: "h20"}}[take])
        except ValueError:
            refused += 1
    assert refused == 2 and plugins.loaded() == {{}}  # installed, and not there
    gensor_gym.load_plugins("example")
    gensor_gym.load_plugins("example")
    assert plugins.loaded() == {{"example": "gensor-gym-example 0.1"}}
    op = operators.parse("{EXAMPLE}")
    assert str(op) == "{EXAMPLE}" and operators.my_gemm(m=48, n=32, k=24).with_epilogue("bias") == op
    found = [optimize(op, "h20", "best_of_many", 2, backend=name).trace[0].seconds for name in ("analytic", "doubled")]
    assert found[1] == 2 * found[0] > 0
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        assert pool.submit(operators.parse, "{EXAMPLE}").result() == op
        assert pool.submit(hardware.get, "h20").result().units == 78
    schedule = gensor_gym.ConstructionGraph(op, "host").random_schedule(np.random.default_rng(0))
    timed = gensor_gym.measure(op, schedule, "host")
    assert timed.status == "OK", timed.error
"""


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Where the example is installed, as variables of a process."""
    source, target = tmp_path_factory.mktemp("plugin") / "source", tmp_path_factory.mktemp("site")
    shutil.copytree(ROOT / "docs" / "examples" / "plugin", source)
    options = ["-q", "--no-deps", "--no-build-isolation", "--no-index", "--target", str(target)]
    subprocess.run([sys.executable, "-m", "pip", "install", *options, str(source)], check=True, capture_output=True, text=True)
    paths = os.pathsep.join((str(target), str(ROOT)))
    kept = {name: value for name, value in os.environ.items() if name != "GENSOR_GYM_PLUGINS"}
    return {**kept, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}


def run(environment: dict[str, str], folder: Path, *arguments: str) -> subprocess.CompletedProcess:
    """A Python process."""
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=280)


@pytest.mark.examples
def test_each_is_used_here_and_in_processes(environment: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(EACH)
    done = run(environment, tmp_path, "script.py")
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.examples
def test_commands_take_plugins_and_write_them_down(environment: dict[str, str], tmp_path: Path) -> None:
    words = [f"operator={EXAMPLE}", "hardware=h20", "backend=doubled", "strategy=[best_of_many]",
             "strategies.best_of_many.draws=4", "budget.trials=2", "figures=false", "wandb.mode=disabled",
             "output=out"]  # fmt: skip
    done = run(environment, tmp_path, "-m", "experiments.compare", "plugins=[example]", *words)
    assert done.returncode == 0, done.stderr[-3000:]
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert summary["plugins"] == {"example": "gensor-gym-example 0.1"} and summary["backend"] == "doubled"
    named = {**environment, "GENSOR_GYM_PLUGINS": "example"}
    table = run(named, tmp_path, "-m", "experiments.reproduce", "table=units", "output=tables")
    assert table.returncode == 0, table.stderr[-3000:]
    made = json.loads((tmp_path / "tables" / "units.json").read_text())
    assert made["tables"][0]["rows"] == [["h20", 78], ["h200", 132]] and "example (gensor-gym-example 0.1)" in made["code"]


@pytest.mark.thorough
def test_the_guide_s_command_does_what_it_says(environment: dict[str, str], tmp_path: Path) -> None:
    page = (ROOT / "docs" / "guides" / "plugin.md").read_text(encoding="utf-8")
    blocks = ["\n".join(line[4:] for line in block.splitlines()) for block in re.findall(r"(?:^    .*\n)+", page, re.MULTILINE)]
    install, use, table = (shlex.split(line) for block in blocks for line in block.splitlines())
    assert install == ["pip", "install", "docs/examples/plugin"] and use[:2] == ["gensor", "optimize"]
    assert table == ["gensor", "reproduce", "table=units", "plugins=[example]"]
    done = run(environment, tmp_path, "-m", "experiments", *use[1:])
    assert done.returncode == 0 and "OK; nothing was run" in done.stdout, done.stdout + done.stderr[-3000:]
    without = run(environment, tmp_path, "-m", "experiments", *(word for word in use[1:] if word != "plugins=[example]"))
    assert without.returncode == 2 and "no strategies ['best_of_many']" in without.stderr


@pytest.mark.examples
def test_the_list_of_strategies_has_those_of_plugins(environment: dict[str, str], tmp_path: Path) -> None:
    named = {**environment, "GENSOR_GYM_PLUGINS": "example"}
    done = run(named, tmp_path, "-m", "agents", "best_of_many")
    assert done.stdout.splitlines()[0].startswith("best_of_many: Measure, again") and "\n  draws=32\n" in done.stdout, done.stderr
    refused = run({**environment, "GENSOR_GYM_PLUGINS": "nothing"}, tmp_path, "-m", "agents")
    assert refused.returncode == 2 and refused.stderr == "no plugin 'nothing'; installed are example\n"


@pytest.mark.examples
def test_a_worker_loads_what_its_run_names(environment: dict[str, str], tmp_path: Path) -> None:
    worker = ("-m", "gensor_gym.measure.workers.worker", "nvrtc", "0", "1", str(os.getpid()), "{}")
    done = run({**environment, "GENSOR_GYM_PLUGINS": "example, nothing"}, tmp_path, *worker)
    assert done.returncode != 0 and "no plugin 'nothing'; installed are example" in done.stderr


def test_the_example_has_thirty_lines_of_code() -> None:
    lines = (ROOT / "docs" / "examples" / "plugin" / "gensor_gym_example.py").read_text(encoding="utf-8").splitlines()
    assert len(list(filter(str.strip, lines))) <= 30


def test_a_function_is_a_strategy_with_its_arguments_as_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    def twice(session, rng, space: str = "extended", times: int = 2) -> None:  # type: ignore[no-untyped-def]
        """So many random schedules."""
        session.measure([session.graph.random_schedule(rng) for _ in range(times)])

    monkeypatch.setattr(strategy, "STRATEGIES", dict(strategy.STRATEGIES))
    made = strategy.register_strategy("twice")(twice)
    assert made(times=3) == made(times=3) != made() and made().space == "extended"
    assert optimize("gemm(m=8, n=8, k=8)", "h200", made(times=3), 3, backend="analytic").seconds > 0
    with pytest.raises(dataclasses.FrozenInstanceError):
        made().times = 4
    with pytest.raises(ValueError, match=r"strategy 'once': hyperparameters \['times'\] have no default"):
        strategy.register_strategy("once")(lambda session, rng, times: None)


def test_a_name_that_is_taken_is_refused_with_both_owners() -> None:
    with pytest.raises(ValueError, match="operator 'gemm' of mine: gensor_gym.operators.kinds.linear has one of that name"):
        register("operator", FACTORIES, "gemm", operators.gemm, "mine")
    with pytest.raises(ValueError, match="machine 'h200' of tests.test_plugins: gensor_gym has one of that name"):
        hardware.register_machine(lambda: hardware.get("h200"))
    with pytest.raises(ValueError, match="backend 'a b' of mine: expected a name of letters"):
        register("backend", {}, "a b", None, "mine")
    table: dict[str, object] = {}
    register("thing", table, "one", 1, "mine")
    register("thing", table, "one", 2, "mine")  # the module is run again
    with pytest.raises(ValueError, match="thing 'one' of theirs: mine has one"):
        register("thing", table, "one", 3, "theirs")
    assert table == {"one": 2}
