"""The tasks that a policy was trained on, bound to it by their fingerprints in its card."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gensor_gym import operators
from gensor_gym.fingerprint import common, fingerprints

KEPT = "fingerprints"
"""Field of a card: the fingerprint of every task by its operator's text; `fingerprint` is that of all together."""


def training_fingerprints(config: Mapping[str, Any]) -> dict[str, str]:
    """Of the tasks of a training's configuration: its operators on the hardware and in the space of its environment."""
    return fingerprints(operators.resolve(config["operators"]), config["env"]["hardware"], config["env"]["space"])


def bound(config: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of a card or checkpoint that bind it to the tasks of its configuration."""
    found = training_fingerprints(config)
    return {"fingerprint": common(found.values()), KEPT: found}


def changed_tasks(card: Mapping[str, Any]) -> list[str]:
    """Operators of a card whose tasks have another fingerprint now; of every class of operators one is looked at.

    A card without fingerprints of tasks names none: all of its classes count as changed.
    """
    config, known = card["config"], card.get(KEPT, {})
    one = {op.name: op for op in reversed(operators.resolve(card["operators"]))}
    now = fingerprints(one.values(), config["env"]["hardware"], config["env"]["space"])
    return sorted(text for text, found in now.items() if known.get(text) != found)
