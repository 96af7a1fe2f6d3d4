"""Exact analysis of the traverser as a Markov chain: transition matrices, distributions and hitting times.

The benefit of `cache` grows with the number of steps at a level, so a state of the chain is a program together with this number.
The chain describes one round of annealed walks (`agents.gensor.walk`) from one start. It does not cover later rounds, which begin
at the ends of earlier rounds.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import sparse
from scipy.sparse import linalg

from agents.gensor import walk
from agents.gensor.markov import Markov
from gensor_gym.construction import ConstructionGraph
from gensor_gym.exact.states import StateGraph, explore
from gensor_gym.graph.actions import CACHE, UNCACHE


@dataclass(frozen=True, eq=False)
class Chain:
    """The traverser's walk on one task as a Markov chain that begins at state `start`.

    `options` float64 [NUM_OPTIONS] are those of `agents.gensor.walk`.
    """

    states: StateGraph
    gains: np.ndarray
    """Logarithm of every edge's benefit without any earlier step at the memory level, float64 [E]."""
    options: np.ndarray
    start: int = 0

    @property
    def steps(self) -> int:
        """Number of steps of one walk."""
        return int(self.options[walk.STEPS])

    def temperatures(self) -> np.ndarray:
        """Return the temperature of every step of the walk, float64 [steps]. It decreases geometrically."""
        begin, end = self.options[walk.START], self.options[walk.FINISH]
        cooling = (end / begin) ** (1.0 / max(1, self.steps - 1))
        return begin * cooling ** np.arange(self.steps)

    def matrix(self, temperature: float, at_level: int = 0) -> sparse.csr_array:
        """Return the transition probabilities [S, S] at a temperature, after `at_level` steps at the current memory level.

        Rows add up to 1. A state without a legal action keeps probability 1. ValueError for a temperature that is not positive.
        """
        if not temperature > 0:
            raise ValueError(f"temperature is {temperature!r}: expected a positive number")
        parts, caching = self._weights(temperature), self._ripeness(temperature, at_level + 1)[at_level]
        whole = parts.moves + parts.closes + parts.opens * caching
        totals = np.asarray(whole.sum(axis=1)).ravel()
        stuck = totals == 0
        scale = sparse.diags_array(1.0 / np.where(stuck, 1.0, totals))
        return (scale @ whole + sparse.diags_array(stuck.astype(float))).tocsr()

    def _ripeness(self, temperature: float, count: int) -> np.ndarray:
        """Return the factors by which the weight of `cache` has grown after 0, 1, .. steps at a memory level, float64 [count]."""
        return np.arange(1, count + 1) ** (self.options[walk.CACHE_GROWTH] / temperature)

    def _weights(self, temperature: float) -> _Weights:
        """Compute the weights of all edges, relative to the largest weight of an edge from the same state."""
        states, count = self.states, len(self.states.rows)
        top = np.full(count, -np.inf)
        np.maximum.at(top, states.source, self.gains)
        weights = np.exp((self.gains - top[states.source]) / temperature)

        def part(chosen: np.ndarray) -> sparse.csr_array:
            entries = (weights[chosen], (states.source[chosen], states.target[chosen]))
            return sparse.coo_array(entries, shape=(count, count)).tocsr()

        opens, closes = states.action == CACHE, states.action == UNCACHE
        return _Weights(part(~opens & ~closes), part(opens), part(closes))

    def distributions(self, absorbing: np.ndarray | None = None) -> np.ndarray:
        """Return the probability of every state after 0, 1, .. steps, float64 [steps + 1, S].

        Walks end in states of `absorbing` (bool [S]). The entry of such a state is the probability that a walk arrives at exactly
        that step.
        """
        count = len(self.states.rows)
        ending = np.zeros(count, dtype=bool) if absorbing is None else absorbing
        now = np.zeros((self.steps + 1, count))
        now[0, self.start] = 1.0
        found = np.zeros((self.steps + 1, count))
        found[0] = now.sum(axis=0)
        for step, temperature in enumerate(self.temperatures()):
            now[:, ending] = 0.0
            now = self._advance(now, float(temperature))
            found[step + 1] = now.sum(axis=0)
        return found

    def _advance(self, now: np.ndarray, temperature: float) -> np.ndarray:
        """Return the distribution one step after `now`; both are probabilities [steps at the current memory level, S]."""
        parts = self._weights(temperature)
        ripeness = self._ripeness(temperature, len(now))[:, None]
        moves, opens, closes = (np.asarray(part.sum(axis=1)).ravel() for part in (parts.moves, parts.opens, parts.closes))
        totals = moves + closes + opens * ripeness
        stuck = totals == 0
        shares = np.where(stuck, 0.0, now / np.where(stuck, 1.0, totals))
        after = np.zeros_like(now)
        after[1:] = (parts.moves.T @ shares[:-1].T).T
        after[0] = parts.opens.T @ (shares * ripeness).sum(axis=0) + parts.closes.T @ shares.sum(axis=0)
        return after + np.where(stuck, now, 0.0)

    def final(self) -> np.ndarray:
        """Return the probability float64 [S] that a walk ends in each state."""
        return self.distributions()[-1]

    def hitting(self, targets: np.ndarray) -> np.ndarray:
        """Return the probability float64 [steps + 1] that a walk has visited a target after 0, 1, .. steps.

        `targets` bool [S] says which states are targets.
        """
        return np.cumsum(self.distributions(targets)[:, targets].sum(axis=1))

    def seen(self) -> tuple[np.ndarray, np.ndarray]:
        """Compute the distribution of the time of the best program that a walk evaluates.

        Return (ascending distinct seconds, probability that the best program takes exactly these seconds). Like
        `agents.gensor.walk.walk`, a walk evaluates all successors of each of its states except the last state.
        """
        least = self.states.seconds.copy()
        np.minimum.at(least, self.states.source, self.states.seconds[self.states.target])
        levels = np.unique(least)
        within = [self.distributions(least <= level)[:-1][:, least <= level].sum() for level in levels]
        return levels, np.diff(within, prepend=0.0)

    def mean_hitting_times(self, targets: np.ndarray, temperature: float, at_level: int = 0) -> np.ndarray:
        """Return the mean number of steps float64 [S] from every state to `targets` (bool [S]) at a constant temperature.

        The chain is that of `matrix(temperature, at_level)`. A state's number is infinite if the chain may enter from it a
        state without a path to a target.
        """
        chain = self.matrix(temperature, at_level)
        reverse = (chain > 0).T.tocsr()
        lost = ~_reached(reverse, targets)
        lost = _reached(reverse, lost, through=~targets)
        times = np.where(lost, np.inf, 0.0)
        inside = np.flatnonzero(~lost & ~targets)
        if len(inside):
            rest = sparse.eye_array(len(inside)) - chain[inside][:, inside]
            times[inside] = linalg.spsolve(rest.tocsc(), np.ones(len(inside)))
        return times


