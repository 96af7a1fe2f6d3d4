"""Stock learners in the environments under one protocol: `python -m experiments.stock` (conf/stock.yaml).

Every agent learns on the same operators for so many processor seconds of one thread, and is then tried on the same others, whose
optima are certified. Learning under a limit of time is not repeated number for number: a quicker processor takes more steps.
"""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from omegaconf import DictConfig, OmegaConf
from rich.console import Console

from experiments.commands.checks import check_list, check_positive, check_some, check_whole
from experiments.studies.intervals import interval, iqm
from experiments.studies.stock import grounds, report
from experiments.studies.stock.learning import CLASSES
from experiments.studies.stock.trials import Trial, run_trial
from experiments.studies.study import Study, study_command
from gensor_gym import hardware as machines
from gensor_gym.fingerprint import common

BESIDE = ("random", "greedy")
"""Learners that learn nothing."""


@dataclass(frozen=True)
class Plan:
    """What is run."""

    trials: dict[str, list[Trial]]
    processes: int
    resamples: int
    output: Path
    figures: bool
    config: dict[str, Any]


@dataclass(frozen=True)
class Found:
    """Lines by agent, a line for each seed."""

    lines: dict[str, list[dict[str, Any]]]
    tested: tuple[str, ...]

    def regrets(self, agent: str) -> tuple[np.ndarray, np.ndarray]:
        """log(T / T*) [operators, seeds]: of the most probable episode, and of the best of those drawn."""
        rows = [[line["regrets"][text] for line in self.lines[agent]] for text in self.tested]
        return np.array([[one[0] for one in row] for row in rows]), np.array([[min(one[1:]) for one in row] for row in rows])


def plan_of(config: DictConfig) -> Plan:
    """Resolve conf/stock.yaml; ValueError names what is wrong."""
    plain: Any = OmegaConf.to_container(config, resolve=True)
    check_whole(plain, 1, "processes", "resamples", "num_envs", "programs", "most_values")
    check_whole(plain, 1, "most_tested", null=("most_tested",))
    check_list(plain, 0, "seeds")
    check_positive(plain, "minute", "ten_minutes")
    check_some(plain, "agents")
    trials = {name: [_trial(name, agent, seed, plain) for seed in plain["seeds"]] for name, agent in plain["agents"].items()}
    output = Path(plain["output"])
    return Plan(trials, plain["processes"], plain["resamples"], output, plain["figures"], plain)


def _trial(name: str, agent: dict[str, Any], seed: int, plain: dict[str, Any]) -> Trial:
    """An agent of the configuration with a seed."""
    learner, ground, seconds = agent["learner"], agent["environment"], float(agent.get("seconds", 0.0))
    if learner not in (*BESIDE, *CLASSES) or ground not in grounds.GROUNDS:
        raise ValueError(
            f"agents.{name}: learner {learner!r}, environment {ground!r}; there are {[*BESIDE, *CLASSES]} and "
            f"{[*grounds.GROUNDS]}"
        )
    if (learner in CLASSES) != (seconds > 0):
        raise ValueError(f"agents.{name}: seconds {seconds!r}; of what learns expected more than 0, of the others none")
    asked = plain["operators"], plain["tested"], plain["most_values"], plain["most_tested"]
    where = machines.get(plain["env"]["hardware"]).name, plain["env"]["space"]
    folder = str(Path(plain["output"]) / "checkpoints")
    settings = agent.get("settings") or {}
    return Trial(name, learner, ground, seconds, settings, *asked, *where, plain["num_envs"], plain["programs"], seed, folder)


class Stock(Study[Plan, Found]):
    """Agents on operators that they did not learn on."""

    report = report

    def run(self, console: Console) -> Found:
        """Learn and try what is missing."""
        wanted = [trial for trials in self.plan.trials.values() for trial in trials]
        rows = iter(self.lines(wanted, self.plan.processes, console, run_trial))
        lines = {name: [next(rows) for _ in trials] for name, trials in self.plan.trials.items()}
        return Found(lines, wanted[0].lists[1])

    def summarise(self, found: Found) -> dict[str, Any]:
        """Interquartile means with intervals, and what learning came to."""
        plan, agents = self.plan, {}
        for name, lines in found.lines.items():
            first, best = (interval(iqm, values[..., None], self.plan.resamples)[0] for values in found.regrets(name))
            trial, curve = plan.trials[name][0], lines[0]["curve"]
            agents[name] = {
                "learner": trial.learner, "environment": trial.environment, "seconds": trial.seconds, "settings": trial.settings,
                "first": first, "best": best, "near": float((found.regrets(name)[1] <= 0.05).mean()),
                "steps": float(np.mean([line["steps"] for line in lines])),
                "episodes": float(np.mean([line["episodes"] for line in lines])),
                "length": None if lines[0]["lengths"] is None else float(np.mean([line["lengths"] for line in lines])),
                "illegal": [curve[0][5], curve[-1][5]] if curve and trial.learner != "MaskablePPO" else None,
                "began": curve[0][4] if curve else None,
            }  # fmt: skip
        trained, tested, left = plan.trials[next(iter(plan.trials))][0].lists
        lines_of_all = [line for lines in found.lines.values() for line in lines]
        return {
            "agents": agents, "trained": list(trained), "tested": list(tested), "left_out": list(left),
            "seeds": plan.config["seeds"], "hardware": lines_of_all[0]["hardware"], "space": lines_of_all[0]["space"],
            "programs": plan.config["programs"], "num_envs": plan.config["num_envs"], "most_values": plan.config["most_values"],
            "fingerprint": common(line["fingerprint"] for line in lines_of_all), "processor": plan.config["processor"],
            "date": max(line["date"] for line in lines_of_all), "written": datetime.date.today().isoformat(),
        }  # fmt: skip

    def draw(self, found: Found, summary: dict[str, Any]) -> list[str]:
        """Learning curves, and regrets on what was not learned on."""
        from experiments.studies.stock import figures

        return [figures.curves(found.lines, summary, self.plan.output), figures.regrets(summary, self.plan.output)]


main = study_command("stock", lambda config: Stock(plan_of(config)))
