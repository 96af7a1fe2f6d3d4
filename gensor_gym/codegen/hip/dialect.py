"""Differences of a kernel's HIP text from CUDA text.

A wave has 64 lanes on CDNA and all lanes take part in a shuffle, so a shuffle has no mask. 16-bit elements are stored as
their bits, as in CUDA; float16 is converted through the compiler's own type. Matrix cores (MFMA), tensor maps and asynchronous
copies are not supported.
"""

from __future__ import annotations

from gensor_gym.codegen.cuda.dialect import Dialect
from gensor_gym.codegen.cuda.ptx import FUNCTIONS
from gensor_gym.hardware.occupancy import PARTITIONS

_HEAD = "__device__ __forceinline__"

_CONVERSIONS = {
    "from_float16": f"""\
{_HEAD} float from_float16(unsigned short bits) {{ return static_cast<float>(__builtin_bit_cast(_Float16, bits)); }}
""",
    "to_float16": f"""\
{_HEAD} unsigned short to_float16(float value) {{
  return __builtin_bit_cast(unsigned short, static_cast<_Float16>(value));
}}
""",
}


class HipDialect(Dialect):
    """The HIP language of AMD's GPUs, for hipcc and clang."""

    language, title = "hip", "HIP"
    head = "#ifndef EMULATOR  // which has its own\n#include <hip/hip_runtime.h>\n#endif\n\n"
    shared_memory = "extern __shared__ __attribute__((aligned(16))) unsigned char shared_memory[];"
    functions = _CONVERSIONS | {name: FUNCTIONS[name] for name in ("from_bfloat16", "to_bfloat16", "from_float8_e4m3fn")}
    mistakes_bytes = False
    names_lanes = False

    def shuffle_down(self, lanes: str, value: str, distance: str, team: int) -> str:
        """Return the C text of a shuffle without a mask.

        A wave's lanes run in step, and all lanes reach this project's shuffles.
        """
        return f"__shfl_down({value}, {distance}, {team})"

    def launch_bounds(self, threads: int, warp: int, resident: int | None = None) -> str:
        """Return the C text of the arguments of `__launch_bounds__`: threads of a block and waves per SIMD.

        A compute unit has four SIMDs.

        CUDA's second argument is blocks per multiprocessor instead. Source: HIP programming guide, `__launch_bounds__`,
        MIN_WARPS_PER_EXECUTION_UNIT.
        """
        waves = -(-threads // warp) * (resident or 0) // PARTITIONS
        return f"{threads}, {waves}" if waves else str(threads)


HIP = HipDialect()
