"""Compare strategies under equal budgets: `python -m experiments.compare operator=... strategy=[markov,ppo] ...`.

Every (operator, seed, strategy) is a job: a search in a session with a shared store of timings. A command that was
stopped, however hard, continues where it was when it is given again. At the end the winners of all strategies are timed
again together, interleaved with torch, and only those times are compared.
"""

from __future__ import annotations

import json
import sys
import time

import hydra
from omegaconf import DictConfig
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from experiments.commands.arguments import CONF
from experiments.commands.command import command_line, refusals, say_where
from experiments.common.jobs import DONE, Jobs, Outcome
from experiments.common.results import write_text
from experiments.common.settings import Job, Settings, settings_of, short_hash
from experiments.comparison import table
from experiments.comparison.retime import Comparison, Retimer
from experiments.comparison.summary import label_of, summarise
from gensor_gym.graph.schedule import Schedule
from gensor_gym.measure.session import TraceRow


def compare(settings: Settings, jobs: Jobs, console: Console) -> dict[str, object]:
    """Run what is not done yet, and write everything; returns the summary."""
    outcomes = {job.key: found for job in settings.jobs if (found := jobs.finished(job)) is not None}
    if len(outcomes) == len(settings.jobs) and (known := _written(settings)) is not None:
        console.print("Everything was done before; nothing runs.")
        return known
    _search(settings, jobs, outcomes, console)
    comparisons = _retime(settings, outcomes, console)
    statuses = {job.key: [str(row["status"]) for row in jobs.results.rows(job)] for job in settings.jobs}
    summary = summarise(settings, outcomes, statuses, comparisons)
    trials = [row for job in settings.jobs for row in jobs.results.rows(job)]
    _write(settings, summary, trials, console)
    return summary


def _search(settings: Settings, jobs: Jobs, outcomes: dict[str, Outcome], console: Console) -> None:
    """Run the jobs without an outcome; fills `outcomes`."""
    todo = [job for job in settings.jobs if job.key not in outcomes]
    if len(todo) < len(settings.jobs):
        console.print(f"{len(settings.jobs) - len(todo)} of {len(settings.jobs)} searches were done before.")
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
            console.print(_line(job, outcomes[job.key]), highlight=False, soft_wrap=True)
            progress.advance(whole)


def _run(job: Job, jobs: Jobs, progress: Progress) -> Outcome:
    """One search with a bar of its own."""
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
    """One finished search in words."""
    name = f"[bold]{job.strategy}[/] seed {job.seed} on {job.operator}"
    if outcome.status != DONE:
        return f"[yellow]{outcome.status}[/] {name}: {outcome.error}"
    return f"{name}: {table.seconds_text(outcome.seconds)} after {outcome.trials} trials, {outcome.elapsed_s:.1f} s"


def _retime(settings: Settings, outcomes: dict[str, Outcome], console: Console) -> dict[str, Comparison]:
    """Comparisons by operator text."""
    retimer = Retimer(settings.backend, settings.jobs[0].hardware, settings.rounds, settings.output / "comparisons")
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


def _write(settings: Settings, summary: dict, trials: list[dict], console: Console) -> None:
    """Summary, figures, W&B run."""
    from experiments.comparison import figures, tracking

    with console.status("writing summary and figures"):
        names = figures.draw(summary, trials, settings.output) if settings.figures else []
        write_text(settings.output / "summary.md", table.markdown(summary, names))
        table.of_all(summary).write_csv(settings.output / "summary.csv")
        run = tracking.track(settings.wandb_mode, settings.wandb_project, summary, trials, names, settings.output)
        summary["jobs"] = short_hash([job.key for job in settings.jobs])
        write_text(settings.output / "summary.json", json.dumps(summary, indent=1, default=str))
    if run is not None:
        console.print(tracking.hint(run), highlight=False, soft_wrap=True)


def _written(settings: Settings) -> dict[str, object] | None:
    """The summary of the very same jobs, all of them done, if it stands in the folder with its figures."""
    path = settings.output / "summary.json"
    if not path.exists():
        return None
    summary = json.loads(path.read_text(encoding="utf-8"))
    same = summary.get("jobs") == short_hash([job.key for job in settings.jobs])
    drawn = not settings.figures or (settings.output / "speedup.png").exists()
    return summary if same and drawn and summary["config"] == settings.config else None


@hydra.main(version_base="1.3", config_path=str(CONF), config_name="config")
def run(config: DictConfig) -> None:
    """One configuration (of several, with --multirun)."""
    console = Console()
    begin = time.perf_counter()
    with refusals(console, ValueError):
        settings = settings_of(config)
        jobs = Jobs(settings.backend, settings.store, settings.output)
    summary = compare(settings, jobs, console)
    table.show(console, summary)
    say_where(console, begin, settings.output)
    if all(jobs.finished(job) is None for job in settings.jobs):
        console.print("No search was done; the page says why.", style="red")
        sys.exit(1)


def main() -> None:
    """Command line."""
    command_line(run)
