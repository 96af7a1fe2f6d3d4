"""Page of each day on the device: a folder `raw/DATE` with its own conditions.json becomes DATE.md and DATE.png."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from agents.runs.journal import read_rows
from agents.runs.texts import table
from experiments.common.statistics import geometric_mean
from experiments.device.report import contest_lines
from experiments.device.stages.operators import conclusions, standings
from experiments.evidence import lease as lease_day
from experiments.evidence.facts import FILE, RAW, RIGHT, UNITS, lines_by_unit
from experiments.studies.headline import page
from experiments.studies.headline.scores import has_study, read
from gensor_gym import operators
from gensor_gym.foreign import read_json
from gensor_gym.graph.schedule import Schedule
from gensor_gym.measure.stats.intervals import LEVEL

CORRECTNESS, OPERATORS, HEADLINE = "correctness.jsonl.gz", "operators.jsonl.gz", "headline.jsonl.gz"
TABLES = ("recorded.jsonl.gz", "recorded_tensor.jsonl.gz", "recorded_test.jsonl.gz")
OURS, TRAVERSER = "gensor_gym", "markov_ext"
Row = Mapping[str, Any]


def write(folder: Path) -> list[str]:
    """Write the page and figures of every day in a folder and return their names; a section without its file is omitted."""
    made = []
    for day in sorted(path.parent for path in (folder / RAW).glob(f"*/{FILE}")):
        about = read_json(day / FILE, finite=False)
        answer, study, drawn = list[str](), list[str](), list[str]()
        if has_study(day):
            answer = [page.answer(page.primary(read(day))), ""]
            study, drawn = [*page.lines_of(day, day.name), ""], page.draw(day, folder / day.name)
        lines = [
            f"# The device on {day.name}", "", *answer, *_conditions(about), *study, *lease_day.lines_of(day, day.name),
            *_correctness(day), *_libraries(day), *_tables(day), *_headline(day), *_files(day, about),
        ]  # fmt: skip
        (folder / f"{day.name}.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
        made += [f"{day.name}.md", *drawn, *lease_day.draw(day, folder / day.name)]
    return made


def _conditions(about: Row) -> list[str]:
    return [
        f"{about['device']}, driver {about['driver']}, CUDA {about['cuda']}, Python {about['python']}, CuPy {about['cupy']}, "
        f"torch {about['torch']}, Triton {about['triton']}, {about['cores']} host cores. Clocks {about['clocks']}; "
        f"{about['others']}. "
        f"Commit {about['commit']} but where a file says another.", "",
    ]  # fmt: skip


def _correctness(day: Path) -> list[str]:
    rows = read_rows(day / CORRECTNESS)
    if not rows:
        return []
    right = sum(row["status"] in RIGHT for row in rows)
    return [
        "## Right or wrong", "",
        f"{right} of {len(rows)} kernels of {len({row['operator'] for row in rows})} operators are right. Pruned: the compiler "
        "spilled registers or serialised wgmma, and nothing was timed.", "",
        *lines_by_unit(rows, "pruned", "COMPILE_ERROR"), "",
    ]  # fmt: skip


def _libraries(day: Path) -> list[str]:
    rows = {row["key"]: row for row in read_rows(day / OPERATORS) if "samples" in row}
    if not rows:
        return []
    cells, ratios = [], {}
    for name, row in rows.items():
        seconds = {key: float(np.median(values)) for key, values in row["samples"].items()}
        ours = seconds.pop(OURS)
        library = min(seconds, key=seconds.__getitem__)
        ratios[name] = seconds[library] / ours
        unit = UNITS[Schedule.parse(row["schedule"]).knob("tensor_core")]
        cells.append((
            name, f"{ours * 1e6:.1f}", f"{row['tflops'][OURS]:.1f}", f"{seconds[library] * 1e6:.1f}", library,
            f"{ratios[name]:.2f}", str(len(row["trials"])), unit,
        ))  # fmt: skip
    plain = [r for n, r in ratios.items() if not n.startswith(("depthwise", "max_pool", "avg_pool"))]
    return [
        "## Beside the libraries", "",
        "The fastest of the candidates that ran, timed again in interleaved rounds with torch in the layouts that it has (NCHW, "
        f"and `torch.nhwc` for convolutions); the faster is the opponent. {len(ratios)} operators, geometric mean "
        f"{geometric_mean(ratios.values()):.2f}; without depthwise and pooling {geometric_mean(plain):.2f}. Above 1: ours is "
        "faster.", "",
        *table(("operator", "ours us", "TFLOP/s", "library us", "library", "library / ours", "tried", "unit"), cells), "",
    ]  # fmt: skip


def _tables(day: Path) -> list[str]:
    cells = []
    for name in TABLES:
        count = Counter(row["operator"] for row in read_rows(day / name))
        cells += [(f"`{op}`", operators.part_of(operators.parse(op)), str(n), name) for op, n in count.items()]
    total = sum(int(cell[2]) for cell in cells)
    head = ["## Recorded", "", f"{total} kernels, raw samples in the files.", ""]
    return [*head, *table(("operator", "part", "kernels", "file"), cells), ""] if cells else []


def _headline(day: Path) -> list[str]:
    rows = read_rows(day / HEADLINE)
    if not rows:
        return []
    names = sorted({row["strategy"] for row in rows if row["kind"] == "search"}, key=lambda name: (name != TRAVERSER, name))
    found: Any = standings([row for row in rows if row["run"] == rows[-1]["run"]], names)
    return [
        "## A policy fine-tuned on the device, and the traverser", "",
        *(f"- {said}" for said in conclusions(found["over_first"])), "",
        f"Operators of the test part. Ratios are geometric means over operators with {LEVEL} intervals of a bootstrap over them; "
        "one training seed.", "", *contest_lines(found), "",
    ]  # fmt: skip


def _files(day: Path, about: Row) -> list[str]:
    cells = [(f"[{name}]({RAW}/{day.name}/{name})", f"`{said['command']}`", said["commit"], said["about"])
             for name, said in about["files"].items()]  # fmt: skip
    also = [f"- {name}: {said}." for name, said in about["also"].items()]
    asked = ["", "Asked as well:", "", *also] if also else []
    return ["## Files", "", *table(("file", "command", "commit", ""), cells), *asked]
