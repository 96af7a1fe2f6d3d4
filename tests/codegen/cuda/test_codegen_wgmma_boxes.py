"""16-bit outputs that TMA stores from shared memory: right in the emulator, planted faults show, fewer store instructions."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from gensor_gym import hardware, operators
from gensor_gym.codegen.build import generate, generate_variant
from gensor_gym.codegen.cuda import nvrtc, sass
from gensor_gym.codegen.cuda.dependent import dependent
from gensor_gym.codegen.kernel import Kernel
from gensor_gym.construction import ConstructionGraph
from gensor_gym.graph.matrices.choices import column_step
from gensor_gym.graph.schedule import Schedule
from gensor_gym.graph.starts import starts
from gensor_gym.hardware.types import Hardware
from gensor_gym.measure.answers.expectation import decode, make_draws
from gensor_gym.measure.emulator.emulator import EmulatedKernels
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
    planted_show,
    right,
    wgmma_schedule,
)

ALONE, TURNS = "tma_store", "pingpong_tma_store"
LARGE = gemm(4096, 4096, 4096)
PAIR = replace(TINY, name="pair", units=2)
"""A cluster of two blocks lives at a time."""


def found(op: Operator, schedule: Schedule, hw: Hardware, variant: str) -> Kernel:
    """The variant of a schedule, where there is one."""
    kernel = generate_variant(op, schedule, hw, variant)
    assert kernel is not None, f"{op}: {schedule}"
    assert "store_box" in kernel.source
    return kernel


def alone(op: Operator, tile: list[int], block: list[int], hw: Hardware = H200, **knobs: int) -> Kernel:
    """The kernel of a product whose consumers share tiles."""
    return found(op, wgmma_schedule(op, tile, block, **knobs), hw, ALONE)


def turns(op: Operator, tile: list[int], block: list[int], hw: Hardware = H200, **knobs: int) -> Kernel:
    """The kernel of a product whose consumers take turns."""
    return found(op, wgmma_schedule(op, tile, block, **knobs), hw, TURNS)


def of(op: Operator, tile: list[int], block: list[int], hw: Hardware = H200, variant: str = ALONE, **knobs: int) -> Kernel:
    """The kernel of a convolution's schedule: tiles of n, k, p, q, and 128 bytes of channels a step."""
    chunk, step = DEPTHS[op.dtype]
    return found(op, make_schedule(op, [*tile, chunk, 1, 1], [*block, step, 1, 1], tensor_core=2, **knobs), hw, variant)


def rows(m: int, n: int, k: int, dtype: str, *stages: str) -> Operator:
    """A product whose B is [n, k] in memory."""
    return operators.gemm(m, n, k, dtype, weights="nk").with_epilogue(*stages)


