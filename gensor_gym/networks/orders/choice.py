"""Chooses the values of a network that have channels last in memory ("nhwc"), as fast convolutions read them (`machines`).

The values that a map reads and computes have one order, and so have the input and output of a pooling or of a depthwise
convolution, and the parts of a concatenation of channels. Values tied in this way are a *class*. Other convolutions read and
write either order; their time depends on both orders together. With channels last, a kernel transposes the images that other
operations compute or read. The model predicts both costs, and of all choices of classes the one whose costs are smallest together
is taken (`cheapest`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from gensor_gym.cache.sources import sources
from gensor_gym.cache.texts import kept
from gensor_gym.dataflow.nodes import Broadcast, Concat, Contract, Map, Node, Reduce, Slice
from gensor_gym.hardware.types import Hardware
from gensor_gym.networks.network import Network
from gensor_gym.networks.orders.cheapest import Cost, cheapest
from gensor_gym.networks.orders.machines import (
    FOLDER,
    IN_ROWS,
    LAST,
    by_winograd,
    convolution_seconds,
    gains,
    in_place,
    is_fast,
    turning_seconds,
)
from gensor_gym.operators.images import IMAGES, names_orders
from gensor_gym.operators.text import with_arguments

POOLINGS = ("avg_pool2d", "max_pool2d")
CHANNELS, IMAGE_AXES = 1, (2, 3)
"""Axes of an image's channels, and of its rows and columns, if channels are first."""


@dataclass
class Uses:
    """How the nodes of a network use the images of one class (images that must have one order in memory)."""

    members: list[str] = field(default_factory=list)
    made: list[str] = field(default_factory=list)
    """Images of the class that are computed with channels first: inputs, and results of operations other than convolutions."""
    read: set[str] = field(default_factory=set)
    """Images of the class that operations other than convolutions read with channels first."""
    is_fixed: bool = False
    """Whether the class must have channels first, because an output of the network belongs to it."""


def channels_last(network: Network, machine: Hardware, winograd: bool = True) -> frozenset[str]:
    """Return the names of the values that get channels last, so that the predicted seconds of all costs are least.

    `winograd` is that of `rewrite.ordered`. The user's cache keeps the names.
    """

    def read(text: str) -> frozenset[str]:
        if not (names := frozenset(text.split())) <= network.graph.values.keys():
            raise ValueError(f"values {sorted(names)}: expected those of {network}")
        return names

    constants = repr(sorted(network.constants))
    depends = [sources(), "channels last", repr(machine), repr(winograd), network.graph.digest, constants]
    return kept(FOLDER, depends, read, lambda: _cheapest(network, machine, winograd), " ".join)


def _cheapest(network: Network, machine: Hardware, winograd: bool) -> frozenset[str]:
    classes = classes_of(network, machine)
    chosen = cheapest(len(classes), costs_of(network, machine, classes, winograd))
    return frozenset(name for uses, last in zip(classes, chosen, strict=True) if last for name in uses.members)


def classes_of(network: Network, machine: Hardware) -> list[Uses]:
    """Group a network's images into classes with one order in memory each. Return how its nodes use each class."""
    graph, of = network.graph, _Classes()
    cuts = _cut_for_joins(network, machine)
    images = [name for name in graph.values if is_image(network, name) and name not in cuts]
    for name in images:
        of.add(name)
        if name in network.nodes:
            for one in tied(network, name, machine):
                of.join(name, one)
    found: dict[str, Uses] = {}
    for name in images:
        uses = found.setdefault(of.root(name), Uses())
        uses.members.append(name)
        if name not in network.nodes or not makes_either(network, name, machine):
            uses.made.append(name)
        uses.is_fixed |= name in graph.returns
    for reader, node in graph.nodes:
        for one in dict.fromkeys(node.inputs) if reader not in cuts else ():
            if one not in of.parents or isinstance(node, Contract) and reads_either(node, one, machine):
                continue
            if one not in tied(network, reader, machine) and not is_over_pixels(node):
                found[of.root(one)].read.add(one)
    return list(found.values())


