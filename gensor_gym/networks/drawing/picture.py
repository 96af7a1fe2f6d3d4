"""Picture of a plan: a box for each kernel, with the nodes that it computes, and links for the values between kernels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from gensor_gym.dataflow.expressions import renamed
from gensor_gym.dataflow.nodes import Contract, Map, Node, Reduce, Transpose
from gensor_gym.networks.drawing.boxes import Box, Link, layered
from gensor_gym.networks.network import Network
from gensor_gym.networks.plan import Plan

if TYPE_CHECKING:
    from matplotlib.figure import Figure

INK, GREY, PALE, GIVEN = "#222222", "#757575", "#F0F0F0", "#FFFFFF"
FONT, LETTER, SMALL, LINE, PADDING, MARGIN = 8.0, 0.070, 0.055, 0.165, 0.09, 0.15
"""Sizes of text: the font in points; in inches a letter's width, a small letter's width, a line's height, and the margins around
texts and around the picture.
"""
LONGEST = 64
"""Largest number of characters of a line of text in a box."""


def figure_of(plan: Plan) -> Figure:
    """Draw a plan as a matplotlib figure, as large as the plan needs; ImportError without matplotlib.

    Boxes with a number are kernels, boxes without a number are inputs and outputs. Constants are named inside the boxes that read
    them. The size of a value is below the box that computes it.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("a plan's picture is drawn with matplotlib: pip install matplotlib") from error
    boxes, links = boxes_of(plan)
    width, height = layered(boxes, links)
    figure = Figure(figsize=(width + 2 * MARGIN, height + 2 * MARGIN))
    FigureCanvasAgg(figure)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(-width / 2 - MARGIN, width / 2 + MARGIN), ylim=(height + MARGIN, -MARGIN))
    axes.axis("off")
    for link in links:
        axes.plot(*zip(*link.points, strict=True), color=GREY, linewidth=0.9, zorder=1)
        axes.annotate("", link.points[-1], link.points[-2], arrowprops={"arrowstyle": "->", "color": GREY, "linewidth": 0.9})
    for box in boxes:
        _draw(axes, box)
    return figure


def boxes_of(plan: Plan) -> tuple[list[Box], list[Link]]:
    """Return the boxes of a plan (inputs, kernels in order, outputs) and the links between them.

    A link leads from a box to each box that reads its values.
    """
    network, sizes = plan.network, {value.name: value for value in plan.network.graph.values.values()}
    boxes = [_box([value.name], [value.name], sizes, ()) for value in network.inputs]
    maker = {value.name: number for number, value in enumerate(network.inputs)}
    links: list[Link] = []
    for number, step in enumerate(plan.steps):
        constants = [name for name in step.reads if name in network.constants]
        lines = [said(network, name) for name in plan.pieces[number].nodes] + [f"constant {name}" for name in constants]
        read = dict.fromkeys(one for name in step.reads for one in network.made_by(name))
        links += [Link(one, len(boxes)) for one in dict.fromkeys(maker[name] for name in read if name in maker)]
        maker |= dict.fromkeys(step.writes, len(boxes))
        boxes.append(_box([f"kernel {number}", *lines], step.writes, sizes, network.graph.returns))
    for name in network.graph.returns:
        makers = dict.fromkeys(maker[one] for one in network.made_by(network.root_of(name)))
        links += [Link(one, len(boxes)) for one in makers]
        boxes.append(_box([f"output {name}"], (), sizes, ()))
    return boxes, links


def said(network: Network, name: str) -> str:
    """Return one line of text for a node, such as `v3 = relu(v2)`. Inputs that are views have the names of their sources."""
    node = network.nodes[name]
    behind = {one: network.source_of(one) for one in node.inputs}
    text = f"{name} = {_made(node, behind)}"
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 2]}.."


def _made(node: Node, names: dict[str, str]) -> str:
    if isinstance(node, Map):
        return str(renamed(node.expression, names))
    if isinstance(node, Contract):
        return str(node.operator)
    if isinstance(node, Reduce):
        return f"{node.body}({names[node.source]}, axes={list(node.axes)})"
    if isinstance(node, Transpose):
        return f"transpose({names[node.source]}, {list(node.order)})"
    return f"{type(node).__name__.lower()}({', '.join(names.values())})"


def _box(lines: list[str], made: Sequence[str], values: Any, returns: Sequence[str]) -> Box:
    sizes = [f"{'x'.join(map(str, values[name].shape))}  {bytes_text(values[name].nbytes)}" for name in made]
    below = max(map(len, sizes), default=0)
    width = max(2 * PADDING + LETTER * max(map(len, lines)), 2 * (PADDING + SMALL * below))
    return Box(lines, sizes, width, 2 * PADDING + LINE * len(lines))


def bytes_text(size: float) -> str:
    """Return a number of bytes as text, with three digits and a unit."""
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size >= scale:
            return f"{size / scale:.3g} {unit}"
    return f"{size:g} B"


def _draw(axes: Any, box: Box) -> None:
    from matplotlib.patches import FancyBboxPatch

    kernel = box.lines[0].startswith("kernel ")
    style: dict[str, Any] = {"boxstyle": "round,pad=0,rounding_size=0.06", "linewidth": 1.0, "edgecolor": GREY}
    patch = FancyBboxPatch((box.left, box.top), box.width, box.height, facecolor=PALE if kernel else GIVEN, **style)
    axes.add_patch(patch)
    for number, line in enumerate(box.lines):
        y = box.top + PADDING + LINE * (number + 0.5)
        words = {"fontsize": FONT, "family": "monospace", "color": GREY if line.startswith("constant ") else INK}
        weight = "bold" if number == 0 else "normal"
        axes.text(box.left + PADDING, y, line, va="center", fontweight=weight, **words)
    for number, line in enumerate(box.sizes):
        y = box.top + box.height + LINE * (number + 0.7)
        axes.text(box.x + 0.07, y, line, va="center", fontsize=FONT - 1, color=GREY)
