"""The picture of a plan: attention as oneDNN Graph Compiler's authors time it, cut everywhere."""

from __future__ import annotations

from pathlib import Path

from experiments.common import style
from experiments.networks.suite import inputs_of, module_of
from gensor_gym.frontends.torch_export import from_torch
from gensor_gym.networks.drawing.picture import figure_of
from gensor_gym.networks.folding import folded
from gensor_gym.networks.plan import cut_all

NETWORK, BATCH = "mha_1", 32


def draw(folder: Path) -> None:
    """Write it for light and for dark pages."""
    network = folded(from_torch(module_of(NETWORK), inputs_of(NETWORK, BATCH)))
    style.save(figure_of(cut_all(network)), folder / f"{NETWORK}.png", "both")
