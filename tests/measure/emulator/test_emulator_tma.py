"""The emulator's barriers and copies of boxes do what the PTX ISA says, and broken rules are named."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from gensor_gym import operators
from gensor_gym.codegen.cuda.tensor_map import TensorMap
from gensor_gym.codegen.kernel import Kernel, Launch
from gensor_gym.measure.emulator.emulator import EmulatedKernels, EmulatorError, emulate

THREADS = 64
ROWS, COLUMNS = 12, 40
COPY = operators.elementwise("copy", ROWS, COLUMNS)
DATA = np.arange(1, ROWS * COLUMNS + 1, dtype=np.float32).reshape(ROWS, COLUMNS)
BOX_ROWS = 8

INIT = "if (t == 0) { barrier_init(bar, 1); fence_barrier_init(); }\n__syncthreads();\n"
LOAD = "if (t == 0) { barrier_expect_bytes(bar, BYTES); load_box_2d(tile, x_map, bar, X, Y); }\n"
WAIT = "barrier_wait(bar, 0);\n"
SHOW = "for (int i = t; i < BYTES / 4; i += 64) y[i] = values[i];\n"


def by_hand(body: str, swizzle: int = 128, at: tuple[int, int] = (0, 0)) -> Kernel:
    """A kernel of 64 threads: `bar` a barrier, `tile` and `values` a box of 8 rows in shared memory, t the thread."""
    columns = (swizzle or 64) // 4
    text = (
        "extern __shared__ __align__(16) unsigned char shared_memory[];\n"
        'extern "C" __global__ void by_hand(const __grid_constant__ TensorMap x_map, const float *x, float *y, float *w) {\n'
        f"  constexpr int BYTES = {BOX_ROWS * columns * 4}, X = {at[1]}, Y = {at[0]};\n"
        "  const unsigned base = shared_address(shared_memory), tile = (base + 1023) & ~1023u, bar = tile + BYTES;\n"
        "  const float *values = reinterpret_cast<const float *>(shared_memory + (tile - base)); (void)values;\n"
        f"  const int t = threadIdx.x; (void)X; (void)Y; (void)bar;\n{body}\n}}\n"
    )
    made = TensorMap(0, "float32", (ROWS, COLUMNS), (4 * COLUMNS,), (BOX_ROWS, columns), swizzle)
    launch = Launch("by_hand", block=(THREADS, 1, 1), shared_bytes=1024 + BOX_ROWS * columns * 4 + 64)
    return Kernel(COPY, "cuda", "sm_90a", text, (launch,), 0, maps=(made,))


BOXES = [(swizzle, at) for swizzle in (0, 32, 64, 128) for at in ((0, 0), (8, 16), (-3, -8))]


def test_boxes_come_swizzled_and_zero_outside() -> None:
    """16-byte units of a box, where the address bits above bit 6 send them."""
    padded = np.pad(DATA, 64)
    with EmulatedKernels([by_hand(INIT + LOAD + WAIT + SHOW, swizzle, at) for swizzle, at in BOXES]) as program:
        for number, (swizzle, (row, column)) in enumerate(BOXES):
            box = padded[64 + row :, 64 + column :][:BOX_ROWS, : (swizzle or 64) // 4].reshape(-1, 4)
            units = np.arange(len(box))
            expected = np.empty_like(box)
            expected[units ^ (units >> 3 & max(0, swizzle // 16 - 1))] = box
            out = program.run(number, [DATA]).reshape(-1)[: box.size]
            np.testing.assert_array_equal(out, expected.reshape(-1), err_msg=f"{swizzle} {row} {column}")


def test_a_copy_is_not_there_before_it_is_waited_for() -> None:
    """Whoever reads early finds NaN."""
    out = emulate(by_hand(INIT + LOAD + "if (t == 0) " + SHOW + WAIT), [DATA])
    assert np.isnan(out.reshape(-1)[0])


BROKEN = [
    (INIT + WAIT, "deadlock: every thread waits, this one for an event that never comes"),
    (INIT + LOAD + WAIT + "barrier_wait(bar, 1);", "deadlock"),
    (INIT + LOAD.replace("BYTES);", "BYTES + 16);") + WAIT, "deadlock"),
    (INIT + "if (t < 2) barrier_expect_bytes(bar, 16);" + WAIT, "more arrivals than it expects"),
    ("if (t == 0) barrier_wait(bar, 1);", "not initialised"),
    (INIT.replace("fence_barrier_init();", "") + "barrier_arrive(bar);", "before a fence made its initialisation"),
    (INIT + LOAD.replace("(tile,", "(tile + 64,") + WAIT, "no multiple of 128"),
    (INIT + LOAD.replace("(tile,", "(tile + 1024,") + WAIT, "outside the shared memory of the block"),
    (INIT + LOAD.replace("X, Y", "X + 1, Y") + WAIT, "no multiple of 16 bytes along a row"),
    (INIT + LOAD.replace("load_box_2d", "load_box_3d").replace("X, Y", "X, Y, 0"), "another number of coordinates"),
    ("barrier_init(bar + 4, 1);", "no multiple of 8"),
    ("barrier_init(bar, 0);", "expects no arrival"),
    ("barrier_init(bar + (1 << 24), 1);", "not the block's own"),
]


@pytest.fixture(scope="module")
def broken() -> Iterator[EmulatedKernels]:
    """All of them, compiled together."""
    with EmulatedKernels([by_hand(body) for body, _ in BROKEN]) as program:
        yield program


@pytest.mark.parametrize("number", range(len(BROKEN)))
def test_broken_rules_are_named(broken: EmulatedKernels, number: int) -> None:
    """Each with words of its own."""
    with pytest.raises(EmulatorError, match=BROKEN[number][1]):
        broken.run(number, [DATA])


def test_a_copy_that_nobody_waits_for_is_named() -> None:
    """Unless it happened to be done by the end of the block, as where many threads run on after it began."""
    reports = 0
    with EmulatedKernels([by_hand(INIT.replace("__syncthreads();", "") + LOAD)]) as program:
        for seed in range(12):
            try:
                program.run(0, [DATA], seed)
            except EmulatorError as error:
                assert "the block ends while a copy into its shared memory is under way" in str(error)
                reports += 1
    assert reports > 0


CLUSTER = replace(by_hand("", 128).launches[0], grid=(4, 1, 1), cluster=2)


def test_addresses_hold_the_rank_in_the_cluster() -> None:
    """In the bits from 24 on; the bits below are those of any other block."""
    body = "if (t == 0) { y[2 * blockIdx.x] = base >> 24; y[2 * blockIdx.x + 1] = base & 0xffffff; }"
    out = emulate(replace(by_hand(body), launches=(CLUSTER,)), [DATA]).reshape(-1)[:8].reshape(4, 2)
    assert out[:, 0].tolist() == [0, 1, 0, 1]
    assert len(set(out[:, 1].tolist())) == 1 and out[0, 1] % 16 == 0


@pytest.mark.parametrize(
    "body",
    [
        "if (t == 0) barrier_init(bar & 0xffffff, 1);",
        INIT + "cluster_sync(); if (t == 0) cluster_arrive(bar & 0xffffff, 0);",
        INIT + "if (t == 0) { barrier_expect_bytes(bar, BYTES); load_box_2d(tile & 0xffffff, x_map, bar, X, Y); }" + WAIT,
        pytest.param(
            INIT + "if (t == 0) { barrier_expect_bytes(bar, BYTES); load_box_2d(tile, x_map, bar & 0xffffff, X, Y); }" + WAIT,
            marks=pytest.mark.thorough,
        ),
        pytest.param(INIT + "barrier_wait(bar & 0xffffff, 1);", marks=pytest.mark.thorough),
    ],
)
def test_addresses_of_other_blocks_are_refused(body: str) -> None:
    """Without its rank an address is that of the cluster's first block, which these instructions do not take."""
    with pytest.raises(EmulatorError, match="block [13], .*not the block's own"):
        emulate(replace(by_hand(body), launches=(CLUSTER,)), [DATA])


def test_phases_follow_one_another() -> None:
    """Threads of two halves hand a value back and forth: each waits for the phase that the other one ends."""
    body = (
        "if (t == 0) { barrier_init(bar, 32); barrier_init(bar + 8, 32); fence_barrier_init(); }\n__syncthreads();\n"
        "float *shared = const_cast<float *>(values);\n"
        "for (int round = 0; round < 5; ++round) {\n"
        "  if (t < 32) { shared[t] = 10.0f * round + t; barrier_arrive(bar); barrier_wait(bar + 8, round & 1); }\n"
        "  else { barrier_wait(bar, round & 1); y[32 * round + t - 32] = shared[63 - t]; barrier_arrive(bar + 8); }\n"
        "}\n"
    )
    with EmulatedKernels([by_hand(body)]) as program:
        for seed in range(4):
            out = program.run(0, [DATA], seed).reshape(-1)[:160].reshape(5, 32)
            np.testing.assert_array_equal(out, 10 * np.arange(5)[:, None] + np.arange(31, -1, -1))
