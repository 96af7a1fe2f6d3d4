"""Compare strategies under equal budgets: `python -m experiments.compare operator=... strategy=[markov,ppo] ...`.

Every (operator, seed, strategy) is a job: a search in a session with a shared store of timings. `agents.runs.settings` gives all
jobs the same budget. A command that was interrupted, even killed, resumes when it is started again. At the end the winners of all
strategies are timed again together, interleaved with torch, and only those times are compared.
"""

from __future__ import annotations

import dataclasses
import json
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from agents.cli.command import command_line, configured, say_where
from agents.cli.hydra_folder import keep_configuration, sweep_name, task_folder, task_number
from agents.cli.parent import end_with_launcher
from agents.cli.refusal import refusals
from agents.cli.tracking import tracking_of
from agents.runs.files import write_text
from agents.runs.jobs import DONE, Jobs, Outcome, unguided
from agents.runs.settings import Job, Settings, settings_of, short_hash
from agents.training.tracking.wandb_run import check_login, hint
from experiments.comparison import table
from experiments.comparison.retime import Comparison, Retimer
from experiments.comparison.summary import label_of, score, summarise, torch_before
from gensor_gym.foreign import read_json
from gensor_gym.graph.schedule import Schedule
from gensor_gym.measure.session import TraceRow

NOTES, TASKS = "task-*.json", "tasks"
"""Pattern of the names of the notes that a multirun's tasks leave for `sweep.py`; name of the folder of the tasks' folders."""


def compare(
    settings: Settings, jobs: Jobs, console: Console, known: Mapping[str, Outcome] | None = None, brief: bool = False
) -> dict[str, object]:
    """Run the jobs (searches) that have not finished, time all winners again together, write all results, return the summary.

    `known` has outcomes, by job key, of jobs that need not run. With `brief` only failed searches print a line.
    """
    outcomes = {job.key: found for job in settings.jobs if (found := jobs.finished(job)) is not None} | dict(known or {})
    if len(outcomes) == len(settings.jobs) and (written := _written(settings)) is not None:
        if not brief:
            console.print("Everything was done before; nothing runs.")
        return written
    for said in [] if brief else filter(None, map(unguided, {job.strategy: job for job in settings.jobs}.values())):
        console.print(said, style="yellow", highlight=False, soft_wrap=True, markup=False)
    if outcomes and not known and not brief:
        console.print(f"{len(outcomes)} of {len(settings.jobs)} searches were done before.")
    _search(settings, jobs, outcomes, console, brief)
    comparisons = _retime(settings, outcomes, console)
    statuses = {job.key: [str(row["status"]) for row in jobs.results.rows(job)] for job in settings.jobs}
    summary = summarise(settings, outcomes, statuses, comparisons, torch_before(settings, comparisons))
    trials = [row for job in settings.jobs for row in jobs.results.rows(job)]
    tracked = _write(settings, summary, trials, console)
    if tracked is not None and not brief:
        console.print(hint(tracked), highlight=False, soft_wrap=True, markup=False)
    return summary


def _search(settings: Settings, jobs: Jobs, outcomes: dict[str, Outcome], console: Console, brief: bool) -> None:
    """Run the jobs that have no outcome yet, show their progress, and add their outcomes to `outcomes`."""
    todo = [job for job in settings.jobs if job.key not in outcomes]
    columns = (
        SpinnerColumn(), TextColumn("{task.description}"), BarColumn(bar_width=24), MofNCompleteColumn(),
        TimeElapsedColumn(), TextColumn("{task.fields[best]}"),
    )  # fmt: skip
    with Progress(*columns, console=console, transient=True) as progress:
        whole = progress.add_task("searches", total=len(todo), best="")
        for job in {job.strategy: job for job in todo}.values():
            progress.update(whole, description=f"getting {job.strategy} ready")
            jobs.warm_up(job)
        progress.update(whole, description="searches")
        for job in todo:
            outcomes[job.key] = _run(job, jobs, progress)
            if not brief or outcomes[job.key].status != DONE:
                console.print(_line(job, outcomes[job.key]), highlight=False, soft_wrap=True)
            progress.advance(whole)


def _run(job: Job, jobs: Jobs, progress: Progress) -> Outcome:
    bar = progress.add_task(f"{job.strategy} on {job.operator}", total=job.budget.trials, best="")
    best = float("inf")

    def on_trial(row: TraceRow) -> None:
        nonlocal best
        best = min(best, row.seconds)
        progress.update(bar, advance=1, best=table.seconds_text(best) if best < float("inf") else "")

    outcome = jobs.run(job, on_trial)
    progress.remove_task(bar)
    return outcome


