"""Chooses the values of a network that have channels last in memory ("nhwc"), as convolutions by wgmma (Hopper) read them.

The values that a map reads and computes have one order, and so have a pooling's input and output. Values tied in this way are a
*class*. A convolution reads and writes either order, so classes do not depend on each other, and each gets the order that costs
less. With channels first, a convolution that reads a value lays it out before every call. With channels last, a kernel transposes
the images that other operations compute or read. Both costs are predicted by the model. A kernel's own speed in either order is
ignored.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from gensor_gym.construction import ConstructionGraph
from gensor_gym.cost.gpu.gpu import layout_kernel
from gensor_gym.dataflow.nodes import HALVES, Broadcast, Contract, Map, Node, Reduce
from gensor_gym.graph.matrices.choices import tensor_core_choices
from gensor_gym.graph.tables.layout import ROW, TENSOR_CORE
from gensor_gym.hardware.types import Hardware
from gensor_gym.networks.network import Network
from gensor_gym.operators.images import IMAGES, WEIGHTS, names_orders
from gensor_gym.operators.text import parse
from gensor_gym.operators.types import Operator

POOLINGS = ("avg_pool2d", "max_pool2d")
LAST, IN_ROWS = {"image": IMAGES[1]}, {"weights": WEIGHTS[1]}
"""Arguments of an operator whose image has channels last, and of a convolution whose weights have the channels innermost."""
IMAGE_AXES = (2, 3)
"""Axes of an image's rows and columns if channels are first."""


def with_orders(op: Operator, **orders: str) -> Operator:
    """Return an operator with other orders of its tensors in memory, such as `image="nhwc"` (see `operators.images`).

    The operator must have no epilogue.
    """
    return parse(str(op.renamed(arguments=tuple((dict(op.arguments) | orders).items()))))


@lru_cache(maxsize=1024)
def uses_wgmma(op: Operator, machine: Hardware) -> bool:
    """Return whether the machine has programs of an operator that use wgmma, Hopper's tensor core instructions."""
    return 2 in tensor_core_choices(op, machine)


@dataclass
class Uses:
    """How the nodes of a network use the images of one class (images that must have one order in memory)."""

    members: list[str] = field(default_factory=list)
    made: list[str] = field(default_factory=list)
    """Images of the class that are computed with channels first: inputs, and results of operations other than convolutions."""
    read: set[str] = field(default_factory=set)
    """Images of the class that operations other than convolutions read with channels first."""
    laid_out: float = 0.0
    """Seconds that convolutions take to lay out images of the class if they have channels first."""
    is_fixed: bool = False
    """Whether the class must have channels first, because an output of the network belongs to it."""


def channels_last(network: Network, machine: Hardware) -> frozenset[str]:
    """Return the names of the values that get channels last: those of the classes (of tied values) that then cost less."""
    graph = network.graph
    return frozenset(
        name
        for uses in classes_of(network, machine)
        if not uses.is_fixed
        and uses.laid_out > sum(turning_seconds(graph.values[one].nbytes, machine) for one in (*uses.made, *uses.read))
        for name in uses.members
    )


def turning_seconds(nbytes: int, machine: Hardware) -> float:
    """Return the seconds of a kernel that transposes an image of `nbytes`.

    The model has the same formula for laying out operands.
    """
    levels = {level.name: level for level in machine.memory}
    return machine.launch_overhead + 2 * nbytes / levels["dram" if 2 * nbytes > levels["l2"].capacity else "l2"].bandwidth


@lru_cache(maxsize=1024)
def layout_seconds(op: Operator, machine: Hardware) -> float:
    """Return the predicted seconds that a convolution takes to lay out operands before a program with wgmma.

    0 if it reads the operands in place.
    """
    tables, row = ConstructionGraph(op, machine, "extended").tables, np.zeros(ROW, np.int32)
    row[TENSOR_CORE] = 2
    return float(layout_kernel(row, tables.ints, tables.floats))


def classes_of(network: Network, machine: Hardware) -> list[Uses]:
    """Group a network's images into classes with one order in memory each. Return how its nodes use each class."""
    graph, of = network.graph, _Classes()
    images = [name for name in graph.values if is_image(network, name)]
    for name in images:
        of.add(name)
        if name in network.nodes:
            for one in tied(network, name):
                of.join(name, one)
    found: dict[str, Uses] = {}
    for name in images:
        uses = found.setdefault(of.root(name), Uses())
        uses.members.append(name)
        uses.made += [] if makes_either(network, name, machine) else [name]
        uses.is_fixed |= name in graph.returns
    for reader, node in graph.nodes:
        for one in dict.fromkeys(node.inputs):
            if one not in of.parents:
                continue
            uses = found[of.root(one)]
            if isinstance(node, Contract) and reads_either(node, one, machine):
                uses.laid_out += layout_seconds(with_orders(node.operator, **IN_ROWS), machine)
            elif one not in tied(network, reader) and not is_over_pixels(node):
                uses.read.add(one)
    return list(found.values())


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


def tied(network: Network, name: str) -> Iterator[str]:
    """Return the images that must have the order of a node's result: operands of a map, and the input of a pooling."""
    node = network.nodes[name]
    if isinstance(node, Map) and all(_turns(network, one) for one in node.inputs):
        return (one for one in node.inputs if is_image(network, one))
    return iter(node.sources if isinstance(node, Contract) and node.operator.name in POOLINGS else ())


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

    That holds for a convolution with wgmma, a pooling, and a map of images.
    """
    node = network.nodes.get(name)
    if isinstance(node, Map):
        return all(_turns(network, one) for one in node.inputs)
    if not isinstance(node, Contract):
        return False
    if not is_convolution(node):
        return node.operator.name in POOLINGS
    return uses_wgmma(with_orders(node.operator, result=IMAGES[1]), machine)


def reads_either(node: Contract, name: str, machine: Hardware) -> bool:
    """Return whether a convolution with wgmma can read an image with channels first and with channels last."""
    return is_convolution(node) and node.sources[0] == name and uses_wgmma(with_orders(node.operator, **LAST, **IN_ROWS), machine)


def is_convolution(node: Node) -> bool:
    """Return whether a node is a 16-bit convolution without groups, whose tensors have the default orders in memory."""
    if not isinstance(node, Contract) or node.operator.name != "conv2d" or node.operator.dtype not in HALVES:
        return False
    return "groups" not in dict(node.operator.arguments) and not names_orders(node.operator)


def is_over_pixels(node: Node) -> bool:
    """Return whether a node reduces all pixels of each channel. Such a node reads an image in either order."""
    return isinstance(node, Reduce) and node.axes == IMAGE_AXES
