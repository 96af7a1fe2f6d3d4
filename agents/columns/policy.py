"""A strategy with a learned policy that writes programs column by column (tiles of an axis, or a knob).

A walk on the construction graph evaluates every program on its way, and a policy that looks ahead also evaluates the neighbours
of each. Here an episode has one decision per column, and the model evaluates only its final program.
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
"""Number of programs drawn at a time (a block), and the number of new legal programs below which a block is idle."""
KNOWN, BARREN = 16, 256
"""Numbers of idle blocks after which drawing ends.

KNOWN applies if most legal draws are known, BARREN if almost no draw is legal.
"""
FRESH, WARMER = (0.25, 0.75), 1.25
"""Rules for the temperature of the draws, by the share of new programs among a block's legal programs.

The temperature rises by the factor WARMER if the share is below the first number of FRESH, and falls again if it is above the
second.
"""
HOTTEST = 40
"""Maximum number of times that the temperature rises. 1.25 to the power of 40 makes all probabilities equal."""


@dataclass
class Memory:
    """State of a search with a policy that writes columns: the programs written so far, and the temperature of the next draws.

    The temperature is never below `first`.
    """

    first: float
    written: set[bytes] = field(default_factory=set)
    narrow: bool = False
    """Whether choices are restricted to feasible choices, because a block had fewer than FEW legal programs."""
    warmer: int = 0
    """Number of times that the temperature has risen, minus the number of times that it has fallen."""

    @property
    def temperature(self) -> float:
        """Temperature of the next draws."""
        return self.first * WARMER**self.warmer

    def adapt(self, new: int, legal: int) -> None:
        """Raise or lower the temperature after a block of draws, by the share of new programs among its `legal` programs."""
        if new < FRESH[0] * legal:
            self.warmer = min(HOTTEST, self.warmer + 1)
        elif new > FRESH[1] * legal:
            self.warmer = max(0, self.warmer - 1)


@dataclass(frozen=True)
class ColumnWriter(Episodic, Learned):
    """Write programs with a policy that `agent=columns` learned: first the most probable program, then random draws."""

    space: str = "gensor"
    episodes: int = 64
    """Number of distinct legal programs in a round."""
    temperature: float = 1.0
    """Temperature of the first draws; above 1 the policy explores more. It rises when draws repeat earlier programs."""
    agent: ClassVar[str] = "columns"

    def construct(self, graph: ConstructionGraph, rng: np.random.Generator) -> Construction:
        """Write `episodes` programs with the policy and rank them by the model; nothing is measured."""
        return self.written(graph, self.episodes, Memory(self.temperature), rng)

    def written(self, graph: ConstructionGraph, count: int, memory: Memory, rng: np.random.Generator) -> Construction:
        """Write `count` new legal programs, or fewer if few are left, and rank them by the model.

        `memory` has the programs written before, and remembers the new ones.
        """
        begin = time.perf_counter()
        rows = write(load_columns(str(self.folder(graph)), self.trust), choices_of(graph), count, memory, rng)
        seconds = graph.latencies(rows)
        schedules, latencies = ranked(rows, seconds, graph)
        return Construction(schedules, latencies, len(rows), len(rows), time.perf_counter() - begin)


@dataclass(frozen=True)
class Columns(ColumnWriter):
    """Write programs with a policy of `agent=columns`, in batches of growing size, without repeating a program."""

    def constructions(self, graph: ConstructionGraph, rng: np.random.Generator, once: bool = False) -> Iterator[Construction]:
        """Yield the rankings of `rounds`; with `once`, of `episodes` programs from the start."""
        return super().constructions(graph, rng, once) if once else self.rounds(graph, rng)

    def rounds(self, graph: ConstructionGraph, rng: np.random.Generator) -> Iterator[Construction]:
        """Yield rankings of 1, 1, 2, 4, .. and finally `episodes` new programs each; end if almost no program is new."""
        memory = Memory(self.temperature)
        growing = (min(1 << turn, self.episodes) for turn in range(self.episodes.bit_length()))
        for count in chain([1], growing, repeat(self.episodes)):
            found = self.written(graph, count, memory, rng)
            if not found.schedules:
                return
            yield found


def write(network: Any, choices: Choices, count: int, memory: Memory, rng: np.random.Generator) -> np.ndarray:
    """Write at most `count` new legal programs with a policy's network; return them as rows int32 [N, ROW].

    The first is the most probable program, the others are random draws. Illegal programs are redrawn, because legality needs no
    model evaluation. If the most probable program is illegal, the most probable legal program of the first block replaces it. If
    almost no draw is legal, choices are restricted to feasible choices.
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
    """Draw programs with the network; return the legal ones as rows [N, ROW].

    With `draws=None`, only the most probable program is drawn. As long as the search has written no program, the most probable
    program comes first.
    """
    import torch

    with torch.no_grad():
        chosen, chances, _ = network(choices, draws, memory.temperature, feasible)
    rows = choices.rows(chosen)
    fitting = choices.graph.fits(rows)
    order = slice(None) if memory.written else np.argsort(-chances.numpy()[fitting], kind="stable")
    return rows[fitting][order]


@lru_cache(maxsize=8)
def load_columns(folder: str, trust: bool = False) -> Any:
    """Load the network of a policy that writes columns from a checkpoint folder.

    Errors and a warning are those of `agents.policies.card.checked_card`. ValueError if the policy does not write columns, or
    observes another version's features.
    """
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
    """Read the tensors of a policy's file by name.

    A file of an earlier version is in PyTorch's format and is read only if `trust` allows it.
    """
    import torch

    if (folder / POLICY).exists():
        return load_tensors(folder / POLICY)[0]
    check_trust(folder, trust)
    return torch.load(folder / ZIP, weights_only=True)["network"]
