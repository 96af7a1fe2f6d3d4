"""Row nests: a dataflow graph as two nested loops, over independent rows and over the columns of each row.

Maps compute each element, and reductions combine the columns of a row.

Every value of the graph varies along the rows, the columns, both or neither. Adjacent axes are merged if every tensor steps
through them like one axis; at most `MOST_ROW_AXES` axes of rows and one axis of columns may remain.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from functools import cached_property

from gensor_gym.dataflow.expressions import Call, Constant, Expression, Operand, renamed
from gensor_gym.dataflow.graph import VIEWS, Dataflow
from gensor_gym.dataflow.nodes import Broadcast, Concat, Map, Reduce, Reduction, Reshape, Scatter, Transpose
from gensor_gym.gir.axes import AxisClasses, Place, merge
from gensor_gym.gir.views import Rows, View, input_views, output_views

MOST_ROW_AXES, MOST_CELLS = 4, 64
MOST_REPEATS, FEW = 4, 1 << 14
"""Most iterations of the loops for each element of the largest value, unless they are few. One concatenation may have more."""
MOST_SUMMED = 1 << 24
"""Most elements of a sum; a longer sum in float32 has no useful error bound (n roundings of 2^-24 each)."""


@dataclass(frozen=True)
class Access:
    """Position of a value's elements in DRAM: row indices r and column c are at `offset + sum(rows[i] * r[i]) + column * c`."""

    tensor: str
    offset: int
    rows: tuple[int, ...]
    column: int
    chosen: Chosen | None = None
    """Ids that select rows of the tensor, if it is the table of a gather or scatter; else None."""

    @property
    def is_turned(self) -> bool:
        """Whether elements of adjacent rows are contiguous and elements of adjacent columns are not."""
        return self.column > 1 and self.rows[-1:] == (1,) and self.chosen is None

    @property
    def is_same(self) -> bool:
        """Whether all rows read the same elements, as with the weights of a layer norm."""
        return not any(self.rows) and self.chosen is None


@dataclass(frozen=True)
class Chosen:
    """Ids that select the row of a table in a gather or scatter.

    `ids` is the access to a row's id, from 0 to `count - 1`; `step * id` is added to the position of an element.
    """

    ids: Access
    step: int
    count: int
    scatter: Scatter | None = None
    """The node that joins what is stored to the row; None for a gather."""


@dataclass(frozen=True)
class Online:
    """The sum of exp(x - max(x)) along a row, computed in the pass that finds the maximum, named `top` (`gir.online`)."""

    top: str

    def __str__(self) -> str:
        return f"sum of exp less running {self.top}"


@dataclass(frozen=True)
class Cell:
    """One value that a row nest loads or computes.

    A `wide` cell varies along the columns; a narrow cell is one number per row. `stage` is the number of successive reductions
    that the value depends on.
    """

    name: str
    made: Access | Expression | Reduction | Online
    """Definition of the value: a load, an expression of others, or a reduction of another along the columns."""
    sources: tuple[str, ...]
    wide: bool
    stage: int

    @property
    def is_load(self) -> bool:
        """Whether the value is loaded from an input."""
        return isinstance(self.made, Access)

    @property
    def is_reduction(self) -> bool:
        """Whether the value is a reduction along the columns, which gives one number per row."""
        return isinstance(self.made, str | Online)


