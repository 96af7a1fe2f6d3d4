"""PTX instructions as small device functions. A kernel's text contains only the functions that it calls.

The emulator has functions of the same names (`measure/emulator/emulator_mma.h`); all other text is the same for GPU and emulator.
Operands of `mma` are distributed over the 32 lanes of a warp as the PTX ISA defines (`cuda/mma/compute.py`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping

_HEAD = "__device__ __forceinline__"

ASYNC_FUNCTIONS = """\
#ifndef EMULATOR  // which has its own
// Starts copying BYTES bytes to shared memory; zeros where not `inside`, and then nothing is read.
template <int BYTES>
__device__ __forceinline__ void copy_async(void *to, const void *from, bool inside = true) {
  const unsigned address = static_cast<unsigned>(__cvta_generic_to_shared(to));
  const int read = inside ? BYTES : 0;
  if constexpr (BYTES == 16)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(from), "r"(read) : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(address), "l"(from), "n"(BYTES), "r"(read) : "memory");
}

// Ends a group of copies.
__device__ __forceinline__ void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Until all copies of this thread but those of the newest LEFT groups have arrived.
template <int LEFT>
__device__ __forceinline__ void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory");
}
#endif

"""
"""C text of functions that copy asynchronously from global to shared memory (sm_80 and newer)."""


def _load_matrices(name: str, kind: str, count: int) -> str:
    """Return the C text of a device function that loads `count` matrices of 8 rows of 16 bytes by one `ldmatrix`.

    Lane 8 i + r passes the address of row r of matrix i. Every lane receives 4 bytes of each matrix.
    """
    registers = ", ".join(f"%{i}" for i in range(count))
    outputs = ", ".join(f'"=r"(to[{i}])' for i in range(count))
    return f"""\
{_HEAD} void {name}_x{count}(unsigned *to, const void *from) {{
  asm volatile("ldmatrix.sync.aligned.m8n8.x{count}{kind}.shared.b16 {{{registers}}}, [%{count}];"
               : {outputs} : "r"(static_cast<unsigned>(__cvta_generic_to_shared(from))));
}}
"""


def _multiply_add(name: str, instruction: str, sums: int, a: int, b: int) -> str:
    """Return the C text of a device function for one `mma.sync`: sums += a * b.

    `sums`, `a` and `b` are numbers of registers of a lane.
    """
    integer = ".s32" in instruction
    kind, letter = ("int", "r") if integer else ("float", "f")
    numbers = iter(range(sums + a + b))
    groups = [", ".join(f"%{next(numbers)}" for _ in range(count)) for count in (sums, a, b)]
    outputs = ", ".join(f'"+{letter}"(sums[{i}])' for i in range(sums))
    inputs = ", ".join([f'"r"(a[{i}])' for i in range(a)] + [f'"r"(b[{i}])' for i in range(b)])
    text = f"mma.sync.aligned.{instruction} {{{groups[0]}}}, {{{groups[1]}}}, {{{groups[2]}}}, {{{groups[0]}}};"
    return f"""\
{_HEAD} void {name}({kind} *sums, const unsigned *a, const unsigned *b) {{
  asm("{text}"
      : {outputs} : {inputs});
}}
"""


FUNCTIONS: dict[str, str] = {
    **{f"load_matrices_x{n}": _load_matrices("load_matrices", "", n) for n in (1, 2, 4)},
    **{f"load_transposed_x{n}": _load_matrices("load_transposed", ".trans", n) for n in (1, 2, 4)},
    "mma_16x8x8_float16": _multiply_add("mma_16x8x8_float16", "m16n8k8.row.col.f32.f16.f16.f32", 4, 2, 1),
    "mma_16x8x16_float16": _multiply_add("mma_16x8x16_float16", "m16n8k16.row.col.f32.f16.f16.f32", 4, 4, 2),
    "mma_16x8x16_bfloat16": _multiply_add("mma_16x8x16_bfloat16", "m16n8k16.row.col.f32.bf16.bf16.f32", 4, 4, 2),
    "mma_16x8x8_tf32": _multiply_add("mma_16x8x8_tf32", "m16n8k8.row.col.f32.tf32.tf32.f32", 4, 4, 2),
    "mma_16x8x32_int8": _multiply_add("mma_16x8x32_int8", "m16n8k32.row.col.s32.s8.s8.s32", 4, 4, 2),
    "mma_16x8x32_float8_e4m3fn": _multiply_add("mma_16x8x32_float8_e4m3fn", "m16n8k32.row.col.f32.e4m3.e4m3.f32", 4, 4, 2),
    "mma_8x8x16_int8": _multiply_add("mma_8x8x16_int8", "m8n8k16.row.col.s32.s8.s8.s32", 2, 1, 1),
    "round_tf32": f"""\
{_HEAD} unsigned round_tf32(float value) {{
  unsigned bits;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(value));
  return bits;
}}
""",
    "shift_bytes": f"""\
{_HEAD} int4 shift_bytes(int4 low, int4 high, int bytes) {{  // 16 bytes of 32, less than 16 from the first
  const unsigned words[8] = {{
      (unsigned)low.x, (unsigned)low.y, (unsigned)low.z, (unsigned)low.w,
      (unsigned)high.x, (unsigned)high.y, (unsigned)high.z, (unsigned)high.w}};
  unsigned out[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {{
    const int first = i + bytes / 4;
    out[i] = __byte_perm(words[first], words[first + 1], 0x3210u + 0x1111u * (bytes % 4));
  }}
  return int4{{(int)out[0], (int)out[1], (int)out[2], (int)out[3]}};
}}
""",
    "opaque": f"""\
{_HEAD} signed char opaque(signed char byte) {{  // the compiler does not see where it comes from: codegen/cuda_bytes.py
  unsigned word = static_cast<unsigned char>(byte);
  asm("" : "+r"(word));
  return static_cast<signed char>(word);
}}
""",
    "larger": f"""\
{_HEAD} float larger(float a, float b) {{  // NaN if either is; no such instruction before sm_80
  float value;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(value) : "f"(a), "f"(b));
  return value;
}}
""",
    "power_of_two": f"""\
{_HEAD} float power_of_two(float x) {{  // within 2^-22 of it (PTX ISA, ex2.approx.ftz), 0 below 2^-126
  float value;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(value) : "f"(x));
  return value;
}}
""",
    "from_float16": f"""\
{_HEAD} float from_float16(unsigned short bits) {{
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
  return value;
}}
""",
    "to_float16": f"""\
{_HEAD} unsigned short to_float16(float value) {{
  unsigned short bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  return bits;
}}
""",
    "from_float8_e4m3fn": f"""\
{_HEAD} float from_float8_e4m3fn(unsigned char bits) {{  // no cvt before sm_89; 2^120 is the difference of the biases
  const int size = bits & 0x7f;
  return __int_as_float((bits & 0x80) << 24 | (size == 0x7f ? 0x7fffffff : size << 20)) * 0x1p120f;
}}
""",
    "from_bfloat16": f"""\
{_HEAD} float from_bfloat16(unsigned short bits) {{ return __int_as_float(static_cast<int>(bits) << 16); }}
""",
    "to_bfloat16": f"""\
{_HEAD} unsigned short to_bfloat16(float value) {{  // to nearest, ties to even; no cvt before sm_80
  const unsigned bits = __float_as_int(value);
  return value == value ? (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16 : 0x7fffu;
}}
""",
}
"""C text of device functions, by name."""


def device_functions(text: str, functions: Mapping[str, str] = FUNCTIONS) -> str:
    """Return the C text of the device functions that a kernel's text calls; empty if it calls none.

    The emulator has its own versions of `functions` and skips these.
    """
    words = set(re.findall(r"[A-Za-z_]\w*", text))
    used = [body for name, body in functions.items() if name in words]
    copies = ASYNC_FUNCTIONS if "copy_async" in words else ""
    return copies + ("#ifndef EMULATOR  // which has its own\n" + "\n".join(used) + "#endif\n\n" if used else "")
