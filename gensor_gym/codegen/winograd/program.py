"""A schedule of a convolution by Winograd's algorithm on a machine, the input of the code generator."""

from __future__ import annotations

from dataclasses import dataclass

from gensor_gym.hardware.types import Hardware
from gensor_gym.operators.types import Operator
from gensor_gym.winograd.schedule import WinogradSchedule


@dataclass(frozen=True)
class WinogradProgram:
    """A schedule of a convolution by Winograd's algorithm on a machine."""

    op: Operator
    schedule: WinogradSchedule
    hardware: Hardware
