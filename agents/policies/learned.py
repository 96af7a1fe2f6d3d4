"""Base classes of strategies that propose programs by a learned policy: its checkpoint, loading, and training cost."""

from __future__ import annotations

import dataclasses
import time
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, repeat
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from agents.core.feedback import measure_with_feedback
from agents.core.ranking import Constructing, Construction, measure_rankings, ranked
from agents.gensor.descents import descended
from agents.learners.registry import Learner
from agents.learners.stored import described
from agents.policies.card import checked_card, read_card
from gensor_gym.construction import ConstructionGraph
from gensor_gym.graph.actions import NUM_ACTIONS
from gensor_gym.locate import ROOT, located
from gensor_gym.measure.session import Session

POLICIES = ROOT / "agents" / "data" / "policies"


@dataclass(frozen=True)
class Learned(Constructing):
    """Base of strategies with a learned policy: the model ranks the programs that it visited, and the best are measured.

    The checkpoint is a folder with `policy.safetensors` and `card.json`. The default is the policy shipped for the hardware's
    kind, which was trained on the train split with the analytic backend only.
    """

    space: str = "extended"
    checkpoint: str = ""
    """Folder of the policy; if empty, the shipped agents/data/policies/<agent>_<kind of hardware>."""
    per_register_tile: int = 2
    """Number of programs of each register tile to measure first; all other programs of the ranking follow."""
    trust: bool = False
    """Whether a `policy.zip` of stable-baselines3 may be read. Reading it can run any code that its author put into it."""
    agent: ClassVar[str] = "ppo"
    """Name of the agent that trained the default policy."""

    near: float | None = None
    """If set, measurements correct the model's predictions, as `near` does in `markov_ext` (`agents.core.feedback`).

    If None, programs are measured in the order of the model.
    """

    def search(self, session: Session, rng: np.random.Generator) -> None:
        """Propose and measure programs again and again, until the budget is spent or no new program is proposed."""
        if self.near is None:
            measure_rankings(self.construct, session, rng, self.per_register_tile)
        else:
            measure_with_feedback(self.construct, session, rng, self.per_register_tile, self.near)

    def folder(self, graph: ConstructionGraph) -> Path:
        """Return the folder of the policy: `checkpoint` or, if that is empty, the shipped one for the hardware's kind."""
        return located(self.checkpoint) if self.checkpoint else POLICIES / f"{self.agent}_{graph.hardware.kind}"

    def training_seconds(self, graph: ConstructionGraph) -> float:
        """Return the training cost of the policy in seconds, from its card."""
        return float(read_card(self.folder(graph))["training_seconds"])


class Episodic(Constructing):
    """Mixin for a strategy that samples `episodes` episodes of a policy at a `temperature`.

    Its first rankings come from few episodes.
    """

    episodes: int
    temperature: float

    def __post_init__(self) -> None:
        if self.episodes < 1 or self.temperature <= 0:
            raise ValueError(f"episodes={self.episodes}, temperature={self.temperature}: expected 1 or more, and above 0")

    def constructions(self, graph: ConstructionGraph, rng: np.random.Generator, once: bool = False) -> Iterator[Construction]:
        """Yield rankings from 1, 2, 4, .. and finally `episodes` episodes each; with `once`, from `episodes` from the start."""
        growing = () if once else (min(1 << turn, self.episodes) for turn in range(self.episodes.bit_length()))
        for episodes in chain(growing, repeat(self.episodes)):
            yield dataclasses.replace(self, episodes=episodes).construct(graph, rng)  # type: ignore[type-var]


@dataclass(frozen=True)
class LearnedWalk(Learned):
    """Base of searches with a policy that walks on the construction graph step by step and remembers the visited programs."""

    retain: int = 4
    """Number of the fastest programs that are kept from each episode, or from the neighbourhood of each evaluated program."""
    descents: int = 0
    """Number of best programs, with different register tiles, from which descents by the model start, as in `Markov`."""

    def policy(self, graph: ConstructionGraph) -> tuple[Learner, Any]:
        """Load the policy for a task as (learner, stable-baselines3 model)."""
        return load_policy(str(self.folder(graph)), self.trust)

    def construct(self, graph: ConstructionGraph, rng: np.random.Generator) -> Construction:
        """Run the policy and rank the programs that it observed by the model; nothing is measured."""
        begin, before = time.perf_counter(), graph.evaluations
        rows, seconds, visited = self.explore(graph, rng)
        schedules, latencies = ranked(*descended(graph, rows, seconds, self.descents), graph)
        return Construction(schedules, latencies, visited, graph.evaluations - before, time.perf_counter() - begin)

    @abstractmethod
    def explore(self, graph: ConstructionGraph, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, int]:
        """Run the policy; return (observed programs int32 [P, ROW], their model seconds [P], number of states visited)."""


@lru_cache(maxsize=8)
def load_policy(folder: str, trust: bool = False) -> tuple[Learner, Any]:
    """Load the policy in a checkpoint folder as (learner, stable-baselines3 model); `checked_card` checks the card.

    ValueError if the policy's numbers of observations or actions differ from its learner's here. `trust` allows files of
    stable-baselines3, and reading these can run code in them.
    """
    from agents.learners.loading import flat_space, load_model

    place = located(folder)
    card = checked_card(place)
    learner, model = load_model(place, card, trust)
    found = flat_space(model).shape[0], int(model.action_space.n)
    if found != (wanted := (learner.observer.features(described(place, card)[2]), NUM_ACTIONS)):
        raise ValueError(f"policy {place} has (observations, actions) {found}; agent {card['agent']} has {wanted} here")
    return learner, model
