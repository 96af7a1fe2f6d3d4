"""Summary of a run on a GPU, summary.json and summary.md, written again after every stage."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import Any

from agents.runs.files import write_text
from agents.runs.texts import table
from experiments.device.context import Context
from experiments.device.runner import Outcome, Stage
from gensor_gym.measure.stats.intervals import LEVEL


def write_summary(
    context: Context,
    card: dict[str, object],
    stages: Sequence[Stage],
    outcomes: Sequence[Outcome],
    before: Mapping[str, Any] | None = None,
) -> dict[str, object]:
    """Write summary.json and summary.md of a run and return the summary.

    A stage's results are read from its rows, so that a stage that was killed counts as well. `before` has the stages of an
    earlier call, if this call continues its run.
    """
    targets = {stage.name: stage.target for stage in stages}
    found = dict(before or {})
    for outcome in outcomes:
        line = asdict(outcome)
        line["result"] = outcome.result or _digest(targets[outcome.stage], context)
        found[outcome.stage] = line
    summary: dict[str, object] = {
        "run": context.run,
        "hardware": context.hardware,
        "seed": context.seed,
        "complete": len(outcomes) == len(stages),
        "stages": found,
        "machine": card,
    }
    folder = Path(context.out)
    write_text(folder / "summary.json", json.dumps(summary, indent=1, default=str) + "\n")
    write_text(folder / "summary.md", markdown(summary))
    return summary


def _digest(target: str, context: Context) -> dict[str, object]:
    """Compute a stage's results from the rows that it wrote; on failure, return the error."""
    try:
        function = getattr(import_module(target.partition(":")[0]), "digest", None)
        return function(context) if function else {}
    except Exception as error:  # the summary of all other stages must not depend on it
        return {"digest_error": f"{type(error).__name__}: {error}"}


def markdown(summary: dict) -> str:
    """Return a run's summary as Markdown: a table of the stages, then the results of each."""
    gpu, machine = summary["machine"].get("gpu", {}), summary["machine"]
    lines = [
        f"# {gpu.get('name', summary['hardware'])}, {machine.get('date', '')}",
        "",
        f"Driver {gpu.get('driver_version', '?')}, SM clock at the start {gpu.get('clocks.sm', '?')} of "
        f"{gpu.get('clocks.max.sm', '?')}, {machine.get('cores', '?')} cores, Python {machine.get('python', '?')}.",
        "Times: CUDA events around graphs of many calls, caches warm, TF32 for operators of that type only; medians with "
        f"{LEVEL} intervals of order statistics; ratios from interleaved rounds.",
        "",
        "| stage | status | seconds | attempts | compiled on the clock |",
        "|---|---|---:|---:|---:|",
    ]
    for name, stage in summary["stages"].items():
        compiled = stage.get("compiled", 0)
        lines.append(f"| {name} | {stage['status']} | {stage['seconds']:.1f} | {stage['attempts']} | {compiled} |")
    for name, stage in summary["stages"].items():
        lines += ["", f"## {name}", ""]
        if stage["error"]:
            lines += ["```", stage["error"].strip()[-1500:], "```", ""]
        writer = _WRITERS.get(name, _plain)
        lines += writer(stage["result"])
    return "\n".join(lines) + "\n"


def _plain(result: dict) -> list[str]:
    return [f"- {key}: {value}" for key, value in result.items()]


def _correctness(result: dict) -> list[str]:
    if "checked" not in result:
        return _plain(result)
    lines = [f"{result['right']} of {result['checked']} kernels right, {result['operators']} operators."]
    return lines + [f"- {f['status']}: `{f['operator']}` `{f['schedule']}`: {f['error']}" for f in result["failures"]]


def _operators(result: dict) -> list[str]:
    if not result.get("speedup_over"):
        return _plain(result)
    cells = []
    for key in (key for key in result["tflops"] if not key.endswith(" torch.compile")):
        eager = result["speedup_over"].get(key, {}).get("torch")
        compiled = result["speedup_over"].get(f"{key} torch.compile", {}).get("torch.compile")
        cells.append((key, f"{result['tflops'][key]['gensor_gym']:.3g}", _ratio(eager), _ratio(compiled)))
    means = _ratio(result["geomean_over_torch"]), _ratio(result["geomean_over_torch_compile"])
    head = ("operator", "TFLOP/s", "over torch", "over torch.compile")
    return [*table(head, [*cells, ("geometric mean", "", *means)]), "", *_errors(result)]


def _fused(result: dict) -> list[str]:
    cells = [(key, _ratio(over), _ratio(result["of_copy"].get(key))) for key, over in result["over_torch"].items()]
    cells.append(("geometric mean", _ratio(result["geomean_over_torch"]), ""))
    return [*table(("operator", "over the best of torch", "of a copy's bandwidth"), cells), "", *_errors(result)]


def _errors(result: dict) -> list[str]:
    return [f"- {key}: {str(text).strip().splitlines()[-1]}" for key, text in result["errors"].items() if text]


def contest_lines(result: dict) -> list[str]:
    """Return lines about a comparison of searches: a table of microseconds by operator and search, then means by strategy."""
    if not result.get("seconds"):
        return _plain(result)
    names = list(dict.fromkeys(name for by_name in result["seconds"].values() for name in by_name))
    cells = [
        (f"`{op}`", *(f"{1e6 * by_name[name]['median']:.2f}" if name in by_name else "" for name in names))
        for op, by_name in result["seconds"].items()
    ]
    return [
        *table(("us", *names), cells), "", *_means(result), "",
        *(f"- {name} did not run: {text}" for name, text in result["not_run"].items()),
        *(f"- the time was up before its trials were: {text}" for text in result["cut_short"]),
    ]  # fmt: skip


def _means(result: dict) -> list[str]:
    first, cells = result["over_first"], []
    counts, beside_first = result["winners_of_the_means"], first.get("strategies", {})
    for name in dict.fromkeys([*counts, *beside_first]):
        line = beside_first.get(name)
        beside = f"{line['ratio']:.3f} [{line['low']:.3f}, {line['high']:.3f}]" if line else ""
        cells.append((name, _ratio(result["geomean_over_torch"].get(name)), str(counts.get(name, 0)), beside))
    lines = table(("geometric means", "speed-up over torch", "of winners", "time over the first strategy's"), cells)
    said = "Over {reference}: {pairs} pairs on {operators} operators, intervals over operators."
    return [*lines, *(["", said.format(**first)] if first else [])]


def _ratio(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _environment(result: dict) -> list[str]:
    if "parts" not in result:
        return _plain(result)
    lines = [
        f"{result['terminal_rewards']} terminal rewards, {result['rewards_per_second']:.1f} a second; statuses of kernels: "
        f"{', '.join(f'{name} {count}' for name, count in result['statuses'].items())}.",
        "",
        "| quarter | mean return | programs that ran | their median, us |",
        "|---:|---:|---:|---:|",
    ]
    quarters = zip(result["quarters_mean_return"], result["quarters_ok"], result["quarters_median_us"], strict=True)
    for number, (returned, ran, median) in enumerate(quarters, 1):
        lines.append(f"| {number} | {returned:.3f} | {ran:.0%} | {'' if median is None else f'{median:.1f}'} |")
    return [*lines, "", *(f"- {name}: {said}" for name, said in result["parts"].items())]


_WRITERS = {
    "correctness": _correctness, "operators": _operators, "adaptive": contest_lines, "fused": _fused, "environment": _environment,
}  # fmt: skip
