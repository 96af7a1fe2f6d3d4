"""Searches of fused operators by the model: `python -m experiments fused_study` (conf/fused_study.yaml).

A policy that ships beside strategies, on shapes of operators it has seen and on a class that it has not. A search goes on until
its processor time and the most evaluations asked about are both spent, so that neither cuts the other. The optimum of each
task is certain: its space is a table.
"""

from __future__ import annotations

import datetime
import time
from pathlib import Path
from typing import Any

import numpy as np
from omegaconf import DictConfig, OmegaConf
from rich.console import Console

from agents.policies.card import read_card
from agents.policies.fused_parts import fused_operators
from agents.strategy import FUSED, build
from experiments.commands.checks import check_list, check_positive, check_some, check_whole
from experiments.common.anytime import digest_of_policy
from experiments.studies.fused import report
from experiments.studies.fused.scores import Found, Plan
from experiments.studies.fused.searches import Search, run_search
from experiments.studies.intervals import interval, mean
from experiments.studies.study import Study, study_command
from gensor_gym import hardware as machines
from gensor_gym.fingerprint import common
from gensor_gym.gir.graph import GirGraph
from gensor_gym.locate import located


def plan_of(config: DictConfig) -> Plan:
    """Resolve conf/fused_study.yaml; ValueError names what is wrong."""
    plain: Any = OmegaConf.to_container(config, resolve=True)
    check_whole(plain, 1, "processes", "resamples")
    check_list(plain, 0, "seeds")
    check_list(plain, 1, "evaluations")
    check_positive(plain, "budget_s", "seconds")
    check_some(plain, "parts", "strategies")
    for name, parameters in plain["strategies"].items():
        build(name, FUSED, parameters or {})
    for part in plain["parts"]:
        fused_operators(part)
    if plain["budget_s"] < max(plain["seconds"]):
        raise ValueError(f"budget_s {plain['budget_s']!r}, seconds {plain['seconds']!r}: expected times up to the budget")
    return Plan(
        tuple(plain["parts"]), machines.get(plain["env"]["hardware"]).name, plain["env"]["space"],
        {name: dict(parameters or {}) for name, parameters in plain["strategies"].items()}, tuple(plain["seeds"]),
        float(plain["budget_s"]), tuple(plain["evaluations"]), tuple(plain["seconds"]), plain["processes"], plain["resamples"],
        Path(plain["output"]), plain["figures"], plain,
    )  # fmt: skip


class FusedStudy(Study[Plan, Found]):
    """Strategies on tasks of fused operators."""

    report = report

    def run(self, console: Console) -> Found:
        """Certify and search what is missing."""
        plan = self.plan
        tasks: dict[str, dict[str, tuple[float, float]]] = {}
        certain: dict[str, float] = {}
        for part in plan.parts:
            tasks[part] = {}
            for op in fused_operators(part):
                begin = time.process_time()
                graph = GirGraph(op, machines.get(plan.hardware), plan.space)
                optimum = graph.optimum()[1]
                certain[str(op)] = time.process_time() - begin
                tasks[part][str(op)] = optimum, graph.latency(graph.initial())
        wanted = [
            Search(
                name, parameters, text, plan.hardware, plan.space, seed, plan.budget_s, max(plan.evaluations), self._digest(name)
            )
            for name, parameters in plan.strategies.items() for part in plan.parts for text in tasks[part] for seed in plan.seeds
        ]  # fmt: skip
        lines = self.lines(wanted, plan.processes, console, run_search)
        return Found({(s.strategy, s.operator, s.seed): line for s, line in zip(wanted, lines, strict=True)}, tasks, certain)

    def _folder(self, name: str) -> Path | None:
        """Where the policy of a strategy lies; None of those that have none."""
        strategy = build(name, FUSED, self.plan.strategies[name])
        machine = machines.get(self.plan.hardware)
        if not hasattr(strategy, "folder"):
            return None
        found: Path = strategy.folder(GirGraph(fused_operators(self.plan.parts[0])[0], machine, self.plan.space))
        return located(str(found))

    def _digest(self, name: str) -> str:
        folder = self._folder(name)
        return "" if folder is None else digest_of_policy(folder)

    def summarise(self, found: Found) -> dict[str, Any]:
        """Mean regrets with intervals, by part and strategy."""
        plan = self.plan
        parts = {}
        for part in plan.parts:
            parts[part] = {
                name: {
                    "evaluations": interval(mean, found.regrets(plan, name, part, np.array(plan.evaluations), 0), plan.resamples),
                    "seconds": interval(mean, found.regrets(plan, name, part, np.array(plan.seconds), 2), plan.resamples),
                }
                for name in plan.strategies
            }
        folders = {name: folder for name in plan.strategies if (folder := self._folder(name)) is not None}
        cards = {name: read_card(folder) for name, folder in folders.items()}
        training = {name: {"seconds": card["training_seconds"], "steps": card["training_steps"]} for name, card in cards.items()}
        return {
            "parts": parts, "tasks": {part: list(tasks) for part, tasks in found.tasks.items()},
            "asked": {name: found.asked(name) for name in plan.strategies},
            "wall_over_processor": found.wall_over_processor,
            "evaluations": plan.evaluations, "seconds": plan.seconds, "seeds": plan.seeds, "hardware": plan.hardware,
            "space": plan.space, "training": training,
            "certain_s": [min(found.certain_s.values()), max(found.certain_s.values())],
            "fingerprint": common(line["fingerprint"] for line in found.lines.values()),
            "processor": plan.config["processor"], "date": datetime.date.today().isoformat(),
        }  # fmt: skip

    def draw(self, found: Found, summary: dict[str, Any]) -> list[str]:
        """Regret by evaluations and by seconds, a picture for each part."""
        from experiments.studies.fused import figures

        return [figures.draw(found, self.plan, part) for part in self.plan.parts]


main = study_command("fused_study", lambda config: FusedStudy(plan_of(config)))
