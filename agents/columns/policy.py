"""A learned policy that writes programs down column by column: each whole, and one evaluation of the model when it is complete.

A walk on the construction graph asks the model about every program on its way, and a policy that looks ahead about every
neighbour of these. Here an episode is as many decisions as there are columns, and its program alone is evaluated.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain, islice, repeat
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from agents.columns.choices import SEES, Choices, choices_of
from agents.columns.feasible import Feasible
from agents.core.ranking import Construction, ranked
from agents.learners.stored import POLICY, ZIP, check_trust, check_width, fill, load_tensors
from agents.policies.card import checked_card
from agents.policies.learned import Episodic, Learned
from gensor_gym.construction import ConstructionGraph
from gensor_gym.graph.tables.layout import ROW
from gensor_gym.locate import located

BLOCK, FEW = 256, 4
"""Programs drawn at a time; a block is idle with fewer than FEW new legal ones."""
KNOWN, BARREN = 16, 256
"""Idle blocks in a row after which no more is drawn: where most legal draws are known, and where almost no draw is legal."""
FRESH, WARMER = (0.25, 0.75), 1.25
"""Shares of a block's legal programs: with fewer new ones than the first the temperature rises by this factor, with more than the
second it falls again."""
HOTTEST = 40
"""How often the temperature rises at most: 1.25 to the power of 40 makes all chances equal."""


@dataclass
class Memory:
    """Programs that a search has written, and the temperature of its next draws, never below the first."""

    first: float
    written: set[bytes] = field(default_factory=set)
    narrow: bool = False
    """Whether choices are kept to feasible ones, since a block had fewer than FEW legal programs."""
    warmer: int = 0
    """How often the temperature has risen, less how often it has fallen."""

    @property
    def temperature(self) -> float:
        """Temperature of the next draws."""
        return self.first * WARMER**self.warmer

    def adapt(self, new: int, legal: int) -> None:
        """Adapt after a block with `legal` legal programs, `new` of them new."""
        if new < FRESH[0] * legal:
            self.warmer = min(HOTTEST, self.warmer + 1)
        elif new > FRESH[1] * legal:
            self.warmer = max(0, self.warmer - 1)


@dataclass(frozen=True)
class ColumnWriter(Episodic, Learned):
    """Programs of a policy that `agent=columns` learned: the most probable one, then draws."""

    space: str = "gensor"
    episodes: int = 64
    """Legal programs at a time, all different."""
    temperature: float = 1.0
    """Temperature of the first draws: above 1 the policy explores more. It rises when draws repeat earlier programs."""
    agent: ClassVar[str] = "columns"

    def construct(self, graph: ConstructionGraph, rng: np.random.Generator) -> Construction:
        """One construction of `episodes` programs; no measurement."""
        return self.written(graph, self.episodes, Memory(self.temperature), rng)

    def written(self, graph: ConstructionGraph, count: int, memory: Memory, rng: np.random.Generator) -> Construction:
        """At most `count` new legal programs; fewer if few are left."""
        begin = time.perf_counter()
        rows = write(load_columns(str(self.folder(graph)), self.trust), choices_of(graph), count, memory, rng)
        seconds = graph.latencies(rows)
        schedules, latencies = ranked(rows, seconds, graph)
        return Construction(schedules, latencies, len(rows), len(rows), time.perf_counter() - begin)


@dataclass(frozen=True)
class Columns(ColumnWriter):
    """Draws that never come back to a program, more and more of them."""

    def constructions(self, graph: ConstructionGraph, rng: np.random.Generator, once: bool = False) -> Iterator[Construction]:
        """Its rounds; with `once` a single construction of `episodes` programs."""
        return super().constructions(graph, rng, once) if once else self.rounds(graph, rng)

    def rounds(self, graph: ConstructionGraph, rng: np.random.Generator) -> Iterator[Construction]:
        """1 program, 1, 2, 4, .. and then always `episodes`, none twice; ends where almost no is left to draw."""
        memory = Memory(self.temperature)
        growing = (min(1 << turn, self.episodes) for turn in range(self.episodes.bit_length()))
        for count in chain([1], growing, repeat(self.episodes)):
            found = self.written(graph, count, memory, rng)
            if not found.schedules:
                return
            yield found


def write(network: Any, choices: Choices, count: int, memory: Memory, rng: np.random.Generator) -> np.ndarray:
    """At most `count` new legal programs, rows int32 [N, ROW]: the most probable one of all, then draws.

    Illegal programs are redrawn, because legality needs no evaluation of the model. If the most probable program is illegal, the
    most probable legal one of the first block replaces it. If almost no draw is legal, choices are restricted to feasible ones.
    """
    found: list[np.ndarray] = []
    feasible, known, barren = Feasible(choices, rng), 0, 0
    memory.narrow = memory.narrow or getattr(network, "masked", False)
    if not memory.written and count > 0 and choices.columns:
        surest = Feasible(choices, rng, surest=True) if memory.narrow else None
        found.extend(_legal(network, choices, None, memory, surest))
        memory.written.update(row.tobytes() for row in found)
    while len(found) < count and known < KNOWN and barren < BARREN and choices.columns:
        legal = _legal(network, choices, rng.random((BLOCK, len(choices.counts))), memory, feasible if memory.narrow else None)
        new = {key: row for row in legal if (key := row.tobytes()) not in memory.written}
        kept = dict(islice(new.items(), count - len(found) if memory.written else 1))
        memory.written.update(kept)
        found.extend(kept.values())
        memory.adapt(len(new), len(legal))
        memory.narrow = memory.narrow or len(legal) < FEW
        if len(new) >= FEW:
            known = barren = 0
        elif len(new) < FRESH[0] * len(legal):
            known += 1
        else:
            barren += 1
    return np.array(found, dtype=np.int32).reshape(-1, ROW)


def _legal(
    network: Any, choices: Choices, draws: np.ndarray | None, memory: Memory, feasible: Feasible | None = None
) -> np.ndarray:
    """Legal programs of some draws, or the most probable one; before any is known the most probable comes first."""
    import torch

    with torch.no_grad():
        chosen, chances, _ = network(choices, draws, memory.temperature, feasible)
    rows = choices.rows(chosen)
    fitting = choices.graph.fits(rows)
    order = slice(None) if memory.written else np.argsort(-chances.numpy()[fitting], kind="stable")
    return rows[fitting][order]


@lru_cache(maxsize=8)
def load_columns(folder: str, trust: bool = False) -> Any:
    """The network of a checkpoint folder; errors and a warning as of `agents.policies.card.checked_card`."""
    from agents.columns.network import network_of

    card = checked_card(located(folder))
    if card["agent"] != "columns":
        raise ValueError(f"policy {folder} was learned by agent {card['agent']!r}: expected columns")
    if card.get("sees") != SEES:
        raise ValueError(
            f"policy {folder} observes what version {card.get('sees')} of agent columns does, this is version {SEES}; train "
            "another with: python -m experiments train agent=columns output=FOLDER"
        )
    check_width(folder, "width", card["config"]["agent"].get("width"))
    network = network_of(card["config"]["agent"])
    fill(network, _tensors(located(folder), trust), folder)
    return network.eval()


def _tensors(folder: Path, trust: bool) -> dict[str, Any]:
    """Tensors of the policy's file; a file of an earlier version is PyTorch's, and is read only if trusted."""
    import torch

    if (folder / POLICY).exists():
        return load_tensors(folder / POLICY)[0]
    check_trust(folder, trust)
    return torch.load(folder / ZIP, weights_only=True)["network"]
