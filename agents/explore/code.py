"""Show the generated source of a program, with the lines marked that the last action changed."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from functools import lru_cache

from agents.explore.session import Position
from gensor_gym.codegen.build import generate
from gensor_gym.construction import ConstructionGraph
from gensor_gym.graph.schedule import Schedule

MOST_COMPARED = 6000
"""Sources with more lines are not compared."""
WORDS = {"c": "C", "cuda": "CUDA", "hip": "HIP"}


@dataclass(frozen=True)
class SourceLine:
    """A line of generated source code. `removed` counts the previous source's deleted lines before it."""

    number: int
    text: str
    changed: bool
    removed: int


@dataclass(frozen=True)
class Listing:
    """A program's source with its changed lines marked, or in `error` the reason why the program has no source."""

    language: str
    lines: tuple[SourceLine, ...] = ()
    changed: int = 0
    removed: int = 0
    error: str = ""


def listing_of(position: Position) -> Listing:
    """Generate the source at a position and mark the lines that differ from the source one action earlier."""
    try:
        language, source = _source(position.graph, position.schedule)
    except ValueError as error:
        return Listing("", error=str(error))
    lines = source.splitlines()
    before = lines
    if position.steps and len(lines) <= MOST_COMPARED:
        try:
            before = _source(position.graph, Schedule(position.rows[-2]))[1].splitlines()
        except ValueError:  # the previous program has no source
            before = lines
    return _marked(WORDS.get(language, language), before, lines)


def _marked(language: str, before: list[str], lines: list[str]) -> Listing:
    changed, removed = set(), dict.fromkeys(range(len(lines) + 1), 0)
    for tag, low, high, start, end in difflib.SequenceMatcher(None, before, lines, autojunk=False).get_opcodes():
        if tag != "equal":
            changed |= set(range(start, end))
            removed[start] += high - low
    marked = tuple(SourceLine(i + 1, text, i in changed, removed[i]) for i, text in enumerate(lines))
    return Listing(language, marked, len(changed), sum(removed.values()))


@lru_cache(maxsize=64)
def _source(graph: ConstructionGraph, schedule: Schedule) -> tuple[str, str]:
    kernel = generate(graph.operator, schedule, graph.hardware)
    return kernel.language, kernel.source
