"""Settings of a comparison of strategies: the configuration, checked and resolved, and the jobs that it makes."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from agents.cli.checks import check_truths, check_whole, use_threads
from agents.cli.tracking import tracking_of
from agents.strategy import get_strategy
from gensor_gym import hardware as machines
from gensor_gym import operators
from gensor_gym.fingerprint import fingerprints
from gensor_gym.hardware.types import Hardware
from gensor_gym.locate import located
from gensor_gym.measure.backend import Backend, get_backend, ray_backend
from gensor_gym.measure.records.backend import RecordedBackend
from gensor_gym.measure.session import Budget
from gensor_gym.operators.types import Operator
from gensor_gym.plugins import loaded
from gensor_gym.registry import check_known, near

ROOT = Path(__file__).resolve().parents[2]
OUTPUTS = Path("outputs")
POOLS = ("local", "ray")


@dataclass(frozen=True)
class Job:
    """One search of a comparison: a strategy with its hyperparameters and a seed, on one operator, within a budget."""

    operator: Operator
    hardware: Hardware
    backend: str
    device: str
    """Name of the timed device (see `Backend.device`)."""
    strategy: str
    """The strategy's name in this comparison."""
    of: str
    """The strategy's registered name. A variant with other hyperparameters has another name in the comparison."""
    hyperparameters: Mapping[str, object]
    seed: int
    budget: Budget

    @property
    def slot(self) -> tuple[str, str, str, str, int]:
        """The fields of a result row that identify the job: operator, machine, backend, strategy and seed."""
        return (str(self.operator), self.hardware.name, self.backend, self.strategy, self.seed)

    @property
    def fingerprint(self) -> str:
        """Fingerprint of the task in the space that the strategy searches, which changes with rules and model.

        It is empty if a library that the strategy needs is missing.
        """
        try:
            space = get_strategy(self.of, **self.hyperparameters).space
        except ImportError:
            return ""  # its search will not start, and the outcome will say why
        return fingerprints([self.operator], self.hardware, space)[str(self.operator)]

    @property
    def config(self) -> dict[str, object]:
        """Everything that the job's outcome depends on, as JSON values."""
        operator, hardware, backend, strategy, seed = self.slot
        return {
            "operator": operator,
            "hardware": hardware,
            "backend": backend,
            "device": self.device,
            "strategy": strategy,
            "of": self.of,
            "hyperparameters": dict(self.hyperparameters),
            "history": _content(self.hyperparameters.get("history")),
            "seed": seed,
            "budget": dataclasses.asdict(self.budget),
            "fingerprint": self.fingerprint,
            "code": code_digest(),
        }

    @property
    def key(self) -> str:
        """Sixteen hexadecimal digits that identify the job."""
        return short_hash(self.config)


def _content(history: object) -> str | None:
    """Return sixteen hexadecimal digits of the files of a history (earlier trials that a search starts from).

    None without a history.
    """
    if not history:
        return None
    path = located(str(history))
    whole = hashlib.sha256()
    for file in sorted(path.iterdir()) if path.is_dir() else [path] if path.exists() else []:
        whole.update(file.name.encode() + file.read_bytes())
    return whole.hexdigest()[:16]


@dataclass(frozen=True)
class Settings:
    """Settings of a comparison, checked and resolved: its jobs, backend, output folder and store."""

    jobs: tuple[Job, ...]
    backend: Backend
    rounds: int
    processes: int
    """Number of processes that time the best programs again, one after another."""
    output: Path
    store: Path
    figures: bool
    config: dict[str, object]
    """The configuration as it was given, before it was resolved."""
    group: str | None = None
    """Name of the multirun that contains this comparison."""


