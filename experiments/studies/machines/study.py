"""Policies that see the machine, on machines held out: `python -m experiments machines` (conf/machines.yaml).

They are trained on machines drawn near known ones (`gensor_gym.hardware.drawn`), every operator on one of its own, and tested on
real ones that nothing was trained near, beside searches at equal processor time. By the model alone: nothing is timed.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from omegaconf import DictConfig, OmegaConf
from rich.console import Console

from agents.strategy import get_strategy
from experiments.commands.checks import check_list, check_positive, check_some, check_whole
from experiments.common.anytime import Search, digest_of_policy
from experiments.statistics import paired
from experiments.studies.generalise.policies import Trained, train_missing
from experiments.studies.intervals import interval, iqm
from experiments.studies.machines import report
from experiments.studies.machines.scores import Found, Plan
from experiments.studies.study import Study, study_command
from gensor_gym import hardware as machines
from gensor_gym import suites
from gensor_gym.construction import ConstructionGraph
from gensor_gym.fingerprint import common

TRACK = "unseen_operators"
"""Of suite v1, whose operators are tested."""


def plan_of(config: DictConfig) -> Plan:
    """Resolve conf/machines.yaml; ValueError names what is wrong."""
    plain: Any = OmegaConf.to_container(config, resolve=True)
    check_whole(plain, 1, "processes", "resamples", "operators", null=("operators",))
    check_list(plain, 0, "seeds")
    check_list(plain, 1, "evaluations")
    check_positive(plain, "seconds")
    check_some(plain, "machines", "strategies")
    held_out = tuple(machines.get(name).name for name in plain["machines"])
    for name, policy in plain["policies"].items():
        seen = [machines.get(one).name for one in policy["train"].get("+agent.machines", [policy["hardware"]])]
        if both := sorted(set(seen) & set(held_out)):
            raise ValueError(f"policies.{name} is trained near {both}, which are held out")
    strategies = {
        name: {key: tuple(value) if isinstance(value, list) else value for key, value in (parameters or {}).items()}
        for name, parameters in plain["strategies"].items()
    }
    for name, parameters in strategies.items():
        get_strategy(name, **parameters)
    if plain["reference"] not in strategies:
        raise ValueError(f"reference {plain['reference']!r}: expected one of {[*strategies]}")
    tested = list(dict.fromkeys(task.operator for task in suites.get("v1").tracks[TRACK].tasks))
    count = len(tested) if plain["operators"] is None else plain["operators"]
    chosen = np.unique(np.linspace(0, len(tested) - 1, count).round().astype(int))
    return Plan(
        tuple(tested[i] for i in chosen), held_out, strategies, tuple(plain["seeds"]), tuple(plain["seconds"]),
        tuple(plain["evaluations"]), Path(plain["output"]), plain["figures"], plain,
    )  # fmt: skip


class Machines(Study[Plan, Found]):
    """Policies and searches on held-out machines."""

    report = report

    def run(self, console: Console) -> Found:
        """Train and search what is missing."""
        plan, config = self.plan, self.plan.config
        policies = {
            name: train_missing(
                one["folder"], plan.seeds, one["hardware"], config["space"], one["train"], config["processes"], config["split"]
            )
            for name, one in config["policies"].items()
        }
        wanted = [
            make(text, machine, seed)
            for make in (*(self._written(name, of) for name, of in policies.items()), *map(self._searched, plan.strategies))
            for machine in plan.machines for text in plan.operators for seed in plan.seeds
        ]  # fmt: skip
        lines = self.lines(wanted, config["processes"], console)
        found = {(s.strategy, s.operator, s.hardware, s.seed): line for s, line in zip(wanted, lines, strict=True)}
        best: dict[tuple[str, str], float] = {}
        for (_, text, machine, _), line in found.items():
            best[text, machine] = min(best.get((text, machine), np.inf), *line["curve"][1])
        graphs = {task: ConstructionGraph(*task, config["space"]) for task in best}
        return Found(plan, found, policies, best, {task: graph.latency(graph.initial()) for task, graph in graphs.items()})

    def _written(self, name: str, policies: list[Trained]) -> Callable[[str, str, int], Search]:
        """Searches of a policy."""
        folders = {trained.seed: trained.folder for trained in policies}

        def make(text: str, machine: str, seed: int) -> Search:
            parameters = {"checkpoint": str(folders[seed]), "episodes": 256}
            return self._search(name, "columns", parameters, text, machine, seed, digest_of_policy(folders[seed]))

        return make

    def _searched(self, name: str) -> Callable[[str, str, int], Search]:
        """Searches of a strategy."""
        return lambda text, machine, seed: self._search(name, name, self.plan.strategies[name], text, machine, seed)

    def _search(
        self, name: str, of: str, parameters: dict[str, Any], text: str, machine: str, seed: int, policy: str = ""
    ) -> Search:
        """One search: until the last number of seconds and of evaluations are both spent."""
        plan = self.plan
        most = max(plan.evaluations), max(plan.seconds)
        return Search(name, of, parameters, text, machine, plan.config["space"], seed, *most, policy=policy)

    def summarise(self, found: Found) -> dict[str, Any]:
        """Interquartile means with intervals, over all tasks and machine by machine, and differences to each policy."""
        plan, resamples = self.plan, self.plan.config["resamples"]
        at = {"seconds": (np.array(plan.seconds), 2), "evaluations": (np.array(plan.evaluations, dtype=float), 0)}
        values = {unit: {name: found.regrets(name, *of) for name in found.names} for unit, of in at.items()}
        groups = {machine: np.array([task[1] == machine for task in found.tasks]) for machine in plan.machines}
        parts = {"all": np.ones(len(found.tasks), dtype=bool), **groups}
        scores = {
            part: {unit: {name: interval(iqm, of[chosen], resamples) for name, of in by.items()} for unit, by in values.items()}
            for part, chosen in parts.items()
        }
        over = {
            policy: {
                unit: paired.against({name: of for name, of in by.items() if name != policy}, by[policy], resamples, crossed=True)
                for unit, by in values.items()
            }
            for policy in found.policies
        }
        return {
            "scores": scores, "over": over, "seconds": list(plan.seconds), "evaluations": list(plan.evaluations),
            "operators": list(plan.operators), "machines": list(plan.machines), "seeds": list(plan.seeds),
            "space": plan.config["space"], "split": plan.config["split"], "processor": plan.config["processor"],
            "training": {
                name: {"seconds": [one.seconds for one in of], "steps": of[0].steps, "near": self._near(name)}
                for name, of in found.policies.items()
            },
            "fingerprint": common(line["fingerprint"] for line in found.lines.values()),
            "date": max((line["date"] for line in found.lines.values()), default=datetime.date.today().isoformat()),
        }  # fmt: skip

    def _near(self, name: str) -> list[str]:
        """Machines near which a policy was trained, or the one on which it was."""
        policy = self.plan.config["policies"][name]
        return list(policy["train"].get("+agent.machines", [policy["hardware"]]))

    def draw(self, found: Found, summary: dict[str, Any]) -> list[str]:
        """Regret by seconds and evaluations."""
        from experiments.studies.machines import figures

        return [figures.draw(found, self.plan.output)]


main = study_command("machines", lambda config: Machines(plan_of(config)))
