"""Plan of the study of generalisation: its tasks, policies and searches, checked and resolved."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from agents.cli.checks import check_list, check_whole
from agents.cli.parent import PARENT
from agents.learners.stored import POLICY
from agents.policies.card import CARD, read_card
from agents.policies.training_tasks import is_current
from agents.runs.anytime import Search, digest_of_policy
from agents.runs.pool import ONE_THREAD
from agents.runs.settings import ROOT
from agents.strategy import CONSTRUCTIONS, get_strategy, strategies_for
from agents.training.trainings import training_of
from experiments.studies.study import Plan
from gensor_gym import hardware as machines
from gensor_gym import operators
from gensor_gym.foreign import meant, read_json
from gensor_gym.locate import located
from gensor_gym.operators.types import Operator
from gensor_gym.registry import near

# Policies of a study. Missing policies are trained in parallel, each in a subprocess of `gensor train`.
#
# `gensor train` resumes from its last checkpoint, so that a stopped training is not lost.

NEEDED = (POLICY, CARD)
"""Files that the folder of a trained policy must contain."""


@dataclass(frozen=True)
class Trained:
    """A trained policy."""

    folder: Path
    seed: int
    seconds: float
    """Seconds that training took, from the card; processor seconds for agents that count these (`columns`)."""
    steps: int
    """Number of environment steps that training took."""


def folder_of(pattern: str, seed: int, hardware: str) -> Path:
    """Return the folder of the policy trained with a seed: the pattern with `{seed}` and `{hardware}` replaced.

    Raise ValueError if the pattern has no `{seed}`.
    """
    if "{seed}" not in pattern:
        raise ValueError(f"folder {pattern!r}: expected {{seed}} in it, and {{hardware}} if several are trained for")
    return Path(pattern.format(seed=seed, hardware=hardware)).resolve()


def train_missing(
    pattern: str, seeds: Sequence[int], hardware: str, space: str, overrides: Mapping[str, Any], processes: int, split: str = "v1"
) -> list[Trained]:
    """Return the policies of all seeds; those without a folder are trained first, on the split's train part.

    `overrides` are arguments of `gensor train`. Raise ValueError for a policy with another fingerprint or other settings,
    RuntimeError if a training failed.
    """
    folders = {seed: folder_of(pattern, seed, hardware) for seed in seeds}
    missing = [seed for seed, folder in folders.items() if not all((folder / name).exists() for name in NEEDED)]
    given = {"operators": f"split/{split}/train", **overrides}
    commands = [command_of(folders[seed], seed, hardware, space, given) for seed in missing]
    running: list[subprocess.Popen[bytes]] = []
    with ThreadPoolExecutor(max(1, processes)) as pool:
        try:
            list(pool.map(lambda command: _run(command, running), commands))
        except BaseException:  # after a stop no training begins, and the running trainings save at their next safe point
            pool.shutdown(wait=False, cancel_futures=True)
            for process in running:
                process.terminate()
            raise
    return [_checked(folders[seed], seed, hardware, space, overrides, split) for seed in seeds]


def command_of(folder: Path, seed: int, hardware: str, space: str, overrides: Mapping[str, Any]) -> list[str]:
    """Return the command that trains one policy on one thread."""
    fixed = {"seed": seed, "output": folder, "env.hardware": hardware, "env.space": space, "torch_threads": 1}
    return [sys.executable, "-m", "experiments", "train", *(f"{name}={value}" for name, value in {**overrides, **fixed}.items())]


def _run(command: list[str], running: list[subprocess.Popen[bytes]]) -> None:
    """Run a training in a process, which is appended to `running`; its output goes to train.log next to the policy."""
    folder = Path(next(word for word in command if word.startswith("output=")).removeprefix("output="))
    folder.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, **dict.fromkeys(ONE_THREAD, "1"), PARENT: str(os.getpid())}
    with (folder / "train.log").open("a", encoding="utf-8") as log:
        with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=log, stderr=subprocess.STDOUT) as process:
            running.append(process)
    if process.returncode != 0:
        last = (folder / "train.log").read_text(encoding="utf-8").strip().splitlines()[-1:]
        raise RuntimeError(f"training of {folder} failed: {' '.join(last)} (more in {folder / 'train.log'})")


def _checked(folder: Path, seed: int, hardware: str, space: str, overrides: Mapping[str, Any], split: str) -> Trained:
    """Return the policy in a folder; raise ValueError if it was not trained as requested."""
    card = read_card(folder)
    config = OmegaConf.create(card["config"])
    before = {name: card["agent"] if name == "agent" else OmegaConf.select(config, name.removeprefix("+")) for name in overrides}
    differing = {name: found for name, found in before.items() if found != overrides[name]}
    if differing:
        asked_for = {name: overrides[name] for name in differing}
        raise ValueError(f"policy {folder} was trained with {differing}, asked for are {asked_for}; give it another folder")
    env = card["config"]["env"]
    found = (env["hardware"], env["space"], card["config"]["seed"])
    if found != (asked := (hardware, space, seed)):
        raise ValueError(f"policy {folder}: hardware, space and seed are {found}, asked for are {asked}")
    if card.get("sees") != (sees := training_of(card["agent"]).sees):
        raise ValueError(f"policy {folder} sees what version {card.get('sees')} of its agent sees, this is version {sees}")
    if {operators.part_of(op, split) for op in operators.resolve(card["operators"])} != {"train"}:
        raise ValueError(f"policy {folder} was trained on {card['operators']}: expected operators of the train part")
    if not is_current(card):
        raise ValueError(f"policy {folder} was trained on tasks of other rules or another model: their fingerprints differ here")
    return Trained(folder, seed, float(card["training_seconds"]), int(card["training_steps"]))


BUDGET = "@"
"""Separator between a strategy's name and the budget for which its hyperparameters were chosen, in a search's name."""
EVALUATIONS, SECONDS = "evaluations", "seconds"
"""Units of a budget."""
TUNED = {EVALUATIONS: "values", SECONDS: "values_within"}
"""Unit of the budget -> entry with its values in a file of tuned hyperparameters (`gensor tune_budgets`)."""
Variants = dict[str, dict[float, tuple[str, dict[str, Any]]]]
"""Unit -> budget for which hyperparameters were chosen (0: any budget) -> (registered name, hyperparameters)."""


@dataclass(frozen=True)
class Contender:
    """A kind of trained policy in the study: the strategy that constructs programs with it, and how it is trained.

    `of` is the strategy's registered name, `folder` the pattern of the policies' folders.
    """

    name: str
    of: str
    parameters: dict[str, Any]
    best_of: int | None
    """Number of episodes of the policy's second search; None if it has no episodes, and then its first round is reported."""
    folder: str
    train: dict[str, Any]
    annealed: bool
    """Whether annealing on the model continues from the programs of the episodes."""
    reference: str
    """Name of the strategy with which the policy is compared by groups of tasks; by default the study's reference."""

    @property
    def sampled(self) -> str:
        """Name of the search that takes one round of `best_of` episodes, or of the only search if there are no episodes."""
        return self.name if self.best_of is None else f"{self.name} best of {self.best_of}"


