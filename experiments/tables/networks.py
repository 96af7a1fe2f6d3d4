"""Tables of whole networks: compared with libraries (`python -m experiments.reproduce table=networks`), and of oneDNN's paper."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from omegaconf import DictConfig

from agents.runs.sheets.cells import factor, spread
from experiments.benches.fused.race import OURS
from experiments.benches.fused.suite import PACKAGES, versions_of
from experiments.benches.networks.suite import Case, Row, Settings, timed
from experiments.comparison.summary import ratio
from experiments.studies.study import Stamp
from experiments.tables.table import Cell, Table
from gensor_gym.hardware.cpuinfo import usable_cores
from gensor_gym.measure.devices.cpu import processor_name
from gensor_gym.measure.stats.intervals import LEVEL
from gensor_gym.networks.fusion.rules import PLANS

NETWORKS = ("mobilenet_v2", "resnet34", "resnet50", "bert", "gpt2")
NOTE = (
    "Published figures of these networks are of GPUs and of batches that are not public: none is comparable. BERT and GPT-2 "
    "whole, at 128 tokens; random weights of a fixed seed."
)
PLAN = "fine"
"""Name of the default fusion plan of `gensor_gym.compile`."""


def make_networks(config: DictConfig, folder: Path) -> list[Table]:
    """Make the table of networks; `limit` is their largest number."""
    rows = rows_of(config, folder, [Case(name, 1, tuple(PACKAGES)) for name in NETWORKS[: config.limit]], PLAN)
    columns = ("network", "ours", *PACKAGES, *(f"over {name}" for name in PACKAGES))
    cells = [
        (row["network"], time_of(row, OURS), *(time_of(row, name) for name in PACKAGES),
         *(over(row, name, OURS) for name in PACKAGES))
        for row in rows
    ]  # fmt: skip
    versions = ", ".join(f"{package} {version}" for package, version in versions_of(PACKAGES).items())
    notes = (*conditions(config, rows, PLAN), f"{versions}; inductor is torch.compile with frozen weights.", NOTE)
    return [Table("Networks compared with libraries, batch 1", Stamp.REPLICATED, columns, tuple(cells), notes)]


# Rows of networks for tables: the settings of their timing, and cells that several tables share.

TRIALS = 2
"""Number of programs that are measured for each distinct kernel, unless it is configured."""
MOST_BYTES = 10e9
"""Limit on the bytes of memory that all processes of a case may need at once; larger cases are skipped."""
ENOUGH = 10.0
"""Seconds of a case's rounds after which no further round begins, except for the first few."""
LIMIT = 300.0
"""Limit in seconds on one answer of a library's process, including its searches; slower cases are left out.

MHA_4 at batch 8 takes 100 s.
"""


def settings_of(config: DictConfig, plan: str) -> Settings:
    """Return the settings of our compiler for a fusion plan, from conf/reproduce.yaml.

    Raise ValueError for hardware other than the host, and for several seeds.
    """
    if config.hardware != "host":
        raise ValueError(f"hardware={config.hardware}: networks are timed on this machine, expected host")
    if len(config.seeds) != 1:
        raise ValueError(f"seeds={list(config.seeds)}: networks are timed with one seed, expected one")
    trials = TRIALS if config.trials is None else config.trials
    return Settings(
        trials, config.rounds, usable_cores(), plan, config.seeds[0], limit_s=LIMIT, enough_s=ENOUGH, most_bytes=MOST_BYTES
    )


def rows_of(config: DictConfig, folder: Path, cases: Iterable[Case], plan: str = "cut_all") -> list[Row]:
    """Time each case and return its row, which has an `error` if it failed.

    Rows are kept in `folder`, so that a second run resumes.
    """
    return list(timed(cases, settings_of(config, plan), folder))


def conditions(config: DictConfig, rows: Sequence[Row], plan: str = "cut_all") -> list[str]:
    """Return sentences about how our networks were timed, and about missing cases with the reasons."""
    how = settings_of(config, plan)
    threads = f"{how.threads} thread{'s' * (how.threads > 1)}"
    notes = [
        f"Ours: plan {how.plan}, {processor_name()}, {threads}, float32, {how.trials} measured program{'s' * (how.trials > 1)} "
        f"for each distinct kernel, median of {how.rounds} interleaved rounds (fewer where they take long) with its "
        f"{LEVEL} interval, a process for each side, every output compared with the module in float64."
    ]
    busy = [row["waiting_busy"] for row in rows if "waiting_busy" in row]
    if busy and max(busy) > 0.02:
        notes.append(f"Sides that waited took up to {max(busy):.0%} of a core: the machine was not quiet.")
    for row in rows:
        case = f"{row['network']}, batch {row['batch']}"
        notes += [f"Left out: {case}: {row['error']}."] if "error" in row else []
        notes += [f"Missing: {side} of {case}: {why}." for side, why in row.get("missing", {}).items()]
        notes += [f"Wrong, and not shown: {side} of {case}: {why}." for side, why in row.get("out_of_bounds", {}).items()]
    return notes


