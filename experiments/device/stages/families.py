"""Schedules that together use every feature of the CUDA generator, for operators whose extents divide badly."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from experiments.device.work.makers import Programs
from gensor_gym import hardware
from gensor_gym.codegen.kernel import Kernel
from gensor_gym.construction import ConstructionGraph
from gensor_gym.graph.knobs import KNOB_INDEX, KNOBS
from gensor_gym.graph.schedule import Schedule
from gensor_gym.graph.starts import starts
from gensor_gym.graph.tables.layout import KNOB, MAX_AXES, MAX_LEVELS, SPATIAL_SLOTS, TILE
from gensor_gym.graph.tables.tables import END_REDUCE, SIZE_START
from gensor_gym.hardware.types import Hardware
from gensor_gym.measure.measurement import Measurement
from gensor_gym.measure.native import make_kernel
from gensor_gym.operators.text import parse
from gensor_gym.operators.types import Operator

BYTES = (
    "gemm(m=96, n=128, k=64, dtype='int8')+bias+relu+residual", "gemm(m=160, n=96, k=192, dtype='int8')",
    "gemm(m=256, n=512, k=1024, dtype='int8')", "batched_gemm(b=3, m=65, n=40, k=36, dtype='int8')",
    "gemv(m=100, k=771, dtype='int8')", "conv2d(n=1, c=8, h=15, w=16, k=12, r=2, s=3, padding=1, dtype='int8')",
    "conv2d(n=2, c=64, h=14, w=14, k=64, r=3, s=3, padding=1, dtype='int8')+bias+relu",
    "depthwise_conv2d(n=2, c=33, h=29, w=28, r=3, s=3, stride=2, padding=1, dtype='int8')",
    "max_pool2d(n=1, c=12, h=26, w=26, r=3, s=2, stride=1, padding=1, dtype='int8')",
    "reduce_sum(m=33, k=500, dtype='int8')", "elementwise('mul', 44, 60, dtype='int8')",
    "elementwise('add', 44, 60, dtype='int8')", "elementwise('relu', 44, 61, dtype='int8')",
)  # fmt: skip
"""Operators of int8, at least one of every class that supports it. They come first, because byte reads were fixed last."""

FLOAT8 = (
    "gemm(m=200, n=133, k=400, dtype='float8_e4m3fn')+bias+relu", "gemm(m=1024, n=512, k=1040, dtype='float8_e4m3fn')+residual",
    "batched_gemm(b=5, m=72, n=134, k=272, dtype='float8_e4m3fn')+bias", "gemm(m=67, n=45, k=131, dtype='float8_e4m3fn')+gelu",
    "conv2d(n=2, c=64, h=14, w=14, k=64, r=3, s=3, padding=1, dtype='float8_e4m3fn')+bias",
    "gemm(m=256, n=256, k=16384, dtype='float8_e4m3fn')",
)  # fmt: skip
"""Products of 8-bit floats, which no device has run yet; the last shows the error of sums over a long reduction."""

WARP_GROUPS = (
    "gemm(m=384, n=512, k=2048, dtype='bfloat16')", "gemm(m=256, n=1024, k=4096, dtype='float16')+bias",
    "batched_gemm(b=4, m=256, n=256, k=1024, dtype='float16')", "gemm(m=256, n=256, k=512, dtype='tf32')",
    "conv2d(n=2, c=128, h=28, w=28, k=128, r=3, s=3, padding=1, dtype='float16')",
    "conv2d(n=4, c=256, h=14, w=14, k=64, r=1, s=1, dtype='bfloat16')",
    "gemm(m=200, n=133, k=108, dtype='tf32')+bias+relu", "gemm(m=1024, n=512, k=448, dtype='tf32')+residual",
    "batched_gemm(b=3, m=130, n=72, k=100, dtype='tf32')", "batched_gemm(b=5, m=72, n=134, k=272, dtype='int8')+bias",
    "gemm(m=200, n=133, k=400, dtype='int8')+bias+relu", "gemm(m=1024, n=512, k=1040, dtype='int8')+residual",
    "conv2d(n=3, c=136, h=12, w=14, k=200, r=1, s=1, dtype='float16')+bias+residual",
    "conv2d(n=4, c=256, h=28, w=28, k=64, r=1, s=1, dtype='bfloat16')",
    "gemm(m=200, n=264, k=1000, dtype='float16')+bias",
    "gemm(m=16, n=1000, k=4096, dtype='bfloat16')+bias", "gemm(m=130, n=1022, k=520, dtype='float16')+relu",
    "conv2d(n=6, c=136, h=7, w=7, k=200, r=1, s=1, dtype='float16')+bias",
    "conv2d(n=3, c=136, h=13, w=17, k=200, r=1, s=1, stride=2, dtype='float16')+bias",
    "conv2d(n=2, c=3, h=61, w=67, k=72, r=7, s=7, stride=2, padding=3, dtype='float16')+bias+relu",
    "conv2d(n=2, c=100, h=13, w=17, k=136, r=3, s=3, padding=1, dtype='tf32')+bias",
    "conv2d(n=3, c=200, h=9, w=14, k=130, r=3, s=3, padding=1, dtype='int8')+bias",
    "conv2d(n=2, c=200, h=14, w=15, k=72, r=1, s=1, stride=2, dtype='float8_e4m3fn')",
)  # fmt: skip
"""Operators with long reductions and rows that TMA can copy: for schedules with wgmma, clusters and split_k.

