"""Searches on the recorded tables: a study's page and figures, made again from the trials that were shipped.

`python -m experiments.study` runs the searches; `python -m experiments.evidence --study STUDY` packs its trials as rows of the
tables (`raw/searches.jsonl.gz`), since times and schedules stand there; the page is made from that file and the tables alone.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from experiments.common.jobs import DONE, Outcome
from experiments.common.journal import read_rows
from experiments.evidence.facts import RAW, Facts
from experiments.evidence.pack import write_rows
from experiments.statistics import statistics
from experiments.studies.search import figures as study_figures
from experiments.studies.search import report as study_report
from experiments.studies.search.report import table
from experiments.studies.search.scores import Curves, Scores, summarise
from experiments.studies.search.truth import Truth
from experiments.tables.table import Stamp
from gensor_gym import hardware, operators
from gensor_gym.foreign import read_json
from gensor_gym.graph.schedule import Schedule
from gensor_gym.hardware.described import RECORDINGS
from gensor_gym.measure.analytic import program_key
from gensor_gym.measure.records.backend import RecordedBackend
from gensor_gym.measure.records.tables import file_name, read_table

FILE, FOLDER, PAGE = "searches.jsonl.gz", "searches", "summary.md"
MODEL = "exhaustive"
"""The strategy that measures down the model's own ranking."""
WORDS = (
    "All strategies search space `compact`, so that no trial goes to a program outside the tables, which would cost a trial and "
    "give no time. Policies were trained on the model of an H200, not on measured times, in spaces `gensor` (columns) and "
    "`extended` (ppo), and are asked in `compact`; `ppo_successors` is left out, since it reads one row for each action of "
    f"`gensor`. Roller's programs go without virtual threads, which `compact` does not have. `{MODEL}` measures down the model's "
    "own ranking. Overhead is left out: the searches shared their machine with other work."
)
"""What the plan of the study (conf/experiment/recorded_h100.yaml) means for its numbers."""
_PLAN = ("fingerprint", "date", "hardware", "device", "space", "trials", "reference", "checkpoints", "seeds")


def pack(study: Path, folder: Path) -> None:
    """Write the trials of a finished study; ValueError for a folder without one, or with strategies that did not run."""
    if not (study / "summary.json").is_file():
        raise ValueError(f"no study in {study}: expected the output folder of python -m experiments.study")
    summary = read_json(study / "summary.json", finite=False)
    if summary["broken"]:
        raise ValueError(f"{study}: {', '.join(summary['broken'])} did not run")
    ends = [read_json(path, finite=False) for path in sorted((study / "jobs").glob("*.json"))]
    of_job = {(e["job"]["strategy"], e["job"]["operator"], e["job"]["seed"]): e["outcome"] for e in ends}
    tried: dict[tuple, list[bytes]] = defaultdict(list)
    for row in read_rows(study / "results.jsonl"):
        tried[row["strategy"], row["operator"], row["seed"]].append(program_key(Schedule.parse(row["schedule"])))
    places = {task["operator"]: _places(task["operator"], summary["hardware"]) for task in summary["tasks"]}
    settings = summary["config"]["study"]
    plan = {name: summary[name] for name in _PLAN}
    plan |= {"resamples": settings["resamples"], "hypotheses": settings["hypotheses"], "strategies": list(summary["strategies"])}
    lines = [
        {
            "strategy": strategy, "operator": op, "seed": seed, "rows": [places[op][key] for key in tried[strategy, op, seed]],
            "evaluations": end["evaluations"], "training_s": end["training_s"],
        }
        for (strategy, op, seed), end in sorted(of_job.items())
    ]  # fmt: skip
    write_rows(folder / RAW / FILE, [plan, *lines])


def write(folder: Path, facts: Facts, recordings: Path = RECORDINGS) -> list[str]:
    """Write the page and its figures; returns their names."""
    plan, *searches = read_rows(folder / RAW / FILE)
    scores = _scores(plan, searches, recordings)
    found = summarise(scores, tuple(plan["checkpoints"]), plan["reference"], plan["resamples"], plan["hypotheses"])
    found |= {name: plan[name] for name in ("fingerprint", "date")}
    for line in found["strategies"].values():
        line["overhead_s"] = None
    place = folder / FOLDER
    place.mkdir(exist_ok=True)
    figures = study_figures.draw(scores, found, plan["reference"], place, seconds=False)
    (place / PAGE).write_text(_page(scores, found, facts, figures), encoding="utf-8")
    return [f"{FOLDER}/{name}" for name in (PAGE, *figures)]