def costs_of(network: Network, machine: Hardware, classes: Sequence[Uses], winograd: bool = True) -> Iterator[Cost]:
    """Yield the predicted seconds of classes with channels first and last: of their transpositions, then of convolutions.

    The transpositions of a class that must have channels first take infinitely many seconds.
    """
    values, free = network.graph.values, dict[str, int]()
    for at, uses in enumerate(classes):
        turned = sum(turning_seconds(values[one].nbytes, machine) for one in (*uses.made, *uses.read))
        yield (at,), np.array([0.0, math.inf if uses.is_fixed else turned])
        free |= {} if uses.is_fixed else dict.fromkeys(uses.members, at)
    for result, node in network.graph.nodes:
        if result in free and is_depthwise(network, node, machine):
            assert isinstance(node, Contract)
            both = node.operator, with_arguments(node.operator, **LAST, **IN_ROWS)
            yield (free[result],), np.array([convolution_seconds(op, machine) for op in both])
        if not isinstance(node, Contract) or not is_convolution(node, machine):
            continue
        image, sides = node.sources[0], dict[str, int]()
        if image in free and reads_either(node, image, machine):
            sides["image"] = free[image]
        if result in free and makes_either(network, result, machine):
            sides["result"] = free[result]
        between = tuple(sorted(set(sides.values())))
        seconds = np.zeros((2,) * len(between))
        for lasts in np.ndindex(seconds.shape) if between else ():
            orders = {side: IMAGES[lasts[between.index(at)]] for side, at in sides.items()}
            op = with_arguments(node.operator, **orders, **in_place(machine))
            is_either = winograd and node.sources[1] in network.constants
            seconds[lasts] = by_winograd(op, machine)[1] if is_either else convolution_seconds(op, machine)
        yield between, seconds


class _Classes:
    """Union-find of names."""

    def __init__(self) -> None:
        self.parents: dict[str, str] = {}

    def add(self, name: str) -> None:
        """Add a new name as a class of its own."""
        self.parents.setdefault(name, name)

    def root(self, name: str) -> str:
        """Return the name that represents the class of a name."""
        while self.parents[name] != name:
            self.parents[name] = self.parents[self.parents[name]]
            name = self.parents[name]
        return name

    def join(self, one: str, other: str) -> None:
        """Merge two classes."""
        self.add(one)
        self.add(other)
        self.parents[self.root(one)] = self.root(other)


def is_image(network: Network, name: str) -> bool:
    """Return whether a value is an image [n, c, h, w] that is in memory and not constant."""
    value = network.graph.values[name]
    return len(value.shape) == 4 and not value.constant and not network.graph.is_repeated(name)


def tied(network: Network, name: str, machine: Hardware) -> Iterator[str]:
    """Return the images that must have the order of a node's result.

    They are the operands of a map, the input of a pooling or of a depthwise convolution, and the parts of `joins_channels`.
    """
    node = network.nodes[name]
    if joins_channels(network, name, machine):
        return iter(parts_of(network, node))
    if isinstance(node, Map) and all(_turns(network, one) for one in node.inputs):
        return (one for one in node.inputs if is_image(network, one))
    return iter(node.inputs[:1] if keeps_order(network, node, machine) else ())


def _turns(network: Network, name: str) -> bool:
    """Return whether a map's operand can have channels last.

    It can if it is an image, a constant, or a repeated value of one channel or one pixel.
    """
    if is_image(network, name) or network.graph.values[name].constant and not network.graph.is_repeated(name):
        return True
    node = network.nodes.get(name)
    if not isinstance(node, Broadcast) or len(node.to) != len(IMAGE_AXES) + 2:
        return False
    _, channels, *pixels = padded(network.graph.values[node.source].shape)
    return channels == 1 or math.prod(pixels) == 1


