"""Faults that are planted in attention's CUDA are found: by wrong answers, or by the emulator's checks."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from gensor_gym.chains.gpu.schedule import GpuChainSchedule
from gensor_gym.codegen.build import generate
from gensor_gym.codegen.kernel import Kernel
from tests.support.chain_gpu_cases import attention
from tests.support.gir_cases import planted
from tests.support.gir_gpu_cases import faults_of
from tests.support.thorough import thorough_but

RIGHT = {
    "heads": (attention(40, 77, 32, 4, 2, 2, "truth"), "warps=2 keys=32 stages=2 hold=1"),
    "alone": (attention(40, 48, 32, 2, 2, 1, "added"), "warps=2 keys=16 stages=1"),
    "ahead": (attention(40, 50, 24, 2, 2, 1, "keys"), "warps=2 heights=2 keys=16 stages=3"),
}
"""Attention and schedules whose text the faults are planted in: 77 or 50 keys and 40 rows are no multiples of a tile."""
FAULTS: dict[str, tuple[str, str, str]] = {
    "running maximum not rescaled": ("heads", r"sums\[tile_m\]\[tile_out\]\[2 \* half \+ i\] \*= scale;", ""),
    "mask off by one": ("heads", r"(t_mask_at\d\[tile_m\]\[i / 2\] \+ column)", r"\1 + (column > 0 ? -1 : 0)"),
    "wrong group of shared keys": ("heads", r"(first = t_k .*)element / 2 % 2", r"\1element % 2"),
    "tile read before it is complete": ("heads", r"__syncthreads\(\);  // this tile is complete.*", ""),
    "tile overwritten while it is read": ("alone", r"__syncthreads\(\);  // every warp is done with the tiles", ""),
    "rows read before they are complete": ("heads", r"__syncthreads\(\);  // the rows of the left operand.*", ""),
    "keys past the last one": ("ahead", r"column < COLUMNS \? (v_\w+) : -INFINITY", r"\1"),
    "sum of the powers not rescaled": ("heads", r"v_sum\[tile_m\]\[half\] \*= scale;", ""),
    "no maximum subtracted": ("heads", r"\(score - base\[tile_m\]\[i / 2\]\) \* LOG2_E", "score * LOG2_E"),
    "maximum of one lane": ("alone", r"largest\[tile_m\]\[half\] = larger\(.*, 2\)\);", ""),
    "sum of half of the lanes": ("alone", r"v_sum\[tile_m\]\[half\] = \(v_sum\[tile_m\]\[half\] \+ .*, 1\)\);", ""),
    "rows past the last one written": ("alone", r"if \(row < ROWS\)", "if (true)"),
    "copies not awaited": ("ahead", r"wait_for_copies<1>\(\);\n( *__syncthreads\(\);  // this tile)", r"\1"),
    "tile copied to the buffer that is read": ("ahead", r"empty = filled;", ""),
    "weights of another instruction": ("alone", r"scores\[tile_m\]\[2 \* point \+ i / 2\]", "scores[tile_m][2 * point]"),
    "keys past the last one read": ("ahead", r"\(tile \+ 2\) \* KEYS \+ r < 50 && ", ""),
}  # fmt: skip
"""What is wrong -> which kernel, pattern in its text, what is put in its place."""
QUICK = list(FAULTS)[:6]
"""The running maximum, masks, groups, barriers."""


def right(kind: str) -> Kernel:
    graph, words = RIGHT[kind]
    return generate(graph, GpuChainSchedule.parse(words), "a100")


@pytest.mark.parametrize("faults", thorough_but([QUICK, list(FAULTS)[6:]], QUICK), ids=len)
def test_faults_are_caught(faults: Sequence[str]) -> None:
    found = faults_of([planted(right(FAULTS[fault][0]), *FAULTS[fault][1:]) for fault in faults])
    assert [fault for number, fault in enumerate(faults) if number not in found] == []


def test_what_has_no_fault_passes() -> None:
    assert faults_of([right(kind) for kind in RIGHT]) == {}
