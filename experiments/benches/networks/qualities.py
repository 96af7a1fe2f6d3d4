"""Compile times and call times of networks by quality: `networks.qualities=[fast,balanced,best]` of `suite=networks`.

Each quality of `gensor_gym.compile` compiles in a process of its own with an empty cache, so that the seconds include the
measurement of the machine. torch.compile with frozen weights also begins with an empty cache. Then calls are timed in rounds, as
in a comparison of libraries.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agents.quality import QUALITIES
from agents.runs.sheets.cells import NOTHING, factor, seconds, spread
from agents.runs.sheets.sheet import Sheet
from experiments.benches.fused.race import CALLED, OURS, Lost, raced
from experiments.comparison.summary import interval, ratio

MODULE = "experiments.benches.networks.process"
PEER = "inductor"


def sides_of(qualities: Sequence[str]) -> dict[str, str]:
    """Return the name of each quality's process in the race; that of the last quality is `ours`."""
    return {quality: OURS if quality == qualities[-1] else f"{OURS}/{quality}" for quality in qualities}


def quality_of(name: str, asked: dict[str, Any]) -> str | None:
    """Return the quality at which the process `name` compiles; None if the race does not compare qualities."""
    _, _, way = name.partition("/")
    return way if way in QUALITIES else asked.get("quality")


def timed_qualities(asked: dict[str, Any], qualities: Sequence[str], rounds: int, limit: float) -> dict[str, Any]:
    """Compile a network at each quality and by torch.compile, time the calls, and return a row; on failure it has an `error`."""
    row = {name: asked[name] for name in ("network", "batch", "threads", "dtype")}
    sides = sides_of(qualities)
    with tempfile.TemporaryDirectory(prefix="gensor_gym_qualities_") as folder:
        wanted = {**asked, "quality": qualities[-1], "folder": folder}
        try:
            found = raced([*sides.values(), PEER], wanted, rounds, limit, Path(folder) / PEER, MODULE)
        except Lost as error:
            return {**row, "error": str(error)}
    samples = {side: [*ways[CALLED]] for side, ways in found["samples"].items()}
    named = {**sides, PEER: PEER} if PEER in samples else sides
    return row | {
        "missing": found["missing"], "out_of_bounds": found["out_of_bounds"], "waiting_busy": found["waiting_busy"],
        "compiled_s": {name: found["answers"][side]["compiled_s"] for name, side in named.items()},
        "times": {name: interval(samples[side]) for name, side in named.items()},
        "over_peer": {name: ratio(samples[PEER], samples[side]) for name, side in sides.items() if PEER in samples},
        "over_best": {name: ratio(samples[OURS], samples[side]) for name, side in sides.items()},
    }  # fmt: skip


def sheet(rows: Sequence[dict[str, Any]], qualities: Sequence[str]) -> Sheet:
    """Return the table of compile times, call times, and speed-ups over torch.compile and over the last quality."""
    names = (*qualities, PEER)
    head = (
        "network", *(f"{name} compiles" for name in names), *(f"{name} call" for name in names),
        *(f"{name} over {PEER}" for name in qualities), *(f"{name} over {qualities[-1]}" for name in qualities[:-1]),
    )  # fmt: skip
    lines = [
        (row["network"],
         *(seconds(row["compiled_s"].get(name)) for name in names),
         *(spread(row["times"][name]) if name in row["times"] else NOTHING for name in names),
         *(factor(row["over_peer"][name]) if name in row["over_peer"] else NOTHING for name in qualities),
         *(factor(row["over_best"][name]) for name in qualities[:-1]))
        for row in rows
    ]  # fmt: skip
    threads = rows[0]["threads"]
    title = f"compiled from nothing, {rows[0]['dtype']}, batch {rows[0]['batch']}, {threads} thread{'s' * (threads > 1)}"
    return Sheet.of(title, head, lines)
