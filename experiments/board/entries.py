"""Entries of the leaderboard: files with every search of one agent on one track (a list of tasks) of a frozen suite.

For each search, an entry has the actions that build the agent's best program; on a track that gives candidates, it has one
action, the index of the best candidate; on a track of plans, it has the best plan's text.

`AGENT/TRACK.jsonl` begins with a line about agent and track (the header). A line for each task and seed, and the digest of all
lines above, follow. Verification plays the actions in the environment, recomputes every line and compares the whole file byte for
byte. Facts that an entry only states (the spent budget, the regret after each trial before the last, the learning curve, the
agent) are covered by the digest, which detects corruption, not deliberate falsification. An entry may contain only the first few
seeds, and may be packed (`experiments.evidence.ship`).
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

from agents.runs.files import write_text
from agents.runs.journal import Journal, lying
from agents.runs.settings import ROOT, short_hash
from agents.strategy import CANDIDATES, CONSTRUCTIONS, LEARNING, build, strategies_for
from gensor_gym.construction import ConstructionGraph
from gensor_gym.exact.paths import actions_to
from gensor_gym.foreign import parse_json, read_text
from gensor_gym.graph.actions import STOP
from gensor_gym.graph.schedule import Schedule
from gensor_gym.measure.backend import get_backend
from gensor_gym.measure.measurement import Status
from gensor_gym.measure.records.measured_backend import candidates
from gensor_gym.registry import check_known
from gensor_gym.suites import Agent, SuiteTask, Track, get, plans
from gensor_gym.suites.session import NoModel

FOLDER = ROOT / "results" / "suite"
STATED = ("curve", "processor_s", "asked", "learning", "trials", "evaluations", "elapsed_s", "worked_s")
"""Fields of an entry's lines that the agent states and verification cannot recompute."""
FIELDS = ("suite", "track", "task", "fingerprint", "seed", "actions", "seconds", "regret", *STATED)
HEADER = ("suite", "track", "agent", "strategy", "settings")
MOST_BYTES = 64 << 20


@dataclass(frozen=True)
class Entrant:
    """An agent on the leaderboard: a registered strategy with settings, or a function of type `gensor_gym.suites.Agent`.

    `name` is the folder of its entries. Text among the settings may contain `{seed}`, so that each seed searches with the policy
    of its own training seed.
    """

    name: str
    strategy: str
    """Name of a registered strategy, or a function as MODULE:FUNCTION or FILE.py:FUNCTION."""
    settings: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check the fields; raise ValueError for an invalid folder name, or if a function is given settings."""
        if not re.fullmatch(r"\w[\w.-]*", self.name):
            raise ValueError(f"name {self.name!r}: expected letters, digits, '_', '-' and '.'")
        if ":" in self.strategy and self.settings:
            raise ValueError(f"{self.name}: settings {sorted(self.settings)} are of registered strategies, not of a function")

    def header(self, track: Track) -> dict[str, Any]:
        """Return the header, the first line of the agent's entry for a track: suite, track, agent, strategy and settings."""
        settings = dict(self.settings)
        return {"suite": track.suite, "track": track.name, "agent": self.name, "strategy": self.strategy, "settings": settings}

    def agent(self, track: Track, task: SuiteTask, seed: int) -> Agent:
        """Return the function that searches a task of the track with this seed; ValueError if there is no such agent."""
        if ":" in self.strategy:
            found: Agent = load_function(self.strategy)
            return found
        settings = {k: v.format(seed=seed) if isinstance(v, str) else v for k, v in self.settings.items()}
        learns = track.steps is not None and self.strategy in strategies_for(LEARNING)
        kind = CANDIDATES if track.candidates else LEARNING if learns else CONSTRUCTIONS
        made = build(self.strategy, kind, {**settings, "space": task.space})
        search: Agent = made.search
        return search


