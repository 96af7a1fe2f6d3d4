"""Finds vectors with one number per output channel in a graph, and the dimensions of a product's reads that are channels."""

from __future__ import annotations

import math

from gensor_gym.dataflow.graph import Dataflow
from gensor_gym.dataflow.nodes import Broadcast, Reshape
from gensor_gym.operators.types import Operator


def channel_vector(graph: Dataflow, name: str, op: Operator) -> str | None:
    """Return the name of the vector [channels] that value `name` repeats along all other axes of `op`'s output.

    None if `name` is no such broadcast.
    """
    values = graph.values
    node, extent = graph.makers.get(name), op.output.shape[op.channel_dimension]
    if not isinstance(node, Broadcast) or values[name].shape != op.output.shape:
        return None
    source = node.source
    given = (1,) * (len(op.output.shape) - len(values[source].shape)) + values[source].shape
    if math.prod(given) != extent or given[op.channel_dimension] != extent:
        return None
    while isinstance(made := graph.makers.get(source), Reshape) and values[source].shape != (extent,):
        source = made.source
    while isinstance(made := graph.makers.get(graph.behind(source, (Reshape,))[-1]), Broadcast):
        source = made.source  # only a source with the same number of elements stores the channels contiguously
        if math.prod(values[source].shape) != extent:
            return None
    return source if math.prod(values[source].shape) == extent else None


def channel_axes(op: Operator) -> dict[int, int]:
    """Return {index of an input: dimension} for each input that the output's channel axis indexes.

    A factor per channel may be multiplied into any of these inputs.
    """
    if op.body != "multiply_add" or op.epilogue:
        return {}
    channel, found = op.channel_dimension, {}
    step = op.write.coefficients[channel], op.write.offset[channel], op.write.view[channel]
    for place, read in enumerate(op.reads):
        for dimension, row in enumerate(read.coefficients):
            if (row, read.offset[dimension], read.view[dimension]) == step and read.view == read.tensor.shape:
                found[place] = dimension
    return found
