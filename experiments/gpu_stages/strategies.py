"""Stage 5: strategies under equal trials on the device; their winners timed again together, with torch beside them.

Searches run side by side in threads: kernels compile in parallel and the worker times one at a time. So strategies are
compared by trials; `elapsed_s` includes waiting for the others.
"""

from __future__ import annotations

import math
import threading
import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from agents import get_strategy
from agents.optimize import run as search
from experiments.gpu_stages.context import Context, Journal, read_rows
from experiments.gpu_stages.table import Table, read_table
from experiments.gpu_stages.trials import FINAL, SEARCH, device_backends, summary_of
from gensor_gym import hardware
from gensor_gym.codegen.kernel import Kernel
from gensor_gym.fingerprint import fingerprint
from gensor_gym.graph.schedule import Schedule
from gensor_gym.hardware.types import Hardware
from gensor_gym.measure.intervals import ratio_interval
from gensor_gym.measure.native import NativeBackend, make_kernel
from gensor_gym.measure.process import WorkerLost
from gensor_gym.measure.session import Budget, Session, Task, TraceRow
from gensor_gym.operators.types import Operator

FILE = "results.jsonl"
SIDE_BY_SIDE = 5
ROUNDS = 15
RESERVED = 0.25
"""Part of the stage's time kept for timing the winners again."""


def run(context: Context) -> dict[str, object]:
    """Search operator by operator, so that a cut leaves whole operators; rows of kind trial, search, together."""
    hw = hardware.get(context.hardware)
    table = read_table()
    journal = context.journal(FILE)
    trials, final = device_backends(SEARCH, FINAL)
    lock = threading.Lock()

    def one(op: Operator, name: str) -> None:
        if context.left > RESERVED * context.seconds and journal.pending(f"{op} {name}"):
            _search(op, name, table, context, hw, trials, journal, lock)

    try:
        with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
            for job in [pool.submit(one, op, name) for op in table.compare for name in table.strategies]:
                job.result()
        for op in table.compare:
            if context.left > 0 and journal.pending(f"{op} together"):
                journal.begin(f"{op} together")
                journal.put(f"{op} together", _together(op, table, hw, final, journal))
    finally:
        trials.close()
    return digest(Path(context.out), context.run)


def _search(
    op: Operator, name: str, table: Table, context: Context, hw: Hardware, backend: NativeBackend,
    journal: Journal, lock: threading.Lock,
) -> None:  # fmt: skip
    """One search: a row for each trial as it is made, then one for the search; what cannot start says why."""
    common = {
        "operator": str(op), "hardware": hw.name, "backend": "cuda", "strategy": name, "seed": context.seed,
        "fingerprint": fingerprint(),
    }  # fmt: skip

    def put(key: str, row: dict[str, object]) -> None:
        with lock:
            journal.put(key, {**common, **row})

    def on_trial(row: TraceRow) -> None:
        values = {**vars(row), "seconds": row.seconds if math.isfinite(row.seconds) else None}
        put(f"{op} {name} {row.trial}", {"kind": "trial", **values})

    try:
        strategy = get_strategy(name)
        seconds = max(1.0, context.left - RESERVED * context.seconds)
        task = Task(op, hw, backend, strategy.space)
        session = Session(task, Budget(trials=table.trials, seconds=seconds), on_trial=on_trial)
        search(strategy, session, context.seed)
    except Exception as error:  # another strategy may still run: a missing checkpoint or library is no end
        put(f"{op} {name}", {"kind": "search", "error": f"{type(error).__name__}: {error}", "trace": _tail()})
        return
    best = session.best
    put(
        f"{op} {name}",
        {
            "kind": "search", "space": strategy.space, "trials": session.trials, "elapsed_s": session.elapsed,
            "evaluations": session.evaluations, "complete": session.trials >= table.trials,
            "schedule": str(best[0]) if best else "", "seconds": best[1].seconds if best else None,
        },
    )  # fmt: skip


def _tail() -> str:
    """The end of the traceback of what is being handled."""
    return traceback.format_exc()[-800:]


def _together(op: Operator, table: Table, hw: Hardware, final: NativeBackend, journal: Journal) -> dict[str, object]:
    """The winners of all strategies on one operator, and torch, in interleaved rounds."""
    labels: dict[str, str] = {}
    kernels: dict[str, Kernel] = {}
    for name in table.strategies:
        schedule = journal.done.get(f"{op} {name}", {}).get("schedule")
        made = make_kernel(op, Schedule.parse(schedule), hw) if schedule else None
        if isinstance(made, Kernel):
            labels[name] = made.digest
            kernels[made.digest] = made
    row: dict[str, object] = {"kind": "together", "operator": str(op), "hardware": hw.name}
    if not kernels:
        return {**row, "error": "no strategy found a kernel that runs"}
    for torch in (True, False):
        try:
            samples = final.compare(kernels, hw, ROUNDS, torch=torch)
        except (ValueError, RuntimeError, WorkerLost) as error:
            row["error" if not torch else "torch_error"] = str(error)[-600:]
            continue
        named = {name: samples[found] for name, found in labels.items()}
        return {**row, "samples": {**named, **({"torch": samples["torch"]} if torch else {})}}
    return row


def digest(out: Path, run: str) -> dict[str, object]:
    """By operator the medians of the winners, and by strategy geometric means of speed-ups over torch."""
    rows = [row for row in read_rows(out / FILE) if row.get("run") == run]
    together = {row["operator"]: row["samples"] for row in rows if row["kind"] == "together" and "samples" in row}
    over: dict[str, list[float]] = {}
    for samples in together.values():
        for name, values in samples.items():
            if name != "torch" and "torch" in samples:
                over.setdefault(name, []).append(ratio_interval(samples["torch"], values)[0])
    searches = [row for row in rows if row["kind"] == "search"]
    return {
        "trials": sum(row["kind"] == "trial" for row in rows),
        "seconds": {op: {name: summary_of(v) for name, v in samples.items()} for op, samples in together.items()},
        "geomean_over_torch": {name: float(np.exp(np.mean(np.log(ratios)))) for name, ratios in over.items()},
        "operators_of_the_means": {name: len(ratios) for name, ratios in over.items()},
        "not_run": {row["strategy"]: row["error"] for row in searches if "error" in row},
        "cut_short": sorted({f"{row['strategy']}: {row['operator']}" for row in searches if row.get("complete") is False}),
    }
