"""Without a GPU the model chooses among kernels that a device's trials would not refuse."""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pytest

from agents.core import compiled as module
from agents.core.compiled import accepted, is_compiled
from agents.optimizer import Asked
from agents.pieces import COMPILED, search_pieces
from gensor_gym.codegen.build import generate
from gensor_gym.codegen.cuda.nvrtc import NvrtcError, compile_cubin
from gensor_gym.construction import ConstructionGraph
from gensor_gym.graph.schedule import Schedule
from gensor_gym.measure.session import Budget, Session, Task
from tests.support.wgmma_kernels import needs_nvrtc

OPERATOR, HARDWARE = "gemm(m=64, n=48, k=40)", "a100"
PATCHES = "frozen conv2d(n=1, c=3, h=224, w=224, k=768, r=16, s=16, stride=16, dtype='bfloat16')+bias"
"""The first layer of a ViT."""


def drawn(graph: ConstructionGraph, seed: int) -> Schedule:
    """A random schedule."""
    return graph.random_schedule(np.random.default_rng(seed))


def session() -> Session:
    """A session of three trials, in descending order of predicted times."""
    made = Session(Task.of(OPERATOR, HARDWARE, "analytic"), Budget(trials=9))
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

        monkeypatch.setattr(module, "compile_cubin", answer)
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
    assert not any(is_compiled(Session(Task.of(OPERATOR, name, "analytic"), Budget())) for name in ("cascade_lake", "mi300x"))
    monkeypatch.setattr(module, "is_available", lambda: False)
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
