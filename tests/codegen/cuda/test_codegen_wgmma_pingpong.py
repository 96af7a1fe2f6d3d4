"""Consumers that take turns: right in the emulator, planted faults show, and machine code that overlaps a tile's end."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from gensor_gym import hardware, operators
from gensor_gym.codegen.build import generate_variant
from gensor_gym.codegen.cuda import nvrtc, sass
from gensor_gym.codegen.cuda.dependent import dependent
from gensor_gym.codegen.kernel import Kernel
from gensor_gym.construction import ConstructionGraph
from gensor_gym.graph.matrices.choices import column_step
from gensor_gym.graph.schedule import Schedule
from gensor_gym.graph.starts import starts
from gensor_gym.operators.types import Operator
from tests.support.cuda_schedules import make_schedule
from tests.support.thorough import thorough_but
from tests.support.wgmma_kernels import (
    DEPTHS,
    H200,
    TINY,
    compile_well,
    faults,
    gemm,
    needs_nvrtc,
    pingpong_kernel,
    planted_show,
    right,
    wgmma_kernel,
    wgmma_schedule,
)

LARGE = gemm(4096, 4096, 4096)
SHORT = replace(TINY, name="short", shared_per_block=36 * 1024)
"""So little shared memory that rings have one to four stages."""
PAIR = replace(TINY, name="pair", units=2)
"""A cluster of two blocks lives at a time."""


def of(op: Operator, tile: list[int], block: list[int], hw: hardware.Hardware = H200, **knobs: int) -> Kernel:
    """The kernel of a convolution's schedule: tiles of n, k, p, q, and 128 bytes of channels a step."""
    chunk, step = DEPTHS[op.dtype]
    schedule = make_schedule(op, [*tile, chunk, 1, 1], [*block, step, 1, 1], tensor_core=2, **knobs)
    kernel = generate_variant(op, schedule, hw, "pingpong")
    assert kernel is not None
    return kernel


def rows(m: int, n: int, k: int, dtype: str, *stages: str) -> Operator:
    """A product whose B is [n, k] in memory."""
    return operators.gemm(m, n, k, dtype, weights="nk").with_epilogue(*stages)


IN_PLACE = {"image": "nhwc", "weights": "rskc", "result": "nhwc", "padding": 1, "dtype": "bfloat16"}
CASES = {
    "whole tiles": [
        pingpong_kernel(gemm(256, 128, 448, "float16"), [64, 64], [64, 64], TINY, stages=3),
        pingpong_kernel(gemm(192, 64, 64), [64, 64], [64, 64], SHORT, stages=4),  # one step
        pingpong_kernel(gemm(256, 256, 320), [64, 128], [128, 128], TINY, stages=4),
    ],
    "ragged": [
        pingpong_kernel(gemm(150, 200, 136, "bfloat16", "bias", "gelu", "residual"), [64, 64], [64, 64], SHORT, raster=2),
        pingpong_kernel(gemm(260, 136, 200, "float16", "bias", "relu"), [64, 64], [128, 64], TINY, stages=2),
        pingpong_kernel(gemm(130, 264, 392, "float16", "residual"), [64, 96], [64, 96], SHORT, stages=5, persistent=2),
        pingpong_kernel(gemm(70, 600, 264, "bfloat16", "scale"), [64, 256], [64, 256], TINY, stages=1),
    ],
    "b in rows": [
        pingpong_kernel(rows(150, 200, 392, "bfloat16", "bias", "relu"), [64, 64], [64, 128], TINY, stages=2, raster=2),
        pingpong_kernel(rows(200, 136, 200, "float16", "residual"), [64, 40], [64, 40], SHORT, stages=3),
    ],
    "batched": [
        pingpong_kernel(operators.batched_gemm(5, 70, 72, 136, dtype="bfloat16"), [64, 72], [64, 72], SHORT, stages=1),
        pingpong_kernel(
            operators.batched_gemm(2, 150, 72, 200, dtype="float16").with_epilogue("bias", "gelu", "residual"),
            [64, 64], [128, 64], TINY, stages=4, raster=2,
        ),
    ],
    "clusters": [
        pingpong_kernel(gemm(300, 200, 136), [64, 64], [64, 64], PAIR, stages=3, raster=4, cluster=2),
        pingpong_kernel(rows(500, 72, 264, "float16", "bias"), [64, 72], [64, 72], PAIR, stages=2, cluster=2),
    ],
    "convolutions": [
        of(operators.conv2d(2, 64, 9, 13, 130, 3, 3, **IN_PLACE).with_epilogue("bias", "relu", "residual"),
           [1, 64, 2, 8], [2, 64, 2, 8], TINY, stages=2),
        of(operators.conv2d(2, 60, 9, 14, 130, 1, 1, dtype="float16").with_epilogue("scale"),
           [1, 64, 2, 8], [1, 64, 2, 16], TINY, stages=3),
    ],
    "other types": [
        pingpong_kernel(gemm(150, 72, 528, "int8"), [64, 32], [64, 32], TINY, stages=2),
        pingpong_kernel(gemm(150, 72, 136, "tf32"), [64, 32], [64, 64], TINY, stages=2),
        pingpong_kernel(rows(150, 72, 272, "float8_e4m3fn", "bias"), [64, 32], [64, 32], TINY, stages=2),
    ],
    "launched early": [dependent(pingpong_kernel(gemm(150, 72, 136), [64, 64], [64, 64], TINY, stages=2))],
}  # fmt: skip