The last eight have few rows, rows in groups, several images, pixels skipped by a stride, folded windows, or convolutions of other
types.
"""

FAMILIES = (
    *BYTES, *FLOAT8, *WARP_GROUPS,
    "gemm(m=257, n=129, k=65)", "gemm(m=13, n=11, k=7)", "gemm(m=1, n=300, k=77)", "gemm(m=512, n=384, k=1000)",
    "gemm(m=100, n=200, k=120)+bias+gelu+residual",
    "gemm(m=64, n=80, k=5)+scale+relu", "batched_gemm(b=3, m=65, n=40, k=33)", "batched_gemm(b=12, m=128, n=64, k=128)",
    "gemv(m=1000, k=769)", "gemv(m=7, k=4099)+bias+relu", "gemv(m=2048, k=1024)",
    "conv2d(n=1, c=3, h=30, w=30, k=20, r=3, s=3, padding=1)",
    "conv2d(n=2, c=20, h=29, w=31, k=36, r=3, s=2, stride=2, padding=1)+bias+relu",
    "conv2d(n=1, c=8, h=24, w=23, k=12, r=3, s=3, dilation=2, groups=2, padding=2)+scale+residual",
    "conv2d(n=2, c=65, h=14, w=14, k=66, r=1, s=1)",
    "conv2d(n=4, c=64, h=28, w=28, k=64, r=3, s=3, padding=1)",
    "depthwise_conv2d(n=2, c=33, h=29, w=28, r=3, s=3, stride=2, padding=1)",
    "avg_pool2d(n=2, c=33, h=28, w=28, r=3, s=3, stride=2, padding=1)+relu",
    "avg_pool2d(n=1, c=16, h=32, w=32, r=2, s=2, stride=2, padding=0)",
    "max_pool2d(n=1, c=33, h=27, w=28, r=3, s=3, stride=2, padding=1)",
    "reduce_sum(m=100, k=4097)", "reduce_sum(m=5, k=131)+scale",
    "elementwise('gelu', 55, 240)", "elementwise('add', 77, 133)+bias+residual", "elementwise('sigmoid', 100003)",
    "elementwise('tanh', 33, 110)", "elementwise('exp', 4000)", "elementwise('relu', 3, 5, 7, 64)",
    "elementwise('copy', 1024, 1024)",
    "gemm(m=136, n=264, k=200, dtype='bfloat16')", "gemm(m=1024, n=512, k=448, dtype='float16')+bias+relu",
    "gemm(m=129, n=257, k=65, dtype='float16')", "gemm(m=200, n=136, k=96, dtype='bfloat16')+gelu+residual",
    "batched_gemm(b=5, m=128, n=136, k=72, dtype='bfloat16')", "gemm(m=130, n=100, k=70, dtype='tf32')",
    "gemm(m=67, n=200, k=129, dtype='tf32x3')",
    "conv2d(n=2, c=40, h=29, w=31, k=48, r=3, s=3, stride=2, padding=1, dtype='float16')+bias+relu",
    "conv2d(n=2, c=64, h=14, w=14, k=64, r=3, s=3, padding=1, dtype='bfloat16')",
    "conv2d(n=2, c=68, h=15, w=13, k=200, r=3, s=3, stride=2, padding=1, dtype='float16')+bias+residual",
    "conv2d(n=3, c=130, h=12, w=14, k=72, r=1, s=1, dtype='bfloat16')+relu",
    "conv2d(n=1, c=32, h=20, w=24, k=32, r=3, s=3, dilation=2, groups=2, padding=2, dtype='tf32')",
    "elementwise('gelu', 55, 240, dtype='bfloat16')", "reduce_sum(m=33, k=500, dtype='float16')",
    "gemm(m=136, n=200, k=5, dtype='float16')+bias", "conv2d(n=1, c=3, h=30, w=29, k=20, r=3, s=3, padding=1, dtype='bfloat16')",
    "gemv(m=256, k=509, dtype='bfloat16')", "max_pool2d(n=1, c=12, h=26, w=26, r=3, s=2, stride=1, padding=1, dtype='float16')",
)  # fmt: skip
"""Operators whose kernels are verified, in the order in which this happens."""

NEVER_RUN = (*((text, 14) for text in FLOAT8), *((text, 12) for text in reversed(WARP_GROUPS)), *((text, 4) for text in BYTES))
"""(operator, number of kernels) for families that no device had run on 2026-11-26, which come first.

