"""Stage that compares the model's candidates with torch (cuBLAS, cuDNN) and torch.compile (Triton), operator by operator.

The candidates of each operator are tried within the operator's share of the time. The fastest is then timed again together with
the library, in interleaved rounds and by the same protocol: warm caches, CUDA graphs on both sides, TF32 only for operators of
that type. Each of several workers has its own operator, so that candidates are made and compiled while another operator is timed.
torch.compile comes last, if there is time left, because it takes seconds to compile.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from agents.core.ranking import best_of_each, diverse
from agents.gensor.markov import Markov, MarkovExtended
from agents.runs.settings import ROOT
from experiments.common.statistics import against, geometric_mean
from experiments.device.card import gpu_state
from experiments.device.context import Context
from experiments.device.table import read_operators
from experiments.device.work.makers import Programs, open_makers
from experiments.device.work.prebuilt import FINAL, SEARCH, Bench, Compilers, or_without_torch, side_by_side, summary_of
from experiments.device.work.progress import say
from gensor_gym import hardware
from gensor_gym.codegen.kernel import Kernel
from gensor_gym.construction import ConstructionGraph
from gensor_gym.cost.roofline import roofline_floor
from gensor_gym.foreign.files import read_text
from gensor_gym.foreign.jsons import parse_object
from gensor_gym.graph.knobs import KNOB_INDEX
from gensor_gym.graph.schedule import Schedule
from gensor_gym.graph.tables.layout import KNOB
from gensor_gym.hardware.types import Hardware
from gensor_gym.measure.device_trials import device_backends
from gensor_gym.measure.measurement import Measurement, Status
from gensor_gym.measure.native import NativeBackend, make_kernel
from gensor_gym.measure.stats.intervals import ratio_interval
from gensor_gym.measure.workers.process import WorkerLost
from gensor_gym.operators.types import Operator

# Programs of an operator worth trying: the first of the model's rankings over both spaces, and the best of every kind.
#
# Before them come choices in a file that was written before any device run. These are independent of the measurement: their
# times show how well the model ranks.

FIRST_CHOICES = ROOT / "results" / "gpu_ranking" / "first_ten.json"
"""File with the first choices of the model's ranking, as schedules by machine and operator."""
COUNTS: dict[type[Markov], int] = {MarkovExtended: 36, Markov: 12}
"""Strategy -> number of candidates from its ranking: three of four are from space `extended`."""
FIRST = 3
"""Number of a ranking's first programs that are tried before the best program of every kind."""
_KIND = [KNOB + KNOB_INDEX[name] for name in ("tensor_core", "convolution")]
"""Row indices of the knobs that distinguish kinds of programs. The model errs most between kinds."""


def candidates(op: Operator, hw: Hardware, seed: int) -> list[Schedule]:
    """Return the distinct schedules to try, best first: the recorded first choices, then those that the model ranks first.

    The rankings of the spaces `extended` and `gensor` are merged, because the time may run out.
    """
    ranked = []
    for strategy, count in COUNTS.items():
        chosen = strategy()
        graph = ConstructionGraph(op, hw, chosen.space)
        built = chosen.construct(graph, np.random.default_rng(seed))
        ranking = diverse(built.schedules, chosen.per_register_tile)
        kinds = best_of_each(_KIND, graph.stack(list(built.schedules)), np.array(built.latencies))
        order = dict.fromkeys([*ranking[:FIRST], *map(Schedule, kinds), *ranking])
        ranked += [((place + 0.5) / count, schedule) for place, schedule in enumerate(list(order)[:count])]
    ranked.sort(key=lambda pair: pair[0])
    return list(dict.fromkeys([*first_choices(op, hw), *(schedule for _, schedule in ranked)]))


def made(op: Operator, machine: str, seed: int) -> Programs:
    """Return the candidates for an operator, each with its kernel."""
    hw = hardware.get(machine)
    return [(schedule, make_kernel(op, schedule, hw)) for schedule in candidates(op, hw, seed)]


def top(op: Operator | str, hw: Hardware, count: int) -> list[Schedule]:
    """Return the first `count` schedules of the model's ranking in space `extended`, as strategy `markov_ext` orders them."""
    traverser = MarkovExtended()
    built = traverser.construct(ConstructionGraph(op, hw, traverser.space), np.random.default_rng(0))
    return list(diverse(built.schedules, traverser.per_register_tile))[:count]


