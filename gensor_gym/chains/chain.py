"""Recognise chains: a matrix product, loops over the rows of its result (a row nest), and a second matrix product.

The names are those of attention: the first product computes scores, the nest turns them into weights, and the second product sums
over the weights' columns. A chain is recognised by axes, never by names. In a product, the batch is the axes of both operands and
the output, rows are those of the left operand and the output, and columns those of the right operand and the output.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from gensor_gym.chains.causal import diagonal_of, triangles
from gensor_gym.chains.strided import Strided, read_views, refined, written_view
from gensor_gym.dataflow.expressions import Call, Constant, Expression
from gensor_gym.dataflow.graph import Dataflow
from gensor_gym.dataflow.nodes import Contract, Map, Node, Triangle, Value
from gensor_gym.gir.nest import Access, Cell, RowNest, row_nest
from gensor_gym.operators.types import Operator


@dataclass(frozen=True)
class Matrix:
    """A matrix in a tensor for each element of the batch, with any strides. Offset and strides are in elements."""

    tensor: str
    offset: int
    batch: tuple[int, ...]
    row: int
    column: int


@dataclass(frozen=True)
class Product:
    """Extents of a product C[rows, columns] = A[rows, inner] @ B[inner, columns]."""

    rows: int
    columns: int
    inner: int

    @property
    def flops(self) -> int:
        """Number of floating-point operations of the product for one element of the batch."""
        return 2 * self.rows * self.columns * self.inner


@dataclass(frozen=True)
class Chain:
    """A chain of two matrix products, such as attention: out = nest(left @ first) @ second for each element of the batch.

    `nest` is a function of each row of the scores `left @ first`, such as softmax.
    """

    graph: Dataflow
    batch: tuple[int, ...]
    """Extents of the batch axes, the outermost first."""
    products: tuple[Product, Product]
    left: Matrix
    first: Matrix
    second: Matrix
    out: Matrix
    scores: str
    """Name of the first product's result, which the row nest reads."""
    weights: str
    """Name of the row nest's result, which the second product reads; equal to `scores` if there is no nest."""
    middle: RowNest | None
    """The row nest between the products, over the rows of all batch elements and the columns of the scores.

    None if nothing is computed between the products.
    """

    @property
    def dtype(self) -> str:
        """Data type of the operands `left`, `first` and `second` and of `out`. Scores and weights are float32."""
        return self.graph.outputs[0].dtype

    @property
    def rows(self) -> int:
        """Number of rows of `left` and `out` for one element of the batch."""
        return self.products[0].rows

    @property
    def columns(self) -> int:
        """Number of columns of the scores."""
        return self.products[0].columns

    @cached_property
    def elements(self) -> int:
        """Number of elements of the batch: the product of its extents."""
        found = 1
        for extent in self.batch:
            found *= extent
        return found

    @cached_property
    def diagonal(self) -> int | None:
        """The diagonal D if weights of row r of an element are 0 after column r + D, as in causal attention; else None."""
        nest = self.middle
        return None if nest is None else diagonal_of(nest, nest.stores[0][0], self.rows)

    @property
    def last_seen(self) -> int:
        """Number of columns after column r that row r of an element may need: the diagonal, or all."""
        return self.columns if self.diagonal is None else self.diagonal

    @cached_property
    def masks(self) -> dict[str, Triangle]:
        """Values of the row nest that kernels compute from row and column instead of reading them, by name."""
        return {} if self.middle is None or self.diagonal is None else triangles(self.middle, self.rows)

    def is_read(self, cell: Cell) -> bool:
        """Return whether the row nest reads a value from memory: not the scores, and no mask that is computed."""
        return isinstance(cell.made, Access) and cell.made.tensor != self.scores and cell.name not in self.masks

    def nest_of_pitch(self, pitch: int) -> RowNest:
        """Return the row nest between the products for scores and weights whose rows are `pitch` elements apart in memory.

        ValueError if nothing is between the products.
        """
        if self.middle is None:
            raise ValueError(f"{self.graph.name}: there is nothing between the products")

        def moved(access: Access) -> Access:
            return replace(access, rows=tuple(step // self.columns * pitch for step in access.rows))

        def placed(cell: Cell) -> Cell:
            here = isinstance(cell.made, Access) and cell.made.tensor == self.scores
            return replace(cell, made=moved(cell.made)) if here and isinstance(cell.made, Access) else cell

        stores = tuple((name, moved(access)) for name, access in self.middle.stores)
        return replace(self.middle, cells=tuple(map(placed, self.middle.cells)), stores=stores)


def is_chain(graph: Dataflow) -> bool:
    """Return whether a graph has exactly two products; `chain_of` checks the other conditions."""
    return sum(isinstance(node, Contract) and node.operator.body == "multiply_add" for _, node in graph.nodes) == 2


def chain_of(graph: Dataflow) -> Chain:
    """Recognise a graph as a chain of two matrix products, such as attention; ValueError with the reason if it is not one."""
    nodes, views = dict(graph.nodes), read_views(graph)
    products = [(name, node) for name, node in graph.nodes if isinstance(node, Contract)]
    result, out = written_view(graph)
    if len(products) != 2 or products[1][0] != result:
        raise ValueError(f"{graph.name}: {len(products)} products, expected two, the second of which is the output")
    (scores, one), (_, other) = products
    weights = other.sources[0]
    inside = list(_between(graph, nodes, weights, scores))
    for name in (*one.sources, other.sources[1]):
        if name not in views:
            raise ValueError(f"{graph.name}: a product reads {name}, expected an input or what strides say of one")
        dtype, wanted = graph.values[views[name].tensor].dtype, other.operator.dtype
        if dtype != wanted or dtype != one.operator.dtype or dtype == "int8":
            said = f"{graph.name}: a product reads {views[name].tensor} of {dtype}"
            raise ValueError(f"{said}, expected {wanted if wanted != 'int8' else 'floats'}")
    _check_all_used(graph, nodes, [*inside, scores, result], [*one.sources, *other.sources[1:]], result)
    shapes = shape_of(one.operator), shape_of(other.operator)
    if shapes[0].rows != shapes[1].rows or shapes[0].columns != shapes[1].inner:
        raise ValueError(f"{graph.name}: {result} does not add up along columns of {scores}")
    read = [views[name] for name in (*one.sources, other.sources[1])]
    batched = [_Batched.of(view, graph.name) for view in (*read, out)]
    if batched[-1].column > 1:
        raise ValueError(f"{graph.name}: columns of {result} are written {batched[-1].column} apart, expected side by side")
    cut = refined([one.batch for one in batched])
    if cut is None:
        raise ValueError(f"{graph.name}: the products' batches lie in orders that no common axes can say")
    extents, strides = cut
    a, b, v, to = (one.matrix(steps) for one, steps in zip(batched, strides, strict=True))
    middle = _nest(graph, nodes, inside, scores, weights) if inside else None
    found = Chain(graph, extents, shapes, a, b, v, to, scores, weights, middle)
    _check_nest(found)
    return found


@dataclass(frozen=True)
class _Batched:
    """A strided view of a matrix for each element of the batch.

    `batch` holds the (extent, stride) parts of the batch axis; `row` and `column` are the strides of the other two axes.
    """

    view: Strided
    batch: tuple[tuple[int, int], ...]
    row: int
    column: int

    @classmethod
    def of(cls, view: Strided, name: str) -> _Batched:
        *batch, rows, columns = view.axes
        if len(rows) > 1 or len(columns) > 1:
            raise ValueError(f"{name}: rows or columns of {view.tensor} have no one stride")
        if any(step == 0 for axis in (rows, columns) for _, step in axis):
            raise ValueError(f"{name}: rows or columns of {view.tensor} are repeated, expected repetitions along the batch alone")
        steps = [axis[0][1] if axis else 0 for axis in (rows, columns)]
        return cls(view, batch[0] if batch else (), *steps)

    def matrix(self, batch: tuple[int, ...]) -> Matrix:
        return Matrix(self.view.tensor, self.view.offset, batch, self.row, self.column)


def shape_of(op: Operator) -> Product:
    """Return the extents of a matrix product, batched or not; ValueError for any other operator."""
    plain = op.body == "multiply_add" and op.divisor == 1 and len(op.reads) == 2 and len(op.reduce) == 1
    accesses = (*op.reads, op.write)
    steps = [tuple(next((a for a, c in enumerate(row) if c), -1) for row in access.coefficients) for access in accesses]
    for ranks in (2, 3):
        batch = () if ranks == 2 else (0,)
        rows, columns, inner = (len(batch) + place for place in range(3))
        wanted = [(*batch, rows, inner), (*batch, inner, columns), (*batch, rows, columns)]
        if plain and len(op.axes) == ranks + 1 and steps == wanted and all(_is_whole(access) for access in accesses):
            return Product(op.extents[rows], op.extents[columns], op.extents[inner])
    raise ValueError(f"{op}: expected a product of matrices, or of one for each element of a batch")


def _is_whole(access: object) -> bool:
    """Return whether every dimension of an access is indexed by one axis, without offset."""
    rows, offset = access.coefficients, access.offset  # type: ignore[attr-defined]
    return all(sum(row) == 1 for row in rows) and not any(offset)


def _between(graph: Dataflow, nodes: dict[str, Node], name: str, first: str) -> Iterator[str]:
    """Return the nodes between the first product and the left operand `name` of the second product, in graph order.

    ValueError if the operand does not depend on the first product, whose name is `first`.
    """
    wanted, waiting = set(), [name]
    while waiting:
        one = waiting.pop()
        if one in wanted or one == first or one not in nodes:
            continue
        wanted.add(one)
        waiting += nodes[one].inputs
    if first != name and first not in {source for one in wanted for source in nodes[one].inputs}:
        raise ValueError(f"{graph.name}: {name} is not made of {first}, expected a product that reads the other on its left")
    return (one for one, _ in graph.nodes if one in wanted)


def _check_all_used(graph: Dataflow, nodes: dict[str, Node], known: list[str], reads: list[str], result: str) -> None:
    seen = set(known)
    waiting = [*reads, *graph.returns]
    while waiting:
        name = waiting.pop()
        if name in nodes and name not in seen:
            seen.add(name)
            waiting += nodes[name].inputs
    if strangers := [name for name in nodes if name not in seen]:
        raise ValueError(f"{graph.name}: {strangers[0]} belongs to no part of a chain of products")


def _nest(graph: Dataflow, nodes: dict[str, Node], inside: list[str], scores: str, weights: str) -> RowNest:
    values = graph.values
    read = dict.fromkeys(one for name in inside for one in nodes[name].inputs if one not in inside)
    kinds = {**{name: values[name].dtype for name in read}, scores: "float32"}
    inputs = tuple(Value(name, values[name].shape, kinds[name], triangle=values[name].triangle) for name in read)
    return row_nest(Dataflow("middle", inputs, tuple((name, _multiplied(nodes[name])) for name in inside), (weights,)))


def _multiplied(node: Node) -> Node:
    """Replace divisions by constants with multiplications in a node's expression.

    A multiplication takes a tenth of the time and stays within a division's error bound.
    """
    return Map(_inverted(node.expression)) if isinstance(node, Map) else node


def _inverted(expression: Expression) -> Expression:
    if not isinstance(expression, Call):
        return expression
    parts = tuple(map(_inverted, expression.arguments))
    if expression.function == "divide" and isinstance(by := parts[1], Constant) and 2.0**-64 < abs(by.value) < 2.0**64:
        return Call("multiply", (parts[0], Constant(1.0 / by.value)))
    return Call(expression.function, parts)


def _check_nest(chain: Chain) -> None:
    nest, name = chain.middle, chain.graph.name
    if nest is None:
        return
    if nest.columns != chain.columns or nest.rows != chain.elements * chain.rows:
        raise ValueError(
            f"{name}: rows of {nest.columns} between the products, expected {chain.elements * chain.rows} of {chain.columns}"
        )
    loads = [cell.made for cell in nest.cells if isinstance(cell.made, Access) and cell.made.tensor == chain.scores]
    stores = [access for _, access in nest.stores]
    for access in (*loads, *stores):
        if not goes_row_by_row(nest, access):
            raise ValueError(f"{name}: {access.tensor} is not gone through row by row between the products")
    if len(loads) != 1 or len(stores) != 1:
        raise ValueError(f"{name}: scores are read as {len(loads)} values, weights written in {len(stores)} parts, expected one")


def goes_row_by_row(nest: RowNest, access: Access) -> bool:
    """Return whether an access reads or writes its tensor row by row without gaps, as a product writes its result."""
    step = nest.columns
    for extent, found in zip(reversed(nest.row_extents), reversed(access.rows), strict=True):
        if extent > 1 and found != step:
            return False
        step *= extent
    return access.offset == 0 and access.chosen is None and (access.column == 1 or nest.columns == 1)
