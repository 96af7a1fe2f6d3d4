"""Policies trained on the model of one GPU, tested on those of others: `python -m experiments.transfer` (conf/transfer.yaml).

A policy runs on any of them: the hardware's figures are part of the observation, or hidden from it. Every cell of the matrix is
the mean regret of its best of so many episodes to the optimum certified for the tested hardware, beside the policy trained there.
Transfer is between models of GPUs, not between GPUs. A command that was stopped goes on where it was.
"""

from __future__ import annotations

import dataclasses
import datetime
import time
from collections.abc import Sequence
from typing import Any

import hydra
from omegaconf import DictConfig, OmegaConf
from rich.console import Console

from experiments.common import paired
from experiments.common.anytime import Search
from experiments.common.arguments import CONF
from experiments.common.commands import command_line, refusals, say_where
from experiments.common.folders import make_folder
from experiments.common.journal import Journal
from experiments.common.lines import run_missing
from experiments.common.results import write_summary
from experiments.studies.generalise.generalise import certified
from experiments.studies.generalise.plan import Contender, Plan, plan_of, searches, searches_of
from experiments.studies.generalise.policies import Trained, train_missing
from experiments.studies.generalise.scores import Study, Task, interval, mean, task_of
from experiments.studies.transfer import report as transfer_report
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
                *_, sampled = searches_of(learned, trained, text, plan.hardware, plan.space, plan.evaluations)
                found.append(dataclasses.replace(sampled, strategy=label(learned, trained_on), once=True))
    return found


def column(study: Study, trained_on: Sequence[str]) -> dict[str, Any]:
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


def transfer(plans: dict[str, Plan], console: Console) -> dict[str, Any]:
    """Train, certify, search what is missing; write summary, page and figure; returns the summary."""
    first = next(iter(plans.values()))
    learned, kept = first.policies[0], Journal(make_folder(first.output) / "lines.jsonl")
    policies: Policies = {}
    for name, plan in plans.items():
        with console.status(f"policies for {name}: training what is missing"):
            policies[name] = train_missing(learned.folder, plan.seeds, name, plan.space, learned.train, plan.processes)
    columns, unknown = {}, {}
    for name, plan in plans.items():
        known, unknown[name] = certified([str(op) for op in plan.operators], name, plan, console)
        if not known:
            raise ValueError(f"no optimum is certified on {name}: {unknown[name]}")
        rows = run_missing(wanted(plan, list(known), policies), kept, plan.processes, console)
        tasks: list[Task] = [task_of(op, known[str(op)]) for op in plan.operators if str(op) in known]
        columns[name] = column(Study(plan, tasks, rows, {}), list(plans))
    met = [found for plan in plans.values() for found in fingerprints(plan.operators, plan.hardware, plan.space).values()]
    summary = {
        "fingerprint": common(met), "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "part": first.part, "space": first.space, "seeds": list(first.seeds), "policy": learned.name,
        "round": "first round" if learned.best_of is None else f"best of {learned.best_of} episodes",
        "strategies": list(first.strategies), "hardware": list(plans), "columns": columns, "unknown": unknown,
        "left_out": list(first.left_out),
        "training_s": {name: [one.seconds for one in seeds] for name, seeds in policies.items()},
    }  # fmt: skip
    _write(first, summary)
    return summary


def _write(plan: Plan, summary: dict[str, Any]) -> None:
    """summary.json, the heat map, summary.md."""
    names = [transfer_report.draw(summary, plan.output / "transfer.png")] if plan.figures else []
    write_summary(plan.output, {**summary, "config": plan.config}, transfer_report.markdown(summary, names))


@hydra.main(version_base="1.3", config_path=str(CONF), config_name="transfer")
def run(config: DictConfig) -> None:
    """One configuration."""
    console, begin = Console(), time.perf_counter()
    with refusals(console, ValueError, RuntimeError, OSError):
        plans = plans_of(config)
        summary = transfer(plans, console)
    for name, one in summary["columns"].items():
        found = ", ".join(f"{other} {100 * value['mean']:.1f} %" for other, value in one["regret"].items())
        console.print(f"on {name}: {found}", highlight=False, soft_wrap=True)
    say_where(console, begin, next(iter(plans.values())).output)


def main() -> None:
    """Command line."""
    command_line(run)
