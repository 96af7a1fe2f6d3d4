"""The grammar of an action of `Kernel-v0`: a first line that begins with a verb and, after `source`, the lines of a source."""

from __future__ import annotations

import re
from dataclasses import dataclass

from gensor_gym.graph.actions import ACTIONS
from gensor_gym.graph.tables.layout import slot_of
from gensor_gym.measure.written.text import Options
from gensor_gym.operators.types import Operator
from gensor_gym.registry import near

VERBS = ("apply", "schedule", "measure", "source", "stop")
MOST_PRIMITIVES = 64
"""Largest number of primitives in one action."""
GRAMMAR = {
    "apply": "apply PRIMITIVE PRIMITIVE ..    take primitives in order, such as: apply tile[m] tile[m] cache raise[unroll]",
    "schedule": "schedule TEXT                  replace the schedule by a whole one, in the form of `schedule` below",
    "measure": "measure                        evaluate the schedule; a time better than all before is rewarded",
    "source": "source OPTION=VALUE ..         compile, verify and time a source of your own, which follows on the next lines",
    "stop": "stop                           evaluate the schedule and end the episode",
}
"""Verb -> its form and meaning, one line each."""
_COUNTS = {"workspace": 1, "grid": 3, "block": 3, "shared": 1}
"""Option of `source` -> how many numbers it has."""


@dataclass(frozen=True)
class Command:
    """An action that was understood. `primitives` are numbers of actions of the construction graph; `words` follow `source`."""

    verb: str
    primitives: tuple[int, ...] = ()
    schedule: str = ""
    source: str = ""
    words: str = ""
    options: Options = Options()


def parse(action: object, op: Operator) -> Command:
    """Parse an action on an operator. ValueError names the part that does not parse and what is accepted."""
    if not isinstance(action, str):
        raise ValueError(f"an action is a text, not {type(action).__name__}")
    first, _, rest = action.strip().partition("\n")
    verb, _, words = first.strip().partition(" ")
    if verb not in VERBS:
        raise ValueError(f"no verb {verb[:40]!r}: the first word is one of {', '.join(VERBS)}{near(verb[:40], VERBS)}")
    if verb == "source":
        return Command(verb, source=_without_fence(rest), words=words, options=_options(words))
    if rest.strip():
        raise ValueError(f"{verb} takes one line, and {rest.strip()[:40]!r} follows; one action is taken per turn")
    if verb == "schedule":
        return Command(verb, schedule=words)
    if verb == "apply":
        return Command(verb, primitives=_primitives(words, op))
    if words:
        raise ValueError(f"{verb} stands alone, and {words[:40]!r} follows")
    return Command(verb)


def names_of(op: Operator) -> dict[str, int]:
    """Return the name of every primitive on an operator -> its number. Primitives on an axis have its name, such as `tile[m]`."""
    spatial = len(op.spatial)
    axes = {slot_of(number, spatial): axis.name for number, axis in enumerate(op.axes)}
    named = {f"{a.primitive}[{axes[a.axis]}]": number for number, a in enumerate(ACTIONS) if a.axis in axes}
    return named | {str(action): number for number, action in enumerate(ACTIONS) if action.axis is None}


def _primitives(words: str, op: Operator) -> tuple[int, ...]:
    known = names_of(op) | {str(action): number for number, action in enumerate(ACTIONS)}
    given = words.replace(",", " ").split()
    if not 1 <= len(given) <= MOST_PRIMITIVES:
        raise ValueError(f"apply has {len(given)} primitives: 1 to {MOST_PRIMITIVES} are accepted")
    for name in given:
        if name not in known:
            raise ValueError(f"no primitive {name[:40]!r}{near(name[:40], known)}; the state lists those that are legal")
        if name == "stop":
            raise ValueError("stop is an action of its own, not a primitive of apply")
    return tuple(known[name] for name in given)


def _options(words: str) -> Options:
    """Read the options of `source`, such as `grid=64,8,1 block=256,1,1 shared=0`."""
    found: dict[str, int | tuple[int, ...]] = {}
    for word in words.split():
        name, _, value = word.partition("=")
        if name not in _COUNTS or not re.fullmatch(r"\d{1,12}(,\d{1,12}){0,2}", value):
            accepted = "workspace=BYTES and, for CUDA, grid=X,Y,Z block=X,Y,Z shared=BYTES"
            raise ValueError(f"option {word[:40]!r} of source is not understood: accepted are {accepted}")
        numbers = tuple(map(int, value.split(",")))
        count = _COUNTS[name]
        if len(numbers) > count:
            raise ValueError(f"option {word!r}: expected {count} number{'s' if count > 1 else ''}")
        found[name] = numbers[0] if count == 1 else (*numbers, *(1,) * (count - len(numbers)))
    return Options(**found)  # type: ignore[arg-type]


def _without_fence(source: str) -> str:
    """Return a source without the fence that Markdown puts around code, if there is one."""
    fenced = re.fullmatch(r"\s*```\w*\n(.*?)\n?```\s*", source, re.DOTALL)
    return f"{fenced[1] if fenced else source}\n"
