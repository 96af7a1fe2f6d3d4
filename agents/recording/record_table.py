"""Write a recording as a table: a Parquet file of records with a description, and a data card in Markdown."""

from __future__ import annotations

import datetime
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

import gensor_gym
from agents.recording.passes import Plan, Recording
from agents.runs.files import write_text
from gensor_gym import hardware, operators
from gensor_gym.fingerprint import fingerprints
from gensor_gym.graph.schedule import Schedule
from gensor_gym.measure.measurement import Measurement, Status
from gensor_gym.measure.records.backend import passes_of
from gensor_gym.measure.records.optimum import find_optimum
from gensor_gym.measure.records.store import Record
from gensor_gym.measure.records.tables import file_name, write_table
from gensor_gym.measure.stats.intervals import LEVEL
from gensor_gym.measure.stats.timing import PROTOCOL

LICENCE = "Apache-2.0"
BY_RECORD = "Recorded by `python -m experiments record`, read by backend `recorded`."
CACHED = 5e-3
"""Seconds below which a compilation must have been read from the cache of compiled kernels."""
_KEPT = ("passes", "compile_seconds", "trial_seconds", "calls_per_sample", "lost")
_SHARED = ("device", "threads", "cache", "compiler", "driver")
_DIGITS = 16


@dataclass(frozen=True)
class Content:
    """Content of a table: schedules in the order of enumeration, the digest of each one's kernel, and measurements by digest."""

    plan: Plan
    device: str
    schedules: Sequence[Schedule]
    digests: Sequence[str]
    known: Mapping[str, Measurement]
    created: Mapping[str, float]
    """Digest -> time of its measurement, in seconds since 1970."""
    anchors: Sequence[dict]
    fingerprint: str
    version: str
    drift: float = 0.0
    """Standard deviation of the drift between passes that is assumed for a table with one pass; see `optimum.find_optimum`."""
    notes: tuple[str, ...] = (BY_RECORD,)
    """Sentences of the data card on the origin of the timings."""
    protocol: int = PROTOCOL
    """Version of the timing protocol of all times in the table."""


def content_of(recording: Recording) -> Content:
    """Collect the content of a table from a recording, which must have been made by the current version."""
    plan, created = recording.plan, {record.measurement.digest: record.created for record in recording.stored()}
    return Content(
        plan, recording.device, recording.schedules, recording.digests, recording.known, created, recording.anchors,
        fingerprints([plan.operator], plan.hardware, plan.space)[str(plan.operator)], gensor_gym.__version__,
        protocol=recording.protocol,
    )  # fmt: skip


def write(content: Content, folder: Path) -> dict[str, Any]:
    """Write `<operator>.parquet` and its data card `<operator>.md`; return the table's description."""
    records = table_records(content)
    about = about_table(content, records)
    path = folder / f"{file_name(content.plan.operator)}.parquet"
    write_table(path, records, about)
    write_text(path.with_suffix(".md"), card(about))
    return about


def table_records(content: Content) -> list[Record]:
    """Return the records of all measured schedules, in the order of enumeration.

    Samples are rounded to single precision (one part in ten million) and digests to sixteen digits, which keeps the file small.
    """
    op = str(content.plan.operator)
    compiled = [_seconds(m, "compile_seconds") for m in content.known.values() if m.status is Status.OK]
    usual = statistics.median([s for s in compiled if s >= CACHED] or [0.0])
    records = []
    for schedule, digest in zip(content.schedules, content.digests, strict=True):
        found = content.known.get(digest)
        if found is not None:
            slim, created = _slim(found, usual), float(int(content.created[digest]))
            records.append(Record(content.device, op, str(schedule), slim, created, content.protocol))
    return records


