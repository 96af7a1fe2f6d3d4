"""Benchmark of our kernels against torch's functions, in interleaved rounds, operator by operator.

Every kernel comes from a search and has two times. The isolated time comes from a C loop in a worker, which fills an existing
output; there torch's allocator keeps freed memory for its next output. The called time comes from Python in this process, with
the process's default allocator settings: kernel and torch alternate on the same memory, and both make a new output. Inputs begin
`ARRAY_OFFSET` bytes past a cache line, like NumPy's larger arrays. Torch runs on one thread and on our number of threads, and the
faster counts. A turn begins with uncounted calls: the other library's threads may still spin, and caches contain its data. The
register-resident multiply-add loop of `hardware/probe.c` runs just before and after each operator, so that shares of its rate
refer to the same minute. GENSOR_GYM_THREADS=1 runs everything on one thread. An int8 operator is also compared with the same
operator in float32. A second start with the same settings resumes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from omegaconf import DictConfig

from agents.core.playoff import playoff
from agents.runs.calls import placed, seconds
from agents.runs.journal import Journal
from agents.runs.settings import code_digest, short_hash
from experiments.benches.lines import Lines, Steal, machine, once, resolved, searched
from experiments.common.statistics import geometric_mean
from experiments.comparison.retime import TORCH, Comparison, Retimer
from experiments.comparison.summary import interval, ratio
from gensor_gym import codegen, hardware, operators
from gensor_gym.cost.roofline import roofline_floor
from gensor_gym.graph.schedule import Schedule
from gensor_gym.hardware import probe
from gensor_gym.hardware.compiler import find_compiler
from gensor_gym.hardware.cpuinfo import cpu_info
from gensor_gym.hardware.types import Hardware
from gensor_gym.measure.backend import get_backend
from gensor_gym.measure.baselines.torch import torch_function
from gensor_gym.measure.devices.cpu import processor_name
from gensor_gym.measure.stats.intervals import LEVEL
from gensor_gym.measure.stats.verdict import verdict
from gensor_gym.operators.inputs import ARRAY_OFFSET
from gensor_gym.operators.traits import is_product
from gensor_gym.operators.types import Operator

KERNEL = "kernel"
Winner = tuple[Schedule, float]
"""(schedule, seconds measured by the search that found it)."""
Row = dict[str, Any]
APART = ("depthwise", "pooling")
"""Classes in which torch is far from the roofline; means are also reported without them and for them alone."""
CLASSES = {"batched_gemm": "gemm", "avg_pool2d": "pooling", "max_pool2d": "pooling", "depthwise_conv2d": "depthwise"}
TURNS = 4
"""Number of alternating comparisons of an int8 kernel and its float32 counterpart: both are timed in the same minutes."""
QUIET = 0.1
"""Quantile of a kernel's samples that is compared with the multiply-add loop's best rate."""


def run(config: DictConfig, emit: Lines) -> None:
    """Compare a kernel of each operator with torch; emit one line for each operator and one over all, and draw the figure."""
    settings = config.kernels
    hw = hardware.get("host")
    emit(kind="machine", fma_loop_flops=hw.peak_of("float32"), threads=hw.units, **machine())
    folder = Path(config.output)
    store = settings.store or str(folder / "kernels.sqlite")
    backend = get_backend("cpu", hw)
    retimers = {
        threads: Retimer(backend, hw, settings.rounds, folder / "comparisons", threads)
        for threads in sorted({hw.units, 1}, reverse=True)
    }
    ops = resolved(settings.shapes)
    asked, rows = [settings[name] for name in ("strategy", "trials", "rounds")], []
    with Journal(folder / "kernels" / "done.jsonl") as done:
        for op in ops:
            key = short_hash([str(op), *asked, config.seed, list(retimers), processor_name(), code_digest()])
            rows.append(once(done, key, _shape, op, settings, config.seed, store, retimers))
            emit(kind="shape", **rows[-1])
    timed = [row for row in rows if row.get("over_torch")]
    if not timed:
        return
    emit(kind="all", shapes=len(rows), timed=len(timed), **_overall(timed))
    if config.figures:
        _draw(timed, folder / "kernels.png")


def _shape(op: Operator, settings: DictConfig, seed: int, store: str, retimers: dict[int, Retimer]) -> dict[str, Any]:
    retimer = next(iter(retimers.values()))
    winner, row = _search(op, settings, seed, store, retimer)
    if winner is None:
        return row
    schedule = winner[0]
    loop, steal = [_fma_loop()], Steal()
    compared = {threads: timer.compare(op, {KERNEL: winner}) for threads, timer in retimers.items()}
    loop.append(_fma_loop())
    row |= {"fma_loop_flops": max(loop), "stolen": steal.share(), "schedule": str(schedule)}
    missing = {name: why for c in compared.values() for name, why in c.dropped.items()}
    if missing:
        return {**row, "error": str(missing)}
    row |= _ratios(op, retimer.hardware, compared, max(loop))
    row["called"] = called(op, schedule, retimer.hardware, settings.rounds, seed)
    if op.dtype != "int8":
        return row
    twin = operators.parse(str(op).replace(', dtype="int8"', ""))
    theirs, about = _search(twin, settings, seed, store, retimer)
    return row | ({"float32_error": about["error"]} if theirs is None else _over_float32(op, schedule, twin, theirs[0], retimer))


def called(op: Operator, schedule: Schedule, hw: Hardware, rounds: int, seed: int) -> dict[str, Any]:
    """Time calls from Python of our kernel and of torch's function, and return fields of a result row.

    They are our seconds, torch's at its best number of threads, their ratio and the verdict. Raise ValueError if torch has no
    such function.
    """
    import torch

    inputs = [placed(array, ARRAY_OFFSET) for array in operators.random_inputs(op, np.random.default_rng(seed))]
    kernel = codegen.build(op, schedule, hw)
    theirs = torch_function(op, [torch.from_numpy(array) for array in inputs])
    before = torch.get_num_threads()
    samples: dict[Any, list[float]] = {KERNEL: []} | {threads: [] for threads in sorted({hw.units, 1})}
    try:
        with torch.inference_mode():
            for _ in range(rounds):
                for name, found in samples.items():
                    if name != KERNEL:
                        torch.set_num_threads(name)
                    found.append(seconds((lambda: kernel(*inputs)) if name == KERNEL else theirs))
    finally:
        torch.set_num_threads(before)
    ours = samples.pop(KERNEL)
    return beside_torch({threads: (ours, theirs) for threads, theirs in samples.items()})


def beside_torch(samples: Mapping[int, tuple[list[float], list[float]]]) -> dict[str, Any]:
    """Compare our samples with torch's at the number of threads at which torch is fastest; return fields of a result row.

    `samples` are the pairs (our seconds, torch's seconds) by torch's number of threads. The fields are both times, their ratio,
    the verdict and the number of threads.
    """
    threads = min(samples, key=lambda count: float(np.median(samples[count][1])))
    ours, theirs = samples[threads]
    return {
        "kernel": interval(ours), "torch": interval(theirs), "torch_threads": threads, "over_torch": ratio(theirs, ours),
        "verdict": verdict(ours, theirs),
    }  # fmt: skip


def _search(op: Operator, settings: DictConfig, seed: int, store: str, retimer: Retimer) -> tuple[Winner | None, dict[str, Any]]:
    """Search for a kernel and return (winner, row): the fastest schedule with its seconds, and fields about the search.

    The winner is None, and the row has an `error`, if no kernel ran well.
    """
    hw = retimer.hardware
    session = searched(op, hw, retimer.backend, settings.strategy, settings.trials, seed, store)
    row: dict[str, Any] = {
        "operator": str(op), "roofline_s": roofline_floor(op, hw),
        "fma_bound_s": op.flops / hw.peak_of(op.dtype) if is_product(op) else None,
        "trials": session.trials, "failed": sum(trial.status != "OK" for trial in session.trace),
    }  # fmt: skip
    if (final := playoff(session)) is None:
        return None, row | {"error": f"no kernel ran well: {[trial.status for trial in session.trace]}"}
    return (final[0], final[1].seconds), row


def _ratios(op: Operator, hw: Hardware, compared: dict[int, Comparison], loop: float) -> dict[str, Any]:
    row = beside_torch({threads: (one.samples[KERNEL], one.samples[TORCH]) for threads, one in compared.items()})
    samples = compared[row["torch_threads"]].samples
    ours = float(np.median(samples[KERNEL]))
    row |= {"of_roofline": roofline_floor(op, hw) / ours, "flops_per_second": op.flops / ours}
    if is_product(op) and op.dtype == "float32":
        quiet = {name: float(np.quantile(samples[name], QUIET)) for name in (KERNEL, TORCH)}
        row["quiet_share_of_fma_loop"] = {name: op.flops / seconds / loop for name, seconds in quiet.items()}
    return row


def _over_float32(op: Operator, mine: Schedule, twin: Operator, theirs: Schedule, retimer: Retimer) -> dict[str, Any]:
    times: dict[Operator, list[float]] = {op: [], twin: []}
    for turn in range(TURNS):
        folder = retimer.folder / f"turn_{turn}"
        timer = Retimer(retimer.backend, retimer.hardware, -(-retimer.rounds // TURNS), folder, retimer.torch_threads)
        for which, schedule in ((op, mine), (twin, theirs)):
            compared = timer.compare(which, {KERNEL: (schedule, 0.0)})
            if KERNEL in compared.dropped:
                return {"float32_error": f"{which}: {compared.dropped[KERNEL]}"}
            times[which] += compared.samples[KERNEL]
    row = {"float32": interval(times[twin]), "float32_schedule": str(theirs)}
    return {**row, "over_float32": ratio(times[twin], times[op])}


def _overall(timed: list[Row]) -> dict[str, object]:
    calls = [{"operator": row["operator"], **row["called"]} for row in timed]
    line = {**_summary(timed), "called": _summary(calls)}
    if all("over_float32" in row for row in timed):
        line |= {"over_float32": _mean(timed, "over_float32"), "least_over_float32": _least(timed, "over_float32")}
    return line


def _summary(timed: list[Row]) -> dict[str, object]:
    classes: dict[str, list[Row]] = {}
    for row in timed:
        classes.setdefault(_class_of(operators.parse(row["operator"])), []).append(row)
    others = [row for kind, rows in classes.items() if kind not in APART for row in rows]
    apart = [row for kind, rows in classes.items() if kind in APART for row in rows]
    return {
        "over_torch": _mean(timed, "over_torch"),
        "least_over_torch": _least(timed, "over_torch"),
        "by_class": {kind: _mean(rows, "over_torch") for kind, rows in classes.items()},
        "without_depthwise_and_pooling": _mean(others, "over_torch"),
        "depthwise_and_pooling": _mean(apart, "over_torch"),
        "verdicts": Counter(row["verdict"] for row in timed),
    }


def _mean(rows: list[Row], name: str) -> float | None:
    return geometric_mean(row[name]["median"] for row in rows)


def _least(rows: list[Row], name: str) -> float:
    return min(row[name]["median"] for row in rows)


def _class_of(op: Operator) -> str:
    """Return the class of an operator, over which means are taken; 1x1 convolutions, which are matrix products, are a class."""
    if op.name == "conv2d":
        sizes: dict[str, Any] = dict(op.arguments)
        return "conv2d 1x1" if sizes["r"] == sizes["s"] == 1 else "conv2d"
    return CLASSES.get(op.name, op.name)


def _draw(rows: list[dict[str, Any]], path: Path) -> None:
    from experiments.benches.speed_ups import SpeedUp, draw

    lines = [
        SpeedUp(row["operator"], row["called"]["over_torch"], row["over_torch"]["median"], 100 * row["of_roofline"],
                100 * row["roofline_s"] / row["torch"]["median"])
        for row in rows
    ]  # fmt: skip
    label = f"over torch: called (dot, {LEVEL} interval), isolated (ring)"
    draw(lines, (label, "percent of the roofline (bar), torch (tick)"), path, shown=100.0)


def _fma_loop() -> float:
    """Return the operations per second of the register-resident multiply-add loop on all our threads, measured now."""
    return probe.run(cpu_info(), find_compiler(), memory=False).figures["float32"]
