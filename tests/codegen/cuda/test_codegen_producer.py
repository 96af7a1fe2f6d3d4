"""Float32 products whose tiles a producer copies: right in the emulator, planted faults show, and fewer instructions."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gensor_gym import hardware, operators
from gensor_gym.codegen.build import generate, generate_variant
from gensor_gym.codegen.cuda import nvrtc, sass
from gensor_gym.codegen.kernel import Kernel
from gensor_gym.construction import ConstructionGraph
from gensor_gym.hardware.types import Hardware
from gensor_gym.measure.answers.expectation import make_draws
from gensor_gym.measure.emulator.emulator import EmulatedKernels
from gensor_gym.operators.types import Operator
from tests.support.cuda_schedules import make_schedule
from tests.support.thorough import thorough_but
from tests.support.wgmma_kernels import H200, TINY, compile_well, faults, needs_nvrtc, planted_show, right

LARGE = operators.gemm(4096, 4096, 4096)
SHORT = replace(TINY, name="short", shared_per_block=20 * 1024)
"""So little shared memory that rings have few stages."""


def found(op: Operator, tile: list[int], block: list[int], hw: Hardware = H200, **knobs: int) -> Kernel | None:
    """The kernel with a producer of tiles of the last axes; 1 along other axes."""
    batch = [1] * (len(op.axes) - len(block))
    schedule = make_schedule(op, [*batch, *tile], [*batch, *block], **{"vector": 4, "unroll": 4, **knobs})
    return generate_variant(op, schedule, hw, "producer")


def made(op: Operator, tile: list[int], block: list[int], hw: Hardware = H200, **knobs: int) -> Kernel:
    """As `found`, where there is one."""
    kernel = found(op, tile, block, hw, **knobs)
    assert kernel is not None, f"{op}: {tile} {block}"
    return kernel


def gemm(m: int, n: int, k: int, *stages: str) -> Operator:
    """A float32 product with an epilogue."""
    return operators.gemm(m, n, k).with_epilogue(*stages)


CASES = {
    "whole tiles": [
        made(gemm(64, 128, 96), [8, 8, 4], [64, 64, 32], TINY, stages=3),
        made(gemm(128, 64, 32), [4, 4, 1], [32, 32, 32], TINY, stages=2),  # one step
        made(gemm(64, 64, 96), [8, 8, 2], [32, 64, 8], TINY, stages=5),
    ],
    "ragged": [
        made(gemm(75, 100, 68, "bias", "gelu", "residual"), [8, 8, 2], [64, 32, 16], SHORT, raster=2, unroll=2),
        made(gemm(130, 68, 100, "bias", "relu"), [4, 8, 4], [32, 32, 8], TINY, stages=2, unroll=1),
        made(gemm(61, 132, 36, "scale"), [2, 4, 1], [16, 64, 4], TINY, stages=4),
        made(gemm(7, 200, 136), [1, 4, 4], [1, 128, 32], TINY, stages=3),
        made(gemm(350, 36, 36), [10, 4, 4], [320, 16, 8], TINY),  # two boxes of A
        made(gemm(40, 100, 36), [3, 4, 4], [24, 96, 16], TINY),  # lanes of a warp in three rows
    ],
    "patches": [
        made(gemm(75, 100, 68), [4, 4, 4], [32, 64, 32], TINY, warp_tile=1, lane_map=1),
        made(gemm(75, 100, 68), [8, 4, 4], [64, 32, 16], TINY, warp_tile=2),
        made(gemm(75, 100, 68, "residual"), [4, 4, 2], [32, 64, 32], TINY, warp_tile=3, lane_map=1),
    ],
    "batched": [
        made(operators.batched_gemm(5, 40, 36, 68), [4, 4, 4], [32, 32, 16], SHORT, stages=1),
        made(operators.batched_gemm(3, 40, 72, 20).with_epilogue("bias", "residual"), [8, 4, 4], [64, 32, 4], TINY),
    ],
    "split": [
        made(gemm(75, 100, 132), [4, 4, 4], [32, 32, 16], TINY, split_k=4, stages=3),
        made(gemm(40, 36, 68, "bias"), [4, 4, 4], [32, 32, 32], TINY, split_k=8),  # empty slices
    ],
    "convolutions": [
        made(operators.conv2d(2, 36, 6, 8, 40, 1, 1).with_epilogue("bias", "relu"), [1, 4, 2, 4, 4, 1, 1],
             [1, 32, 4, 8, 16, 1, 1], TINY),
        made(operators.conv2d(1, 20, 6, 8, 40, 1, 1), [1, 4, 2, 4, 4, 1, 1], [1, 32, 4, 8, 16, 1, 1], TINY, convolution=3),
    ],
}  # fmt: skip

test_products_are_right = right(CASES, "whole tiles", "ragged", "patches", "split")


def random_kernel(rng: np.random.Generator) -> Kernel:
    """A kernel of a random product: epilogue, batch, tiles, lanes, ring, split, and few or many multiprocessors."""
    stages = ((), ("bias", "relu"), ("bias", "gelu", "residual"), ("residual",))[rng.integers(4)]
    while True:
        m, n, k = int(rng.integers(1, 150)), 4 * int(rng.integers(1, 50)), 4 * int(rng.integers(1, 40))
        batch = int(rng.choice([1, 1, 3]))
        op = (gemm(m, n, k) if batch == 1 else operators.batched_gemm(batch, m, n, k)).with_epilogue(*stages)
        tile = [int(rng.choice(sizes)) for sizes in ([1, 2, 3, 4, 8], [1, 2, 4, 8], [1, 2, 4])]
        block = [tile[0] * int(rng.choice([1, 4, 6, 8, 16])), tile[1] * int(rng.choice([1, 2, 5, 8, 16, 32])), 0]
        block[2] = tile[2] * int(rng.choice([1, 2, 4, 8, 10, 16]))
        knobs = {"stages": int(rng.integers(1, 6)), "raster": int(rng.choice([1, 4])), "split_k": int(rng.choice([1, 1, 1, 4]))}
        knobs |= {"unroll": int(rng.choice([1, 4, 16])), "warp_tile": int(rng.integers(4)), "lane_map": int(rng.integers(2))}
        hw = replace(SHORT, units=int(rng.choice([1, 2, 132])), shared_per_block=1024 * int(rng.choice([20, 60, 200])))
        if block[0] // tile[0] * (block[1] // tile[1]) <= 256 and block[0] * block[1] <= 16384:
            kernel = found(op, tile, block, hw, **knobs)
            if kernel is not None:
                return kernel


@pytest.mark.thorough
@pytest.mark.as_shipped
@pytest.mark.parametrize("seed", range(8))
def test_random_schedules_are_right(seed: int) -> None:
    """Eight products of each seed, of ragged extents, agree with float64 within the bounds of verification."""
    rng = np.random.default_rng(seed)
    assert faults([random_kernel(rng) for _ in range(8)], seeds=2) == []


WALKED = (
    (LARGE, [8, 8, 8], [128, 128, 32]),
    (gemm(1000, 36, 100, "bias"), [4, 4, 4], [64, 32, 8]),
    (operators.batched_gemm(192, 128, 128, 64), [1, 8, 4, 4], [1, 64, 64, 16]),
    (operators.conv2d(16, 64, 56, 56, 256, 1, 1), [1, 8, 1, 8, 8, 1, 1], [1, 64, 2, 56, 16, 1, 1]),
)


@pytest.mark.thorough
@pytest.mark.parametrize(("op", "tile", "block"), WALKED, ids=lambda one: str(one) if isinstance(one, Operator) else "")
def test_legal_schedules_have_a_kernel_or_none(op: Operator, tile: list[int], block: list[int]) -> None:
    """Tiles of many shapes; what a kernel asks of the machine is there."""
    rng, graph, start = np.random.default_rng(0), ConstructionGraph(op, H200, "extended"), make_schedule(op, tile, block)
    walked = [graph.random_schedule(rng, int(rng.integers(1, 12)), start) for _ in range(60)]
    several = [one for one in (generate_variant(op, schedule, H200, "producer") for schedule in walked) if one is not None]
    assert len(several) >= 5
    for kernel in several:
        assert kernel.main.shared_bytes <= H200.shared_per_block and kernel.main.block[0] <= 1024


def test_other_products_have_none() -> None:
    """Rows that are not whole units of 16 bytes, other types, orders, machines and knobs; nor is it the default."""
    schedule = make_schedule(LARGE, [8, 8, 8], [128, 256, 32], vector=4)
    assert generate_variant(LARGE, schedule, hardware.get("h100"), "producer") is not None
    others = (gemm(4096, 4096, 4094), gemm(4096, 4095, 4096), operators.gemm(4096, 4096, 4096, weights="nk"))
    others = (*others, operators.gemm(4096, 4096, 4096, dtype="int8"), gemm(1, 4096, 4096))
    assert not any(generate_variant(op, schedule, H200, "producer") for op in others)
    assert not any(generate_variant(LARGE, schedule, hardware.get(name), "producer") for name in ("a100", "mi300x", "host"))
    for knobs in ({"reduce_threads": 2}, {"tensor_core": 1}):
        assert found(LARGE, [8, 8, 8], [128, 256, 32], **knobs) is None
    assert found(LARGE, [8, 8, 8], [128, 512, 32]) is None, "more columns than a box has"
    assert "TensorMap" not in generate(LARGE, schedule, H200).source
    with pytest.raises(ValueError, match="variant 'no': one of pingpong, producer"):
        generate_variant(LARGE, schedule, H200, "no")


DAMAGED = made(gemm(72, 100, 148), [8, 4, 4], [64, 32, 32], replace(TINY, shared_per_block=32 * 1024), stages=2)
"""Five steps of each of eight tiles, through two stages; the fifth has 20 of 32 points."""
UNTIMELY = "wrong|more arrivals|deadlock|block ends while"
FAULTS = {
    "never released": ("if (lane == 0) barrier_arrive(empty + stage * 8);", "", "deadlock"),
    "released by every thread": ("if (lane == 0) barrier_arrive(empty", "barrier_arrive(empty", "more arrivals|wrong|deadlock"),
    "released before all have read": ("__syncwarp(0xffffffffu);", "", UNTIMELY),
    "one stage released": ("barrier_arrive(empty + stage * 8);", "barrier_arrive(empty);", "deadlock|more arrivals"),
    "first phase of the producer": ("unsigned parity = 1;", "unsigned parity = 0;", "deadlock"),
    "first phase of the others": ("unsigned parity = 0;", "unsigned parity = 1;", "wrong|more arrivals|deadlock"),
    "one phase for ever": ("parity ^= 1;", "", UNTIMELY),
    "ring one too long": ("if (++stage == STAGES)", "if (++stage == STAGES + 1)", "."),
    "stages one too short": ("stage * STAGE_BYTES", "stage * (STAGE_BYTES - 1024)", "wrong"),
    "not waited for": ("barrier_wait(full + stage * 8, parity);", "{}", UNTIMELY),
    "next stage not waited for": ("if (step + 1 < STEPS) barrier_wait(full + stage * 8, parity);", "", UNTIMELY),
    "waited for after the last step": ("if (step + 1 < STEPS) barrier_wait", "barrier_wait", "deadlock"),
    "too few bytes": ("(ready, COPIED_BYTES);", "(ready, COPIED_BYTES - 1024);", "."),
    "too many bytes": ("(ready, COPIED_BYTES);", "(ready, COPIED_BYTES + 16);", "deadlock"),
    "rows not turned": ("A_turn = first_m % 8 * 4;", "A_turn = 0;", "wrong"),
    "unturned step": ("((point + 4) ^ A_turn)", "(point + 4)", "wrong"),
    "columns one step early": ("(point + nth + 1) * BLOCK_N", "(point + nth) * BLOCK_N", "wrong"),
    "tiles left out": ("work += gridDim.x", "work += gridDim.x + 1", "wrong"),
}  # fmt: skip
QUICK = ("never released", "released before all have read", "one phase for ever", "next stage not waited for", "too few bytes")
test_planted_faults_are_caught = planted_show(FAULTS, *QUICK)


def test_points_past_the_end_are_zero() -> None:
    """With maps that go on behind rows of A and columns of B, the first matrix of a batch gets products past the end."""
    op = operators.batched_gemm(2, 40, 36, 20)
    sound = made(op, [4, 4, 4], [32, 32, 32], TINY)
    a, b = sound.maps
    longer = replace(sound, maps=(replace(a, shape=(1, 40, 32)), replace(b, shape=(1, 40, 36))))
    with EmulatedKernels([sound, longer]) as program:
        inputs = make_draws(op, 0)[0].inputs
        right, wrong = (np.asarray(program.run(number, inputs, 0))[0] for number in (0, 1))
    assert np.abs(right - inputs[0][0] @ inputs[1][0]).max() < 1e-4 < np.abs(wrong - right).max()


MENU = {
    "128x256": made(LARGE, [8, 8, 8], [128, 256, 32], raster=4),
    "128x128": made(LARGE, [8, 8, 2], [128, 128, 16], unroll=8),
    "epilogue": made(gemm(4000, 4040, 4000, "bias", "gelu", "residual"), [8, 8, 8], [128, 256, 32]),
    "256x128": made(LARGE, [16, 8, 8], [256, 128, 32]),
    "patches": made(LARGE, [8, 8, 8], [128, 128, 16], warp_tile=1, lane_map=1),
    "64x64": made(LARGE, [16, 8, 2], [64, 64, 8], unroll=8),
    "split": made(gemm(512, 512, 8192), [8, 8, 8], [128, 64, 16], split_k=8),
    "batched": made(operators.batched_gemm(192, 128, 128, 64), [16, 4, 4], [64, 64, 8]),
    "convolution": made(operators.conv2d(16, 64, 56, 56, 256, 1, 1).with_epilogue("bias", "relu"),
                        [1, 8, 2, 4, 8, 1, 1], [1, 128, 8, 16, 32, 1, 1]),
}  # fmt: skip

PLAIN = {
    "128x256": (LARGE, [8, 8, 8], [128, 256, 32],
                {"unroll": 4, "stages": 3, "register_buffer": 2, "shared_layout": 1, "raster": 4}),
    "128x128": (LARGE, [8, 8, 2], [128, 128, 16], {"unroll": 8, "stages": 5, "register_buffer": 2, "shared_layout": 1}),
    "patches": (LARGE, [8, 8, 8], [128, 128, 16],
                {"unroll": 4, "stages": 3, "register_buffer": 2, "shared_layout": 1, "warp_tile": 1, "lane_map": 1}),
}  # fmt: skip
"""Schedules of kernels without a producer, the first as an H100 ran it fastest (2.77 ms)."""
test_nvrtc_does_not_spill = compile_well(MENU, "128x256")


@needs_nvrtc
@pytest.mark.skipif(not sass.is_available(), reason=f"no disassembler: pip install {sass.PACKAGE}")
@pytest.mark.parametrize("name", thorough_but(["128x256", "128x128", "patches"], "128x256"))
def test_the_loop_has_no_block_barrier_and_fewer_instructions(name: str) -> None:
    """Beside the plain kernel, more instructions of the loop are multiply-adds. None copies."""
    op, tile, block, knobs = PLAIN[name]
    plain = generate(op, make_schedule(op, tile, block, vector=4, **knobs), H200)
    before, after = (sass.main_loop(nvrtc.compile_cubin(kernel).cubin) for kernel in (plain, MENU[name]))
    assert before.counts["BAR"] == 1 and before.counts["LDGSTS"] > 0
    assert not {"BAR", "LDGSTS", "UTMALDG", "LDL", "STL"} & set(after.counts) and after.counts["SYNCS"] == 2
    assert after.share() > before.share() + 0.02
