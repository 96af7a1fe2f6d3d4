"""The instructions of sm_90a as small device functions around inline PTX (PTX ISA 8.0 and newer).

The emulator has functions of the same names (`measure/emulator/emulator_tma.h`, `measure/emulator/emulator_wgmma.h`).
"""

from __future__ import annotations

from collections.abc import Iterable

_SHAPES = {
    "float16": "k16.f32.f16.f16", "bfloat16": "k16.f32.bf16.bf16", "tf32": "k8.f32.tf32.tf32", "int8": "k32.s32.s8.s8",
    "float8_e4m3fn": "k32.f32.e4m3.e4m3",
}  # fmt: skip
"""Data type of the operator -> reduction elements and types of the wgmma instruction."""
_HEAD = "__device__ __forceinline__"


def _store_matrices(name: str, kind: str) -> str:
    """Return the C text of a device function that stores four 8 x 8 matrices of 16-bit elements by one `stmatrix`."""
    return f"""\
// Four 8 x 8 matrices to shared memory, two neighbours of a row in a lane; lane 8 i + r has the address of {
        "column" if kind else "row"} r of matrix i.
{_HEAD} void {name}(unsigned to, const unsigned (&words)[4]) {{
  asm volatile("stmatrix.sync.aligned.m8n8.x4{kind}.shared.b16 [%0], {{%1, %2, %3, %4}};"
               :: "r"(to), "r"(words[0]), "r"(words[1]), "r"(words[2]), "r"(words[3]) : "memory");
}}
"""


FUNCTIONS: dict[str, str] = {
    "TensorMap": """\
struct __align__(64) TensorMap {
  unsigned long long opaque[16];
};
""",
    "shared_address": f"""\
{_HEAD} unsigned shared_address(const void *pointer) {{  // in the shared window
  return static_cast<unsigned>(__cvta_generic_to_shared(pointer));
}}
""",
    "shared_pointer": f"""\
{_HEAD} unsigned char *shared_pointer(unsigned address) {{  // of this block
  return static_cast<unsigned char *>(__cvta_shared_to_generic(address));
}}
""",
    "barrier_init": f"""\
// A barrier's phase ends when all arrivals, and all bytes that were announced, are there.
{_HEAD} void barrier_init(unsigned barrier, int arrivals) {{
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(barrier), "r"(arrivals) : "memory");
}}
""",
    "fence_barrier_init": f"""\
// Copies see the barriers that this thread initialised.
{_HEAD} void fence_barrier_init() {{
  asm volatile("fence.mbarrier_init.release.cluster;\\nfence.proxy.async.shared::cta;" ::: "memory");
}}
""",
    "fence_async": f"""\
// What this thread has written to shared memory is seen by wgmma and by copies.
{_HEAD} void fence_async() {{ asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }}
""",
    "barrier_arrive": f"""\
{_HEAD} void barrier_arrive(unsigned barrier) {{
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" :: "r"(barrier) : "memory");
}}
""",
    "cluster_sync": f"""\
// All threads of the cluster that have not ended meet; what they did before is seen by all.
{_HEAD} void cluster_sync() {{
  asm volatile("barrier.cluster.arrive.release;\\nbarrier.cluster.wait.acquire;" ::: "memory");
}}
""",
    "cluster_arrive": f"""\
// Arrive at the barrier that a block of the cluster has at this address. It says that products are done, not what a thread
// has written, so it needs no .release.cluster, which would wait for all of the thread's memory operations.
{_HEAD} void cluster_arrive(unsigned barrier, int rank) {{
  asm volatile(
      "{{\\n.reg .b32 remote;\\n"
      "mapa.shared::cluster.u32 remote, %0, %1;\\n"
      "mbarrier.arrive.shared::cluster.b64 _, [remote];\\n}}" :: "r"(barrier), "r"(rank) : "memory");
}}
""",
    "barrier_expect_bytes": f"""\
// Arrive, and announce bytes that copies will bring.
{_HEAD} void barrier_expect_bytes(unsigned barrier, int bytes) {{
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" :: "r"(barrier), "r"(bytes) : "memory");
}}
""",
    "barrier_wait": f"""\
// Wait for the end of the phase of this parity.
{_HEAD} void barrier_wait(unsigned barrier, unsigned parity) {{
  asm volatile(
      "{{\\n.reg .pred done;\\n"
      "again:\\nmbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\\n"
      "@!done bra again;\\n}}" :: "r"(barrier), "r"(parity) : "memory");
}}
""",
    "prefetch_map": f"""\
{_HEAD} void prefetch_map(const TensorMap &map) {{
  asm volatile("prefetch.tensormap [%0];" :: "l"(&map) : "memory");
}}
""",
    "wgmma_fence": f"""\
// No other instruction touches accumulators from here to the wait.
{_HEAD} void wgmma_fence() {{ asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }}
""",
    "wgmma_commit": f"""\
{_HEAD} void wgmma_commit() {{ asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }}
""",
    "wgmma_wait": f"""\
// Until all groups but the last LEFT are done.
template <int LEFT>
{_HEAD} void wgmma_wait() {{ asm volatile("wgmma.wait_group.sync.aligned %0;" :: "n"(LEFT) : "memory"); }}
""",
    **{name: _store_matrices(name, kind) for name, kind in (("store_matrices_x4", ""), ("store_transposed_x4", ".trans"))},
    "commit_stores": f"""\
// Ends a group of stores.
{_HEAD} void commit_stores() {{ asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }}
""",
    "wait_for_stores": f"""\
// Until all groups of stores of this thread but the newest LEFT have read shared memory.
template <int LEFT>
{_HEAD} void wait_for_stores() {{ asm volatile("cp.async.bulk.wait_group.read %0;" :: "n"(LEFT) : "memory"); }}
""",
    "release_registers": f"""\
// The threads of a warpgroup hand registers back ..
template <int COUNT>
{_HEAD} void release_registers() {{ asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" :: "n"(COUNT)); }}
""",
    "request_registers": f"""\
// .. or take what others handed back.
template <int COUNT>
{_HEAD} void request_registers() {{ asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" :: "n"(COUNT)); }}
""",
    "turn_tile": f"""\
// 8 x 8 sums of a warp, of which a lane has two neighbours in row lane / 4, turned over: two neighbours in column lane / 4.
template <typename Sum>
{_HEAD} void turn_tile(Sum &first, Sum &second) {{
  unsigned &one = reinterpret_cast<unsigned &>(first), &two = reinterpret_cast<unsigned &>(second);
  unsigned low = __byte_perm(one, two, 0x5410), high = __byte_perm(one, two, 0x7632);
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %0;" : "+r"(low));
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %0;" : "+r"(high));
  one = __byte_perm(low, high, 0x5410);
  two = __byte_perm(low, high, 0x7632);
}}
""",
    "pack_bfloat16": f"""\
// Two values rounded to the nearest, the first one in the lower half.
{_HEAD} unsigned pack_bfloat16(float first, float second) {{
  unsigned pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
  return pair;
}}
""",
    "pack_float16": f"""\
// Two values rounded to the nearest, the first one in the lower half.
{_HEAD} unsigned pack_float16(float first, float second) {{
  unsigned pair;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
  return pair;
}}
""",
}
"""Device functions that are equal in all kernels, by name."""


