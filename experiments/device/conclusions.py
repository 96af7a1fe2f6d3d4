"""Sentences that conclude a device run about two strategies. `gensor_gym.measure.stats.verdict` concludes about two kernels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def conclusions(over_first: Mapping[str, Any]) -> list[str]:
    """A sentence for every strategy compared with the first, from `standings.over_first`; or one sentence if it is empty."""
    if not over_first:
        return ["Nothing can be said: fewer than two operators have winners of all strategies that were timed together."]
    return [conclusion(name, line, over_first["reference"]) for name, line in over_first["strategies"].items()]


def conclusion(name: str, line: Mapping[str, float], reference: str) -> str:
    """A sentence about one strategy. The interval decides, and a difference counts only if the sign-flip test agrees."""
    interval = f"{line['ratio']:.3f} [{line['low']:.3f}, {line['high']:.3f}]"
    said = f"`{name}` takes {interval} of `{reference}`'s time"
    if line["low"] <= 1.0 <= line["high"]:
        return f"{said}: not told apart."
    faster = f"{100 * abs(line['ratio'] - 1.0):.1f} % {'faster' if line['ratio'] < 1.0 else 'slower'}"
    if line["p_holm"] > 0.05:
        return f"{said}: {faster} by the interval, not by the sign-flip test (p {line['p_holm']:.2g} after Holm): not told apart."
    return f"{said}: {faster} (p {line['p_holm']:.2g} after Holm)."
