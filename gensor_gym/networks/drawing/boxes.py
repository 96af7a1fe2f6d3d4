"""Layout of a drawing: boxes in layers, each below all boxes that it reads; links pass between the boxes of other layers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

GAP, LANE, BELOW, STUB = 0.3, 0.12, 0.5, 0.25
"""Distances in inches: between neighbouring boxes, width kept for a link that passes a layer, between layers, and the vertical
part of a link below a layer.
"""


@dataclass
class Box:
    """A box with lines of text, the sizes of its outputs as text, and its width and height in inches.

    `layered` sets the position.
    """

    lines: list[str]
    sizes: list[str]
    width: float
    height: float
    x: float = 0.0
    """Horizontal position of the box's centre, in inches."""
    top: float = 0.0

    @property
    def left(self) -> float:
        """Return the horizontal position of the left edge."""
        return self.x - self.width / 2


@dataclass
class Link:
    """A link from one box to another, by their indices. `layered` sets the points of its line."""

    start: int
    end: int
    points: list[tuple[float, float]] = field(default_factory=list)


@dataclass
class _Place:
    """An element of a layer of the drawing: a box, or a link that passes through."""

    width: float
    above: list[_Place] = field(default_factory=list)
    box: Box | None = None
    x: float = 0.0


def layered(boxes: Sequence[Box], links: Sequence[Link]) -> tuple[float, float]:
    """Set the positions of boxes and links. Return (width, height) of the drawing in inches; x = 0 is its centre, y = 0 its top.

    Links lead from earlier to later boxes. In its layer a box is placed by the mean position of its predecessors: the barycentre
    rule of Sugiyama, Tagawa and Toda (1981).
    """
    depth = [0] * len(boxes)
    for link in sorted(links, key=lambda link: link.end):
        depth[link.end] = max(depth[link.end], depth[link.start] + 1)
    layers: list[list[_Place]] = [[] for _ in range(1 + max(depth, default=-1))]
    places = [_Place(box.width, box=box) for box in boxes]
    for place, number in zip(places, depth, strict=True):
        layers[number].append(place)
    lanes = [_lanes(link, depth, places, layers) for link in links]
    width, tops, y = max((_side_by_side(layer) for layer in layers), default=0.0), [], 0.0
    for layer in layers:
        inside = [place.box for place in layer if place.box is not None]
        for box in inside:
            box.top = y
        tops.append((y, max(box.height for box in inside)))
        y += tops[-1][1] + BELOW
    for link, passed in zip(links, lanes, strict=True):
        through = [boxes[link.start].x, *(lane.x for lane in passed)]
        _line(link, boxes, [(x, *tops[depth[link.start] + number]) for number, x in enumerate(through)])
    return width, max(0.0, y - BELOW)


def _lanes(link: Link, depth: Sequence[int], places: Sequence[_Place], layers: Sequence[list[_Place]]) -> list[_Place]:
    found, last = [], places[link.start]
    for layer in range(depth[link.start] + 1, depth[link.end]):
        lane = _Place(LANE, [last])
        layers[layer].append(lane)
        found.append(lane)
        last = lane
    places[link.end].above.append(last)
    return found


def _side_by_side(layer: list[_Place]) -> float:
    layer.sort(key=lambda place: sum(one.x for one in place.above) / len(place.above) if place.above else 0.0)
    width = sum(place.width for place in layer) + GAP * (len(layer) - 1)
    x = -width / 2
    for place in layer:
        place.x = x + place.width / 2
        x += place.width + GAP
        if place.box is not None:
            place.box.x = place.x
    return width


def _line(link: Link, boxes: Sequence[Box], passed: Sequence[tuple[float, float, float]]) -> None:
    """Set the points of a link's line, from the lower edge of its first box to the upper edge of its second.

    `passed` has (x, top, height) of each layer on the way, through which the line is vertical.
    """
    start, end = boxes[link.start], boxes[link.end]
    link.points = [point for x, top, height in passed for point in ((x, top), (x, top + height + STUB))]
    link.points[0] = (start.x, start.top + start.height)
    near = min(max(link.points[-1][0], end.left + LANE), end.left + end.width - LANE)
    link.points.append((near, end.top))
