"""Files of policies: named tensors in a safetensors file, which contains only numbers, with a JSON card next to it.

Such a file cannot run code: its tensors fill a network that is built from the card's settings.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

POLICY, ZIP = "policy.safetensors", "policy.zip"
"""File names of a policy: in our own format, and in that of stable-baselines3 (other projects and earlier versions)."""
MOST_BYTES = 256 << 20
"""Maximum size of a policy's file. The shipped files have less than one megabyte."""
MOST_WIDTH = 2048
"""Largest width of a network's layer that is loaded."""
_LAYERS, _WIDTHS = 8, ("width", "n_quantiles")
FACTS = ("observations", "actions")
"""Entries in the header of a policy's file: numbers of observed features and of actions, for policies that walk on the graph."""


def save_tensors(path: str | os.PathLike[str], tensors: Mapping[str, torch.Tensor], **facts: int) -> None:
    """Write named tensors to a safetensors file, with the whole numbers `facts` as metadata."""
    from safetensors.torch import save

    kept = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    Path(path).write_bytes(save(kept, {name: str(value) for name, value in facts.items()}))


def load_tensors(path: str | os.PathLike[str]) -> tuple[dict[str, torch.Tensor], dict[str, int]]:
    """Read a safetensors file; return (tensors by name, the whole numbers `FACTS` from its metadata).

    ValueError if the file is too large or damaged, or contains numbers that are not finite.
    """
    import torch
    from safetensors import SafetensorError, safe_open

    if (size := os.stat(path).st_size) > MOST_BYTES:
        raise ValueError(f"policy {path} has {size:,} bytes; at most {MOST_BYTES:,} are read")
    try:
        with safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            facts = {name: int(value) for name, value in (file.metadata() or {}).items() if name in FACTS}
    except (SafetensorError, OSError, ValueError) as error:
        raise ValueError(f"policy {path} is no whole safetensors file: {error}") from error
    if broken := [name for name, tensor in tensors.items() if not bool(torch.isfinite(tensor).all())]:
        raise ValueError(f"policy {path}, tensor {broken[0]}: holds numbers that are not finite")
    return tensors, facts


def fill(network: torch.nn.Module, tensors: Mapping[str, torch.Tensor], path: str | os.PathLike[str]) -> None:
    """Copy a file's tensors into a network. ValueError if names, shapes or types differ from the network's."""
    wanted = {name: _kind(tensor) for name, tensor in network.state_dict().items()}
    found = {name: _kind(tensor) for name, tensor in tensors.items()}
    for name in [*wanted, *found]:
        if wanted.get(name) != found.get(name):
            raise ValueError(
                f"policy {path} does not fit its card: tensor {name} is {found.get(name, 'missing')}, by the card "
                f"{wanted.get(name, 'there is none')}"
            )
    network.load_state_dict(dict(tensors))


def check_width(folder: str | os.PathLike[str], name: str, value: object) -> None:
    """Check that a card's network width `value` is a whole number from 1 to 2,048 (`MOST_WIDTH`). ValueError if not."""
    if type(value) is not int or not 1 <= value <= MOST_WIDTH:
        raise ValueError(f"the card in {folder} has agent.{name} {value!r}; expected widths from 1 to {MOST_WIDTH}")


def described(folder: Path, card: Mapping[str, Any]) -> tuple[str, dict[str, Any], str]:
    """Return (agent, its settings, space of schedules) from a policy's card.

    ValueError for an invalid card, and for networks that are too large.
    """
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


def check_trust(folder: Path, trust: bool) -> None:
    """Check that a folder's stable-baselines3 file exists and is trusted, and warn that its code is run.

    FileNotFoundError if it is missing, ValueError if it is not trusted.
    """
    if not (path := folder / ZIP).exists():
        raise FileNotFoundError(f"no policy at {folder / POLICY}")
    if trust is not True:
        raise ValueError(
            f"{path} is a file of stable-baselines3: to read it runs whatever code its maker put into it. If you trust that "
            f"maker, say so with trust=true (strategies.NAME.trust=true); else ask for {POLICY}, which is numbers alone"
        )
    warnings.warn(f"{path} is trusted: the code that it holds is run in this process", stacklevel=3)


def _kind(tensor: torch.Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}"
