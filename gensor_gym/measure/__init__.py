"""Measurement of schedules: backends, worker processes, verification, timing, stored trials, and the session of a search.

The package can be called: `gensor_gym.measure(op, schedule, hw)` is `gensor_gym.measure.measure(op, schedule, hw)`. So the name
`gensor_gym.measure` works in the same way if the package was imported before the function.
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
    """Verify and time one schedule; see `gensor_gym.measure.backend.measure`."""
    from gensor_gym.measure.backend import measure as measure_once

    return measure_once(op, schedule, hw, backend)


class _CallableModule(ModuleType):
    """A module that can be called as if it were the function `measure`."""

    def __call__(
        self, op: Operator | str, schedule: Schedule, hw: Hardware | str = "host", backend: str | Backend = "auto"
    ) -> Measurement:
        return measure(op, schedule, hw, backend)


sys.modules[__name__].__class__ = _CallableModule
