"""Registers of a warp stand in one partition of a multiprocessor: what a mutation showed that no other test looks at."""

from __future__ import annotations

import pytest

from gensor_gym.hardware.occupancy import blocks_per_unit


@pytest.mark.parametrize(
    ("threads", "registers", "blocks"),
    [
        (224, 96, 2),  # 3,072 a warp, 5 in the 16,384 of a partition: 20 warps, and not the 21 that 65,536 would hold
        (96, 104, 5),  # 3,328 a warp, 4 in a partition: 16 warps and not 19, blocks of 3
        (128, 128, 4),  # 4,096 a warp: partitions are filled without a rest
    ],
)
def test_no_warp_straddles_two_partitions(threads: int, registers: int, blocks: int) -> None:
    assert blocks_per_unit(threads, registers, 0, 2048, 32, 65536, 233472, 128, 1024) == blocks
