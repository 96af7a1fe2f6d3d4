"""The protocol of strategies, and their registry.

A strategy is a frozen dataclass of hyperparameters with `search(session, rng)`. It works only through the session, which enforces
the budget and remembers the best program. `BudgetSpent` may pass through `search`.
"""

from __future__ import annotations

import dataclasses
import inspect
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from numbers import Integral, Real
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np

from agents.core.ranking import Construction
from gensor_gym.codegen.families import family_of, graph_of
from gensor_gym.construction import ConstructionGraph
from gensor_gym.dataflow.graph import Dataflow
from gensor_gym.dataflow.nodes import STORED
from gensor_gym.gir.graph import GirGraph
from gensor_gym.gir.space.table import LARGEST
from gensor_gym.graph.schedule import Schedule
from gensor_gym.hardware.types import Hardware
from gensor_gym.measure.session import SearchSession, Session
from gensor_gym.operators.types import Operator
from gensor_gym.plugins import load_named
from gensor_gym.registry import near, register

_WHOLE, _NUMBER = (Integral, "a whole number"), (Real, "a number")
_KINDS: dict[Any, tuple[Any, str]] = {
    "int": _WHOLE, int: _WHOLE, "float": _NUMBER, float: _NUMBER, "bool": (bool, "true or false"), bool: (bool, "true or false"),
    "str": ((str, os.PathLike), "text"), "str | None": ((str, os.PathLike), "text"),
}  # fmt: skip
"""Annotation of a hyperparameter -> (accepted types, their name in messages). Classes check other annotations themselves."""
Searched = TypeVar("Searched", bound=SearchSession, contravariant=True)


class Search(Protocol[Searched]):
    """Interface of a strategy for sessions of type `Searched`: construction graphs, fused operators or recorded spaces."""

    def search(self, session: Searched, rng: np.random.Generator) -> None:
        """Search within the session until its budget is spent or nothing is left to try. All randomness is drawn from `rng`."""


class Strategy(Search[Session], Protocol):
    """Interface of a strategy that searches the construction graph of one task."""

    space: str
    """Name of the space of schedules that the strategy searches."""


CONSTRUCTIONS, RECORDED, FUSED = "construction graphs", "recorded spaces", "fused operators"
LEARNING = "environments to learn in"
"""Kind of a frozen suite's sessions with environments (`gensor_gym.suites`)."""
CANDIDATES = "recorded candidates"
"""Kind of a frozen suite's sessions that choose among recorded programs."""


def searched_of(computation: Operator | Dataflow) -> str:
    """Return the kind of search of a computation: `CONSTRUCTIONS` if it is scheduled like one operator, else `FUSED`."""
    return CONSTRUCTIONS if Schedule in family_of(computation).schedules.values() else FUSED


@runtime_checkable
class Constructs(Protocol):
    """Interface of a strategy that can construct rankings of programs by the model alone, without measuring.

    `agents.core.ranking.Constructing` derives this from `construct`.
    """

    def constructions(self, graph: ConstructionGraph, rng: np.random.Generator, once: bool = False) -> Iterator[Construction]:
        """Yield one ranking after another: programs, their seconds by the model, and the number of evaluations.

        The first rankings may be smaller than later ones, for an early result. With `once` the caller takes a single ranking,
        which is of full size. BudgetSpent of a budget of evaluations passes through. After the last ranking the caller begins
        again, unless the strategy is `exhaustive` and would construct the same programs.
        """


@dataclass(frozen=True)
class Entry:
    """Entry of a strategy in the registry: where its class is defined, and which kinds of search it supports."""

    where: str
    """Location of the class, as the text "module:class"."""
    searches: Mapping[str, Mapping[str, object]] = field(default_factory=lambda: {CONSTRUCTIONS: {}})
    """Kind of search, such as CONSTRUCTIONS or FUSED -> hyperparameters whose default then differs from the class's."""


