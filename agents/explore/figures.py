"""Geometry of the page's figures, in units of an SVG's view box. Colours and line styles are in the style sheet."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from agents.explore.views import Axis, Roofline, StepBack, rate

WIDTH = 380.0


@dataclass(frozen=True)
class Rect:
    """A rectangle; `kind` is its class in the style sheet and `words` its tooltip."""

    tag: ClassVar[str] = "rect"
    kind: str
    x: float
    y: float
    width: float
    height: float
    words: str = ""


@dataclass(frozen=True)
class Text:
    """Text at a point; `anchor` is start, middle or end."""

    tag: ClassVar[str] = "text"
    kind: str
    x: float
    y: float
    words: str
    anchor: str = "start"


@dataclass(frozen=True)
class Path:
    """A line through points, written `x,y x,y`."""

    tag: ClassVar[str] = "path"
    kind: str
    points: str


@dataclass(frozen=True)
class Dot:
    """A marked point with a tooltip."""

    tag: ClassVar[str] = "dot"
    kind: str
    x: float
    y: float
    words: str


Shape = Rect | Text | Path | Dot


@dataclass(frozen=True)
class Figure:
    """Shapes in drawing order, the figure's size, and its description in words."""

    height: float
    about: str
    shapes: tuple[Shape, ...]
    width: float = WIDTH


def tiles(axes: list[Axis], level_names: tuple[str, ...]) -> Figure:
    """Draw the tile sizes of each axis as nested bars on a logarithmic scale, one row per axis.

    The extent comes first, then the tiles from the outermost inwards.
    """
    row, left, right = 42.0, 32.0, 112.0
    longest = max(max(axis.extent, *axis.tiles) for axis in axes)
    unit = (WIDTH - left - right) / _length(longest)
    shapes: list[Shape] = []
    for place, axis in enumerate(axes):
        top = place * row + 5
        shapes.append(Text("name", left - 8, top + 22, axis.name + (" Σ" if axis.reduce else ""), "end"))
        chain = [(f"extent {axis.extent}", "extent", axis.extent)]
        chain += [
            (f"{name} {size}", f"level{level + (len(axis.tiles) == 2 and level == 1)}", size)
            for level, (name, size) in reversed(list(enumerate(zip(level_names, axis.tiles, strict=True))))
        ]
        for depth, (words, kind, size) in enumerate(chain):
            inset = depth * 16.0 / len(axis.tiles)
            shapes.append(Rect(kind, left, top + inset, _length(size) * unit, 36 - 2 * inset, words))
        numbers = " · ".join(map(str, axis.tiles)) + f" of {axis.extent}" + (f" v{axis.vthread}" if axis.vthread > 1 else "")
        shapes.append(Text("numbers", left + _length(longest) * unit + 8, top + 22, numbers))
    said = "; ".join(f"{axis.name}: tiles {', '.join(map(str, axis.tiles))} of {axis.extent}" for axis in axes)
    return Figure(len(axes) * row + 6, f"Tiles from the inside out. {said}", tuple(shapes))


def _length(size: int) -> float:
    """Return the length of a bar: logarithmic, with an offset that keeps size 1 visible."""
    return 0.35 + math.log2(size)


class _Scale:
    def __init__(self, low: float, high: float, begin: float, end: float) -> None:
        self.low, self.high, self.begin, self.end = low, high, begin, end

    def __call__(self, value: float) -> float:
        return self.begin + math.log(value / self.low) / math.log(self.high / self.low) * (self.end - self.begin)

    def value(self, place: float) -> float:
        """Return the value that a coordinate of the figure stands for."""
        return self.low * math.exp((place - self.begin) / (self.end - self.begin) * math.log(self.high / self.low))


