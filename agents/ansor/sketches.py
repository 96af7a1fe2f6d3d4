"""Ansor's sketches (OSDI 2020, section 4): partly decided programs, derived by rules, without tile sizes and annotations.

Here, a sketch is a set of programs of our space: the allowed tile sizes of every axis, and the allowed values of every knob. The
rules are those of the paper's table 1 and section 4.3, with the conditions of the authors' code. Our programs are always tiled,
with a fused epilogue, accumulators in registers, and staged reads in shared memory. So the rules Always Inline, Fusion, Add Cache
Stage and Skip leave no choice. The remaining rules decide the number of tile levels, the factors of a reduction and, like the
paper's user rules, algorithms that Ansor has no rule for. `docs/related.md` lists where `ansor` differs from the paper.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from gensor_gym.construction import ConstructionGraph
from gensor_gym.graph.coordinates import Column, Coordinates, moved_knobs, usable_values
from gensor_gym.graph.knobs import KNOB_INDEX, KNOBS
from gensor_gym.graph.knobs.tensor_cores import fragment_length
from gensor_gym.graph.tables.layout import KNOB, MAX_AXES, MAX_LEVELS, TILE
from gensor_gym.graph.tables.tables import COPIED, IS_CPU
from gensor_gym.operators.types import Operator

PARALLEL = 16
"""Number of parallel tasks per core that counts as enough (authors' code)."""
AUTHORS = ("split_k", "reduce_threads", "vector", "unroll", "pack_a", "pack_b", "loop_order", "thread_split")
"""Knobs that Ansor has too. `beyond` of `derive_sketches` adds the other knobs of the space."""
ALGORITHMS = {"convolution": (0, 1), "tensor_core": (0,)}
"""Values of those knobs that choose an algorithm which Ansor's own rules can produce: direct convolutions, no tensor cores."""

Options = dict[str, tuple[int, ...]]
"""Name of a knob -> its allowed values."""


class Sketch(Coordinates):
    """A partly decided program: the values that Ansor's rules allow for every axis and for every undecided knob.

    It has one column (a list of allowed values) per axis slot and per undecided knob.
    """

    def __init__(self, name: str, base: np.ndarray, columns: Sequence[Column]) -> None:
        super().__init__(base, columns)
        self.name = name

    @property
    def axes(self) -> tuple[Column, ...]:
        """The columns of the axes, in the order of the axis slots; their values are the allowed tile sizes of all levels."""
        return self.columns[:MAX_AXES]

    @property
    def knobs(self) -> tuple[Column, ...]:
        """The columns of the undecided knobs, with their allowed values."""
        return self.columns[MAX_AXES:]

    def sample(self, rng: np.random.Generator, count: int) -> np.ndarray:
        """Draw random programs, encoded as rows int32 [count, ROW]; they may be illegal.

        The tile sizes of each axis, and each knob, are drawn uniformly from the sketch's allowed values.
        """
        return self.rows(self.draw(rng, count))


def has_data_reuse(op: Operator) -> bool:
    """Return whether several outputs use the same elements of an operand. Ansor tiles such operators on several levels."""
    missing = sum(
        any(op.extents[a] > 1 and access.axis_strides()[a] == 0 for a in op.spatial) for access in op.reads
    )
    return missing >= 2 or (missing >= 1 and bool(op.reduce))


def has_more_reduction_parallel(graph: ConstructionGraph) -> bool:
    """Return whether the outputs alone give too little parallelism, so that the reduction is split too (Ansor's rule 6).

    On a GPU it is split across threads.
    """
    op, hw = graph.operator, graph.hardware
    space = math.prod(op.extents[a] for a in op.spatial)
    reduction = math.prod(op.extents[a] for a in op.reduce)
    tiled = has_data_reuse(op)
    if hw.kind == "cpu":
        return space <= reduction and space <= hw.units * PARALLEL if tiled else reduction > hw.units
    return space <= hw.threads_per_block and space < reduction if tiled else reduction > hw.warp


TEMPLATE_INNERMOST = 16
"""With `limited`, innermost factors are powers of two up to this number."""
LOCATIONS = ("pack_a", "pack_b", "loop_order")
"""Knobs for the location of a computation: whether an operand is copied first, and which loop is outermost."""


def derive_sketches(
    graph: ConstructionGraph, beyond: bool = True, max_innermost: int = 64, limited: bool = False
) -> list[Sketch]:
    """Derive all sketches of a task.

    `beyond` adds algorithms that Ansor's own rules do not produce (shifted and implicit matrix products, tensor cores) as user
    rules, and treats knobs that Ansor lacks like its pragmas. Without `beyond` these knobs are at the space's default.
    `max_innermost` bounds the innermost factor of an axis, unless a tensor-core instruction decides it. `limited` is the paper's
    ablation (figure 7): tile levels, innermost sizes and computation locations of a manual template. The paper names no values;
    ours are one level fewer on a CPU, powers of two up to 16, and locations at the space's default.
    """
    if max_innermost < 1:
        raise ValueError(f"max_innermost={max_innermost}: expected 1 or more")
    movable = {name: v for name, v in _movable(graph, beyond).items() if not (limited and name in LOCATIONS)}
    partial = [("tiled" if has_data_reuse(graph.operator) else "simple", movable)]
    for rule in (_factor, _algorithms):
        partial = [(f"{name}{more}", options) for name, before in partial for more, options in rule(graph, before)]
    sketches = [_sketch(graph, name, options, max_innermost) for name, options in partial]
    found = [sketch for sketch in sketches if sketch is not None]
    return [_as_template(graph, sketch) for sketch in found] if limited else found


def _as_template(graph: ConstructionGraph, sketch: Sketch) -> Sketch:
    """Restrict a sketch to the tile sizes that a manual template would have (`limited` of `derive_sketches`).

    An axis that has no such tile sizes keeps all of its own.
    """
    kept = []
    for column in sketch.axes:
        chains = column.values
        inner = chains[:, 0] // chains[:, MAX_LEVELS]
        plain = (inner <= TEMPLATE_INNERMOST) & (inner & (inner - 1) == 0)
        if graph.tables.ints[IS_CPU]:
            plain &= chains[:, 0] == chains[:, 1]
        kept.append(column.only(plain) if plain.any() else column)
    return Sketch(sketch.name, sketch.base, [*kept, *sketch.knobs])


def _movable(graph: ConstructionGraph, beyond: bool) -> Options:
    """Return the usable values of every knob that the space changes, by the knob's name.

    Without `beyond`, only the knobs and algorithms that Ansor has are included.
    """
    ints = graph.tables.ints
    found = {KNOBS[k].name: tuple(KNOBS[k].values[i] for i in usable_values(ints, k)) for k in moved_knobs(ints)}
    if beyond:
        return found
    kept = {name: values for name, values in found.items() if name in (*AUTHORS, *ALGORITHMS)}
    return {name: tuple(v for v in values if v in ALGORITHMS.get(name, values)) for name, values in kept.items()}


def _factor(graph: ConstructionGraph, options: Options) -> list[tuple[str, Options]]:
    """Apply Ansor's rule 6: one variant with the whole reduction and, if allowed, one for each way to split the reduction.

    Return (suffix for the sketch's name, allowed values of every knob) for each variant.
    """
    knobs = [name for name in ("thread_split", "reduce_threads", "split_k") if name in options]
    whole = options | dict.fromkeys(knobs, (1,))
    found = [("", whole)]
    if has_more_reduction_parallel(graph):
        shared = {name: tuple(v for v in options[name] if v > 1) for name in knobs}
        found += [(f"+{name}", whole | {name: values}) for name, values in shared.items() if values]
    return found


def _algorithms(graph: ConstructionGraph, options: Options) -> list[tuple[str, Options]]:
    """Split the allowed values into one variant per algorithm, because algorithms differ in their tiles and knobs.

    Return (suffix for the sketch's name, allowed values of every knob) for each variant.
    """
    plain: Options = {"tensor_core": (0,), "persistent": (0,), "cluster": (1,)}
    whole = all(1 in options.get(name, (1,)) for name in ("thread_split", "reduce_threads"))
    kinds: list[tuple[str, Options]] = []
    for value in options.get("convolution", (0,)):
        fixed = plain | {"convolution": (value,)}
        if value == 1:
            fixed["pack_b"] = (1,)
        if value == 2 and graph.tables.ints[COPIED]:
            fixed["pack_a"] = (1,)
        if value != 2 or whole:
            kinds.append((f" convolution={value}" if value else "", fixed))
    for core in options.get("tensor_core", (0,)):
        fixed = {"tensor_core": (core,), "convolution": (0,), "warp_tile": (0,), "lane_map": (0,)}
        fixed |= {"persistent": (0,), "cluster": (1,)} if core == 1 else {"register_buffer": (1,)}
        if core and whole:
            kinds.append((f" tensor_core={core}", fixed))
    return [(name, options | {k: v for k, v in fixed.items() if k in options}) for name, fixed in kinds]


def _sketch(graph: ConstructionGraph, name: str, options: Options, max_innermost: int) -> Sketch | None:
    base, free = graph.coordinates.base.copy(), []
    for knob, values in options.items():
        indices = np.array([KNOBS[KNOB_INDEX[knob]].values.index(v) for v in values], dtype=np.int32)
        if len(indices) == 0:
            return None
        base[KNOB + KNOB_INDEX[knob]] = indices[0]
        if len(indices) > 1:
            free.append(Column(KNOB + KNOB_INDEX[knob], indices[:, None]))
    axes = [c.only(_kept(graph, base, c, max_innermost)) for c in graph.coordinates.columns if not c.is_knob]
    return Sketch(name, base, [*axes, *free]) if all(len(column.values) for column in axes) else None


def _kept(graph: ConstructionGraph, base: np.ndarray, axis: Column, max_innermost: int) -> np.ndarray:
    """Return which values of an axis's column (tile sizes of all levels) the sketch allows, bool [C].

    Without data reuse no cache tiles are allowed. With tensor cores the innermost tile is a whole number of fragments.
    """
    ints, chains = graph.tables.ints, axis.values
    if base[KNOB + KNOB_INDEX["tensor_core"]] > 0:
        step = int(fragment_length(base, axis.first - TILE, ints))
        return (chains[:, 0] % step == 0) & (chains[:, MAX_LEVELS] == 1)
    kept: np.ndarray = chains[:, 0] // chains[:, MAX_LEVELS] <= max_innermost
    if ints[IS_CPU] and not has_data_reuse(graph.operator):
        kept &= chains[:, 0] == chains[:, 1]
    return kept