def padded(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Extend a shape by leading axes of extent 1 to the four axes of an image."""
    return (1,) * (len(IMAGE_AXES) + 2 - len(shape)) + shape


def makes_either(network: Network, name: str, machine: Hardware) -> bool:
    """Return whether a value's node can compute it with channels first and with channels last.

    That holds for a fast convolution, a pooling, a depthwise convolution, a map of images, and for `joins_channels`.
    """
    node = network.nodes.get(name)
    if isinstance(node, Concat):
        return joins_channels(network, name, machine)
    if isinstance(node, Map):
        return all(_turns(network, one) for one in node.inputs)
    if not isinstance(node, Contract):
        return False
    if not is_convolution(node, machine):
        return keeps_order(network, node, machine)
    return is_fast(with_arguments(node.operator, result=IMAGES[1]), machine)


def reads_either(node: Contract, name: str, machine: Hardware) -> bool:
    """Return whether a fast convolution can read an image with channels first and with channels last."""
    if not is_convolution(node, machine) or node.sources[0] != name:
        return False
    return is_fast(with_arguments(node.operator, **LAST, **in_place(machine)), machine)


def is_convolution(node: Node, machine: Hardware) -> bool:
    """Return whether a node is a convolution without groups, of a type that may gain, with the default orders in memory.

    It has no epilogue. (Frontends give int8 convolutions one if a zero point is no number of int8.)
    """
    if not isinstance(node, Contract) or node.operator.name != "conv2d" or node.operator.dtype not in gains(machine):
        return False
    return not (node.operator.epilogue or "groups" in dict(node.operator.arguments) or names_orders(node.operator))


def keeps_order(network: Network, node: Node, machine: Hardware) -> bool:
    """Return whether a node computes its result in the order of its image: a pooling, or a convolution of `is_depthwise`."""
    is_pooling = isinstance(node, Contract) and node.operator.name in POOLINGS
    return is_pooling or is_depthwise(network, node, machine)


def is_depthwise(network: Network, node: Node, machine: Hardware) -> bool:
    """Return whether a node is a depthwise convolution that vectors of channels can compute, with constant weights."""
    if not isinstance(node, Contract) or node.operator.name != "depthwise_conv2d" or machine.kind != "cpu":
        return False
    plain = not node.operator.epilogue and not names_orders(node.operator) and node.operator.dtype in gains(machine)
    return plain and node.sources[1] in network.constants


def joins_channels(network: Network, name: str, machine: Hardware) -> bool:
    """Return whether a value joins the channels of images of float32, which kernels on a CPU compute in place in either order."""
    node = network.nodes.get(name)
    if not isinstance(node, Concat) or node.axis != CHANNELS or machine.kind != "cpu":
        return False
    images = name, *parts_of(network, node)
    return all(is_image(network, one) and network.graph.values[one].dtype == "float32" for one in images)


def parts_of(network: Network, node: Node) -> list[str]:
    """Return the values that a concatenation joins. Slices that together are a whole value count as that value.

    Frontends cut images so that all parts have one extent, which helps kernels with channels first.
    """
    assert isinstance(node, Concat)
    found, cut = list[str](), list[str]()
    for name in node.sources:
        part, before = network.nodes.get(name), network.nodes[cut[-1]] if cut else None
        if not (follows := _follows(before, part)):
            found, cut = [*found, *cut], []
        if not isinstance(part, Slice) or part.axis != node.axis or (part.start and not follows):
            found.append(name)
            continue
        cut.append(name)
        if part.stop == network.graph.values[part.source].shape[part.axis]:
            found, cut = [*found, part.source], []
    return [*found, *cut]


def _follows(before: Node | None, part: Node | None) -> bool:
    """Return whether a slice begins where another one ends."""
    if not isinstance(before, Slice) or not isinstance(part, Slice):
        return False
    return (before.source, before.axis, before.stop) == (part.source, part.axis, part.start)


def _cut_for_joins(network: Network, machine: Hardware) -> frozenset[str]:
    """Return the names of the slices that only serve concatenations of the values that they cut (`parts_of`)."""
    joins = {name: node for name, node in network.nodes.items() if joins_channels(network, name, machine)}
    cut = {one for node in joins.values() for one in node.inputs if one not in parts_of(network, node)}
    return frozenset(one for one in cut - {*network.graph.returns} if joins.keys() >= {*network.graph.readers[one]})


def is_over_pixels(node: Node) -> bool:
    """Return whether a node reduces all pixels of each channel. Such a node reads an image in either order."""
    return isinstance(node, Reduce) and node.axes == IMAGE_AXES