def roofline(roof: Roofline) -> Figure:
    """Draw the roofline with three points: the rates of the unscheduled and the current program, and the best possible rate."""
    ridge = roof.peak / min(bandwidth for _, bandwidth, _ in roof.levels)
    low, high = min(roof.intensity, ridge) / 20, max(roof.intensity, ridge) * 20
    lowest = min(roof.first, roof.here) / 4
    height = 250.0
    x_of = _Scale(low, high, 44.0, WIDTH - 8.0)
    y_of = _Scale(lowest, max(roof.peak, roof.best) * 4, height - 34.0, 10.0)
    shapes: list[Shape] = [*_ticks(x_of, y_of)]
    for _, bandwidth, holding in sorted(roof.levels, key=lambda level: level[2]):  # draws the level that holds the data last
        begin = max(low, lowest / bandwidth)
        corner = roof.peak / bandwidth
        kind = "holding" if holding else "roof"
        points = [(begin, min(roof.peak, begin * bandwidth)), (max(begin, corner), roof.peak), (high, roof.peak)]
        shapes.append(Path(kind, " ".join(f"{x_of(x):.1f},{y_of(y):.1f}" for x, y in points)))
    shapes += _roof_names(x_of, y_of, roof)
    x, best = x_of(roof.intensity), y_of(roof.best)
    shapes.append(Path("climb", f"{x:.1f},{y_of(min(roof.first, roof.here)):.1f} {x:.1f},{best:.1f}"))
    shapes.append(Path("most", f"{x - 8:.1f},{best:.1f} {x + 8:.1f},{best:.1f}"))
    shapes.append(Dot("first", x, y_of(roof.first), f"unscheduled: {rate(roof.first)}"))
    shapes.append(Dot("here", x, y_of(roof.here), f"this program: {rate(roof.here)}"))
    middle = (x_of.begin + x_of.end) / 2
    shapes.append(Text("label", middle, height - 4, "flop per byte that must be moved, and flop/s", "middle"))
    return Figure(height, f"Roofline: this program reaches {roof.share}", tuple(shapes))


def _ticks(x_of: _Scale, y_of: _Scale) -> list[Path | Text]:
    """Draw ticks and grid lines at powers of ten, at most five per axis."""
    found: list[Path | Text] = []
    for power in _powers(y_of.low, y_of.high):
        y = y_of(10.0**power)
        words = rate(10.0**power).removesuffix("flop/s")
        found += [Path("grid", f"{x_of.begin},{y:.1f} {x_of.end},{y:.1f}"), Text("tick", x_of.begin - 6, y + 4, words, "end")]
    for power in _powers(x_of.low, x_of.high):
        x = x_of(10.0**power)
        words = f"{10.0**power:g}"
        found += [Path("grid", f"{x:.1f},{y_of.end} {x:.1f},{y_of.begin}"), Text("tick", x, y_of.begin + 14, words, "middle")]
    return found


def _powers(low: float, high: float) -> range:
    first, last = math.ceil(math.log10(low)), math.floor(math.log10(high))
    return range(first, last + 1, max(1, math.ceil((last - first + 1) / 5)))


def _roof_names(x_of: _Scale, y_of: _Scale, roof: Roofline) -> list[Text]:
    """Place the names of the memory levels next to their slopes, from the fastest level down, without overlap."""
    found: list[Text] = []
    for order, (name, bandwidth, holding) in enumerate(sorted(roof.levels, key=lambda level: -level[1])):
        if x_of.low * bandwidth >= roof.peak:
            continue  # the slope is outside the figure
        lower_end = y_of(min(roof.peak, max(x_of.low * bandwidth, y_of.low)))
        y = min(y_of(roof.peak) + 14.0 + 22.0 * order, lower_end)
        x = x_of(max(x_of.low, y_of.value(y) / bandwidth))
        kind = "roofname strong" if holding else "roofname"
        found.append(Text(kind, x + 8, max(y + 8, found[-1].y + 13.0 if found else 0.0), name))
    return found


def way(steps: list[StepBack], floor: float) -> Figure:
    """Draw the curve of the model's time after every step, on a logarithmic scale, above a line at the roofline's floor."""
    height, left, right = 110.0, 8.0, WIDTH - 8.0
    high = max(step.seconds for step in steps)
    y_of = _Scale(floor, max(high, floor * math.exp(0.1)), height - 16.0, 12.0)
    points = [(left + (right - left) * step.number / max(1, len(steps) - 1), y_of(step.seconds)) for step in steps]
    best = min(steps, key=lambda step: step.seconds)
    shapes: list[Shape] = [
        Path("floor", f"{left},{y_of(floor):.1f} {right},{y_of(floor):.1f}"),
        Text("tick", left, y_of(floor) + 13, "roofline floor"),
        Path("way", " ".join(f"{x:.1f},{y:.1f}" for x, y in points)),
        Dot("best", *points[best.number], f"fastest so far: step {best.number}, {best.words}"),
        Dot("here", *points[-1], f"step {steps[-1].number}, {steps[-1].words}"),
    ]
    about = f"Time after each of {len(steps) - 1} steps: from {steps[0].words} to {steps[-1].words}"
    return Figure(height, about, tuple(shapes))