@dataclass(frozen=True)
class RowNest:
    """A dataflow graph as loops over rows and over the columns of each row.

    `cells` are the values that the loops load or compute, `stores` the accesses that write outputs.
    """

    graph: Dataflow
    row_extents: tuple[int, ...]
    columns: int
    cells: tuple[Cell, ...]
    """Values that the nest loads or computes, each after the values that it reads."""
    stores: tuple[tuple[str, Access], ...]
    """(name of a value, position where it is written) pairs; several values may be written to parts of one output."""
    parts: int = 1
    """Number of parts into which each row is cut, the last extent of `row_extents`; 1 for whole rows.

    The parts' reductions are combined (`gir.parts`).
    """
    last: int = 0
    """Number of columns of the last part of every row if it is shorter than the other parts, else 0."""
    together: int = 1
    """Number of the graph's rows that are joined to one row of the nest, because they are contiguous in all tensors."""

    @property
    def scattered(self) -> Access | None:
        """Where the nest joins its rows to the rows of a table that ids select; None for other nests. It is their only store."""
        return next((to for _, to in self.stores if to.chosen is not None), None)

    @property
    def item_bytes(self) -> int:
        """Bytes of a number that the nest computes: 4 of float32, or 8 of int64."""
        return 8 if self.graph.whole else 4

    @property
    def rows(self) -> int:
        """Number of rows."""
        return math.prod(self.row_extents)

    @property
    def elements(self) -> int:
        """Number of elements of all rows together."""
        lacking = self.columns - self.last if self.last else 0
        return self.rows * self.columns - self.rows // self.parts * lacking

    def columns_at(self, part: int) -> int:
        """Return the number of columns of a row with index `part` along the last axis of rows; parts of long rows may differ."""
        return self.last if self.last and part == self.parts - 1 else self.columns

    @property
    def passes(self) -> int:
        """Number of passes (traversals of a row's columns).

        A pass may use the reductions of earlier passes, so one more is needed for each reduction that depends on another.
        """
        return 1 + max((cell.stage for cell in self.cells if cell.wide), default=0)

    @cached_property
    def cell(self) -> dict[str, Cell]:
        """Cells (values of the nest) by name."""
        return {cell.name: cell for cell in self.cells}

    def pass_of_store(self, name: str) -> int:
        """Return the index of the pass that stores the value `name` to an output.

        It is the first pass in which all reductions that the value depends on are complete.
        """
        return self.cell[name].stage

    @cached_property
    def uses(self) -> dict[str, tuple[int, ...]]:
        """For each value that varies along columns, the indices of the passes over a row that read, reduce or store it, in order.

        The first of them computes the value.

        A value reads its sources in the pass that computes it, which may be later than necessary.
        """
        found: dict[str, set[int]] = {cell.name: set() for cell in self.cells if cell.wide}
        for name, _ in self.stores:
            if name in found:
                found[name].add(self.pass_of_store(name))
        for reader in reversed(self.cells):
            reads = {reader.stage - 1} if reader.is_reduction else set(sorted(found.get(reader.name, ()))[:1])
            for source in reader.sources:
                if source in found:
                    found[source] |= reads
        return {name: tuple(sorted(stages)) for name, stages in found.items()}

    @cached_property
    def crossing(self) -> tuple[str, ...]:
        """Names of the values that vary along columns and that several passes read.

        A schedule chooses for each of them the memory level that keeps it between passes.
        """
        return tuple(name for name, stages in self.uses.items() if len(stages) > 1)


def row_nest(graph: Dataflow) -> RowNest:
    """Express a dataflow graph as loops over rows and columns. ValueError names a node or axis for which that is impossible."""
    return _Builder(graph).nest()


