"""Replay files: an episode as JSON lines that anyone can compute again, to the last byte.

Line 1 is the header, line 2 the observation after `reset` (step 0), then one line for each step (action, hash of the observation,
reward as a hexadecimal float), and a last line about the end. What is computed again: observations, rewards, the end. What
a file only states: whose it is, and what the search before the episode spent.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from experiments.board.suite import PARTS, TIERS
from experiments.certification.explain import NAMES
from gensor_gym.construction import ConstructionGraph
from gensor_gym.env import CONSTRUCT
from gensor_gym.fingerprint import fingerprint
from gensor_gym.foreign import meant, parse_json, read_bytes
from gensor_gym.graph.actions import ACTIONS

VERSION = 1
HEADER = ("replay", "id", "arguments", "fingerprint", "seed", "agent", "budget", "evaluations", "trials")
"""Fields of the header, in their order. `evaluations` of the model and `trials` are what the agent spent in all."""
AGENT = ("name", "strategy", "policy", "settings")
"""Who played: a registered strategy or MODULE:FUNCTION, the other being null, with its settings."""
OBSERVED = ("flat", "dict", "successors")
"""Observations that are arrays, whose bytes can be hashed."""


class Difference(ValueError):
    """A replay file says something else than the environment; the message names step, field, expected and found."""


@dataclass(frozen=True)
class Outcome:
    """What an episode came to. `regret` is log(T / T of the best), None where the best is not known."""

    steps: int
    status: str
    seconds: float
    total: float
    """Sum of all rewards."""
    regret: float | None


@dataclass(frozen=True)
class Verified:
    """A file that was computed again and found true."""

    header: Mapping[str, Any]
    outcome: Outcome


class Recorder:
    """Plays one episode and writes down every line as text."""

    def __init__(self, header: Mapping[str, Any]) -> None:
        """Make the environment and reset it. ValueError names what is wrong with the header."""
        check_header(header)
        try:
            self.env = gymnasium.make(header["id"], **header["arguments"])
        except TypeError as error:
            raise ValueError(f"arguments {header['arguments']!r}: {error}") from error
        self.header = header
        self.rewards: list[float] = []
        self.outcome: Outcome | None = None
        self.observation, self.info = self.env.reset(seed=header["seed"])
        self.lines = [json.dumps(dict(header)), json.dumps({"step": 0, "observation": hash_of(self.observation)})]

    def step(self, action: int) -> None:
        """Take an action, 0 to 72. ValueError where the episode is over."""
        if self.outcome is not None:
            raise ValueError(f"the episode was over after step {len(self.rewards)}")
        self.observation, reward, ended, _, self.info = self.env.step(action)
        self.rewards.append(float(reward))
        entry = {
            "step": len(self.rewards),
            "action": str(ACTIONS[action]),
            "observation": hash_of(self.observation),
            "reward": float(reward).hex(),
        }
        self.lines.append(json.dumps(entry))
        if ended:
            self._end()

    def _end(self) -> None:
        """The last line."""
        seconds, total = float(self.info["runtime_s"]), sum(self.rewards, 0.0)
        self.outcome = Outcome(len(self.rewards), self.info["status"], seconds, total, self.info.get("regret"))
        end = {"end": len(self.rewards), "status": self.info["status"], "seconds": seconds.hex(), "return": total.hex()}
        self.lines.append(json.dumps(end))
        self.env.close()

    def text(self) -> str:
        """The whole file; ValueError while the episode goes on."""
        if self.outcome is None:
            raise ValueError(f"the episode is not over after step {len(self.rewards)}")
        return "\n".join([*self.lines, ""])


def record(header: Mapping[str, Any], actions: Sequence[int]) -> str:
    """The replay file of an episode. ValueError where the actions are too few or too many."""
    recorder = Recorder(header)
    for action in actions:
        recorder.step(action)
    return recorder.text()


def hash_of(observation: Any) -> str:
    """Sixteen hexadecimal digits over shape, type and bytes of an array, or of a dict of arrays."""
    whole = hashlib.sha256()
    parts = sorted(observation.items()) if isinstance(observation, dict) else [("", observation)]
    for name, part in parts:
        array = np.asarray(part)
        little = np.ascontiguousarray(array.astype(array.dtype.newbyteorder("<"), copy=False))
        whole.update(f"{name}\0{little.shape}\0{little.dtype.str}\0".encode() + little.tobytes())
    return whole.hexdigest()[:16]


def check_header(header: Mapping[str, Any]) -> None:
    """ValueError names the field that is wrong and what is accepted. The fingerprint is not looked at."""
    if not isinstance(header, Mapping) or tuple(header) != HEADER:
        given = list(header) if isinstance(header, Mapping) else header
        raise ValueError(f"header: expected the fields {', '.join(HEADER)} in this order, found {given!r}")
    arguments, agent = header["arguments"], header["agent"]
    checks = (
        ("replay", header["replay"] == VERSION, f"version {VERSION}"),
        ("id", header["id"] == CONSTRUCT, CONSTRUCT),
        ("arguments", isinstance(arguments, dict) and set(PARTS) <= set(arguments), f"at least {', '.join(PARTS)}"),
        ("fingerprint", isinstance(header["fingerprint"], str), "text"),
        ("seed", _is_count(header["seed"]), "a number from 0"),
        ("agent", isinstance(agent, dict) and tuple(agent) == AGENT, f"the fields {', '.join(AGENT)}"),
        ("budget", header["budget"] is None or isinstance(header["budget"], dict), "null or what may be spent"),
        ("evaluations", _is_count(header["evaluations"]), "a number from 0"),
        ("trials", _is_count(header["trials"]), "a number from 0"),
    )
    for field, good, accepted in checks:
        if not good:
            raise ValueError(f"header, {field}: expected {accepted}, found {header[field]!r}")
    if str(arguments["backend"]).partition(":")[0] not in TIERS:
        raise ValueError(f"header, backend: expected one of {', '.join(TIERS)}, found {arguments['backend']!r}")
    if arguments.get("observation", "flat") not in OBSERVED:
        raise ValueError(f"header, observation: expected one of {', '.join(OBSERVED)}, found {arguments['observation']!r}")


def verify_file(path: Path) -> Verified:
    """Compute a file again; Difference names the first byte that differs, ValueError what does not read."""
    try:
        text = read_bytes(path).decode("utf-8")
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} does not read: {error}") from error
    try:
        with meant(path, "replay file"):
            return verify_text(text)
    except Difference as error:
        raise Difference(f"{path}: {error}") from error
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def verify_text(text: str) -> Verified:
    """Compute the text of a file again; see `verify_file`."""
    found = text.split("\n")
    header = _parsed(found[0], "header")
    check_header(header)
    if header["fingerprint"] != (now := fingerprint_of(header["arguments"])):
        raise Difference(f"header, fingerprint: expected {now!r}, found {header['fingerprint']!r}")
    recorder = Recorder(header)
    _compare(recorder.lines, found, 0)
    for action in _actions(found):
        before = len(recorder.lines)
        recorder.step(action)
        _compare(recorder.lines, found, before)
    compare_texts(recorder.text(), text)
    assert recorder.outcome is not None
    return Verified(header, recorder.outcome)


def compare_texts(expected: str, found: str) -> None:
    """Two whole files; Difference names the first byte that differs."""
    lines, others = expected.split("\n"), found.split("\n")
    _compare(lines, others, 0)
    if len(others) > len(lines):
        raise Difference(f"after the end: expected nothing, found {others[len(lines)]!r}")


def fingerprint_of(arguments: Mapping[str, Any]) -> str:
    """Of the task that the environment is made for with these arguments."""
    return fingerprint(ConstructionGraph(arguments["operator"], arguments["hardware"], arguments["space"]))


def _actions(lines: Sequence[str]) -> Iterator[int]:
    """The action of every line that is a step."""
    for number, line in enumerate(lines[2:], start=1):
        if not line or line.startswith('{"end"'):
            return
        name = _parsed(line, f"step {number}").get("action")
        if name not in NAMES:
            raise ValueError(f"step {number}, action: expected a name such as 'tile[4]' or 'stop', found {name!r}")
        yield NAMES[name]


def _compare(expected: Sequence[str], found: Sequence[str], first: int) -> None:
    """Lines from `first` on; Difference names the first that differs."""
    for at in range(first, len(expected)):
        if at >= len(found):
            raise Difference(f"{_place(expected[at], at)}: expected {expected[at]}, found the end of the file")
        if expected[at] != found[at]:
            before = sum(len(line.encode()) + 1 for line in found[:at])
            same = _same_bytes(expected[at].encode(), found[at].encode())
            raise Difference(f"{_place(expected[at], at)}{_field(expected[at], found[at])} (byte {before + same})")


def _place(line: str, at: int) -> str:
    """What a line is about, in words."""
    if at == 0:
        return "header"
    return "end" if line.startswith('{"end"') else f"step {at - 1}" if line else "after the end"


def _field(expected: str, found: str) -> str:
    """The first field whose values differ, with both."""
    try:
        want, have = parse_json(expected), parse_json(found)
    except ValueError:
        return f": expected {expected!r}, found {found!r}"
    same_fields = isinstance(have, dict) and set(want) == set(have)
    for field in want if same_fields else ():
        if want[field] != have[field]:
            return f", {field}: expected {want[field]!r}, found {have[field]!r}"
    return f": expected {expected!r}, found {found!r}"


def _same_bytes(one: bytes, other: bytes) -> int:
    """How many bytes are equal from the beginning."""
    return next((i for i, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1]), min(len(one), len(other)))


def _parsed(line: str, where: str) -> dict[str, Any]:
    """A line as a JSON object."""
    try:
        value = parse_json(line)
    except ValueError as error:
        raise ValueError(f"{where}: expected a line of JSON, found {line[:60]!r}") from error
    if not isinstance(value, dict):
        raise ValueError(f"{where}: expected a JSON object, found {line[:60]!r}")
    return value


def _is_count(value: object) -> bool:
    """A whole number from 0."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
