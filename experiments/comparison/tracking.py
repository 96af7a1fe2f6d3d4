"""The run as Weights & Biases sees it: offline by default, so that neither network nor login is needed."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def track(
    mode: Any, project: str, summary: dict, trials: Sequence[dict], figures: Sequence[str], folder: Path
) -> Path | None:
    """Log trials, summary and figures as one run in `folder`; returns the run's folder, None when `disabled`."""
    if mode == "disabled":
        return None
    run = _begin(mode, project, summary["config"], folder)
    import wandb

    _log_trials(run, trials)
    run.log({"summary": _table(summary["rows"]), **{Path(name).stem: wandb.Image(str(folder / name)) for name in figures}})
    for line in summary["strategies"]:
        for name in ("over_torch", "gap_to_best", "construction_s", "trials"):
            run.summary[f"{line['strategy']}/{name}"] = line[name]
    return _end(run)


def track_training(
    config: dict[str, Any], curve: Sequence[dict], validation: Sequence[dict], scores: dict, folder: Path
) -> Path | None:
    """Log a training's curves and scores as one run in `folder`; returns the run's folder, None when `disabled`."""
    mode = config["wandb"]["mode"]
    if mode == "disabled":
        return None
    run = _begin(mode, config["wandb"]["project"], config, folder)
    run.define_metric("*", step_metric="steps")
    for row in sorted([*curve, *validation], key=lambda row: row["steps"]):
        run.log(dict(row))
    run.summary.update(scores)
    return _end(run)


def _begin(mode: Any, project: str, config: dict, folder: Path) -> Any:
    """A run in `folder`."""
    os.environ.setdefault("WANDB_SILENT", "true")
    import wandb

    settings = wandb.Settings(console="off", disable_git=True, disable_code=True, x_disable_stats=True)
    return wandb.init(mode=mode, project=project, dir=str(folder), name=folder.name, config=config, settings=settings)


def _end(run: Any) -> Path:
    """Finish a run; its folder."""
    path = Path(run.dir).parent
    run.finish()
    return path


def _table(rows: Sequence[dict]) -> Any:
    """One line for each job; of ratios and times the medians."""
    import wandb

    names = (
        "operator", "strategy", "seed", "status", "retimed", "over_torch", "gap_to_best", "construction_s", "evaluations",
    )  # fmt: skip
    table = wandb.Table(columns=["seconds" if name == "retimed" else name for name in names])
    for row in rows:
        values = (row[name] for name in names)
        table.add_data(*(value["median"] if isinstance(value, dict) else value for value in values))
    return table


def _log_trials(run: Any, trials: Sequence[dict]) -> None:
    """Every trial with its best so far, on an axis of its own: the trial's number within its search."""
    best: dict[tuple, float] = {}
    run.define_metric("trial")
    for row in trials:
        search = (row["operator"], row["strategy"], row["seed"])
        name = f"{row['operator']}/{row['strategy']}/{row['seed']}"
        if search not in best:
            run.define_metric(f"{name}/*", step_metric="trial")
        best[search] = min(
            best.get(search, float("inf")), row["seconds"] if row["seconds"] is not None else float("inf")
        )
        values = {"trial": row["trial"], f"{name}/elapsed_s": row["elapsed_s"], f"{name}/status": row["status"]}
        if best[search] < float("inf"):
            values[f"{name}/best_s"] = best[search]
        if row["seconds"] is not None:
            values[f"{name}/seconds"] = row["seconds"]
        run.log(values)


def hint(path: Path | None) -> str:
    """What to do with an offline run."""
    return "" if path is None else f"W&B run: {path} (wandb sync {path} uploads it)"
