"""The emulator's stores of matrices and boxes do what the PTX ISA says, and broken rules are named."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from gensor_gym import operators
from gensor_gym.codegen.cuda.tensor_map import TensorMap
from gensor_gym.codegen.kernel import Kernel, Launch
from gensor_gym.measure.emulator.emulator import EmulatedKernels, EmulatorError

ROWS, COLUMNS = 12, 40
COPY = operators.elementwise("copy", ROWS, COLUMNS, dtype="float16")
DATA = np.zeros((ROWS, COLUMNS), np.float16)

WORDS = "unsigned words[4];\nfor (int i = 0; i < 4; ++i) words[i] = 64 * i + 2 * lane | 64 * i + 2 * lane + 1 << 16;\n"
OWN = "const unsigned own = buffer + lane % 16 * 32 + (lane / 16 ^ lane % 8 / 4) * 16;\n"
MATRICES = "store_matrices_x4(own, words);\n"
FENCE = "fence_async();\n__syncwarp(0xffffffffu);\n"
STORE = "if (lane == 0) { store_box_2d(y_map, buffer, X, Y); commit_stores(); }\n"
WAIT = "if (lane == 0) wait_for_stores<0>();\n"
WHOLE = WORDS + OWN + MATRICES + FENCE + STORE + WAIT


def by_hand(body: str, at: tuple[int, int] = (0, 0)) -> Kernel:
    """A kernel of a warp: `buffer` a swizzled box of 16 rows and columns in shared memory, `at` its (row, column)."""
    text = (
        "extern __shared__ __align__(16) unsigned char shared_memory[];\n"
        'extern "C" __global__ void by_hand(const __grid_constant__ TensorMap y_map, const unsigned short *x, '
        "unsigned short *y, float *w) {\n"
        f"  constexpr int X = {at[1]}, Y = {at[0]};\n"
        "  const unsigned buffer = (shared_address(shared_memory) + 1023) & ~1023u;\n"
        f"  const int lane = threadIdx.x; (void)X; (void)Y;\n{body}\n}}\n"
    )
    made = TensorMap(1, "float16", (ROWS, COLUMNS), (2 * COLUMNS,), (16, 16), 32)
    launch = Launch("by_hand", block=(32, 1, 1), shared_bytes=1024 + 512)
    return Kernel(COPY, "cuda", "sm_90a", text, (launch,), 0, maps=(made,))


MATRIX = np.arange(64).reshape(8, 8)
"""The lanes' elements of the first matrix; each next one has 64 more."""
PLACES = [(0, 0), (-3, 16), (4, 32), (2, -8), (40, 0)]


@pytest.mark.parametrize("turned", [False, True])
def test_matrices_come_as_lanes_hold_them_and_boxes_end_at_the_edge(turned: bool) -> None:
    """Matrices 0 and 1 are below one another, 2 and 3 to the right of them; elements outside the array are left out."""
    body = WHOLE.replace("store_matrices", "store_transposed") if turned else WHOLE
    each = MATRIX.T if turned else MATRIX
    box = np.block([[each, each + 128], [each + 64, each + 192]])
    with EmulatedKernels([by_hand(body, at) for at in PLACES]) as program:
        for number, (row, column) in enumerate(PLACES):
            expected = np.full((ROWS + 96, COLUMNS + 96), 0xFFFF)
            expected[48 + row : 64 + row, 48 + column : 64 + column] = box
            out = program.run(number, [DATA]).view(np.uint16)
            np.testing.assert_array_equal(out, expected[48 : 48 + ROWS, 48 : 48 + COLUMNS], err_msg=f"{row} {column}")


BROKEN = [
    (WHOLE.replace(WAIT, ""), "a thread ends while a store that it began"),
    (WHOLE.replace("commit_stores();", ""), "a thread ends while a store that it began"),
    (WHOLE.replace("wait_for_stores<0>", "wait_for_stores<1>"), "a thread ends while a store that it began"),
    (WHOLE.replace("lane == 0) wait", "lane == 1) wait"), "a thread ends while a store that it began"),
    (WHOLE.replace(FENCE, "__syncwarp(0xffffffffu);\n"), "before each lane has fenced"),
    (WHOLE.replace("fence_async();", "if (lane != 7) fence_async();"), "before each lane has fenced"),
    (WHOLE.replace(WAIT, MATRICES + WAIT), "still reads what is overwritten"),
    (WHOLE.replace("(own,", "(own + 8,"), "does not begin at a multiple of 16 bytes"),
    (WHOLE.replace("(own,", "(own + 512,"), "outside the shared memory"),
    (WHOLE.replace("(own,", "(own + (1 << 24),"), "a block that the cluster does not have|not the block's own"),
    (WHOLE.replace(", buffer,", ", buffer + 64,"), "no multiple of 128"),
    (WHOLE.replace("X, Y);", "X + 1, Y);"), "no multiple of 16 bytes along a row"),
    (WHOLE.replace("store_box_2d", "store_box_3d").replace("X, Y);", "X, Y, 0);"), "another number of coordinates"),
    (WHOLE.replace(MATRICES, "if (lane < 31) " + MATRICES), "never arrives"),
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
