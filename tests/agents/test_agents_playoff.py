"""Finalists of a search are timed in turns; kernels that lose time are not taken."""

from __future__ import annotations

import math
import types
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pytest

from agents.core import compiled as compiled
from agents.core import playoff as module
from agents.core.compiled import accepted, is_compiled
from agents.core.playoff import FINALISTS, WITHIN, playoff
from agents.optimizer import Asked
from agents.pieces import COMPILED, search_pieces
from gensor_gym.codegen.build import generate
from gensor_gym.codegen.cuda.nvrtc import NvrtcError, compile_cubin
from gensor_gym.construction import ConstructionGraph
from gensor_gym.graph.schedule import Schedule
from gensor_gym.hardware.types import Hardware
from gensor_gym.measure.measurement import Measurement, Status
from gensor_gym.measure.native import NativeBackend
from gensor_gym.measure.session import Budget, Session, Task
from gensor_gym.operators.types import Operator
from tests.support.wgmma_kernels import needs_nvrtc

OPERATOR, HARDWARE = "gemm(m=64, n=48, k=40)", "cascade_lake"


class Turns(NativeBackend):
    """Trials take what they are said to; in turns the slowest of the finalists is the fastest."""

    name = "cpu"

    def __init__(self, seconds: list[float], fault: Exception | None = None) -> None:
        """Nothing runs here: no worker is started."""
        self.seconds, self.fault, self.compared = list(seconds), fault, 0
        self.later: tuple[float, ...] = ()
        """Samples at the end of every trial and turn, beside other work on the machine."""

    def device(self, hw: Hardware) -> str:
        """A name."""
        return "none"

    def digest(self, op: Operator, schedule: Schedule, hw: Hardware) -> str:
        """Every schedule is a kernel of its own."""
        return str(schedule)

    def measure(self, op: Operator, schedules: list[Schedule], hw: Hardware) -> list[Measurement]:  # type: ignore[override]
        """The next times; infinite ones are failures."""
        times = [self.seconds.pop(0) for _ in schedules]
        return [Measurement(Status.OK if math.isfinite(t) else Status.TIMEOUT, (t, t, t, *self.later)) for t in times]

    def stream(self, op: Operator, schedules: list[Schedule], hw: Hardware):  # type: ignore[no-untyped-def, override]
        """One after the other."""
        for schedule in schedules:
            yield self.measure(op, [schedule], hw)[0]

    def compare(self, kernels, hw, rounds=20, *_, **__):  # type: ignore[no-untyped-def, override]
        """Samples in the reverse of the order of trials."""
        if self.fault is not None:
            raise self.fault
        self.compared = len(kernels)
        return {name: [1.0 / (1 + place)] * (rounds - len(self.later)) + [*self.later] for place, name in enumerate(kernels)}


def searched(
    seconds: list[float], monkeypatch: pytest.MonkeyPatch, fault: Exception | None = None, later: tuple[float, ...] = ()
) -> Session:
    """A session whose trials took so long, in their quietest sample."""
    backend = Turns(seconds, fault)
    backend.later = later
    monkeypatch.setattr("gensor_gym.measure.session.get_backend", lambda *_: backend)
    session = Session(Task.of(OPERATOR, HARDWARE, "cpu", "extended"), Budget(trials=len(seconds)))
    graph, rng = ConstructionGraph(OPERATOR, HARDWARE, "extended"), np.random.default_rng(0)
    schedules: dict[str, Schedule] = {}
    while len(schedules) < len(seconds):
        schedule = graph.random_schedule(rng)
        kernel = module.make_kernel(session.task.operator, schedule, session.task.hardware)
        schedules.setdefault(getattr(kernel, "source", ""), schedule)
    session.measure(list(schedules.values()))
    return session


def test_what_is_fastest_in_turns_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Among the finalists only: not one that was clearly slower, not one that failed."""
    session = searched([1.0, math.inf, 1.05, 2.0, 1.02], monkeypatch)
    final = playoff(session)
    assert final is not None
    assert str(final[0]) == session.trace[2].schedule and final[1].seconds == 1.05
    assert session.backend.compared == 3 and session.trials == 5  # type: ignore[attr-defined]


def test_other_work_on_the_machine_decides_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Most samples are disturbed, alike for all: the quiet ones say who is a finalist, and who wins."""
    session = searched([1.0, 1.05, 2.0], monkeypatch, later=(9.0,) * 12)
    assert session.best is not None and session.best[1].seconds == 9.0
    final = playoff(session)
    assert final is not None and str(final[0]) == session.trace[1].schedule
    assert session.backend.compared == 2  # type: ignore[attr-defined]


def test_no_more_finalists_than_said(monkeypatch: pytest.MonkeyPatch) -> None:
    session = searched([1.0 + 0.001 * n for n in range(FINALISTS + 3)], monkeypatch)
    final = playoff(session)
    assert final is not None and final[1].seconds == 1.0 + 0.001 * (FINALISTS - 1)


