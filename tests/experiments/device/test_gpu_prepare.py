"""Preparing a run on a device: every function that the stages call is compiled before, and nothing is compiled after."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from experiments.device import prepare

ROOT = Path(__file__).resolve().parents[3]

WATCHED = """
import gc, sys, tempfile
from dataclasses import replace
from pathlib import Path
import pytest
from numba.core.dispatcher import Dispatcher
from experiments.device import prepare
from experiments.device.context import Context
from experiments.device.stages import adaptive, correctness
from experiments.device.stages import operators as operators_stage
from agents.runs.journal import read_rows
from experiments.device.table import read_experiment
from gensor_gym import operators
from tests.experiments.device import test_gpu_stages as given

def signatures():
    found = set()
    for thing in gc.get_objects():
        if isinstance(thing, Dispatcher) and thing.py_func.__module__ != "gensor_gym.operators.reference":
            found |= {(thing.py_func.__module__, thing.py_func.__qualname__, str(s)) for s in thing.signatures}
    return found

for wave in prepare.waves():
    for part in wave.values():
        part("h200")
before = signatures()
assert len(before) > 20, before
contest = replace(read_experiment(adaptive.EXPERIMENT), operators=(operators.gemv(96, 64),), trials=prepare.TRIALS)
with pytest.MonkeyPatch.context() as patch:
    given.fake_device(patch)
    patch.setattr(adaptive, "read_experiment", lambda file: contest)
    for stage in (correctness, operators_stage, adaptive):
        folder = Path(tempfile.mkdtemp())
        end = given.InstantDevice.trials + int(sys.argv[1])
        patch.setattr(Context, "left", property(lambda self: end - given.InstantDevice.trials))  # trials, not seconds
        stage.run(given.at(folder, seconds=float(sys.argv[1])))
        rows = [row for path in folder.glob("*.jsonl") for row in read_rows(path)]
        new = signatures() - before
        print(stage.__name__, len(rows), "rows", sorted(new)[:5], flush=True)
        assert rows and not new, (stage.__name__, sorted(new))
        searches = [row for row in rows if row.get("kind") == "search"]
        assert all("error" not in row for row in searches), searches
"""


@pytest.mark.thorough
def test_no_stage_compiles_what_the_preparation_has_not() -> None:
    """Signatures of compiled functions after the preparation and after each stage, over a device that answers at once.

    In a process of its own, as other tests compile too; what is in the cache on disk makes no difference.
    """
    done = subprocess.run(
        [sys.executable, "-c", WATCHED, "60"], cwd=ROOT, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]


@pytest.mark.thorough
def test_a_part_that_fails_is_named_and_the_others_are_done(monkeypatch: pytest.MonkeyPatch) -> None:
    """A part that there is not ends its process; the time of one that takes too long is up."""
    monkeypatch.setattr(prepare, "waves", lambda: [{"nothing of this name": print}, {"enumeration": print}])
    found = prepare.prepare("h200", 300.0)
    assert list(found) == ["nothing of this name"] and "KeyError" in found["nothing of this name"]
    late = prepare.prepare("h200", 0.0)
    assert set(late) == {"nothing of this name", "enumeration"}


@pytest.mark.thorough
def test_processes_that_save_at_once_lose_nothing(tmp_path: Path) -> None:
    """Two processes compile different signatures of one function; a third finds both in the cache."""
    module = tmp_path / "shared.py"
    module.write_text("import numba\n@numba.njit(cache=True)\ndef double(x):\n    return x + x\n")
    program = (
        "import sys, time; sys.path.insert(0, sys.argv[1])\n"
        "from experiments.device.prepare import save_in_turn; save_in_turn()\n"
        "from shared import double\n"
        "for value in eval(sys.argv[2]): double(value)\n"
        "print(sum(double.stats.cache_hits.values()))\n"
    )
    command = [sys.executable, "-c", program, str(tmp_path)]
    pairs = ["[1, 1.0]", "[1j, True]"]
    running = [subprocess.Popen([*command, values], cwd=ROOT, stdout=subprocess.PIPE, text=True) for values in pairs]
    assert [process.wait(timeout=300) for process in running] == [0, 0]
    again = subprocess.run([*command, "[1, 1.0, 1j, True]"], cwd=ROOT, capture_output=True, text=True, timeout=300, check=True)
    assert int(again.stdout) == 4


COLD = """
from experiments.device import prepare
prepare.save_in_turn()
from gensor_gym.construction import ConstructionGraph
graph = ConstructionGraph("gemv(m=16, k=16)", "h100")
assert graph.is_legal(graph.initial())
"""


@pytest.mark.thorough
def test_who_compiles_does_not_wait_for_itself(tmp_path: Path) -> None:
    """With an empty cache: a function is compiled under a lock of its own, and written under another."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", COLD], env=environment, cwd=ROOT, capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, done.stderr[-3000:]
    assert list(tmp_path.rglob("*.nbc"))
