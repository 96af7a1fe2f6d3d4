"""Strategies with a learned policy: its checkpoint, how it is loaded, its training cost."""

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
    """A search with a policy. The programs it saw are ranked by the model, and the top is measured.

    The checkpoint is a folder with `policy.safetensors` and `card.json`; by default the one shipped for the hardware's kind. It
    was trained on the train split on the analytic tier only.
    """

    space: str = "extended"
    checkpoint: str = ""
    """Folder of the policy; empty takes agents/data/policies/<agent>_<kind of hardware>, which ships."""
    per_register_tile: int = 2
    """Programs of one register tile that are measured before others."""
    trust: bool = False
    """Whether a `policy.zip` of stable-baselines3 may be read, which runs whatever code its maker put into it."""
    agent: ClassVar[str] = "ppo"
    """Agent that trained the default policy."""

    near: float | None = None
    """If set, proposals are measured as by `markov_ext`.

    Corrected by measurements, within this multiple of the best (`agents.core.feedback`). Otherwise down the ranking of the model.
    """

    def search(self, session: Session, rng: np.random.Generator) -> None:
        """Propose and measure until the budget is spent or nothing new is proposed."""
        if self.near is None:
            measure_rankings(self.construct, session, rng, self.per_register_tile)
        else:
            measure_with_feedback(self.construct, session, rng, self.per_register_tile, self.near)

    def folder(self, graph: ConstructionGraph) -> Path:
        """Folder of the checkpoint."""
        return located(self.checkpoint) if self.checkpoint else POLICIES / f"{self.agent}_{graph.hardware.kind}"

    def training_seconds(self, graph: ConstructionGraph) -> float:
        """Training cost of the policy, from its card."""
        return float(read_card(self.folder(graph))["training_seconds"])


class Episodic(Constructing):
    """Put before a strategy with `episodes`, whose draws have a `temperature`: constructions that begin small."""

    episodes: int
    temperature: float

    def __post_init__(self) -> None:
        """ValueError for no episodes, or a temperature that is not above 0."""
        if self.episodes < 1 or self.temperature <= 0:
            raise ValueError(f"episodes={self.episodes}, temperature={self.temperature}: expected 1 or more, and above 0")

    def constructions(self, graph: ConstructionGraph, rng: np.random.Generator, once: bool = False) -> Iterator[Construction]:
        """Constructions of 1, 2, 4, .. and then always `episodes` episodes; with `once` a single one of `episodes`."""
        growing = () if once else (min(1 << turn, self.episodes) for turn in range(self.episodes.bit_length()))
        for episodes in chain(growing, repeat(self.episodes)):
            yield dataclasses.replace(self, episodes=episodes).construct(graph, rng)  # type: ignore[type-var]


@dataclass(frozen=True)
class LearnedWalk(Learned):
    """A search with a policy that walks on the construction graph, step by step, and remembers the visited programs."""

    retain: int = 4
    """Fastest programs kept of each episode, or of the neighbourhood of each evaluated program."""
    descents: int = 0
    """Best programs, of different register tiles, from which descents by the model continue, as the traverser's do."""

    def policy(self, graph: ConstructionGraph) -> tuple[Learner, Any]:
        """How the policy for a task was learned, and its model."""
        return load_policy(str(self.folder(graph)), self.trust)

    def construct(self, graph: ConstructionGraph, rng: np.random.Generator) -> Construction:
        """The fastest programs observed, fastest by the model first; no measurement."""
        begin, before = time.perf_counter(), graph.evaluations
        rows, seconds, visited = self.explore(graph, rng)
        schedules, latencies = ranked(*descended(graph, rows, seconds, self.descents), graph)
        return Construction(schedules, latencies, visited, graph.evaluations - before, time.perf_counter() - begin)

    @abstractmethod
    def explore(self, graph: ConstructionGraph, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, int]:
        """(programs observed int32 [P, ROW], their seconds by the model [P], states visited)."""


@lru_cache(maxsize=8)
def load_policy(folder: str, trust: bool = False) -> tuple[Learner, Any]:
    """How the policy of a checkpoint folder was learned, and its model; see `checked_card`.

    ValueError for a policy that observes, or answers, other than its learner does here. `trust` reads files of
    stable-baselines3, which runs the code that they hold.
    """
    from agents.learners.loading import flat_space, load_model

    place = located(folder)
    card = checked_card(place)
    learner, model = load_model(place, card, trust)
    found = flat_space(model).shape[0], int(model.action_space.n)
    if found != (wanted := (learner.observer.features(described(place, card)[2]), NUM_ACTIONS)):
        raise ValueError(f"policy {place} has (observations, actions) {found}; agent {card['agent']} has {wanted} here")
    return learner, model
