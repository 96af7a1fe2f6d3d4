"""Rows of networks for tables: the settings of their timing, and cells that several tables share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from omegaconf import DictConfig

from agents.runs.sheets.cells import factor, spread
from experiments.benches.networks.suite import Case, Row, Settings, timed
from experiments.comparison.summary import ratio
from gensor_gym.hardware.cpuinfo import usable_cores
from gensor_gym.measure.devices.cpu import processor_name
from gensor_gym.measure.stats.intervals import LEVEL

TRIALS = 2
"""Number of measured programs for each distinct kernel, unless configured."""
MOST_BYTES = 10e9
"""Most memory that all processes of a case may need at once; larger cases are skipped."""
ENOUGH = 10.0
"""Seconds of a case's rounds after which no further round begins, except for the first few."""
LIMIT = 300.0
"""Most seconds for one answer of a side, including its searches; a slower case is left out. MHA_4 at batch 8 takes 100 s."""


def settings_of(config: DictConfig, plan: str) -> Settings:
    """Settings of our side with this plan, from conf/reproduce.yaml.

    ValueError for hardware other than the host, and for several seeds.
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
    """A row for each case, with `error` if it failed. Rows are kept in `folder`, so that a second run resumes."""
    return list(timed(cases, settings_of(config, plan), folder))


def conditions(config: DictConfig, rows: Sequence[Row], plan: str = "cut_all") -> list[str]:
    """Sentences on the timing of our side, and on missing cases with their reasons."""
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
    """Whether a side was timed and its outputs are correct."""
    return side in row.get("times", {}) and side not in row["out_of_bounds"]


def time_of(row: Row, side: str) -> str | None:
    """Text of a side's time with its interval; None if missing or incorrect."""
    return spread(row["times"][side]).text if right(row, side) else None


def over(row: Row, above: str, below: str) -> str | None:
    """Text of the speed of `below` relative to `above`, with its interval; None if missing or incorrect."""
    both = right(row, above) and right(row, below)
    return factor(ratio(row["samples"][above], row["samples"][below])).text if both else None


def fastest(row: Row, sides: Sequence[str]) -> str | None:
    """Name of the fastest side that is available; None if there is none."""
    there = [side for side in sides if right(row, side)]
    return min(there, key=lambda side: float(row["times"][side]["median"]), default=None)


def megabytes(size: float) -> str:
    """Text of a memory size."""
    return f"{size / 1e6:.2f} MB"
