"""Ranking of executed programs by the model of a GPU: `python -m experiments.evidence.ranking PAGE [--parts train validation]`.

The test part is scored only if it is named: it must not be looked at while the model is still developed.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from agents.cli.parser import Parser
from agents.cli.refusal import exit_code
from agents.runs.files import write_text
from agents.runs.journal import read_rows
from agents.runs.settings import ROOT
from agents.runs.texts import table
from experiments.benches.model import COEFFICIENTS, Sample, fit
from experiments.common.statistics import FASTEST, fastest, spearman
from experiments.device.stages.operators import FIRST_CHOICES, top
from experiments.evidence.facts import RAW, read_facts
from experiments.evidence.tables import RECORDED
from gensor_gym import hardware, operators
from gensor_gym.construction import ConstructionGraph
from gensor_gym.graph.schedule import Schedule
from gensor_gym.measure.measurement import Status

# Programs that ran on a device, by operator: tables of stage `tables`, and the candidates that were raced with libraries.

TENSOR, TEST = "recorded_tensor.jsonl.gz", "recorded_test.jsonl.gz"
LIBRARIES = "libraries_after_mends.jsonl.gz"
FITTED = ("train", "validation")
"""Parts of the split whose timed programs a fit may read."""
EVERY = (*FITTED, "test")
RECORDED_IN, RACED_IN = "compact", "extended"
"""Spaces of the timed programs: that of the float32 tables on CUDA cores, and that of all others."""
Row = Mapping[str, Any]


def recorded(folder: Path, machine: str, parts: Collection[str] = FITTED) -> list[Sample]:
    """Return the timed programs of recorded operators in these parts of the split, from all days.

    They come from stage `tables`. Files of the test part are opened only if that part is requested. Raise ValueError if there are
    none.
    """
    days = sorted(path.parent for path in (folder / RAW).glob(f"*/{RECORDED}"))
    compact = [row for place in (folder / RAW, *days) for row in read_rows(place / RECORDED)]
    names = (TENSOR, TEST) if "test" in parts else (TENSOR,)
    others = [row for place in days for name in names for row in read_rows(place / name)]
    found = [*_tables(compact, machine, RECORDED_IN), *_tables(others, machine, RACED_IN)]
    if not (kept := [table for table in found if table.part in parts]):
        raise ValueError(f"{folder} has no recorded table of an operator of {' or '.join(parts)}")
    return kept


def raced(folder: Path, machine: str, parts: Collection[str] = FITTED) -> list[Sample]:
    """Return the programs that were timed as candidates in the comparison with libraries, for operators in these parts.

    Raise ValueError if there are none.
    """
    found = []
    for row in read_rows(folder / RAW / LIBRARIES):
        if operators.part_of(operators.parse(row["operator"])) in parts:
            timed = {schedule: 1e-6 * us for schedule, _, us in row["rows"] if us is not None}
            found.append(_legal(row["operator"], machine, RACED_IN, timed))
    if not found:
        raise ValueError(f"{folder}/{RAW}/{LIBRARIES} has no operator of {' or '.join(parts)}")
    return found


def _tables(rows: Iterable[Row], machine: str, space: str) -> list[Sample]:
    """Return the timed programs by operator from recorded rows; every kernel counts once, with its first timing."""
    seconds: dict[str, dict[str, float]] = {}
    seen: set[tuple[str, str]] = set()
    for row in rows:
        kernel = row["operator"], row["digest"]
        if row["status"] == Status.OK.value and kernel not in seen:
            seen.add(kernel)
            seconds.setdefault(row["operator"], {})[row["schedule"]] = float(np.median(row["samples"]))
    return [_legal(operator, machine, space, timed) for operator, timed in seconds.items()]


def _legal(operator: str, machine: str, space: str, timed: Mapping[str, float]) -> Sample:
    """Return an operator's programs, given as seconds by schedule text, without those illegal under the present rules."""
    graph = ConstructionGraph(operator, machine, space, calibrated=False)
    pairs = [(Schedule.parse(text), seconds) for text, seconds in timed.items()]
    legal = [(schedule, seconds) for schedule, seconds in pairs if graph.is_legal(schedule)]
    return Sample(graph, graph.stack([schedule for schedule, _ in legal]), np.array([seconds for _, seconds in legal]))


# Scores of predictions against times: rank correlations, and the cost of the first choices, with ties at their worst.

FIRST = 10
"""Number of the model's first choices whose best is scored."""
MOST_FITTED = 250
"""Largest number of one operator's programs that a fit reads."""


@dataclass(frozen=True)
class Scored:
    """Scores of how well the model ranks an operator's timed programs.

    `ranks` and `ranks_fastest` are rank correlations, of all programs and of the fastest. `first` and `first_ten` are the times
    of the model's first choice and of the best of its first ten, over the best time.
    """

    measured: Sample
    ranks: float
    ranks_fastest: float
    first: float
    first_ten: float
    scale: float
    """Median over the programs of measured over predicted seconds."""


