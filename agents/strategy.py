"""What a strategy is, and the registry of those there are.

A strategy is a frozen dataclass of hyperparameters with a `space` it searches and `search(session, rng)`. It works through
the session alone, which enforces its budget and remembers the best; `BudgetSpent` may pass through `search`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np

from agents.core.ranking import Construction
from gensor_gym.construction import ConstructionGraph
from gensor_gym.measure.session import Session
from gensor_gym.plugins import load_named
from gensor_gym.registry import register

Made = TypeVar("Made")


class Strategy(Protocol):
    """Anything that searches the construction graph of one task."""

    space: str
    """Name of the space whose graph the session is made for."""

    def search(self, session: Session, rng: np.random.Generator) -> None:
        """Spend the session's budget; randomness comes from `rng` only."""


@runtime_checkable
class Constructs(Protocol):
    """A strategy that constructs by the model alone; `agents.core.ranking.Constructing` makes one of any with `construct`."""

    def constructions(self, graph: ConstructionGraph, rng: np.random.Generator, once: bool = False) -> Iterator[Construction]:
        """One construction after another, as long as anybody asks: programs, their seconds by the model, evaluations.

        The first may be smaller than those that follow, so that something is known early, unless only it is asked for (`once`).
        What a budget of evaluations raises passes through.
        """


STRATEGIES: dict[str, str] = {
    "markov": "agents.gensor.markov:Markov",
    "markov_ext": "agents.gensor.markov:MarkovExtended",
    "roller": "agents.baselines.roller:Roller",
    "ansor": "agents.ansor.ansor:Ansor",
    "ansor_small": "agents.ansor.ansor:AnsorSmall",
    "random_walk": "agents.baselines.random_walk:RandomWalk",
    "local_search": "agents.baselines.local_search:LocalSearch",
    "exhaustive": "agents.baselines.exhaustive:Exhaustive",
    "ppo": "agents.policies.ppo:Ppo",
    "a2c": "agents.policies.ppo:A2c",
    "dqn": "agents.policies.ppo:Dqn",
    "qrdqn": "agents.policies.ppo:QrDqn",
    "policy_beam": "agents.policies.policy_beam:PolicyBeam",
    "policy_mcts": "agents.policies.policy_mcts:PolicyMcts",
    "autotvm": "agents.autotvm.autotvm:AutoTvm",
    "autotvm_small": "agents.autotvm.autotvm:AutoTvmSmall",
    "random": "agents.baselines.random_search:RandomSearch",
    "annealing": "agents.baselines.annealing:Annealing",
    "genetic": "agents.baselines.genetic:Genetic",
    "droplet": "agents.baselines.droplet:Droplet",
    "greedy": "agents.baselines.greedy:Greedy",
    "beam": "agents.baselines.beam:Beam",
    "mcts": "agents.baselines.mcts:Mcts",
    "model_annealing": "agents.hybrids.model_search:ModelAnnealing",
    "model_evolution": "agents.hybrids.model_search:ModelEvolution",
    "model_descent": "agents.hybrids.model_descent:ModelDescent",
    "policy_annealing": "agents.hybrids.annealed:PolicyAnnealing",
    "markov_annealing": "agents.hybrids.annealed:MarkovAnnealing",
    "columns": "agents.columns.policy:Columns",
    "columns_annealing": "agents.hybrids.annealed:ColumnsAnnealing",
    "corrected": "agents.hybrids.corrected:Corrected",
    "welder": "agents.baselines.welder:Welder",
    "tpe": "agents.baselines.tpe:Tpe",
    "flextensor": "agents.baselines.flextensor:FlexTensor",
}
"""Name -> module:class."""


def register_strategy(name: str) -> Callable[[type[Made]], type[Made]]:
    """A decorator for the class of a strategy of your own; ValueError for a name that another module's has."""

    def add(cls: type[Made]) -> type[Made]:
        register("strategy", STRATEGIES, name, f"{cls.__module__}:{cls.__qualname__}", cls.__module__)
        return cls

    return add


def get_strategy(name: str, **hyperparameters: object) -> Strategy:
    """The strategy of that name; ValueError names unknown strategies or hyperparameters and those there are."""
    if name not in STRATEGIES:
        load_named()
    if name not in STRATEGIES:
        raise ValueError(f"no strategy {name!r}; strategies are {sorted(STRATEGIES)}")
    return build(STRATEGIES, name, hyperparameters)


def class_of(name: str, registry: Mapping[str, str] = STRATEGIES) -> type[Any]:
    """The class that a registered name stands for, a dataclass; ImportError where a library that it needs is missing."""
    module, _, attribute = registry[name].partition(":")
    found: type[Any] = getattr(import_module(module), attribute)
    return found


def build(registry: Mapping[str, str], name: str, hyperparameters: Mapping[str, object]) -> Any:
    """An object of a class in a registry of names; ValueError names unknown hyperparameters and those there are."""
    cls = class_of(name, registry)
    known = [field.name for field in dataclasses.fields(cls)]
    unknown = sorted(set(hyperparameters) - set(known))
    if unknown:
        raise ValueError(f"strategy {name!r} has no hyperparameters {unknown}; it has {known}")
    return cls(**hyperparameters)