LAST: dict[str, Any] = {"image": "nhwc", "weights": "rskc", "result": "nhwc", "padding": 1, "dtype": "bfloat16"}
CASES = {
    "whole tiles": [
        alone(gemm(256, 128, 192, "float16"), [64, 64], [128, 64], TINY, stages=2, persistent=1),
        alone(gemm(128, 256, 128), [64, 128], [64, 256], TINY, stages=3),
        alone(gemm(128, 192, 64), [128, 96], [128, 96], TINY, stages=1, persistent=1),  # rows of 64 bytes, one step
    ],
    "ragged": [
        alone(gemm(150, 200, 136, "bfloat16", "bias", "gelu", "residual"), [64, 64], [64, 128], TINY, persistent=1, raster=2),
        alone(gemm(130, 264, 200, "float16", "residual"), [64, 80], [64, 80], TINY, stages=2, persistent=1),  # of 32 bytes
        alone(gemm(70, 600, 136, "bfloat16", "scale"), [64, 256], [64, 256], TINY, stages=1),
        alone(gemm(20, 136, 200, "float16", "bias"), [16, 64], [16, 64], TINY, stages=2),  # three warps have no rows
        alone(gemm(5, 136, 200), [8, 64], [8, 64], TINY, stages=2),
    ],
    "turns": [
        turns(gemm(250, 136, 200, "float16", "bias", "relu"), [64, 64], [64, 64], TINY, stages=2),
        turns(gemm(256, 256, 192), [64, 128], [128, 128], TINY, stages=3),
        turns(rows(200, 136, 200, "float16", "residual"), [64, 48], [64, 48], TINY, stages=3),
    ],
    "b in rows": [alone(rows(150, 200, 200, "bfloat16", "bias", "relu"), [64, 64], [64, 128], TINY, stages=2, persistent=1)],
    "batched": [
        alone(operators.batched_gemm(3, 70, 72, 136, dtype="bfloat16"), [64, 32], [64, 64], TINY, persistent=1),
        turns(operators.batched_gemm(2, 150, 72, 200, dtype="float16").with_epilogue("bias", "gelu", "residual"),
              [64, 64], [64, 64], TINY, stages=4, raster=2),
    ],
    "clusters": [
        alone(gemm(300, 200, 136), [64, 64], [64, 64], PAIR, stages=3, persistent=1, cluster=2),
        turns(rows(500, 72, 136, "float16", "bias"), [64, 64], [64, 64], PAIR, stages=2, cluster=2),
    ],
    "channels last": [
        of(operators.conv2d(2, 64, 9, 13, 136, 3, 3, **LAST).with_epilogue("bias", "relu", "residual"),
           [1, 64, 2, 8], [2, 64, 2, 8], TINY, stages=2, persistent=1),
        of(operators.conv2d(3, 64, 7, 7, 136, 3, 3, **LAST).with_epilogue("residual"), [2, 64, 7, 8], [2, 64, 7, 8], TINY,
           variant=TURNS, stages=2),  # two boxes of 56 pixels in a buffer
        of(operators.conv2d(2, 64, 6, 20, 64, 3, 3, **LAST), [1, 64, 2, 24], [1, 64, 4, 24], TINY, stages=1),
    ],
    "rows of pixels": [
        of(operators.conv2d(2, 64, 9, 40, 130, 3, 3, padding=1, dtype="float16").with_epilogue("bias", "residual"),
           [1, 64, 2, 16], [1, 64, 2, 32], TINY, stages=2, persistent=1),
        of(operators.conv2d(3, 64, 8, 8, 130, 1, 1, dtype="float16").with_epilogue("scale"),
           [1, 64, 8, 8], [2, 64, 8, 8], TINY, stages=2, persistent=1),
    ],
    "floats of 8 bits": [alone(rows(150, 72, 272, "float8_e4m3fn", "bias"), [64, 32], [64, 32], TINY, persistent=1)],
    "launched early": [dependent(alone(gemm(150, 72, 136), [64, 64], [64, 64], TINY, stages=2))],
}  # fmt: skip

test_products_are_right = right(CASES, "whole tiles", "ragged", "turns", "channels last")


