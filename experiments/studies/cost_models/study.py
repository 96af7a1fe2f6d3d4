"""Cost models compared, and what to record next: `python -m experiments cost_models` (conf/cost_models.yaml).

Every learner ranks the recorded programs of operators or classes that were held out of Measured v1. Then the recording is
replayed under budgets of programs, at random and chosen. No kernel is timed. The plan is `results/cost_models/README.md`.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from typing import Any

import numpy as np
from omegaconf import DictConfig, OmegaConf
from rich.console import Console

from agents.cli.checks import check_list, check_some, check_whole
from agents.runs.sheets.sheet import Sheet
from agents.runs.texts import now, p_text, page, table
from experiments.studies.cost_models.figure import draw
from experiments.studies.cost_models.jobs import LEARNERS, SCORES, SPLITS, Replay, Training, work
from experiments.studies.cost_models.recording import ORDERS
from experiments.studies.scores import interval, mean, over
from experiments.studies.study import Plan, Row, Study, study_command
from gensor_gym.measure.records import measured
from gensor_gym.measure.stats.intervals import LEVEL
from gensor_gym.registry import check_known

Found = dict[str, Any]
"""`ranked`: (split, machine) -> learner -> lines [folds][seeds]; `replays`: machine -> order -> lines [repeats]."""
REFERENCE, RANDOM = "trees", "operators_random"
HEAD = ("rank correlation", "first choice", "best of 4", "best of 10")


class CostModels(Study[Plan, Found]):
    """The study of cost models on recorded times."""

    def __init__(self, config: DictConfig) -> None:
        """Resolve conf/cost_models.yaml; ValueError names an invalid setting."""
        plain: Any = OmegaConf.to_container(config, resolve=True)
        check_whole(plain, 1, "processes", "resamples", "repeats")
        check_whole(plain, 10, "operators", null=("operators",))
        check_list(plain, 0, "seeds")
        check_list(plain, 1, "budgets")
        check_some(plain, "held_out", "learners", "replayed", "orders")
        for name, values in {"held_out": SPLITS, "learners": LEARNERS, "orders": ORDERS}.items():
            for value in plain[name]:
                check_known(name, value, values)
        for machine in (*plain["replayed"], *chain(*plain["held_out"].values())):
            check_known("machine of Measured v1", machine, measured.names("cpu"))
        for split, folds in plain["held_out"].items():
            check_whole(folds, 1, *folds, of=f"held_out.{split}")
            if max(folds.values()) > SPLITS[split]:
                raise ValueError(f"held_out.{split} {folds}: expected at most {SPLITS[split]} folds")
        if REFERENCE not in plain["learners"] or RANDOM not in plain["orders"] or plain["repeats"] > SPLITS["operators"]:
            raise ValueError(
                f"learners {[*plain['learners']]}, orders {plain['orders']}, {plain['repeats']} repeats: "
                f"expected {REFERENCE} and {RANDOM} among them, and at most {SPLITS['operators']} repeats"
            )
        super().__init__(Plan(plain))

    def run(self, console: Console) -> Found:
        """Run the missing trainings, then the missing replays."""
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
        """Means with intervals over operators, differences from the shipped trees and from the random order."""
        resamples = self.plan.resamples
        ranked: dict[str, Any] = {}
        for (split, machine), by in found["ranked"].items():
            values = {name: _by_operator(lines) for name, lines in by.items()}
            ranked.setdefault(split, {})[machine] = {
                "operators": len(values[REFERENCE]),
                "scores": {name: interval(mean, of, resamples) for name, of in values.items()},
                "over": over(values, REFERENCE, resamples) if len(values) > 1 else {},
                "seconds": {name: float(np.mean([one["seconds"] for of in by[name] for one in of])) for name in by},
                "seeds": {name: of.mean(axis=0).tolist() for name, of in values.items()},
            }
        return {
            "ranked": ranked, "replays": {machine: self._replayed(by) for machine, by in found["replays"].items()},
            "seeds": list(self.plan.seeds), "repeats": self.plan.config["repeats"], "date": now()[:10],
        }  # fmt: skip

    def _replayed(self, by: Mapping[str, list[Row]]) -> dict[str, Any]:
        """Summary of one machine's replays; the last column of scores is the mean over the budgets."""
        values = {order: _replays(rows) for order, rows in by.items()}
        sizes = {order: [len(row["steps"][0]["rank"]) for row in rows] for order, rows in by.items()}
        repeats = {
            order: [part[..., -1].mean() for part in np.split(of, np.cumsum(sizes[order])[:-1])] for order, of in values.items()
        }
        return {
            "budgets": self.plan.config["budgets"],
            "operators": {
                order: np.mean([[step["operators"] for step in row["steps"]] for row in rows], axis=0).tolist()
                for order, rows in by.items()
            },
            "scores": {order: interval(mean, of, self.plan.resamples) for order, of in values.items()},
            "over": over(values, RANDOM, self.plan.resamples) if len(values) > 1 else {},
            "better": {order: int(np.sum(np.array(of) < repeats[RANDOM])) for order, of in repeats.items()},
        }

    def draw(self, found: Found, summary: dict[str, Any]) -> list[str]:
        """Draw the figure; return its file name in a list."""
        return [draw(summary, self.output / "cost_models.png")]

    @staticmethod
    def markdown(summary: dict[str, Any], figures: list[str]) -> str:
        """Markdown text of the page."""
        lines = [
            "# Cost models on recorded times, and what to record next", "",
            f"Part `train` of Measured v1, {len(summary['seeds'])} seeds. Choices have regret, log(T / T best recorded), among "
            f"some sixteen recorded programs of an operator. Means over operators and seeds, {LEVEL} intervals of a bootstrap "
            f"over both; differences from `{REFERENCE}`, p adjusted by Holm. Seconds are processor time of one training and its "
            f"predictions, one thread. [Plan](README.md). {summary['date']}.", "",
        ]  # fmt: skip
        for split, machines in summary["ranked"].items():
            for machine, one in machines.items():
                head = ("learner", *HEAD, "first choice less trees", "best of 4 less trees", "seconds")
                lines += [f"## {split} held out, {machine}: {one['operators']} operators", "", *table(head, _ranked(one)), ""]
        for machine, one in summary["replays"].items():
            budgets = (f"{budget:,}" for budget in one["budgets"])
            orders = ("order", *budgets, "mean", "less random", "repeats better", "operators")
            lines += [
                f"## Replays, {machine}", "", "Regret of the first choice of held-out operators, by programs recorded.", "",
                *table(orders, _orders(one, summary["repeats"])), "",
            ]  # fmt: skip
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
    """Scores [operators, seeds, SCORES] of lines [folds][seeds], operators in the order of the folds."""
    return np.concatenate([np.array([[one[name] for name in SCORES] for one in of]).transpose(2, 0, 1) for of in lines])


