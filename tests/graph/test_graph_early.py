"""Answers before anything is compiled, and what is said while it is."""

from __future__ import annotations

import io
import subprocess
import sys
from types import SimpleNamespace

import numba
import numpy as np
import pytest

from gensor_gym import ConstructionGraph
from gensor_gym.construction import _fill_fits, _walk
from gensor_gym.cost import model
from gensor_gym.cost.column_descent import TRACED, _descend
from gensor_gym.cost.terms import NUM_TERMS
from gensor_gym.env import process
from gensor_gym.env.construct import ConstructEnv
from gensor_gym.env.views import NUM_SUCCESSOR_FEATURES, _fill_successors
from gensor_gym.graph import enumeration, near_limits, rules
from gensor_gym.graph.actions import ACTIONS, NUM_ACTIONS
from gensor_gym.graph.compiling.early import waiting
from gensor_gym.graph.compiling.notice import PATIENCE_S, QUIET, Notice
from gensor_gym.graph.compiling.plain import Line, Lines, interpreted
from gensor_gym.graph.coordinates import opened
from gensor_gym.graph.knobs.knob import EVERY
from gensor_gym.graph.tables.layout import ROW
from gensor_gym.measure.records.backend import FEW
from tests.support.thorough import thorough_but

if numba.config.DISABLE_JIT:
    pytest.skip("nothing is compiled", allow_module_level=True)

PRODUCT, WINDOWS = "gemm(m=192, n=320, k=1000)", "conv2d(n=2, c=24, h=15, w=17, k=40, r=3, s=3, stride=2, padding=1)"
OTHERS = (
    "gemm(m=46000, n=46000, k=46000)", "gemv(m=1000, k=333)", "avg_pool2d(n=2, c=24, h=15, w=17, r=3, s=3)",
    "gemm(m=64, n=64, k=128, dtype='float16')",
)  # fmt: skip
MACHINES = ("cascade_lake", "h200", "host", "a100", "mi300x")
SOME = MACHINES[:1]


def both(function: object, *arguments: object) -> None:
    """Compiled and as plain Python, of the same arguments: answers and all that was written are the same, bit by bit."""
    pairs = [[each.copy() if isinstance(each, np.ndarray) else each for each in arguments] for _ in range(2)]
    with waiting():
        compiled = function(*pairs[0])  # type: ignore[operator]
    plain = interpreted(function)(*pairs[1])  # type: ignore[type-var]
    assert compiled == plain and repr(compiled) == repr(plain), function
    for one, other in zip(*pairs, strict=True):
        if isinstance(one, np.ndarray):
            assert one.dtype == other.dtype and one.tobytes() == other.tobytes(), function


@pytest.mark.thorough
@pytest.mark.parametrize("machine", thorough_but(MACHINES, *SOME))
@pytest.mark.parametrize("operator", thorough_but((PRODUCT, WINDOWS, *OTHERS), WINDOWS))
def test_episodes_are_the_same(operator: str, machine: str) -> None:
    """Every state of random episodes in both spaces, and what is said of its successors."""
    for space in ("gensor", "extended"):
        env = ConstructEnv(operator, machine, space=space)
        tasks, rng = env.tasks, np.random.default_rng(0)
        state = (env._row, env._scalars, tasks.ints, tasks.floats, tasks.sizes, tasks.static, tasks.initial, tasks.starts)
        both(process.begin_one, 0, *state, env._room, env._mask, env._obs)
        with waiting():
            _, info = env.reset(seed=0)
            ended = False
            while not ended:
                action = int(rng.choice(np.flatnonzero(info["action_mask"])[1:])) if info["action_mask"].sum() > 1 else 0
                settings = (tasks.ints, tasks.floats, tasks.sizes, env._vector, env._room, env._mask, env._obs)
                both(process.step_one, 0, env._row, env._scalars, action, *settings)
                _, _, ended, _, info = env.step(action)
        out = np.zeros((NUM_ACTIONS, NUM_SUCCESSOR_FEATURES), np.float32)
        mask = env.graph.action_mask(env.schedule).astype(np.int8)
        both(_fill_successors, env._row, mask, tasks.ints[0], tasks.floats[0], tasks.sizes[0], env._room, out)


