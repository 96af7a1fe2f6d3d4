"""The construction graph of schedules of a convolution by Winograd's algorithm, with the interface that searches use."""

from __future__ import annotations

from functools import cached_property

from gensor_gym.cost.roofline import roofline_floor
from gensor_gym.hardware.types import Hardware
from gensor_gym.operators.types import Operator
from gensor_gym.rows.field_graph import FieldGraph, actions_of
from gensor_gym.winograd.model import TERMS, WinogradModel
from gensor_gym.winograd.schedule import FIELDS, WinogradSchedule

ACTIONS = actions_of(FIELDS)


class WinogradGraph(FieldGraph[WinogradSchedule]):
    """Construction graph of a convolution by Winograd's algorithm on a CPU.

    Nodes are schedules of `operator` for `hardware`, edges raise or lower one field.
    """

    actions, kind, parts = ACTIONS, WinogradSchedule, TERMS
    model: WinogradModel

    def __init__(self, operator: Operator, hardware: Hardware, space: str = "gir") -> None:
        """Build the analytic model of a convolution with `winograd=2`.

        ValueError for another operator, a machine that is no CPU, or another space than `gir`.
        """
        if not operator.winograd or space != "gir":
            raise ValueError(f"{operator}, space {space!r}: expected a convolution with winograd=2, and space gir")
        if hardware.kind != "cpu":
            raise ValueError(f"{operator} on {hardware.name}: expected a CPU, or winograd=0")
        self.operator, self.hardware, self.space = operator, hardware, space
        self.model = WinogradModel(operator, hardware)

    @cached_property
    def floor(self) -> float:
        """Lower bound in seconds on the time of any program, from the roofline."""
        return roofline_floor(self.operator, self.hardware)
