"""Compute fingerprints of a policy's training tasks. The card stores them, so that a change of the tasks is noticed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from agents.policies.fused_parts import fused_fingerprints, fused_operators, is_fused
from gensor_gym import operators
from gensor_gym.fingerprint import common, fingerprints

KEPT = "fingerprints"
"""Field of a card that maps an operator's text to its task's fingerprint. `fingerprint` is the common hash of all tasks."""


def bound(trained_on: str | Sequence[str], env: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a card that hold the fingerprints of training tasks.

    The tasks are the operators `trained_on`, on the hardware and in the space of `env`.
    """
    if is_fused(env["space"]):
        found = fused_fingerprints(fused_operators(trained_on), env["hardware"], env["space"])
    else:
        found = fingerprints(operators.resolve(trained_on), env["hardware"], env["space"])
    return {"fingerprint": common(found.values()), KEPT: found}


def is_current(card: Mapping[str, Any]) -> bool:
    """Return whether all tasks of a card are the same as in training. ValueError for an unknown task."""
    return bool(card.get("fingerprint") == bound(card["operators"], card["config"]["env"])["fingerprint"])


def changed_tasks(card: Mapping[str, Any]) -> list[str]:
    """Return the texts of a card's operators whose tasks have changed. Only one operator of every operator class is checked.

    All operators of a card without fingerprints count as changed. If operators, machine or space are unknown here, the list
    consists of one text that says so.
    """
    known = card.get(KEPT, {})
    try:
        env = card["config"]["env"]
        now = _now(card["operators"], env)
    except (KeyError, ValueError) as error:
        return [f"tasks that are not known here: {error}"]
    return sorted(text for text, found in now.items() if known.get(text) != found)


def _now(trained_on: str | Sequence[str], env: Mapping[str, Any]) -> dict[str, str]:
    """Return the current fingerprints of one operator per class.

    Of fused operators the last of each class is taken, of other operators the largest.
    """
    if is_fused(env["space"]):
        first = {op.name: op for op in fused_operators(trained_on)}
        return fused_fingerprints(first.values(), env["hardware"], env["space"])
    largest = {op.name: op for op in sorted(operators.resolve(trained_on), key=lambda op: op.points)}
    return fingerprints(largest.values(), env["hardware"], env["space"])
