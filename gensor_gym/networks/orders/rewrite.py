"""Rewrites a network so that chosen values have channels last in memory; constant weights are laid out once.

A value keeps its name. If an operation needs an image in the other order, a transposition computes it. The graph computes equal
results, so references, plans, memory and exports need no changes for orders.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Set

from gensor_gym.dataflow.expressions import renamed
from gensor_gym.dataflow.nodes import Broadcast, Concat, Contract, Map, Node, Reduce, Reshape, Transpose
from gensor_gym.graph.matrices.lying import is_folded, moved_reads
from gensor_gym.hardware.types import Hardware
from gensor_gym.networks.folding import with_constants_made, with_joins_in_place
from gensor_gym.networks.network import Network, needed
from gensor_gym.networks.orders.choice import (
    POOLINGS,
    channels_last,
    is_convolution,
    is_depthwise,
    is_over_pixels,
    makes_either,
    padded,
    parts_of,
    reads_either,
)
from gensor_gym.networks.orders.machines import IN_ROWS, LAST, by_winograd, gains, is_fast
from gensor_gym.operators.images import IMAGES, WEIGHTS, permutation
from gensor_gym.operators.text import with_arguments

TO_LAST, TO_FIRST = permutation(IMAGES[1], IMAGES[0]), permutation(IMAGES[0], IMAGES[1])
"""Permutations of axes from channels first to channels last, and back."""


def ordered(network: Network, machine: Hardware, chosen: Set[str] | None = None, winograd: bool = True) -> Network:
    """Rewrite a network for a machine, with channels last in memory for the values `chosen` (default: `channels_last`).

    With `winograd`, convolutions between such values use Winograd's algorithm where it is faster (`machines.by_winograd`). A
    network for a machine that gains nothing from it, or without a convolution that does, is returned unchanged.
    """
    if not gains(machine):
        return network
    last = channels_last(network, machine, winograd) if chosen is None else chosen
    rewriting = _Rewriting(network, machine, last, winograd)
    for value in network.graph.inputs:
        rewriting.given(value.name)
    for name, node in network.graph.nodes:
        rewriting.add(name, node)
    return rewriting.network() if last or rewriting.names > network.graph.values.keys() else network


class _Rewriting:
    """Nodes of the rewritten network so far. Values keep the names that they have in the old network."""

    def __init__(self, network: Network, machine: Hardware, chosen: Set[str], winograd: bool) -> None:
        self.old, self.machine, self.chosen, self.winograd = network, machine, chosen, winograd
        self.nodes: list[tuple[str, Node]] = []
        self.names = {value.name for value in network.graph.inputs} | network.nodes.keys()
        self.last: dict[str, str] = {}
        """Name of an image or repeated value of the old network -> name of that value with channels last."""
        self.first: dict[str, str] = {}
        """Name of an image that is computed with channels last -> name of that image with channels first."""
        self.weights: dict[str, str] = {}
        """Name of a convolution's weights -> name of the weights in the order rskc (window's rows, columns, output channels,
        input channels).
        """
        self.moved: dict[str, str] = {}
        """Name of a value, a reduction in the old network and a reshape in the new -> name of the new reduction."""

    def given(self, name: str) -> None:
        """Add a transposition of a value with channels first, if channels last are chosen for it."""
        if name in self.chosen:
            self.last[name] = self._fresh(f"{name}_nhwc", Transpose(name, TO_LAST))

    def add(self, name: str, node: Node) -> None:
        """Add the node that computes the value `name`, in the order chosen for the value."""
        if name in self.chosen and makes_either(self.old, name, self.machine):
            self.last[name] = name
            self.nodes.append((name, self._last(name, node)))
        elif is_over_pixels(node) and node.inputs[0] in self.chosen:
            assert isinstance(node, Reduce)
            axes = tuple(map(TO_LAST.index, node.axes))
            self.moved[name] = self._fresh(f"{name}_nhwc", Reduce(self.last[node.source], node.body, axes))
            self.nodes.append((name, Reshape(self.moved[name], self.old.graph.values[name].shape)))
        else:
            self.nodes.append((name, self._convolution(node) if is_convolution(node, self.machine) else self._first(node)))
            self.given(name)

    def _last(self, name: str, node: Node) -> Node:
        if isinstance(node, Map):
            return Map(renamed(node.expression, {one: self._operand(one) for one in node.inputs}))
        if isinstance(node, Concat):
            return Concat(tuple(map(self._operand, parts_of(self.old, node))), TO_LAST.index(node.axis))
        assert isinstance(node, Contract)
        if node.operator.name in POOLINGS:
            return Contract(with_arguments(node.operator, **LAST), (self._operand(node.sources[0]),))
        if is_depthwise(self.old, node, self.machine):
            image, weights = node.sources
            return Contract(with_arguments(node.operator, **LAST, **IN_ROWS), (self._operand(image), self._in_rows(weights)))
        return self._convolution(node, result=IMAGES[1])

    def _operand(self, name: str) -> str:
        if name not in self.last:
            node, shape = self.old.nodes.get(name), self.old.graph.values[name].shape
            if isinstance(node, Broadcast):
                turned = _turned(padded(self.old.graph.values[node.source].shape))
                source = self._fresh(f"{node.source}_last", Reshape(node.source, turned))
                self.last[name] = self._fresh(f"{name}_nhwc", Broadcast(source, _turned(shape)))
            else:
                self.last[name] = self._fresh(f"{name}_nhwc", Transpose(name, TO_LAST))
        return self.last[name]

    def _convolution(self, node: Node, **orders: str) -> Node:
        """Rewrite a convolution to read its image in the image's order, and constant weights in the order that programs read."""
        assert isinstance(node, Contract)
        image, weights = node.sources
        if image in self.chosen and reads_either(node, image, self.machine):
            image, orders = self.last[image], {**orders, **LAST}
        else:
            image = self._plain(image)
        moved = 1 in moved_reads(node.operator) and not is_folded(node.operator)
        reads_rows = self.machine.kind == "gpu" and is_fast(with_arguments(node.operator, **IN_ROWS, **orders), self.machine)
        if (moved or "image" in orders) and weights in self.old.constants and reads_rows:
            weights, orders = self._in_rows(weights), {**orders, **IN_ROWS}
        op = with_arguments(node.operator, **orders)
        if self.winograd and weights in self.old.constants:
            op, _ = by_winograd(op, self.machine)
        return Contract(op, (image, weights))

    def _in_rows(self, weights: str) -> str:
        """Return the name of a convolution's weights in the order rskc."""
        if weights not in self.weights:
            order = permutation(WEIGHTS[1], WEIGHTS[0])
            self.weights[weights] = self._fresh(f"{weights}_rskc", Transpose(weights, order))
        return self.weights[weights]

    def _first(self, node: Node) -> Node:
        return node.reading({one: self._plain(one) for one in node.inputs})

    def _plain(self, name: str) -> str:
        """Return the name of a value with channels first. A transposition is added if the value has channels last."""
        if self.last.get(name) != name:
            return name
        if name not in self.first:
            self.first[name] = self._fresh(f"{name}_nchw", Transpose(name, TO_FIRST))
        return self.first[name]

    def _fresh(self, name: str, node: Node) -> str:
        while name in self.names:
            name += "_"
        self.names.add(name)
        self.nodes.append((name, node))
        return name

    def network(self) -> Network:
        """Build the rewritten network, whose constants are in memory as its kernels read them."""
        graph = self.old.graph
        rounded = frozenset((self.moved.get(name, name), kind) for name, kind in graph.rounded)
        made = needed(graph.name, graph.inputs, self.nodes, graph.returns, graph.whole, rounded)
        of_moved = {new: self.old.origins[name] for name, new in self.moved.items() if name in self.old.origins}
        made_again = dataclasses.replace(self.old, graph=made, origins={**self.old.origins, **of_moved})
        return with_joins_in_place(with_constants_made(made_again))


def _turned(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Permute a shape [n, c, h, w] to [n, h, w, c]."""
    return tuple(shape[axis] for axis in TO_LAST)
