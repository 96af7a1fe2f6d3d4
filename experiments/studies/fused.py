"""Study of searches of fused operators on the model: `python -m experiments fused_study` (conf/fused_study.yaml).

A shipped policy is compared with strategies, on new shapes of operators that the policy knows and on a new class. A search ends
when its processor time and the largest number of evaluations are both spent. Every space is small enough to be tabulated, so each
optimum is exact.
"""

from __future__ import annotations

import datetime
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from omegaconf import DictConfig, OmegaConf
from rich.console import Console

from agents.cli.checks import check_list, check_positive, check_some, check_whole
from agents.core.watched import WatchedGir
from agents.policies.card import read_card
from agents.policies.fused_parts import fused_fingerprints, fused_operators
from agents.runs.anytime import digest_of_policy
from agents.runs.settings import code_digest, short_hash
from agents.runs.sheets.sheet import Sheet
from agents.runs.texts import page, seconds_text
from agents.strategy import FUSED, Constructs, build
from experiments.common import style
from experiments.studies.scores import EVALUATIONS, SECONDS, Curves, after, by_costs, interval, interval_sheet, intervals, mean
from experiments.studies.study import Plan, Study, all_lines, study_command
from gensor_gym import hardware as machines
from gensor_gym.fingerprint import common
from gensor_gym.gir.graph import GirGraph
from gensor_gym.gir.schedule import GirSchedule
from gensor_gym.locate import located
from gensor_gym.measure.session import BudgetSpent
from gensor_gym.measure.stats.intervals import LEVEL

# One search of a fused operator with the model, recorded as a curve over evaluations and processor time.

@dataclass(frozen=True)
class Search:
    """One search: a registered strategy on one fused operator and machine with a seed."""

    strategy: str
    parameters: Mapping[str, Any]
    operator: str
    hardware: str
    space: str
    seed: int
    seconds: float
    evaluations: int = 0
    """Number of evaluations of the model to spend; the search ends when these and `seconds` of processor time are spent."""
    policy: str = ""
    """Digest of the weights of the policy in the folder `parameters["checkpoint"]`."""

    @property
    def config(self) -> dict[str, Any]:
        """All inputs that determine the search's result."""
        (found,) = fused_fingerprints(fused_operators(self.operator), self.hardware, self.space).values()
        apart = {name: value for name, value in self.parameters.items() if name != "checkpoint"}
        return {**asdict(self), "parameters": apart, "fingerprint": found}

    @property
    def key(self) -> str:
        """Hash of all inputs that determine the search's result, sixteen hexadecimal digits."""
        return short_hash(self.config)


class ModelSession:
    """Session for strategies that search by trials: the model answers each trial, and a repeated schedule costs nothing."""

    def __init__(self, graph: GirGraph) -> None:
        self.graph = graph
        self._known: dict[GirSchedule, Any] = {}
        self.best: tuple[GirSchedule, Any] | None = None

    @property
    def trials(self) -> int:
        """Number of different schedules that were evaluated."""
        return len(self._known)

    def measure(self, schedules: Sequence[GirSchedule]) -> list[Any]:
        """Return the model's answers for the schedules, in order."""
        for schedule in schedules:
            if schedule not in self._known:
                found = self._known[schedule] = SimpleNamespace(seconds=self.graph.latency(schedule))
                if self.best is None or found.seconds < self.best[1].seconds:
                    self.best = schedule, found
        return [self._known[schedule] for schedule in schedules]


def run_search(search: Search) -> dict[str, Any]:
    """Run a search and return its row; a policy is loaded before the clock starts."""
    strategy: Any = build(search.strategy, FUSED, {**search.parameters, "space": search.space})
    (operator,) = fused_operators(search.operator)
    graph = WatchedGir(operator, machines.get(search.hardware), search.space, search.evaluations, search.seconds)
    if hasattr(strategy, "policy"):
        strategy.policy(graph)
    begun = time.perf_counter()
    graph.start()
    with suppress(BudgetSpent):
        _spend(strategy, graph, np.random.default_rng(search.seed))
    curve = graph.curve
    return {
        "key": search.key, **search.config, "code": code_digest(), "evaluated": graph.evaluations,
        "elapsed_s": round(graph.elapsed, 6), "wall_s": round(time.perf_counter() - begun, 6),
        "curve": [curve.evaluations, curve.latencies, [round(t, 6) for t in curve.elapsed]],
    }  # fmt: skip


