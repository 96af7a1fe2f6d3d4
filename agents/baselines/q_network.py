"""A small Q-network from features of a program to the value of every move, trained on observed transitions.

The network has four fully connected layers with ReLU, trained by Adam. It is written in NumPy, so that a search needs no torch.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Transition:
    """An observed move between two programs: features [F] before, index of the move, reward, features [F] after."""

    before: np.ndarray
    move: int
    reward: float
    after: np.ndarray


class QNetwork:
    """Q-network from features float64 [B, F] of programs to the values float64 [B, moves] of all moves."""

    def __init__(self, features: int, moves: int, width: int, rate: float, rng: np.random.Generator) -> None:
        """Draw random weights (He's initialisation); the last layer's are 0, so that every move has the value 0 at first."""
        sizes = [features, width, width, width, moves]
        self.rate = rate
        self.layers = [
            (rng.standard_normal((a, b)) * np.sqrt(2 / max(a, 1)) * (i < 3), np.zeros(b))
            for i, (a, b) in enumerate(zip(sizes, sizes[1:], strict=False))
        ]
        self._moments = [[np.zeros_like(p) for p in layer] for layer in self.layers]
        self._squares = [[np.zeros_like(p) for p in layer] for layer in self.layers]
        self._count = 0

    def values(self, features: np.ndarray) -> np.ndarray:
        """Return the Q-values float64 [B, moves] of features [B, F] or [F]."""
        return self._forward(features)[-1]

    def train(self, batch: list[Transition], discount: float) -> float:
        """Take one gradient step on a batch; return the mean squared error before the step.

        The target of a transition is its reward + `discount` x the best value after the move.
        """
        before, after = np.array([t.before for t in batch]), np.array([t.after for t in batch])
        moves = np.array([t.move for t in batch])
        targets = np.array([t.reward for t in batch]) + discount * self.values(after).max(axis=1)
        activations = self._forward(before)
        error = np.zeros_like(activations[-1])
        error[np.arange(len(batch)), moves] = activations[-1][np.arange(len(batch)), moves] - targets
        gradient = error * (2 / len(batch))
        self._count += 1
        for i in range(len(self.layers) - 1, -1, -1):
            below = gradient @ self.layers[i][0].T * (activations[i] > 0)
            self._step(i, (activations[i].T @ gradient, gradient.sum(axis=0)))
            gradient = below
        return float((error**2).sum() / len(batch))

    def _forward(self, features: np.ndarray) -> list[np.ndarray]:
        """Return the inputs of all layers and then the network's output."""
        found = [np.atleast_2d(features)]
        for i, (weights, bias) in enumerate(self.layers):
            out = found[-1] @ weights + bias
            found.append(np.maximum(out, 0.0) if i < len(self.layers) - 1 else out)
        return found

    def _step(self, layer: int, gradients: tuple[np.ndarray, np.ndarray]) -> None:
        for parameter, gradient, moment, square in zip(
            self.layers[layer], gradients, self._moments[layer], self._squares[layer], strict=True
        ):
            moment += 0.1 * (gradient - moment)
            square += 0.001 * (gradient**2 - square)
            scaled = np.sqrt(square / (1 - 0.999**self._count)) + 1e-8
            parameter -= self.rate * moment / (1 - 0.9**self._count) / scaled
