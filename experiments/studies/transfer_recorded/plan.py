"""Plan of the study of transfer between recorded GPUs: its tasks, trainings and searches, checked and resolved."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from omegaconf import DictConfig, OmegaConf

from agents.cli.checks import check_list, check_whole
from agents.learners.stored import POLICY
from agents.optimizer import run
from agents.policies.card import CARD
from agents.recorded.tune import get_strategy_of_spaces
from agents.runs.settings import code_digest, digest_of_file, short_hash
from agents.strategy import RECORDED, strategies_for
from agents.training.recorded_spaces import RecordedTraining, check_alike
from experiments.studies.study import Plan
from gensor_gym.measure.session import Budget
from gensor_gym.spaces import TuningSession, load_space


@dataclass(frozen=True)
class RecordedSearch:
    """One search: a strategy of `agents.tune` on one recorded space (a kernel on a device) with one seed."""

    kernel: str
    device: str
    name: str
    """Name of the search within the study."""
    space: str
    """Path of the recording."""
    of: str
    """Registered name of the strategy among those for recorded spaces."""
    parameters: Mapping[str, Any]
    seed: int
    repeats: int
    trials: int
    timing: str = "reported"

    @property
    def key(self) -> str:
        """Hash of everything that determines the outcome (files, policies, settings, code), sixteen hexadecimal digits."""
        strategy: Any = dataclasses.asdict(get_strategy_of_spaces(self.of, **self.parameters))  # type: ignore[call-overload]
        if folder := strategy.pop("checkpoint", None):
            strategy["policy"] = [digest_of_file(Path(folder) / name) for name in (POLICY, CARD)]
        strategy["spaces"] = [digest_of_file(path) for path in strategy.get("spaces", ())]
        rest = (self.kernel, self.device, self.name, self.of, self.seed, self.repeats, self.trials, self.timing)
        return short_hash([digest_of_file(self.space), strategy, *rest, code_digest(), self.stream(0)])

    def stream(self, repeat: int) -> int:
        """Return the seed of the random numbers of repeat number `repeat`.

        It differs between tasks and is the same for all strategies on a task.
        """
        return int(short_hash([self.kernel, self.device, self.seed, repeat]), 16)


def search_recorded(search: RecordedSearch) -> dict[str, Any]:
    """Run a search and return its row, with `curves`: for each repeat, what `improvements` returns."""
    space = load_space(search.space)
    strategy = get_strategy_of_spaces(search.of, **search.parameters)
    curves = []
    for repeat in range(search.repeats):
        session = TuningSession(space, Budget(trials=min(search.trials, len(space))), search.timing)
        run(strategy, session, search.stream(repeat))
        curves.append(improvements([row.seconds for row in session.trace]))
    return {
        "key": search.key, "kernel": search.kernel, "device": search.device, "name": search.name, "seed": search.seed,
        "curves": curves,
    }  # fmt: skip


def improvements(seconds: list[float]) -> list[list[float]]:
    """Return [numbers, seconds] of the trials that were faster than all before; numbers count from 1."""
    best = np.minimum.accumulate([np.inf, *seconds])
    new = 1 + np.flatnonzero(best[1:] < best[:-1])
    return [new.tolist(), best[new].tolist()]


def regrets(curves: list[list[list[float]]], checkpoints: list[int], best: float, cap: float) -> np.ndarray:
    """Return the mean over repeats of log(T / T*) after the numbers of trials `checkpoints`, float64 [K].

    T* is the best recorded time `best`, and T that of the best trial so far. As long as no trial succeeded, T is the slowest
    recorded time `cap`.
    """
    found = []
    for trials, seconds in curves:
        at = np.searchsorted(trials, checkpoints, side="right")
        found.append(np.log(np.array([cap, *seconds])[at] / best))
    return np.mean(found, axis=0)


OTHERS = "all others"
"""Word in the names of searches for all devices of a kernel except the tested one."""
MEMORISED, ANOTHER = "memorisation reference", "policy trained on another"
"""Roles of policies: trained on the recording on which they are tested, and trained on another device.

