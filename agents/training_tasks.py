"""The tasks that a policy was trained on, bound to it by their fingerprints in its card."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gensor_gym import operators
from gensor_gym.fingerprint import common, fingerprints

KEPT = "fingerprints"
"""Field of a card: the fingerprint of every task by its operator's text; `fingerprint` is that of all together."""


def bound(trained_on: str | Sequence[str], env: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of a card or checkpoint that bind it to its tasks: operators on the hardware and in the space of `env`."""
    found = fingerprints(operators.resolve(trained_on), env["hardware"], env["space"])
    return {"fingerprint": common(found.values()), KEPT: found}


def is_current(card: Mapping[str, Any]) -> bool:
    """Whether all tasks of a card are what they were in training."""
    return bool(card["fingerprint"] == bound(card["operators"], card["config"]["env"])["fingerprint"])


def changed_tasks(card: Mapping[str, Any]) -> list[str]:
    """Operators of a card whose tasks have another fingerprint now; of every class of operators one is looked at.

    A card without fingerprints of tasks names none: all of its classes count as changed.
    """
    env, known = card["config"]["env"], card.get(KEPT, {})
    one = {op.name: op for op in reversed(operators.resolve(card["operators"]))}
    now = fingerprints(one.values(), env["hardware"], env["space"])
    return sorted(text for text, found in now.items() if known.get(text) != found)