@dataclass(frozen=True, eq=False)
class _Weights:
    """Weights [S, S] of edges by kind.

    `moves` keep the memory level, `opens` enter the next level, `closes` go back one level.
    """

    moves: sparse.csr_array
    opens: sparse.csr_array
    closes: sparse.csr_array


def chain_of(graph: ConstructionGraph, strategy: Markov | None = None, states: StateGraph | None = None) -> Chain:
    """Build the Markov chain of a strategy's first round of walks, from the unscheduled program.

    ValueError if the task has too many states, or for a strategy without backtracking, whose graph differs.
    """
    strategy = strategy or Markov()
    if not strategy.backtracking:
        raise ValueError("the chain is that of walks with inverse primitives: backtracking=False is not followed")
    states = states or explore(graph)
    options = strategy.options(strategy.steps, strategy.start_temperature)
    gains = np.empty(len(states.source))
    walk.fill_gains(
        states.rows, states.seconds, states.source, states.action, states.target, graph.tables.ints, graph.tables.floats,
        options, gains,
    )  # fmt: skip
    return Chain(states, gains, options)


def expected_best(seconds: np.ndarray, chances: np.ndarray, count: int) -> float:
    """Return the expected minimum of `count` independent draws from `seconds` [N] with probabilities `chances` [N].

    ValueError for a count below 1.
    """
    if count < 1:
        raise ValueError(f"count is {count!r}: expected one draw or more")
    order = np.argsort(seconds, kind="stable")
    left = np.clip(1.0 - np.concatenate([[0.0], np.cumsum(chances[order])]), 0.0, 1.0) ** count
    left[-1] = 0.0
    return float((seconds[order] * (left[:-1] - left[1:])).sum())


def _reached(edges: sparse.csr_array, start: np.ndarray, through: np.ndarray | None = None) -> np.ndarray:
    """Return which states can be reached along `edges` [S, S] from the states `start` (bool [S]), bool [S].

    Only states of `through` are entered on the way; `start` is included.
    """
    found = start.copy()
    frontier = found
    while frontier.any():
        onwards = np.asarray(edges.T @ frontier.astype(np.int64)).ravel() > 0
        frontier = onwards & ~found & (True if through is None else through)
        found = found | frontier
    return found