def scored(measured: Sample) -> Scored:
    """Score the present model on the timed programs of an operator."""
    seconds, predicted = measured.seconds, measured.graph.latencies(measured.rows)
    fast = fastest(seconds)
    order, best = worst_tied(predicted, seconds), seconds.min()
    return Scored(
        measured, spearman(predicted, seconds), spearman(predicted[fast], seconds[fast]), float(seconds[order[0]] / best),
        float(seconds[order[:FIRST]].min() / best), float(np.median(seconds / predicted)),
    )  # fmt: skip


def worst_tied(predicted: np.ndarray, seconds: np.ndarray) -> np.ndarray:
    """Return the indices that sort programs by prediction, int64 [N]; among equal predictions the slowest comes first."""
    return np.lexsort((-seconds, predicted))


def by_class(them: Sequence[Scored]) -> dict[str, float]:
    """Return the median of measured over predicted seconds for each class of operators, over all programs of the class."""
    ratios: dict[str, list[np.ndarray]] = defaultdict(list)
    for one in them:
        found = one.measured
        ratios[found.graph.operator.name].append(found.seconds / found.graph.latencies(found.rows))
    return {name: float(np.median(np.concatenate(parts))) for name, parts in sorted(ratios.items())}


def left_out(tables: Sequence[Sample]) -> dict[str, float]:
    """Return the rank correlation of each operator after fitting the model's coefficients to operators of all other classes."""
    found = {}
    for name in sorted({one.graph.operator.name for one in tables}):
        others = [one for one in tables if one.graph.operator.name != name and one.part in FITTED]
        coefficients = fit([thinned(one) for one in others])
        for one in tables:
            if one.graph.operator.name == name:
                predicted = one.with_values(COEFFICIENTS, coefficients).predicted()
                found[one.operator] = spearman(predicted, one.seconds)
    return found


def thinned(sample: Sample) -> Sample:
    """Return at most `MOST_FITTED` programs for a fit, evenly spaced in the order of time.

    Raise ValueError if the programs belong to a part of the split that no fit may read.
    """
    if sample.part not in FITTED:
        raise ValueError(f"{sample.operator} is of part {sample.part}: a fit reads {' and '.join(FITTED)} alone")
    order = np.argsort(sample.seconds, kind="stable")
    chosen = order[np.unique(np.linspace(0, len(order) - 1, MOST_FITTED).astype(int))]
    return Sample(sample.graph, sample.rows[chosen], sample.seconds[chosen])


# The page about the model's ranking: every operator, every class, and the aims with their results.

JUDGED = 150
"""Least number of programs of an operator whose scores count for the aims."""
COMMAND = "python -m experiments.evidence.ranking"


