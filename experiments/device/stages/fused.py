"""Stage that compares fused memory-bound operators with torch and with a copy of as many bytes.

Of the model's first choices, the fastest is compared. Several workers take an operator each: the host draws inputs and computes
references for seconds, while another operator's kernels are timed. The operators of `FIRST` come first. Four operators read and
write 256 MiB or more; a copy of as many bytes bounds their time. First results: `results/h200/2026-11-27.md`.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import closing

import numpy as np

from experiments.common.statistics import geometric_mean
from experiments.device.context import Context
from experiments.device.work.beside_torch import COMPILED, COPY, EAGER, OURS, beside_torch
from experiments.device.work.prebuilt import SEARCH, Bench, Compilers, side_by_side, summary_of
from gensor_gym import hardware
from gensor_gym.cost.roofline import roofline_floor
from gensor_gym.dataflow.graph import Dataflow
from gensor_gym.dataflow.table import fused_operator, stand_in
from gensor_gym.gir.graph import GirGraph
from gensor_gym.gir.schedule import GirSchedule
from gensor_gym.hardware.types import Hardware
from gensor_gym.measure.measurement import Measurement, Status
from gensor_gym.measure.native import make_kernel

FILE = "fused.jsonl"
CANDIDATES = 12
"""Number of programs that are timed of an operator: those that the model predicts to be fastest."""
ROUNDS = 15
WORKERS = 3
LARGE = {
    "large/softmax": "softmax(m=16384, n=2048)", "large/layernorm": "layernorm(m=16384, n=2048)",
    "large/rmsnorm": "rmsnorm(m=8192, n=4096)", "large/relu_add": "relu_add(a=2, b=64, c=512, d=512)",
}  # fmt: skip
FIRST = (
    "large/softmax", "bert/layernorm_32", "swiglu", "large/rmsnorm", "rope", "bert/softmax", "nrm/4096", "large/layernorm",
    "vit/softmax", "bert/gelu", "rmsnorm", "kv_concat", "transpose_relu", "large/relu_add",
)  # fmt: skip
"""Names of the operators that are timed first, so that a short run has them.

Large ones, whose references take time, alternate with small ones.
"""
_TORCH = threading.Lock()
"""Lock that lets only one operator at a time be compared with torch, which happens in this process."""


def operators() -> dict[str, str]:
    """Return the text of each operator by name, in the order of the stage."""
    known = {**stand_in(), **LARGE}
    return {name: known[name] for name in (*FIRST, *(name for name in known if name not in FIRST))}


def run(context: Context) -> dict[str, object]:
    """Find and compare a kernel of each operator, write a row for each, and return the results."""
    hw = hardware.get(context.hardware)
    with closing(Compilers()) as compilers, closing(context.journal(FILE)) as journal:

        def compare(bench: Bench, name: str) -> None:
            journal.once(name, _row, fused_operator(operators()[name]), hw, bench, compilers, context)

        side_by_side(operators(), compare, hw, WORKERS, lambda: context.left > 0)
    return digest(context)


def ranked(graph: GirGraph, count: int) -> list[GirSchedule]:
    """Return the `count` schedules of the space that the model predicts to be fastest."""
    rows = np.concatenate(list(graph.enumerate()))
    first = np.argsort(graph.latencies(rows), kind="stable")[:count]
    return [GirSchedule(row) for row in rows[first]]


def _row(op: Dataflow, hw: Hardware, bench: Bench, compilers: Compilers, context: Context) -> dict[str, object]:
    graph = GirGraph(op, hw)
    schedules = ranked(graph, CANDIDATES)
    waiting = [compilers.submit(make_kernel(op, schedule, hw)) for schedule in schedules]
    tried: list[tuple[GirSchedule, Measurement]] = []
    for schedule, built in zip(schedules, waiting, strict=True):
        if tried and context.left <= 0:
            break
        tried.append((schedule, bench.trial(built.result(), SEARCH)))
    row: dict[str, object] = {"operator": str(op), "bytes": op.compulsory_bytes, "roofline_s": roofline_floor(op, hw)}
    row["trials"] = [_trial(graph, schedule, measured) for schedule, measured in tried]
    right = [(m.seconds, place) for place, (_, m) in enumerate(tried) if m.status is Status.OK]
    if not right:
        return {**row, "error": "no candidate ran well"}
    best = tried[min(right)[1]][0]
    row |= {"schedule": str(best), "model_s": graph.latency(best)}
    try:
        with _TORCH:
            samples = beside_torch(make_kernel(op, best, hw), ROUNDS, context.seed)  # type: ignore[arg-type]
    except (ValueError, RuntimeError) as error:
        return {**row, "error": str(error)[-600:]}
    return {**row, **compared(samples)}


def _trial(graph: GirGraph, schedule: GirSchedule, measured: Measurement) -> dict[str, object]:
    """Return a trial as a row with measured and predicted seconds; a failure has None, because JSON has no infinity."""
    seconds = measured.seconds if measured.status is Status.OK else None
    words = {"schedule": str(schedule), "status": measured.status.value, "error": measured.error[-300:]}
    return {**words, "seconds": seconds, "model_s": graph.latency(schedule)}


def compared(samples: Mapping[str, list[float]]) -> dict[str, object]:
    """Summarise the samples of one operator as fields of a row, which also include the samples.

    The other fields are medians with intervals, the speed-up over the faster of eager and compiled torch, and the share of the
    copy's bandwidth.
    """
    medians = {name: float(np.median(values)) for name, values in samples.items()}
    torch = [medians[name] for name in (EAGER, COMPILED) if name in medians]
    found: dict[str, object] = {"samples": dict(samples), "cache": "warm"}
    found["seconds"] = {name: summary_of(values) for name, values in samples.items()}
    found |= {"over_torch": min(torch) / medians[OURS]} if torch else {}
    return {**found, "of_copy": medians[COPY] / medians[OURS]}


def digest(context: Context) -> dict[str, object]:
    """Return the speed-ups by operator, their geometric mean, and the errors."""
    rows = {row["key"]: row for row in context.rows(FILE)}
    over = {key: row["over_torch"] for key, row in rows.items() if "over_torch" in row}
    copies = {key: row["of_copy"] for key, row in rows.items() if key in LARGE and "of_copy" in row}
    return {
        "timed": sum("seconds" in row for row in rows.values()), "over_torch": over,
        "geomean_over_torch": geometric_mean(list(over.values())), "of_copy": copies,
        "errors": {key: row["error"] for key, row in rows.items() if "error" in row},
    }  # fmt: skip
