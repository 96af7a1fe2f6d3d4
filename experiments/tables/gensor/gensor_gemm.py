"""Gensor (arXiv 2502.11407), Table V: three matrix products on an RTX 4090, with a profiler's view of their kernels.

The model of that device predicts our values; nothing is timed.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from omegaconf import DictConfig

from experiments.tables.gensor import published
from experiments.tables.gensor.searches import MODEL, MODEL_OF, Contender, Found, Searches, tiers_of, trials_of
from experiments.tables.table import Stamp, Table
from gensor_gym import operators
from gensor_gym.construction import ConstructionGraph
from gensor_gym.cost.gpu.gpu import resident_blocks
from gensor_gym.cost.gpu.traffic import grid_blocks, traffic_of, warp_sectors
from gensor_gym.graph.compiled import plain
from gensor_gym.graph.resources import shared_bytes_of, threads_of
from gensor_gym.graph.schedule import Schedule
from gensor_gym.graph.tables.geometry import power_value, reduce_steps, tensor_bytes
from gensor_gym.graph.tables.layout import SPLIT_K, TENSOR_CORE
from gensor_gym.graph.tables.tables import EPILOGUE_BYTES, ITEM, NUM_READS, THREADS_UNIT
from gensor_gym.operators.types import Operator

BESIDE = {"markov": 0, "ansor": 1}
"""Strategy -> index of its counterpart in the published pairs (Gensor, Ansor)."""


@dataclass(frozen=True)
class Profile:
    """What a profiler would show of a program on a GPU, computed by the model; shares are from 0 to 1."""

    seconds: float
    compute: float
    """Share of the time in which the busier of arithmetic pipes and instruction issue works."""
    memory: float
    """Share of the time in which the busiest of shared memory, L2 and DRAM works."""
    l2_hit: float
    """Share of the bytes requested from L2 that need not be read from DRAM. Writes count as hits, as in a profiler."""
    occupancy: float
    """Threads resident on a multiprocessor, as a share of its capacity."""


def profile_of(op: Operator, found: Found) -> Profile:
    """Return the profile, on an RTX 4090, of the program that a search ended with."""
    return profile(ConstructionGraph(op, MODEL_OF, found.outcome.space), Schedule.parse(found.outcome.schedule))


def profile(graph: ConstructionGraph, schedule: Schedule) -> Profile:
    """Return the profile of a legal schedule on its graph's machine."""
    row, ints = plain(schedule.row), graph.tables.ints
    seconds, terms = graph.latency(schedule), graph.terms(schedule)
    resident = int(resident_blocks(row, ints))
    steps = -(-int(reduce_steps(row, 1, ints)) // int(power_value(row[SPLIT_K])))
    asked, unique, _, _ = traffic_of(row, int(grid_blocks(row, ints)), resident, int(shared_bytes_of(row, ints)), steps, ints)
    out, extra = int(ints[NUM_READS]), float(graph.tables.floats[EPILOGUE_BYTES])
    stretch = float(warp_sectors(row, out, ints)) / int(ints[ITEM + out]) if row[TENSOR_CORE] == 0 else 1.0
    read = unique - float(tensor_bytes(out, ints)) * min(stretch, 2.0)  # `traffic_of` adds the output like this
    return Profile(
        seconds,
        max(terms["arithmetic"], terms["issue"]) / seconds,
        max(terms["staging"], terms["cache"], terms["dram"]) / seconds,
        1.0 - (read + extra) / (asked + extra),
        min(1.0, int(threads_of(row, ints)) * resident / int(ints[THREADS_UNIT])),
    )


def make(config: DictConfig, folder: Path) -> list[Table]:
    """Make the table of the three matrix products; `limit` is their largest number."""
    if MODEL not in tiers_of(config):
        raise ValueError(f"tiers {list(config.tiers)}: Table V is a profile of an RTX 4090 kernel, which is by the model alone")
    searches, trials = Searches(config, folder, MODEL), trials_of(config, MODEL)
    del searches.seeds[1:]  # a profile is of one program
    found = [Contender("markov", 1), Contender("roller", min(10, trials)), Contender("ansor", trials)]
    seed, names = searches.seeds[0], list(published.TABLE_V)[: config.limit]
    ops = {name: operators.resolve_one(f"gensor_table5/{name}") for name in names}
    ended = searches.run(ops.values(), found)
    rows, said = [], []
    for name, op in ops.items():
        for one in found:
            ours = profile_of(op, ended[op, one.name, seed])
            theirs = tuple(pair[BESIDE[one.name]] for pair in published.TABLE_V[name]) if one.name in BESIDE else (None,) * 4
            shares = (100 * ours.compute, 100 * ours.memory, 100 * ours.l2_hit)
            pairs = zip((*shares, 1e3 * ours.seconds), theirs, strict=True)
            cells = tuple(cell for pair in pairs for cell in pair)
            rows.append((f"{op}: {one.name}", *cells, 100 * ours.occupancy))
            if one.name == "markov" and (sentence := _disagreement(str(op), ours, theirs)):
                said.append(sentence)
    columns = (
        "product: strategy", "compute %", "published", "memory busy %", "published", "L2 hit %", "published", "ms", "published",
        "occupancy %",
    )  # fmt: skip
    notes = (*said, *_conditions(trials, seed))
    return [Table("Gensor, Table V: GEMM on an RTX 4090", Stamp.PREDICTED, columns, tuple(rows), notes)]


def _conditions(trials: int, seed: int) -> tuple[str, ...]:
    return (
        f"Ours: the model of an RTX 4090 for what a strategy ends with, seed {seed}; markov its first program, roller its first "
        f"ten, ansor {trials} trials, which the model answers. Compute: the busier of FMA pipes and issue slots over the "
        "latency; memory busy: the busiest of shared memory, L2 and DRAM; L2 hit: bytes asked that need not be read from DRAM, "
        "writes being hits. A profiler counts these otherwise (sectors, replays, address arithmetic, idle clocks): compare the "
        "order, not the numbers.",
        f"Published: Table V of {published.SOURCE} Gensor's stands beside markov, Ansor's beside ansor; Roller is not in it.",
        "The paper gives extents without naming their order; [M, K, N] is assumed, [M, N, K] cannot be excluded.",
    )


def _disagreement(op: str, ours: Profile, theirs: tuple[float | None, ...]) -> str:
    """Return a sentence if the time differs by more than a fifth, or the share of compute by more than half; else empty."""
    compute, _, _, time = theirs
    if time is None or compute is None:
        return ""
    ratio, share = 1e3 * ours.seconds / time, 100 * ours.compute / compute
    said = [f"the model's time is {ratio:.2f} of the published one"] if not 1 / 1.2 <= ratio <= 1.2 else []
    said += [f"its share of compute {share:.2f}"] if not 1 / 1.5 <= share <= 1.5 else []
    if not said:
        return ""
    return (
        f"{op}: {' and '.join(said)}. What may be why: a profiler's compute throughput takes the busiest of all pipes, address "
        "arithmetic and stores among them; the model's bandwidths are those of data sheets and microbenchmarks; the order of the "
        "extents is not certain; and Table V does not agree with the paper's own figure 6 (Ansor over Gensor 1.06 against 1.00)."
    )