def about_table(content: Content, records: list[Record]) -> dict[str, Any]:
    """Describe a table as a JSON object: task, protocol, counts, noise and optimum."""
    plan, measured = content.plan, [record.measurement for record in records]
    good = [m for m in measured if m.status is Status.OK]
    least = min((len(m.samples) for m in good), default=0)
    whole = plan.complete and len(records) == len(content.schedules) and least >= plan.passes * plan.samples
    times = [record.created for record in records]
    conditions = next((m.conditions for m in content.known.values() if m.status is Status.OK), {})
    return {
        "format": 1,
        "operator": str(plan.operator),
        "part": operators.part_of(plan.operator),
        "space": plan.space,
        "complete": whole,
        "schedules": len(records),
        "programs": len({m.digest for m in measured}),
        "statuses": dict(Counter(m.status.value for m in measured)),
        "machine": plan.hardware.name,
        "hardware": hardware.to_json(replace(plan.hardware, source={})),
        "conditions": {name: conditions[name] for name in _SHARED if name in conditions} | {"device": content.device},
        "protocol": content.protocol,
        "passes": plan.passes,
        "samples": least,
        "from": _date(min(times, default=0.0)),
        "to": _date(max(times, default=0.0)),
        "cached_compilations": sum(
            _seconds(m, "compile_seconds") < CACHED for m in content.known.values() if m.status is Status.OK
        ),
        "trial_seconds": sum({m.digest: _seconds(m, "trial_seconds") for m in measured}.values()),
        "noise": _noise(good),
        "drift": content.drift,
        "optimum": _optimum(records, content.drift),
        "anchor": _anchor(content.anchors),
        "fingerprint": content.fingerprint,
        "version": content.version,
        "notes": list(content.notes),
        "licence": LICENCE,
    }


def card(about: dict[str, Any]) -> str:
    """Return the data card as Markdown text, from a table's description."""
    noise, best, anchor = about["noise"], about["optimum"], about["anchor"]
    kind = "complete: every schedule of the space" if about["complete"] else "**not complete**: the best is not known"
    lines = [
        f"# {about['operator']} on {about['machine']}",
        "",
        f"Timings of space `{about['space']}`, {kind}. Part of split v1: {about['part']}. Licence: {about['licence']}.",
        *about["notes"],
        "",
        "| | |",
        "|---|---|",
        f"| schedules, different kernels | {about['schedules']}, {about['programs']} |",
        f"| statuses | {', '.join(f'{k} {v}' for k, v in about['statuses'].items())} |",
        f"| raw samples a schedule, at least | {about['samples']}, in {_passes(about['passes'])} |",
        f"| taken (UTC) | {about['from']} to {about['to']} |",
        *(f"| {name} | {value} |" for name, value in about["conditions"].items()),
        f"| timing protocol | {about['protocol']} |",
        f"| all trials, compiling included | {about['trial_seconds']:.0f} s |",
        f"| compiled before, charged with the median of the others | {about['cached_compilations']} |",
        f"| gensor_gym, fingerprint | {about['version']}, {about['fingerprint']} |",
    ]
    if best is not None:
        lines += _best_and_noise(best, noise, _drift_words(about))
    if anchor is not None:
        lines += [
            "",
            f"One kernel was timed again {anchor['times']} times in between: medians from {anchor['least_s'] * 1e6:.2f} to "
            f"{anchor['most_s'] * 1e6:.2f} us, last over first {anchor['last_over_first']:.3f}.",
        ]
    return "\n".join(lines) + "\n"


def _cannot(count: int) -> str:
    return "schedule alone can" if count == 1 else "schedules cannot"


def _passes(count: int) -> str:
    return "one pass" if count == 1 else f"{count} passes"


def _drift_words(about: dict[str, Any]) -> str:
    if about["passes"] > 1:
        shifts = ", ".join(f"{value:.4f}" for value in about["noise"]["passes"])
        return f"Median of a pass over the median of all passes, in the median over schedules: {shifts}."
    one = "There was one pass, so the samples do not say how a kernel's time drifts from pass to pass. "
    if not about["drift"]:
        return one + "The floor and the set of those tied know of none."
    return one + (
        f"The floor and the set of those tied take a standard deviation of {about['drift']:.2%} for it, that of kernels which "
        "were timed in two runs."
    )


