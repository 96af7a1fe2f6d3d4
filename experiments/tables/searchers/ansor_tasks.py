"""Ansor's task scheduler (figure 10): two networks tuned at once under one budget of trials, with parts of Ansor left out.

These searches cover many tasks, so that they cannot be jobs of a study. Each search, a variant with a seed, has its own file, and
existing files are reused.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
from omegaconf import OmegaConf

from agents import optimize_tasks
from agents.ansor.ansor import Ansor
from agents.ansor.task_scheduler import GradientScheduler, RoundRobin, geometric_speedup
from agents.cli.arguments import compose
from agents.runs.files import write_text
from agents.runs.settings import code_digest, short_hash
from experiments.common import statistics
from experiments.tables.searchers.studies import RESAMPLES, draw_speeds, with_interval
from experiments.tables.table import Cell, Stamp, Table
from gensor_gym import hardware, operators
from gensor_gym.construction import ConstructionGraph
from gensor_gym.fingerprint import common, fingerprints
from gensor_gym.foreign import read_json
from gensor_gym.measure.stats.intervals import LEVEL
from gensor_gym.operators.types import Operator

NAME = "ansor_tasks"
SCHEDULERS = {"gradient": GradientScheduler, "round_robin": RoundRobin}
SHARES = (0.25, 0.5, 1.0)
"""Shares of the trials after which speeds are reported."""
LABELS = {
    "full": "Ansor, full", "no_task_scheduler": "No task scheduler", "limited_space": "Limited space",
    "no_fine_tuning": "No fine-tuning",
}  # fmt: skip
PUBLISHED = {
    "full": "best", "no_task_scheduler": "below full", "limited_space": "worst at the end", "no_fine_tuning": "below AutoTVM",
}
NOTES = (
    "Published (figure 10): MobileNet-V2 and ResNet-50 together on an Intel CPU, measured; geometric mean of both networks' "
    "speed-ups over AutoTVM against trials. Numbers are in an image and not at hand; the order at the end is.",
    "Ours: ResNet-18's convolutions with their appearances and MobileNet's depthwise ones, since whole networks of the paper "
    "hold operators that do not exist here. Speed: geometric mean of both networks' speed-ups, over the best of all at any time.",
)  # fmt: skip


def make(folder: Path, overrides: Sequence[str]) -> Table:
    """Run the missing searches and make the table with its figure."""
    config = compose([f"experiment={NAME}", *overrides], name="study")
    plain: Any = OmegaConf.to_container(config, resolve=True)
    tasks, seeds = plain["tasks"], plain["seed"] if isinstance(plain["seed"], list) else [plain["seed"]]
    curves = {name: np.array([[_search(plain, name, seed, folder / NAME) for seed in seeds]]) for name in tasks["variants"]}
    best = max(float(values.max()) for values in curves.values())
    curves = {name: values / best for name, values in curves.items()}
    at = [max(0, round(share * tasks["trials"]) - 1) for share in SHARES]
    rows: list[tuple[Cell, ...]] = [
        (LABELS.get(name, name), *(_cell(values[..., k]) for k in at), PUBLISHED.get(name)) for name, values in curves.items()
    ]
    columns = ("variant", *(f"speed after {k + 1} trials, ours" for k in at), "published at the end")
    x = np.arange(_born(curves), tasks["trials"])
    shown = {LABELS.get(name, name): values[..., x] for name, values in curves.items()}
    figure = draw_speeds({"two networks": shown}, folder / f"{NAME}.png", (x + 1).tolist())
    conditions = (
        f"Ours: model of {plain['hardware']}, space {plain['space']}, {tasks['trials']} trials for "
        f"{sum(map(len, tasks['networks'].values()))} tasks, {len(seeds)} seeds; {LEVEL} intervals of a bootstrap over seeds."
    )
    notes = (conditions, *verdicts(curves, tasks), *NOTES)
    title = "Ansor, figure 10 on the model of a CPU: the task scheduler"
    return Table(title, Stamp.PREDICTED, columns, tuple(rows), notes, (figure,))


def verdicts(curves: dict[str, np.ndarray], tasks: dict[str, Any]) -> list[str]:
    """Return a sentence for each hypothesis, from paired ratios over the seeds at the end.

    Intervals decide, without correction for several hypotheses.
    """
    lines = []
    for name, said in tasks["hypotheses"].items():
        ratios = np.log(curves[name][..., -1] / curves[tasks["reference"]][..., -1])
        low, high = statistics.bootstrap(lambda r: float(r.mean()), ratios, resamples=RESAMPLES)
        seen = "worse" if high < 0 else "better" if low > 0 else "same"
        found = "not told apart" if seen == "same" else "as expected" if seen == said["direction"] else "the opposite"
        ends = ", ".join(f"{np.exp(v):.3f}" for v in (float(low), float(high)))
        lines.append(
            f"{name} against {tasks['reference']}: expected {said['direction']}, because {said['because']}. Found: {found}, "
            f"{np.exp(ratios.mean()):.3f} times the speed [{ends}]."
        )
    return lines


def _born(curves: dict[str, np.ndarray]) -> int:
    """Return the index of the first trial at which every search has a program for every task."""
    return int(max((values > 0).argmax(axis=2).max() for values in curves.values()))


def _cell(values: np.ndarray) -> str:
    """Return a table cell with the median of speeds [1, seeds] and its interval.

    It is a dash if a search still lacks a program for some task.
    """
    if not values.all():
        return "-"
    return with_interval(values, statistic=lambda of: float(np.median(of)))


def _search(plain: dict[str, Any], variant: str, seed: int, folder: Path) -> list[float]:
    """Return the speed of one search after each trial, from its file or by running it.

    The speed is minus the objective, and 0 until every task has a program.
    """
    tasks = plain["tasks"]
    given = dict(tasks["variants"][variant])
    ops = _operators(tasks)
    about = {
        "networks": tasks["networks"], "ansor": plain["strategies"]["ansor"], "trials": tasks["trials"], "given": given,
        "seed": seed, "hardware": plain["hardware"], "space": plain["space"], 
        "fingerprint": common(fingerprints(ops, plain["hardware"], plain["space"]).values()),
        "code": code_digest(),
    }  # fmt: skip
    path = folder / f"{variant}_{seed}_{short_hash(about)}.json"
    if not path.exists():
        write_text(path, json.dumps({"about": about, "speed": _speeds(plain, dict(given), seed)}))
    found: list[float] = read_json(path)["speed"]
    return found


def _names(tasks: dict[str, Any]) -> list[str]:
    return list(dict.fromkeys(name for network in tasks["networks"].values() for name in network))


def _operators(tasks: dict[str, Any]) -> list[Operator]:
    return [operators.resolve_one(f"autotvm/{name}") for name in _names(tasks)]


def _speeds(plain: dict[str, Any], given: dict[str, Any], seed: int) -> list[float]:
    tasks = plain["tasks"]
    names, ops = _names(tasks), _operators(tasks)
    weights = np.array([[float(network.get(name, 0)) for name in names] for network in tasks["networks"].values()])
    scheduler = SCHEDULERS[given.pop("scheduler")]
    known = {field.name for field in fields(Ansor)}
    base = {key: value for key, value in plain["strategies"]["ansor"].items() if key in known}
    strategy = Ansor(**{**base, **given, "space": plain["space"]})
    objective = geometric_speedup(weights, weights @ _baseline(ops, plain))
    found = optimize_tasks(
        ops, plain["hardware"], tasks["trials"], strategy=strategy, objective=objective, scheduler=scheduler, seed=seed,
        backend=plain["backend"],
    )  # fmt: skip
    speed: list[float] = []
    for value, trials in zip(found.objective, found.trials, strict=True):
        speed += [speed[-1] if speed else 0.0] * (trials - len(speed))
        speed[-1] = 0.0 if np.isinf(value) else -value
    return (speed + [speed[-1]] * tasks["trials"])[: tasks["trials"]]


def _baseline(ops: list[Any], plain: dict[str, Any]) -> np.ndarray:
    """Return the seconds of the tasks' unscheduled programs, which only set the scale of the speed-ups."""
    hw = hardware.get(plain["hardware"])
    graphs = [ConstructionGraph(op, hw, plain["space"]) for op in ops]
    return np.array([graph.latency(graph.initial()) for graph in graphs])