These are 8-bit floats, then wgmma of few rows, rows in groups, several images, strides, folded windows, tf32 and int8; byte reads
come last.
"""

WGMMA = 2
"""Value of the knob `tensor_core` that selects wgmma instructions."""
_KNOBS = ("cluster", "split_k", "persistent")
_TOGETHER = [(cluster, *values) for cluster in (1, 2) for values in ((2, 0), (4, 1), (8, 0), (1, 2))]
"""Values of the knobs `_KNOBS` that are tried on wgmma schedules: split reductions, and equal shares of all steps."""
_DRAWS = 16
_SHORT = (12, 48)
"""Range of the number of steps of a random walk that starts from a schedule of another kind."""
_OPT_IN = 48 * 1024


def drawn(text: str, machine: str, seed: int, count: int) -> Programs:
    """Return the schedules and kernels of `covering` as a list, for an operator's text and a machine's name."""
    return list(covering(parse(text), hardware.get(machine), seed, count))


def never_run(machine: str, seed: int) -> Iterator[tuple[str, Schedule, Kernel]]:
    """Yield (operator, schedule, kernel) for kinds of kernels that no device has run, the most useful first.

    These are the first kernel of every operator, then the second of every operator, and so on.
    """
    made = [[(text, *pair) for pair in drawn(text, machine, seed, count)] for text, count in NEVER_RUN]
    for place in range(max(map(len, made))):
        for text, schedule, kernel in (programs[place] for programs in made if place < len(programs)):
            if isinstance(kernel, Kernel):
                yield text, schedule, kernel


def covering(op: Operator, hw: Hardware, seed: int, count: int) -> Iterator[tuple[Schedule, Kernel | Measurement]]:
    """Yield up to `count` legal schedules of an operator with their kernels; each adds the most features not seen before."""
    rng = np.random.default_rng(seed)
    graph = ConstructionGraph(op, hw, "extended")
    pool: list[tuple[Schedule, Kernel | Measurement, set[str]]] = []
    for schedule in _candidates(graph, rng):
        made = make_kernel(op, schedule, hw)
        pool.append((schedule, made, features(schedule, made)))
    seen: set[str] = set()
    for _ in range(min(count, len(pool))):
        best = max(range(len(pool)), key=lambda i: len(pool[i][2] - seen))
        schedule, made, brings = pool.pop(best)
        seen |= brings
        yield schedule, made


def features(schedule: Schedule, made: Kernel | Measurement) -> set[str]:
    """Return the features that a schedule uses: values of knobs, and properties of its kernel's launch."""
    found = {f"{knob.name}={schedule.knob(knob.name)}" for knob in KNOBS if knob.kind != "cpu"}
    core = schedule.knob("tensor_core")
    of_core = ("stages", "shared_layout", "split_k", "cluster", "raster", "persistent")
    found |= {f"tensor_core={core} {name}={schedule.knob(name)}" for name in of_core if core}
    if core == WGMMA:
        found.add(f"wgmma cluster={schedule.knob('cluster')} split_k={schedule.knob('split_k')}")
    if not isinstance(made, Kernel):
        return found | {made.status.value}
    if made.cleared_bytes:
        found.add(f"shares, cluster={schedule.knob('cluster')}")
    main = made.main
    threads = main.block[0] * main.block[1] * main.block[2]
    found |= {f"threads={threads.bit_length()}", f"launches={len(made.launches)}", f"blocks={main.grid[0] > 1}"}
    shared = "none" if main.shared_bytes == 0 else "opt-in" if main.shared_bytes > _OPT_IN else "some"
    vector = bool((schedule.vthread > 1).any())
    return found | {f"shared={shared}", f"vthread={vector}", f"odd threads={threads % 32 != 0}"}


