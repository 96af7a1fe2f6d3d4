"""Whole networks compared with other libraries: `python -m experiments.bench suite=networks` (conf/bench.yaml).

Our network from `agents.modules.compile_module`, called as its users call it, is compared with torch eager, torch.compile with
frozen weights and ONNX Runtime. Each library has its own process; one works at a time, in rounds. Every output is compared with
the module in float64. A second start with the same settings resumes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from omegaconf import DictConfig
from rich.console import Console

from agents.cli.checks import check_some, check_whole
from agents.quality import QUALITIES
from agents.runs.journal import Journal
from agents.runs.settings import code_digest, short_hash
from agents.runs.sheets.cells import NOTHING, factor, spread
from agents.runs.sheets.sheet import Sheet
from experiments.benches.fused.race import CALLED, OURS, Lost, raced
from experiments.benches.fused.suite import HEADLINE, PACKAGES, geometric_mean, versions_of
from experiments.benches.lines import Lines, Steal, avx2, check_each, machine, once
from experiments.benches.networks.qualities import sheet as quality_sheet
from experiments.benches.networks.qualities import timed_qualities
from experiments.comparison.summary import interval, ratio
from gensor_gym.dataflow.expressions import INT8
from gensor_gym.dataflow.nodes import HALVES
from gensor_gym.hardware.cpuinfo import usable_cores
from gensor_gym.registry import check_known

# Networks timed against peers, case by case. A second start with the same settings resumes.

MODULE = "experiments.benches.networks.process"
PEERS = {**PACKAGES, "openvino": "openvino"}
"""Library -> the package that it needs."""
PROTOCOL = 3
"""Version of the timing procedure; it is raised with each change, so that networks are timed again."""
_OF_RACE = ("limit_s", "rounds", "enough_s", "most_bytes")
"""Settings about the race of libraries, which are not sent to the libraries' processes."""
Row = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """One comparison: a network of `experiments.networks.suite`, a batch size, and the sides that it is compared with.

    A side is a library, or `ours/PLAN/ARENA` for our compiler with another plan and memory layout.
    """

    network: str
    batch: int
    sides: tuple[str, ...]


@dataclass(frozen=True)
class Settings:
    """Settings of the timing and of our compiler that all cases share; conf/bench.yaml explains them."""

    trials: int
    rounds: int
    threads: int
    plan: str
    """Fusion plan of our compiler: the name of a rule in `gensor_gym.networks.fusion.rules`."""
    seed: int = 0
    arena: str = "hot"
    dtype: str = "float32"
    """Data type of weights and inputs."""
    limit_s: float = 3600.0
    enough_s: float = float("inf")
    """Seconds after which no further round begins, except the first few rounds."""
    most_bytes: float = float("inf")
    """Limit on the bytes of memory that all processes of a case may need at once; a larger case fails with an `error`."""


def timed(cases: Iterable[Case], settings: Settings, folder: Path) -> Iterator[Row]:
    """Time each case and yield its result row; finished rows are kept in `folder` and not timed again.

    The row of a failed case has an `error`, and the next run times it again.
    """
    same = {name: value for name, value in asdict(settings).items() if name != "limit_s"} | avx2()
    with Journal(folder / "networks" / "done.jsonl", ("key",), finite=True) as done:
        for case in cases:
            key = short_hash([PROTOCOL, asdict(case), str(same), versions_of(case.sides, PEERS), code_digest()])
            yield once(done, key, _timed, case, settings, folder / "networks" / "inductor")


def _timed(case: Case, settings: Settings, cache: Path) -> Row:
    row: Row = {"network": case.network, "batch": case.batch, "threads": settings.threads}
    row |= {"dtype": settings.dtype} if settings.dtype != "float32" else {}
    asked = {name: value for name, value in asdict(settings).items() if name not in _OF_RACE}
    most = settings.most_bytes / (1 + len(case.sides))
    asked |= {"network": case.network, "batch": case.batch, "most_bytes": most if most < float("inf") else None}
    steal = Steal()
    try:
        sides = [OURS, *case.sides]
        found = raced(sides, asked, settings.rounds, settings.limit_s, cache, MODULE, settings.enough_s)
    except Lost as error:
        return {**row, "error": str(error)}
    row |= {"missing": found["missing"], "out_of_bounds": found["out_of_bounds"], **found["answers"].pop(OURS)}
    row["sides"] = {side: facts for side, facts in found["answers"].items() if facts}
    samples = {side: [*ways[CALLED]] for side, ways in found["samples"].items()}
    row |= {"times": {side: interval(values) for side, values in samples.items()}, "samples": samples}
    row["over"] = {side: ratio(values, samples[OURS]) for side, values in samples.items() if side != OURS}
    if peers := [side for side in row["over"] if side in PEERS]:
        row["best"] = min(peers, key=lambda side: row["times"][side]["median"])
        row[HEADLINE] = row["over"][row["best"]]
    return row | {"waiting_busy": found["waiting_busy"], "stolen": steal.share()}


