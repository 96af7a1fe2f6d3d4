"""The tasks that a policy was trained on, bound to it by their fingerprints in its card."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from agents.policies.fused_parts import fused_fingerprints, fused_operators, is_fused
from gensor_gym import operators
from gensor_gym.fingerprint import common, fingerprints

KEPT = "fingerprints"
"""Field of a card: the fingerprint of every task by its operator's text; `fingerprint` is that of all together."""


def bound(trained_on: str | Sequence[str], env: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of a card or checkpoint that bind it to its tasks: operators on the hardware and in the space of `env`."""
    if is_fused(env["space"]):
        found = fused_fingerprints(fused_operators(trained_on), env["hardware"], env["space"])
    else:
        found = fingerprints(operators.resolve(trained_on), env["hardware"], env["space"])
    return {"fingerprint": common(found.values()), KEPT: found}


def is_current(card: Mapping[str, Any]) -> bool:
    """Whether all tasks of a card are the same as in training; ValueError for an unknown task."""
    return bool(card.get("fingerprint") == bound(card["operators"], card["config"]["env"])["fingerprint"])


def changed_tasks(card: Mapping[str, Any]) -> list[str]:
    """Operators of a card whose tasks have changed; only the largest of every class of operators is checked.

    A card without fingerprints counts as changed. If operators, machine or space are unknown, the unknown name is returned
    instead.
    """
    known = card.get(KEPT, {})
    try:
        env = card["config"]["env"]
        now = _now(card["operators"], env)
    except (KeyError, ValueError) as error:
        return [f"tasks that are not known here: {error}"]
    return sorted(text for text, found in now.items() if known.get(text) != found)


def _now(trained_on: str | Sequence[str], env: Mapping[str, Any]) -> dict[str, str]:
    """Fingerprints of one operator of each class, the largest of one loop nest."""
    if is_fused(env["space"]):
        first = {op.name: op for op in fused_operators(trained_on)}
        return fused_fingerprints(first.values(), env["hardware"], env["space"])
    largest = {op.name: op for op in sorted(operators.resolve(trained_on), key=lambda op: op.points)}
    return fingerprints(largest.values(), env["hardware"], env["space"])