STRATEGIES: dict[str, Entry] = {
    "markov": Entry("agents.gensor.markov:Markov"),
    "markov_ext": Entry("agents.gensor.markov:MarkovExtended"),
    "gir_markov": Entry("agents.fused.markov:GirMarkov", {FUSED: {}}),
    "gir_ppo": Entry("agents.fused.policy:GirPpo", {FUSED: {}}),
    "gir_descent": Entry("agents.fused.descent:GirDescent", {FUSED: {}}),
    "roller": Entry("agents.roller.roller:Roller"),
    "ansor": Entry("agents.ansor.ansor:Ansor"),
    "ansor_small": Entry("agents.ansor.ansor:AnsorSmall"),
    "random_walk": Entry(
        "agents.baselines.random_walk:RandomWalk", {CONSTRUCTIONS: {}, RECORDED: {}, FUSED: {"space": "gir"}}
    ),
    "local_search": Entry(
        "agents.baselines.local_search:LocalSearch", {CONSTRUCTIONS: {}, RECORDED: {}, FUSED: {"space": "gir"}}
    ),
    "exhaustive": Entry(
        "agents.baselines.exhaustive:Exhaustive", {CONSTRUCTIONS: {}, RECORDED: {}, FUSED: {"space": "gir"}}
    ),
    "ppo": Entry("agents.policies.ppo:Ppo"),
    "a2c": Entry("agents.policies.ppo:A2c"),
    "dqn": Entry("agents.policies.ppo:Dqn"),
    "qrdqn": Entry("agents.policies.ppo:QrDqn"),
    "policy_beam": Entry("agents.policies.policy_beam:PolicyBeam"),
    "policy_mcts": Entry("agents.policies.policy_mcts:PolicyMcts"),
    "autotvm": Entry("agents.autotvm.autotvm:AutoTvm"),
    "autotvm_small": Entry("agents.autotvm.autotvm:AutoTvmSmall"),
    "random": Entry("agents.baselines.random_search:RandomSearch"),
    "annealing": Entry(
        "agents.baselines.annealing:Annealing", {CONSTRUCTIONS: {}, RECORDED: {"reach": 2}, FUSED: {"space": "gir", "reach": 2}}
    ),
    "genetic": Entry("agents.baselines.genetic:Genetic"),
    "droplet": Entry("agents.baselines.droplet:Droplet"),
    "greedy": Entry(
        "agents.baselines.beam:Beam",
        {CONSTRUCTIONS: {"width": 1, "patience": 4}, FUSED: {"space": "gir", "width": 1, "patience": 4}},
    ),
    "beam": Entry("agents.baselines.beam:Beam", {CONSTRUCTIONS: {}, FUSED: {"space": "gir"}}),
    "mcts": Entry("agents.baselines.mcts:Mcts", {CONSTRUCTIONS: {}, FUSED: {"space": "gir"}}),
    "model_annealing": Entry("agents.hybrids.model_search:ModelAnnealing"),
    "model_evolution": Entry("agents.hybrids.model_search:ModelEvolution"),
    "model_descent": Entry("agents.hybrids.model_descent:ModelDescent"),
    "descents": Entry("agents.hybrids.descents:Descents"),
    "nearest": Entry("agents.exact.nearest:Nearest"),
    "nearest_descents": Entry("agents.exact.nearest:NearestDescents"),
    "certifier": Entry("agents.exact.certifier:Certifier"),
    "columns_descents": Entry("agents.hybrids.descended:ColumnsDescents"),
    "model_descent_ext": Entry("agents.hybrids.model_descent:ModelDescentExtended"),
    "policy_annealing": Entry("agents.hybrids.annealed:PolicyAnnealing"),
    "markov_annealing": Entry("agents.hybrids.annealed:MarkovAnnealing"),
    "columns": Entry("agents.columns.policy:Columns"),
    "columns_unranked": Entry("agents.columns.unranked:ColumnsUnranked"),
    "columns_annealing": Entry("agents.hybrids.annealed:ColumnsAnnealing"),
    "corrected": Entry("agents.hybrids.corrected:Corrected"),
    "adapted": Entry("agents.hybrids.adapted:Adapted"),
    "in_turn": Entry("agents.hybrids.in_turn:InTurn"),
    "welder": Entry("agents.roller.welder:Welder"),
    "tpe": Entry("agents.baselines.tpe:Tpe"),
    "flextensor": Entry("agents.baselines.flextensor:FlexTensor"),
    "scratch_ppo": Entry("agents.scratch.sb3:ScratchPpo", {LEARNING: {}}),
    "scratch_dqn": Entry("agents.scratch.sb3:ScratchDqn", {LEARNING: {}}),
    "scratch_masked_ppo": Entry("agents.scratch.sb3:ScratchMaskedPpo", {LEARNING: {}}),
    "scratch_masked_writing": Entry("agents.scratch.sb3:ScratchMaskedWriting", {LEARNING: {}}),
    "scratch_reinforce": Entry("agents.scratch.reinforce:ScratchReinforce", {LEARNING: {}}),
    "ranked_model": Entry("agents.hybrids.ranked:RankedCandidates", {CANDIDATES: {}}),
    "ranked_random": Entry("agents.hybrids.ranked:RandomCandidates", {CANDIDATES: {}}),
    "elsewhere": Entry("agents.recorded.other_devices:OtherDevices", {RECORDED: {}}),
    "policy": Entry("agents.recorded.policy:TuningPolicy", {RECORDED: {}}),
}
"""Registered strategies by name. In a recorded space `random_walk` is a random search."""
DEFAULTS = {CONSTRUCTIONS: "markov", FUSED: "exhaustive"}
"""Default strategies: Gensor's traverser, and for fused operators, whose space is small, enumeration by the model."""
_DESCENTS = "gir_descent"
_WITH_KNOBS = "markov_ext"
_ADAPTED, _MEASURED, _TIMED = "in_turn", "agents.hybrids.here:measured_here", "float32"
"""Constants of the default strategy on machines that `gensor adapt` has measured.

They are the strategy's name, the function that says whether this machine was measured, and the data type that was timed.
"""