def first_choices(op: Operator, hw: Hardware, file: Path = FIRST_CHOICES) -> list[Schedule]:
    """Return the recorded schedules of an operator that are still legal, in order; ValueError for an invalid file."""
    if not file.exists():
        return []
    texts = parse_object(read_text(file)).get(hw.name, {}).get(str(op), [])
    graph = ConstructionGraph(op, hw, MarkovExtended().space)
    return [schedule for schedule in map(Schedule.parse, texts) if graph.is_legal(schedule)]


FILE = "operators.jsonl"
ROUNDS = 21
COMPILED_ROUNDS = 15
COMPILED = ("gemm", "batched_gemm", "gemv", "elementwise", "reduce_sum", "avg_pool2d", "max_pool2d")
"""Operators for which torch.compile generates a kernel; convolutions use cuDNN with and without it."""
RESERVED = 0.08
"""Share of the stage's time that is kept for comparing the last operators' programs."""
GENEROUS = 3.0
"""Largest time of an operator as a multiple of its equal share of the remaining time; most take far less."""
WORKERS = 3


def run(context: Context) -> dict[str, object]:
    """Compare every operator with torch, then with torch.compile; write a row for each and return the results."""
    hw, table, alone = hardware.get(context.hardware), read_operators(), threading.Lock()
    (final,) = device_backends(FINAL)
    with closing(Compilers()) as compilers, closing(context.journal(FILE)) as journal, open_makers() as makers:
        pending = [name for name in table if journal.pending(name)]
        jobs = {name: makers.submit(made, table[name], hw.name, context.seed) for name in pending}
        begun = itertools.count()

        def left() -> float:
            return context.left - RESERVED * context.seconds

        def compare(bench: Bench, name: str) -> None:
            try:
                programs = jobs[name].result()
            except Exception as error:  # an operator without candidates does not end the stage
                journal.put(name, {"operator": str(table[name]), "error": f"no candidates: {type(error).__name__}: {error}"})
                return
            until = left() - GENEROUS * left() / (len(pending) - next(begun))
            waiting = [(schedule, compilers.submit(kernel)) for schedule, kernel in programs]
            tried: list[tuple[Schedule, Measurement]] = []
            for schedule, built in waiting:
                if tried and left() <= max(0.0, until):
                    break
                tried.append((schedule, bench.trial(built.result(), SEARCH)))
            with alone:
                journal.once(name, _row, table[name], tried, hw, final)
            over = journal.done[name].get("speedup_over", {}).values()
            say(f"{name}: {len(tried)} tried, library over ours {min((one['median'] for one in over), default='unknown')}")

        side_by_side(pending, compare, hw, WORKERS, lambda: left() > 0)
        for name, op in table.items():
            best = journal.done.get(name, {}).get("schedule")
            if best and op.name in COMPILED and context.left > 0:
                journal.once(f"{name} torch.compile", _compiled, op, Schedule.parse(best), hw, final)
    final.close()
    return digest(context)


def _row(op: Operator, tried: list[tuple[Schedule, Measurement]], hw: Hardware, final: NativeBackend) -> dict[str, object]:
    row: dict[str, object] = {"operator": str(op), "flops": op.flops, "bytes": op.compulsory_bytes}
    row["roofline_s"] = roofline_floor(op, hw)
    row["trials"] = [
        {"schedule": str(s), "status": m.status.value, "seconds": _finite(m), "error": m.error[-300:]} for s, m in tried
    ]
    right = [(m.seconds, place) for place, (_, m) in enumerate(tried) if m.status is Status.OK]
    if not right:
        return {**row, "error": "no candidate ran well"}
    schedule, measured = tried[min(right)[1]]
    row |= {"schedule": str(schedule), "conditions": measured.conditions}
    kernel = make_kernel(op, schedule, hw)
    assert isinstance(kernel, Kernel)
    samples, errors = or_without_torch(lambda torch: final.compare({"gensor_gym": kernel}, hw, ROUNDS, torch=torch))
    return {**row, **errors, **(compared(samples, op) if samples else {})}