class _Builder:
    def __init__(self, graph: Dataflow) -> None:
        self.graph, self.nodes = graph, dict(graph.nodes)
        if len(kinds := {graph.type_of(name) for name, node in graph.nodes if not isinstance(node, VIEWS)}) > 1:
            raise ValueError(f"{graph.name}: nodes compute in {' and '.join(sorted(kinds))}, expected one type")
        self.classes = AxisClasses(graph)
        self.views = input_views(graph)
        self.writes = output_views(graph, self.views)
        self._largest = max(self.writes, key=lambda one: graph.values[one[0]].size)
        self._check_classes()
        self.columns = self._column_classes()
        self.cells: dict[str, Cell] = {}

    def nest(self) -> RowNest:
        stored = [(self._stored(name).name, name, view) for name, view in self.writes]
        if len(self.cells) > MOST_CELLS:
            raise ValueError(f"{self.graph.name}: {len(self.cells)} values of one nest, expected at most {MOST_CELLS}")
        rows = self._row_classes()
        loads = [(cell.name, cell.name, self.views[cell.name]) for cell in self.cells.values() if cell.is_load]
        ids = [(cell, name, view.rows.ids) for cell, name, view in loads + stored if view.rows is not None]
        self._check_scatter([view for _, _, view in stored])
        extents, steps = self._merged(rows, [(name, view) for _, name, view in loads + stored + ids])
        self._check_repeats(math.prod(extents))
        accesses = [
            Access(view.tensor, view.offset, tuple(step[:-1]), step[-1])
            for (_, _, view), step in zip(loads + stored + ids, steps, strict=True)
        ]
        of_ids = iter(accesses[len(loads + stored) :])
        placed = [
            access if view.rows is None else self._chosen(access, view.rows, next(of_ids))
            for (_, _, view), access in zip(loads + stored, accesses, strict=False)
        ]
        loaded = {cell: access for (cell, _, _), access in zip(loads, placed, strict=False)}
        cells = (dataclasses.replace(cell, made=loaded.get(cell.name, cell.made)) for cell in self.cells.values())
        written = ((cell, access) for (cell, _, _), access in zip(stored, placed[len(loads) :], strict=True))
        return RowNest(self.graph, tuple(extents[:-1]), extents[-1], tuple(cells), tuple(written))

    def _check_repeats(self, points: int) -> None:
        joins = sum(isinstance(node, Concat) for node in self.nodes.values())
        most = max(MOST_REPEATS * max(value.size for value in self.graph.values.values()), FEW if joins < 2 else 0)
        if (joins != 1 or len(self.graph.returns) > 1) and points > most:
            raise ValueError(f"{self.graph.name}: loops go through {points} points, expected at most {most}, or a join by itself")

    def _check_scatter(self, stored: list[View]) -> None:
        """Check that a nest whose rows are joined to those of a table stores nothing else, and has one pass."""
        others = len(stored) > 1 or any(isinstance(node, Reduce) for node in self.nodes.values())
        if others and any(view.rows is not None for view in stored):
            raise ValueError(f"{self.graph.name}: a scatter beside other outputs or reductions, expected one by itself")

    def _chosen(self, access: Access, rows: Rows, ids: Access) -> Access:
        if ids.column:
            raise ValueError(f"{self.graph.name}: {ids.tensor} has another row of {access.tensor} for every column, expected one")
        return dataclasses.replace(access, chosen=Chosen(ids, rows.step, rows.count, rows.scatter))

    def _merged(self, rows: list[Place], views: list[tuple[str, View]]) -> tuple[list[int], list[list[int]]]:
        """Merge adjacent axes that every tensor steps through like one axis.

        Return (extents, strides): the extents of the remaining axes, with the columns last, and the strides of each of `views`
        along them.
        """
        along_rows = [self._steps(name, view, rows) for name, view in views]
        along_columns = [self._steps(name, view, self.columns) for name, view in views]
        row_extents = merge([self._extent(place) for place in rows], along_rows)
        columns = merge([self._extent(place) for place in self.columns], along_columns)
        if len(row_extents) > MOST_ROW_AXES or len(columns) > 1:
            raise ValueError(
                f"{self.graph.name}: {len(row_extents)} axes of rows and {len(columns)} of columns that cannot be merged, "
                f"expected at most {MOST_ROW_AXES} and 1"
            )
        steps = [[*ours, *(theirs or [0])] for ours, theirs in zip(along_rows, along_columns, strict=True)]
        return [*row_extents, *(columns or [1])], steps

    def _check_classes(self) -> None:
        for name in self.graph.values:
            if self.classes.has_twice(name):
                raise ValueError(f"{self.graph.name}: two axes of {name} are one axis elsewhere, expected loops of their own")

    def _computed(self, name: str) -> str:
        """Return the name of the computed or loaded value that `name` rearranges, or `name` itself.

        Broadcasts, transposes and reshapes are skipped. ValueError for any other node that only moves computed data.
        """
        while name not in self.views:
            match self.nodes[name]:
                case Broadcast(source) | Transpose(source):
                    name = source
                case Reshape(source) if self._keeps_axes(name, source):
                    name = source
                case Map() | Reduce():
                    break
                case node:
                    kind = type(node).__name__.lower()
                    raise ValueError(f"{self.graph.name}: {name}, a {kind} of what is computed, needs a kernel of its own")
        return name

    def _keeps_axes(self, one: str, other: str) -> bool:
        kept = [[place for place in self.classes.of(name) if place] for name in (one, other)]
        return kept[0] == kept[1]

    def _extent(self, place: Place) -> int:
        return self.graph.values[place[0]].shape[place[1]]

    def _column_classes(self) -> list[Place]:
        """Choose the axis classes that become columns: the reduced axes, else the contiguous axis of the largest output."""
        reduced: dict[frozenset[Place], list[Place]] = {}
        for _, node in self.graph.nodes:
            if isinstance(node, Reduce):
                places = self.classes.of(node.source)
                over = [place for axis in node.axes if (place := places[axis]) is not None]
                reduced.setdefault(frozenset(over), over)
        if len(reduced) > 1:
            raise ValueError(f"{self.graph.name}: reductions over different axes, expected the same everywhere")
        if reduced:
            return next(iter(reduced.values()))
        name, view = self._largest
        chosen = self._chosen_classes()
        steps = [step for step in zip(self.classes.of(name), view.strides, strict=True) if step[0] not in chosen]
        beside = [place for place, stride in steps if place and stride == 1]
        return beside[-1:] or [place for place, _ in steps if place][-1:]

    def _chosen_classes(self) -> set[Place | None]:
        """Return the axis classes along which the ids of gathers and scatters vary.

        A step along them is another row of the table, so vectors cannot be loaded or stored along them.
        """
        found: set[Place | None] = set()
        for name, view in [*self.views.items(), *self.writes]:
            if view.rows is not None:
                found.update(place for place, stride in zip(self.classes.of(name), view.rows.ids.strides, strict=True) if stride)
        return found

    def _row_classes(self) -> list[Place]:
        """Return the axis classes that become rows: all except the columns, sorted by decreasing stride in the largest output."""
        name, view = self._largest
        strides = dict(zip(self.classes.of(name), view.strides, strict=True))
        found: dict[Place, None] = {}
        for made in (*(name for name in self.cells if name in self.graph.values), *(name for name, _ in self.writes)):
            found |= dict.fromkeys(place for place in self.classes.of(made) if place and place not in self.columns)
        return sorted(found, key=lambda place: -strides.get(place, 0))

    def _steps(self, name: str, view: View, places: list[Place]) -> list[int]:
        steps: dict[Place, int] = {}
        for place, stride in zip(self.classes.of(name), view.strides, strict=True):
            if place is not None:
                steps[place] = steps.get(place, 0) + stride
        return [steps.get(place, 0) for place in places]

    def _stored(self, name: str) -> Cell:
        """Return the cell (value of the nest) that is stored as the output `name`.

        If it is one number per row but the output has columns, return a cell that repeats it along the columns.
        """
        cell = self._cell(name)
        if cell.wide or not any(place in self.columns for place in self.classes.of(name)):
            return cell
        repeated = Cell(f"{cell.name}.repeated", Operand(cell.name), (cell.name,), True, cell.stage)
        return self.cells.setdefault(repeated.name, repeated)

    def _cell(self, name: str) -> Cell:
        name = self._computed(name)
        if name in self.cells:
            return self.cells[name]
        if name in self.views:
            view = self.views[name]  # `nest` sets its access when all rows are known
            made = Cell(name, Access(view.tensor, view.offset, (), 0), (), self._varies(name), 0)
        else:
            node = self.nodes[name]
            sources = {one: self._cell(one) for one in node.inputs}
            stage = max((cell.stage for cell in sources.values()), default=0)
            names = {one: cell.name for one, cell in sources.items()}
            read = tuple(dict.fromkeys(names.values()))
            if isinstance(node, Reduce) and sources[node.source].wide:
                self._check_sum(name, node)
                made = Cell(name, node.body, read, False, stage + 1)
            elif isinstance(node, Reduce):
                made = Cell(name, self._of_equals(node, read[0]), read, False, stage)
            else:
                assert isinstance(node, Map)
                made = Cell(name, renamed(node.expression, names), read, any(c.wide for c in sources.values()), stage)
        self.cells[made.name] = made
        return made

    def _check_sum(self, name: str, node: Reduce) -> None:
        count = math.prod(self.graph.values[node.source].shape[axis] for axis in node.axes)
        if node.body == "sum" and count > MOST_SUMMED:
            raise ValueError(f"{self.graph.name}: {name} adds up {count} elements, expected at most {MOST_SUMMED} in float32")

    def _of_equals(self, node: Reduce, source: str) -> Expression:
        """Return the reduction of a value that is equal in all columns: this value for a maximum, a multiple of it for a sum."""
        shape = self.graph.values[node.source].shape
        count = math.prod(shape[axis] for axis in node.axes)
        same = node.body == "max" or count == 1
        return Operand(source) if same else Call("multiply", (Operand(source), Constant(float(count))))

    def _varies(self, name: str) -> bool:
        places = zip(self.classes.of(name), self.views[name].strides, strict=True)
        return any(place in self.columns and stride for place, stride in places)