def _scores(plan: dict[str, Any], searches: Sequence[dict[str, Any]], recordings: Path) -> Scores:
    """The arrays of the study, from its rows."""
    hw = hardware.get(plan["hardware"])
    backend, length, seeds = RecordedBackend(recordings / hw.name), int(plan["trials"]), tuple(plan["seeds"])
    ops = [operators.parse(text) for text in dict.fromkeys(row["operator"] for row in searches)]
    truths = {str(op): Truth(op, hw, plan["space"], backend) for op in ops}
    records = {str(op): read_table(recordings / hw.name / f"{file_name(op)}.parquet").records for op in ops}
    by_search = {(row["strategy"], row["operator"], row["seed"]): row for row in searches}
    curves = {}
    for name in plan["strategies"]:
        rows = [by_search[name, str(op), seed] for op in ops for seed in seeds]
        tried = [[records[row["operator"]][i] for i in row["rows"]] for row in rows]
        regret = [truths[r["operator"]].curve([t.schedule for t in ts], length) for r, ts in zip(rows, tried, strict=True)]
        seconds = [statistics.best_so_far([t.measurement.seconds for t in ts] or [np.inf], length) for ts in tried]
        ends = [
            Outcome(DONE, trials=len(row["rows"]), evaluations=row["evaluations"], training_s=row["training_s"]) for row in rows
        ]
        shape = (len(ops), len(seeds), length)
        curves[name] = Curves(np.reshape(regret, shape), np.reshape(seconds, shape), np.zeros(shape), tuple(ends))
    facts = {name: str(plan[name]) for name in ("hardware", "device", "space", "trials")} | {"stamp": Stamp.REPLICATED}
    chance = np.stack([truths[str(op)].chance(length) for op in ops])
    return Scores(facts, tuple(map(str, ops)), seeds, tuple(truths[str(op)].regrets for op in ops), curves, chance, {})


def _page(scores: Scores, found: dict[str, Any], facts: Facts, figures: list[str]) -> str:
    """What is said first, a table by operator, then the page of every study."""
    title, _, rest = study_report.markdown(found, figures).partition("\n")
    lines = [
        f"{title} on times of an H100", "", facts.head, "",
        "Searches are answered from the recorded tables (`backend=recorded`, `hardware=h100`); nothing was timed for them. Plan "
        "and hypotheses: `conf/experiment/recorded_h100.yaml`, written before the searches were run.", "",
        _scope(scores), "", WORDS, "",
        f"The model's own first choice (`{MODEL}` after 1 trial) leaves {_percents(scores.curves[MODEL].regret[..., 0])}; one "
        f"program drawn at random leaves {_percents(scores.chance[:, 0])} in expectation (operators in the order below).", "",
        "## By operator", "", "Mean over the seeds of the regret after 8, 32 and 128 trials. The interquartile means further "
        "down leave out a strategy's best and worst operators: they stand here.", "",
        *_by_operator(scores, (8, 32, 128)), rest,
    ]  # fmt: skip
    return "\n".join(lines)


def _scope(scores: Scores) -> str:
    """What the tasks are, and what follows of it."""
    parts = Counter(operators.part_of(operators.parse(task)) for task in scores.tasks)
    said = ", ".join(f"{count} are of the {part} part" for part, count in parts.items())
    least = min(len(regrets) for regrets in scores.regrets)
    return (
        f"**Of the {len(scores.tasks)} operators {said}**; the smallest space has {least} programs. Nothing here says how a "
        "strategy does on other operators, and with so few tasks no difference can be significant by the sign-flip test."
    )


def _by_operator(scores: Scores, checkpoints: tuple[int, ...]) -> list[str]:
    """A line for each strategy, a column for each operator."""
    at = [k - 1 for k in checkpoints]

    def cells(values: np.ndarray) -> tuple[str, ...]:
        return tuple(" / ".join(f"{100 * v:.1f}" for v in line) + " %" for line in values)

    rows = [(name, *cells(curves.regret[..., at].mean(axis=1))) for name, curves in scores.curves.items()]
    rows.append((study_report.CHANCE, *cells(scores.chance[:, at])))
    return table(("strategy", *(f"`{task}`" for task in scores.tasks)), rows)


def _percents(regrets: np.ndarray) -> str:
    """Regrets of the operators, means over what else there is."""
    return ", ".join(f"{100 * value:.0f} %" for value in regrets.reshape(len(regrets), -1).mean(axis=1))


def _places(text: str, machine: str) -> dict[bytes, int]:
    """Place of every program in an operator's shipped table."""
    records = read_table(RECORDINGS / machine / f"{file_name(operators.parse(text))}.parquet").records
    return {program_key(Schedule.parse(record.schedule)): i for i, record in enumerate(records)}