def load_box(rank: int) -> str:
    """Return the C text of the device function `load_box_<rank>d`, which copies a box of `rank` dimensions, 2 to 5, by TMA."""
    names = ("x", "y", "z", "w", "v")[:rank]
    parameters = ", ".join(f"int {name}" for name in names)
    places = ", ".join(f"%{3 + i}" for i in range(rank))
    operands = ", ".join(f'"r"({name})' for name in names)
    return f"""\
// Begin to copy a box to shared memory; coordinates of its first element, innermost dimension first.
{_HEAD} void load_box_{rank}d(unsigned to, const TensorMap &map, unsigned barrier, {parameters}) {{
  asm volatile(
      "cp.async.bulk.tensor.{rank}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {{{places}}}], [%2];"
      :: "r"(to), "l"(&map), "r"(barrier), {operands} : "memory");
}}
"""


def multicast_box(rank: int) -> str:
    """Return the C text of the device function `multicast_box_<rank>d`, which copies a box to several blocks of a cluster.

    The box has `rank` dimensions, 2 to 4.
    """
    names = ("x", "y", "z", "w")[:rank]
    parameters = ", ".join(f"int {name}" for name in names)
    places = ", ".join(f"%{4 + i}" for i in range(rank))
    operands = ", ".join(f'"r"({name})' for name in names)
    return f"""\
// Begin to copy a box to the same place in all blocks of the mask; each block's own barrier gets the bytes.
{_HEAD} void multicast_box_{rank}d(unsigned to, const TensorMap &map, unsigned barrier, unsigned blocks, {parameters}) {{
  asm volatile(
      "cp.async.bulk.tensor.{rank}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster "
      "[%0], [%1, {{{places}}}], [%2], %3;"
      :: "r"(to), "l"(&map), "r"(barrier), "h"(static_cast<unsigned short>(blocks)), {operands} : "memory");
}}
"""


