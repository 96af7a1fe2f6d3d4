"""Choose the values of a traverser: successive halving over random settings on train, and a final choice on validation.

`python -m experiments tune tune=markov` draws settings from the choices in `conf/tune/`. Each rung keeps the better settings
and uses more operators of the train part. Among the last settings, the best on validation is chosen. Only the analytic model is
used, so that the result is the same on every machine. Operators of the test part are refused.

The score of a setting is the mean over tasks of log(latency / roofline floor), plus a weight times the share of tasks on which
the traverser is slower than Roller, because the traverser should not lose to Roller.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from omegaconf import DictConfig, OmegaConf
from rich.console import Console
from rich.progress import track

from agents import get_strategy
from agents.cli.checks import check_whole
from agents.cli.command import command
from agents.runs.files import make_folder, write_text
from agents.runs.journal import Journal
from agents.runs.settings import short_hash
from agents.runs.sheets.cells import Given, plain
from agents.runs.sheets.sheet import Sheet
from experiments.benches.lines import machine
from experiments.tuning.settings import Values, check_rungs, distinct, operators_of, spread_over
from gensor_gym.construction import ConstructionGraph
from gensor_gym.fingerprint import fingerprint


@dataclass(frozen=True)
class Task:
    """An operator on a machine, with Roller's latency in seconds as the baseline."""

    graph: ConstructionGraph
    baseline: float


def latency(strategy: str, values: Values, graph: ConstructionGraph, seed: int, kept: Journal) -> float:
    """Return the predicted seconds of the best program that the traverser constructs; `kept` stores known results.

    `values` are the traverser's hyperparameters.
    """
    key = short_hash([strategy, values, str(graph.operator), graph.hardware.name, graph.space, seed, fingerprint(graph)])
    if key not in kept.rows:
        found = get_strategy(strategy, **values).construct(graph, np.random.default_rng(seed))  # type: ignore[attr-defined]
        kept.add({"key": key, "latency_s": found.latencies[0]})
    return float(kept.rows[key]["latency_s"])


def tasks_of(part: str, config: DictConfig) -> list[Task]:
    """Return the operators of a part of the split on all machines of the configuration; ValueError for the test part."""
    roller: Any = get_strategy("roller")
    tasks = []
    for op in operators_of(part):
        for hw in config.hardware:
            baseline = roller.construct(ConstructionGraph(op, hw, roller.space), np.random.default_rng(0)).latencies[0]
            tasks.append(Task(ConstructionGraph(op, hw, config.space), baseline))
    return tasks


def score(latencies: np.ndarray, tasks: list[Task], behind: float) -> float:
    """Return the score of a setting from its latencies float64 [seeds, tasks]; smaller is better.

    The module's docstring defines it; `behind` is the weight of tasks on which the traverser is slower than Roller.
    """
    over_floor = np.log(latencies / np.array([task.graph.floor for task in tasks]))
    is_behind = latencies > np.array([task.baseline for task in tasks]) * (1 + 1e-9)
    return float(np.mean(over_floor) + behind * np.mean(is_behind))


def draw(config: DictConfig, rng: np.random.Generator) -> list[Values]:
    """Draw the distinct settings of the first round, all within the configured range of steps.

    Steps are summed over all walkers of a construction, also those that refine programs; they stand for its cost.
    """

    def fits(values: Values) -> bool:
        steps = values["walkers"] * values["steps"] + values["refiners"] * values["refine_steps"]
        return bool(config.least_steps <= steps <= config.most_steps)

    return distinct(config, rng, fits)


def ranked(
    settings: Iterable[Values], tasks: list[Task], seeds: range, config: DictConfig, kept: Journal, title: str
) -> list[tuple[float, Values]]:
    """Return (score, setting) of each setting on the tasks, best first."""
    found = []
    for values in track(list(settings), f"{title}: {len(tasks)} tasks", console=Console(stderr=True)):
        latencies = [[latency(config.strategy, values, task.graph, seed, kept) for task in tasks] for seed in seeds]
        found.append((score(np.array(latencies), tasks, config.behind), values))
    return sorted(found, key=lambda pair: pair[0])


@command("tune")
def main(config: DictConfig, console: Console) -> None:
    """Choose the values and write `<output>/<strategy>.json` with a table of the finalists."""
    check_rungs(config, "settings", "tasks")
    check_whole(config, 1, "finalists", "final_seeds")  # type: ignore[arg-type]
    output = make_folder(config.output)
    kept = Journal(output / f"{config.strategy}.scores.jsonl")
    train, validation = tasks_of("train", config), tasks_of("validation", config)
    settings, rungs = draw(config, np.random.default_rng(config.seed)), []
    for number, rung in enumerate(config.rungs):
        tasks = spread_over(train, rung.tasks)
        order = ranked(settings[: rung.settings], tasks, range(1), config, kept, f"rung {number + 1}")
        rungs.append({"tasks": len(tasks), "settings": len(order), "best_score": order[0][0]})
        settings = [values for _, values in order]
    finals = ranked(settings[: config.finalists], validation, range(config.final_seeds), config, kept, "validation")
    result = {
        "strategy": config.strategy, "values": finals[0][1], "validation_score": finals[0][0],
        "runners_up": [{"validation_score": value, "values": values} for value, values in finals[1:]],
        "rungs": rungs, "hardware": list(config.hardware), "space": config.space,
        "train": list(dict.fromkeys(str(t.graph.operator) for t in train)),
        "validation": list(dict.fromkeys(str(t.graph.operator) for t in validation)),
        "config": OmegaConf.to_container(config), "machine": machine(),
    }  # fmt: skip
    path = output / f"{config.strategy}.json"
    write_text(path, json.dumps(result, indent=1) + "\n")
    sheet = sheet_of(config.strategy, finals)
    sheet.write(output / config.strategy)
    sheet.show(console)
    console.print(f"The first one is in {path}", soft_wrap=True, highlight=False, markup=False)


def sheet_of(strategy: str, finals: Sequence[tuple[float, Values]]) -> Sheet:
    """Return a table of the finalists, best first."""
    rows: list[list[Given]] = [
        [str(place), plain(value), *map(plain, values.values())] for place, (value, values) in enumerate(finals, 1)
    ]
    return Sheet.of(f"{strategy}: score on validation, best first", ("place", "score", *finals[0][1]), rows)
