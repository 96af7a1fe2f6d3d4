"""Learners that rank the programs of an operator: boosted trees, a network over features, self-attention over primitives.

All learners minimise one listwise loss (ListNet, Cao et al. 2007): the cross-entropy between two distributions over the programs
of an operator, proportional to exp(-sharpness * log time) and to exp(score). Predictions are log seconds, up to a constant for
each operator.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from agents.hybrids.correction import ROUNDS, SETTINGS

Parts = tuple[np.ndarray, ...]
"""Input arrays [B, ..] of a network, with one item for each program."""
OPERATORS = 32
"""Number of operators in one training step."""
WIDTHS = {"network": 256, "attention": 32}


def softmax(scores: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """Return the softmax of the scores within each group; `groups` [B] has the group number, from 0, of each score."""
    highest = np.full(groups.max() + 1, -np.inf)
    np.maximum.at(highest, groups, scores)
    found = np.exp(scores - highest[groups])
    shares: np.ndarray = found / np.bincount(groups, weights=found)[groups]
    return shares


def listwise_trees(
    inputs: np.ndarray, times: np.ndarray, groups: np.ndarray, asked: np.ndarray, seed: int, sharpness: float, model: bool
) -> np.ndarray:
    """Train boosted trees with the listwise loss on programs, and predict log seconds for the programs `asked` [N, F].

    Settings are those of `agents.hybrids.correction`. `times` are log seconds and `groups` the operators' numbers. With `model`,
    column 0 is the logarithm of the analytic model's seconds. The prediction is then the mean of two boosters, and the second
    starts from that column.
    """
    import xgboost

    target, count = softmax(-sharpness * times, groups), np.bincount(groups)[groups]

    def gradient(scores: np.ndarray, _: Any) -> tuple[np.ndarray, np.ndarray]:
        """Return the gradient and the curvature of the loss in the scores, times the operator's number of programs.

        Curvatures are then about 1, like those of the squared error.
        """
        share = softmax(scores, groups)
        return count * (share - target), np.maximum(count * share * (1 - share), 1e-3)

    def predicted(start: float) -> np.ndarray:
        data, new = (xgboost.DMatrix(of, base_margin=-start * sharpness * of[:, 0]) for of in (inputs, asked))
        given = {**SETTINGS, "seed": seed, "base_score": 0.0, "disable_default_eval_metric": True}
        found = xgboost.train(given, data, num_boost_round=ROUNDS, obj=gradient).predict(new, output_margin=True)
        return np.asarray(-found / sharpness, dtype=np.float64)

    return (predicted(0.0) + predicted(1.0)) / 2 if model else predicted(0.0)


def network(
    inputs: Parts, times: np.ndarray, groups: np.ndarray, asked: Parts, seed: int, sharpness: float, epochs: int, rate: float
) -> np.ndarray:
    """Train a network with the listwise loss on `inputs`, and predict log seconds for the programs `asked`.

    One array (features) trains a perceptron, three arrays (`Sequences.packed`) train self-attention. Torch uses one thread.
    """
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    first, scale = inputs[0].mean(axis=0), inputs[0].std(axis=0) + 1e-3

    def tensors(parts: Parts) -> list[Any]:
        return [torch.from_numpy(((parts[0] - first) / scale).clip(-8, 8)), *map(torch.from_numpy, parts[1:])]

    data, goals = tensors(inputs), torch.from_numpy(softmax(-sharpness * times, groups)).float()
    net = _perceptron(inputs[0].shape[1]) if len(inputs) == 1 else _attention(inputs[0].shape[1], inputs[1].shape[2])
    steps = epochs * -(-(int(groups.max()) + 1) // OPERATORS)
    optimizer = torch.optim.AdamW(net.parameters(), lr=rate, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, total_steps=steps)
    for _ in range(epochs):
        for chosen, places, count in _batches(groups, rng):
            at = torch.from_numpy(chosen)
            scores = torch.full((OPERATORS * count,), -1e9).index_put((torch.from_numpy(places),), net(*(of[at] for of in data)))
            shares = scores.reshape(OPERATORS, count).log_softmax(dim=1).reshape(-1)[places]
            optimizer.zero_grad()
            (-(goals[at] * shares).sum() / OPERATORS).backward()
            torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            optimizer.step()
            schedule.step()
    with torch.no_grad():
        found = torch.cat([net(*of) for of in zip(*(one.split(2048) for one in tensors(asked)), strict=True)])
    return -found.double().numpy() / sharpness


def _batches(groups: np.ndarray, rng: np.random.Generator) -> Iterator[tuple[np.ndarray, np.ndarray, int]]:
    """Yield batches with all programs of `OPERATORS` random operators, so that an epoch has each operator once.

    A batch is (programs, places, count): indices of the programs, where each goes in an array [OPERATORS * count] that pads every
    operator to `count` programs, and `count`.
    """
    starts, sizes = np.searchsorted(groups, np.arange(groups.max() + 2)), np.bincount(groups)
    order = rng.permutation(len(sizes))
    for begin in range(0, len(order), OPERATORS):
        some, count = order[begin : begin + OPERATORS], int(sizes.max())
        pairs = [(np.arange(starts[g], starts[g + 1]), i * count + np.arange(sizes[g])) for i, g in enumerate(some)]
        chosen, places = (np.concatenate(values) for values in zip(*pairs, strict=True))
        yield chosen, places, count


def _perceptron(features: int) -> Any:
    from torch.nn import Flatten, Linear, Sequential, SiLU

    width = WIDTHS["network"]
    return Sequential(Linear(features, width), SiLU(), Linear(width, width), SiLU(), Linear(width, 1), Flatten(0))


def _attention(sizes: int, numbers: int) -> Any:
    """Return a network of two self-attention layers over tokens of the operator and the primitives, which returns scores [B].

    `sizes` is the number of operator features, `numbers` the width of a token.
    """
    import torch
    from torch import nn

    width = WIDTHS["attention"]

    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.operator, self.primitive = nn.Linear(sizes, width), nn.Linear(numbers, width)
            layer = nn.TransformerEncoderLayer(width, 4, 2 * width, 0.0, batch_first=True, norm_first=True)
            self.body = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
            self.head = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.SiLU(), nn.Linear(width, 1))

        def forward(self, own: Any, numbers: Any, present: Any) -> Any:
            kept = torch.cat([torch.ones(len(own), 1, dtype=torch.bool), present], dim=1)
            read = torch.cat([self.operator(own)[:, None], self.primitive(numbers)], dim=1)
            found = self.body(read, src_key_padding_mask=~kept)
            return self.head((found * kept[..., None]).sum(dim=1) / kept.sum(dim=1, keepdim=True))[:, 0]

    return Attention()