def default_for(computation: Operator | Dataflow, hardware: Hardware) -> str:
    """Return the name of the default strategy for a computation on a machine.

    On a machine that `gensor adapt` has measured it is `in_turn` for operators of float32, the type that `gensor adapt` times.
    For operators of 16 or 8 bits it is `markov_ext`, because tensor cores, or groups of products on a CPU, depend on knobs. For
    fused operators whose space would take minutes to enumerate it is `gir_descent`.
    """
    searched = searched_of(computation)
    if searched == CONSTRUCTIONS and computation.dtype == _TIMED and _object(_MEASURED)(hardware):
        return _ADAPTED
    if searched == CONSTRUCTIONS and computation.dtype in STORED:
        return _WITH_KNOBS
    if searched == FUSED and isinstance(graph := graph_of(computation, hardware, "gir"), GirGraph) and graph.size > LARGEST:
        return _DESCENTS
    return DEFAULTS[searched]


def register_strategy(name: str, *searched: str) -> Callable[[Any], type[Any]]:
    """Register the decorated strategy for the kinds of search in `searched`, by default construction graphs.

    The decorator takes a class, or a function of (session, rng) whose further arguments are the hyperparameters with their
    defaults. ValueError if another module has registered the name, or if a hyperparameter of a function has no default.
    """

    def add(made: Any) -> type[Any]:
        cls = made if isinstance(made, type) else _of_function(name, made)
        entry = Entry(f"{cls.__module__}:{cls.__qualname__}", {one: {} for one in searched or (CONSTRUCTIONS,)})
        register("strategy", STRATEGIES, name, entry, cls.__module__)
        return cls

    return add


