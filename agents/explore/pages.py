"""Render the page and its parts as HTML, from `views`, `figures` and `code`. Every value is escaped."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from agents.explore import figures
from agents.explore.address import LONGEST, SEEDS, Address
from agents.explore.timing import Timed
from agents.explore.views import LINKED, View
from gensor_gym import hardware
from gensor_gym.graph.actions import SPACES

FOLDER = Path(__file__).parent
EXAMPLES = (
    "gemm(m=512, n=512, k=512)", "gemm(m=512, n=384, k=1000)+bias+relu", "gemv(m=4096, k=4096)",
    "conv2d(n=1, c=64, h=56, w=56, k=64, r=3, s=3, padding=1)", "depthwise_conv2d(n=1, c=96, h=56, w=56, r=3, s=3, padding=1)",
    "reduce_sum(m=4096, k=4096)", "roller/C0",
)  # fmt: skip


@cache
def _templates() -> Environment:
    return Environment(
        loader=FileSystemLoader(FOLDER / "templates"), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip


def part(name: str, **values: object) -> str:
    """Render one part of the page (`waiting`, `refusal`, `measured` or `code`) as HTML from its template and `values`."""
    return _templates().get_template(f"{name}.html").render(**values)


def page(address: Address, inner: str, token: str, players: list[tuple[str, str]]) -> str:
    """Render the whole page as HTML around `inner`, the HTML of its main part.

    `token` permits measurements, and `players` are pairs of a name and its description.
    """
    return part(
        "page", address=address, inner=inner, token=token, players=players, machines=hardware.names(), spaces=list(SPACES),
        examples=EXAMPLES, longest=LONGEST, seeds=SEEDS,
    )  # fmt: skip


def state(view: View, timed: Timed | None, absence: str) -> str:
    """Render the part of the page that shows a state, as HTML.

    `absence` says why the program cannot be measured; it is empty if it can.
    """
    players = [(player.name, f"{player.name}: {player.about}") for player in view.players]
    return part(
        "state", view=view, timed=timed, absence=absence, players=json.dumps(players), linked=LINKED,
        tiles=figures.tiles(view.axes, view.level_names), roofline=figures.roofline(view.roofline),
        way=figures.way(view.way, view.floor_seconds),
    )  # fmt: skip