def _line(job: Job, outcome: Outcome) -> str:
    name = f"[bold]{escape(job.strategy)}[/] seed {job.seed} on {escape(str(job.operator))}"
    if outcome.status != DONE:
        return f"[yellow]{outcome.status}[/] {name}: {escape(outcome.error)}"
    return f"{name}: {table.seconds_text(outcome.seconds)} after {outcome.trials} trials, {outcome.elapsed_s:.1f} s"


def _retime(settings: Settings, outcomes: dict[str, Outcome], console: Console) -> dict[str, Comparison]:
    folder, processes = settings.output / "comparisons", settings.processes
    retimer = Retimer(settings.backend, settings.jobs[0].hardware, settings.rounds, folder, processes=processes)
    found = {}
    for op in dict.fromkeys(job.operator for job in settings.jobs):
        winners = {
            label_of(job, settings): (Schedule.parse(end.schedule), end.seconds)
            for job in settings.jobs
            if job.operator == op and (end := outcomes[job.key]).seconds is not None
        }
        with console.status(f"timing the winners on {op} together"):
            found[str(op)] = retimer.compare(op, winners)
    return found


def _write(settings: Settings, summary: dict, trials: list[dict], console: Console) -> Path | None:
    """Write the summary, tables and figures, and track the comparison in W&B.

    Return the folder of the comparison's W&B run, or None if it is not tracked.
    """
    from experiments.comparison import figures
    from experiments.comparison import tracking as comparison

    with console.status("writing summary and figures"):
        names = figures.draw(summary, trials, settings.output) if settings.figures else []
        write_text(settings.output / "summary.md", table.markdown(summary, names))
        table.of_all(summary).write_csv(settings.output / "summary.csv")
        summary["jobs"] = short_hash([job.key for job in settings.jobs])
        write_text(settings.output / "summary.json", json.dumps(summary, indent=1, default=str))
        if settings.config.get("tensorboard"):
            comparison.draw_events(settings, trials)
        return comparison.track(settings, summary, trials, names)


def _written(settings: Settings) -> dict[str, object] | None:
    """Return the summary in the output folder if it is complete and about exactly these jobs; otherwise None."""
    path = settings.output / "summary.json"
    if not path.exists():
        return None
    summary = read_json(path, finite=False)
    same = summary.get("jobs") == short_hash([job.key for job in settings.jobs])
    drawn = not settings.figures or (settings.output / "speedup.png").exists()
    return summary if same and drawn and summary["config"] == settings.config else None


def own_folder(settings: Settings, config: DictConfig) -> Settings:
    """Return settings with an output folder that no other task of the Hydra multirun uses; unchanged outside a multirun.

    The folder is below `output`, unless `output` itself differs by task (`${..}`). A task times its winners in one process,
    because the winners of all tasks are timed again at the end.
    """
    if task_folder() is None:
        return settings
    settings = dataclasses.replace(settings, group=sweep_name(), processes=1)
    written: Any = OmegaConf.to_container(config, resolve=False)
    if written["output"] is None or "${" in str(written["output"]):
        return settings
    name = short_hash([{**job.config, "code": ""} for job in settings.jobs])
    return dataclasses.replace(settings, output=settings.output / TASKS / name)


def leave_note(settings: Settings) -> None:
    """If this is a task of a multirun, write a note that tells where its results are, for the common table at the end."""
    if (folder := task_folder()) is not None:
        places = {"output": str(settings.output.resolve()), "store": str(settings.store.resolve())}
        note = {"config": settings.config, "group": settings.group, **places}
        write_text(folder / f"task-{task_number()}.json", json.dumps(note))


@configured("config")
def run(config: DictConfig) -> float:
    """Run the comparison of one configuration and return its `score`, which a Hydra sweeper minimises.

    With --multirun, Hydra calls it once for each task.
    """
    end_with_launcher()
    console, begin = Console(), time.perf_counter()
    one_of_several = task_folder() is not None
    with refusals():
        settings = own_folder(settings_of(config), config)
        check_login(tracking_of(config.wandb))
        jobs = Jobs(settings.backend, settings.store, settings.output)
        keep_configuration(settings.output, config)
        leave_note(settings)
        summary = compare(settings, jobs, console, brief=one_of_several)
        if not one_of_several:  # the table of a multirun comes at its end
            table.show(console, summary)
    say_where(console, begin, settings.output)
    if all(jobs.finished(job) is None for job in settings.jobs):
        console.print("No search was done; the page says why.", style="red")
        if not one_of_several:
            sys.exit(1)
    jobs.close()
    return score(summary)


def main() -> None:
    """Run the command line."""
    command_line(run)