def play(entrant: Entrant, track: Track, folder: Path, seeds: int | None = None) -> Path:
    """Let an agent search every task of a track with the track's first `seeds` seeds (by default all).

    Write the entry, a file with every search, and return its path. Searches of an interrupted run, or of an entry with the same
    first line, are not repeated.
    """
    header = entrant.header(track)
    path = folder / track.suite / entrant.name / f"{track.name}.jsonl"
    asked = [(task, seed) for seed in track.seeds[:seeds] for task in track.tasks]
    known = _there(path, header)
    if all((task.name, seed) in known for task, seed in asked):
        return path
    with Journal(path.with_suffix(f".{short_hash(header)}.journal"), ("task", "seed")) as journal:
        known.update(journal.rows)
        left = [(task, seed) for task, seed in asked if (task.name, seed) not in known]
        try:
            if left and track.steps is None:
                _searched(entrant, track, *left[0])  # import and compile now, not during a search
        except NoModel:
            journal.path.unlink()
            raise
        for task, seed in left:
            journal.add(row := _line(_searched(entrant, track, task, seed), track, task))
            known[task.name, seed] = row
    several = {seed for _, seed in known}
    rows = [known[task.name, seed] for task in track.tasks for seed in track.seeds if seed in several]
    write_text(path, text_of(header, rows))
    journal.path.unlink()
    return path


def _there(path: Path, header: Mapping[str, Any]) -> dict[Any, dict[str, Any]]:
    """Return the lines of an existing entry by (task, seed); empty if it is missing or its first line is not `header`."""
    if not (path := lying(path)).exists():
        return {}
    first, *lines = map(parse_json, read_text(path, MOST_BYTES).splitlines())
    return {(line["task"], line["seed"]): line for line in lines[:-1]} if first == header else {}


def _searched(entrant: Entrant, track: Track, task: SuiteTask, seed: int) -> dict[str, Any]:
    """Run one search and return its row; search again if other processes slowed it down too much (`held_up`)."""
    while True:
        (row,) = replace(track, tasks=(task,)).run(entrant.agent(track, task, seed), (seed,))
        if not held_up(row, track):
            return row


def held_up(row: Mapping[str, Any], track: Track) -> bool:
    """Return whether a search used up its seconds while other processes had the processor for more than half of the time."""
    limit = track.budget.seconds
    spent = row["trials"] >= (track.budget.trials or math.inf) or track.steps is not None
    return limit is not None and not spent and row["elapsed_s"] >= limit and row["worked_s"] < limit / 2


def _line(row: Mapping[str, Any], track: Track, task: SuiteTask) -> dict[str, Any]:
    actions = None
    if row["schedule"] is not None and task.space == plans.SPACE:
        actions = row["schedule"]
    elif row["schedule"] is not None and track.candidates:
        actions = str(candidates(task.hardware, task.operator).index(Schedule.parse(row["schedule"])))
    elif row["schedule"] is not None:
        graph = ConstructionGraph(task.operator, task.hardware, task.space)
        actions = " ".join(map(str, [*actions_to(graph, graph.parse(row["schedule"])), STOP]))
    line = {**row, "actions": actions, "seconds": float(row["seconds"]).hex(), "regret": float(row["regret"]).hex()}
    line["curve"] = [None if value == math.inf else round(value, 6) for value in row["curve"]]
    return {field: line[field] for field in FIELDS}


