"""Limit of other libraries to AVX2, for comparisons with our kernels for AVX2 on processors that have AVX-512."""

from __future__ import annotations

from pathlib import Path

from gensor_gym.codegen.runtime.compile import compile_text
from gensor_gym.hardware.cpuinfo import WITHOUT_AVX512, cpu_info, is_narrow

VARIABLES = {"ONEDNN_MAX_CPU_ISA": "AVX2", "ATEN_CPU_CAPABILITY": "avx2", "MKL_ENABLE_INSTRUCTIONS": "AVX2"}
"""Variables by which torch and OpenVINO choose most of their code: of ResNet-50, OpenVINO 2026.4 computes all but two small
operations with AVX2 then."""
OBEYING = ("eager", "inductor", "openvino")
"""Libraries that these variables limit. ONNX Runtime chooses its code only by the instruction cpuid."""


def limits(side: str) -> dict[str, str]:
    """Return environment variables that limit the process of the library `side` to AVX2; none without $GENSOR_GYM_AVX2=1.

    Where a process can hide instructions from itself, all libraries see a processor without AVX-512 (`narrowed.c`). Elsewhere
    those of `OBEYING` get `VARIABLES`, and the process of another library ends at once and says why.
    """
    if not is_narrow():
        return {}
    if side in OBEYING and "cpuid_fault" not in cpu_info().flags:
        return dict(VARIABLES)
    return {"LD_PRELOAD": str(compile_text(Path(__file__).with_name("narrowed.c").read_text("utf-8"), WITHOUT_AVX512))}