@pytest.mark.thorough
@pytest.mark.parametrize("machine", thorough_but(MACHINES, *SOME))
def test_what_a_certificate_asks_is_the_same(machine: str) -> None:
    """Walks, masks, programs near the limits, the model and its terms, descents."""
    graph = ConstructionGraph(PRODUCT, machine, "extended")
    ints, floats, sizes = graph.tables.ints, graph.tables.floats, graph.tables.sizes
    rng = np.random.default_rng(0)
    way = np.repeat(graph.initial().row[None], 33, axis=0)
    both(_walk, way, rng.random(32), rng.random(NUM_ACTIONS), ints, sizes)
    with waiting():
        way = graph.walk(way[0], rng.random(32))
    both(rules.fill_masks, way, ints, sizes, np.empty((len(way), NUM_ACTIONS), np.int8))
    near = np.repeat(graph.initial().row[None], 200, axis=0)
    both(near_limits._fill, near, rng.random((200, near_limits.DRAWS)), ints, sizes)
    with waiting():
        rows = np.concatenate([way, near_limits.near_limits(near[0], rng.random((200, near_limits.DRAWS)), ints, sizes)])
        legal = rows[graph.fits(rows)]
    both(_fill_fits, rows, ints, EVERY, np.empty(len(rows), bool))
    both(model.fill_latencies, rows, ints, floats, graph.room(), np.empty(len(rows)))
    both(model.fill_terms, legal, ints, floats, graph.room(), np.zeros((len(legal), 1 + NUM_TERMS)))
    descent = (*graph.coordinates.packed, ints, floats, graph.room(), True, 1.0, np.zeros((200, TRACED)))
    both(_descend, opened(legal[-1], ints), *descent)
    for row in rows[::20]:
        both(rules.fits, row, ints)
        both(rules.is_well_formed, row, ints, sizes)


def test_small_spaces_are_listed_alike() -> None:
    graph = ConstructionGraph("gemm(m=64, n=64, k=64)", "h200", "compact")
    columns = graph.coordinates
    assert 0 < columns.size <= FEW
    room = np.zeros((columns.size, ROW), np.int32)
    both(enumeration._fill, columns.base, 0, columns.size, *columns.packed, graph.tables.ints, room)


def test_actions_are_written_to_what_was_given() -> None:
    """Only what changed: what other threads write beside it stays."""
    array = np.arange(12, dtype=np.int32).reshape(3, 4)
    lines = Lines(array[1:])
    lines[0, 1] = 50
    lines[1][2] += 7
    array[1, 0] = -1
    assert array.tolist()[1:] == [[-1, 5, 6, 7], [8, 9, 10, 11]]
    lines.put_back()
    assert array.tolist() == [[0, 1, 2, 3], [-1, 50, 6, 7], [8, 9, 17, 11]]
    line = Line(array[0])
    copy = line.copy()
    copy[0] = 9
    assert line.shape == copy.shape == (4,) and line[0] == 0 and len(ACTIONS) == NUM_ACTIONS


LINE = "gensor_gym: compiling, once; it is kept for the next time\n"


class Terminal(io.StringIO):
    """Text that says it is a terminal's."""

    def isatty(self) -> bool:
        return True


def function(module: str | None) -> SimpleNamespace:
    return SimpleNamespace(data={"dispatcher": SimpleNamespace(py_func=SimpleNamespace(__module__=module))})


def said(out: io.StringIO, seconds: list[float], module: str | None = "gensor_gym.graph.rules", silent: bool = False) -> str:
    """What is written of functions that take so many seconds, each of which calls one of Numba's that takes half of it."""
    now = [0.0]
    notice = Notice(lambda: out, lambda: now[0], lambda: silent)
    for each in seconds:
        notice.on_start(function(module))
        notice.on_start(function("numba.np.arrayobj"))
        now[0] += each / 2
        notice.on_end(function("numba.np.arrayobj"))
        now[0] += each / 2
        notice.on_end(function(module))
        now[0] += 100.0
    return out.getvalue()


def test_a_line_is_written_once_and_only_of_what_takes_long() -> None:
    short = PATIENCE_S / 2
    assert said(io.StringIO(), [short, short]) == "", "time between two compilations does not count"
    assert said(io.StringIO(), [short, short, short, 9.0, 9.0]) == LINE
    assert said(io.StringIO(), [9.0], silent=True) == "" == said(io.StringIO(), [9.0], "somebody.elses")
    assert said(io.StringIO(), [9.0], None) == "", "a function made from its text has no module"


def test_on_a_terminal_it_says_how_far_it_is_and_leaves_one_line() -> None:
    assert said(Terminal(), [9.0]) == LINE + "\r1 functions, 4 s\x1b[K" + "\r\x1b[K"


COMPILE = """
import time, multiprocessing, sys
from gensor_gym.graph.compiling import notice
from gensor_gym.graph.compiled import lean
notice.PATIENCE_S = 0.0
def work():
    import numba
    def one(x): return x
    one.__module__ = "gensor_gym.one"
    numba.njit(one)(1)
if __name__ == "__main__":
    if sys.argv[1] == "worker":
        process = multiprocessing.get_context("fork").Process(target=work)
        process.start(); process.join()
    else:
        work()
"""


@pytest.mark.thorough
@pytest.mark.skipif(bool(numba.config.DISABLE_JIT), reason="nothing is compiled")
def test_a_process_says_it_and_a_worker_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    def heard(how: str) -> str:
        done = subprocess.run([sys.executable, "-c", COMPILE, how], capture_output=True, text=True, check=True)
        return done.stderr

    monkeypatch.delenv(QUIET, raising=False)
    assert heard("itself") == LINE and heard("worker") == ""
    monkeypatch.setenv(QUIET, "1")
    assert heard("itself") == ""
