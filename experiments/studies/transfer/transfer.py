"""Policies trained on the model of one GPU, tested on those of others: `python -m experiments transfer` (conf/transfer.yaml).

A policy runs on any of them: the hardware's figures are part of the observation, or hidden from it. Every cell of the matrix is
the mean regret of its best of so many episodes to the optimum certified for the tested hardware, beside the policy trained there.
Transfer is between models of GPUs, not between GPUs. A command that was stopped goes on where it was.
"""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Sequence
from typing import Any

from omegaconf import DictConfig, OmegaConf
from rich.console import Console

from experiments.common.anytime import Search
from experiments.statistics import paired
from experiments.studies.generalise.generalise import certified
from experiments.studies.generalise.plan import Contender, Plan, plan_of, searches, searches_of
from experiments.studies.generalise.policies import Trained, train_missing
from experiments.studies.generalise.scores import Regrets, task_of
from experiments.studies.intervals import interval, mean
from experiments.studies.study import Study, study_command
from experiments.studies.transfer import report
from gensor_gym.fingerprint import common, fingerprints

Policies = dict[str, Sequence[Trained]]
"""Policies of all seeds by the hardware that they were trained on."""


def plans_of(config: DictConfig) -> dict[str, Plan]:
    """A plan for each hardware that is tested, by its full name.

    ValueError names what is wrong, or says that one policy is expected.
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


def wanted(plan: Plan, texts: Sequence[str], policies: Policies) -> list[Search]:
    """All searches on the hardware of a plan: policies trained on any hardware, and the strategies."""
    learned = plan.policies[0]
    found = searches(dataclasses.replace(plan, policies=()), texts, {})
    for trained_on, seeds in policies.items():
        for trained in seeds:
            for text in texts:
                *_, sampled = searches_of(learned, trained, text, plan.hardware, plan.space, plan.evaluations, 0.0)
                found.append(dataclasses.replace(sampled, strategy=label(learned, trained_on), once=True))
    return found


def column(study: Regrets, trained_on: Sequence[str]) -> dict[str, Any]:
    """Regrets on the hardware of a study by what a policy was trained on, and of strategies: all at the native's evaluations."""
    plan, learned = study.plan, study.plan.policies[0]
    counts = {name: study.first(label(learned, name))[0] for name in trained_on}
    evaluations = counts[plan.hardware]
    regrets = {name: study.regret(label(learned, name), evaluations[..., None]) for name in trained_on}
    beside = {name: study.regret(name, evaluations[..., None]) for name in plan.strategies}
    others = {name: values for name, values in (regrets | beside).items() if name != plan.hardware}
    over = paired.against(others, regrets[plan.hardware], plan.resamples, crossed=True)
    return {
        "operators": [task.text for task in study.tasks],
        "evaluations": {name: float(of.mean()) for name, of in counts.items()},
        "regret": {name: interval(mean, values, plan.resamples)[0] for name, values in (regrets | beside).items()},
        "over_native": {name: lines[0] for name, lines in over.items()},
    }  # fmt: skip


class Transfer(Study[Plan, dict[str, Regrets]]):
    """What policies lose on hardware that they were not trained for; what is found is by the hardware that is tested."""

    report = report

    def __init__(self, plans: dict[str, Plan]) -> None:
        """A plan for each hardware; what is not of the hardware is as in the first."""
        super().__init__(next(iter(plans.values())))
        self.plans = plans

    def run(self, console: Console) -> dict[str, Regrets]:
        """Train, certify, search what is missing."""
        learned, found = self.plan.policies[0], {}
        policies: Policies = {}
        for name, plan in self.plans.items():
            with console.status(f"policies for {name}: training what is missing"):
                policies[name] = train_missing(learned.folder, plan.seeds, name, plan.space, learned.train, plan.processes)
        for name, plan in self.plans.items():
            known, unknown = certified([str(op) for op in plan.operators], name, plan, self.plan.output, console)
            rows = self.lines(wanted(plan, list(known), policies), plan.processes, console)
            tasks = [task_of(op, known[str(op)]) for op in plan.operators if str(op) in known]
            found[name] = Regrets(plan, tasks, rows, policies, unknown)
        return found

    def summarise(self, found: dict[str, Regrets]) -> dict[str, Any]:
        """A column for each hardware that is tested."""
        plan, learned = self.plan, self.plan.policies[0]
        met = [mark for one in self.plans.values() for mark in fingerprints(one.operators, one.hardware, one.space).values()]
        policies = next(iter(found.values())).policies
        return {
            "fingerprint": common(met), "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "part": plan.part, "space": plan.space, "seeds": list(plan.seeds), "policy": learned.name,
            "round": "first round" if learned.best_of is None else f"best of {learned.best_of} episodes",
            "strategies": list(plan.strategies), "hardware": list(self.plans),
            "columns": {name: column(one, list(self.plans)) for name, one in found.items()},
            "unknown": {name: one.unknown for name, one in found.items()}, "left_out": list(plan.left_out),
            "training_s": {name: [one.seconds for one in seeds] for name, seeds in policies.items()},
        }  # fmt: skip

    def draw(self, found: dict[str, Regrets], summary: dict[str, Any]) -> list[str]:
        """The matrix."""
        return [report.draw(summary, self.plan.output / "transfer.png")]


main = study_command("transfer", lambda config: Transfer(plans_of(config)))
