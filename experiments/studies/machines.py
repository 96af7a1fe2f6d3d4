"""Study of policies that observe the machine, on held-out machines: `python -m experiments machines` (conf/machines.yaml).

The policies train on random machines near known machines (`gensor_gym.hardware.drawn`), each operator on a machine of its own.
The test machines are real machines, and no policy trained near them. All searches get equal processor time. The model gives all
latencies; no kernel is timed.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from omegaconf import DictConfig, OmegaConf
from rich.console import Console

from agents.cli.checks import check_list, check_positive, check_some, check_whole
from agents.runs.anytime import Search, digest_of_policy
from agents.runs.sheets.sheet import Sheet
from agents.runs.texts import page
from agents.strategy import get_strategy
from experiments.studies.generalise.plan import Trained, train_missing
from experiments.studies.scores import (
    BROAD,
    EVALUATIONS,
    SECONDS,
    THIN,
    Curves,
    after,
    by_costs,
    difference,
    interval,
    interval_sheet,
    intervals,
    iqm,
    over,
    with_legend,
)
from experiments.studies.study import Plan, Study, all_lines, evenly, study_command
from gensor_gym import hardware as machines
from gensor_gym import suites
from gensor_gym.construction import ConstructionGraph
from gensor_gym.fingerprint import common
from gensor_gym.measure.stats.intervals import LEVEL

TRACK = "unseen_operators"
"""Track (list of tasks) of suite v1 that supplies the test operators."""
UNITS = {"seconds": SECONDS, "evaluations": EVALUATIONS}
Task = tuple[str, str]
"""(operator, machine)."""


@dataclass(frozen=True)
class Found(Curves):
    """Curves of all searches, relative to the best known programs, and the trained policies by name."""

    policies: dict[str, list[Trained]]


class Machines(Study[Plan, Found]):
    """Study of policies and searches on machines that no policy was trained near."""

    def __init__(self, config: DictConfig) -> None:
        """Resolve conf/machines.yaml; ValueError names an invalid setting."""
        plain: Any = OmegaConf.to_container(config, resolve=True)
        check_whole(plain, 1, "processes", "resamples", "operators", null=("operators",))
        check_list(plain, 0, "seeds")
        check_list(plain, 1, "evaluations")
        check_positive(plain, "seconds")
        check_some(plain, "machines", "strategies")
        super().__init__(Plan(plain))
        self.strategies: dict[str, dict[str, Any]] = {
            name: {key: tuple(value) if isinstance(value, list) else value for key, value in (parameters or {}).items()}
            for name, parameters in plain["strategies"].items()
        }
        for name, parameters in self.strategies.items():
            get_strategy(name, **parameters)
        if plain["reference"] not in self.strategies:
            raise ValueError(f"reference {plain['reference']!r}: expected one of {[*self.strategies]}")
        tested = list(dict.fromkeys(task.operator for task in suites.get("v1").tracks[TRACK].tasks))
        self.operators = evenly(tested, plain["operators"])
        self.machines = [machines.get(name).name for name in plain["machines"]]
        self.tasks: list[Task] = [(text, machine) for machine in self.machines for text in self.operators]
        for name in plain["policies"]:
            if both := sorted({machines.get(one).name for one in self.near(name)} & set(self.machines)):
                raise ValueError(f"policies.{name} is trained near {both}, which are held out")

    def near(self, name: str) -> list[str]:
        """Return the machines near which a policy trains, or the only machine on which it trains."""
        policy = self.plan.config["policies"][name]
        return list(policy["train"].get("+agent.machines", [policy["hardware"]]))

    def run(self, console: Console) -> Found:
        """Train missing policies, run missing searches, and return the results."""
        plan, config = self.plan, self.plan.config
        policies = {
            name: train_missing(
                one["folder"], plan.seeds, one["hardware"], config["space"], one["train"], plan.processes, config["split"]
            )
            for name, one in config["policies"].items()
        }

        def make(name: str, task: Task, seed: int) -> Search:
            """Return one search, which ends when both the largest time and the largest number of evaluations are spent."""
            spent = max(config["evaluations"]), max(config["seconds"])
            where = *task, config["space"], seed, *spent
            if name in self.strategies:
                return Search(name, name, self.strategies[name], *where)
            (folder,) = (trained.folder for trained in policies[name] if trained.seed == seed)
            parameters = {"checkpoint": str(folder), "episodes": 256}
            return Search(name, "columns", parameters, *where, policy=digest_of_policy(folder))

        lines = self.grid(make, [*policies, *self.strategies], self.tasks, console)
        best = [min(min(line["curve"][1]) for of in lines.values() for line in of[i]) for i in range(len(self.tasks))]
        graphs = [ConstructionGraph(*task, config["space"]) for task in self.tasks]
        return Found(lines, np.array(best), np.array([graph.latency(graph.initial()) for graph in graphs]), policies)

    def summarise(self, found: Found) -> dict[str, Any]:
        """Return interquartile means with intervals, over all tasks and by machine, and differences from each policy."""
        plan, config = self.plan, self.plan.config
        values = {unit: {name: found.regrets(name, config[unit], UNITS[unit]) for name in found.lines} for unit in UNITS}
        groups = {machine: np.array([task[1] == machine for task in self.tasks]) for machine in self.machines}
        parts = {"all": np.ones(len(self.tasks), dtype=bool), **groups}
        rows = all_lines(found.lines)
        return {
            "scores": {
                part: {
                    unit: {name: interval(iqm, of[chosen], plan.resamples) for name, of in by.items()}
                    for unit, by in values.items()
                }
                for part, chosen in parts.items()
            },
            "over": {
                policy: {unit: over(by, policy, plan.resamples) for unit, by in values.items()} for policy in found.policies
            },
            **{name: config[name] for name in ("seconds", "evaluations")},
            "operators": list(self.operators), "machines": self.machines, "seeds": list(plan.seeds),
            **{name: config[name] for name in ("space", "split", "processor")},
            "training": {
                name: {"seconds": [one.seconds for one in of], "steps": of[0].steps, "near": self.near(name)}
                for name, of in found.policies.items()
            },
            "fingerprint": common(line["fingerprint"] for line in rows), "date": max(line["date"] for line in rows),
        }  # fmt: skip

    def draw(self, found: Found, summary: dict[str, Any]) -> list[str]:
        """Draw regret over seconds and over evaluations; return the file name in a list."""
        parts = {
            SECONDS: ("processor seconds of a search", max(summary["seconds"])),
            EVALUATIONS: ("evaluations of the model", max(summary["evaluations"])),
        }
        widths = {name: BROAD if name in found.policies else THIN for name in found.lines}
        figure, panels = by_costs(widths, parts, 40, lambda name, at, column: 100 * iqm(found.regrets(name, at, column)))
        for axes in panels:
            axes.set_yscale("symlog", linthresh=1.0, linscale=0.5)
            axes.set_ylim(bottom=0)
        panels[0].set_ylabel("IQM regret to the best known, %")
        return [with_legend(figure, panels[1], self.output / "regret.png")]

    @staticmethod
    def markdown(summary: dict[str, Any], figures: list[str]) -> str:
        """Return the results page as Markdown text."""
        head = ("search", *after(summary["seconds"], summary["evaluations"]))
        lines = [
            "# Policies on machines they have not seen", "",
            f"Models of {', '.join(summary['machines'])}, space {summary['space']}, {len(summary['operators'])} operators each, "
            f"of the test part of split {summary['split']}; {len(summary['seeds'])} seed. Nothing was timed but the searches. "
            "Regret is log(T / T*), T* being the best that any search of this study finds: optima are not certified there, so "
            f"that what is said is a lower bound. Interquartile means over tasks (and seeds), in brackets {LEVEL} intervals of a "
            f"bootstrap. Seconds are processor time of one thread of {summary['processor']}, loading and compiling left out, "
            f"training as well. Fingerprint {summary['fingerprint']}. {summary['date']}.", "",
        ]  # fmt: skip
        for name, cost in summary["training"].items():
            seconds = ", ".join(f"{value:.0f} s" for value in cost["seconds"])
            lines += [f"`{name}`: {cost['steps']:,} programs in {seconds} of processor time, near {', '.join(cost['near'])}.", ""]
        for part, scores in summary["scores"].items():
            title = "All machines" if part == "all" else part
            lines += [f"## {title}", "", *intervals(head, _both(scores)), ""]
        for policy, apart in summary["over"].items():  # `over` has each search minus the policy
            lines += [
                f"## `{policy}` less each search", "",
                "Mean difference over the same tasks and seeds (negative: the policy is better), and p of a sign-flip test on "
                "the tasks' means, adjusted by Holm.", "", *intervals(head, _both(apart), partial(difference, turned=True)), "",
            ]  # fmt: skip
        lines += ["## Operators", "", *(f"- `{text}`" for text in summary["operators"]), ""]
        return page(lines, figures)

    @staticmethod
    def sheet(summary: dict[str, Any]) -> Sheet:
        """Return the table of regrets by seconds over all machines."""
        head = ("search", *after(summary["seconds"]))
        return interval_sheet("IQM regret on machines held out", head, summary["scores"]["all"]["seconds"])


def _both(values: dict[str, Any]) -> dict[str, Any]:
    """Put together, for every name, the values by seconds and then the values by evaluations."""
    return {name: (*of, *values["evaluations"][name]) for name, of in values["seconds"].items()}


main = study_command("machines", Machines)