def random_kernel(rng: np.random.Generator) -> Kernel:
    """A kernel of a random product: epilogue, order of B, batch, tiles, ring, turns, clusters."""
    stages = ((), ("bias", "relu"), ("bias", "gelu", "residual"), ("residual",))[rng.integers(4)]
    while True:
        m, n, k = (int(rng.integers(*limits)) for limits in ((1, 300), (8, 40), (8, 40)))
        dtype, batch = str(rng.choice(["bfloat16", "float16"])), int(rng.choice([1, 1, 3]))
        one = operators.gemm(m, 8 * n, 8 * k, dtype, weights=str(rng.choice(["kn", "nk"])))
        op = one if batch == 1 else operators.batched_gemm(batch, m, 8 * n, 8 * k, dtype=dtype)
        op, across = op.with_epilogue(*stages), column_step(op)
        tile = [int(rng.choice([8, 16, 64, 128])), across * int(rng.integers(1, 128 // across + 1))]
        block = [size * int(rng.choice([1, 2])) for size in tile]
        knobs = {"stages": int(rng.integers(1, 6)), "raster": int(rng.choice([1, 4])), "cluster": int(rng.choice([1, 1, 2]))}
        schedule = wgmma_schedule(op, tile, block, persistent=int(rng.integers(2)), **knobs)
        if ConstructionGraph(op, H200, "extended").is_legal(schedule):
            kernel = generate_variant(op, schedule, PAIR, str(rng.choice([ALONE, TURNS])))
            if kernel is not None:
                return kernel


@pytest.mark.thorough
@pytest.mark.as_shipped
@pytest.mark.parametrize("seed", range(4))
def test_random_schedules_are_right(seed: int) -> None:
    """Eight products of each seed, of ragged extents, agree with float64 within the bounds of verification."""
    rng = np.random.default_rng(seed)
    assert faults([random_kernel(rng) for _ in range(8)], seeds=2) == []


WALKED = (
    LARGE, gemm(16, 50000, 1024), operators.conv2d(16, 64, 56, 56, 256, 1, 1, dtype="float16"),
    operators.conv2d(32, 512, 7, 7, 2048, 1, 1, dtype="bfloat16"),
    operators.conv2d(16, 256, 14, 14, 256, 3, 3, **LAST),
)  # fmt: skip


@pytest.mark.thorough
@pytest.mark.parametrize("op", WALKED, ids=str)
def test_all_legal_schedules_have_a_kernel_or_none(op: Operator) -> None:
    """Tiles of many shapes; what a kernel asks of the machine is there."""
    rng, graph = np.random.default_rng(0), ConstructionGraph(op, H200, "extended")
    start, *_ = [one for one in map(Schedule, starts(graph.tables, graph.initial().row)[1:]) if one.knob("tensor_core") == 2]
    walked = [graph.random_schedule(rng, int(rng.integers(6, 50)), start) for _ in range(60)]
    made = [generate_variant(op, one, H200, variant) for one in walked for variant in (ALONE, TURNS)]
    several = [kernel for kernel in made if kernel is not None]
    assert bool(several) == ("h=7" not in str(op)), "49 pixels are no whole units of 16 bytes"
    assert all(kernel.main.shared_bytes <= H200.shared_per_block for kernel in several)


def test_other_outputs_have_none() -> None:
    """Those of 32 bits, rows that are not whole units of 16 bytes, narrow tiles, parts of sums; nor is it the default."""
    for variant in (ALONE, TURNS):
        assert generate_variant(LARGE, wgmma_schedule(LARGE, [64, 128], [128, 128]), hardware.get("h100"), variant) is not None
        for op in (gemm(4096, 4096, 4096, "tf32"), gemm(4096, 4096, 4096, "int8"), rows(4096, 4092, 4096, "float16")):
            assert generate_variant(op, wgmma_schedule(op, [64, 128], [128, 128]), H200, variant) is None
        assert generate_variant(LARGE, wgmma_schedule(LARGE, [64, 72], [64, 72]), H200, variant) is None
        assert generate_variant(LARGE, wgmma_schedule(LARGE, [64, 128], [64, 128], split_k=2), H200, variant) is None
        plain = make_schedule(LARGE, [8, 8, 8], [64, 64, 16])
        assert not any(generate_variant(LARGE, plain, hardware.get(name), variant) for name in ("h200", "mi300x", "host"))
    shared = gemm(1024, 1152, 4096)
    schedule = wgmma_schedule(shared, [64, 128], [128, 128], persistent=2)
    assert generate_variant(shared, schedule, replace(H200, units=50), ALONE) is None
    wide = wgmma_schedule(LARGE, [64, 256], [64, 1280], stages=1)
    assert generate_variant(LARGE, wide, H200, ALONE) is None, "no room for the buffers"
    assert "store_box" not in generate(LARGE, wgmma_schedule(LARGE, [64, 128], [128, 128]), H200).source


DAMAGED = alone(gemm(100, 392, 72, "float16", "bias"), [64, 192], [64, 192], TINY, stages=2, persistent=1)
"""Six tiles of three parts, of which the last ones end past the output."""
BUSY = "still reads what is overwritten"
FAULTS = {
    "never committed": ("commit_stores();", "", BUSY),
    "not waited for at the end": ("  if (lane == 0) wait_for_stores<0>();\n}", "}", "a thread ends while"),
    "not waited for before a tile": ("if (lane == 0) wait_for_stores<0>();  // the tile", "// the tile", BUSY),
    "not waited for in a tile": ("if (lane == 0) wait_for_stores<1>();", "", BUSY),
    "one group too few": ("wait_for_stores<1>();", "wait_for_stores<2>();", BUSY),
    "waited for by another lane": ("if (lane == 0) wait_for_stores<1>();", "if (lane == 1) wait_for_stores<1>();", BUSY),
    "one buffer": ("(rows * PARTS + part) % 2 * BUFFER_BYTES", "0", BUSY),
    "one buffer for two warps": ("/ 32 * 2 * BUFFER_BYTES", "/ 64 * 2 * BUFFER_BYTES", f"{BUSY}|wrong|fenced"),
    "buffers in the ring": ("tiles + RESULTS + (", "tiles + (", "wrong"),
    "no fence": ("fence_async();", "", "each lane has fenced"),
    "one lane's fence": ("fence_async();", "if (lane == 0) fence_async();", "each lane has fenced"),
    "lanes do not meet": ("fence_async();\n        __syncwarp(0xffffffffu);", "fence_async();", "each lane has fenced"),
    "fence too late": (
        "fence_async();\n        __syncwarp(0xffffffffu);", "__syncwarp(0xffffffffu);\n        fence_async();", "each lane has"),
    "stored by another lane": ("if (lane == 0) {\n", "if (lane == 4) {\n", BUSY),
    "units not turned": ("(lane / 16 ^ lane % 8)", "(lane / 16)", "wrong"),
    "units turned as of shorter rows": ("^ lane % 8)", "^ lane % 8 / 2)", "wrong"),
    "turned on": ("(own_row ^ sixteen * 32)", "(own_row + sixteen * 32)", f"wrong|{BUSY}"),
    "rows of other lanes": ("lane % 16 * 128", "lane / 2 * 128", "wrong"),
    "matrices of other lanes": ("(lane / 16 ^", "(lane / 8 % 2 ^", "wrong"),
    "matrices turned over": ("store_matrices_x4(", "store_transposed_x4(", "wrong"),
    "sums of other rows": ("group * 4 + word % 2 * 2", "group * 4 + word / 2 * 2", "wrong"),
    "box one part early": ("group * 64", "group * 32", "wrong"),
}  # fmt: skip
QUICK = (
    "never committed", "not waited for at the end", "not waited for before a tile", "no fence", "lanes do not meet",
    "units not turned", "rows of other lanes", "buffers in the ring",
)  # fmt: skip
test_planted_faults_are_caught = planted_show(FAULTS, *QUICK)


def test_what_is_past_the_end_is_left_out() -> None:
    """Of a batch's first matrix alone nothing comes to the second one, unless its map goes on behind its last row."""
    op = operators.batched_gemm(2, 40, 40, 72, dtype="float16")
    sound = alone(op, [64, 32], [64, 64], TINY)
    first, longer = (replace(sound, maps=(*sound.maps[:2], replace(sound.maps[2], shape=(1, rows, 40)))) for rows in (40, 64))
    with EmulatedKernels([sound, first, longer]) as program:
        draw = make_draws(op, 0)[0]
        whole, one, over = (decode(program.run(number, draw.inputs), "float16") for number in range(3))
    assert draw.fault(whole) == ""
    np.testing.assert_array_equal(one[0], whole[0])
    assert np.isnan(one[1]).all() and not np.isnan(over[1][:24]).any() and np.isnan(over[1][24:]).all()


def test_boxes_are_as_wide_as_tiles_allow() -> None:
    """128 bytes of a row if 64 columns divide the tile's; with channels last 32 bytes of each of up to 64 pixels."""
    assert [CASES[name][number].maps[-1].box for name, number in (
        ("whole tiles", 0), ("whole tiles", 2), ("ragged", 1), ("batched", 0), ("rows of pixels", 0), ("channels last", 1))
    ] == [(16, 64), (16, 32), (16, 16), (1, 16, 32), (1, 16, 1, 16), (1, 7, 8, 16)]  # fmt: skip
    assert [CASES[name][0].maps[-1].swizzle for name in ("whole tiles", "batched", "channels last")] == [128, 64, 32]


def banks(kernel: Kernel) -> list[int]:
    """For each matrix of a warp's `stmatrix`, how many of the eight places of 16 bytes in 128 bytes its rows take."""
    text = next(line for line in kernel.source.splitlines() if "own_row =" in line)
    formula = text.partition("= ")[2].rstrip(";").replace("/", "//")
    rows = [eval(formula, {"lane": lane}) for lane in range(32)]  # noqa: S307  # of a generated text
    return [len({row // 16 % 8 for row in rows[first : first + 8]}) for first in range(0, 32, 8)]


@pytest.mark.parametrize(("name", "number"), [("whole tiles", 0), ("whole tiles", 2), ("ragged", 1), ("channels last", 0)])
def test_rows_of_a_matrix_are_in_different_banks(name: str, number: int) -> None:
    """So `stmatrix` stores a matrix at once, in buffers of each width."""
    assert banks(CASES[name][number]) == [8, 8, 8, 8]


EPILOGUE = gemm(4000, 4040, 4000, "float16", "bias", "gelu", "residual")
WIDE = operators.conv2d(8, 256, 56, 56, 256, 3, 3, **LAST).with_epilogue("bias", "relu", "residual")
NARROW = operators.conv2d(16, 64, 56, 56, 256, 1, 1, dtype="float16").with_epilogue("bias", "relu")
MENU = {
    "128x128": alone(LARGE, [64, 128], [128, 128], stages=4, persistent=1, raster=8),
    "128x256": alone(LARGE, [64, 256], [128, 256], stages=4, persistent=1, raster=16),
    "128x192": alone(LARGE, [64, 192], [128, 192], stages=4),
    "128x128 by turns": turns(LARGE, [64, 128], [128, 128], stages=4, raster=8),
    "epilogue": alone(EPILOGUE, [64, 192], [128, 192], stages=4, persistent=1),
    "epilogue by turns": turns(EPILOGUE, [64, 192], [128, 192], stages=4),
    "cluster": alone(LARGE, [128, 128], [256, 128], stages=4, cluster=2, persistent=1),
    "b in rows": turns(rows(4096, 4096, 4096, "bfloat16", "bias", "relu"), [128, 128], [128, 128], stages=4),
    "channels last": of(WIDE, [1, 128, 2, 56], [1, 128, 2, 56], stages=4, persistent=1),
    "channels last by turns": of(WIDE, [1, 128, 2, 56], [1, 128, 2, 56], stages=4, variant=TURNS),
    "pixels": of(NARROW, [1, 64, 2, 32], [1, 128, 2, 32], stages=4, persistent=1),
}  # fmt: skip
test_nvrtc_neither_spills_nor_serialises = compile_well(MENU, "128x128")


@needs_nvrtc
@pytest.mark.skipif(not sass.is_available(), reason=f"no disassembler: pip install {sass.PACKAGE}")
@pytest.mark.parametrize("name", thorough_but(["128x128", "128x256", "cluster"], "128x128"))
def test_fewer_instructions_store(name: str) -> None:
    """An `stmatrix` for each two stores of 8 bytes a lane, and no swap between lanes; a store of TMA for each 64 columns."""
    tile, block, cluster = {
        "128x128": ([64, 128], [128, 128], 1), "128x256": ([64, 256], [128, 256], 1), "cluster": ([128, 128], [256, 128], 2),
    }[name]  # fmt: skip
    plain = generate(LARGE, wgmma_schedule(LARGE, tile, block, stages=4, persistent=1, cluster=cluster), H200)
    before, after = (operations(kernel) for kernel in (plain, MENU[name]))
    number = tile[0] * tile[1] // 64 // 64
    assert before["STG"] == before["SHFL"] // 2 == 8 * number and after["STSM"] == 4 * number and after["UTMASTG"] == number
    assert not {"STG", "SHFL", "STL", "LDL"} & set(after) and after.total() < before.total()


def operations(kernel: Kernel) -> Counter[str]:
    """How often each operation is in a kernel's machine code."""
    (lines,) = sass.instructions(sass.disassemble(nvrtc.compile_cubin(kernel).cubin)).values()
    return Counter(line.partition(" ")[0].partition(".")[0] for line in lines if not line.startswith("."))
