"""Track a comparison in W&B: a run for every job, all with the same metrics, and a run for the whole comparison.

A job's operator, strategy and seed are its configuration, so that runs can be filtered, grouped and averaged over any of them.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from agents.cli.tracking import tracking_of
from agents.runs.settings import Job, Settings, short_hash
from agents.training.tracking.wandb_run import WandbRun
from gensor_gym.construction import ConstructionGraph
from gensor_gym.graph.schedule import Schedule

COLUMNS = (
    "operator", "strategy", "seed", "status", "retimed", "over_torch", "gap_to_best", "construction_s", "evaluations", "schedule",
)  # fmt: skip
"""Columns of the W&B table `summary`; ratios and times are medians."""
FILES = ("summary.json", "summary.md", "results.jsonl")


def track(
    settings: Settings, summary: Mapping[str, Any], trials: Sequence[Mapping[str, Any]], figures: Sequence[str]
) -> Path | None:
    """Track a comparison in W&B: a run for each job, and one for the comparison. Return the folder of the latter, or None.

    The result is None if W&B is off. For the summary of a multirun only the comparison is tracked, because its tasks have already
    tracked their jobs.
    """
    options = tracking_of(settings.config["wandb"])  # type: ignore[arg-type]
    if not options.on:
        return None
    from gensor_gym.env.pictures.render import as_image

    group = options.group or settings.group or settings.output.name
    if "tasks" not in settings.config:
        rows = {(row["operator"], row["strategy"], row["seed"]): row for row in summary["rows"]}
        for job in settings.jobs:
            mine = [row for row in trials if row["job"] == job.key]
            row = rows[str(job.operator), job.strategy, job.seed]
            run = WandbRun(options, job.key, row["label"], group, _config(job), settings.output, "search").begin()
            run.axis("trial")
            run.log(metrics(mine))
            run.summary({**{name: _plain(row[name]) for name in COLUMNS[3:]}, "trials": row["trials"]})
            if settings.figures and row["schedule"]:
                graph = ConstructionGraph(job.operator, job.hardware, row["space"])
                run.pictures({"schedule": as_image(graph, Schedule.parse(row["schedule"]))})
            run.end()
    name = short_hash([job.key for job in settings.jobs])
    run = WandbRun(options, name, settings.output.name, group, settings.config, settings.output, "comparison").begin()
    head = ["seconds" if name == "retimed" else name for name in COLUMNS]
    run.table("summary", head, ([_plain(row[name]) for name in COLUMNS] for row in summary["rows"]))
    columns = ("strategy", "jobs", "timed", "over_torch", "gap_to_best", "construction_s", "evaluations", "trials")
    run.table("strategies", columns, ([line[name] for name in columns] for line in summary["strategies"]))
    run.pictures({Path(name).stem: settings.output / name for name in figures})
    run.artifact(f"comparison-{name}", "comparison", [settings.output / name for name in FILES])
    return run.end()


def draw_events(settings: Settings, trials: Sequence[Mapping[str, Any]]) -> None:
    """Write the metrics of every job for TensorBoard, in one folder per job below `output`/tensorboard; delete earlier ones."""
    from agents.training.tracking.tensorboard import TensorBoard

    folder = settings.output / "tensorboard"
    shutil.rmtree(folder, ignore_errors=True)  # TensorBoard only appends events
    for job in settings.jobs:
        board = TensorBoard(folder / f"{job.operator.name}_{job.strategy}_{job.seed}_{job.key[:6]}", axis="trial")
        board.text("job", json.dumps(_config(job), indent=1, default=str))
        board.log(metrics([row for row in trials if row["job"] == job.key]))
        board.close()


def metrics(trials: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the metrics of each trial of a job: number, status, seconds if it succeeded, best so far, time and evaluations."""
    best = float("inf")
    for row in trials:
        found = {name: row[name] for name in ("trial", "status", "elapsed_s", "evaluations")}
        if row["seconds"] is not None:
            best = min(best, row["seconds"])
            found["seconds"] = row["seconds"]
        yield found | ({"best_s": best} if best < float("inf") else {})


def _config(job: Job) -> dict[str, Any]:
    return {**job.config, "kind": job.operator.name, "arguments": dict(job.operator.arguments)}


def _plain(value: Any) -> Any:
    return value["median"] if isinstance(value, dict) and "median" in value else value