def _replays(rows: list[Row]) -> np.ndarray:
    """Regret of the first choice [operators, 1, budgets + 1] of lines [repeats]; last the mean over the budgets."""
    first = np.concatenate([np.array([step["first"] for step in row["steps"]]).T for row in rows])[:, None]
    return np.concatenate([first, first.mean(axis=2, keepdims=True)], axis=2)


def _text(value: Mapping[str, float], sign: str = "") -> str:
    """A mean with its interval."""
    return f"{value['mean']:{sign}.3f} [{value['low']:{sign}.3f}, {value['high']:{sign}.3f}]"


def _apart(line: Mapping[str, float] | None) -> str:
    """A difference with its interval and p value; `-` for None."""
    return "-" if line is None else f"{_text(line, '+')}, p {p_text(line['p_holm'])}"


def _ranked(one: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Rows of a table of learners."""
    return [
        (f"`{name}`", *map(_text, of), *(_apart(one["over"][name][k] if name in one["over"] else None) for k in (1, 2)),
         f"{one['seconds'][name]:.1f}")
        for name, of in one["scores"].items()
    ]  # fmt: skip


def _orders(one: Mapping[str, Any], repeats: int) -> list[tuple[str, ...]]:
    """Rows of a table of orders."""
    return [
        (f"`{name}`", *map(_text, of), _apart(one["over"][name][-1] if name in one["over"] else None),
         "-" if name == RANDOM else f"{one['better'][name]} of {repeats}", f"{one['operators'][name][-1]:.0f}")
        for name, of in one["scores"].items()
    ]  # fmt: skip


main = study_command("cost_models", CostModels)
