"""The network of `agents.autotvm.tree_gru`: a child-sum GRU over the loop nest. `fit` imports it, because it needs PyTorch."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from agents.autotvm.loop_features import KNOBS_AT, TASK_AT
from gensor_gym.graph.tables.layout import MAX_AXES, MAX_TENSORS


class TreeGruNetwork(nn.Module):
    """TreeGRU: embeddings of loop variables and buffers, a child-sum GRU cell, and a decoder of the root's state to a score."""

    def __init__(self, hidden: int, loop_inputs: int) -> None:
        super().__init__()
        self.hidden = hidden
        self.variables = nn.Embedding(MAX_AXES, hidden)
        self.tensors = nn.Parameter(torch.randn(MAX_TENSORS, hidden) * 0.1)
        self.loop = nn.Linear(loop_inputs, hidden)
        self.knobs = nn.Linear(TASK_AT - KNOBS_AT, hidden)
        self.cell = nn.GRUCell(hidden, hidden)
        self.decoder = nn.Sequential(nn.Linear(hidden, hidden), nn.Sigmoid(), nn.Linear(hidden, 1))

    def forward(self, loops: Any, slots: Any, counts: Any, strides: Any, knobs: Any) -> Any:
        """Return the scores [B] of programs; the inputs are those of `TreeGru._inputs`.

        Programs are sorted by their number of loops, so that in every step the programs that still have loops are the first of
        the batch.
        """
        order = torch.argsort(counts, descending=True, stable=True)
        here = counts[order] > torch.arange(loops.shape[1])[:, None]
        running = here.sum(dim=1).tolist()
        leaves = self.cell(self.variables.weight)
        inputs = self._gates(self.loop, loops[order].transpose(0, 1)[here])
        others = nn.functional.embedding(slots[order].T[here], leaves)
        state = self._accesses(strides[order], leaves)
        for gates, children, count in zip(inputs.split(running), others.split(running), running, strict=True):
            state = torch.cat([self._step(gates, state[:count] + children), state[count:]])
        state = self._step(self._gates(self.knobs, knobs[order]), state)
        return self.decoder(state)[:, 0][torch.argsort(order)]

    def _accesses(self, strides: Any, leaves: Any) -> Any:
        """Return the sum [B, hidden] of the states of all buffers' nodes.

        The children of a buffer's node are the loop variables that index the buffer.
        """
        children = torch.einsum("bat,ah->bth", (strides > 0).float(), leaves)
        gates = nn.functional.linear(self.tensors, self.cell.weight_ih, self.cell.bias_ih)
        nodes = self._step(gates.expand(len(strides), -1, -1).reshape(-1, 3 * self.hidden), children.reshape(-1, self.hidden))
        return nodes.reshape(len(strides), MAX_TENSORS, self.hidden).sum(dim=1)

    def _gates(self, embed: Any, numbers: Any) -> Any:
        """Return the cell's gate inputs [.., 3 hidden] for the embedding `embed(numbers)`, with both linear maps merged."""
        weight = self.cell.weight_ih @ embed.weight
        bias = torch.addmv(self.cell.bias_ih, self.cell.weight_ih, embed.bias)
        return nn.functional.linear(numbers, weight, bias)

    def _step(self, gates: Any, state: Any) -> Any:
        """Return the GRU cell's next state [B, hidden] from gate inputs [B, 3 hidden] and the current state [B, hidden]."""
        reset, update, new = gates.chunk(3, dim=1)
        of_state = nn.functional.linear(state, self.cell.weight_hh, self.cell.bias_hh)
        reset_state, update_state, new_state = of_state.chunk(3, dim=1)
        proposed = torch.tanh(torch.addcmul(new, torch.sigmoid(reset + reset_state), new_state))
        return torch.lerp(proposed, state, torch.sigmoid(update + update_state))
