"""Fitted coefficients of the analytic model: one multiplier per term, stored with device and date.

`fits.json` contains the shipped fits by hardware name. They are fitted only on train and validation splits, by `python -m
experiments.bench suite=model fit=true`.
"""

from __future__ import annotations

import json
from functools import cache
from importlib import resources
from typing import Any

from gensor_gym.hardware.types import Hardware


@cache
def shipped_fits() -> dict[str, dict[str, Any]]:
    """Return the fitted coefficients of the analytic model that ship, by name of the machine.

    Each entry is {"coefficients": [...], "device": .., "date": ..}.
    """
    fits: dict[str, dict[str, Any]] = json.loads((resources.files("gensor_gym.cost") / "fits.json").read_text())
    return fits


def coefficients_of(hardware: Hardware) -> tuple[float, ...]:
    """Return the factor by which a machine's fit multiplies each term of the analytic model, in the order of `TERMS`.

    The result is empty, which stands for factors of 1, if no fit ships.
    """
    fit = shipped_fits().get(hardware.name)
    return tuple(float(c) for c in fit["coefficients"]) if fit else ()
