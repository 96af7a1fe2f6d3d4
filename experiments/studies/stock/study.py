"""Compare stock learners in the environments under one protocol: `python -m experiments stock` (conf/stock.yaml).

Every agent trains on the same operators for the same processor seconds of one thread, and is tested on the same other operators
with certified optima. A limit of time makes training irreproducible, since a faster processor takes more steps.
"""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from omegaconf import DictConfig, OmegaConf
from rich.console import Console

from agents.cli.checks import check_list, check_positive, check_some, check_whole
from agents.runs.sheets.sheet import Sheet
from agents.runs.texts import interval_text, page, table
from experiments.common import style
from experiments.studies.scores import DASHES, interval, interval_sheet, iqm, with_legend
from experiments.studies.stock.trials import CLASSES, GROUNDS, Trial, run_trial
from experiments.studies.study import Plan, Row, Study, study_command
from gensor_gym import hardware as machines
from gensor_gym.fingerprint import common
from gensor_gym.measure.stats.intervals import LEVEL

AIM, LEAST = 10.0, 0.5
"""Regrets in per cent: the study's aim, and the smallest value that bars show."""


def draw_curves(lines: dict[str, list[dict[str, Any]]], summary: dict[str, Any], folder: Path) -> str:
    """Draw the mean regret of training episodes over processor seconds, write the figure, and return its file name."""
    learned = [name for name, one in summary["agents"].items() if one["seconds"]]
    figure, axes = plt.subplots(figsize=(7.4, 4.4))
    for name, (colour, marker) in style.look(learned).items():
        for line in lines[name]:
            points = np.array([[p[0], 100 * p[3]] for p in line["curve"] if p[3] is not None]).reshape(-1, 2)
            axes.plot(*points.T, color=colour, marker=marker, markevery=8, markersize=4, linewidth=1.4, label=name)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("processor seconds of learning, one thread")
    axes.set_ylabel("mean regret of training episodes, %")
    return with_legend(figure, axes, folder / "curves.png")


def draw_regrets(summary: dict[str, Any], folder: Path) -> str:
    """Draw the regret on the test operators of the most probable and of the best episode; return the figure's file name."""
    names = list(summary["agents"])
    figure, axes = plt.subplots(figsize=(7.4, 0.34 * len(names) + 1.2))
    for offset, key, colour, label in (
        (-0.19, "first", style.PALETTE[5], "most probable episode"),
        (0.19, "best", style.PALETTE[0], f"best of {summary['programs']}"),
    ):  # fmt: skip
        found = [summary["agents"][name][key] for name in names]
        mean, low, high = (np.maximum(LEAST, [100 * one[part] for one in found]) for part in ("mean", "low", "high"))
        places = np.arange(len(names)) + offset
        axes.barh(places, mean, height=0.36, color=colour, label=label)
        axes.errorbar(mean, places, xerr=[mean - low, high - mean], fmt="none", ecolor=style.INK, elinewidth=0.8)
    axes.axvline(AIM, color=style.INK, linestyle=DASHES, linewidth=0.9)
    axes.set_xscale("log")
    axes.set_yticks(np.arange(len(names)), names)
    axes.invert_yaxis()
    axes.set_xlabel("IQM regret on operators not learned on, %")
    return with_legend(figure, axes, folder / "regrets.png")


BASELINES = ("random", "greedy")
"""Agents without training."""
HEAD = ("agent", "environment", "learned", "steps", "episodes", "steps of an episode", "illegal", "most probable")


def _trial(name: str, agent: dict[str, Any], seed: int, plain: dict[str, Any]) -> Trial:
    """Return one training of an agent of the configuration with a seed; raise ValueError for an invalid agent."""
    learner, ground, seconds = agent["learner"], agent["environment"], float(agent.get("seconds", 0.0))
    if learner not in (*BASELINES, *CLASSES) or ground not in GROUNDS:
        known = f"{[*BASELINES, *CLASSES]} and {[*GROUNDS]}"
        raise ValueError(f"agents.{name}: learner {learner!r}, environment {ground!r}; there are {known}")
    if (learner in CLASSES) != (seconds > 0):
        raise ValueError(f"agents.{name}: seconds {seconds!r}; of what learns expected more than 0, of the others none")
    asked = plain["operators"], plain["tested"], plain["most_values"], plain["most_tested"]
    where = machines.get(plain["env"]["hardware"]).name, plain["env"]["space"]
    settings = agent.get("settings") or {}
    return Trial(name, learner, ground, seconds, settings, *asked, *where, plain["num_envs"], plain["programs"], seed)


@dataclass(frozen=True)
class Found:
    """Results of the study: rows by agent, one for each seed, and the operators on which agents were tested."""

    lines: dict[str, list[Row]]
    tested: tuple[str, ...]

    def regrets(self, agent: str) -> tuple[np.ndarray, np.ndarray]:
        """Return log(T / T*) of the most probable episode and of the best drawn episode, [operators, seeds] each."""
        found = np.array([[line["regrets"][text] for line in self.lines[agent]] for text in self.tested])
        return found[..., 0], found[..., 1:].min(axis=-1)