@dataclass(frozen=True)
class GeneralisePlan(Plan):
    """The study's configuration with everything that it names resolved."""

    part: str
    split: str
    """Version of the split."""
    operators: tuple[Operator, ...]
    left_out: tuple[str, ...]
    """Operators that are left out because no optimum is certified for them."""
    hardware: str
    space: str
    evaluations: int
    checkpoints: tuple[int, ...]
    seconds: tuple[float, ...]
    policies: tuple[Contender, ...]
    strategies: dict[str, Variants]
    begun: dict[str, int]
    """Number of seeds of the strategies that have fewer seeds than the policies."""

    @property
    def longest(self) -> float:
        """Processor seconds that every search spends at least: the largest time that is scored."""
        return max(self.seconds)

    def labels(self, name: str, unit: str = EVALUATIONS) -> dict[float, str]:
        """Return the names of a strategy's searches by the budget in `unit` for which their hyperparameters were chosen.

        Budgets with equal hyperparameters share one search, named by the fewest evaluations or by the most seconds.
        """
        found: dict[float, str] = {}
        variants = self.strategies[name][unit] if name in self.strategies else {0: (name, {})}
        order = sorted(variants, reverse=unit == SECONDS)
        for amount, chosen in variants.items():
            first = next(k for k in order if variants[k] == chosen)
            found[amount] = f"{name}{BUDGET}{first:g}{' s' if unit == SECONDS else ''}" if first else name
        return found

    def seeds_of(self, strategy: str) -> tuple[int, ...]:
        """Return the seed of the strategy's search that is paired with each policy seed.

        A strategy with fewer seeds repeats them in order.
        """
        count = self.begun.get(strategy, len(self.seeds))
        return tuple(self.seeds[i % count] for i in range(len(self.seeds)))