test_products_are_right = right(CASES, "whole tiles", "ragged", "b in rows", "convolutions")


@pytest.mark.thorough
@pytest.mark.as_shipped
def test_random_schedules_are_right() -> None:
    """Legal schedules of ragged extents agree with float64 within the bounds of verification."""
    rng = np.random.default_rng(7)
    kernels = [random_kernel(rng) for _ in range(8)]
    assert faults(kernels, seeds=2) == []


WALKED = (
    LARGE, gemm(8192, 4096, 1024, "int8"), gemm(8192, 4096, 1024, "tf32"), gemm(16, 50000, 1024),
    operators.conv2d(16, 64, 56, 56, 256, 1, 1, dtype="float16"), operators.conv2d(3, 136, 12, 14, 200, 1, 1, dtype="float16"),
    operators.conv2d(32, 512, 7, 7, 2048, 1, 1, dtype="bfloat16"),
    operators.conv2d(16, 256, 14, 14, 256, 3, 3, padding=1, dtype="float16"),
)  # fmt: skip


@pytest.mark.thorough
@pytest.mark.parametrize("op", WALKED, ids=str)
def test_all_legal_schedules_have_a_kernel_or_none(op: Operator) -> None:
    """Tiles of many shapes, images and consumers, also where they are few for the machine."""
    rng, graph = np.random.default_rng(0), ConstructionGraph(op, H200, "extended")
    start, *_ = [one for one in map(Schedule, starts(graph.tables, graph.initial().row)[1:]) if one.knob("tensor_core") == 2]
    walked = [graph.random_schedule(rng, int(rng.integers(6, 50)), start) for _ in range(60)]
    made = [generate_variant(op, one, replace(H200, units=units), "pingpong") for one in walked for units in (132, 8)]
    assert any(kernel is not None for kernel in made)


