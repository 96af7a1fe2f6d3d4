"""Networks of one module for several sizes of inputs (buckets): choice of a bucket, padding of inputs, cutting of results."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from gensor_gym.networks.network import Network

Shape = tuple[int, ...]
Axes = tuple[tuple[int, int] | None, ...]
"""For each axis of an output: (input, axis) that has the same size in every network; None if all networks have one size."""


def shapes_of(network: Network) -> list[Shape]:
    """Return the shapes of a network's inputs."""
    return [value.shape for value in network.inputs]


def holds(bucket: Sequence[Shape], given: Sequence[Shape]) -> bool:
    """Return whether inputs of the shapes `given` fit into a bucket: equal ranks, and no axis longer than the bucket's."""
    pairs = [*zip(bucket, given, strict=True)]
    return all(len(most) == len(shape) and all(map(int.__ge__, most, shape)) for most, shape in pairs)


def padded(given: Sequence[Any], network: Network, padding: Mapping[str, float]) -> list[Any]:
    """Pad inputs, of NumPy, torch or CuPy, at the end of their axes to the shapes of the network's inputs.

    `padding` has the value for each input by name, 0 by default.
    """
    return [
        array if tuple(array.shape) == value.shape else _padded(array, value.shape, padding.get(value.name, 0))
        for array, value in zip(given, network.inputs, strict=True)
    ]


def _padded(array: Any, shape: Shape, value: float) -> Any:
    if hasattr(array, "new_full"):
        made = array.new_full(shape, value)
    else:
        made = sys.modules[type(array).__module__.partition(".")[0]].full(shape, value, dtype=array.dtype)
    made[tuple(map(slice, array.shape))] = array
    return made


def cut(outputs: Sequence[Any], axes: Sequence[Axes], shapes: Sequence[Shape]) -> tuple[Any, ...]:
    """Cut the padding off outputs. Return views. `shapes` are those of the inputs before padding.

    `axes` has for each axis of an output the input axis that gives its size.
    """
    return tuple(
        output[tuple(slice(None) if of is None else slice(shapes[of[0]][of[1]]) for of in own)]
        for output, own in zip(outputs, axes, strict=True)
    )


def check_sizes(known: Sequence[Sequence[Shape]], given: Sequence[Shape], axes: Sequence[Axes]) -> None:
    """Check that the shapes of a call fit the sizes of all buckets. ValueError names the axis that does not fit.

    `known` has the input shapes of each bucket. An axis with one size in all buckets must have that size in the call. Axes with
    the same sizes in all buckets must be equal in every call if an output has these sizes too, since the examples do not show
    which of the axes the output follows.
    """
    places = [(place, axis) for place, shape in enumerate(given) for axis in range(min(len(shape), len(known[0][place])))]
    sizes = {(place, axis): tuple(shapes[place][axis] for shapes in known) for place, axis in places}
    read = {of for own in axes for of in own if of is not None}
    for place, axis in places:
        found, along = given[place][axis], sizes[place, axis]
        if len(set(along)) == 1 and found != along[0]:
            raise ValueError(f"axis {axis} of input {place} has size {found}: expected {along[0]}, its size in every bucket")
        for other in read:
            if sizes.get(other) == along and given[other[0]][other[1]] != found:
                raise ValueError(
                    f"axis {axis} of input {place} has size {found}, axis {other[1]} of input {other[0]} has size "
                    f"{given[other[0]][other[1]]}: expected one size, as in all examples; give examples of different sizes"
                )


def axes_of(networks: Sequence[Network]) -> tuple[Axes, ...]:
    """Find the input axis that gives each output axis its size.

    ValueError if a size changes and no input axis has these sizes.
    """
    ranks = [range(len(shape)) for shape in shapes_of(networks[0])]
    places = [(place, axis) for place, rank in enumerate(ranks) for axis in rank]
    inputs = [shapes_of(network) for network in networks]
    sources = {tuple(shapes[place][axis] for shapes in inputs): (place, axis) for place, axis in reversed(places)}
    found = []
    for number, shapes in enumerate(zip(*([value.shape for value in one.outputs] for one in networks), strict=True)):
        own: list[tuple[int, int] | None] = []
        for axis, sizes in enumerate(zip(*shapes, strict=True)):
            if len(set(sizes)) > 1 and sizes not in sources:
                said = ", ".join(map(str, sizes))
                raise ValueError(f"axis {axis} of output {number} has sizes {said}: expected those of an axis of an input")
            own.append(sources[sizes] if len(set(sizes)) > 1 else None)
        found.append(tuple(own))
    return tuple(found)


def shapes_text(shapes: Sequence[Shape]) -> str:
    """Return shapes as text."""
    return ", ".join("x".join(map(str, shape)) or "scalar" for shape in shapes)
