"""Q-learning with simulated annealing: our reconstruction of FlexTensor's exploration (Zheng et al., ASPLOS 2020).

The paper's text was not available to us; descriptions of it say the following. Starting points are drawn among measured points.
Their probability decreases exponentially with the distance to the best performance. From each starting point a network chooses a
direction. It estimates the value of every direction and is trained by Q-learning every few trials. The reward is the relative
gain in performance, and no point is measured twice.

We reconstructed directions (one step up or down at a position of a column, see `agents.core.programs`), features, sizes, epsilon,
and the number of random programs at the beginning.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from agents.baselines.q_network import QNetwork, Transition
from agents.core.ledger import Ledger
from agents.core.programs import Direction, Programs
from gensor_gym.measure.session import Session

LARGEST_REWARD = 2.0
"""Rewards are clipped to this, because the gain from a very slow program says little about the direction."""


@dataclass(frozen=True)
class FlexTensor:
    """Q-learning with simulated annealing, by measurement: a network chooses how to change a measured program.

    A direction is one step up or down of one number of the program. No cost model is used.
    """

    space: str = "extended"
    warm_up: int = 8
    """Number of random programs that are measured first."""
    starting_points: int = 4
    """Number of measured programs whose untried directions a round follows, one direction each."""
    gamma: float = 4.0
    """A program with half the best performance is drawn with exp(-gamma / 2) of the best program's probability."""
    epsilon: float = 0.15
    """Probability of a random direction."""
    discount: float = 0.7
    train_every: int = 5
    """Number of new trials between trainings of the network."""
    train_steps: int = 20
    """Number of gradient steps in each training of the network; each step uses `batch` transitions."""
    batch: int = 32
    width: int = 64
    """Width of the network's hidden layers."""
    rate: float = 0.003

    def search(self, session: Session, rng: np.random.Generator) -> None:
        """Run rounds of Q-learning until the budget is spent or every program is measured."""
        exploration = _Exploration(self, Ledger(session), rng)
        exploration.start(self.warm_up)
        while exploration.round():
            pass


@dataclass
class _Point:
    """A measured program: its vector of choices, its performance (1 / seconds, 0 if it failed), and its untried directions."""

    vector: np.ndarray
    performance: float
    left: np.ndarray


class _Exploration:
    def __init__(self, settings: FlexTensor, ledger: Ledger, rng: np.random.Generator) -> None:
        self.settings, self.ledger, self.rng = settings, ledger, rng
        self.programs: Programs = ledger.programs
        self.directions: list[Direction] = [(c, p, s) for c, p in self.programs.places for s in (1, -1)]
        places = self.programs.places
        self.network = QNetwork(len(places), max(1, len(self.directions)), settings.width, settings.rate, rng)
        self.points: dict[bytes, _Point] = {}
        self.memory: list[Transition] = []
        self.trained = 0

    def start(self, count: int) -> bool:
        """Measure `count` new random programs; return False if the space has no new program."""
        drawn = self.ledger.walked(self.rng, count)
        for schedule, measurement in zip(drawn, self.ledger.measure(drawn), strict=False):
            vector = self.programs.vector(schedule)
            if vector is not None:
                self._add(vector, measurement.seconds)
        return bool(drawn)

    def round(self) -> bool:
        """From each of several measured programs, measure one neighbour; return False if the space is exhausted."""
        moved = [self._go(point) for point in self._starting_points()]
        if not any(moved):
            return self.start(1)
        if len(self.memory) - self.trained >= self.settings.train_every:
            self.trained = len(self.memory)
            for _ in range(self.settings.train_steps):
                picked = self.rng.integers(0, len(self.memory), size=self.settings.batch)
                self.network.train([self.memory[i] for i in picked], self.settings.discount)
        return True

    def _starting_points(self) -> list[_Point]:
        """Draw the measured programs from which the next round starts, without replacement.

        The probabilities are proportional to exp(-gamma (E* - E) / E*) for performance E and best performance E*.
        """
        points = [point for point in self.points.values() if point.left.any()]
        if not points:
            return []
        performance = np.array([point.performance for point in points])
        best = max(point.performance for point in self.points.values())
        chances = np.exp(-self.settings.gamma * (best - performance) / best) if best > 0 else np.ones(len(points))
        count = min(self.settings.starting_points, len(points))
        picked = self.rng.choice(len(points), size=count, replace=False, p=chances / chances.sum())
        return [points[i] for i in picked]

    def _go(self, point: _Point) -> bool:
        """Measure the neighbour of `point` in one untried direction; return False if no direction is left.

        The direction has the highest Q-value or, with probability epsilon, is random. Directions to illegal or known programs are
        skipped.
        """
        values = self.network.values(self._features(point.vector))[0] + 1e-6 * self.rng.random(len(self.directions))
        while point.left.any():
            left = np.flatnonzero(point.left)
            random = self.rng.random() < self.settings.epsilon
            move = int(self.rng.choice(left) if random else left[np.argmax(values[left])])
            point.left[move] = False
            vector = self.programs.moved(point.vector, self.directions[move])
            if vector is None or not self.programs.legal(vector[None])[0]:
                continue
            schedule = self.programs.schedule(vector)
            if schedule in self.ledger:
                continue
            after = self._add(vector, self.ledger.seconds(schedule))
            gain = (after.performance - point.performance) / point.performance if point.performance else LARGEST_REWARD
            reward = min(gain, LARGEST_REWARD)
            self.memory.append(Transition(self._features(point.vector), move, reward, self._features(vector)))
            return True
        return False

    def _add(self, vector: np.ndarray, seconds: float) -> _Point:
        point = _Point(vector, 1.0 / seconds, np.ones(len(self.directions), dtype=np.bool_))
        self.points[vector.tobytes()] = point
        return point

    def _features(self, vector: np.ndarray) -> np.ndarray:
        """Return a program's numbers at all positions that vary, each scaled from 0 (smallest) to 1 (largest), float64 [F]."""
        logs = self.programs.logs
        return np.array(
            [(logs[c][vector[c], p] - logs[c][:, p].min()) / np.ptp(logs[c][:, p]) for c, p in self.programs.places]
        )