def _candidates(graph: ConstructionGraph, rng: np.random.Generator) -> Iterator[Schedule]:
    """Yield random legal schedules and, for every value of every knob, a schedule with that value if one is legal.

    Random schedules are the ends of random walks. Half of the walks begin at the smallest programs of other kinds
    (`gensor_gym.graph.starts`) and are short: random walks rarely reach tensor cores, and long walks leave them.
    """
    kinds = [Schedule(row) for row in starts(graph.tables, graph.initial().row)[1:]]
    drawn = [graph.random_schedule(rng) for _ in range(_DRAWS if not kinds else _DRAWS // 2)]
    drawn += [graph.random_schedule(rng, int(rng.integers(*_SHORT)), kind) for kind in kinds for _ in range(_DRAWS // 2)]
    yield from drawn
    yield from _split_in_clusters(graph, drawn, rng)
    movable = [(i, knob) for i, knob in enumerate(KNOBS) if knob.kind != "cpu" and len(knob.available) > 1]
    for index, value in ((i, knob.values.index(v)) for i, knob in movable for v in knob.available):
        tries = (
            row
            for grow in (False, True)
            for at in rng.permutation(len(drawn))
            for row in _rows(graph, drawn[at], index, value, grow)
        )
        legal = (made for made in map(Schedule, tries) if made not in drawn and graph.is_legal(made))
        if (changed := next(legal, None)) is not None:
            yield changed


def _split_in_clusters(graph: ConstructionGraph, drawn: list[Schedule], rng: np.random.Generator) -> Iterator[Schedule]:
    """Yield, for each entry of `_TOGETHER`, a drawn wgmma schedule with the entry's values of the knobs, if one is legal."""
    groups = [schedule for schedule in drawn if schedule.knob("tensor_core") == WGMMA]
    for values in _TOGETHER:
        tries = (_with_knobs(groups[at], _KNOBS, values) for at in rng.permutation(len(groups)))
        if (found := next((made for made in tries if made not in drawn and graph.is_legal(made)), None)) is not None:
            yield found


def _with_knobs(schedule: Schedule, names: tuple[str, ...], values: tuple[int, ...]) -> Schedule:
    row = schedule.row.copy()
    for name, value in zip(names, values, strict=True):
        row[KNOB + KNOB_INDEX[name]] = KNOBS[KNOB_INDEX[name]].values.index(value)
    return Schedule(row)


def _rows(graph: ConstructionGraph, schedule: Schedule, knob: int, value: int, grow: bool) -> Iterator[np.ndarray]:
    """Yield rows (schedules as arrays) in which one knob has the given value.

    With `grow`, they also have larger steps along the innermost reduce axis, or more threads. Threads can share a reduction only
    if a step has a loop iteration for each, and a warp arranged as a patch of lanes needs a thread count divisible by the patch.
    """
    row = schedule.row.copy()
    row[KNOB + knob] = value
    if not grow:
        yield row
        return
    if KNOBS[knob].name == "warp_tile":
        yield from _wider(row)
        return
    ints, axis = graph.tables.ints, int(graph.tables.ints[END_REDUCE]) - 1
    if axis < SPATIAL_SLOTS:
        return
    for size in graph.tables.sizes[ints[SIZE_START + axis] : ints[SIZE_START + axis + 1]]:
        yield _with_block(row, axis, size)


def _wider(row: np.ndarray) -> Iterator[np.ndarray]:
    """Yield rows with more threads along the two innermost spatial axes.

    Patches of 4x8, 8x4 and 2x16 lanes divide them.
    """
    inner = SPATIAL_SLOTS - 1
    for columns in (16, 32):
        for rows in (2, 4, 8):
            wide = _with_block(row, inner, row[TILE + inner] * columns)
            yield _with_block(wide, inner - 1, row[TILE + inner - 1] * rows)


def _with_block(row: np.ndarray, axis: int, size: int) -> np.ndarray:
    grown = row.copy()
    grown[TILE + MAX_AXES + axis : TILE + MAX_LEVELS * MAX_AXES : MAX_AXES] = size
    return grown