def plan_of(config: DictConfig) -> GeneralisePlan:
    """Resolve a configuration (conf/generalise.yaml); ValueError names an invalid setting."""
    plain: Any = OmegaConf.to_container(config, resolve=True)
    check_whole(plain, 1, "evaluations", "processes", "nodes", "resamples")
    check_list(plain, 0, "seeds")
    policies = tuple(_learned(name, given, plain["reference"]) for name, given in (plain["policies"] or {}).items())
    given_strategies = {name: dict(given or {}) for name, given in (plain["strategies"] or {}).items()}
    begun = {name: _begun(name, given, plain["seeds"]) for name, given in given_strategies.items() if "seeds" in given}
    strategies = {name: _variants(name, given) for name, given in given_strategies.items()}
    for name in (plain["reference"], *(policy.reference for policy in policies)):
        if name not in strategies:
            raise ValueError(f"reference {name!r}: expected one of the strategies, {sorted(strategies)}")
    if twice := set(strategies) & {policy.name for policy in policies}:
        raise ValueError(f"names {sorted(twice)} are those of a strategy and of a policy")
    part, chosen, split, most = plain["part"], plain["operators"], plain["split"], plain["evaluations"]
    seconds = _numbers("seconds", plain["seconds"], None)
    ops = tuple(dict.fromkeys(operators.resolve(chosen if chosen is not None else f"split/{split}/{part}")))
    asked = tuple(op for op in ops if op.name != "elementwise")  # its spaces are too large for certificates
    for name, variants in strategies.items():
        if (longest := max(variants[SECONDS])) and longest < max(seconds):
            raise ValueError(f"seconds {max(seconds)!r}: strategies.{name}.tuned has values for {longest} and fewer")
    return GeneralisePlan(
        plain, part if chosen is None else "chosen", split, asked,
        tuple(str(op) for op in ops if op not in asked), modelled(plain["env"]["hardware"]), plain["env"]["space"], most,
        _numbers("checkpoints", plain["checkpoints"], most), seconds, policies, strategies, begun,
    )  # fmt: skip


def modelled(name: str) -> str:
    """Return the full name of a hardware model; raise ValueError for `host`, whose figures are measured and may change."""
    found = machines.get(name).name
    if found == "host":
        raise ValueError(
            "env.hardware 'host': its figures are measured and depend on the threads of a process; expected a machine of "
            f"constants: {', '.join(known for known in machines.names() if known != 'host')}"
        )
    return found


def _numbers(name: str, values: Any, most: int | None) -> tuple[Any, ...]:
    """Return the sorted positive numbers of a setting, without those above `most`; raise ValueError if none remains."""
    if not isinstance(values, list) or not all(isinstance(v, (int, float)) and v > 0 for v in values):
        raise ValueError(f"{name} {values!r}: expected a list of positive numbers")
    kept = tuple(sorted({v for v in values if most is None or v <= most}))
    if not kept:
        raise ValueError(f"{name} {values!r}: expected at least one of at most {most}")
    return kept


def _begun(name: str, given: dict[str, Any], seeds: list[int]) -> int:
    """Remove the entry `seeds` (a number of seeds) from a strategy's settings and return it; ValueError if it is invalid."""
    check_whole(given, 1, "seeds", of=f"strategies.{name}.")
    return min(given.pop("seeds"), len(dict.fromkeys(seeds)))


def _learned(name: str, given: dict[str, Any], reference: str) -> Contender:
    """Read a policy of the configuration; raise ValueError if an entry is missing or its strategy takes no checkpoint."""
    if missing := [entry for entry in ("of", "folder") if not (isinstance(given, dict) and given.get(entry))]:
        raise ValueError(f"policies.{name} {given!r}: expected {' and '.join(missing)} in it")
    of, fields = given["of"], set()
    if of in strategies_for(CONSTRUCTIONS):
        fields = {field.name for field in dataclasses.fields(type(get_strategy(of)))}  # type: ignore[arg-type]
    if "checkpoint" not in fields:
        raise ValueError(f"policies.{name}.of {of!r}: expected a strategy with a checkpoint, such as 'ppo'")
    best_of = given.get("best_of")
    if (best_of is None) is ("episodes" in fields) or (best_of is not None and not (isinstance(best_of, int) and best_of > 0)):
        raise ValueError(f"policies.{name}.best_of {best_of!r}: expected a number of episodes, null where {of!r} has none")
    return Contender(
        name, of, given.get("parameters") or {}, best_of, given["folder"], given.get("train") or {}, "chain_steps" in fields,
        given.get("reference") or reference,
    )  # fmt: skip


