"""Save and load the policies of learners. Saved tensors fill a network that is built from the settings in the card.

A file of stable-baselines3 is read only if it is trusted, because it contains pickles, which can run code.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from gymnasium import spaces

from agents.learners.blank import Blank, settings_of_answers
from agents.learners.registry import Learner, get_learner
from agents.learners.stored import FACTS, POLICY, ZIP, check_trust, described, fill, load_tensors, save_tensors

MOST_FEATURES = 8192
"""Maximum number of observed features, and of actions, in a policy's file. The largest shipped policy observes 707."""


def save_policy(path: Path, model: Any) -> None:
    """Write the network of a learner's model to a file. The optimiser is not kept, and the settings are in the card."""
    widths = int(flat_space(model).shape[0]), int(model.action_space.n)
    save_tensors(path, model.policy.state_dict(), **dict(zip(FACTS, widths, strict=True)))


def flat_space(model: Any) -> Any:
    """Return the space of a model's observations, without the mask."""
    observed = model.observation_space
    return observed["observation"] if isinstance(observed, spaces.Dict) else observed


def load_model(folder: Path, card: Mapping[str, Any], trust: bool = False) -> tuple[Learner, Any]:
    """Load a folder's policy as (learner, model). ValueError names a mismatch.

    `trust` permits files of stable-baselines3, which can run code.
    """
    learner = get_learner(described(folder, card)[0])
    if not (folder / POLICY).exists():
        check_trust(folder, trust)
        return learner, learner.load(folder / ZIP)
    return learner, network_of(folder, card, learner)


def network_of(folder: Path, card: Mapping[str, Any], learner: Learner) -> Any:
    """Build the model of a policy's card and fill it with the tensors of its folder. ValueError names a mismatch."""
    agent, settings, space = described(folder, card)
    tensors, facts = load_tensors(path := folder / POLICY)
    for name in FACTS:
        if not 1 <= facts.get(name, 0) <= MOST_FEATURES:
            raise ValueError(f"policy {path} says {facts.get(name)} {name}; expected a number from 1 to {MOST_FEATURES}")
    with torch.random.fork_rng(devices=[]):  # initial weights are random, and overwritten
        try:
            blank = Blank(facts["observations"], facts["actions"], space)
            model = learner.make(settings_of_answers(settings), blank, None)
        except (KeyError, TypeError, AttributeError, AssertionError, RuntimeError) as error:
            raise ValueError(f"the card beside {path} describes no network of agent {agent}: {error!r}") from error
    fill(model.policy, tensors, path)
    model.policy.set_training_mode(False)
    return model
