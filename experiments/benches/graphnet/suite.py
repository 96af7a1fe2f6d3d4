"""Graphs of GraphNet compiled, verified and timed: `gensor bench suite=graphnet graphnet.repository=CLONE` (conf/bench.yaml).

Each graph has a process of its own for each compiler, with a limit of seconds and memory. Several compile at once; while one
times calls, the others are stopped. A second start with the same settings resumes; with a longer limit, slow graphs are tried
again. After a change of our code, torch.compile's rows are kept. The programs of the graphs run with the rights of the user.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from agents.cli.checks import check_whole
from agents.quality import QUALITIES
from agents.runs.files import write_text
from agents.runs.journal import Journal
from agents.runs.processes import run_group
from agents.runs.settings import code_digest, short_hash
from experiments.benches.graphnet.alone import resume
from experiments.benches.graphnet.graphs import NotBuilt, git, names, read
from experiments.benches.graphnet.scores import figure, page
from experiments.benches.lines import Lines, machine, once
from gensor_gym.foreign import read_json
from gensor_gym.hardware.cpuinfo import THREADS
from gensor_gym.registry import check_known

MODULE = "experiments.benches.graphnet.process"
PROTOCOL = 2
"""Version of the procedure; it is raised with each change, so that graphs are tried again."""
OURS, INDUCTOR = "ours", "inductor"
AHEAD = 3
"""Number of graphs, for each that runs at once, that have begun or wait, so that a slow one does not make others wait."""
LAST = 300
"""Number of last characters of a process's log that its row quotes."""
Rows = dict[str, dict[str, Any]]


@dataclass(frozen=True)
class Settings:
    """What the rows of graphs depend on; conf/bench.yaml explains the fields."""

    repository: str
    quality: str
    threads: int
    at_once: int
    rounds: int
    torch_s: float
    memory_gb: float
    limit_s: float
    seed: int


def run(config: DictConfig, emit: Lines) -> None:
    """Try graphs until enough are done or the time is over; emit a line for each, and write the page and its figure.

    Without a repository, `suite=all` leaves this suite out. ValueError for a setting that is not valid.
    """
    settings = config.graphnet
    if settings.repository is None and config.suite == "all":
        return
    check_known("quality", settings.quality, QUALITIES)
    check_whole(settings, 1, "graphs", "threads", "at_once", "most_weights", of="graphnet.")
    check_whole(settings, 0, "rounds", of="graphnet.")
    same = {name: settings[name] for name in ("quality", "threads", "at_once", "rounds", "torch_s", "memory_gb", "limit_s")}
    how = Settings(str(Path(str(settings.repository)).absolute()), **same, seed=config.seed)
    sides = (OURS, INDUCTOR) if settings.inductor else (OURS,)
    commit = git(Path(how.repository), "rev-parse", "HEAD").strip()
    about = machine()
    emit(kind="machine", commit=commit, **asdict(how), **about)
    facts = {
        "processor": f"{about['processor']}, {how.threads} thread{'s' * (how.threads > 1)}, {str(about['date'])[:10]}",
        "draw": f"seed {how.seed}, at most {settings.most_weights:,} weights, a call of torch at most {how.torch_s:g} s",
        "limits of a graph": f"{how.limit_s:g} s, {how.memory_gb:g} GB; quality {how.quality}; {how.at_once} at once",
        "commit of GraphNet": commit,
    }  # fmt: skip
    folder, until = Path(config.output) / "graphnet", time.monotonic() + (settings.seconds or float("inf"))
    by_side: dict[str, list[dict[str, Any]]] = {side: [] for side in sides}
    for rows in tried(how, sides, settings.most_weights, commit, folder):
        for side, row in rows.items():
            by_side[side].append(row)
            emit(kind="graph", operator=row["graph"], **row)
        _write(by_side, facts, folder)
        done = sum(row["status"] != "left out" for row in by_side[OURS])
        if done >= settings.graphs or time.monotonic() > until:
            break