def store_box(rank: int) -> str:
    """Return the C text of the device function `store_box_<rank>d`, which stores a box of `rank` dimensions, 2 to 5, by TMA."""
    names = ("x", "y", "z", "w", "v")[:rank]
    parameters = ", ".join(f"int {name}" for name in names)
    places = ", ".join(f"%{2 + i}" for i in range(rank))
    operands = ", ".join(f'"r"({name})' for name in names)
    return f"""\
// Begin to store a box from shared memory; elements outside the array are left out.
{_HEAD} void store_box_{rank}d(const TensorMap &map, unsigned from, {parameters}) {{
  asm volatile(
      "cp.async.bulk.tensor.{rank}d.global.shared::cta.tile.bulk_group [%0, {{{places}}}], [%1];"
      :: "l"(&map), "r"(from), {operands} : "memory");
}}
"""


def multiply_name(dtype: str, b_in_rows: bool, left: str = "") -> str:
    """Return the name of the device function for a wgmma: `wgmma_float16`, or `wgmma_rows_float16` with B in rows of k.

    `left` is `weights_` if A is in registers.
    """
    return f"wgmma_{left}{'rows_' if b_in_rows else ''}{dtype}"


def multiply_add(dtype: str, columns: int, b_in_rows: bool) -> str:
    """Return the C text of the device function for a wgmma with `columns` columns.

    B is in rows of k or (16-bit elements only) of n.
    """
    elements, shape = columns // 2, _SHAPES[dtype]
    depth, kind = shape.partition(".")[0][1:], "int" if dtype == "int8" else "float"
    registers, outputs = _sums(elements, "r" if kind == "int" else "f")
    rows_of, transposed = ("k", 0) if b_in_rows else ("n", 1)
    shapes = f"sums[64, {columns}] (+)= A[64, {depth}] * B[{depth}, {columns}]"
    signs = "" if dtype == "int8" else ", 1, 1" if dtype in ("tf32", "float8_e4m3fn") else f", 1, 1, 0, {transposed}"
    return f"""\
// {shapes} of a warpgroup, by descriptors: A in rows of k, B in rows of {rows_of}.
{_HEAD} void {multiply_name(dtype, b_in_rows)}({kind} (&sums)[{elements}], unsigned long long a, unsigned long long b, int add) {{
  asm volatile(
      "{{\\n.reg .pred add;\\nsetp.ne.b32 add, %{elements + 2}, 0;\\n"
      "wgmma.mma_async.sync.aligned.m64n{columns}{shape} {{\\n"
      "{registers}}},\\n"
      "%{elements}, %{elements + 1}, add{signs};\\n}}"
      : {outputs}
      : "l"(a), "l"(b), "r"(add));
}}
"""


def multiply_weights(dtype: str, columns: int, b_in_rows: bool) -> str:
    """Return the C text of the device function `wgmma_weights[_rows]_<dtype>`, whose operand A is in registers.

    Elements have 16 bits.
    """
    elements, shape = columns // 2, _SHAPES[dtype]
    registers, outputs = _sums(elements, "f")
    words = [elements + word for word in range(4)]
    rows_of, transposed = ("k", 0) if b_in_rows else ("n", 1)
    return f"""\
// sums[64, {columns}] (+)= A[64, 16] * B[16, {columns}] of a warpgroup: A in registers as for mma.sync, B in rows of {rows_of}.
{_HEAD} void {multiply_name(dtype, b_in_rows, "weights_")}(
    float (&sums)[{elements}], const unsigned (&a)[4], unsigned long long b, int add) {{
  asm volatile(
      "{{\\n.reg .pred add;\\nsetp.ne.b32 add, %{elements + 5}, 0;\\n"
      "wgmma.mma_async.sync.aligned.m64n{columns}{shape} {{\\n"
      "{registers}}},\\n"
      "{{{", ".join(f"%{word}" for word in words)}}}, %{elements + 4}, add, 1, 1, {transposed};\\n}}"
      : {outputs}
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add));
}}
"""


def _sums(elements: int, letter: str) -> tuple[str, str]:
    rows = [range(first, min(first + 8, elements)) for first in range(0, elements, 8)]
    registers = ",\\n\"\n      \"".join(", ".join(f"%{i}" for i in row) for row in rows)
    return registers, ",\n        ".join(", ".join(f'"+{letter}"(sums[{i}])' for i in row) for row in rows)


def wgmma_functions(dtype: str, columns: int, ranks: Iterable[int], b_in_rows: bool) -> dict[str, str]:
    """Return the device functions that a wgmma kernel may call, by name.

    `ranks` are the numbers of dimensions of the boxes that it copies.
    """
    own = {f"load_box_{rank}d": load_box(rank) for rank in sorted(ranks)}
    own |= {f"multicast_box_{rank}d": multicast_box(rank) for rank in sorted(ranks)}
    own[multiply_name(dtype, b_in_rows)] = multiply_add(dtype, columns, b_in_rows)
    return FUNCTIONS | own
