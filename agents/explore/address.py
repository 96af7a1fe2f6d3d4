"""The address of a state: the query of a URL that fully determines the state, so that it can be shared and reopened."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from urllib.parse import parse_qsl, quote, urlencode

from gensor_gym.graph.actions import ACTIONS
from gensor_gym.graph.schedule import Schedule
from gensor_gym.registry import near

MOST_ACTIONS = 512
LONGEST = {"operator": 300, "machine": 60, "space": 60, "seed": 20, "schedule": 600, "actions": MOST_ACTIONS * 32}
"""Maximum number of characters of each part of an address. The longest name of an action has 30."""
MOST_CHARACTERS = 48_000
"""Maximum number of characters of a raw query, in which URL encoding may write one character as three."""
SEEDS = 2**63
NUMBERS = {str(action): number for number, action in enumerate(ACTIONS)}
"""Action name -> action number."""


@dataclass(frozen=True)
class Address:
    """A state of the web page: a task (operator, machine, space) and a program.

    The program is the result of `actions`, from the unscheduled program or from `schedule`.
    """

    operator: str = "gemm(m=512, n=512, k=512)"
    machine: str = "host"
    space: str = "gensor"
    seed: int = 0
    """Seed of the strategies' random draws."""
    schedule: str = ""
    """Text of the starting program; empty for the unscheduled program."""
    actions: tuple[str, ...] = ()
    """Names of the actions taken, such as `tile[4]`, in order."""

    @property
    def task(self) -> tuple[str, str, str]:
        """The task as (operator, machine, space)."""
        return self.operator, self.machine, self.space

    def after(self, action: str) -> Address:
        """Return the address of the state after one more action."""
        return replace(self, actions=(*self.actions, action))

    def back_to(self, steps: int) -> Address:
        """Return the address of the state after only the first `steps` actions."""
        return replace(self, actions=self.actions[:steps])

    def query(self) -> str:
        """Return the address as the query of a URL, which `read` parses. Defaults are omitted, except those of the task."""
        begin = _encoded(self.operator, self.machine, self.space, self.seed, self.schedule)
        return f"{begin}&actions={'%20'.join(self.actions)}" if self.actions else begin


def read(query: str, also: Sequence[str] = ()) -> tuple[Address, dict[str, str]]:
    """Parse the query of a URL; return the address and the values of the extra names in `also`.

    ValueError names a value that is too long, duplicate or unknown. Names of operator, machine and space are not looked up.
    """
    if len(query) > MOST_CHARACTERS:
        raise ValueError(f"an address of {len(query)} characters: expected at most {MOST_CHARACTERS}")
    pairs = parse_qsl(query, keep_blank_values=True, max_num_fields=16)
    given = dict(pairs)
    if len(given) < len(pairs):
        raise ValueError(f"an address with {[name for name, _ in pairs]}: expected each once")
    for name, text in given.items():
        if name not in LONGEST and name not in also:
            raise ValueError(f"an address with {name[:60]!r}; expected {', '.join(LONGEST)}")
        if len(text) > LONGEST.get(name, 60):
            raise ValueError(f"{name} of {len(text)} characters: expected at most {LONGEST.get(name, 60)}")
    others = {name: given.pop(name, "") for name in also}
    first = Address()
    return Address(
        operator=given.get("operator", "").strip() or first.operator,
        machine=given.get("machine", "").strip().lower() or first.machine,
        space=given.get("space", "") or first.space,
        seed=_seed(given.get("seed", "")),
        schedule=str(Schedule.parse(given["schedule"])) if given.get("schedule") else "",
        actions=_actions(given.get("actions", "")),
    ), others


@lru_cache(maxsize=64)
def _encoded(operator: str, machine: str, space: str, seed: int, schedule: str) -> str:
    """Encode everything of an address but its actions; cached, because addresses on one page differ only in actions."""
    parts = {"operator": operator, "machine": machine, "space": space}
    optional = {"seed": str(seed or ""), "schedule": schedule}
    return urlencode(parts | {name: text for name, text in optional.items() if text}, safe="()=,[]", quote_via=quote)


def _seed(text: str) -> int:
    if not re.fullmatch(r"[0-9]*", text) or int(text or 0) >= SEEDS:
        raise ValueError(f"seed {text!r}: expected a whole number below 2^63")
    return int(text or 0)


def _actions(text: str) -> tuple[str, ...]:
    names = tuple(text.split())
    if len(names) > MOST_ACTIONS:
        raise ValueError(f"{len(names)} actions: expected at most {MOST_ACTIONS}")
    if unknown := [name for name in names if name not in NUMBERS]:
        some = ", ".join(list(NUMBERS)[:4])
        raise ValueError(f"no action {unknown[0]!r}: expected one such as {some}{near(unknown[0], NUMBERS)}")
    return names
