"""Policies trained on the model of one GPU, tested on models of others: `python -m experiments transfer` (conf/transfer.yaml).

A policy runs on any of them: it observes the hardware's figures, or they are hidden. A cell of the matrix is the mean regret of
its best of several episodes, relative to the certified optimum of the tested hardware, compared with the policy trained there.
Transfer is between models of GPUs, not between GPUs.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Sequence
from typing import Any

import numpy as np
from omegaconf import DictConfig, OmegaConf
from rich.console import Console

from agents.runs.anytime import Search
from agents.runs.sheets.sheet import Sheet
from agents.runs.texts import interval_text, now, page, table
from experiments.studies.generalise.plan import Contender, GeneralisePlan, Trained, plan_of, searches, searches_of, train_missing
from experiments.studies.generalise.scores import Regrets
from experiments.studies.generalise.study import regrets_of
from experiments.studies.scores import difference, heat_map, interval, interval_sheet, mean, over
from experiments.studies.study import Study, study_command
from gensor_gym.fingerprint import common, fingerprints
from gensor_gym.measure.stats.intervals import LEVEL

Policies = dict[str, Sequence[Trained]]
"""Training hardware -> policies of all seeds."""


def plans_of(config: DictConfig) -> dict[str, GeneralisePlan]:
    """Hardware's full name -> plan, for each tested hardware.

    ValueError for an invalid setting, or unless there is exactly one kind of policy.
    """
    plain: Any = OmegaConf.to_container(config, resolve=True)
    tested = plain["env"]["hardware"]
    if not isinstance(tested, list) or len(tested) < 2:
        raise ValueError(f"env.hardware {tested!r}: expected a list of two or more")
    if len(plain["policies"] or {}) != 1:
        raise ValueError(f"policies {sorted(plain['policies'] or {})}: a transfer matrix is of one kind of policy")
    rest = {"checkpoints": [plain["evaluations"]], "seconds": [1.0]}
    plans = [plan_of(OmegaConf.create({**plain, **rest, "env": {**plain["env"], "hardware": hw}})) for hw in tested]
    return {plan.hardware: plan for plan in plans}


def label(learned: Contender, trained_on: str) -> str:
    """Name of the search of a policy that was trained on a hardware."""
    return f"{learned.sampled} trained on {trained_on}"


def wanted(plan: GeneralisePlan, texts: Sequence[str], policies: Policies) -> list[Search]:
    """All searches on a plan's hardware: policies trained on any hardware, and the strategies."""
    learned = plan.policies[0]
    found = searches(dataclasses.replace(plan, policies=()), texts, {})
    for trained_on, seeds in policies.items():
        for trained in seeds:
            for text in texts:
                *_, sampled = searches_of(learned, trained, text, plan.hardware, plan.space, plan.evaluations, 0.0)
                found.append(dataclasses.replace(sampled, strategy=label(learned, trained_on), once=True))
    return found


def column(study: Regrets, trained_on: Sequence[str]) -> dict[str, Any]:
    """Column of the matrix: regrets on a study's hardware, of policies by training hardware and of strategies.

    All are cut at the number of evaluations of the policy trained on that hardware.
    """
    plan, learned = study.plan, study.plan.policies[0]
    counts = {name: study.first(label(learned, name))[0] for name in trained_on}
    at = counts[plan.hardware][..., None]
    regrets = {name: study.regret(label(learned, name), at) for name in trained_on}
    regrets |= {name: study.regret(name, at) for name in plan.strategies}
    return {
        "operators": [task.text for task in study.tasks],
        "evaluations": {name: float(of.mean()) for name, of in counts.items()},
        "regret": {name: interval(mean, values, plan.resamples)[0] for name, values in regrets.items()},
        "over_native": {name: lines[0] for name, lines in over(regrets, plan.hardware, plan.resamples).items()},
    }  # fmt: skip


