"""Facts about a program for its pictures: use and limit of each resource, and the largest term of its time by the model."""

from __future__ import annotations

from dataclasses import dataclass

from gensor_gym.construction import ConstructionGraph
from gensor_gym.cost.gpu.gpu import grid_blocks, resident_blocks
from gensor_gym.graph import resources as rules
from gensor_gym.graph.compiled import plain
from gensor_gym.graph.schedule import Schedule
from gensor_gym.graph.tables.geometry import reduce_product
from gensor_gym.graph.tables.layout import UNROLL
from gensor_gym.graph.tables.tables import L1_BYTES, L2_BYTES, REGS_THREAD, SHARED_BLOCK, THREADS_BLOCK, UNITS, VECTOR_REGS

LEVEL_NAMES = {"gpu": ("register tile", "block tile"), "cpu": ("register tile", "L1 tile", "task tile")}
"""Names of the tiles by kind of hardware, innermost tile first."""
TERM_WORDS = {
    "gpu": {
        "arithmetic": "FMA pipes",
        "issue": "issue slots",
        "staging": "shared memory",
        "cache": "L2 traffic",
        "dram": "DRAM traffic",
        "exposed": "exposed latency",
        "tail": "waves not full",
        "launch": "launch",
    },
    "cpu": {
        "arithmetic": "FMA ports",
        "issue": "load ports",
        "staging": "packing",
        "cache": "cache traffic",
        "dram": "DRAM traffic",
        "exposed": "chains and calls",
        "tail": "imbalance",
        "launch": "fork and join",
    },
}
"""Kind of hardware -> term of the model (`cost.terms.TERMS`) -> its description in words."""


@dataclass(frozen=True)
class Use:
    """How much of one resource a program uses, with the limit. `unit` is `B` for bytes and empty for counts.

    A `soft` limit may be exceeded: a tile that overflows its cache is slow, not illegal.
    """

    name: str
    used: int
    limit: int
    unit: str = ""
    soft: bool = False

    @property
    def fraction(self) -> float:
        """Used amount divided by the limit."""
        return self.used / max(1, self.limit)

    def __str__(self) -> str:
        """Text such as `registers 85 of 255`."""
        if self.unit == "B":
            return f"{self.name} {in_bytes(self.used)} of {in_bytes(self.limit)}"
        return f"{self.name} {self.used} of {self.limit}"


def uses(graph: ConstructionGraph, schedule: Schedule) -> list[Use]:
    """Return the resources that a program uses, with their limits; on a CPU also tiles, with the cache that should hold each."""
    row, ints = plain(schedule.row), graph.tables.ints
    if graph.hardware.kind == "cpu":
        body = reduce_product(row, 0, ints) << int(row[UNROLL])
        accumulators = rules.accumulators_of(row, ints)
        vectors = accumulators + rules.vectors_along(row, ints) + 1
        return [
            Use("vector registers", int(vectors), int(ints[VECTOR_REGS])),
            Use("L1 tile", int(rules.tile_bytes(row, 1, ints)), int(ints[L1_BYTES]), "B", soft=True),
            Use("task tile in L2", int(rules.tile_bytes(row, 2, ints)), int(ints[L2_BYTES]), "B", soft=True),
            Use("unrolled body", int(accumulators * body), rules.CODE_LIMIT_CPU),
        ]
    return [
        Use("threads", int(rules.threads_of(row, ints)), int(ints[THREADS_BLOCK])),
        Use("registers", int(rules.registers_of(row, ints)), int(ints[REGS_THREAD])),
        Use("shared memory", int(rules.shared_bytes_of(row, ints)), int(ints[SHARED_BLOCK]), "B"),
        Use("unrolled body", int(rules.code_of(row, ints)), rules.CODE_LIMIT_GPU),
    ]


def spread(graph: ConstructionGraph, schedule: Schedule) -> str:
    """Return text about how the work is spread over the device, such as `48 blocks on 132 multiprocessors, up to 5 on each`."""
    row, ints = plain(schedule.row), graph.tables.ints
    if graph.hardware.kind == "gpu":
        blocks, resident = int(grid_blocks(row, ints)), int(resident_blocks(row, ints))
        return f"{blocks} blocks on {ints[UNITS]} multiprocessors, up to {resident} on each"
    from gensor_gym.cost.cpu.cpu import tiles_of

    tasks = int(tiles_of(row, 2, ints)) * schedule.knob("thread_split")
    return f"{tasks} tasks on {ints[UNITS]} cores"


def bound(graph: ConstructionGraph, schedule: Schedule) -> str:
    """Return a description of what limits the program: the largest term of its time by the model."""
    terms = graph.terms(schedule)
    return TERM_WORDS[graph.hardware.kind][max(terms, key=lambda name: terms[name])]


def in_bytes(count: float) -> str:
    """Return a number of bytes as text, such as `4.5 KiB`."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024 or unit == "GiB":
            break
        count /= 1024
    return f"{count:.0f} {unit}" if count == int(count) else f"{count:.1f} {unit}"


def in_seconds(seconds: float) -> str:
    """Return a time as text, such as `12.3 us`."""
    for scale, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "us")):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"
