"""Kernels of Winograd's algorithm: right for random convolutions and schedules, in their memory, and faults are seen."""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np
import pytest

from gensor_gym.codegen.build import generate
from gensor_gym.codegen.families import parsed
from gensor_gym.codegen.kernel import Kernel
from gensor_gym.codegen.runtime.c import load, load_entry
from gensor_gym.codegen.runtime.threads import pointers, runtime
from gensor_gym.hardware import get
from gensor_gym.measure.answers.expectation import make_draws
from gensor_gym.winograd.graph import WinogradGraph
from tests.support.apart import in_a_process_of_its_own
from tests.support.c_cases import compiled, inputs_of, machine
from tests.support.gir_cases import planted, sanitized_apart
from tests.support.guarded import guarded
from tests.support.thorough import thorough_but
from tests.support.winograd_cases import random_kernel, winograd


def fault_of(kernel: Kernel, threads: int = 2) -> str:
    """What is wrong with a kernel's answer; empty where nothing is."""
    (draw,) = make_draws(kernel.loop_nest, 0, places=(0,))
    return draw.fault(load(kernel, threads)(*draw.inputs))


@pytest.mark.parametrize("seeds", thorough_but([range(start, start + 20) for start in range(0, 200, 20)], range(20)), ids=str)
def test_random_convolutions(seeds: range) -> None:
    kernels = compiled(random_kernel(seed) for seed in seeds)
    assert {bool(kernel.prepares) for kernel in kernels} == {False, True}
    for number, kernel in enumerate(kernels):
        assert fault_of(kernel, (1, 2, 3, 16)[number % 4]) == "", kernel.source


@pytest.mark.as_shipped
def test_every_field_has_its_code() -> None:
    """One convolution with every value of each field, the others as they are in the fastest program."""
    op, hw = winograd(11, 10, 20, 70, "padding=1", "+bias", n=2).freeze(), machine(8)
    graph = WinogradGraph(op, hw)
    best = graph._all[graph.latencies(graph._all).argmin()]
    near = [row for row in graph._all if (row != best).sum() <= 1]
    assert len(near) > 12
    assert [fault_of(kernel) for kernel in compiled(generate(op, graph.schedule(row), hw) for row in near)] == [""] * len(near)


def between_guard_pages(seeds: range) -> None:
    """Kernels that pack their weights in every call are right on tensors at the edge of accessible memory."""
    for kernel in compiled(random_kernel(seed) for seed in seeds):
        op, team = kernel.loop_nest, runtime(2)
        (draw,) = make_draws(op, 0, places=(0,))
        for at_end in (True, False):
            given = [guarded(array, at_end) for array in draw.inputs]
            output = guarded(np.full(op.output.shape, np.nan, np.float32), at_end)
            workspace = guarded(np.full(kernel.workspace_bytes, 0xFF, np.uint8), at_end)
            load_entry(kernel)(pointers(given), output.ctypes.data, workspace.ctypes.data, ctypes.byref(team))
            assert draw.fault(output) == "", kernel.source


def test_tensors_between_guard_pages() -> None:
    in_a_process_of_its_own(__name__, "between_guard_pages(range(300, 306))")


@pytest.mark.thorough
def test_sanitizers_find_nothing(tmp_path: Path) -> None:
    assert sanitized_apart(tmp_path, [random_kernel(seed) for seed in range(400, 420)]) == ""


FAULTS = {
    "a sign of an image's transformation": (r"(e\d\d = d\d\d) - (d\d\d);", r"\1 + \2;"),
    "a filter that is not halved": (r"0\.5 \* h00", "1.0 * h00"),
    "a point of the sums": (r"s00 = m0 \+ m4", "s00 = m0 + m1"),
    "the last row of the image": (r"inside\(row \+ 3, 11\)", "inside(row + 4, 11)"),
    "the first tile of a block": (r"down = first / 5 % 6", "down = 0 * first"),
    "the channels of a group": (r"\+ k - begin, k", "+ k, k"),
    "filters of another panel": (r"first % 32 \* 20", "0"),
    "the last line of pixels": (r"\(i \+ 1\)", "(i + 0)"),
    "an epilogue that is left out": (r" \+= load_8\(bias\)", r" += 0 * load_8(bias)"),
}  # fmt: skip


def planted_in(fault: str) -> Kernel:
    """A kernel with a fault, of a convolution with edges, several blocks, several groups and a part of a vector."""
    result = "nchw" if "line" in fault else "nhwc"
    op, hw = winograd(11, 10, 20, 40, "padding=1", "+bias", result=result).freeze(), machine(8)
    kernel = generate(op, parsed(op, "height=4 vectors=2 block=16 panels=2 apart=0"), hw)
    return planted(kernel, *FAULTS[fault]) if fault else kernel


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_seen(fault: str) -> None:
    assert fault_of(planted_in("")) == ""
    assert "elements" in fault_of(planted_in(fault))


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("place", [(4, 6), (5, 7), (10, 9), (0, 0)])
def test_nan_and_infinity_stay_in_their_windows(value: float, place: tuple[int, int]) -> None:
    kernel = planted_in("")
    inputs = list(inputs_of(kernel.loop_nest))
    inputs[0] = inputs[0].copy()
    inputs[0][(0, *place, 3)] = value
    made = load(kernel, 1)(*inputs)[0]
    wanted = np.ones(made.shape[:2], bool)
    wanted[max(0, place[0] - 1) : place[0] + 2, max(0, place[1] - 1) : place[1] + 2] = False
    assert np.array_equal(np.isfinite(made), np.broadcast_to(wanted[..., None], made.shape))


def test_one_thread_and_two_give_equal_results() -> None:
    kernel = random_kernel(7)
    inputs = inputs_of(kernel.loop_nest)
    assert np.array_equal(*(load(kernel, threads)(*inputs) for threads in (1, 2)))


def test_other_machines_refuse_it() -> None:
    op = winograd(11, 10, 20, 40)
    schedule = parsed(op, "height=4 vectors=2")
    with pytest.raises(ValueError, match="cuda has no generator of Winograd's algorithm"):
        generate(op, schedule, get("h100"))
    with pytest.raises(ValueError, match="on h100: expected a CPU, or winograd=0"):
        WinogradGraph(op, get("h100"))
    with pytest.raises(ValueError, match="space 'tree': expected a convolution with winograd=2, and space gir"):
        WinogradGraph(op, machine(), "tree")