def settings_of(config: DictConfig, purpose: str = "compare") -> Settings:
    """Check and resolve the configuration of a comparison. ValueError names the fault.

    By default, results are written below outputs/`purpose`.
    """
    plain: Any = OmegaConf.to_container(config, resolve=True)
    ops = operators.resolve(plain["operators"])
    if "threads" in plain:
        use_threads(plain)
    hw = machines.get(plain["hardware"])
    backend = _backend(plain["backend"], hw, plain["recording"], plain.get("measure") or {})
    if unknown := set(plain["budget"]) - {field.name for field in dataclasses.fields(Budget)}:
        known = [field.name for field in dataclasses.fields(Budget)]
        raise ValueError(f"budget has no {', '.join(sorted(unknown))}; it has {', '.join(known)}{near(unknown, known)}")
    budget = Budget(**plain["budget"])
    device = backend.device(hw)
    if isinstance(backend, RecordedBackend):  # another recording of the same device is another experiment
        device = f"{device} ({backend.edition})"
    jobs = tuple(
        Job(op, hw, backend.name, device, name, of, parameters, seed, budget)
        for op in dict.fromkeys(ops)
        for seed in _seeds(plain["seed"])
        for name, (of, parameters) in _strategies(plain).items()
    )
    tracking_of(plain["wandb"])
    check_whole(plain, 1, "rounds", "processes")
    check_truths(plain, "figures", "tensorboard")
    name = short_hash({"jobs": [{**job.config, "code": ""} for job in jobs], "rounds": plain["rounds"]})
    output = Path(plain["output"] or OUTPUTS / purpose / name)
    store = Path(plain["store"] or output.parent / "trials.sqlite")
    return Settings(jobs, backend, plain["rounds"], plain["processes"], output, store, bool(plain["figures"]), plain)


def short_hash(value: object) -> str:
    """Return sixteen hexadecimal digits of the hash of a JSON value."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()[:16]


def digest_of_file(path: str | Path) -> str:
    """Return sixteen hexadecimal digits that identify a file's content. FileNotFoundError if the file is missing."""
    return hashlib.sha256(located(path).read_bytes()).hexdigest()[:16]


def code_digest() -> str:
    """Return the digest of the source code that a search runs, followed by the loaded plugins' packages and versions.

    When the digest changes, jobs are repeated; their timings are stored.
    """
    return " + ".join([_own_digest(), *(f"{name} ({package})" for name, package in sorted(loaded().items()))])


@cache
def _own_digest() -> str:
    whole = hashlib.sha256()
    for path in sorted(path for folder in ("gensor_gym", "agents") for path in (ROOT / folder).rglob("*.*")):
        if path.suffix in (".py", ".c", ".h", ".json"):
            text = path.read_text(encoding="utf-8").replace("\r\n", "\n")
            whole.update(f"{path.relative_to(ROOT).as_posix()}\0{text}\0".encode())
    return whole.hexdigest()[:16]


def _backend(name: str, hw: Hardware, recording: str | None, measure: dict) -> Backend:
    """Make the backend `name`.

    `recorded` reads the table `recording`, or shipped tables. `measure` selects the measuring pool, local or Ray.
    """
    pool = measure.get("pool", "local")
    check_known("measure.pool", pool, POOLS)
    if pool == "ray":
        return ray_backend(name, hw, measure.get("workers"))
    return get_backend(f"recorded:{recording}" if name == "recorded" and recording is not None else name, hw)


def _seeds(value: object) -> list[int]:
    seeds: list[Any] = list(value) if isinstance(value, (list, tuple)) else [value]
    if not seeds or not all(isinstance(seed, int) and not isinstance(seed, bool) and seed >= 0 for seed in seeds):
        raise ValueError(f"seed {value!r}: expected a number from 0, or a list of those")
    return list(dict.fromkeys(seeds))


def _strategies(plain: dict) -> dict[str, tuple[str, dict]]:
    """Return name in the configuration -> (registered strategy, hyperparameters) of each strategy to run, in the given order.

    An entry `strategies.<name>` with a field `of` is a variant of the registered strategy that `of` names. If the configuration
    has a `space`, it becomes a hyperparameter of every strategy.
    """
    found = plain.get("strategies") or {}
    if not found:
        raise ValueError("no strategy: name some of those that `python -m agents` lists, as in strategy=[markov,random_walk]")
    space = {} if plain.get("space") is None else {"space": plain["space"]}
    resolved = {}
    for name, given in found.items():
        parameters = {**(given or {}), **space}
        resolved[name] = (parameters.pop("of", name), parameters)
    return resolved
