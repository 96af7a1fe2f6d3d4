"""No strategy reaches the model past the counter: every call of it is counted, with the compiled code run as Python."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from agents.strategy import CONSTRUCTIONS, strategies_for

ROOT = Path(__file__).resolve().parents[2]
SMALLER = {
    "markov": {"walkers": 2, "steps": 4, "refiners": 1, "refine_steps": 3, "descents": 1},
    "markov_ext": {"walkers": 2, "steps": 4, "refiners": 1, "refine_steps": 3, "descents": 1, "columns": 1},
    "beam": {"width": 2, "patience": 2},
    "mcts": {"simulations": 5, "walk": 3, "climb": 2},
    "welder": {"limit": 20},
    "droplet": {"starts": 1},
    "markov_annealing": {
        "walkers": 2, "steps": 4, "refiners": 1, "refine_steps": 3, "descents": 1, "chains": 2, "chain_steps": 3,
    },  # fmt: skip
    "corrected": {"proposer": "greedy"},
}
"""So that Python gets through them."""

AUDIT = """
import importlib, json, sys, traceback
from gensor_gym.cost import model

calls = 0
original = model.latency

def counted(*arguments):
    global calls
    calls += 1
    return original(*arguments)

fill = model.fill_latencies

def counted_fill(rows, *arguments):
    global calls
    calls += len(rows)  # one each, also where a row does not fit and is infinite without the model
    return fill(rows, *arguments)

model.fill_latencies = counted_fill

from gensor_gym.cost import column_descent
fits = column_descent.fits

def counted_fits(*arguments):
    global calls
    calls += 1  # a descent tries a program: it counts whether it fits or not
    return fits(*arguments)

column_descent.fits = counted_fits

from agents import get_strategy
from agents.optimizer import run
from gensor_gym.measure.session import Budget, Session, Task

def audit(name, parameters):
    strategy = get_strategy(name, **parameters)
    for module in list(sys.modules.values()):
        ours = module.__name__.split(".")[0] in ("gensor_gym", "agents") and module not in (model, column_descent)
        for attribute, value in list(vars(module).items()) if ours else ():
            if value is original:
                setattr(module, attribute, counted)
    task = Task.of("reduce_sum(m=16, k=65536)", "zen5_1c", "recorded", "compact")
    session = Session(task, Budget(trials=5))
    before = calls
    run(strategy, session, 0)
    return [calls - before, session.evaluations, session.graph.evaluations, session.trials]

found = {}
for name, parameters in json.loads(sys.argv[1]).items():
    try:
        found[name] = audit(name, parameters)
    except Exception:
        found[name] = traceback.format_exc()
print(json.dumps(found))
"""


LEARNED = {
    "ppo", "a2c", "dqn", "qrdqn", "policy_beam", "policy_mcts", "policy_annealing", "columns", "columns_annealing",
    "columns_descents", "columns_unranked", "adapted", "in_turn",
}  # fmt: skip
"""A policy's observer runs the model as compiled code; test_agents_policies.py and test_agents_columns.py count what they ask."""


OF_OPTIMA = {"nearest", "nearest_descents"}
"""They know certified optima, of which this machine has none; test_agents_exact.py counts what they ask."""
PLAIN = sorted(set(strategies_for(CONSTRUCTIONS)) - LEARNED - OF_OPTIMA)


@pytest.fixture(scope="module")
def audited() -> dict[str, list[int] | str]:
    """What every strategy asked and was charged, or how it failed; one process, which runs the model as plain Python."""
    parameters = {name: {**SMALLER.get(name, {}), "space": "compact"} for name in PLAIN}
    environment = {**os.environ, "NUMBA_DISABLE_JIT": "1", "GENSOR_GYM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", AUDIT, json.dumps(parameters)]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.thorough
@pytest.mark.parametrize("name", PLAIN)
def test_every_call_of_the_model_is_charged(audited: dict[str, list[int] | str], name: str) -> None:
    """On the recorded tier, where measuring asks no model."""
    found = audited[name]
    assert isinstance(found, list), found
    calls, charged, counted, trials = found
    assert trials > 0
    assert charged == counted == calls


def test_only_walks_descents_and_observers_run_the_model_as_compiled_code() -> None:
    """Everything else goes through the graph, which counts; an observer counts itself, descents are counted in one place."""
    descending = [path.name for path in (ROOT / "agents").rglob("*.py") if "import descend\n" in path.read_text()]
    assert descending == ["programs.py"]
    using = [path.name for path in (ROOT / "agents").rglob("*.py") if "cost.model" in path.read_text()]
    assert sorted(using) == ["observer.py", "walk.py"]
    direct = [path.name for path in (ROOT / "agents").rglob("*.py") if "successor_features" in path.read_text()]
    assert direct == []
