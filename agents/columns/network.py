"""The network of a policy that chooses a program column by column. The module needs PyTorch and is imported at first use.

A choice's embedding depends only on its sizes, so that new extents share choices with those of training. Two sets are
represented by sums, as by Zaheer et al. (2017): the embeddings of the choices made so far, and those of the open columns. A query
is computed from both sums, the column and the task. A choice's logit is the product of its embedding and the query, plus a bias.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import nn

from agents.columns.choices import CHOICE_FEATURES, COLUMN_FEATURES, MACHINE_FEATURES, TASK_FEATURES, TYPES, Choices
from agents.columns.feasible import Feasible
from agents.columns.given import Given

CLOSED = -1e9
"""Logit of a choice that is not open, which makes its probability 0.

If no choice of a column is open, all are equally likely.
"""


def _perceptron(*sizes: int) -> nn.Sequential:
    """Build linear layers with ReLU in between; `sizes` are the input, hidden and output widths."""
    layers: list[nn.Module] = []
    for before, after in zip(sizes, sizes[1:], strict=False):
        layers += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


class ColumnNetwork(nn.Module):
    """Network that draws programs by columns (tiles of an axis, or a knob) and computes each choice's probability."""

    def __init__(
        self, width: int, machine: bool = False, types: bool = False, masked: bool = False, frozen: bool = False
    ) -> None:
        """Make the layers; `width` is the size of embeddings and queries.

        Queries depend on the machine's constants with `machine`, on the data type with `types`, and on whether weights are
        constant with `frozen`. With `masked`, draws are restricted to feasible choices, in training and in a search.
        """
        super().__init__()
        self.width, self.machine, self.types, self.masked, self.frozen = width, machine, types, masked, frozen
        task = TASK_FEATURES + (MACHINE_FEATURES if machine else 0) + (len(TYPES) if types else 0) + int(frozen)
        self.choice = _perceptron(CHOICE_FEATURES, width, width)
        self.alone = nn.Linear(width, 1)
        self.chosen = _perceptron(CHOICE_FEATURES, width, width)
        self.column = _perceptron(COLUMN_FEATURES, width, width)
        self.query = _perceptron(task + COLUMN_FEATURES + 2 * width, 2 * width, width)

    def forward(
        self,
        choices: Choices,
        draws: np.ndarray | None,
        temperature: float = 1.0,
        substitute: Feasible | Given | None = None,
    ) -> tuple[np.ndarray, torch.Tensor, torch.Tensor]:
        """Draw N programs, one choice per column; return (choices int64 [N, K], log-probabilities [N], entropies [N]).

        Entropies are summed over columns. Uniform random numbers `draws` in [0, 1), float [N, K], decide; None takes the most
        probable choice of every column, N = 1. `substitute` may replace drawn choices; log-probabilities are then those of the
        replacements. A `masked` network gets the open choices from `substitute`, and its probabilities are over open choices.
        """
        features, columns = torch.from_numpy(choices.features), torch.from_numpy(choices.column_features)
        embedded, counts = self.choice(features), choices.counts.tolist()
        alone = self.alone(torch.relu(embedded))[:, 0].split(counts)
        keys, described = embedded.split(counts), features.split(counts)
        task = self._task(choices)
        of_columns, scale = self.column(columns), self.width**-0.5
        left, count = of_columns.sum(0), 1 if draws is None else len(draws)
        sofar, chance, entropy = torch.zeros(count, self.width), torch.zeros(count), torch.zeros(count)
        chosen = np.full((count, len(counts)), -1, dtype=np.int64)
        for k in range(len(counts)):
            left = left - of_columns[k]
            known = torch.cat([task, columns[k], left])
            query = self.query(torch.cat([known.expand(count, -1), sofar], dim=1)) * (scale / temperature)
            logits = torch.addmm(alone[k] / temperature, query, keys[k].T)
            if self.masked and substitute is not None:
                logits = logits.masked_fill(torch.from_numpy(~substitute.open_choices(chosen, k)), CLOSED)
            logs = torch.log_softmax(logits, dim=1)
            chances = logs.exp()
            at = _drawn(chances.detach(), None if draws is None else draws[:, k])
            if substitute is not None and not (self.masked and isinstance(substitute, Feasible)):
                at = torch.from_numpy(substitute.kept(chosen, k, at.numpy(), chances.detach().numpy()))
            chance = chance + logs.gather(1, at[:, None])[:, 0]
            entropy = entropy - (chances * logs).sum(1)
            chosen[:, k] = at.numpy()
            if k + 1 < len(counts):
                sofar = sofar + self.chosen(described[k].index_select(0, at))
        return chosen, chance, entropy

    def _task(self, choices: Choices) -> torch.Tensor:
        options = (self.machine, choices.machine), (self.types, choices.types), (self.frozen, choices.frozen)
        return torch.from_numpy(np.concatenate([choices.task, *(features for seen, features in options if seen)]))


def network_of(settings: Mapping[str, Any]) -> ColumnNetwork:
    """Make a new network with the settings of an agent, which may come from a policy's card."""
    return ColumnNetwork(settings["width"], *(bool(settings.get(name)) for name in ("machines", "types", "masked", "frozen")))


def _drawn(chances: torch.Tensor, draws: np.ndarray | None) -> torch.Tensor:
    """Draw choices int64 [N] with probabilities [N, C], by uniform random numbers `draws` [N] in [0, 1).

    Without `draws`, the most probable choices are returned.
    """
    if draws is None:
        return chances.argmax(dim=1)
    total = chances.cumsum(dim=1)
    wanted = torch.from_numpy(draws.astype(np.float32))[:, None] * total[:, -1:]
    return torch.searchsorted(total, wanted, right=True)[:, 0].clamp(max=chances.shape[1] - 1)
