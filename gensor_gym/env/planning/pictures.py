"""A plan as text and as a picture."""

from __future__ import annotations

import io
from typing import Any

import numpy as np

from gensor_gym.env.pictures.facts import in_seconds
from gensor_gym.networks.drawing.picture import figure_of
from gensor_gym.networks.plan import Plan
from gensor_gym.networks.planning.graph import PlanGraph


def as_text(graph: PlanGraph, plan: Plan) -> str:
    """Return text with the network, the plan's seconds by the models, and a line for each piece with its seconds."""
    prices = [graph.prices.of(piece) for piece in plan.pieces]
    whole = f"{plan.network} on {graph.hardware.name}: {len(prices)} kernels, {in_seconds(sum(prices))} by the models"
    return "\n".join([whole, *(f"{in_seconds(seconds):>9} {piece}" for seconds, piece in zip(prices, plan.pieces, strict=True))])


def as_image(graph: PlanGraph, plan: Plan) -> np.ndarray:
    """Return the picture of a plan (`networks.drawing`), uint8 [H, W, 3]; ImportError if matplotlib is missing."""
    figure: Any = figure_of(plan)
    written = io.BytesIO()
    figure.savefig(written, format="rgba", dpi=100)
    width, height = figure.canvas.get_width_height()
    return np.frombuffer(written.getvalue(), np.uint8).reshape(height, width, 4)[..., :3].copy()