The first shows what a policy can memorise, and nothing about unseen devices.
"""
POLICY_OF, BEST_OF = "policy trained on ", "best first of "
FROM_BEST = "policy trained on all others, from their best"


@dataclass(frozen=True)
class Task:
    """A kernel on the device on which searches are tested."""

    kernel: str
    device: str


@dataclass(frozen=True)
class RecordedPlan(Plan):
    """The study's configuration, with kernels, checkpoints and strategies checked."""

    kernels: dict[str, tuple[str, ...]]
    """Kernel -> devices."""
    checkpoints: tuple[int, ...]
    strategies: dict[str, dict[str, Any]]

    @property
    def tasks(self) -> list[Task]:
        """All tested tasks."""
        return [Task(kernel, device) for kernel, devices in self.kernels.items() for device in devices]

    def file(self, kernel: str, device: str) -> str:
        """Return the path of the recording of a kernel on a device."""
        return str(self.config["spaces"]).format(kernel=kernel, device=device)

    def elsewhere(self, task: Task) -> list[str]:
        """Return all other devices for which the task's kernel is recorded."""
        return [device for device in self.kernels[task.kernel] if device != task.device]

    def others(self, task: Task) -> list[str]:
        """Return the paths of the recordings of the task's kernel on all other devices."""
        return [self.file(task.kernel, device) for device in self.elsewhere(task)]

    def trainings(self) -> list[tuple[RecordedTraining, Path]]:
        """Return (training, folder) of all policies: for every device, trained on it alone and on all other devices."""
        found, config = [], self.config
        given = config["agent"], config["env"] or {}, config["timing"], config["steps"], config["num_envs"]
        for task in self.tasks:
            own = self.file(task.kernel, task.device)
            for name, files in ((task.device, [own]), (f"not_{task.device}", self.others(task))):
                for seed in self.seeds:
                    found.append((RecordedTraining(tuple(files), *given, seed), self.folder(task.kernel, name, seed)))
        return found

    def folder(self, kernel: str, name: str, seed: int) -> Path:
        """Folder of a policy."""
        return Path(self.config["policies"]) / kernel / f"{name}_{seed}"

    def searches(self) -> list[RecordedSearch]:
        """Return all searches of all tasks."""
        return [search for task in self.tasks for search in self._of(task)]

    def _of(self, task: Task) -> Iterator[RecordedSearch]:
        """Yield all searches of a task; deterministic ones run once."""
        config = self.config
        spent = config["repeats"], config["trials"], config["timing"]
        plain = RecordedSearch(task.kernel, task.device, "", self.file(task.kernel, task.device), "", {}, 0, *spent)
        devices = self.kernels[task.kernel]
        for seed in self.seeds:
            one = dataclasses.replace(plain, seed=seed)
            for device in (*devices, f"not_{task.device}"):
                name = POLICY_OF + (device if device in devices else OTHERS)
                given: dict[str, Any] = {"checkpoint": str(self.folder(task.kernel, device, seed)), "starts": "random"}
                yield dataclasses.replace(one, name=name, of="policy", parameters=given)
            yield dataclasses.replace(one, name=FROM_BEST, of="policy", parameters={**given, "starts": "best"})
            for name, values in self.strategies.items():
                yield dataclasses.replace(one, name=name, of=name, parameters=values)
        for device in (*self.elsewhere(task), OTHERS):
            files = self.others(task) if device == OTHERS else [self.file(task.kernel, device)]
            given = {"spaces": files}
            yield dataclasses.replace(plain, name=BEST_OF + device, of="elsewhere", parameters=given, repeats=1)


def plan_of(config: DictConfig) -> RecordedPlan:
    """Resolve a configuration (conf/transfer_recorded.yaml); ValueError names an invalid setting."""
    plain: Any = OmegaConf.to_container(config, resolve=True)
    check_whole(plain, 1, "trials", "repeats", "processes", "resamples")
    check_list(plain, 0, "seeds")
    check_list(plain, 1, "checkpoints")
    if plain["shown"] not in plain["checkpoints"] or max(plain["checkpoints"]) > plain["trials"]:
        found = f"shown {plain['shown']!r}, checkpoints {plain['checkpoints']}, trials {plain['trials']}"
        raise ValueError(f"{found}: expected one of the checkpoints, none of which is above the trials")
    checkpoints = tuple(sorted(set(plain["checkpoints"])))
    _check_pattern(plain["spaces"])
    plan = RecordedPlan(plain, _kernels(plain["kernels"]), checkpoints, _strategies(plain))
    plan.trainings()  # raises ValueError for missing settings of training
    for kernel, devices in plan.kernels.items():
        check_alike([load_space(plan.file(kernel, device)) for device in devices])
    return plan


def _check_pattern(value: Any) -> None:
    """Check that a path has the fields `{kernel}` and `{device}` and no other field; raise ValueError if not."""
    if not isinstance(value, str) or "{kernel}" not in value or "{device}" not in value:
        raise ValueError(f"spaces {value!r}: expected a path with {{kernel}} and {{device}} in it")
    try:
        value.format(kernel="", device="")
    except (KeyError, IndexError, ValueError) as error:
        raise ValueError(f"spaces {value!r}: expected nothing in braces but {{kernel}} and {{device}}") from error


def _kernels(value: Any) -> dict[str, tuple[str, ...]]:
    """Return the distinct devices of each kernel; raise ValueError unless each kernel has at least two."""
    if not isinstance(value, dict) or not value:
        raise ValueError(f"kernels {value!r}: expected lists of devices by the name of a kernel")
    for kernel, devices in value.items():
        if not isinstance(devices, list) or len(set(devices)) < 2:
            raise ValueError(f"kernels.{kernel} {devices!r}: expected a list of two devices or more")
    return {kernel: tuple(dict.fromkeys(devices)) for kernel, devices in value.items()}


def _strategies(plain: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the hyperparameters of each strategy; raise ValueError for an invalid entry."""
    given = plain["strategies"]
    if not isinstance(given, dict) or not all(isinstance(values, dict | None) for values in given.values()):
        raise ValueError(f"strategies {given!r}: expected hyperparameters by the name of a strategy")
    found = {name: dict(values or {}) for name, values in given.items()}
    for name, values in found.items():
        get_strategy_of_spaces(name, **values)
    if plain["reference"] not in found:
        raise ValueError(f"reference {plain['reference']!r}: expected one of the strategies, {sorted(found)} "
                         f"(of {sorted(strategies_for(RECORDED))})")  # fmt: skip
    return found
