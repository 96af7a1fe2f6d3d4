"""Choose the values of a search for its budget: random settings, halved on train, and a final choice on validation.

`python -m experiments tune_budgets choices=markov` writes outputs/tune/markov_budgets.json; conf/_choices.yaml
has other strategies. Values are chosen separately for budgets of evaluations and of processor seconds. A setting is one search
(`agents.runs.anytime`), restarted until its budget is spent. Its curve gives its score at every requested amount, and the
best setting is taken for each amount. The score is the mean regret over tasks to the certified optimum, or, if none ships, to the
best of any setting. Operators of the test part are refused.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from omegaconf import DictConfig, OmegaConf
from rich.console import Console

from agents.cli.command import command
from agents.runs.anytime import Search
from agents.runs.files import make_folder, write_text
from agents.runs.journal import Journal
from agents.runs.lines import run_missing
from agents.runs.settings import short_hash
from agents.runs.sheets.cells import percent
from agents.runs.sheets.sheet import Sheet
from experiments.benches.lines import machine
from experiments.studies.generalise.plan import EVALUATIONS, SECONDS, modelled
from experiments.studies.scores import EVALUATIONS as BY_COUNT
from experiments.studies.scores import SECONDS as BY_TIME
from experiments.studies.scores import best_at
from experiments.tuning.settings import Values, distinct, operators_of, spread_over
from gensor_gym.construction import ConstructionGraph
from gensor_gym.exact import Certificate
from gensor_gym.exact.shipped import certificate_of


@dataclass(frozen=True)
class Tuning:
    """Choice of hyperparameters for one unit of the budget, with the journal of searches made so far."""

    config: DictConfig
    kept: Journal
    console: Console
    unit: str
    """Unit of the budget: EVALUATIONS (of the model) or SECONDS (of processor time)."""

    @property
    def amounts(self) -> np.ndarray:
        """Amounts of the budget; hyperparameters are chosen for each."""
        return np.array(list(self.config.counts if self.unit == EVALUATIONS else self.config.seconds))

    def scores(self, settings: Sequence[Values], tasks: Sequence[str], seeds: int) -> np.ndarray:
        """Run the searches that are missing; return the mean regret of every setting at every amount, [settings, amounts]."""
        config, env, amounts = self.config, self.config.env, self.amounts
        spent = (int(amounts.max()), 0.0) if self.unit == EVALUATIONS else (1, float(amounts.max()))
        wanted = [
            Search(short_hash(values), config.strategy, values, task, env.hardware, env.space, seed, *spent)
            for values in settings for task in tasks for seed in range(seeds)
        ]  # fmt: skip
        rows = run_missing(wanted, self.kept, config.processes, self.console)
        lines = np.empty((len(rows), 1), dtype=object)
        lines[:, 0] = rows
        first = [row["curve"][1][0] for row in rows]  # also for amounts below the first program's cost
        latencies = best_at(lines, first, amounts, BY_COUNT if self.unit == EVALUATIONS else BY_TIME)
        latencies = latencies.reshape(len(settings), len(tasks), seeds, len(amounts))
        best = np.array([self._best(task, latencies[:, t]) for t, task in enumerate(tasks)])
        found: np.ndarray = np.log(latencies / best[:, None, None]).mean(axis=(1, 2))
        return found

    def _best(self, task: str, latencies: np.ndarray) -> float:
        """Return the latency to which a task's regrets are relative: the certified optimum, or the least of `latencies`."""
        certificate = self.certificate(task)
        return float(latencies.min()) if certificate is None else certificate.optimum

    def certificate(self, task: str) -> Certificate | None:
        """Return the shipped certificate of a task; None if none ships."""
        return certificate_of(ConstructionGraph(task, self.config.env.hardware, self.config.env.space))


def tasks_of(part: str, count: int) -> list[str]:
    """Return `count` operators at even distances in a part, without elementwise maps; ValueError for the test part."""
    return spread_over([str(op) for op in operators_of(part) if op.name != "elementwise"], count)


def leading(settings: Sequence[Values], scores: np.ndarray, count: int) -> list[Values]:
    """Return the `count` best settings for each amount (a column of scores), without duplicates."""
    order = np.argsort(scores, axis=0, kind="stable")[:count]
    return [settings[i] for i in dict.fromkeys(order.T.ravel().tolist())]


def tune(config: DictConfig, tuning: Tuning) -> dict[str, Any]:
    """Halve the settings on train operators and choose on validation ones.

    Return, by amount of the budget, the chosen hyperparameters and their regret, and the operators.
    """
    modelled(config.env.hardware)
    settings = distinct(config, np.random.default_rng(config.seed))
    for rung in config.rungs:
        tasks = tasks_of("train", rung.tasks)
        settings = leading(settings, tuning.scores(settings, tasks, 1), rung.kept)
    train, tasks = tasks, tasks_of("validation", config.final_tasks)
    scores = tuning.scores(settings, tasks, config.final_seeds)
    chosen, amounts = scores.argmin(axis=0), [f"{amount:g}" for amount in tuning.amounts]
    return {
        "values": {amount: settings[i] for amount, i in zip(amounts, chosen.tolist(), strict=True)},
        "regret": {amount: float(scores[i, k]) for k, (amount, i) in enumerate(zip(amounts, chosen, strict=True))},
        "certified": sum(tuning.certificate(task) is not None for task in tasks), "train": train, "validation": tasks,
    }  # fmt: skip


@command("tune_budgets")
def main(config: DictConfig, console: Console) -> None:
    """Choose a strategy's hyperparameters for budgets of evaluations and of processor seconds; write and print them."""
    output = make_folder(config.output)
    kept = Journal(output / f"{config.strategy}_budgets.lines.jsonl")
    by_count, by_time = (tune(config, Tuning(config, kept, console, unit)) for unit in (EVALUATIONS, SECONDS))
    result = {
        "strategy": config.strategy, "values": by_count.pop("values"), "values_within": by_time.pop("values"),
        "validation_regret": by_count.pop("regret"), "validation_regret_within": by_time.pop("regret"), **by_count,
        "hardware": config.env.hardware, "space": config.env.space,
        "config": OmegaConf.to_container(config), "machine": machine(),
    }  # fmt: skip
    path = output / f"{config.strategy}_budgets.json"
    write_text(path, json.dumps(result, indent=1) + "\n")
    rows = [
        (f"{amount}{unit}", percent(result[f"validation_regret{within}"][amount]), str(values))
        for within, unit in (("", ""), ("_within", " s")) for amount, values in result[f"values{within}"].items()
    ]  # fmt: skip
    sheet = Sheet.of("mean regret on validation", ("evaluations or seconds", "regret", "values"), rows)
    sheet.write(path.with_suffix(""))
    sheet.show(console)
    console.print(f"They are in {path}", soft_wrap=True, highlight=False, markup=False)
