"""Measurement: backends, worker processes, verification, timing, store, session.

The package can be called: `gensor_gym.measure(op, schedule, hw)` is `gensor_gym.measure.measure(op, schedule, hw)`, so
that the name means the same whether the package or the function was imported first.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING

from gensor_gym.measure.measurement import Measurement, Status

if TYPE_CHECKING:
    from gensor_gym.graph.schedule import Schedule
    from gensor_gym.hardware.types import Hardware
    from gensor_gym.measure.backend import Backend
    from gensor_gym.operators.types import Operator

__all__ = ["Measurement", "Status", "measure"]


def measure(
    op: Operator | str, schedule: Schedule, hw: Hardware | str = "host", backend: str | Backend = "auto"
) -> Measurement:
    """Verify and time one schedule, as `gensor_gym.measure.backend.measure` does."""
    from gensor_gym.measure.backend import measure as measure_once

    return measure_once(op, schedule, hw, backend)


class _CallableModule(ModuleType):
    """A module that can be called; a call is a call of `measure`."""

    def __call__(
        self, op: Operator | str, schedule: Schedule, hw: Hardware | str = "host", backend: str | Backend = "auto"
    ) -> Measurement:
        """Verify and time one schedule, like `measure`."""
        return measure(op, schedule, hw, backend)


sys.modules[__name__].__class__ = _CallableModule
