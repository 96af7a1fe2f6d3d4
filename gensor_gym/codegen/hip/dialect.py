"""HIP: what a kernel's text has that CUDA's has not, and the other way round.

Lanes of a wave are 64 on CDNA and all take part in a shuffle, so none are named. Elements of 16 bits are kept as their bits,
as in CUDA, and converted by the compiler's own types. No matrix cores (MFMA), no tensor maps, no asynchronous copies yet.
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
    """The language of AMD's GPUs, as hipcc and clang compile it."""

    language, title = "hip", "HIP"
    head = "#ifndef EMULATOR  // which has its own\n#include <hip/hip_runtime.h>\n#endif\n\n"
    shared_memory = "extern __shared__ __attribute__((aligned(16))) unsigned char shared_memory[];"
    functions = _CONVERSIONS | {name: FUNCTIONS[name] for name in ("from_bfloat16", "to_bfloat16", "from_float8_e4m3fn")}
    mistakes_bytes = False
    names_lanes = False

    def shuffle_down(self, lanes: str, value: str, distance: str, team: int) -> str:
        """Without a mask: a wave's lanes run in step, and text of this project shuffles where all of them come along."""
        return f"__shfl_down({value}, {distance}, {team})"

    def launch_bounds(self, threads: int, warp: int, resident: int | None = None) -> str:
        """HIP's second argument is waves, not blocks, and of a SIMD, of which a compute unit has four.

        Source: HIP programming guide, `__launch_bounds__`, MIN_WARPS_PER_EXECUTION_UNIT.
        """
        waves = -(-threads // warp) * (resident or 0) // PARTITIONS
        return f"{threads}, {waves}" if waves else str(threads)


HIP = HipDialect()
