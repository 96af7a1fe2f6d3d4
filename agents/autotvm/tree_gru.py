"""AutoTVM's TreeGRU: a recurrent network over the loop nest as a cost model.

In Chen et al., NeurIPS 2018, section 3.1, a child-sum GRU runs from the leaves of the program's syntax tree to its root. Our
programs are perfect nests, so the tree is a chain of loops. The children of the innermost loop are the accesses of buffers, and
the children of an access are the loop variables that index the buffer. Every other loop has two children: the loop inside it and
a leaf for its variable. Inputs of a loop are log2 of its length and of the product from the root, its annotation, and touched
elements and reuse per buffer (the authors' `add_stats`). Loops of length 1 are left out, as in the authors' lowering. Sizes,
optimiser and loss are those of the authors' code; the shape of the tree is our reconstruction.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from agents.autotvm.loop_features import (
    ANNOTATION,
    ANNOTATIONS,
    COUNT,
    KNOBS_AT,
    LENGTH,
    LOOP_FIELDS,
    LOOPS,
    POSITION,
    REUSE,
    STRIDES,
    TASK_AT,
    TOPDOWN,
    TOUCH_FIELDS,
    loop_blocks,
)
from gensor_gym.graph.tables.layout import MAX_AXES, MAX_TENSORS

LOOP_INPUTS = 2 + len(ANNOTATIONS) + 2 * MAX_TENSORS
_EVERY, _CLIP = 10, 5.0


@dataclass
class TreeGru:
    """A cost model (`CostModel` of `agents.autotvm.tree_model`) that trains a TreeGRU on the features of `loop_features`."""

    objective: str = "rank"
    hidden: int = 128
    rate: float = 7e-4
    decay: float = 1e-4
    minibatch: int = 128
    minibatches: int = 500
    patience: int = 100
    """Number of minibatches without a lower training loss after which training ends."""
    seed: int = 0
    threads: int = 1
    _network: Any = field(default=None, init=False)

    def __post_init__(self) -> None:
        if self.objective not in ("rank", "regression"):
            raise ValueError(f"objective {self.objective!r}: expected rank or regression")

    def fit(self, features: np.ndarray, labels: np.ndarray, margin: np.ndarray | None = None) -> None:
        """Train a new network on labels [B] of features [B, F]; see `CostModel.fit` for the arguments."""
        import torch

        from agents.autotvm.tree_gru_network import TreeGruNetwork

        torch.set_num_threads(self.threads)
        generator = torch.Generator().manual_seed(self.seed)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            network = TreeGruNetwork(self.hidden, LOOP_INPUTS)
        inputs = self._inputs(features)
        target = torch.tensor(labels, dtype=torch.float32)
        base = torch.zeros(len(labels)) if margin is None else torch.tensor(margin, dtype=torch.float32)
        steps = torch.optim.Adam(network.parameters(), lr=self.rate, weight_decay=self.decay)
        best, idle, loss_sum = np.inf, 0, 0.0
        for step in range(1, self.minibatches + 1):
            at = torch.randint(len(labels), (min(self.minibatch, 2 * len(labels)),), generator=generator)
            once, back = at.unique(return_inverse=True)
            scores = network(*(part[once] for part in inputs))[back] + base[at]
            loss = self._loss(scores, target[at], torch.randperm(len(at), generator=generator))
            steps.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(network.parameters(), _CLIP)
            steps.step()
            loss_sum += loss.item()
            if step % _EVERY == 0:
                idle = 0 if loss_sum < best else idle + _EVERY
                best, loss_sum = min(best, loss_sum), 0.0
                if idle >= self.patience:
                    break
        self._network = network

    def predict(self, features: np.ndarray, margin: np.ndarray | None = None) -> np.ndarray:
        """Return scores float64 [B] of programs; see `CostModel.predict`.

        Before the first fit, the scores are the margin, or 0 without a margin.
        """
        base = np.zeros(len(features)) if margin is None else np.asarray(margin, dtype=np.float64)
        if self._network is None:
            return base
        import torch

        with torch.no_grad():
            return base + self._network(*self._inputs(features)).numpy().astype(np.float64)

    def _loss(self, scores: Any, target: Any, partner: Any) -> Any:
        """Compute the training loss of `scores` by the objective: regression or ranking.

        Regression is the mean squared error; ranking is the mean log(1 + exp(worse - better)) over pairs (program, `partner`)
        with different labels.
        """
        import torch

        if self.objective == "regression":
            return torch.nn.functional.mse_loss(scores, target)
        sign = torch.sign(target - target[partner])
        terms = torch.nn.functional.softplus(-sign * (scores - scores[partner])) * sign.abs()
        return terms.sum() / sign.abs().sum().clamp(min=1.0)

    def _inputs(self, features: np.ndarray) -> tuple[Any, Any, Any, Any, Any]:
        """Convert loop features [B, F] to the network's inputs, each program's loops innermost first.

        Return (loop inputs [B, N, LOOP_INPUTS], axis slots [B, N], numbers of loops [B], strides [B, axes, tensors], knobs [B,
        ...]). N is the largest number of loops longer than 1. Entries beyond a program's own number of loops are undefined.
        """
        import torch

        every = loop_blocks(features)
        turns = every[:, :, LENGTH] > 1.0  # log2(1 + length)
        counts = turns.sum(axis=1)
        order = np.argsort(np.where(turns, -every[:, :, POSITION], 1.0), axis=1, kind="stable")[:, : max(counts, default=0)]
        blocks = np.take_along_axis(every, order[:, :, None], axis=1)
        touches = blocks[:, :, len(LOOP_FIELDS) :].reshape(*blocks.shape[:2], MAX_TENSORS, len(TOUCH_FIELDS))
        own = [LENGTH, TOPDOWN, *range(ANNOTATION, ANNOTATION + len(ANNOTATIONS))]
        stats = touches[:, :, :, [COUNT, REUSE]].reshape(*blocks.shape[:2], 2 * MAX_TENSORS)
        loops = np.concatenate([blocks[:, :, own], stats], axis=2)
        inner = every.reshape(len(features), LOOPS // MAX_AXES, MAX_AXES, -1)[:, -1]
        strides = inner[:, :, len(LOOP_FIELDS) + STRIDES :: len(TOUCH_FIELDS)]
        parts = (loops, order % MAX_AXES, counts, strides.copy(), features[:, KNOBS_AT:TASK_AT].copy())
        return tuple(torch.from_numpy(part) for part in parts)  # type: ignore[return-value]