def random_kernel(rng: np.random.Generator) -> Kernel:
    """A kernel whose consumers take turns, of a random product with random epilogue, order of B, batch and legal schedule."""
    stages = ((), ("bias", "relu"), ("bias", "gelu", "residual"), ("residual",))[rng.integers(4)]
    while True:
        m, n, k = (int(rng.integers(*limits)) for limits in ((60, 400), (8, 40), (8, 60)))
        dtype, batch = str(rng.choice(["bfloat16", "float16"])), int(rng.choice([1, 1, 3]))
        one = operators.gemm(m, 8 * n, 8 * k, dtype, weights=str(rng.choice(["kn", "nk"])))
        op = one if batch == 1 else operators.batched_gemm(batch, m, 8 * n, 8 * k, dtype=dtype)
        op = op.with_epilogue(*stages)
        across = column_step(op)
        tile = [64 * int(rng.integers(1, 3)), across * int(rng.integers(1, 128 // across + 1))]
        block = [size * int(rng.choice([1, 2])) for size in tile]
        knobs = {"stages": int(rng.integers(1, 6)), "raster": int(rng.choice([1, 4])), "cluster": int(rng.choice([1, 1, 2]))}
        schedule = wgmma_schedule(op, tile, block, **knobs)
        if ConstructionGraph(op, H200, "extended").is_legal(schedule):
            kernel = generate_variant(op, schedule, PAIR, "pingpong")
            if kernel is not None:
                return kernel


DAMAGED = pingpong_kernel(gemm(250, 128, 456), [64, 64], [64, 64], SHORT, stages=2)
"""Eight steps of each of eight tiles, through two stages."""
FAULTS = {
    "no turns": ("barrier_wait(turn + own * 8, turn_parity);", "", "wrong|more arrivals|block ends while|deadlock"),
    "both begin": ("turn_parity = other;", "turn_parity = 1;", "wrong|more arrivals|block ends while|deadlock"),
    "the second begins": ("turn_parity = other;", "turn_parity = own;", "wrong|deadlock|more arrivals"),
    "one turn for ever": ("turn_parity ^= 1;", "", "deadlock|wrong|more arrivals|block ends while"),
    "turn never given": ("barrier_arrive(turn + other * 8);", "{}", "deadlock"),
    "turn given to oneself": ("barrier_arrive(turn + other * 8);", "barrier_arrive(turn + own * 8);", "deadlock|wrong|more"),
    "turn given by every thread": ("if (lane == 0) barrier_arrive(turn", "barrier_arrive(turn", "more arrivals|deadlock"),
    "stage given back too early": ("wgmma_wait<1>();", "", "wrong"),
    "stage given back that is read": ("step > 0) barrier_arrive(empty + before", "step > 0) barrier_arrive(empty + stage", "."),
    "stored before the sums are there": ("wgmma_wait<0>();", "", "wrong"),
    "every tile by both": ("work += 2 * gridDim.x", "work += gridDim.x", "deadlock|wrong|more arrivals|block ends while"),
    "same tiles by both": ("(blockIdx.x + own * gridDim.x)", "(blockIdx.x)", "wrong|deadlock|block ends while"),
    "first phase of the second": ("parity = own * (STEPS / STAGES % 2)", "parity = own * (STEPS / STAGES % 2 ^ 1)", "."),
    "other tile not skipped": ("(stage += STEPS % STAGES)", "(stage += STEPS % STAGES + 1)", "deadlock|wrong|more arrivals"),
    "phases of the other tile": ("parity ^= STEPS / STAGES % 2;", "parity ^= 1;", "wrong|deadlock|more arrivals"),
    "turns not initialised": ("barrier_init(turn + 8, 4);", "", "not initialised|before a fence"),
    "arrivals of both expected": ("barrier_init(turn + 8, 4);", "barrier_init(turn + 8, 8);", "deadlock"),
}  # fmt: skip
QUICK = (
    "no turns", "the second begins", "one turn for ever", "stage given back too early", "every tile by both",
    "phases of the other tile",
)  # fmt: skip
test_planted_faults_are_caught = planted_show(FAULTS, *QUICK)


WATCHED = {
    "turn_parity ^= 1;\n": "turn_parity ^= 1;\n    if (lane == 0) ++inside[own];\n",
    "if (lane == 0) barrier_arrive(turn": "if (lane == 0) --inside[own];\n    if (lane == 0) barrier_arrive(turn",
    "const int own": "static int inside[2];\n  const int own",
}
"""Text of a kernel and what stands in its place, so that it counts the warps that are between the start and end of a turn."""


def watched(kernel: Kernel, place: str, condition: str) -> Kernel:
    """A kernel that the emulator ends with `seen` when a condition holds at a place of its text."""
    source = kernel.source
    for old, new in (*WATCHED.items(), (place, f"{place}    if ({condition}) emulator::fail(\"seen\", 0);\n")):
        assert source.count(old) == 1, old
        source = source.replace(old, new)
    return replace(kernel, source=source)


def test_one_consumer_multiplies_while_the_other_stores() -> None:
    """Never do both take their turns at the same time; a tile's stores meet the turn of the other consumer."""
    both = watched(DAMAGED, "    if (lane == 0) ++inside[own];\n", "lane == 0 && inside[other]")
    stored = watched(DAMAGED, "    const bool odd = lane % 2;\n", "inside[other]")
    found = faults([both, stored], seeds=3)
    assert len(found) == 3 and all("seen" in fault and "gemm" in fault for fault in found)


MENU = {
    "128x128": pingpong_kernel(LARGE, [64, 128], [128, 128], stages=4, raster=8),
    "64x256": pingpong_kernel(LARGE, [64, 256], [64, 256], stages=4, persistent=1, raster=16),
    "half of 128x256": pingpong_kernel(LARGE, [64, 256], [128, 256], stages=4, persistent=1, raster=16),
    "192x128": pingpong_kernel(gemm(4096, 4096, 4096, "float16", "bias"), [192, 128], [192, 128], stages=3),
    "128x192": pingpong_kernel(LARGE, [64, 192], [128, 192], stages=4),
    "epilogue": pingpong_kernel(
        gemm(4000, 4040, 4000, "float16", "bias", "gelu", "residual"), [64, 192], [128, 192], stages=4, persistent=1
    ),
    "cluster": pingpong_kernel(LARGE, [128, 128], [256, 128], stages=4, cluster=2),
    "b in rows": pingpong_kernel(rows(4096, 4096, 4096, "bfloat16", "bias", "relu"), [128, 128], [128, 128], stages=4),
    "three blocks at a time": pingpong_kernel(LARGE, [64, 32], [64, 32], stages=3),
    "convolution": of(
        operators.conv2d(8, 256, 56, 56, 256, 3, 3, **IN_PLACE).with_epilogue("bias", "relu", "residual"),
        [1, 128, 2, 56], [1, 128, 2, 56], stages=4,
    ),
    "int8": pingpong_kernel(gemm(4096, 4096, 4096, "int8"), [64, 128], [128, 128], stages=4),
}  # fmt: skip

test_nvrtc_neither_spills_nor_serialises = compile_well(MENU, "128x128")


@needs_nvrtc
@pytest.mark.skipif(not sass.is_available(), reason=f"no disassembler: pip install {sass.PACKAGE}")
@pytest.mark.parametrize("name", thorough_but(["128x128", "64x256", "epilogue"], "128x128"))
def test_the_turn_is_given_before_a_tile_is_stored(name: str) -> None:
    """In machine code: after the last multiply-adds the turn, then the wait for the sums, then stores.

    Registers are split by setmaxnreg, and nothing lies in local memory.
    """
    kernel = MENU[name]
    compiled = nvrtc.compile_cubin(kernel)
    asked = re.search(r"request_registers<(\d+)>\(\)", kernel.source)
    assert asked and 128 * (40 + 2 * int(asked[1])) <= 384 * compiled.registers <= 65536
    (lines,) = sass.instructions(sass.disassemble(compiled.cubin)).values()
    names = [line.partition(".")[0] for line in lines]
    assert names.count("USETMAXREG") == 2 and not {"LDL", "STL"} & set(names)
    products = [place for place, found in enumerate(names) if found == "HGMMA"]
    stores = [place for place, found in enumerate(names) if found == "STG"]
    behind = [name for name in names[products[-1] : stores[0]] if name in ("SYNCS", "WARPGROUP")]
    assert behind[-3:] == ["SYNCS", "WARPGROUP", "SYNCS"], "a turn is given, sums are there, a stage is given back"


def test_tiles_are_those_of_the_schedule_as_far_as_registers_go() -> None:
    """Two consumers' tiles of 64 x 128 become one of 128 x 128, as does half of 128 x 256; the ring grows by what is left."""
    assert "BLOCK_M = 128;" in MENU["128x128"].source and "STAGES = 5;" in MENU["128x128"].source
    assert "BLOCK_M = 64;" in MENU["64x256"].source and "BLOCK_N = 256;" in MENU["64x256"].source
    for name in ("cluster", "half of 128x256"):
        assert "BLOCK_M = 128;" in MENU[name].source and "BLOCK_N = 128;" in MENU[name].source
    assert MENU["128x128"].main.grid == (132, 1, 1) and MENU["128x128"].main.block == (384, 1, 1)
    assert MENU["three blocks at a time"].main.grid == (396, 1, 1)


def test_few_tiles_and_split_sums_have_none() -> None:
    """Nor have schedules without wgmma, or operators of other machines."""
    half = operators.gemm(1024, 1024, 1024, dtype="float16")
    schedule = wgmma_schedule(half, [64, 128], [128, 128], stages=4)
    assert generate_variant(half, schedule, H200, "pingpong") is None, "64 tiles, or 128 halves of them, for 132 multiprocessors"
    assert generate_variant(half, schedule, replace(H200, units=100), "pingpong") is not None
    assert generate_variant(LARGE, wgmma_schedule(LARGE, [64, 128], [128, 128], split_k=2), H200, "pingpong") is None
    plain = make_schedule(LARGE, [8, 8, 8], [64, 64, 16])
    assert not any(generate_variant(LARGE, plain, hardware.get(name), "pingpong") for name in ("h200", "mi300x", "host"))


def test_what_the_schedule_says_stays_the_default() -> None:
    """The same schedule's kernel takes no turns, and has another digest."""
    plain = wgmma_kernel(LARGE, [64, 128], [128, 128], stages=4, raster=8)
    assert "turn_parity" not in plain.source and plain.digest != MENU["128x128"].digest