def _spend(strategy: Any, graph: WatchedGir, rng: np.random.Generator) -> None:
    """Search until the graph raises BudgetSpent.

    A construction that ends earlier is restarted as long as restarts evaluate new programs.
    """
    if isinstance(strategy, Constructs):
        before = -1
        while graph.evaluations > before:
            before = graph.evaluations
            deque(strategy.constructions(graph, rng), maxlen=0)  # type: ignore[arg-type]
    elif hasattr(strategy, "walk"):
        while True:
            strategy.walk(graph, rng)
    else:
        strategy.search(ModelSession(graph), rng)


LEAST = 0.05
"""Regret in per cent below which the figure does not distinguish values."""


@dataclass(frozen=True)
class Part(Curves):
    """Results on one list of operators: curves relative to the optima, and the processor seconds that each optimum took."""

    tasks: list[str]
    certain_s: list[float]


class FusedStudy(Study[Plan, dict[str, Part]]):
    """Study of strategies and policies on fused operators; its results are by list of operators."""

    def __init__(self, config: DictConfig) -> None:
        """Resolve conf/fused_study.yaml; ValueError names an invalid setting."""
        plain: Any = OmegaConf.to_container(config, resolve=True)
        check_whole(plain, 1, "processes", "resamples")
        check_list(plain, 0, "seeds")
        check_list(plain, 1, "evaluations")
        check_positive(plain, "budget_s", "seconds")
        check_some(plain, "parts", "strategies")
        super().__init__(Plan(plain))
        self.strategies: dict[str, dict[str, Any]] = {name: dict(given or {}) for name, given in plain["strategies"].items()}
        self.built: dict[str, Any] = {name: build(name, FUSED, given) for name, given in self.strategies.items()}
        for part in plain["parts"]:
            fused_operators(part)
        if plain["budget_s"] < max(plain["seconds"]):
            raise ValueError(f"budget_s {plain['budget_s']!r}, seconds {plain['seconds']!r}: expected times up to the budget")
        self.hardware, self.space = machines.get(plain["env"]["hardware"]), plain["env"]["space"]

    def run(self, console: Console) -> dict[str, Part]:
        """Find the optima, run the missing searches, and return the results by list of operators."""
        return {part: self._part(part, console) for part in self.plan.config["parts"]}

    def _part(self, part: str, console: Console) -> Part:
        config = self.plan.config
        texts, optima, start, certain = list[str](), list[float](), list[float](), list[float]()
        for op in fused_operators(part):
            begin = time.process_time()
            graph = GirGraph(op, self.hardware, self.space)
            optima.append(graph.optimum()[1])
            certain.append(time.process_time() - begin)
            start.append(graph.latency(graph.initial()))
            texts.append(str(op))
        digests = {name: digest_of_policy(folder) for name, folder in self._folders().items()}
        spent = float(config["budget_s"]), max(config["evaluations"])

        def make(name: str, task: str, seed: int) -> Search:
            where = task, self.hardware.name, self.space, seed
            return Search(name, self.strategies[name], *where, *spent, digests.get(name, ""))

        lines = self.grid(make, list(self.strategies), texts, console, run_search)
        return Part(lines, np.array(optima), np.array(start), texts, certain)

    def _folders(self) -> dict[str, Path]:
        """Return the folders of the policies by name of the strategy that uses them."""
        graph = GirGraph(fused_operators(self.plan.config["parts"][0])[0], self.hardware, self.space)
        return {name: located(str(one.folder(graph))) for name, one in self.built.items() if hasattr(one, "folder")}

    def summarise(self, found: dict[str, Part]) -> dict[str, Any]:
        """Return mean regrets with intervals for each list of operators and each strategy, and facts about the study."""
        plan, config = self.plan, self.plan.config
        certain = [seconds for part in found.values() for seconds in part.certain_s]
        rows = [line for part in found.values() for line in all_lines(part.lines)]
        counts = {name: [row["evaluated"] for row in rows if row["strategy"] == name] for name in self.strategies}
        cards = {name: read_card(folder) for name, folder in self._folders().items()}

        def scores(part: Part, name: str, unit: str, column: int) -> list[dict[str, float]]:
            return interval(mean, part.regrets(name, config[unit], column), plan.resamples)

        return {
            "parts": {
                label: {
                    name: {
                        "evaluations": scores(part, name, "evaluations", EVALUATIONS),
                        "seconds": scores(part, name, "seconds", SECONDS),
                    }
                    for name in self.strategies
                }
                for label, part in found.items()
            },
            "tasks": {label: part.tasks for label, part in found.items()},
            "asked": {name: (min(of), int(np.median(of))) for name, of in counts.items()},
            "wall_over_processor": float(np.median([line["wall_s"] / line["elapsed_s"] for line in rows])),
            "evaluations": config["evaluations"], "seconds": config["seconds"], "seeds": plan.seeds,
            "hardware": self.hardware.name, "space": self.space,
            "training": {
                name: {"seconds": card["training_seconds"], "steps": card["training_steps"]} for name, card in cards.items()
            },
            "certain_s": [min(certain), max(certain)], "fingerprint": common(line["fingerprint"] for line in rows),
            "processor": config["processor"], "date": datetime.date.today().isoformat(),
        }  # fmt: skip

    def draw(self, found: dict[str, Part], summary: dict[str, Any]) -> list[str]:
        """Draw regret over evaluations and over seconds, a figure for each list of operators; return the file names."""
        parts = {
            EVALUATIONS: ("evaluations of the model", 4 * max(summary["evaluations"])),
            SECONDS: ("processor time in seconds", self.plan.config["budget_s"]),
        }
        names = []
        for label, part in found.items():
            figure, panels = by_costs(
                dict.fromkeys(self.strategies, 1.6), parts, 60,
                lambda name, at, column, part=part: np.maximum(LEAST, 100 * mean(part.regrets(name, at, column))),  # type: ignore[misc]
            )  # fmt: skip
            panels[0].set_yscale("log")
            panels[0].set_ylabel("mean regret to the optimum, %")
            panels[0].set_title(f"{label}: {len(part.tasks)} operators, {len(self.plan.seeds)} seeds")
            panels[1].legend(loc="upper right")
            names.append(style.save(figure, self.output / f"regret_{label.rpartition('/')[2]}.png"))
        return names

    @staticmethod
    def markdown(summary: dict[str, Any], figures: list[str]) -> str:
        """Return the results page as Markdown text."""
        least, most = (seconds_text(value) for value in summary["certain_s"])
        lines = [
            "# Searches of fused operators by the model", "",
            f"Space `{summary['space']}` on the model of {summary['hardware']}: no kernel was timed. Mean of log(T / T*) over "
            f"tasks and {len(summary['seeds'])} seeds, in brackets {LEVEL} intervals of a bootstrap over tasks and seeds. T* is "
            f"certain: each space was gone through as a whole, which takes {least} to {most} of processor time here. Seconds are "
            f"processor time of one thread of {summary['processor']}, the environment's table among them; by the clock a search "
            f"took {summary['wall_over_processor']:.2f} times as long, in the median. Neither seconds nor evaluations cut the "
            f"other. Fingerprint {summary['fingerprint']}. {summary['date']}.", "",
        ]  # fmt: skip
        for name, cost in summary["training"].items():
            lines += [f"`{name}` was trained for {cost['steps']:,} steps in {cost['seconds']:.0f} s of wall time.", ""]
        asked = ", ".join(f"{name} {least:,} and {median:,}" for name, (least, median) in summary["asked"].items())
        lines += [f"Evaluations of a search, the least and the median: {asked}.", ""]
        head = ("search", *after(evaluations=summary["evaluations"]), *after(summary["seconds"]))
        for part, found in summary["parts"].items():
            values = {name: (*of["evaluations"], *of["seconds"]) for name, of in found.items()}
            lines += [f"## {part}", "", f"{len(summary['tasks'][part])} operators.", "", *intervals(head, values), ""]
        return page(lines, figures)

    @staticmethod
    def sheet(summary: dict[str, Any]) -> Sheet:
        """Return the table of mean regrets by number of evaluations, for each list of operators and strategy."""
        head = ("part", "search", *after(evaluations=summary["evaluations"]))
        values = {(part, name): of["evaluations"] for part, found in summary["parts"].items() for name, of in found.items()}
        return interval_sheet("mean regret by the model", head, values)


main = study_command("fused_study", FusedStudy)