def _of_function(name: str, search: Callable[..., None]) -> type[Any]:
    """Make a frozen dataclass from a search function: its `search` calls the function with its fields as hyperparameters.

    It has the function's module, qualified name and docstring.
    """
    _, _, *settings = inspect.signature(search).parameters.values()
    if missing := [one.name for one in settings if one.default is one.empty]:
        raise ValueError(f"strategy {name!r}: hyperparameters {missing} have no default; expected one for each")

    def searched(self: Any, session: SearchSession, rng: np.random.Generator) -> None:
        search(session, rng, **{one.name: getattr(self, one.name) for one in settings})

    fields = [(one.name, one.annotation, one.default) for one in settings]
    if "space" not in inspect.signature(search).parameters:
        fields.insert(0, ("space", "str", "gensor"))
    body = {"search": searched, **{one: getattr(search, one) for one in ("__doc__", "__module__", "__qualname__")}}
    return dataclasses.make_dataclass(search.__name__, fields, namespace=body, frozen=True)


def strategies_for(searched: str) -> list[str]:
    """Return the names of the strategies for a kind of search (a key of `Entry.searches`), in the order of the registry."""
    return [name for name, entry in STRATEGIES.items() if searched in entry.searches]


def class_of(name: str) -> type[Any]:
    """Import and return the dataclass of a registered strategy.

    ImportError if a library that the strategy needs is missing.
    """
    found: type[Any] = _object(STRATEGIES[name].where)
    return found


def _object(where: str) -> Any:
    module, _, attribute = where.partition(":")
    return getattr(import_module(module), attribute)


def get_strategy(name: str, **hyperparameters: object) -> Strategy:
    """Make a strategy for construction graphs by name, with the given hyperparameters.

    ValueError for unknown strategies or hyperparameters lists the known names.
    """
    return build(name, CONSTRUCTIONS, hyperparameters)


def build(name: str, searched: str, hyperparameters: Mapping[str, object]) -> Any:
    """Make a strategy by name, with the default hyperparameters for the kind of search `searched`.

    ValueError like `get_strategy`, if the strategy does not do this kind of search, and for a value of a wrong type.
    """
    if name not in STRATEGIES:
        load_named()
    if name not in STRATEGIES:
        known = strategies_for(searched)
        raise ValueError(f"no strategy {name!r}; strategies are {sorted(known)}{near(name, known)}")
    if searched not in STRATEGIES[name].searches:
        raise refusal(name, searched)
    cls = class_of(name)
    known = [field.name for field in dataclasses.fields(cls)]
    unknown = sorted(set(hyperparameters) - set(known))
    if unknown:
        raise ValueError(f"strategy {name!r} has no hyperparameters {unknown}; it has {known}{near(unknown, known)}")
    for one in dataclasses.fields(cls):
        value, (kinds, words) = hyperparameters.get(one.name), _KINDS.get(one.type, (object, ""))
        if value is not None and (not isinstance(value, kinds) or (isinstance(value, bool) and kinds in (Integral, Real))):
            raise ValueError(f"{one.name} of strategy {name!r} is {value!r}; expected {words}, such as {one.default!r}")
    return cls(**{**STRATEGIES[name].searches[searched], **hyperparameters})


def resolve(strategy: Any, searched: str, hyperparameters: Mapping[str, object]) -> Any:
    """Make the strategy for a name (see `build`), or check and return a strategy object unchanged.

    ValueError if an object is not a strategy, or if its class is registered for other kinds of search only.
    """
    if isinstance(strategy, str):
        return build(strategy, searched, hyperparameters)
    where = f"{type(strategy).__module__}:{type(strategy).__qualname__}"
    if not callable(getattr(strategy, "search", None)) or (searched != RECORDED and not hasattr(strategy, "space")):
        raise ValueError(f"strategy {strategy!r}: expected a name, or an object with `search(session, rng)` and a `space`")
    entries = [entry for entry in STRATEGIES.values() if entry.where == where]
    if entries and not any(searched in entry.searches for entry in entries):
        raise refusal(type(strategy).__name__, searched)
    return strategy


class OtherSearch(ValueError):
    """Raised for a strategy that does other kinds of search than the requested one."""


def refusal(name: str, searched: str) -> OtherSearch:
    """Make the error for a strategy that does not do this kind of search. Its text lists the strategies that do."""
    return OtherSearch(f"strategy {name!r} does not search {searched}; these do: {sorted(strategies_for(searched))}")
