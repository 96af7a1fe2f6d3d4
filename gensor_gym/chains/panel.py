"""Recognise panels: a matrix product with an epilogue, and loops over the rows of its result (a row nest).

An example is a product followed by a layer norm. A panel is recognised by axes, like a chain. Its graph has several outputs if
other kernels read the product's value, or several values of the nest.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from gensor_gym.chains.chain import goes_row_by_row, shape_of
from gensor_gym.chains.room import placement
from gensor_gym.dataflow.graph import VIEWS, Dataflow
from gensor_gym.dataflow.nodes import STORED, Contract, Reshape
from gensor_gym.dataflow.postops import post_op
from gensor_gym.gir.lowering import Lowered, lower
from gensor_gym.gir.nest import Access, RowNest, row_nest
from gensor_gym.operators.traits import weights
from gensor_gym.operators.types import Operator


@dataclass(frozen=True)
class Panel:
    """A matrix product and a row nest after it (loops over the rows of its result).

    The product computes the value `made` from the inputs `reads`, and the nest computes the outputs from `made`.
    """

    graph: Dataflow
    product: Operator
    """The product with its epilogue; frozen (`Operator.freeze`) if its weights are constant."""
    reads: tuple[str, ...]
    """Names of the graph's inputs that the product reads, in the order of the product's inputs."""
    made: str
    """Name of the product's result [.., columns], which the row nest reads.

    It is also an output of the graph if another kernel reads it.
    """
    nest: RowNest

    @property
    def columns(self) -> int:
        """Index of the product's axis that runs along the columns of its value."""
        return self.product.spatial[-1]

    @cached_property
    def lowered(self) -> Lowered:
        """Instruction graph of the row nest after the product."""
        return lower(self.nest, placement(self.nest))

    @cached_property
    def home(self) -> str | None:
        """Name of the output whose memory holds the product's value until the row nest has read it; None if no output can.

        It is the value's own output, or an output of the same layout whose elements are written only after the value's elements
        are read.
        """
        if self.made in self.graph.returns:
            return self.made
        (read,) = (cell.made for cell in self.nest.cells if isinstance(cell.made, Access) and cell.made.tensor == self.made)
        for name, access in self.nest.stores:
            here = (access.offset, access.rows, access.column) == (read.offset, read.rows, read.column)
            if here and self._is_last(name, access.tensor):
                return access.tensor
        return None

    def _is_last(self, cell: str, output: str) -> bool:
        """Return whether `output` can share memory with the product's value.

        Each tile of the product's value must be loaded before a tile of `cell` is stored to `output`.
        """
        stored = False
        for instruction in (one for kernel in self.lowered.kernels for part in kernel.passes for one in part.along):
            read, target = [part.access for _, part in instruction.sources if part.access is not None], instruction.target.access
            if stored and self.made in [access.tensor for access in read]:
                return False
            stored |= target is not None and target.tensor == output and instruction.cell == cell
        return stored


def is_panel(graph: Dataflow) -> bool:
    """Return whether a graph has exactly one product; `panel_of` checks the other conditions."""
    return sum(isinstance(node, Contract) for _, node in graph.nodes) == 1


def panel_of(graph: Dataflow) -> Panel:
    """Recognise a graph as a panel: a matrix product with loops over the rows of its result.

    ValueError with the reason if it is not one.
    """
    products = [(name, node) for name, node in graph.nodes if isinstance(node, Contract)]
    if len(products) != 1:
        raise ValueError(f"{graph.name}: {len(products)} products, expected one with rows after it")
    ((first, contract),) = products
    if halves := [value for value in graph.values.values() if value.dtype in STORED]:
        raise ValueError(f"{graph.name}: {halves[0].name} is of {halves[0].dtype}, expected float32")
    shape_of(contract.operator)
    op, reads, made = contract.operator, list(contract.sources), first
    while (name := _only_reader(graph, made)) is not None:
        found = post_op(graph, graph.makers[name], made, contract.operator)
        if found is None or not all(_is_input(graph, one) for one in found.reads):
            break
        op, made = op.with_epilogue(found.stage), name
        reads += found.reads
    roots = tuple(graph.behind(name, (Reshape,))[-1] for name in reads)
    if strangers := [name for name in roots if name in graph.makers]:
        raise ValueError(f"{graph.name}: {first} reads {strangers[0]}, expected inputs of the graph")
    if whole := [name for name in roots if graph.values[name].dtype != "float32"]:
        raise ValueError(f"{graph.name}: {first} reads {whole[0]} of {graph.values[whole[0]].dtype}, expected float32")
    constant = weights(op)
    if constant is not None and graph.values[roots[op.reads.index(constant)]].constant:
        op = op.freeze()
    return Panel(graph, op, roots, made, _nest(graph, made, op))


def _only_reader(graph: Dataflow, name: str) -> str | None:
    """Return the one node that reads a value, directly or through views.

    The result is None if the value is an output of the graph or has several readers.
    """
    waiting, found = [name], list[str]()
    while waiting:
        one = waiting.pop()
        if one in graph.returns:
            return None
        for reader in graph.readers[one]:
            (waiting if isinstance(graph.makers[reader], VIEWS) else found).append(reader)
    return found[0] if len(set(found)) == 1 else None


def _is_input(graph: Dataflow, name: str) -> bool:
    return graph.behind(name, (Reshape,))[-1] not in graph.makers


def _nest(graph: Dataflow, made: str, op: Operator) -> RowNest:
    returns = tuple(name for name in graph.returns if name != made)
    wanted = set(returns)
    for name, node in reversed(graph.nodes):
        wanted.update(node.inputs if name in wanted and name != made else ())
    if made not in wanted:
        raise ValueError(f"{graph.name}: nothing is made of rows of {made}")
    nodes = tuple((name, node) for name, node in graph.nodes if name in wanted and name != made)
    inside = {name for name, _ in nodes}
    read = dict.fromkeys(one for _, node in nodes for one in node.inputs if one not in inside)
    inputs = tuple(graph.values[name] for name in read)
    nest = row_nest(Dataflow("rows", inputs, nodes, returns))
    if nest.scattered is not None:
        raise ValueError(f"{graph.name}: a scatter reads the result of a product; expected the scatter in its own kernel")
    columns, size = op.output.shape[-1], op.output.size
    loads = [cell.made for cell in nest.cells if isinstance(cell.made, Access) and cell.made.tensor == made]
    if nest.columns != columns or nest.rows != size // columns:
        found = f"{nest.rows} rows of {nest.columns} after the product"
        raise ValueError(f"{graph.name}: {found}, expected {size // columns} of {columns}")
    if len(loads) != 1 or not goes_row_by_row(nest, loads[0]):
        raise ValueError(f"{graph.name}: {made} is not gone through row by row")
    return nest
