"""Faults that are planted in generated CUDA are found: by wrong answers, or by the emulator's checks."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from gensor_gym.codegen.kernel import Kernel
from gensor_gym.dataflow.resolve import resolve_computation
from tests.support.gir_cases import planted
from tests.support.gir_gpu_cases import faults_of, kernel_of
from tests.support.thorough import thorough_but

RIGHT = {
    "warp": ("softmax(m=7, n=77)", "vector=4 rows=2 place=sram,sram"),
    "warps": ("rmsnorm(m=40, n=300)", "tile=2 rows=2 loop=4 place=reg"),
    "wide": ("add_layernorm(m=5, n=160)", "vector=4 place=reg,reg"),
    "parts": ("norm(m=64, n=150)", "vector=4 loop=1"),
    "turned": ("transpose_last(a=2, b=40, c=33)", "tile=4 rows=8"),
}
"""Operators and schedules whose text the faults are planted in."""
FAULTS: dict[str, tuple[str, str, str]] = {
    "a barrier between warps left out": ("warps", r"(sums|shared)(.*\n.*\}\n) *__syncthreads\(\);", r"\1\2"),
    "sums overwritten by the next step": ("warps", r"if \(turn > 0\) __syncthreads\(\);.*", ""),
    "a barrier that some threads do not reach": ("warps", r"(\}\n *)__syncthreads\(\);", r"\1if (lane < 200) __syncthreads();"),
    "no maximum subtracted": ("warp", r"exp_1\(\((v_x\[u\]\[i\]) - v_top\)\)", r"exp_1(\1)"),
    "written behind the tensor": ("warp", r"here && column \+ u \* \(LANES \* VECTOR\) \+ i < 77", "true"),
    "half of the lanes named": ("warp", r"0xffffffffu, v_total, 1\)", "0x0000ffffu, v_total, 1)"),
    "a row shared by blocks, one part left out": ("parts", r"k < 3;", "k < 2;"),
    "a tile turned without a barrier": ("turned", r"\}\n *__syncthreads\(\);\n *(float v_x)", r"}\n\1"),
    "another row's buffer": ("warp", r"place \* 80", "0 * 80"),
    "a tail that is added": ("warp", r"sum_v_total\[u\] \+ \(.* \? (v_e\[u\]\[i\]) : 0\.0f\)", r"sum_v_total[u] + \1"),
    "a tail that is not written": ("warp", r"(here && .*) < 77", r"\1 < 76"),
    "read behind the tensor": ("warp", r"column \+ u \* \(LANES \* VECTOR\) \+ i < 77 \? (t_x_at0\[.*\]) : 0\.0f;", r"\1;"),
    "a step of a sum left out": ("warp", r"v_total = v_total \+ __shfl_xor_sync\(0xffffffffu, v_total, 8\);", ""),
    "sums of half of the warps": ("warps", r"threadIdx\.x % 8\]", "threadIdx.x % 4]"),
    "a missing eps": ("wide", r" \+ 1e-05f", ""),
    "a vector that begins between vectors": ("wide", r"t_r_at1 \+ column", "t_r_at1 + 1 + column"),
    "a gain along the rows": ("wide", r"(t_gamma_at\d) = t_gamma;", r"\1 = t_gamma + row * 4;"),
    "the first output written elsewhere": ("wide", r"(float4 \*>\(t_s_at\d \+ column) \+", r"\1 + 32 +"),
    "parts in one place": ("parts", r"\* 3 \+ part\]", "* 3]"),
    "the tile of the step before": ("turned", r"(_last_at\d\[)?first_column \+ c\)", "first_column + 0)"),
}  # fmt: skip
"""What is wrong -> which kernel, pattern in its text, what is put in its place."""
QUICK = list(FAULTS)[:8]
"""Barriers, masks, bounds; of what is computed one."""


def right(kind: str) -> Kernel:
    operator, schedule = RIGHT[kind]
    return kernel_of(resolve_computation(operator), schedule)  # type: ignore[arg-type]


@pytest.mark.parametrize("faults", thorough_but([QUICK, list(FAULTS)[8:]], QUICK), ids=len)
def test_faults_are_caught(faults: Sequence[str]) -> None:
    found = faults_of([planted(right(FAULTS[fault][0]), *FAULTS[fault][1:]) for fault in faults])
    assert [fault for number, fault in enumerate(faults) if number not in found] == []


def test_what_has_no_fault_passes() -> None:
    assert faults_of([right(kind) for kind in RIGHT]) == {}