def _compiled(op: Operator, schedule: Schedule, hw: Hardware, final: NativeBackend) -> dict[str, object]:
    kernel = make_kernel(op, schedule, hw)
    assert isinstance(kernel, Kernel)
    row: dict[str, object] = {"operator": str(op), "schedule": str(schedule)}
    try:
        samples = final.compare({"gensor_gym": kernel}, hw, COMPILED_ROUNDS, torch=True, torch_compile=True)
    except (ValueError, RuntimeError, WorkerLost) as error:
        return {**row, "error": str(error)[-600:]}
    return {**row, **compared(samples, op)}


def compared(samples: dict[str, list[float]], op: Operator) -> dict[str, Any]:
    """Summarise the samples of one operator as fields of a row, which also include the samples.

    The other fields are medians with intervals, TFLOP/s, and speed-ups over each library with intervals; above 1, ours is faster.
    """
    ours = samples["gensor_gym"]
    return {
        "samples": samples,
        "seconds": {name: summary_of(values) for name, values in samples.items()},
        "tflops": {name: op.flops / float(np.median(values)) / 1e12 for name, values in samples.items()},
        "speedup_over": {
            name: dict(zip(("median", "low", "high"), ratio_interval(values, ours), strict=True))
            for name, values in samples.items()
            if name != "gensor_gym"
        },
        "cache": "warm",
        "precision": op.dtype,
        "gpu": gpu_state(),
    }


def _finite(measurement: Measurement) -> float | None:
    """Return the seconds of a measurement; None if it failed, because JSON has no infinity."""
    return measurement.seconds if measurement.status is Status.OK else None


def digest(context: Context) -> dict[str, object]:
    """Return the speed-ups by operator, their geometric means, and the errors."""
    rows = {row["key"]: row for row in context.rows(FILE)}
    speedups = {
        key: {name: ratio["median"] for name, ratio in row["speedup_over"].items()}
        for key, row in rows.items()
        if "speedup_over" in row
    }
    eager = [over["torch"] for key, over in speedups.items() if "torch" in over and "torch.compile" not in over]
    compiled = [over["torch.compile"] for over in speedups.values() if "torch.compile" in over]
    errors = {
        key: next(value for name, value in row.items() if name.endswith("error"))
        for key, row in rows.items()
        if any(name.endswith("error") for name in row)
    }
    return {
        "timed": len([row for row in rows.values() if "seconds" in row]),
        "geomean_over_torch": geometric_mean(eager),
        "geomean_over_torch_compile": geometric_mean(compiled),
        "speedup_over": speedups,
        "tflops": {key: row["tflops"] for key, row in rows.items() if "tflops" in row},
        "errors": errors,
    }


# Results of a contest's rows: times of the winners, speed-ups over torch, and paired comparisons with the first strategy.
#
# `conclusions` concludes about strategies; `gensor_gym.measure.stats.verdict` concludes about two kernels.

TORCH = "torch"
RESAMPLES = 2000
"""Resamples of the bootstrap over operators."""

Row = Mapping[str, Any]
Samples = Mapping[str, list[float]]
"""Label of a search, or `torch` -> seconds of every round."""


def standings(rows: Sequence[Row], strategies: Sequence[str]) -> dict[str, object]:
    """Return the results of a comparison of searches from its rows.

    They include median times by operator and search, geometric mean speed-ups over torch by strategy, the ratios of `over_first`,
    and why strategies did not run.
    """
    timed = [row for row in rows if row["kind"] == "together" and "samples" in row]
    together: dict[str, Samples] = {row["operator"]: row["samples"] for row in timed}
    searches = [row for row in rows if row["kind"] == "search"]
    label_of = {row["label"]: row["strategy"] for row in searches}
    over: dict[str, list[float]] = {name: [] for name in strategies}
    for samples in together.values():
        for label, values in samples.items():
            if label != TORCH and TORCH in samples:
                over[label_of[label]].append(ratio_interval(samples[TORCH], values)[0])
    cut = sorted({f"{row['label']}: {row['operator']}" for row in searches if row.get("cut")})
    return {
        "trials": sum(row["kind"] == "trial" for row in rows),
        "seconds": {op: {label: summary_of(v) for label, v in samples.items()} for op, samples in together.items()},
        "geomean_over_torch": {name: geometric_mean(ratios) for name, ratios in over.items() if ratios},
        "winners_of_the_means": {name: len(ratios) for name, ratios in over.items() if ratios},
        "over_first": over_first(together, searches, strategies),
        "not_run": {row["strategy"]: row["error"] for row in searches if "error" in row},
        "cut_short": cut,
    }