class Transfer(Study[GeneralisePlan, dict[str, Regrets]]):
    """The study of policies on hardware that they were not trained on; its results are by tested hardware."""

    def __init__(self, plans: dict[str, GeneralisePlan]) -> None:
        """Take a plan for each tested hardware; the plans differ only in the hardware."""
        super().__init__(next(iter(plans.values())))
        self.plans = plans

    def run(self, console: Console) -> dict[str, Regrets]:
        """Train missing policies, certify missing optima, run missing searches, and return the regrets by hardware."""
        learned = self.plan.policies[0]
        policies: Policies = {}
        for name, plan in self.plans.items():
            with console.status(f"policies for {name}: training what is missing"):
                policies[name] = train_missing(learned.folder, plan.seeds, name, plan.space, learned.train, plan.processes)
        return {name: regrets_of(self, plan, policies, wanted, console) for name, plan in self.plans.items()}

    def summarise(self, found: dict[str, Regrets]) -> dict[str, Any]:
        """Summary with a column for each tested hardware."""
        plan, learned = self.plan, self.plan.policies[0]
        marks = [mark for one in self.plans.values() for mark in fingerprints(one.operators, one.hardware, one.space).values()]
        policies = next(iter(found.values())).policies
        return {
            "fingerprint": common(marks), "date": now(),
            "part": plan.part, "space": plan.space, "seeds": list(plan.seeds), "policy": learned.name,
            "round": "first round" if learned.best_of is None else f"best of {learned.best_of} episodes",
            "strategies": list(plan.strategies), "hardware": list(self.plans),
            "columns": {name: column(one, list(self.plans)) for name, one in found.items()},
            "unknown": {name: one.unknown for name, one in found.items()}, "left_out": list(plan.left_out),
            "training_s": {name: [one.seconds for one in seeds] for name, seeds in policies.items()},
        }  # fmt: skip

    def draw(self, found: dict[str, Regrets], summary: dict[str, Any]) -> list[str]:
        """Draw the mean regrets, training hardware in rows and tested hardware in columns; return the file name in a list."""
        hardware, rows = summary["hardware"], _rows(summary)
        values = 100 * np.array([[summary["columns"][on]["regret"][name]["mean"] for on in hardware] for name, _ in rows])
        return [heat_map(
            values, [shown for _, shown in rows], hardware, self.output / "transfer.png",
            title=f"mean regret, {summary['round']}", below="tested on the model of",
            bold=[(i, i) for i in range(len(hardware))], gaps=[len(hardware)],
            size=(1.6 + 0.95 * len(hardware), 1.3 + 0.5 * len(rows)), least=1.0, white_above=13.0, unit=" %",
        )]  # fmt: skip

    @staticmethod
    def markdown(summary: dict[str, Any], figures: list[str]) -> str:
        """Markdown text of the page."""
        columns, hardware = summary["columns"], summary["hardware"]
        head = ("trained on", *(f"tested on {name}" for name in hardware))
        seconds = {name: statistics.mean(of) for name, of in summary["training_s"].items()}

        def regret(name: str, on: str) -> str:
            text = interval_text(columns[on]["regret"][name], 1)
            return f"**{text}**" if name == on else text

        def apart(name: str, on: str) -> str:
            line = columns[on]["over_native"].get(name)
            return "" if line is None else difference(line)

        lines = [
            "# Policies between models of GPUs", "",
            f"Policy `{summary['policy']}`, {summary['round']}, space {summary['space']}, {summary['part']} part, "
            f"{len(summary['seeds'])} training seeds. The hardware is a model: nothing ran on a GPU. Fingerprint "
            f"{summary['fingerprint']}. {summary['date']}.", "",
            "Mean regret, log(T / T*) to the optimum certified for the tested hardware, over operators and seeds; in brackets "
            f"{LEVEL} intervals of a bootstrap over operators and training seeds. Bold: trained there. Searches, and policies "
            "from elsewhere, are stopped at the evaluations of the policy trained there; a policy that ends earlier, there.", "",
            *table(head, [(name, *(regret(name, on) for on in hardware)) for name in hardware]), "",
            *table(("search", *head[1:]), [(name, *(regret(name, on) for on in hardware)) for name in summary["strategies"]]), "",
            "## What transfer costs", "",
            "Mean regret less that of the policy trained there, same operator and seed; p of a sign-flip test on the operators' "
            "means, adjusted by Holm within a column.", "",
            *table(head, [(name, *(apart(name, on) for on in hardware)) for name in [*hardware, *summary["strategies"]]]), "",
            "## Costs and operators", "",
            *table(("hardware", "operators", "evaluations, trained there", "training a seed"), [
                (name, str(len(of["operators"])), f"{of['evaluations'][name]:,.0f}", f"{seconds[name]:.0f} s")
                for name, of in columns.items()
            ]), "",
        ]  # fmt: skip
        if summary["left_out"]:
            lines += [f"Left out: {len(summary['left_out'])} elementwise maps, whose optima are not certified.", ""]
        for name, unknown in summary["unknown"].items():
            lines += [f"Left out on {name}: `{text}`: {why}\n" for text, why in unknown.items()]
        return page(lines, figures)

    @staticmethod
    def sheet(summary: dict[str, Any]) -> Sheet:
        """Table of mean regrets: policies by training hardware, then searches, with a column for each tested hardware."""
        values = {shown: [summary["columns"][on]["regret"][name] for on in summary["hardware"]] for name, shown in _rows(summary)}
        return interval_sheet("mean regret on the model of", ("policy or search", *summary["hardware"]), values)


def _rows(summary: dict[str, Any]) -> list[tuple[str, str]]:
    """(name, displayed name) of policies by training hardware, then of searches."""
    policies = [(name, f"trained on {name}") for name in summary["hardware"]]
    return [*policies, *((name, name) for name in summary["strategies"])]


main = study_command("transfer", lambda config: Transfer(plans_of(config)))