def right(row: Row, side: str) -> bool:
    """Return whether a library was timed in this row and its outputs are correct."""
    return side in row.get("times", {}) and side not in row["out_of_bounds"]


def time_of(row: Row, side: str) -> str | None:
    """Return the text of a library's time with its interval; None if it is missing or its outputs are wrong."""
    return spread(row["times"][side]).text if right(row, side) else None


def over(row: Row, above: str, below: str) -> str | None:
    """Return the text of the speed of `below` relative to `above`, with its interval; None if one is missing or wrong."""
    both = right(row, above) and right(row, below)
    return factor(ratio(row["samples"][above], row["samples"][below])).text if both else None


def fastest(row: Row, sides: Sequence[str]) -> str | None:
    """Return the name of the fastest of the libraries that were timed and are correct; None if there is none."""
    there = [side for side in sides if right(row, side)]
    return min(there, key=lambda side: float(row["times"][side]["median"]), default=None)


def megabytes(size: float) -> str:
    """Format a number of bytes in megabytes."""
    return f"{size / 1e6:.2f} MB"


# Effect of reusing the memory between kernels: `python -m experiments.reproduce table=onednn_memory`.
#
# The modes are those of oneDNN Graph Compiler's buffer planner: no reuse, whole reuse, and hot memory first, its default. Its
# authors print no figures.

MEMORY_NETWORKS = ("mobilenet_v2", "resnet50", "bert", "gpt2")
MODES = {"none": f"{OURS}/cut_all/none", "whole": f"{OURS}/cut_all/whole", "hot": OURS}
"""Mode of reusing memory -> name of the timed process that uses it."""
MEMORY_NOTES = (
    "None: a place of its own for every value, the same at every call, in memory that was touched before; a call pays for "
    "caches, not for fresh pages. Whole: as small as can be. Hot: of the same size, where memory was read last.",
    "Bound: what the kernel that needs most needs at once; no arena is smaller.",
)


def make_onednn_memory(config: DictConfig, folder: Path) -> list[Table]:
    """Make the table of memory between kernels; `limit` is the largest number of networks."""
    cases = [Case(name, 1, (MODES["none"], MODES["whole"])) for name in MEMORY_NETWORKS[: config.limit]]
    rows = rows_of(config, folder, cases)
    columns = (
        "network", "none", "whole", "hot", "hot over none", "hot over whole", *(f"bytes, {mode}" for mode in MODES), "bound",
        "hot over bound",
    )  # fmt: skip
    notes = (*conditions(config, rows), *MEMORY_NOTES)
    return [Table("Memory between kernels used again", Stamp.REPLICATED, columns, tuple(map(_memory_row, rows)), notes)]


def _memory_row(row: Row) -> tuple[Cell, ...]:
    times = [time_of(row, side) for side in MODES.values()]
    ratios = [over(row, MODES[mode], MODES["hot"]) for mode in ("none", "whole")]
    if "error" in row:
        return row["network"], *times, *ratios, None, None, None, None, None
    facts = {**row["sides"], OURS: row}
    sizes = [megabytes(facts[side]["arena_bytes"]) if time_of(row, side) else None for side in MODES.values()]
    least = row["least_arena_bytes"]
    return row["network"], *times, *ratios, *sizes, megabytes(least), row["arena_bytes"] / least


# oneDNN Graph Compiler's MHA, float32, under three plans: no fusion, fine-grain fusion, and coarse-grain fusion in addition.
#
# Run it by `python -m experiments.reproduce table=onednn_mha`. `onednn_mlp` has the same columns. Published values are
# speed-ups over oneDNN's primitives with post-ops (Li et al., arXiv 2301.01333, charts of the RFC in oneDNN's repository),
# measured from the pictures, to about 0.02. The authors used 32 cores of a CPU that the charts do not name, and benchdnn with
# one thread per core.

