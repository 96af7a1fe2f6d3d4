"""Images whose pixels are apart in memory: kernels read and write nothing between them, and others refuse them by name."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from gensor_gym import hardware, operators
from gensor_gym.codegen import generate
from gensor_gym.codegen.build import build
from gensor_gym.codegen.c.codegen import generate_c
from gensor_gym.codegen.families import graph_of
from gensor_gym.codegen.kernel import Kernel
from gensor_gym.construction import ConstructionGraph
from gensor_gym.dataflow.text import parse, text_of
from gensor_gym.measure.answers.expectation import make_draws
from gensor_gym.measure.devices.buffers import GuardedBuffer
from gensor_gym.measure.devices.cpu import CpuDevice
from gensor_gym.measure.records.verified import fault_of
from gensor_gym.measure.workers.builders import build_c
from gensor_gym.measure.workers.requests import Built
from gensor_gym.measure.workers.trial import check
from gensor_gym.measure.written.text import Options, kernel_of
from gensor_gym.networks.orders.tilings import filled_by_windows, filled_registers
from gensor_gym.operators.types import Access, Operator
from tests.support.c_cases import machine, program
from tests.support.thorough import thorough_but

H100 = hardware.get("h100")
"""A machine whose kernels know no pitches."""


def pitched(seed: int) -> Operator:
    """A random convolution or pooling with channels last whose image, result or both have a pitch."""
    rng = random.Random(seed)
    kind = rng.choice(("conv2d", "conv2d", "winograd", "depthwise_conv2d", "max_pool2d", "avg_pool2d"))
    r = 3 if kind == "winograd" else rng.choice((1, 2, 3))
    extents = {"n": (1, 2), "c": (3, 8, 20, 33), "h": (5, 8, 14), "w": (6, 9)}
    sizes: dict[str, Any] = {name: rng.choice(some) for name, some in extents.items()} | {"r": r, "s": r}
    more: dict[str, Any] = {"image": "nhwc", "padding": rng.randint(0, r // 2)}
    if kind in ("conv2d", "winograd"):
        sizes["k"] = rng.choice((4, 16, 24))
        more |= {"result": "nhwc"} | ({"winograd": 2} if kind == "winograd" else {"stride": rng.choice((1, 2))})
    elif kind == "depthwise_conv2d":
        more["weights"] = "rskc"
    read, written = ((1, 0), (0, 1), (1, 1))[seed % 3]
    more["image_pitch"] = read * (sizes["c"] + rng.choice((0, 1, 16)))
    more["result_pitch"] = written * (sizes.get("k", sizes["c"]) + rng.choice((0, 5, 16)))
    op = getattr(operators, "conv2d" if kind == "winograd" else kind)(**sizes, **more)
    op = op.freeze() if kind == "conv2d" and rng.randint(0, 1) or kind == "winograd" else op
    return op.with_epilogue(*rng.sample(("bias", "relu", "residual"), rng.randint(0, 2)))


def kernel(seed: int) -> Kernel:
    op, hw, rng = pitched(seed), machine(random.Random(seed).choice((16, 8, 4))), np.random.default_rng(seed)
    graph = graph_of(op, hw)
    return generate(op, graph.random_schedule(rng), hw)


def faults(kernels: Sequence[Kernel]) -> list[str]:
    """What is wrong with kernels between guard words, unmapped pages and NaNs."""
    device, found = CpuDevice(), []
    for number, one in enumerate(kernels):
        loaded, draw = device.load(Built(one, build_c(one).path), 1 + number % 2), make_draws(one.operator, 0)[0]
        loaded.write(draw)
        loaded.time(1)
        found += [f"{one.operator}: {fault}"] if (fault := check(loaded, draw)) else []
        loaded.close()
    return found


@pytest.mark.parametrize("seeds", thorough_but([range(60), range(60, 400)], range(60)))
def test_random_programs_write_nothing_between_pixels(seeds: range) -> None:
    kernels = [kernel(seed) for seed in seeds]
    assert {one.operator.name for one in kernels} > {"conv2d", "depthwise_conv2d", "max_pool2d"}
    assert faults(kernels) == []


def test_programs_that_fill_registers_and_those_that_split_sums() -> None:
    hw, more = machine(), 'image="nhwc", result="nhwc", image_pitch=56, result_pitch=80'
    wide = operators.parse(f"frozen conv2d(n=1, c=40, h=14, w=13, k=64, r=1, s=1, {more})+bias+relu")
    sizes = 'n=1, c=48, h=14, w=14, r=3, s=3, padding=1, image="nhwc", weights="rskc"'
    deep = operators.parse(f"depthwise_conv2d({sizes}, image_pitch=50)")
    found = []
    for op, rows_of in ((wide, filled_registers), (deep, filled_by_windows)):
        graph = ConstructionGraph(op, hw, "extended")
        rows = rows_of(graph)
        assert len(rows)
        found += [generate(op, type(graph.initial())(row), hw) for row in rows[:: max(1, len(rows) // 5)]]
    plain = operators.parse(str(wide).removeprefix("frozen "))
    tiles = (1, 16, 1, 2, 1, 1, 1), (1, 16, 14, 13, 8, 1, 1), (1, 64, 14, 13, 8, 1, 1)
    found.append(generate_c(program(plain, *tiles, convolution=1, thread_split=4)))
    assert "finish_row" in found[-1].source and faults(found) == []


def test_a_kernel_that_forgets_the_pitch_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    seeds = [seed for seed in range(20) if any(one.room > one.size for one in (*pitched(seed).inputs, pitched(seed).output))]
    assert len(seeds) >= 10 and faults([kernel(seed) for seed in seeds]) == []
    monkeypatch.setattr(Access, "strides", lambda self: tuple(int(np.prod(self.view[d + 1 :])) for d in range(len(self.view))))
    assert len(faults([kernel(seed) for seed in seeds])) == len(seeds)


def test_bytes_between_rows_are_guarded() -> None:
    buffer = GuardedBuffer((2, 3, 4), np.float32, 16, 7)
    buffer.array[...] = 1.0
    assert buffer.intact() and buffer.array.strides == (84, 28, 4) and buffer.nbytes == 4 * (5 * 7 + 4)
    buffer.poison()
    assert np.isnan(buffer.array).all() and buffer.intact()
    whole = np.frombuffer(buffer._map, np.uint8)
    whole[buffer._start + 4 * 4] = 0
    assert not buffer.intact()
    buffer.guard()
    assert buffer.intact()


def test_a_call_takes_whole_images_and_leaves_their_other_channels() -> None:
    op = operators.parse('conv2d(n=1, c=3, h=4, w=5, k=8, r=1, s=1, image="nhwc", result="nhwc", image_pitch=6, result_pitch=10)')
    hw = machine()
    made = build(op, ConstructionGraph(op, hw).initial(), hw)
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal(shape, np.float32) for shape in ((1, 4, 5, 6), (8, 3, 1, 1)))
    out = np.full((1, 4, 5, 10), 7, np.float32)
    assert made(x, w, out=out) is out
    assert np.allclose(out[..., :8], x[..., :3] @ w[:, :, 0, 0].T, atol=1e-5) and (out[..., 8:] == 7).all()
    with pytest.raises(ValueError, match=r"float32\[1, 4, 5, 6\]"):
        made(x[..., :3].copy(), w)
    assert fault_of(made) == ""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("conv2d(n=1, c=8, h=8, w=8, k=4, r=1, s=1, image_pitch=16)", "image_pitch=16 of float32 in the order nchw"),
        ('conv2d(n=1, c=8, h=8, w=8, k=4, r=1, s=1, image="nhwc", image_pitch=4)', "pitch of 4: expected at least 8, or 0"),
        ('conv2d(n=1, c=8, h=8, w=8, k=4, r=1, s=1, image="nhwc", dtype="int8", image_pitch=16)', "image_pitch=16 of int8"),
        ('max_pool2d(n=1, c=8, h=8, w=8, r=2, s=2, image="nhwc", result_pitch=-8)', "result_pitch=-8: expected an integer"),
        ('conv2d(n=1, c=8, h=2000, w=2000, k=4, r=1, s=1, image="nhwc", image_pitch=1000)', "4000000000 elements"),
    ],
)
def test_a_pitch_that_no_image_has_is_refused(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        operators.parse(text)


ROWS = "def rows(x: pitched(float32[6, 8], 12), w: float32[8, 4]):\n    {}\n    return pitched(y, 16)\n"
EXP = ROWS.replace(", w: float32[8, 4]", "").format("y = exp(x)")


def test_kernels_that_know_no_pitch_refuse_it() -> None:
    op = operators.parse('max_pool2d(n=1, c=8, h=8, w=8, r=2, s=2, image="nhwc", result_pitch=16)')
    rows, product = parse(EXP), "contract(x, w, operator='gemm(m=6, n=4, k=8)')"
    for one in (op, rows):
        with pytest.raises(ValueError, match=r"apart in memory, expected none on h100"):
            graph_of(one, H100)
    schedule = graph_of(op, machine()).initial()
    with pytest.raises(ValueError, match="apart in memory"):
        generate(op, schedule, H100)
    panel = parse(ROWS.format(f"a = {product}\n    y = exp(a)"))
    with pytest.raises(ValueError, match="expected none beside products"):
        generate(panel, ConstructionGraph(operators.gemm(6, 4, 8), machine()).initial(), machine())
    with pytest.raises(ValueError, match="expected none in a task of a written kernel"):
        kernel_of(op, machine(), "void f(void) {}", Options())


@pytest.mark.parametrize(
    ("line", "said"),
    [("pitched(y, 4)", "y of shape .* has pitch 4"), ("pitched(y)", "a whole number"), ("pitched(y, 0)", "a whole number")],
)
def test_pitches_in_text(line: str, said: str) -> None:
    graph = parse(EXP)
    assert parse(text_of(graph)) == graph and graph.outputs[0].pitch == 16 and graph.inputs[0].pitch == 12
    assert len({parse(text).digest for text in (EXP, EXP.replace("16)", "17)"), EXP.replace("12)", "13)"))}) == 3
    with pytest.raises(ValueError, match=said):
        parse(EXP.replace("pitched(y, 16)", line))
