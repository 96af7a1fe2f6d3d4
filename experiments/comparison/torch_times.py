"""Torch's times in earlier runs, stored next to the store of trials, to see whether two runs are comparable."""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping
from pathlib import Path

from experiments.common.results import write_text
from experiments.common.settings import Settings, short_hash
from experiments.comparison.retime import TORCH, Comparison
from experiments.comparison.summary import Interval, time_over_processes
from gensor_gym.foreign import read_json


class TorchTimes:
    """Torch's last time by operator and device, one file each. Files are written as a whole, so several processes may write."""

    def __init__(self, settings: Settings) -> None:
        """Use a folder next to the store of trials."""
        first = settings.jobs[0]
        self._about = [first.device, first.backend, first.hardware.name, first.hardware.units]
        self._folder = settings.store.parent / f"{settings.store.stem}.torch"

    def replaced(self, comparisons: Mapping[str, Comparison]) -> dict[str, Interval]:
        """Store the times of these comparisons and return the previous times, of another run, by operator."""
        before = {}
        for operator, comparison in comparisons.items():
            if TORCH not in comparison.samples:
                continue
            path = self._path(operator)
            known = read_json(path) if path.exists() else None
            mark = short_hash(comparison.samples[TORCH])
            if known is not None and known["mark"] == mark:
                earlier = known.pop("before")  # the same samples, read again
            else:
                earlier = {name: value for name, value in known.items() if name != "before"} if known else None
                write_text(path, json.dumps({**_now(comparison), "mark": mark, "before": earlier}))
            if earlier is not None:
                before[operator] = earlier
        return before

    def _path(self, operator: str) -> Path:
        """The file of an operator."""
        return self._folder / f"{short_hash([operator, *self._about])}.json"


def _now(comparison: Comparison) -> dict[str, object]:
    """Torch's time in a new comparison, with the date."""
    date = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    return {**time_over_processes(comparison.samples[TORCH], comparison.processes), "date": date}