class Stock(Study[Plan, Found]):
    """Study of stock learners on operators that they were not trained on."""

    def __init__(self, config: DictConfig) -> None:
        """Resolve conf/stock.yaml; ValueError names an invalid setting."""
        plain: Any = OmegaConf.to_container(config, resolve=True)
        check_whole(plain, 1, "processes", "resamples", "num_envs", "programs", "most_values")
        check_whole(plain, 1, "most_tested", null=("most_tested",))
        check_list(plain, 0, "seeds")
        check_positive(plain, "minute", "ten_minutes")
        check_some(plain, "agents")
        super().__init__(Plan(plain))
        self.trials = {name: [_trial(name, one, seed, plain) for seed in plain["seeds"]] for name, one in plain["agents"].items()}

    def run(self, console: Console) -> Found:
        """Train and test the agents that have no row yet, and return all rows."""
        wanted = [trial for trials in self.trials.values() for trial in trials]
        rows = iter(self.lines(wanted, console, run_trial))
        return Found({name: [next(rows) for _ in trials] for name, trials in self.trials.items()}, wanted[0].lists[1])

    def summarise(self, found: Found) -> dict[str, Any]:
        """Return interquartile mean regrets with intervals by agent, and facts about training."""
        config = self.plan.config
        trained, tested, left = next(iter(self.trials.values()))[0].lists
        rows = [line for lines in found.lines.values() for line in lines]
        return {
            "agents": {name: self._agent(name, found) for name in found.lines},
            "trained": list(trained), "tested": list(tested), "left_out": list(left),
            "seeds": config["seeds"], "hardware": rows[0]["hardware"], "space": rows[0]["space"],
            **{name: config[name] for name in ("programs", "num_envs", "most_values")},
            "fingerprint": common(line["fingerprint"] for line in rows), "processor": config["processor"],
            "date": max(line["date"] for line in rows), "written": datetime.date.today().isoformat(),
        }  # fmt: skip

    def _agent(self, name: str, found: Found) -> dict[str, Any]:
        trial, lines, regrets = self.trials[name][0], found.lines[name], found.regrets(name)
        first, best = (interval(iqm, values[..., None], self.plan.resamples)[0] for values in regrets)
        curve = lines[0]["curve"]
        steps, episodes = (float(np.mean([line[key] for line in lines])) for key in ("steps", "episodes"))
        return {
            "learner": trial.learner, "environment": trial.environment, "seconds": trial.seconds, "settings": trial.settings,
            "first": first, "best": best, "near": float((regrets[1] <= 0.05).mean()), "steps": steps, "episodes": episodes,
            "length": None if lines[0]["lengths"] is None else float(np.mean([line["lengths"] for line in lines])),
            "illegal": [curve[0][5], curve[-1][5]] if curve and trial.learner != "MaskablePPO" else None,
            "began": curve[0][4] if curve else None,
        }  # fmt: skip

    def draw(self, found: Found, summary: dict[str, Any]) -> list[str]:
        """Draw learning curves, and regrets on the test operators; return the file names."""
        return [draw_curves(found.lines, summary, self.output), draw_regrets(summary, self.output)]

    @staticmethod
    def markdown(summary: dict[str, Any], figures: list[str]) -> str:
        """Return the results page as Markdown text."""
        agents, left = summary["agents"], summary["left_out"]
        lines = [
            "# Stock learners in the environments", "",
            f"Model of {summary['hardware']}, space {summary['space']}: nothing was timed. Learned on {len(summary['trained'])} "
            f"operators of the train part of split v1 (with at most {summary['most_values']:,} values of a column), tried on "
            f"{len(summary['tested'])} of the test part, {len(summary['seeds'])} seed. Regret is log(T / T*), T* the certified "
            f"optimum; interquartile means over operators, in brackets {LEVEL} intervals of a bootstrap over operators (and "
            f"seeds). Processor seconds of one thread of {summary['processor']}, beside other work. Learning under a limit of "
            f"time takes other steps on another processor. Fingerprint {summary['fingerprint']}. {summary['date']}.", "",
            f"Classes of stable-baselines3 and sb3-contrib over {summary['num_envs']} environments, `MlpPolicy`, their defaults "
            "but for the settings below. Steps of an episode: of those drawn on the test part. Illegal: actions at the beginning "
            "and at the end of learning; they cost a step and change nothing.", "",
            *table((*HEAD, f"best of {summary['programs']}", "within 5 %"), [_cells(name, one) for name, one in agents.items()]),
            "", "## Settings", "",
        ]  # fmt: skip
        for name, agent in agents.items():
            if agent["seconds"]:
                settings = ", ".join(f"{key} {value}" for key, value in agent["settings"].items())
                lines += [f"- `{name}`: {agent['learner']}, {settings}"]
        lines += ["", *(["Left out of the test part: " + ", ".join(f"`{text}`" for text in left) + ".", ""] if left else [])]
        return page(lines, figures)

    @staticmethod
    def sheet(summary: dict[str, Any]) -> Sheet:
        """Return the table of regrets by agent."""
        head = ("agent", "most probable", f"best of {summary['programs']}")
        values = {name: (one["first"], one["best"]) for name, one in summary["agents"].items()}
        return interval_sheet("IQM regret on the test part", head, values)


def _cells(name: str, agent: dict[str, Any]) -> tuple[str, ...]:
    length, illegal = agent["length"], agent["illegal"]
    return (
        name, agent["environment"], f"{agent['seconds']:.0f} s" if agent["seconds"] else "nothing", f"{agent['steps']:,.0f}",
        f"{agent['episodes']:,.0f}", "" if length is None else f"{length:.1f}",
        "" if illegal is None else f"{illegal[0]:.0%}, {illegal[1]:.0%}", interval_text(agent["first"], 1),
        interval_text(agent["best"], 1), f"{agent['near']:.0%}",
    )  # fmt: skip


main = study_command("stock", Stock)