def over_first(together: Mapping[str, Samples], searches: Sequence[Row], strategies: Sequence[str]) -> dict[str, object]:
    """Compare each strategy's times with the first strategy's by geometric means over operators.

    The result is {"reference", "operators", "pairs": over all operators, "strategies": {name: ratio, low, high, p_holm}}, or
    empty for fewer than two operators. An operator counts with the seeds for which every strategy with any result has a winner
    and no search ran out of time. Its score is the mean over these seeds of log seconds, relative to the mean of the round.
    Intervals are 95 percent of a bootstrap over operators: they do not cover another training seed of a policy. p values are of a
    sign-flip test, with Holm's correction.
    """
    usable = {(row["operator"], row["label"]): row for row in searches if row.get("schedule") and not row.get("cut")}
    names = [name for name in strategies if any(row["strategy"] == name for row in usable.values())]
    whole = {op: pairs for op, samples in together.items() if (pairs := _pairs(op, samples, usable, names))}
    if strategies[0] not in names or len(names) < 2 or len(whole) < 2:
        return {}
    scores = {name: np.array([[[np.mean([pair[name] for pair in pairs])]] for pairs in whole.values()]) for name in names}
    first = scores.pop(names[0])
    lines = {name: found[0] for name, found in against(scores, first, RESAMPLES).items()}
    return {
        "reference": names[0], "operators": len(whole), "pairs": sum(map(len, whole.values())),
        "strategies": {
            name: {
                "ratio": float(np.exp(line["mean"])), "low": float(np.exp(line["low"])), "high": float(np.exp(line["high"])),
                "p_holm": line["p_holm"],
            }
            for name, line in lines.items()
        },
    }  # fmt: skip


def _pairs(op: str, samples: Samples, usable: Mapping[tuple[str, str], Row], names: Sequence[str]) -> list[dict[str, float]]:
    """Return, for every seed with a winner of each strategy on an operator, the strategies' relative log seconds."""
    found: dict[int, dict[str, float]] = {}
    for label, log in _relative(samples).items():
        if (row := usable.get((op, label))) is not None:
            found.setdefault(row["seed"], {})[row["strategy"]] = log
    return [by_name for by_name in found.values() if set(by_name) == set(names)]


def _relative(samples: Samples) -> dict[str, float]:
    """Return, by search, the median over rounds of its log seconds minus the mean log seconds of all searches in the round."""
    labels = [label for label in samples if label != TORCH]
    logs = np.log(np.array([samples[label] for label in labels]))
    return dict(zip(labels, np.median(logs - logs.mean(axis=0), axis=1).tolist(), strict=True))


def conclusions(over_first: Mapping[str, Any]) -> list[str]:
    """Put the result of `over_first` into words: a sentence for every strategy compared with the first, or one if it is empty."""
    if not over_first:
        return ["Nothing can be said: fewer than two operators have winners of all strategies that were timed together."]
    return [_conclusion(name, line, over_first["reference"]) for name, line in over_first["strategies"].items()]


def _conclusion(name: str, line: Mapping[str, float], reference: str) -> str:
    """Return the sentence about one strategy. The interval decides, and a difference counts only if the sign-flip test agrees."""
    interval = f"{line['ratio']:.3f} [{line['low']:.3f}, {line['high']:.3f}]"
    said = f"`{name}` takes {interval} of `{reference}`'s time"
    if line["low"] <= 1.0 <= line["high"]:
        return f"{said}: not told apart."
    faster = f"{100 * abs(line['ratio'] - 1.0):.1f} % {'faster' if line['ratio'] < 1.0 else 'slower'}"
    if line["p_holm"] > 0.05:
        return f"{said}: {faster} by the interval, not by the sign-flip test (p {line['p_holm']:.2g} after Holm): not told apart."
    return f"{said}: {faster} (p {line['p_holm']:.2g} after Holm)."