def text_of(header: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the text of an entry's file: a header line, a line for each row, and a line with their SHA-256 digest."""
    text = "".join(json.dumps(row) + "\n" for row in (header, *rows))
    return text + json.dumps({"sha256": hashlib.sha256(text.encode()).hexdigest()}) + "\n"


def verify(path: Path) -> list[dict[str, Any]]:
    """Recompute an entry and compare it with its file; return its lines.

    Raise Difference, which names the first byte that differs, or ValueError for a part that cannot be read.
    """
    text = read_text(lying(path), MOST_BYTES)
    rows = [parse_json(line) for line in text.splitlines()]
    if len(rows) < 3 or not isinstance(rows[0], dict) or tuple(rows[0]) != HEADER:
        raise ValueError(f"{path}: expected a header of {', '.join(HEADER)}, lines of results, and a digest")
    header, lines = rows[0], rows[1:-1]
    if header["agent"] != path.parent.name:
        raise Difference(f"{path}, agent: expected {path.parent.name!r} by the folder, found {header['agent']!r}")
    suite = get(header["suite"])
    if header["track"] not in suite.tracks:
        raise ValueError(f"{path}, track: expected one of {', '.join(suite.tracks)}, found {header['track']!r}")
    track = suite.tracks[header["track"]]
    seeds, over = divmod(len(lines), len(track.tasks))
    if over or not 0 < seeds <= len(track.seeds):
        wanted = f"{len(track.tasks)} results for each of 1 to {len(track.seeds)} seeds"
        raise ValueError(f"{path}: expected {wanted}, found {len(lines)}")
    asked = [(task, seed) for task in track.tasks for seed in track.seeds[:seeds]]
    try:
        again = [_again(track, task, seed, line) for (task, seed), line in zip(asked, lines, strict=True)]
        compare_texts(text_of(header, again), text)
    except Difference as error:
        raise Difference(f"{path}: {error}") from error
    except (KeyError, TypeError) as error:
        raise ValueError(f"{path}: not an entry ({error!r})") from error
    return again


class Difference(ValueError):
    """Raised if an entry differs from its recomputation; the message names the line, the field and both values."""


def compare_texts(expected: str, found: str) -> None:
    """Compare two whole files of JSON lines; raise Difference for the first byte at which they differ."""
    lines, others = expected.split("\n"), found.split("\n")
    for at, (want, have) in enumerate(zip(lines, others, strict=False)):
        if want != have:
            before = sum(len(line.encode()) + 1 for line in others[:at])
            byte = before + len(os.path.commonprefix((want.encode(), have.encode())))
            raise Difference(f"line {at + 1}{_field(want, have)} (byte {byte})")
    if len(others) != len(lines):
        raise Difference(f"expected {len(lines)} lines, found {len(others)}")


def _field(expected: str, found: str) -> str:
    """Describe the first field whose value differs between two JSON lines, with both values; or quote both lines."""
    with suppress(ValueError):
        want, have = parse_json(expected), parse_json(found)
        if isinstance(want, dict) and isinstance(have, dict) and set(want) == set(have):
            for field in want:
                if want[field] != have[field]:
                    return f", {field}: expected {want[field]!r}, found {have[field]!r}"
    return f": expected {expected!r}, found {found!r}"


def _again(track: Track, task: SuiteTask, seed: int, line: Mapping[str, Any]) -> dict[str, Any]:
    """Recompute a line of an entry by the environment's rules; facts that it only states are copied.

    Raise ValueError if the search spent more than the budget.
    """
    evaluations = (track.budget.evaluations if track.steps is None else track.steps) if track.model else 0
    for name, most in (("trials", track.budget.trials), ("evaluations", evaluations)):
        if most is not None and not 0 <= line[name] <= most:
            raise ValueError(f"{task.name}, seed {seed}, {name}: expected at most {most}, found {line[name]}")
    seconds = math.inf if line["actions"] is None else played(track, task, line["actions"])
    regret = task.regret(seconds)
    found = {
        "suite": track.suite, "track": track.name, "task": task.name, "fingerprint": task.fingerprint, "seed": seed,
        "actions": line["actions"], "seconds": seconds.hex(), "regret": regret.hex(), **{name: line[name] for name in STATED},
    }  # fmt: skip
    last = None if regret == math.inf else round(regret, 6)
    if line["curve"][-1] != last:
        raise Difference(f"{task.name}, seed {seed}, curve: expected {last!r} at its end, found {line['curve'][-1]!r}")
    return found


def played(track: Track, task: SuiteTask, text: str) -> float:
    """Return the seconds of the program that the actions build, or choose among candidates; infinite if the program fails.

    On a track of plans the text is that of the plan. Raise ValueError for an illegal action or an unreadable plan.
    """
    task.check()
    if task.space == plans.SPACE:
        return plans.seconds_of(task.operator, task.hardware, text)
    actions = [int(word) for word in text.split()]
    graph = ConstructionGraph(task.operator, task.hardware, task.space)
    schedule = chosen(task, actions) if track.candidates else built(task, graph, actions)
    (found,) = get_backend(task.backend, graph.hardware).measure(graph.operator, [schedule], graph.hardware)
    return found.seconds if found.status is Status.OK else math.inf


def chosen(task: SuiteTask, actions: Sequence[int]) -> Schedule:
    """Return the candidate whose index is the only action; raise ValueError for any other actions."""
    known = candidates(task.hardware, task.operator)
    if len(actions) != 1 or not 0 <= actions[0] < len(known):
        raise ValueError(f"{task.name}: expected the index of one of {len(known)} candidates, found {list(actions)}")
    return known[actions[0]]


def built(task: SuiteTask, graph: ConstructionGraph, actions: Sequence[int]) -> Schedule:
    """Play the actions in a task's graph and return the schedule that they build.

    Raise ValueError for an illegal action, or if the last action is not `STOP`.
    """
    schedule = graph.initial()
    if not actions or actions[-1] != STOP:
        raise ValueError(f"{task.name}: expected actions that end with {STOP}, found {list(actions[-1:])}")
    for at, action in enumerate(actions[:-1], start=1):
        if not 0 < action < len(graph.actions) or not graph.action_mask(schedule)[action]:
            raise ValueError(f"{task.name}, step {at}: action {action} is not legal there")
        schedule = graph.transition(schedule, action)
    return schedule


def submit(version: str, entrants: Sequence[Entrant], folder: Path, tracks: Sequence[str], seeds: int | None = None) -> int:
    """Let agents search the tasks of tracks of a suite, print the paths of their entries, and return exit status 0.

    Without `tracks`, these are all tracks on which agents search rather than learn; those whose tasks have no analytic model are
    left out for an agent that needs it. Raise ValueError for an unknown track.
    """
    suite = get(version)
    for name in tracks:
        check_known("track", name, tuple(suite.tracks))
    asked = [suite.tracks[name] for name in tracks or suite.tracks if tracks or suite.tracks[name].steps is None]
    for track in asked:
        if seeds is not None and not 0 < seeds <= len(track.seeds):
            raise ValueError(f"--seeds {seeds}: expected 1 to {len(track.seeds)}, which {track.name} has")
        for entrant in entrants:
            entrant.agent(track, track.tasks[0], track.seeds[0])  # report a missing agent before any search
    for entrant in entrants:
        for track in asked:
            try:
                print(f"wrote {play(entrant, track, folder, seeds)}", flush=True)
            except NoModel as error:
                if tracks:
                    raise
                print(f"left out {track.name}, since {entrant.name} asks the model: {error}", flush=True)
    return 0


def verified(version: str, folder: Path, tracks: Collection[str] | None = None) -> dict[str, dict[str, list[dict[str, Any]]]]:
    """Verify all entries in a folder, or only those on `tracks`; return their lines by track and agent.

    Raise ValueError for the first invalid entry, and for a folder without entries.
    """
    found: dict[str, dict[str, list[dict[str, Any]]]] = {}
    there = [path for ending in ("jsonl", "jsonl.gz") for path in (folder / version).glob(f"*/*.{ending}")]
    for path in sorted({path.with_name(path.name.removesuffix(".gz")) for path in there}):
        if tracks is None or path.stem in tracks:
            found.setdefault(path.stem, {})[path.parent.name] = verify(path)
            print(f"verified {path}", file=sys.stderr, flush=True)
    if not found:
        raise ValueError(f"{folder / version} holds no entries: expected AGENT/TRACK.jsonl")
    return found


def load_function(text: str) -> Callable[..., Any]:
    """Import and return the function that a text names, MODULE:FUNCTION or FILE.py:FUNCTION.

    Raise ValueError that names the missing part.
    """
    where, colon, name = text.rpartition(":")
    try:
        found = getattr(_module(where), name) if colon else None
    except (ImportError, AttributeError, ValueError, OSError, SyntaxError) as error:
        raise ValueError(f"{text!r}: {error}") from error
    if not callable(found):
        raise ValueError(f"{text!r}: expected MODULE:FUNCTION or FILE.py:FUNCTION, as in my_agent.py:act")
    return found  # type: ignore[no-any-return]


def _module(where: str) -> ModuleType:
    if not where.endswith(".py"):
        return import_module(where)
    spec = spec_from_file_location(Path(where).stem, where)
    if spec is None or spec.loader is None:
        raise ImportError(f"no module in {where}")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
