"""Entries of a frozen suite: every search of an agent on a track, with the actions that build its best program.

`AGENT/TRACK.jsonl`: a header, a line for each task and seed, and the digest of all that stands above. Verification plays the
actions in the environment again, computes every line anew from what it finds and compares the whole file byte for byte. What an
entry only states (what the search spent, the regret after each trial before the last, who it was) the digest holds together:
a changed byte is seen, a lie told with care is not.
"""

from __future__ import annotations

import hashlib
import json
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from agents.strategy import get_strategy
from experiments.board.replay_file import Difference, compare_texts
from experiments.common.journal import Journal
from experiments.common.results import write_text
from experiments.common.settings import ROOT
from gensor_gym.construction import ConstructionGraph
from gensor_gym.exact.paths import actions_to
from gensor_gym.foreign import parse_json, read_text
from gensor_gym.graph.actions import STOP
from gensor_gym.measure.backend import get_backend
from gensor_gym.measure.measurement import Status
from gensor_gym.measure.session import Session
from gensor_gym.suites import SuiteTask, Track, get

FOLDER = ROOT / "results" / "suite"
STATED = ("curve", "trials", "evaluations", "elapsed_s")
"""What a line states and nobody computes again."""
FIELDS = ("suite", "track", "task", "fingerprint", "seed", "actions", "seconds", "regret", *STATED)
MOST_BYTES = 64 << 20


def play(name: str, track: Track, folder: Path) -> Path:
    """Search every task and seed with a registered strategy at its defaults; goes on where it was stopped. The entry's path."""
    path = folder / track.suite / name / f"{track.name}.jsonl"
    with Journal(path.with_suffix(".journal"), ("task", "seed")) as journal:
        for task in track.tasks:
            agent = partial(_search, name, task.space)
            for seed in track.seeds:
                if (task.name, seed) not in journal.rows:
                    (row,) = _one(track, task).run(agent, (seed,))
                    journal.add(_line(row, task))
        rows = [journal.rows[task.name, seed] for task in track.tasks for seed in track.seeds]
    write_text(path, text_of({"suite": track.suite, "track": track.name, "agent": name}, rows))
    path.with_suffix(".journal").unlink()
    return path


def _one(track: Track, task: SuiteTask) -> Track:
    """The track with one task alone."""
    return replace(track, tasks=(task,))


def _search(name: str, space: str, session: Session, rng: np.random.Generator) -> None:
    """A registered strategy as an agent."""
    strategy: Any = get_strategy(name, space=space)
    strategy.search(session, rng)


def _line(row: Mapping[str, Any], task: SuiteTask) -> dict[str, Any]:
    """A result as an entry has it: the program by its actions."""
    actions = None
    if row["schedule"] is not None:
        graph = ConstructionGraph(task.operator, task.hardware, task.space)
        actions = " ".join(map(str, [*actions_to(graph, graph.parse(row["schedule"])), STOP]))
    line = {**row, "actions": actions, "seconds": float(row["seconds"]).hex(), "regret": float(row["regret"]).hex()}
    line["curve"] = [None if value == math.inf else round(value, 6) for value in row["curve"]]
    return {field: line[field] for field in FIELDS}


def text_of(header: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> str:
    """The whole file."""
    text = "".join(json.dumps(row) + "\n" for row in (header, *rows))
    return text + json.dumps({"sha256": hashlib.sha256(text.encode()).hexdigest()}) + "\n"


def verify(path: Path) -> list[dict[str, Any]]:
    """The lines of an entry that is true. Difference names the first byte that differs, ValueError what does not read."""
    text = read_text(path, MOST_BYTES)
    rows = [parse_json(line) for line in text.splitlines()]
    if len(rows) < 3 or not isinstance(rows[0], dict) or set(rows[0]) != {"suite", "track", "agent"}:
        raise ValueError(f"{path}: expected a header of suite, track and agent, lines of results, and a digest")
    header, lines = rows[0], rows[1:-1]
    suite = get(header["suite"])
    if header["track"] not in suite.tracks:
        raise ValueError(f"{path}, track: expected one of {', '.join(suite.tracks)}, found {header['track']!r}")
    track = suite.tracks[header["track"]]
    asked = [(task, seed) for task in track.tasks for seed in track.seeds]
    if len(lines) != len(asked):
        raise ValueError(f"{path}: expected {len(asked)} results, found {len(lines)}")
    try:
        again = [_again(track, task, seed, line) for (task, seed), line in zip(asked, lines, strict=True)]
        compare_texts(text_of(header, again), text)
    except Difference as error:
        raise Difference(f"{path}: {error}") from error
    except (KeyError, TypeError) as error:
        raise ValueError(f"{path}: not an entry ({error!r})") from error
    return again


def _again(track: Track, task: SuiteTask, seed: int, line: Mapping[str, Any]) -> dict[str, Any]:
    """A line as the environment's rules have it, with what it only states; ValueError where more was spent than there is."""
    for name, most in (("trials", track.budget.trials), ("evaluations", track.budget.evaluations if track.model else 0)):
        if most is not None and not 0 <= line[name] <= most:
            raise ValueError(f"{task.name}, seed {seed}, {name}: expected at most {most}, found {line[name]}")
    seconds = math.inf if line["actions"] is None else played(task, [int(word) for word in line["actions"].split()])
    regret = task.regret(seconds)
    found = {
        "suite": track.suite, "track": track.name, "task": task.name, "fingerprint": task.fingerprint, "seed": seed,
        "actions": line["actions"], "seconds": seconds.hex(), "regret": regret.hex(), **{name: line[name] for name in STATED},
    }  # fmt: skip
    last = None if regret == math.inf else round(regret, 6)
    if line["curve"][-1] != last:
        raise Difference(f"{task.name}, seed {seed}, curve: expected {last!r} at its end, found {line['curve'][-1]!r}")
    return found


def played(task: SuiteTask, actions: Sequence[int]) -> float:
    """Seconds of the program that actions build in the task's graph; ValueError for one that is not legal, or does not run."""
    task.check()
    graph = ConstructionGraph(task.operator, task.hardware, task.space)
    schedule = graph.initial()
    if not actions or actions[-1] != STOP:
        raise ValueError(f"{task.name}: expected actions that end with {STOP}, found {list(actions[-1:])}")
    for at, action in enumerate(actions[:-1], start=1):
        if not 0 < action < len(graph.actions) or not graph.action_mask(schedule)[action]:
            raise ValueError(f"{task.name}, step {at}: action {action} is not legal there")
        schedule = graph.transition(schedule, action)
    (found,) = get_backend(task.backend, graph.hardware).measure(graph.operator, [schedule], graph.hardware)
    return found.seconds if found.status is Status.OK else math.inf


def submit(version: str, names: Sequence[str], folder: Path, tracks: Sequence[str]) -> int:
    """Play strategies on tracks; the exit status."""
    suite = get(version)
    for name in names:
        for track in tracks:
            path = play(name, suite.tracks[track], folder)
            print(f"wrote {path}", flush=True)
    return 0


def verified(version: str, folder: Path) -> dict[str, dict[str, list[dict[str, Any]]]]:
    """Lines of all entries by track and agent; ValueError for the first that is not true."""
    found: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for path in sorted((folder / version).glob("*/*.jsonl")):
        found.setdefault(path.stem, {})[path.parent.name] = verify(path)
        print(f"verified {path}", file=sys.stderr, flush=True)
    return found
