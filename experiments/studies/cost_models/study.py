"""Compare cost models, and orders of recording: `python -m experiments cost_models` (conf/cost_models.yaml).

Every learner ranks the recorded programs of operators or classes that were held out of Measured v1. Then the recording is
replayed under budgets of programs, in random order and in an order chosen by uncertainty. No kernel is timed. The plan is
`results/cost_models/README.md`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from omegaconf import DictConfig, OmegaConf
from rich.console import Console

from agents.cli.checks import check_list, check_some, check_whole
from agents.runs.sheets.sheet import Sheet
from agents.runs.texts import now, p_text, page, table
from experiments.common.statistics import against
from experiments.studies.cost_models.figure import draw
from experiments.studies.cost_models.jobs import LEARNERS, SCORES, SPLITS, Replay, Training, work
from experiments.studies.cost_models.recording import ORDERS
from experiments.studies.scores import interval, mean, over
from experiments.studies.study import Plan, Row, Study, study_command
from gensor_gym.measure.records import measured
from gensor_gym.measure.stats.intervals import LEVEL
from gensor_gym.registry import check_known

Found = dict[str, Any]
"""Rows of all jobs: `ranked` by (split, machine), then learner, as lists [folds][seeds], and `replays`.

`replays` are by machine, then order, as lists [repeats].
"""
RANDOM = "operators_random"
"""Order of recording with which all other orders are compared."""
HEAD = ("rank correlation", "first choice", "best of 4", "best of 10")
PAIRS = {
    "sequence network less shipped trees": ("attention", "trees"), "loss, trees": ("trees_listwise", "trees"),
    "learner, features": ("network", "trees_listwise"), "learner, sequence": ("attention", "trees_sequence"),
    "input, trees": ("trees_sequence", "trees_listwise"), "input, networks": ("attention", "network"),
    "analytic model less shipped trees": ("model", "trees"),
}  # fmt: skip
"""Name of a comparison -> (learner, learner whose scores are subtracted)."""


class CostModels(Study[Plan, Found]):
    """Study of learned cost models on recorded times."""

    def __init__(self, config: DictConfig) -> None:
        """Resolve conf/cost_models.yaml; ValueError names an invalid setting."""
        plain: Any = OmegaConf.to_container(config, resolve=True)
        check_whole(plain, 1, "processes", "resamples", "repeats")
        check_whole(plain, 10, "operators", null=("operators",))
        check_list(plain, 0, "seeds")
        check_list(plain, 1, "budgets")
        check_some(plain, "held_out", "learners", "replayed", "orders")
        for name, known in {"held_out": SPLITS, "learners": LEARNERS, "orders": ORDERS}.items():
            for value in plain[name]:
                check_known(name, value, known)
        if set(plain["learners"]) != set(LEARNERS) or plain["orders"][0] != RANDOM:
            given = f"learners {[*plain['learners']]}, orders {plain['orders']}"
            raise ValueError(f"{given}: expected {LEARNERS}, and {RANDOM} first")
        replays = dict.fromkeys(plain["replayed"], plain["repeats"])
        for split, folds in (*plain["held_out"].items(), ("operators", replays)):
            check_whole(folds, 1, *folds, of=f"held_out.{split}")
            for machine, count in folds.items():
                check_known("machine of Measured v1", machine, measured.names("cpu"))
                if count > SPLITS[split]:
                    raise ValueError(f"{count} folds of {split} on {machine}: expected at most {SPLITS[split]}")
        super().__init__(Plan(plain))

    def run(self, console: Console) -> Found:
        """Run the missing trainings, then the missing replays, and return the rows of all."""
        plan, config = self.plan, self.plan.config
        places = {(split, machine): range(folds) for split, of in config["held_out"].items() for machine, folds in of.items()}
        trainings = [
            Training(machine, config["operators"], split, fold, seed, learner, given)
            for (split, machine), folds in places.items() for learner, given in config["learners"].items()
            for fold in folds for seed in plan.seeds
        ]  # fmt: skip
        replays = [
            Replay(machine, config["operators"], "operators", repeat, repeat, order, tuple(config["budgets"]))
            for machine in config["replayed"] for order in config["orders"] for repeat in range(config["repeats"])
        ]  # fmt: skip
        lines = iter(self.lines([*trainings, *replays], console, work))
        ranked = {
            place: {name: [[next(lines) for _ in plan.seeds] for _ in folds] for name in config["learners"]}
            for place, folds in places.items()
        }
        orders = {
            machine: {order: [next(lines) for _ in range(config["repeats"])] for order in config["orders"]}
            for machine in config["replayed"]
        }
        return {"ranked": ranked, "replays": orders}

    def summarise(self, found: Found) -> dict[str, Any]:
        """Return mean scores with intervals over operators, and paired differences of learners and of orders."""
        resamples = self.plan.resamples
        ranked: dict[str, Any] = {}
        for (split, machine), by in found["ranked"].items():
            values = {name: _by_operator(lines) for name, lines in by.items()}
            apart = {what: values[ours] - values[other] for what, (ours, other) in PAIRS.items()}
            ranked.setdefault(split, {})[machine] = {
                "operators": len(values["trees"]),
                "scores": {name: interval(mean, of, resamples) for name, of in values.items()},
                "apart": against(apart, np.zeros_like(values["trees"]), resamples, crossed=True),
                "seconds": {name: float(np.mean([one["seconds"] for of in by[name] for one in of])) for name in by},
                "seeds": {name: of.mean(axis=0).tolist() for name, of in values.items()},
            }
        replays = {machine: _replayed(by, resamples) for machine, by in found["replays"].items()}
        config = {name: self.plan.config[name] for name in ("seeds", "repeats", "budgets")}
        return {"ranked": ranked, "replays": replays, **config, "date": now()[:10]}

    def draw(self, found: Found, summary: dict[str, Any]) -> list[str]:
        """Draw the figure; return its file name in a list."""
        return [draw(summary, self.output / "cost_models.png")]

    @staticmethod
    def markdown(summary: dict[str, Any], figures: list[str]) -> str:
        """Return the results page as Markdown text."""
        lines = [
            "# Cost models on recorded times, and what to record next", "",
            f"Part `train` of Measured v1, {len(summary['seeds'])} seeds. Choices have regret, log(T / T best recorded), among "
            f"some sixteen recorded programs of an operator. Means over operators and seeds, {LEVEL} intervals of a bootstrap "
            "over both, p adjusted by Holm. Seconds are processor time of one training and its predictions, one thread of a "
            f"shared machine. [Plan](README.md). {summary['date']}.", "",
        ]  # fmt: skip
        for split, machines in summary["ranked"].items():
            for machine, one in machines.items():
                rows = [(f"`{name}`", *map(_text, of), f"{one['seconds'][name]:.1f}") for name, of in one["scores"].items()]
                apart = [(what, *map(_apart, of[:3])) for what, of in one["apart"].items()]
                lines += [f"## {split} held out, {machine}: {one['operators']} operators", ""]
                lines += [*table(("learner", *HEAD, "seconds"), rows), "", *table(("difference", *HEAD[:3]), apart), ""]
        budgets = [f"{budget:,}" for budget in summary["budgets"]]
        for machine, one in summary["replays"].items():
            head = ("order", *budgets, "mean", "less random", "repeats better", "operators recorded")
            lines += [f"## Replays, {machine}", "", "Regret of the first choice of held-out operators, by programs recorded.", ""]
            lines += [*table(head, [_order(name, one, summary["repeats"]) for name in one["scores"]]), ""]
        return page(lines, figures)

    @staticmethod
    def sheet(summary: dict[str, Any]) -> Sheet:
        """Table of all rankings."""
        rows = [
            (f"{split}, {machine}, {name}", *map(_text, of))
            for split, machines in summary["ranked"].items()
            for machine, one in machines.items() for name, of in one["scores"].items()
        ]  # fmt: skip
        return Sheet.of("Rankings of recorded programs", ("held out, machine, learner", *HEAD), rows)


def _by_operator(lines: list[list[Row]]) -> np.ndarray:
    """Arrange rows [folds][seeds] as scores [operators, seeds, SCORES]; operators are in the order of the folds."""
    return np.concatenate([np.array([[one[name] for name in SCORES] for one in of]).transpose(2, 0, 1) for of in lines])


def _replayed(by: Mapping[str, list[Row]], resamples: int) -> dict[str, Any]:
    """Summarise one machine's replays: for each order, regrets of the first choice by budget and their mean."""
    of = {order: [np.array([step["first"] for step in row["steps"]]).T for row in rows] for order, rows in by.items()}
    every = {order: np.concatenate(repeats)[:, None] for order, repeats in of.items()}
    values = {order: np.append(first, first.mean(axis=2, keepdims=True), axis=2) for order, first in every.items()}
    means = {order: np.array([one.mean() for one in repeats]) for order, repeats in of.items()}
    recorded = {order: [[step["operators"] for step in row["steps"]] for row in rows] for order, rows in by.items()}
    return {
        "operators": {order: np.mean(counts, axis=0).tolist() for order, counts in recorded.items()},
        "scores": {order: interval(mean, one, resamples) for order, one in values.items()},
        "over": over(values, RANDOM, resamples),
        "better": {order: int((one < means[RANDOM]).sum()) for order, one in means.items()},
    }


def _text(value: Mapping[str, float], sign: str = "") -> str:
    return f"{value['mean']:{sign}.3f} [{value['low']:{sign}.3f}, {value['high']:{sign}.3f}]"


def _apart(line: Mapping[str, float]) -> str:
    return f"{_text(line, '+')}, p {p_text(line['p_holm'])}"


def _order(name: str, one: Mapping[str, Any], repeats: int) -> tuple[str, ...]:
    apart = ("-", "-") if name == RANDOM else (_apart(one["over"][name][-1]), f"{one['better'][name]} of {repeats}")
    return f"`{name}`", *map(_text, one["scores"][name]), *apart, f"{one['operators'][name][-1]:.0f}"


main = study_command("cost_models", CostModels)