def run(config: DictConfig, emit: Lines) -> None:
    """Compare each network in all libraries, or compile it at each quality; emit a line for each and show a table."""
    settings = config.networks
    names = checked_names(settings, "networks")
    check_each(settings, "peers", PEERS, "networks")
    check_known("dtype", settings.dtype, ("float32", *HALVES, INT8))
    check_whole(settings, 1, "trials", "rounds", "batch", "threads", of="networks.", null=("threads",))
    same = {name: settings[name] for name in ("trials", "rounds", "plan", "arena", "dtype", "limit_s")}
    how = Settings(**same, threads=settings.threads or usable_cores(), seed=config.seed)
    emit(kind="machine", threads=how.threads, versions=versions_of(settings.peers, PEERS), rounds=how.rounds, **machine())
    if settings.qualities:
        _by_quality(names, settings, how, emit)
        return
    rows: list[dict[str, Any]] = []
    for row in timed([Case(name, settings.batch, tuple(settings.peers)) for name in names], how, Path(config.output)):
        rows.append(row)
        emit(kind="network", **row)
    if timed_rows := [row for row in rows if HEADLINE in row]:
        emit(kind="all", threads=how.threads, **overall(timed_rows))
        sheet(timed_rows, how.threads, emit.rows[-1]).show(Console())


def overall(rows: Sequence[Row]) -> Row:
    """Summarise all networks: our geometric mean speed-up over the fastest library for each, and the least speed-up."""
    rounds = min(len(samples) for row in rows for samples in row["samples"].values())
    ratios = [
        [peer / ours for peer, ours in zip(row["samples"][row["best"]][:rounds], row["samples"][OURS][:rounds], strict=True)]
        for row in rows
    ]
    least = min(rows, key=lambda row: row[HEADLINE]["median"])
    return {"networks": len(rows), HEADLINE: geometric_mean(ratios), "least": {"network": least["network"], **least[HEADLINE]}}


def _by_quality(names: list[str], settings: DictConfig, how: Settings, emit: Lines) -> None:
    """Compile each network from nothing at each quality; emit a line for each and show a table. Such a run cannot be resumed."""
    check_each(settings, "qualities", QUALITIES, "networks")
    rows = []
    for name in names:
        asked = {key: value for key, value in asdict(how).items() if key not in _OF_RACE}
        asked |= {"network": name, "batch": settings.batch}
        row = timed_qualities(asked, list(settings.qualities), how.rounds, how.limit_s)
        emit(kind="qualities", **row)
        rows += [row] if "times" in row else []
    if rows:
        quality_sheet(rows, list(settings.qualities)).show(Console())


def checked_names(settings: DictConfig, suite: str) -> list[str]:
    """Return the networks that the settings name; raise ValueError if one of them or the plan is unknown."""
    from experiments.networks.suite import every, workload_of  # which imports torch
    from gensor_gym.networks.fusion.rules import PLANS

    check_some(settings, "names", of=f"{suite}.")
    names = every(settings.names)
    for name in names:
        workload_of(name)
    check_known("plan", settings.plan, PLANS)
    return names


def sheet(rows: Sequence[dict[str, Any]], threads: int, over_all: Row) -> Sheet:
    """Return a table of each network's times, and of our speed-up over each other library; `over_all` is the row of `overall`."""
    peers = [name for name in PEERS if any(name in row["over"] for row in rows)]
    head = ("network", "kernels", "ours", *peers, *(f"over {name}" for name in peers), "over best")
    lines = [
        (row["network"], f"{row['kernels']} ({row['distinct']})",
         *(spread(row["times"][name]) if name in row["times"] else NOTHING for name in (OURS, *peers)),
         *(factor(row["over"][name]) if name in row["over"] else NOTHING for name in peers), factor(row[HEADLINE]))
        for row in rows
    ]  # fmt: skip
    kind = rows[0].get("dtype", "float32")
    title = f"networks, {kind}, batch {rows[0]['batch']}, {threads} thread{'s' * (threads > 1)}"
    least = over_all["least"]
    mean = f"{factor(over_all[HEADLINE]).text} in the geometric mean, least {factor(least).text} ({least['network']})"
    return Sheet.of(title, head, lines, [f"over the fastest library for each network: {mean}"])
