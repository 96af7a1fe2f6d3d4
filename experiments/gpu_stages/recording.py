"""Stage 3: tables of space `compact`, schedule by schedule with raw samples; what was recorded before is not repeated.

First come random samples of every operator in turn, so that the fit has all of them however short the time; then the
tables are completed one after the other. The file is one that backend `recorded` and `experiments.store import` read. There
is one pass: time on such a machine is short. `experiments.evidence` makes tables to ship of what is complete, and says so;
tables of several passes are made by `experiments.record`.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from experiments.gpu_stages.context import Context, Journal, read_rows
from experiments.gpu_stages.table import read_table
from experiments.gpu_stages.trials import SEARCH, Work, device_backends, run_trials
from experiments.passes import schedules_of
from gensor_gym import hardware
from gensor_gym.graph.schedule import Schedule
from gensor_gym.hardware.types import Hardware
from gensor_gym.measure.cuda_presence import device_name
from gensor_gym.measure.native import make_kernel
from gensor_gym.measure.store import Record
from gensor_gym.measure.tables import to_row
from gensor_gym.operators.types import Operator

FILE = "recorded.jsonl"
SPACE = "compact"
ROUNDS, EACH = 2, 30
"""Rounds over all operators, and schedules of each in a round, before any table is completed."""


def run(context: Context) -> dict[str, object]:
    """Record until the time is out or all tables are complete."""
    hw = hardware.get(context.hardware)
    journal = context.journal(FILE, keep=True)
    device = device_name(hw)
    (backend,) = device_backends(SEARCH)
    try:
        work = _work(read_table().tables, hw, context.seed, journal)
        for (key, op, schedule), measurement in run_trials(backend, hw, work, lambda: context.left > 0, batch=28):
            short = replace(measurement, error=measurement.error[-600:])
            journal.put(key, to_row(Record(device, op, schedule, short, time.time())))
    finally:
        backend.close()
    return digest(Path(context.out), context.run)


def _work(ops: tuple[Operator, ...], hw: Hardware, seed: int, journal: Journal) -> Iterator[Work[tuple[str, str, str]]]:
    """What is still to be recorded: samples of all operators, then all of each."""
    orders = [(op, _order(op, hw, seed)) for op in ops]
    cuts = [*(slice(EACH * i, EACH * (i + 1)) for i in range(ROUNDS)), slice(EACH * ROUNDS, None)]
    for op, schedules in ((op, order[cut]) for cut in cuts for op, order in orders):
        for schedule in schedules:
            made = make_kernel(op, schedule, hw)
            key = f"{op} {schedule} {made.digest}"  # a generator that has changed makes a new trial of it
            if journal.pending(key):
                yield (key, str(op), str(schedule)), made


def _order(op: Operator, hw: Hardware, seed: int) -> list[Schedule]:
    """Every legal schedule of the space in a random order that is always the same."""
    found = schedules_of(op, hw, SPACE)
    return [found[i] for i in np.random.default_rng(seed).permutation(len(found))]


def digest(out: Path, run: str) -> dict[str, object]:
    """By operator: rows, of which in this run, statuses, fastest and slowest."""
    found: dict[str, dict[str, object]] = {}
    by_operator: dict[str, list[dict]] = {}
    for row in read_rows(out / FILE):
        by_operator.setdefault(row["operator"], []).append(row)
    for op, rows in by_operator.items():
        seconds = [float(np.median(row["samples"])) for row in rows if row["status"] == "OK"]
        found[op] = {
            "rows": len(rows),
            "this_run": sum(row.get("run") == run for row in rows),
            "statuses": dict(Counter(row["status"] for row in rows)),
            "fastest_s": min(seconds, default=None),
            "slowest_s": max(seconds, default=None),
        }
    return {"operators": found, "rows": sum(len(rows) for rows in by_operator.values())}