@pytest.mark.parametrize("seconds", [[1.0], [1.0, 1.0 + 2.0 * (WITHIN - 1.0)]])
def test_one_finalist_is_not_timed_again(seconds: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    session = searched(seconds, monkeypatch)
    assert playoff(session) == session.best and session.backend.compared == 0  # type: ignore[attr-defined]


def test_the_search_s_own_best_stands_where_turns_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    session = searched([1.0, 1.01], monkeypatch, RuntimeError("wrong answer"))
    assert playoff(session) == session.best is not None


def test_nothing_ran_well(monkeypatch: pytest.MonkeyPatch) -> None:
    assert playoff(searched([math.inf], monkeypatch)) is None


def test_a_model_has_no_turns() -> None:
    session = Session(Task.of(OPERATOR, HARDWARE, "analytic", "extended"), Budget(trials=3))
    session.measure([session.graph.random_schedule(np.random.default_rng(n)) for n in range(3)])
    assert playoff(session) == session.best is not None


SPILLING, GPU = "gemm(m=64, n=48, k=40)", "a100"
PATCHES = "frozen conv2d(n=1, c=3, h=224, w=224, k=768, r=16, s=16, stride=16, dtype='bfloat16')+bias"
"""The first layer of a ViT."""


def drawn(graph: ConstructionGraph, seed: int) -> Schedule:
    """A random schedule."""
    return graph.random_schedule(np.random.default_rng(seed))


def session() -> Session:
    """A session of three trials, in descending order of predicted times."""
    made = Session(Task.of(SPILLING, GPU, "analytic"), Budget(trials=9))
    found = {made.graph.latency(one): one for one in (drawn(made.graph, seed) for seed in range(20))}
    made.measure([found[seconds] for seconds in sorted(found, reverse=True)[:3]])
    return made


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Callable[[Sequence[int]], Iterator[int]]:
    """Function that makes NVRTC report these bytes of spills, kernel by kernel; it rejects kernels with a negative number."""

    def planted(spills: Sequence[int]) -> Iterator[int]:
        left = iter(spills)

        def answer(kernel: object) -> types.SimpleNamespace:
            if (spilled := next(left)) < 0:
                raise NvrtcError("rejected")
            return types.SimpleNamespace(spill_bytes=spilled, loss=f"{spilled} bytes of register spills" if spilled else "")

        monkeypatch.setattr(compiled, "compile_cubin", answer)
        return left

    return planted


def nothing() -> None:
    """A search that finds no further program."""


def test_the_fastest_kernel_without_loss_is_chosen(answers: Callable[[Sequence[int]], Iterator[int]]) -> None:
    """The first two of the three by predicted time are refused; no kernel is compiled after the one that is accepted."""
    one, left = session(), answers([8, -1, 0, 0])
    schedule, measurement = accepted(one, nothing, COMPILED)
    assert str(schedule) == one.trace[0].schedule and measurement.seconds == one.trace[0].seconds > one.best[1].seconds
    assert list(left) == [0]


def test_the_search_goes_on_while_all_kernels_are_refused(answers: Callable[[Sequence[int]], Iterator[int]]) -> None:
    one, calls = session(), list[int]()

    def search_on() -> None:
        calls.append(one.trials)
        one.measure([drawn(one.graph, 100 + len(calls))])

    answers([8, 8, 8, 8, 0])
    assert str(accepted(one, search_on, COMPILED)[0]) == one.trace[4].schedule and calls == [3, 4]
    left = answers([64, -1, 32, 48, 16])
    with pytest.warns(RuntimeWarning, match="the best of 4 kernels has 32 bytes of register spills"):
        found, _ = accepted(one, search_on, 4)
    assert str(found) == sorted(one.trace, key=lambda row: row.seconds)[2].schedule
    assert list(left) == [16] and calls == [3, 4]


def test_other_searches_compile_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without NVRTC, and where a kernel is not in CUDA."""
    assert not any(is_compiled(Session(Task.of(SPILLING, name, "analytic"), Budget())) for name in ("cascade_lake", "mi300x"))
    monkeypatch.setattr(compiled, "is_available", lambda: False)
    assert not is_compiled(session())


@needs_nvrtc
def test_a_network_takes_no_kernel_that_spills() -> None:
    """The best kernel by the model spills registers."""
    asked = Asked.of(PATCHES, "rtx4090", backend="analytic")
    (result,) = search_pieces({(op := asked.task.operator): asked}, {op: 1}, 1, float("inf"), 0, lambda *_: None).values()
    first, found = (
        compile_cubin(generate(op, asked.task.graph().parse(text), asked.task.hardware))
        for text in (result.trace[0].schedule, str(result.schedule))
    )
    assert first.spill_bytes > 0 and not found.loss
    assert result.trace[0].seconds <= result.seconds < 1.05 * result.trace[0].seconds