def markdown(title: str, recorded: Sequence[Scored], raced: Sequence[Scored], classes: Mapping[str, float],
             left: Mapping[str, float]) -> str:  # fmt: skip
    """Return the page about the model's ranking as Markdown.

    `left` has each operator's rank correlation after a fit without its class, or is empty.
    """
    lines = [
        f"# {title}", "",
        f"Made by `{COMMAND}` from the raw files of [results/h100](../h100/README.md); nothing is timed. Behind: the best of the "
        f"model's first {FIRST} over the best of all, less one; first over best: the time of its first choice over the best. Of "
        "programs that the model puts alike the slowest counts as the first.", "",
        "## Aims", "", *table(("asked", "aim", "came out", ""), aims(recorded, raced, classes, left)), "",
        f"The mean and the least are over the {len(_judged(recorded))} tables of {JUDGED} programs and more.", "",
        "## Recorded tables", "", *_recorded(recorded, left), "",
        "## Measured over predicted, by class", "",
        *table(("class", "median"), [(name, f"{value:.2f}") for name, value in classes.items()]), "",
        "## Candidates raced with libraries", "", *_raced(raced),
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


def aims(recorded: Sequence[Scored], raced: Sequence[Scored], classes: Mapping[str, float],
         left: Mapping[str, float]) -> list[tuple[str, str, str, str]]:  # fmt: skip
    """Return (question, aim, result, `met` or `missed`) for every aim that was set for the ranking."""
    them = _judged(recorded)
    ranks, fast = [one.ranks for one in them], float(np.mean([one.ranks_fastest for one in them]))
    ten = max(one.first_ten for one in them)
    off = max(classes.items(), key=lambda pair: abs(np.log(pair[1])))
    first = [one.first for one in raced if one.measured.part in FITTED]
    lines = [
        ("rank correlation, least", "0.85", f"{min(ranks):.2f}", min(ranks) >= 0.85),
        ("rank correlation, mean", "0.90", f"{np.mean(ranks):.2f}", np.mean(ranks) >= 0.9),
        (f"in the fastest of {FASTEST}, mean", "0.5", f"{fast:.2f}", fast >= 0.5),
        (f"first {FIRST} behind, most", "10 %", f"{100 * (ten - 1):.0f} %", ten <= 1.1),
        ("measured over predicted, class furthest off", "1.5", f"{off[1]:.2f} ({off[0]})", 1 / 1.5 <= off[1] <= 1.5),
        ("raced: first over best at most 1.3", f"10 of {len(first)}", str(sum(f <= 1.3 for f in first)),
         sum(f <= 1.3 for f in first) >= 10),
        ("raced: first over best, most", "2", f"{max(first):.2f}", max(first) <= 2.0),
    ]  # fmt: skip
    if left:
        least = min(left[one.measured.operator] for one in them if one.measured.operator in left)
        lines.append(("class left out of a fit: rank correlation, least", "0.75", f"{least:.2f}", least >= 0.75))
    return [(asked, aim, out, "met" if met else "missed") for asked, aim, out, met in lines]


def _judged(recorded: Sequence[Scored]) -> list[Scored]:
    """Return the scores that count for the aims: of operators outside the test part with at least `JUDGED` programs."""
    return [one for one in recorded if len(one.measured.seconds) >= JUDGED and one.measured.part in FITTED]


def _recorded(them: Sequence[Scored], left: Mapping[str, float]) -> list[str]:
    head = ("operator", "part", "programs", "rank correlation", "in the fastest", "first over best", f"first {FIRST} behind",
            "measured / predicted", *(("class left out",) if left else ()))  # fmt: skip
    cells = []
    for one in them:
        rest = (f"{left[one.measured.operator]:.2f}" if one.measured.operator in left else "",) if left else ()
        cells.append((
            f"`{one.measured.operator}`", one.measured.part, str(len(one.measured.seconds)), f"{one.ranks:.2f}",
            f"{one.ranks_fastest:.2f}", f"{one.first:.2f}", f"{100 * (one.first_ten - 1):.0f} %", f"{one.scale:.2f}", *rest,
        ))  # fmt: skip
    return table(head, cells)


def _raced(them: Sequence[Scored]) -> list[str]:
    cells = [
        (f"`{one.measured.operator}`", one.measured.part, str(len(one.measured.seconds)), f"{one.first:.2f}", f"{one.scale:.2f}")
        for one in them
    ]
    return table(("operator", "part", "candidates", "first over best", "measured / predicted"), cells)


FOLDER = ROOT / "results" / "h100"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return the exit status: 2 if there is nothing to score."""
    args = _parser().parse_args(arguments)
    if args.choices:
        return exit_code(lambda: choose(args.folder))
    return exit_code(lambda: write(args.page, args.folder, args.parts, args.title, args.left_out))


def write(page: Path | None, folder: Path, parts: Sequence[str], title: str, with_left_out: bool) -> None:
    """Score the model on recorded programs and candidates, and write the page; raise ValueError that names a missing file."""
    if page is None:
        raise ValueError("page: expected a file to write, or --choices")
    machine = read_facts(folder).machine
    tables, candidates = recorded(folder, machine, parts), raced(folder, machine, parts)
    left = left_out([table for table in tables if table.part in FITTED]) if with_left_out else {}
    on_tables, on_candidates = ([scored(one) for one in them] for them in (tables, candidates))
    fitted = [one for one in on_tables if one.measured.part in FITTED]
    text = markdown(title, on_tables, on_candidates, by_class(fitted), left)
    write_text(page, text)
    print(text.partition("## Recorded")[0])


def choose(folder: Path) -> None:
    """Write the model's first choices for every operator that was timed against libraries, so that a device can try them."""
    machine = read_facts(folder).machine
    texts = [one.operator for one in raced(folder, machine, EVERY)]
    found = {text: list(map(str, top(text, hardware.get(machine), FIRST))) for text in texts}
    write_text(FIRST_CHOICES, json.dumps({machine: found}, indent=1) + "\n")


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog=COMMAND, description=__doc__)
    parser.add_argument("page", type=Path, nargs="?", help="where the page is written")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="default: results/h100")
    parser.add_argument("--parts", nargs="+", choices=EVERY, default=list(FITTED), help="parts of the split that are scored")
    parser.add_argument("--title", default="How the model ranks", help="the page's title")
    parser.add_argument("--left-out", action="store_true", help="fit the coefficients of the terms without each class as well")
    words = f"write {FIRST_CHOICES.name} instead, which stage `operators` tries first"
    parser.add_argument("--choices", action="store_true", help=words)
    return parser


if __name__ == "__main__":
    sys.exit(main())
