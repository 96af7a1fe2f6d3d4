"""What the tensor memory accelerator makes of float32 by a tensor map of type TFLOAT32: asked of a device where there is one.

CUTLASS says that such a copy converts, Triton that it rounds and does not cut off; neither says how ties go, nor what is left
in the 13 bits that tf32 has no place for. Kernels of tf32 (`codegen/wgmma_rows.py`) need this much: the nearest number of 10
bits of mantissa, whichever way ties go. `python -m tests.experiments.device.test_gpu_tf32_map` prints what a device answers,
bit by bit.
"""

from __future__ import annotations

import numpy as np
import pytest

from gensor_gym import operators
from gensor_gym.codegen.cuda.ptx import FUNCTIONS, device_functions
from gensor_gym.codegen.cuda.tensor_map import TensorMap
from gensor_gym.codegen.cuda.wgmma.text import wgmma_functions
from gensor_gym.codegen.kernel import Kernel, Launch
from gensor_gym.measure.devices.presence import absence_of_cuda
from gensor_gym.measure.emulator.emulator import emulate

ROWS, COLUMNS = 64, 32
PLACES = 13
"""Bits of float32's mantissa that tf32 has not."""
HALF = 1 << PLACES - 1
TEXT = """\
extern "C" __global__ void __launch_bounds__(128)
copied(const __grid_constant__ TensorMap x_map, const float *__restrict__ x, float *__restrict__ y, float *__restrict__ w) {
  extern __shared__ __align__(16) unsigned char shared_memory[];
  const unsigned base = shared_address(shared_memory), tile = (base + 1023) & ~1023u, ready = tile + 8192;
  if (threadIdx.x == 0) {
    barrier_init(ready, 1);
    fence_barrier_init();
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    barrier_expect_bytes(ready, 8192);
    load_box_2d(tile, x_map, ready, 0, 0);
  }
  barrier_wait(ready, 0);
  const float *values = reinterpret_cast<const float *>(shared_memory + (tile - base));
  for (int i = threadIdx.x; i < 2048; i += 128) y[i] = values[i];
}
"""


def copy_kernel() -> Kernel:
    """One block lets TMA bring a box of 64 x 32 floats to shared memory, and writes out what came."""
    text = TEXT.replace("  extern __shared__ __align__(16) unsigned char shared_memory[];\n", "")
    head = "extern __shared__ __align__(16) unsigned char shared_memory[];\n\n"
    source = device_functions(text, wgmma_functions("tf32", 8, (2,), True) | FUNCTIONS) + head + text
    made = TensorMap(0, "tf32", (ROWS, COLUMNS), (4 * COLUMNS,), (ROWS, COLUMNS), swizzle=0)
    launch = Launch("copied", block=(128, 1, 1), shared_bytes=1024 + 8192 + 16)
    return Kernel(operators.elementwise("copy", ROWS, COLUMNS), "cuda", "sm_90a", source, (launch,), 0, maps=(made,))


def asked() -> np.ndarray:
    """Bits uint32 [64, 32]: of sixteen numbers of either sign, every place between two of tf32 and carries into exponents."""
    heads = [1.0, 1.5, 2.0 - 2.0**-10, 3.0, 0.1, 1e-30, 1e30, 2.0**-126, 0.0]
    tails = [0, 1, HALF // 2, HALF - 1, HALF, HALF + 1, HALF + HALF // 2, 2 * HALF - 1]
    found = [np.float32(head).view(np.uint32) & ~np.uint32(2 * HALF - 1) | np.uint32(tail) for head in heads for tail in tails]
    found += [bits | np.uint32(1 << 31) for bits in found]
    rest = np.random.default_rng(0).standard_normal(ROWS * COLUMNS - len(found), dtype=np.float32).view(np.uint32)
    return np.concatenate([np.array(found, dtype=np.uint32), rest]).reshape(ROWS, COLUMNS)


def kept(bits: np.ndarray) -> np.ndarray:
    """The bits that wgmma takes of a number of tf32."""
    return bits & ~np.uint32(2 * HALF - 1)


def check(answer: np.ndarray) -> None:
    """The nearest number of tf32, of the two that a tie lies between any."""
    given, got = asked(), kept(answer.view(np.uint32))
    tie = given & (2 * HALF - 1) == HALF
    normal = kept(given) & 0x7F800000 != 0
    nearest = kept(given + np.uint32(HALF))
    wrong = (got != nearest) & ~(tie & (got == kept(given))) & normal
    assert not wrong.any(), [f"{a:#x} became {b:#x}" for a, b in zip(given[wrong][:8], got[wrong][:8], strict=True)]
    assert tie.sum() > 8 and (got != kept(given)).sum() > 500


@pytest.mark.thorough
def test_the_emulator_rounds_to_the_nearest() -> None:
    check(emulate(copy_kernel(), [asked().view(np.float32)]))


def test_a_copy_that_cuts_off_is_found() -> None:
    with pytest.raises(AssertionError, match="became"):
        check(kept(asked()))


@pytest.mark.skipif(bool(absence_of_cuda()), reason=absence_of_cuda())
def test_a_device_rounds_to_the_nearest() -> None:
    check(copy_kernel()(asked().view(np.float32)))


if __name__ == "__main__":
    answers = copy_kernel()(asked().view(np.float32)).view(np.uint32)
    for number, (bits, answer) in enumerate(zip(asked().flat, answers.flat, strict=True)):
        if number < 160:
            way = "kept" if kept(answer) == kept(bits) else "up"
            print(f"{bits:#010x} {answer:#010x} {way}, low bits {answer & (2 * HALF - 1):#x}")
    check(answers)
    print("rounded to the nearest")
