"""Whole networks compared with their peers: `python -m experiments.bench suite=networks` (conf/bench.yaml).

Our network from `agents.networks.compile_module`, called as its users call it, is compared with torch eager, torch.compile with
frozen weights and ONNX Runtime. Each library has its own process; one works at a time, in rounds. Every output is compared with
the module in float64. A second start with the same settings resumes.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from omegaconf import DictConfig
from rich.console import Console

from agents.cli.checks import check_some, check_whole
from agents.runs.sheets.cells import NOTHING, factor, spread
from agents.runs.sheets.sheet import Sheet
from experiments.benches.fused.process import OURS
from experiments.benches.fused.suite import PACKAGES, versions_of
from experiments.benches.lines import Lines, check_each, machine
from experiments.benches.networks.cases import Case, Settings, timed
from gensor_gym.dataflow.nodes import HALVES
from gensor_gym.hardware.cpuinfo import usable_cores
from gensor_gym.registry import check_known


def run(config: DictConfig, emit: Lines) -> None:
    """Emit one line for each network and show a table."""
    settings = config.networks
    check_names(settings, "networks")
    check_each(settings, "peers", PACKAGES, "networks")
    check_known("dtype", settings.dtype, ("float32", *HALVES))
    check_whole(settings, 1, "trials", "rounds", "batch", "threads", of="networks.", null=("threads",))
    same = {name: settings[name] for name in ("trials", "rounds", "plan", "arena", "dtype", "limit_s")}
    how = Settings(**same, threads=settings.threads or usable_cores(), seed=config.seed)
    emit(kind="machine", threads=how.threads, versions=versions_of(settings.peers), rounds=how.rounds, **machine())
    rows: list[dict[str, Any]] = []
    for row in timed([Case(name, settings.batch, tuple(settings.peers)) for name in settings.names], how, Path(config.output)):
        rows.append(row)
        emit(kind="network", **row)
    if timed_rows := [row for row in rows if "times" in row]:
        sheet(timed_rows, how.threads).show(Console())


def check_names(settings: DictConfig, suite: str) -> None:
    """Check the settings' networks and plan; ValueError for an unknown one."""
    from experiments.networks.suite import SUITE  # which imports torch
    from gensor_gym.networks.fusion.rules import PLANS

    check_some(settings, "names", of=f"{suite}.")
    check_each(settings, "names", SUITE, suite)
    check_known("plan", settings.plan, PLANS)


def sheet(rows: Sequence[dict[str, Any]], threads: int) -> Sheet:
    """Table of times, and of our speed-up over each peer."""
    head = ("network", "kernels", "ours", *PACKAGES, *(f"over {name}" for name in PACKAGES))
    lines = [
        (row["network"], f"{row['kernels']} ({row['distinct']})",
         *(spread(row["times"][name]) if name in row["times"] else NOTHING for name in (OURS, *PACKAGES)),
         *(factor(row["over"][name]) if name in row["over"] else NOTHING for name in PACKAGES))
        for row in rows
    ]  # fmt: skip
    kind = rows[0].get("dtype", "float32")
    return Sheet.of(f"networks, {kind}, batch {rows[0]['batch']}, {threads} thread{'s' * (threads > 1)}", head, lines)