def _variants(name: str, given: dict[str, Any]) -> Variants:
    """Read a strategy of the configuration: its registered name and hyperparameters, by unit of the budget and by budget."""
    parameters = dict(given)
    of, tuned = parameters.pop("of", name), parameters.pop("tuned", None)
    if of not in (known := strategies_for(CONSTRUCTIONS)):
        raise ValueError(f"strategies.{name}: no strategy {of!r}; strategies are {sorted(known)}{near(of, known)}")
    if tuned is None:
        return dict.fromkeys(TUNED, {0.0: (of, parameters)})
    path = located(tuned)
    if not path.exists():
        raise ValueError(f"strategies.{name}.tuned {tuned!r}: no such file; python -m experiments tune_budgets makes it")
    found = read_json(path, finite=False)
    with meant(path, "file of tuned values"):
        if found["strategy"] != of:
            raise ValueError(f"strategies.{name}.tuned {tuned!r}: values of {found['strategy']!r}, not of {of!r}")
        return {
            unit: {float(amount): (of, {**values, **parameters}) for amount, values in found[where].items()}
            for unit, where in TUNED.items()
        }


def searches(plan: GeneralisePlan, tasks: Sequence[str], policies: dict[str, Sequence[Trained]]) -> list[Search]:
    """Return all searches of the study: those of the strategies, then those of the policies, on each task and seed."""
    of = (plan.hardware, plan.space)
    found = [
        Search(label, *chosen, task, *of, seed, *spent)
        for name in plan.strategies for label, chosen, spent in _labelled(plan, name)
        for task in tasks for seed in dict.fromkeys(plan.seeds_of(name))
    ]  # fmt: skip
    for learned in plan.policies:
        for trained in policies[learned.name]:
            for task in tasks:
                found += searches_of(learned, trained, task, *of, plan.evaluations, plan.longest)
    return found


def _labelled(plan: GeneralisePlan, name: str) -> Iterator[tuple[str, tuple[str, dict[str, Any]], tuple[int, float]]]:
    """Yield each of a strategy's searches as (name, (registered name, hyperparameters), (evaluations, seconds) to spend).

    A search whose hyperparameters are for any budget spends evaluations and seconds. One for a number of evaluations spends the
    study's largest number, so that its curve has every smaller number. One for some seconds spends these seconds.
    """
    variants = plan.strategies[name]
    if 0 in variants[EVALUATIONS]:
        yield name, variants[EVALUATIONS][0], (plan.evaluations, plan.longest)
        return
    for unit in TUNED:
        for label, amount in {label: amount for amount, label in sorted(plan.labels(name, unit).items())}.items():
            spent = (plan.evaluations, 0.0) if unit == EVALUATIONS else (1, min(amount, plan.longest))
            yield label, variants[unit][amount], spent


def searches_of(
    learned: Contender, trained: Trained, task: str, hardware: str, space: str, evaluations: int, seconds: float
) -> list[Search]:
    """Return the searches of one policy on one task.

    The first spends `evaluations` and `seconds`, with `parameters["episodes"]` episodes at a time, by default `best_of`. The
    second, if the policy has episodes, is one round of `best_of` episodes.
    """
    digest = digest_of_policy(trained.folder)
    values: dict[str, Any] = {**learned.parameters, "checkpoint": str(trained.folder)}
    where = (task, hardware, space, trained.seed, evaluations)
    if learned.best_of is None:
        return [Search(learned.name, learned.of, values, *where, seconds, policy=digest)]
    at_once = {"episodes": learned.best_of}
    return [
        Search(learned.name, learned.of, at_once | values, *where, seconds, policy=digest),
        Search(learned.sampled, learned.of, values | at_once, *where, once=True, policy=digest),
    ]
