"""Are the plans that the model prefers the fastest? `python -m experiments.reproduce table=plans_measured output=results/plans`.

Each network and number of threads has a process (`experiments.networks.ranks`), which compiles its plans with `trials` programs
for each kernel (1 if null), and times them in turn. `limit` caps the networks. A second start resumes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from omegaconf import DictConfig

from agents.runs.files import make_folder, write_text
from agents.runs.settings import code_digest
from experiments.common.statistics import spearman
from experiments.comparison.summary import Interval, ratio
from experiments.networks.ranks import NETWORKS, RANDOM, RANKS
from experiments.studies.study import Stamp
from experiments.tables.table import Cell, Table
from gensor_gym.foreign import parse_object
from gensor_gym.hardware.cpuinfo import usable_cores
from gensor_gym.measure.devices.cpu import processor_name

THREADS = (1, 2)
TRIALS = 1
LIMIT = 300.0
"""Seconds after which a network's process is stopped; its row then says so."""
SLOWER, WORST = 1.02, 12
"""A plan is slower if the whole interval of its time over that of `fine` is above SLOWER. Pieces listed where the model errs."""
Row = dict[str, Any]


def make(config: DictConfig, folder: Path) -> list[Table]:
    """The measured plans of each network, and the pieces whose predicted and measured times differ most."""
    make_folder(folder / "plans_measured")
    threads = [count for count in THREADS if count <= usable_cores()]
    rows = [
        _row(name, count, config.trials or TRIALS, config.rounds, folder / "plans_measured")
        for count in threads for name in list(NETWORKS)[: config.limit]
    ]  # fmt: skip
    notes = (
        f"{processor_name()}; plans compiled by {config.trials or TRIALS} programs for each kernel and timed in turn, warm, "
        f"{config.rounds} rounds, seconds of a call of the whole network. Intervals of 95 % are of the median paired ratio.",
        "over fine: time over that of `fine`, below 1 is faster; `=`: the same plan. rank r: the r-th cheapest of all "
        f"plans by the model, rank 1 the optimum. random: the mean of {RANDOM} plans of random decisions. Spearman: of predicted "
        "and measured seconds of all distinct plans.",
        _verdict(rows),
    )
    columns = ("network", "threads", "fine ms", *(f"rank {rank} over fine" for rank in RANKS), "random over fine", "Spearman")
    table = Table("Measured plans", Stamp.REPLICATED, columns, tuple(map(_cells, rows)), notes)
    return [table, _pieces(rows)]


def _row(name: str, threads: int, trials: int, rounds: int, folder: Path) -> Row:
    """Row of a network's process, from its file if the code is the same; `error` says why there are no times."""
    path = folder / f"{name}_{threads}.json"
    if path.exists() and (known := parse_object(path.read_text("utf-8"))).get("code") == [code_digest(), trials, rounds]:
        return known
    try:
        done = asked(name, threads, trials, rounds)
    except subprocess.TimeoutExpired:
        return {"network": name, "threads": threads, "error": f"stopped after {LIMIT:g} s"}
    if done.returncode != 0:
        return {"network": name, "threads": threads, "error": " ".join(done.stderr.strip().splitlines()[-1:])}
    row: Row = parse_object(done.stdout.strip().splitlines()[-1])
    write_text(path, json.dumps({**row, "code": [code_digest(), trials, rounds]}))
    return row


def asked(name: str, threads: int, trials: int, rounds: int) -> subprocess.CompletedProcess[str]:
    """The ended process of a network; TimeoutExpired after `LIMIT`."""
    command = [sys.executable, "-m", "experiments.networks.ranks", name, str(trials), str(rounds)]
    environment = {**os.environ, "GENSOR_GYM_THREADS": str(threads)}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=LIMIT, check=False)


def over_fine(row: Row, plan: str) -> Interval | None:
    """Time of a plan over that of `fine`; None if it is not timed, or is the plan `fine`."""
    texts = {name: one["text"] for name, one in row["plans"].items()}
    if plan not in texts or texts[plan] == texts["fine"]:
        return None
    return ratio(row["samples"][texts[plan]], row["samples"][texts["fine"]])


def _cells(row: Row) -> tuple[Cell, ...]:
    if "error" in row or row["faults"]:
        return (row["network"], float(row["threads"]), str(row.get("error") or row["faults"]), *[None] * (len(RANKS) + 2))
    randoms = [found for seed in range(RANDOM) if (found := over_fine(row, f"random {seed}")) is not None]
    texts = {one["text"]: one["predicted_s"] for one in row["plans"].values()}
    measured = [float(np.median(row["samples"][text])) for text in texts]
    rank = spearman(np.array(list(texts.values())), np.array(measured)) if len(texts) > 2 else None
    return (
        row["network"], float(row["threads"]), 1e3 * float(np.median(row["samples"][row["plans"]["fine"]["text"]])),
        *(_text(row, f"rank {rank}") for rank in RANKS),
        float(np.mean([found["median"] for found in randoms])) if randoms else None, rank,
    )  # fmt: skip


def _text(row: Row, plan: str) -> str | None:
    if plan not in row["plans"]:
        return None
    found = over_fine(row, plan)
    return "=" if found is None else f"{found['median']:.3f} [{found['low']:.3f}, {found['high']:.3f}]"


def _verdict(rows: Sequence[Row]) -> str:
    timed = [row for row in rows if "error" not in row and not row["faults"]]
    found = [one for row in timed if (one := over_fine(row, "rank 1")) is not None]
    faster, slower = sum(one["high"] < 1 for one in found), sum(one["low"] > SLOWER for one in found)
    return (
        f"The optimum by the model is the plan `fine` in {len(timed) - len(found)} of {len(timed)} rows; in the others it is "
        f"faster in {faster}, and slower by more than {100 * (SLOWER - 1):.0f} % in {slower}."
    )


def _pieces(rows: Sequence[Row]) -> Table:
    """Pieces by the seconds by which measured and predicted time differ, relative to the time of the network under `fine`."""
    lines: list[tuple[float, tuple[Cell, ...]]] = []
    for row in rows:
        if "error" in row or row["faults"]:
            continue
        whole = float(np.median(row["samples"][row["plans"]["fine"]["text"]]))
        for text, (predicted, measured) in row["pieces"].items():
            named = text if len(text) <= 60 else f"{text[:57]}.."
            off = abs(measured - predicted) / whole
            cells = named, 1e6 * predicted, 1e6 * measured, measured / predicted, 100 * off
            lines.append((off, (row["network"], float(row["threads"]), *cells)))
    worst = [cells for _, cells in sorted(lines, key=lambda line: -line[0])[:WORST]]
    columns = ("network", "threads", "piece", "predicted us", "measured us", "measured over predicted", "% of the network")
    notes = ("Measured: the kernel alone, the fastest of its trials, so a little optimistic. Predicted: the piece's price.",)
    return Table("Pieces at which the model errs most", Stamp.REPLICATED, columns, tuple(worst), notes)
