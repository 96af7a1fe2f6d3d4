"""A multirun is one comparison: it ends in a table over all its tasks, whose winners are re-timed together.

Every task is a comparison in its own folder, and leaves a note in the folder that Hydra gives it. At the end the results are
combined as if one command had listed all operators, strategies and seeds; nothing is searched again. This happens on the
machine that started the multirun, for any launcher, and needs the tasks' folders on that machine.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hydra.experimental.callback import Callback
from omegaconf import DictConfig, OmegaConf
from rich.console import Console

from agents.cli.refusal import refusals
from agents.runs.jobs import Jobs, Outcome
from agents.runs.journal import Row, read_rows
from agents.runs.settings import Job, Settings, settings_of
from experiments.comparison import table
from experiments.comparison.compare import NOTES, TASKS, compare
from gensor_gym.foreign import read_json
from gensor_gym.measure.session import TraceRow


@dataclass(frozen=True)
class Task:
    """One task of a multirun, a comparison: its settings, its outcomes by job key, and its rows of trials by job key."""

    settings: Settings
    outcomes: dict[str, Outcome]
    trials: dict[str, list[Row]]


class OneComparison(Callback):
    """Hydra callback that turns all tasks of a multirun into one comparison."""

    def on_multirun_start(self, config: DictConfig, **_: Any) -> None:
        """Delete the notes that tasks of an earlier multirun left in the same folder."""
        for path in Path(config.hydra.sweep.dir).rglob(NOTES):
            path.unlink()

    def on_multirun_end(self, config: DictConfig, **_: Any) -> None:
        """Compare all tasks of the multirun together; tasks of several machines, backends or devices get a table for each."""
        console, sweep = Console(), Path(config.hydra.sweep.dir)
        in_order = sorted(sweep.rglob(NOTES), key=lambda path: int(path.stem.partition("-")[2]))
        notes = [read_json(path, finite=False) for path in in_order]
        if not notes:
            return
        with refusals():
            groups = _groups(map(read_task, notes))
            for name, tasks in groups.items():
                folder = _common(notes) or sweep
                together(tasks, folder / name if len(groups) > 1 else folder, console)


def read_task(note: dict[str, Any]) -> Task:
    """Read a task's settings and results from the folder that its note names; ValueError if that is not on this machine."""
    output = Path(note["output"])
    settings = settings_of(OmegaConf.create(note["config"]))
    if not (output / "summary.json").exists():
        raise ValueError(f"no summary in {output}: a table over all tasks needs their folders on this machine")
    rows = read_json(output / "summary.json", finite=False)["rows"]
    found = {(row["operator"], row["strategy"], row["seed"]): _outcome(row) for row in rows}
    trials: dict[str, list[Row]] = defaultdict(list)
    for row in read_rows(output / "results.jsonl"):
        trials[row["job"]].append(row)
    outcomes = {job.key: found[str(job.operator), job.strategy, job.seed] for job in settings.jobs}
    settings = dataclasses.replace(settings, output=output, store=Path(note["store"]), group=note["group"])
    return Task(settings, outcomes, {job.key: trials.get(job.key, []) for job in settings.jobs})


def together(tasks: Sequence[Task], folder: Path, console: Console) -> dict[str, object]:
    """Compare the jobs of all tasks, without new searches; write the results to a folder, show them, and return the summary."""
    known: dict[str, Outcome] = {}
    named: dict[str, tuple[Job, list[Row]]] = {}
    for task, suffix in zip(tasks, _suffixes(tasks), strict=True):
        for job in task.settings.jobs:
            mine = dataclasses.replace(job, strategy=job.strategy + suffix.get(job.slot, ""))
            known[mine.key], named[mine.key] = task.outcomes[job.key], (mine, task.trials[job.key])
    tracking = {name: tasks[0].settings.config.get(name) for name in ("wandb", "tensorboard")}
    settings = dataclasses.replace(
        tasks[0].settings, jobs=_in_order([job for job, _ in named.values()]), output=folder,
        config={"tasks": [task.settings.config for task in tasks], **tracking},
    )  # fmt: skip
    jobs = Jobs(settings.backend, settings.store, folder)
    for key, (job, rows) in named.items():
        jobs.keep(job, [_trial(row) for row in rows], known[key], "")
    console.print(f"\n{len(tasks)} tasks together:")
    summary = compare(settings, jobs, console, known)
    jobs.close()
    table.show(console, summary)
    console.print(f"The results of all {len(tasks)} tasks together are in {folder}", soft_wrap=True, markup=False)
    return summary


def _groups(tasks: Iterable[Task]) -> dict[str, list[Task]]:
    """Group tasks that can be timed together: same machine, backend and device. Return the groups by name."""
    found: dict[tuple[str, str], dict[str, list[Task]]] = defaultdict(lambda: defaultdict(list))
    for task in tasks:
        first = task.settings.jobs[0]
        found[first.hardware.name, first.backend][first.device].append(task)
    return {
        "_".join((*names, *([str(number)] if number else []))): group
        for names, devices in found.items()
        for number, group in enumerate(devices.values())
    }


def _suffixes(tasks: Sequence[Task]) -> list[dict[tuple[Any, ...], str]]:
    """For each task, return what to append to the strategy names of its jobs, so that jobs of different tasks differ.

    The result is by job slot (operator, hardware, backend, strategy, seed). A suffix lists the settings in which jobs of this
    slot differ between tasks; it is empty if they all agree.
    """
    alike: dict[tuple[Any, ...], list[dict[str, Any]]] = defaultdict(list)
    for job in (job for task in tasks for job in task.settings.jobs):
        if (values := _values(job)) not in alike[job.slot]:
            alike[job.slot].append(values)

    def suffix(job: Job) -> str:
        values, others = _values(job), alike[job.slot]
        differing = [f"{name}={value}" for name, value in values.items() if any(one.get(name) != value for one in others)]
        return f"[{', '.join(differing)}]" if differing else ""

    return [{job.slot: suffix(job) for job in task.settings.jobs} for task in tasks]


def _values(job: Job) -> dict[str, Any]:
    """Return the settings in which two jobs of the same strategy and operator may differ: hyperparameters and budget."""
    return {**job.hyperparameters, **dataclasses.asdict(job.budget)}


def _in_order(jobs: Sequence[Job]) -> tuple[Job, ...]:
    """Sort the jobs by operator, seed and strategy, each in order of first appearance, as one command would list them."""
    places = [list(dict.fromkeys(values)) for values in zip(*((j.operator, j.seed, j.strategy) for j in jobs), strict=True)]
    return tuple(
        sorted(jobs, key=lambda job: (places[0].index(job.operator), places[1].index(job.seed), places[2].index(job.strategy)))
    )


def _common(notes: Sequence[dict[str, Any]]) -> Path | None:
    """Return the folder that contains the folders of all tasks, if their `output` was the same; otherwise None."""
    only, *others = {Path(note["output"]).parent for note in notes}
    return only.parent if not others and only.name == TASKS else None


def _outcome(row: Row) -> Outcome:
    names = {field.name for field in dataclasses.fields(Outcome)} - {"seconds"}
    return Outcome(**{name: row[name] for name in names}, seconds=row["searched_s"])


def _trial(row: Row) -> TraceRow:
    seconds = float("inf") if row["seconds"] is None else row["seconds"]
    return TraceRow(row["trial"], row["elapsed_s"], row["schedule"], seconds, row["status"], row["evaluations"])
