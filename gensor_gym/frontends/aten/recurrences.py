"""Rules for recurrent networks of ATen: one product for the inputs of all steps, then one with the state for each step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from gensor_gym.frontends.aten.maps import sigmoid
from gensor_gym.frontends.aten.moves import joined_parts, select, split
from gensor_gym.frontends.aten.products import linear
from gensor_gym.frontends.builder import Builder, of
from gensor_gym.frontends.covered import covers as _covers

State = tuple[str, ...]
"""Values [batch, hidden] of a layer after a step: (hidden state,), or (hidden state, cell state) for an LSTM."""
Cell = Callable[[Builder, str, str, State], State]
"""Function of (builder, products of the input, products of the hidden state, state before) that adds one step of a recurrent
network and returns the state after it.

The products are those with the gates' weights, [batch, gates x hidden].
"""


def _lstm_cell(b: Builder, x: str, h: str, state: State) -> State:
    """Add one step of an LSTM with forget gates (Hochreiter and Schmidhuber, 1997). Gates are in torch's order.

    Return the new state.
    """
    gates = b.call("add", x, h)
    read, forget, new, write = split(b, gates, b.shapes[gates][1] // 4, 1)
    cell = b.map(of("add", of("multiply", sigmoid(forget), state[1]), of("multiply", sigmoid(read), of("tanh", new))), "cell")
    return b.map(of("multiply", sigmoid(write), of("tanh", cell)), "hidden"), cell


def _gru_cell(b: Builder, x: str, h: str, state: State) -> State:
    """Add one step of a GRU (Cho et al., arXiv 1406.1078) with the reset after the product, as in torch. Return the new state.

    Gates: reset, update, new.
    """
    size = b.shapes[x][1] // 3
    (x_reset, x_update, x_new), (h_reset, h_update, h_new) = split(b, x, size, 1), split(b, h, size, 1)
    reset, update = sigmoid(of("add", x_reset, h_reset)), sigmoid(of("add", x_update, h_update))
    new = b.map(of("tanh", of("add", x_new, of("multiply", reset, h_new))), "new")
    return (b.map(of("add", new, of("multiply", update, of("subtract", state[0], new))), "hidden"),)


def _tanh_cell(b: Builder, x: str, h: str, state: State) -> State:
    return (b.map(of("tanh", of("add", x, h)), "hidden"),)


def _relu_cell(b: Builder, x: str, h: str, state: State) -> State:
    return (b.map(of("maximum", of("add", x, h), 0.0), "hidden"),)


def _one_way(
    b: Builder, x: str, state: State, weights: Sequence[str], has_biases: bool, cell: Cell, back: bool
) -> tuple[str, State]:
    """Add one layer of a recurrent network in one direction.

    Return (hidden states [steps, batch, hidden], state after the last step). `x` is [steps, batch, features]. `weights` are for
    the input, for the hidden state, two biases if `has_biases`, and optionally for a projection of the hidden state. `back` runs
    the steps from the last to the first.
    """
    of_input, of_hidden, *more = weights
    first, second = more[:2] if has_biases else (None, None)
    projection = more[2 * has_biases :]
    gates = linear(b, x, of_input, first)
    if second is not None and cell is not _gru_cell:  # gates are sums, so both biases can join the product of all steps
        gates, second = b.call("add", gates, second), None
    steps, made = range(b.shapes[x][0]), dict[int, str]()
    for step in reversed(steps) if back else steps:
        hidden, *rest = cell(b, select(b, gates, 0, step), linear(b, state[0], of_hidden, second), state)
        state = (linear(b, hidden, projection[0]) if projection else hidden, *rest)
        made[step] = state[0]
    return _stacked(b, [made[step] for step in steps]), state


def _stacked(b: Builder, parts: Sequence[str]) -> str:
    return joined_parts(b, [b.reshape(part, (1, *b.shapes[part])) for part in parts])


def _layers(
    b: Builder, cell: Cell, x: str, states: Sequence[str], weights: Sequence[str], has_biases: bool, layers: int, dropout: float,
    train: bool, both_ways: bool, batch_first: bool,
) -> list[str]:  # fmt: skip
    """Add all layers of a recurrent network. Return the last layer's hidden states at all steps, then all layers' final states.

    `states` and the returned states are [layers x directions, batch, hidden]. `both_ways` adds a second direction.
    """
    if train and dropout:
        raise ValueError(f"dropout of {dropout} in training: expected the module in evaluation mode")
    x = b.transpose(x, (1, 0, 2)) if batch_first else x
    ways, ends = 1 + both_ways, list[State]()
    own = len(weights) // (layers * ways)
    for layer in range(layers):
        made = []
        for way in range(layer * ways, (layer + 1) * ways):
            state = tuple(select(b, one, 0, way) for one in states)
            outputs, end = _one_way(b, x, state, weights[way * own : (way + 1) * own], has_biases, cell, bool(way % ways))
            made.append(outputs)
            ends.append(end)
        x = joined_parts(b, made, -1)
    return [b.transpose(x, (1, 0, 2)) if batch_first else x, *(_stacked(b, parts) for parts in zip(*ends, strict=True))]


@_covers("lstm.input")
def _lstm(b: Builder, x: str, states: Sequence[str], *rest: Any) -> list[str]:
    return _layers(b, _lstm_cell, x, states, *rest)


def _of_one_state(cell: Cell) -> Callable[..., list[str]]:
    return lambda b, x, state, *rest: _layers(b, cell, x, [state], *rest)


for _name, _cell in (("gru", _gru_cell), ("rnn_tanh", _tanh_cell), ("rnn_relu", _relu_cell)):
    _covers(f"{_name}.input")(_of_one_state(_cell))