def _best_and_noise(best: dict[str, Any], noise: dict[str, Any], drift: str) -> list[str]:
    return [
        "",
        "## Best and noise",
        "",
        f"Fastest: {best['best_s'] * 1e6:.2f} us (median of all samples), slowest {best['slowest_s'] * 1e6:.0f} us. "
        f"**{best['tied']} {_cannot(best['tied'])} be told from the fastest** ({LEVEL} block bootstrap of the ratio of medians); "
        f"regret is zero for all of them. Noise floor of a regret: {best['floor']:.2%}.",
        "",
        f"`{best['schedule']}`",
        "",
        "Standard deviation over mean of a schedule's samples: "
        + ", ".join(f"{value:.2%} at quantile {name}" for name, value in noise["cv"].items())
        + f". {drift}",
    ]


def _slim(found: Measurement, usual: float) -> Measurement:
    """Reduce a measurement to the fields that the table stores.

    A cached compilation gets the `usual` compilation time in seconds.
    """
    conditions: dict[str, Any] = {name: found.conditions[name] for name in _KEPT if name in found.conditions}
    if _seconds(found, "compile_seconds") < CACHED and "compile_seconds" in conditions:
        conditions["trial_seconds"] += usual - conditions["compile_seconds"]
        conditions["compile_seconds"] = usual
    for name in ("compile_seconds", "trial_seconds"):
        if name in conditions:
            conditions[name] = round(conditions[name], 5)
    samples = tuple(float(np.float32(value)) for value in found.samples)
    return replace(found, samples=samples, conditions=conditions, error=found.error[:200], digest=found.digest[:_DIGITS])


def _noise(good: list[Measurement]) -> dict[str, Any]:
    """Describe the noise of successful measurements.

    The description has quantiles of (standard deviation / mean) within a schedule, and of each pass's median relative to all
    passes.
    """
    if not good:
        return {"cv": {}, "passes": []}
    spread = [statistics.pstdev(m.samples) / statistics.fmean(m.samples) for m in good]
    numbers = sorted({number for m in good for number in passes_of(m)})
    shifts = [
        statistics.median(
            statistics.median(mine) / m.seconds
            for m in good
            if (mine := [s for s, p in zip(m.samples, passes_of(m), strict=True) if p == number])
        )
        for number in numbers
    ]
    return {"cv": {q: float(np.quantile(spread, float(q))) for q in ("0.5", "0.9", "0.99")}, "passes": shifts}


def _optimum(records: list[Record], drift: float) -> dict[str, Any] | None:
    """Describe the fastest schedule and the number of schedules statistically tied with it; None if no trial succeeded."""
    measured = [record.measurement for record in records]
    samples = [m.samples if m.status is Status.OK else () for m in measured]
    if not any(samples):
        return None
    found = find_optimum(samples, [passes_of(m) for m in measured], drift=drift)
    medians = [m.seconds for m in measured]
    return {
        "best_s": found.best,
        "slowest_s": max(s for s in medians if s < float("inf")),
        "tied": int(found.tied.sum()),
        "floor": found.floor,
        "schedule": records[int(np.argmin(medians))].schedule,
    }


def _anchor(rows: Sequence[dict]) -> dict[str, Any] | None:
    series = [(row["at"], statistics.median(row["samples"])) for row in rows if row["status"] == "OK"]
    if not series:
        return None
    seconds = [s for _, s in series]
    return {
        "times": len(series),
        "least_s": min(seconds),
        "most_s": max(seconds),
        "last_over_first": seconds[-1] / seconds[0],
        "series": [[round(at), float(f"{s:.6g}")] for at, s in series],
    }


def _seconds(measurement: Measurement, name: str) -> float:
    value = measurement.conditions.get(name, 0.0)
    return value if isinstance(value, float) else 0.0


def _date(seconds: float) -> str:
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).strftime("%Y-%m-%d %H:%M")