def tried(
    how: Settings, sides: tuple[str, ...], most_weights: int, commit: str, folder: Path
) -> Iterator[Rows]:
    """Try graph after graph of the draw that has few enough weights; yield the rows of each by compiler, in the draw's order.

    Finished rows are kept in `folder` and not tried again. A graph that torch does not run is tried once. At the end, compilers
    that have begun with further graphs finish them, for later runs.
    """
    repository, ended = Path(how.repository), threading.Event()
    waiting: deque[Future[Rows]] = deque()
    with Journal(folder / "done.jsonl", ("key",), finite=True) as done, ThreadPoolExecutor(how.at_once) as pool:
        try:
            for name in names(repository, how.seed):
                try:
                    if read(repository, name).weights > most_weights:
                        continue
                    waiting.append(pool.submit(_each, name, sides, how, commit, folder, done, ended))
                except NotBuilt as error:
                    row = {"graph": name, "side": OURS, "status": "left out", "said": str(error)}
                    waiting.append(pool.submit(lambda row=row: {OURS: row}))  # type: ignore[misc]
                if len(waiting) >= AHEAD * how.at_once:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            ended.set()
            pool.shutdown(wait=False, cancel_futures=True)


def _each(
    name: str, sides: tuple[str, ...], how: Settings, commit: str, folder: Path, done: Journal, ended: threading.Event
) -> Rows:
    rows: Rows = {}
    for side in sides:
        if ended.is_set():
            break
        settings = {**asdict(how), "repository": commit, "limit_s": None}  # a longer limit changes slow graphs only
        key = short_hash([PROTOCOL, name, side, settings, code_digest() if side == OURS else version("torch")])
        if done.rows.get(key, {}).get("limit_s", math.inf) < how.limit_s:
            done.drop({key})
        rows[side] = once(done, key, one, name, side, how, folder)
        if rows[side]["status"] == "left out":  # then of all compilers, so that they are compared on the same graphs
            return {OURS: {**rows[side], "side": OURS}}
    return rows


def one(name: str, side: str, how: Settings, folder: Path) -> dict[str, Any]:
    """Try a graph in a compiler in a process of its own and return its row. The cache of each compiler is below `folder`."""
    cache, turn, row = folder.absolute() / "cache" / side, folder.absolute() / "turn", {"graph": name, "side": side}
    variables = {
        **os.environ, THREADS: str(how.threads), "OMP_NUM_THREADS": str(how.threads), "MKL_NUM_THREADS": str(how.threads),
        "TORCHINDUCTOR_CACHE_DIR": str(cache), "GENSOR_GYM_CACHE": str(cache), "TORCHINDUCTOR_COMPILE_THREADS": "1",
    }  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="gensor_gym_graph_") as place, tempfile.TemporaryFile() as log:
        request, answer = Path(place) / "request.json", Path(place) / "answer.json"
        asked = {**asdict(how), "graph": name, "side": side, "turn": str(turn)}
        request.write_text(json.dumps(asked), encoding="utf-8")
        command = [sys.executable, "-m", MODULE, str(request), str(answer)]
        code = run_group(command, how.limit_s, stdout=log, stderr=subprocess.STDOUT, env=variables)
        resume(turn)
        if code is None:
            return {**row, "status": "slow", "limit_s": how.limit_s, "said": f"not done after {how.limit_s:g} s"}
        if code:
            log.seek(0)
            said = log.read().decode(errors="replace").strip()[-LAST:]
            return {**row, "status": "error", "said": f"ended with status {code}: {said}"}
        return {**row, **read_json(answer, finite=False)}


def _write(by_side: dict[str, list[dict[str, Any]]], facts: dict[str, str], folder: Path) -> None:
    write_text(folder / "graphnet.md", page(by_side, facts))
    if any("call_s" in row for row in by_side[OURS]):
        figure(by_side, folder / "graphnet.png")
