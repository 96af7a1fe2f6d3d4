"""Whole networks beside their peers: `python -m experiments.bench suite=networks` (conf/bench/networks.yaml).

Ours by `agents.networks.compile_module`, called as its users call it, against torch eager, torch.compile with frozen weights and
ONNX Runtime. Each library has a process of its own; all wait while one works, in rounds. Every output is compared with the module
in float64. What is done is kept: a second start with the same settings goes on with the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from omegaconf import DictConfig
from rich.console import Console

from experiments.benches.fused.process import OURS
from experiments.benches.fused.race import CALLED, Lost, raced
from experiments.benches.fused.suite import PACKAGES, version_of
from experiments.benches.lines import Lines, Steal, machine
from experiments.common.journal import Journal
from experiments.common.settings import code_digest, short_hash
from experiments.comparison.summary import interval, ratio
from experiments.sheets.cells import NOTHING, Cell, factor, spread
from experiments.sheets.sheet import Sheet
from gensor_gym.hardware.cpuinfo import usable_cores
from gensor_gym.registry import near

MODULE = "experiments.benches.networks.process"
PROTOCOL = 2
"""Of the timing; raised when it changes, so that networks are timed again."""


def run(config: DictConfig, emit: Lines) -> None:
    """One line for each network, and a table."""
    settings, folder = config.networks, Path(config.output)
    threads = settings.threads or usable_cores()
    _check(settings)
    versions = {package: version_of(package) for package in dict.fromkeys(PACKAGES[name] for name in settings.peers)}
    emit(kind="machine", threads=threads, versions=versions, rounds=settings.rounds, **machine())
    same = {name: settings[name] for name in ("trials", "rounds", "batch", "arena")}
    same |= {"threads": threads, "peers": list(settings.peers), "versions": versions, "code": code_digest(), "seed": config.seed}
    rows: list[dict[str, Any]] = []
    with Journal(folder / "networks" / "done.jsonl", ("key",), finite=True) as done:
        for name in settings.names:
            key = short_hash([PROTOCOL, name, same])
            if key not in done.rows:
                row = _network(name, same, settings.limit_s, folder / "networks" / "inductor")
                if "error" not in row:
                    done.add({"key": key, **row})
            rows.append(row if key not in done.rows else {k: v for k, v in done.rows[key].items() if k != "key"})
            emit(kind="network", **rows[-1])
    if timed_rows := [row for row in rows if "times" in row]:
        sheet(timed_rows, threads).show(Console())


def _check(settings: DictConfig) -> None:
    """ValueError for a network or peer that there is not, and for numbers that are none."""
    from experiments.networks.suite import SUITE  # which imports torch

    for option, known in (("names", list(SUITE)), ("peers", list(PACKAGES))):
        for name in settings[option]:
            if name not in known:
                raise ValueError(f"networks.{option}: {name!r}: expected some of {', '.join(known)}{near(name, known)}")
    for name in ("trials", "rounds", "batch", "threads"):
        value = settings[name]
        if not (type(value) is int and value >= 1) and not (name == "threads" and value is None):
            raise ValueError(f"networks.{name}={value!r}: expected a whole number of 1 or more")


def _network(name: str, same: dict[str, Any], limit: float, cache: Path) -> dict[str, Any]:
    """The line of one network."""
    row: dict[str, Any] = {"network": name, "batch": same["batch"], "threads": same["threads"]}
    asked = {"network": name, **{key: same[key] for key in ("trials", "batch", "arena", "seed", "threads")}}
    steal = Steal()
    try:
        found = raced([OURS, *same["peers"]], asked, same["rounds"], limit, cache, MODULE)
    except Lost as error:
        return {**row, "error": str(error)}
    row |= {"missing": found["missing"], "out_of_bounds": found["out_of_bounds"], **found["answers"][OURS]}
    samples = {side: [*found["samples"][side][CALLED]] for side in found["samples"]}
    row |= {"times": {side: interval(values) for side, values in samples.items()}, "samples": samples}
    row["over"] = {side: ratio(values, samples[OURS]) for side, values in samples.items() if side != OURS}
    return row | {"waiting_busy": found["waiting_busy"], "stolen": steal.share()}


def sheet(rows: Sequence[dict[str, Any]], threads: int) -> Sheet:
    """Times, and how many times ours is as fast as each peer."""
    head = ("network", "kernels", "ours", *PACKAGES, *(f"over {name}" for name in PACKAGES))
    lines = [
        (row["network"], f"{row['kernels']} ({row['distinct']})", *(_time(row, name) for name in (OURS, *PACKAGES)),
         *(factor(row["over"][name]) if name in row["over"] else NOTHING for name in PACKAGES))
        for row in rows
    ]  # fmt: skip
    return Sheet.of(f"networks, batch {rows[0]['batch']}, {threads} thread{'s' * (threads > 1)}", head, lines)


def _time(row: dict[str, Any], name: str) -> Cell:
    return spread(row["times"][name]) if name in row["times"] else NOTHING
