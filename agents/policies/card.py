"""Read and check the card of a policy, a JSON file next to the policy that names its training tasks.

`agents/training/train.py` writes it.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

from agents.learners.stored import POLICY, ZIP, described
from agents.policies.training_tasks import changed_tasks
from gensor_gym.foreign import read_json
from gensor_gym.graph.tables.layout import LAYOUT_VERSION

CARD = "card.json"
"""File name of the card in a checkpoint folder."""
HOLDS = f"with {POLICY} and {CARD} in it"


def checked_card(folder: Path) -> dict[str, Any]:
    """Read the card of a checkpoint folder and check that its policy can be used here.

    FileNotFoundError if the policy is missing, ValueError if the card is incomplete or has another layout. Warn if
    the training tasks have changed because rules or model are different now (`agents.policies.training_tasks`).
    """
    path = folder / POLICY
    if folder.is_file():
        raise ValueError(f"checkpoint {folder} is a file: expected the folder that `gensor train` writes, {HOLDS}")
    if not path.exists() and not (folder / ZIP).exists():
        raise FileNotFoundError(
            f"no policy at {path}; train one with: python -m experiments train "
            "agent=NAME env.hardware=MACHINE env.space=SPACE output=FOLDER, for the machine and the space of the task (ppo and "
            "columns are shipped for the model of an H200, ppo for that of a Cascade Lake too)"
        )
    card = read_card(folder)
    if missing := [name for name in ("agent", "config", "operators", "training_seconds") if name not in card]:
        raise ValueError(f"{folder / CARD} is no card of a policy: it lacks {', '.join(missing)}")
    described(folder, card)
    if card.get("layout") != LAYOUT_VERSION:
        raise ValueError(
            f"policy {path} was trained on layout {card.get('layout')}; this version has layout {LAYOUT_VERSION}"
        )
    if changed := changed_tasks(card):
        warnings.warn(
            f"policy {path} was trained on tasks of other rules or another model (fingerprints differ: {', '.join(changed)}): "
            "what it learned may not hold; train another with: python -m experiments train agent=NAME output=FOLDER",
            stacklevel=2,
        )  # fmt: skip
    return card


def read_card(folder: Path) -> dict[str, Any]:
    """Read the card of a checkpoint: configuration, data, cost and evaluation. FileNotFoundError if it is missing."""
    if not (folder / CARD).exists():
        raise FileNotFoundError(f"no {CARD} in {folder}: expected the folder that `gensor train` writes, {HOLDS}")
    return read_json(folder / CARD, finite=False)
