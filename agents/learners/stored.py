"""A policy's file: tensors by name in a safetensors file, which is numbers and nothing else. A JSON card lies beside it.

No code comes from such a file. What it holds is put into a network that is built here, from the card's settings.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import torch

MOST_BYTES = 256 << 20
"""Of a policy's file; those that ship have less than one megabyte."""
MOST_WIDTH = 2048
"""Of a layer."""
FACTS = ("observations", "actions")
"""Widths of what a policy that walks observes and answers, in the file's header."""


def save_tensors(path: str | os.PathLike[str], tensors: Mapping[str, torch.Tensor], **facts: int) -> None:
    """Write tensors, with whole numbers by name."""
    from safetensors.torch import save

    kept = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    Path(path).write_bytes(save(kept, {name: str(value) for name, value in facts.items()}))


def load_tensors(path: str | os.PathLike[str]) -> tuple[dict[str, torch.Tensor], dict[str, int]]:
    """(tensors, whole numbers) of a file. ValueError for one that is no such file, and for numbers that are not finite."""
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
    """Put the tensors of a file into a network. ValueError where names, shapes or types are not the network's."""
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
    """ValueError for a width that is no whole number from 1 to MOST_WIDTH: a network is built by it."""
    if type(value) is not int or not 1 <= value <= MOST_WIDTH:
        raise ValueError(f"the card in {folder} has agent.{name} {value!r}; expected widths from 1 to {MOST_WIDTH}")


def _kind(tensor: torch.Tensor) -> str:
    """Type and shape, in words."""
    return f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}"
