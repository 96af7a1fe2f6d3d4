"""A state in words: the schedule with its predicted time and terms, its source, legal primitives, the best program so far."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gensor_gym.codegen.build import generate
from gensor_gym.codegen.kernel import Kernel
from gensor_gym.construction import ConstructionGraph
from gensor_gym.env.kernel.grammar import names_of
from gensor_gym.env.pictures.facts import in_seconds
from gensor_gym.env.pictures.render import as_text
from gensor_gym.graph.actions import STOP
from gensor_gym.graph.schedule import Schedule

MOST_SOURCE = 24_000
"""Largest number of characters of a generated source in an observation; the rest is left out."""


@dataclass(frozen=True)
class Best:
    """The fastest evaluated program of an episode: `kind` is `schedule` or `source`, `text` is the action that gives it."""

    kind: str
    text: str
    seconds: float


@dataclass(frozen=True)
class Turn:
    """Numbers of the turn that a state begins: turns and steps that are left, and the reward of the last turn."""

    turns: int
    steps: int
    reward: float


def state_text(graph: ConstructionGraph, schedule: Schedule, turn: Turn, best: Best | None) -> str:
    """Return the description of a state."""
    terms = ", ".join(f"{name} {in_seconds(value)}" for name, value in graph.terms(schedule).items() if value)
    share = f"{graph.floor / graph.latency(schedule):.2%}"
    found = f"{best.kind}, {in_seconds(best.seconds)}, {graph.floor / best.seconds:.2%} of the roofline" if best else "none"
    parts = [
        "# State", f"turns left {turn.turns}, steps left {turn.steps}; reward of the last turn {turn.reward:+.4f}",
        f"best evaluated program: {found}", "", "## Schedule", str(schedule), "", as_text(graph, schedule), "",
        f"terms      {terms}", f"roofline   {share} of it by the model", "", "## Legal primitives, and times by the model",
        *moves_text(graph, schedule), "", *source_text(graph, schedule),
    ]  # fmt: skip
    return "\n".join(parts)


def moves_text(graph: ConstructionGraph, schedule: Schedule) -> list[str]:
    """Return the legal primitives with the predicted times of the schedules that they lead to, several in a line."""
    names = {number: name for name, number in names_of(graph.operator).items()}
    legal = graph.action_mask(schedule)
    legal[STOP] = False
    actions = np.flatnonzero(legal)
    if not len(actions):
        return ["none"]
    rows, _ = graph.transitions(np.repeat(schedule.row[None], len(actions), axis=0), actions)
    times = graph.latencies(rows).tolist()
    words = [f"{names[action]} {in_seconds(seconds)}" for action, seconds in zip(actions.tolist(), times, strict=True)]
    return _in_lines(words)


def source_text(graph: ConstructionGraph, schedule: Schedule) -> list[str]:
    """Return the generated source of a schedule, or the reason why there is none."""
    try:
        kernel = generate(graph.operator, schedule, graph.hardware)
    except ValueError as error:
        return ["## Source", f"none: {error}"]
    rest = len(kernel.source) - MOST_SOURCE
    cut = [f".. {rest} more characters"] if rest > 0 else []
    title = f"## Source in {kernel.language}, as `source` accepts it with: {options_text(kernel)}"
    return [title, kernel.source[:MOST_SOURCE], *cut]


def options_text(kernel: Kernel) -> str:
    """Return the options of `source` that launch a generated kernel. A kernel of several launches is no single source."""
    launch = kernel.main
    words = [f"workspace={kernel.workspace_bytes}"]
    if kernel.language != "c":
        words += [f"{name}={','.join(map(str, size))}" for name, size in (("grid", launch.grid), ("block", launch.block))]
        words += [f"shared={launch.shared_bytes}"]
    several = f" (it has {len(kernel.launches)} launches; a source has one)" if len(kernel.launches) > 1 else ""
    return " ".join(words) + several


def _in_lines(words: Sequence[str], width: int = 120) -> list[str]:
    lines = [""]
    for word in words:
        if lines[-1] and len(lines[-1]) + len(word) + 3 > width:
            lines.append("")
        lines[-1] += f" | {word}" if lines[-1] else word
    return lines
