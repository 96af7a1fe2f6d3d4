"""Saving and loading the policies of learners: tensors into a network that the card's settings say.

A file of stable-baselines3 is read only where it is trusted: it holds pickles, and a pickle is a program.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from gymnasium import spaces

from agents.learners.blank import Blank, settings_of_answers
from agents.learners.registry import Learner, get_learner
from agents.learners.stored import FACTS, check_width, fill, load_tensors, save_tensors

POLICY, ZIP = "policy.safetensors", "policy.zip"
"""Files of a policy: ours, and that of stable-baselines3, of other projects and of earlier versions."""
_LAYERS, _WIDTHS = 8, ("width", "n_quantiles")


def save_policy(path: Path, model: Any) -> None:
    """The network of a learner's model, without optimiser and settings: these stand in the card."""
    widths = int(flat_space(model).shape[0]), int(model.action_space.n)
    save_tensors(path, model.policy.state_dict(), **dict(zip(FACTS, widths, strict=True)))


def flat_space(model: Any) -> Any:
    """The space of a model's observations, without masks."""
    observed = model.observation_space
    return observed["observation"] if isinstance(observed, spaces.Dict) else observed


def load_model(folder: Path, card: Mapping[str, Any], trust: bool = False) -> tuple[Learner, Any]:
    """How the policy of a folder was learned, and a model that answers; ValueError names what does not fit."""
    agent, settings, space = described(folder, card)
    learner = get_learner(agent)
    if not (path := folder / POLICY).exists():
        check_trust(folder, trust)
        return learner, learner.load(folder / ZIP)
    tensors, facts = load_tensors(path)
    for name in FACTS:
        if not 1 <= facts.get(name, 0) <= 1 << 16:
            raise ValueError(f"policy {path} says {facts.get(name)} {name}; expected a number from 1 to 65536")
    with torch.random.fork_rng(devices=[]):  # weights are drawn, and written over
        try:
            blank = Blank(facts["observations"], facts["actions"], space)
            model = learner.make(settings_of_answers(settings), blank, None)
        except (KeyError, TypeError, AttributeError, AssertionError, RuntimeError) as error:
            raise ValueError(f"the card beside {path} describes no network of agent {agent}: {error!r}") from error
    fill(model.policy, tensors, path)
    model.policy.set_training_mode(False)
    return learner, model


def check_trust(folder: Path, trust: bool) -> None:
    """ValueError unless a folder's file of stable-baselines3 is trusted; a warning says what was done then."""
    if not (path := folder / ZIP).exists():
        raise FileNotFoundError(f"no policy at {folder / POLICY}")
    if trust is not True:
        raise ValueError(
            f"{path} is a file of stable-baselines3: to read it runs whatever code its maker put into it. If you trust that "
            f"maker, say so with trust=true (strategies.NAME.trust=true); else ask for {POLICY}, which is numbers alone"
        )
    warnings.warn(f"{path} is trusted: the code that it holds is run in this process", stacklevel=3)


def described(folder: Path, card: Mapping[str, Any]) -> tuple[str, dict[str, Any], str]:
    """Agent, its settings and the space of a card; ValueError for what is none, and for networks too large."""
    agent, config = card.get("agent"), card.get("config")
    settings = config.get("agent") if isinstance(config, dict) else None
    env = config.get("env") if isinstance(config, dict) else None
    if not isinstance(agent, str) or not isinstance(settings, dict) or not isinstance(env, dict):
        found = f"agent {agent!r}, config.agent {settings!r}, config.env {env!r}"[:300]
        raise ValueError(f"the card in {folder} has {found}; expected a name, and settings of both")
    layers = settings.get("net_arch", [])
    if not isinstance(layers, list) or len(layers) > _LAYERS:
        raise ValueError(f"the card in {folder} has agent.net_arch {layers!r}; expected a list of {_LAYERS} widths at most")
    widths = [*(("net_arch", layer) for layer in layers), *((name, settings[name]) for name in _WIDTHS if name in settings)]
    for name, value in widths:
        check_width(folder, name, value)
    return agent, settings, str(env.get("space", ""))