PLAN_SIDES = {"cut_all": OURS, "fine": f"{OURS}/fine/hot", "fine_coarse": f"{OURS}/fine_coarse/hot"}
"""Fusion plan -> name of the timed process that uses it.

The plans are primitives with post-ops, fine-grain fusion, and coarse-grain fusion in addition.
"""
PEER = "inductor"
Published = Mapping[str, Mapping[int, tuple[float, float] | None]]
"""Network -> batch size -> published speed-ups (fine, fine and coarse), or None if nothing is published."""
MHA: Published = {
    "mha_1": {32: (1.16, 1.30), 64: (1.03, 1.28), 128: (1.24, 1.62)},
    "mha_2": {32: (1.30, 1.60), 64: (1.11, 1.48), 128: (1.28, 1.86)},
    "mha_3": {8: None, 32: (1.44, 1.82), 64: (1.32, 1.68), 128: (1.38, 1.76)},
    "mha_4": {8: None, 32: (1.64, 2.55), 64: (1.82, 2.84), 128: (2.17, 3.34)},
}
MHA_NOTES = (
    "Heads lie side by side in rows here, [batch, rows, hidden], as networks have them; in the published graphs they are apart "
    "before, [batch, heads, rows, size], and side by side after.",
    "Of batch 8 nothing is published.",
)
PRINTED = (
    "Published: oneDNN Graph Compiler on 32 cores, over oneDNN's primitives with post-ops; of this, too, ratios compare, times "
    "do not: one of two gains of coarse fusion, fewer barriers, is nearly nothing on one or two threads."
)


def make_onednn_mha(config: DictConfig, folder: Path) -> list[Table]:
    """Make the table of MHA graphs; `limit` is the largest number of batch sizes of each network."""
    return table_of("MHA", MHA, config, folder, MHA_NOTES)


def table_of(kind: str, published: Published, config: DictConfig, folder: Path, notes: tuple[str, ...] = ()) -> list[Table]:
    """Make a table with a row for each network and batch size, with at most `limit` batch sizes per network.

    `kind` is for the title, and `published` has the published speed-ups.
    """
    there = [name for name in PLAN_SIDES if name in PLANS]
    sides = tuple(PLAN_SIDES[name] for name in there if name != "cut_all")
    chosen = [(network, batch) for network, batches in published.items() for batch in list(batches)[: config.limit]]
    rows = rows_of(config, folder, [Case(network, batch, (*sides, PEER)) for network, batch in chosen])
    columns = (
        "graph", "batch", "cut everywhere", "fine", "published", "fine, coarse", "published ", "torch.compile", "ours over it",
    )  # fmt: skip
    missing = [name for name in PLAN_SIDES if name not in there]
    absent = (f"No plan of the name {' or '.join(missing)} is there: its series is empty.",) if missing else ()
    cells = tuple(_plan_row(row, published[row["network"]][row["batch"]]) for row in rows)
    title = f"oneDNN Graph Compiler's {kind}, float32: speed over primitives with post-ops"
    return [Table(title, Stamp.REPLICATED, columns, cells, (*conditions(config, rows), *absent, *notes, PRINTED))]


def _plan_row(row: Row, published: tuple[float, float] | None) -> tuple[Cell, ...]:
    """Return the row of a case: times unfused and of torch.compile, speed-ups over unfused, best plan over torch.compile."""
    fine, coarse = (over(row, OURS, PLAN_SIDES[name]) for name in ("fine", "fine_coarse"))
    best = fastest(row, list(PLAN_SIDES.values()))
    beside = None if best is None else over(row, PEER, best)
    first, second = published or (None, None)
    return row["network"], str(row["batch"]), time_of(row, OURS), fine, first, coarse, second, time_of(row, PEER), beside


# oneDNN Graph Compiler's MLP, float32: `python -m experiments.reproduce table=onednn_mlp`. See `onednn_mha`.

MLP = {
    "mlp_1": {32: (1.37, 1.58), 64: (1.27, 1.39), 128: (1.13, 1.36), 256: (1.17, 1.27), 512: (1.53, 1.85)},
    "mlp_2": {32: (0.96, 1.00), 64: (0.96, 1.06), 128: (0.91, 1.00), 256: (0.94, 1.01), 512: (1.01, 1.01)},
}


def make_onednn_mlp(config: DictConfig, folder: Path) -> list[Table]:
    """Make the table of MLP graphs; `limit` is the largest number of batch sizes of each network."""
    return table_of("MLP", MLP, config, folder)
