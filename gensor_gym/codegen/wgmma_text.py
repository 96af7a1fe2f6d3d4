"""The instructions of sm_90a that kernels use, as small functions around inline PTX (PTX ISA 8.0 and newer).

They stand between `#ifdef __CUDACC__` and `#endif`: the emulator brings functions of the same names.
"""

from __future__ import annotations

BITS = "unsigned short"
"""Type of a 16-bit element in memory."""
_PTX_TYPES = {"float16": "f16", "bfloat16": "bf16"}

_COMMON = """\
struct __align__(64) TensorMap {
  unsigned long long opaque[16];
};

// Address in the shared window.
__device__ __forceinline__ unsigned shared_address(const void *pointer) {
  return static_cast<unsigned>(__cvta_generic_to_shared(pointer));
}

// A barrier's phase ends when all arrivals, and all bytes that were announced, are there.
__device__ __forceinline__ void barrier_init(unsigned barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

// Copies see the barriers that this thread initialised.
__device__ __forceinline__ void fence_barrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;\\nfence.proxy.async.shared::cta;" ::: "memory");
}

__device__ __forceinline__ void barrier_arrive(unsigned barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// Arrive, and announce bytes that copies will bring.
__device__ __forceinline__ void barrier_expect_bytes(unsigned barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

// Wait for the end of the phase of this parity.
__device__ __forceinline__ void barrier_wait(unsigned barrier, unsigned parity) {
  asm volatile(
      "{\\n.reg .pred done;\\n"
      "again:\\nmbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\\n"
      "@!done bra again;\\n}" ::"r"(barrier), "r"(parity) : "memory");
}

__device__ __forceinline__ void prefetch_map(const TensorMap &map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}
"""

_LOAD = """
// Begin to copy a box to shared memory; coordinates of its first element, innermost dimension first.
__device__ __forceinline__ void load_box(unsigned to, const TensorMap &map, unsigned barrier, {parameters}) {{
  asm volatile(
      "cp.async.bulk.tensor.{rank}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {{{places}}}], [%2];"
      ::"r"(to), "l"(&map), "r"(barrier), {operands} : "memory");
}}
"""

_MULTIPLY = """
// Accumulators stay untouched by other instructions from here to the wait.
__device__ __forceinline__ void wgmma_fence() {{ asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }}

__device__ __forceinline__ void wgmma_commit() {{ asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }}

// Until all groups but the last LEFT are done.
#define wgmma_wait(LEFT) asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(LEFT) : "memory")

// sums[64, {columns}] (+)= A[64, 16] * B[16, {columns}] of a warpgroup, by descriptors: A in rows of k, B in rows of n.
__device__ __forceinline__ void wgmma_{dtype}(float (&sums)[{elements}], unsigned long long a, unsigned long long b, int add) {{
  asm volatile(
      "{{\\n.reg .pred add;\\nsetp.ne.b32 add, %{add}, 0;\\n"
      "wgmma.mma_async.sync.aligned.m64n{columns}k16.f32.{kind}.{kind}\\n"
{registers}
      "%{a}, %{b}, add, 1, 1, 0, 1;\\n}}"
      : {outputs}
      : "l"(a), "l"(b), "r"(add));
}}
"""

_REGISTERS = """
// Threads of a warpgroup hand registers back, or take what others handed back.
template <int COUNT>
__device__ __forceinline__ void release_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(COUNT));
}
template <int COUNT>
__device__ __forceinline__ void request_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(COUNT));
}
"""

_CONVERT = {
    "bfloat16": """
__device__ __forceinline__ float float_of_bfloat16(unsigned short bits) {
  return __uint_as_float(static_cast<unsigned>(bits) << 16);
}
// Two values rounded to the nearest, the first one in the lower half.
__device__ __forceinline__ unsigned pack_bfloat16(float first, float second) {
  unsigned pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
  return pair;
}
""",
    "float16": """
__device__ __forceinline__ float float_of_float16(unsigned short bits) {
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
  return value;
}
// Two values rounded to the nearest, the first one in the lower half.
__device__ __forceinline__ unsigned pack_float16(float first, float second) {
  unsigned pair;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
  return pair;
}
""",
}

_COORDINATES = ("x", "y", "z")


def instructions(dtype: str, rank: int, columns: int, registers: bool) -> str:
    """Text of the functions: copies of boxes of `rank` dimensions, wgmma of a data type with so many columns.

    `registers` adds setmaxnreg.
    """
    parts = [_COMMON, _load(rank), _multiply(dtype, columns)]
    if registers:
        parts.append(_REGISTERS)
    parts.append(_CONVERT[dtype])
    return "#ifdef __CUDACC__\n" + "".join(parts) + "#endif\n"


def _load(rank: int) -> str:
    """The copy of a box."""
    names = _COORDINATES[:rank]
    return _LOAD.format(
        rank=rank,
        parameters=", ".join(f"int {name}" for name in names),
        places=", ".join(f"%{3 + i}" for i in range(rank)),
        operands=", ".join(f'"r"({name})' for name in names),
    )


def _multiply(dtype: str, columns: int) -> str:
    """The multiply-add of a warpgroup; its registers eight a line."""
    elements = columns // 2
    rows = [range(first, min(first + 8, elements)) for first in range(0, elements, 8)]
    lines = [", ".join(f"%{i}" for i in row) for row in rows]
    outputs = [", ".join(f'"+f"(sums[{i}])' for i in row) for row in rows]
    text = [f'      "{"{" if i == 0 else ""}{line}{"}," if i == len(lines) - 1 else ","}\\n"' for i, line in enumerate(lines)]
    return _MULTIPLY.format(
        dtype=dtype,
        kind=_PTX_TYPES[dtype],
        columns=columns,
        elements=elements,
        registers="\n".join(text),
        outputs=",\n        ".join(outputs),
        a=elements,
        b=elements + 1,
        add=elements + 2,
    )
