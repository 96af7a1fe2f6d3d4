"""Content of the page for a state, as plain data: texts with units, ready to be shown."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np

from agents.explore.address import Address
from agents.explore.players import Player, chances_of, players_of, traverser_of
from agents.explore.session import Position
from gensor_gym.codegen.program import Program, lower
from gensor_gym.cost.roofline import resident_bandwidth
from gensor_gym.env.pictures.facts import LEVEL_NAMES, TERM_WORDS, Use, bound, in_seconds, spread, uses
from gensor_gym.env.pictures.render import Line, loop_nest
from gensor_gym.exact.shipped import certificate_of, regret_of
from gensor_gym.graph.actions import ACTIONS, STOP
from gensor_gym.graph.knobs import KNOB_INDEX, KNOBS
from gensor_gym.graph.tables.layout import KNOB, LEVEL, MAX_AXES, SPATIAL_SLOTS, TILE, VTHREAD

LINKED = 24
"""Number of the last steps that have links. An address grows with its path, so that links to all steps would be slow."""
_KINDS = {
    "block": "outer", "task": "outer", "slice": "outer", "thread": "middle", "share": "middle", "step": "middle", "l1": "middle",
    "tile": "middle", "chunk": "inner", "vthread": "inner", "inner": "inner",
}  # fmt: skip
"""Last part of a loop's name -> nesting depth of the loop."""


@dataclass(frozen=True)
class Move:
    """A legal action as the page shows it: its effect in words, and its gain."""

    action: str
    words: str
    """Subject of the action, such as `tile m`. The field `change` has its old and new value."""
    change: str
    seconds: str
    gain: float
    """log(time now / time after): positive if the action makes the program faster."""
    gain_words: str
    chance: float | None
    """Probability that the traverser takes the action now; None for `stop`, which it never draws."""
    best: bool
    query: str


@dataclass(frozen=True)
class Bar:
    """A bar of a chart with its label.

    `length` is between 0 and 1, and `state` is the bar's class in the style sheet.
    """

    name: str
    words: str
    length: float
    state: str


@dataclass
class Nest:
    """A line of the shown loop nest: a loop with the lines `inside` it, or a line between loops."""

    text: str
    note: str = ""
    kind: str = "line"
    inside: list[Nest] = field(default_factory=list)


@dataclass(frozen=True)
class Axis:
    """The tile sizes of an axis, from the registers outwards, and the extent of the axis."""

    name: str
    reduce: bool
    tiles: tuple[int, ...]
    vthread: int
    extent: int


@dataclass(frozen=True)
class Roofline:
    """The machine's roofline and the program's performance, in operations per second.

    `intensity` is the program's operations per byte.
    """

    intensity: float
    peak: float
    levels: tuple[tuple[str, float, bool], ...]
    """(memory level, bytes per second, whether it holds the operator's data)."""
    first: float
    here: float
    best: float

    @property
    def share(self) -> str:
        """The program's performance and its share of the roofline's best, as text."""
        return f"{rate(self.here)}, {100 * self.here / self.best:.2g} % of its roof"


@dataclass(frozen=True)
class StepBack:
    """A program on the path to the shown state, with a link that goes back to it."""

    number: int
    action: str
    seconds: float
    words: str
    query: str


@dataclass(frozen=True)
class View:
    """Everything that the page shows of a state, except the program's source."""

    address: Address
    operator: str
    machine: str
    space: str
    level: str
    latency: str
    over_floor: str
    bound: str
    spread: str
    regret: str
    steps: int
    horizon: int
    finished: bool
    moves: list[Move]
    traverser: str
    players: list[Player]
    axes: list[Axis]
    level_names: tuple[str, ...]
    nest: list[Nest]
    terms: list[Bar]
    floor: float
    """The roofline's lower bound on the latency, as a share of the width of the bars `terms`."""
    total: float
    """The latency, as a share of the width of the bars `terms`."""
    floor_seconds: float
    floor_words: str
    resources: list[Bar]
    roofline: Roofline
    way: list[StepBack]
    schedule: str
    by_schedule: str
    """Query of the address that describes the program by the text of its schedule, without the path to it."""
    knobs: list[tuple[str, int, bool]]
    """(name, value, whether it is the default) of the knobs that the operator can use on this machine."""


def view_of(position: Position) -> View:
    """Compute everything that the page shows at a position."""
    graph, schedule = position.graph, position.schedule
    program, seconds = lower(graph.operator, schedule, graph.hardware), float(position.seconds[-1])
    names = LEVEL_NAMES[graph.hardware.kind]
    terms, scale = _terms(position, seconds)
    return View(
        address=position.address, operator=str(graph.operator), machine=graph.hardware.name, space=graph.space,
        level=names[schedule.level], latency=in_seconds(seconds), over_floor=f"{seconds / graph.floor:.3g}",
        bound=bound(graph, schedule), spread=spread(graph, schedule), regret=_regret(position, seconds), steps=position.steps,
        horizon=graph.horizon, finished=position.finished, moves=moves_of(position), traverser=traverser_of(graph)[0],
        players=list(players_of(graph).values()), axes=_axes(program), level_names=names, nest=nested(loop_nest(program)),
        terms=terms, floor=graph.floor / scale, total=seconds / scale, floor_seconds=graph.floor,
        floor_words=in_seconds(graph.floor),
        resources=[_resource(use) for use in uses(graph, schedule)], roofline=_roofline(position), way=_way(position),
        schedule=str(schedule),
        by_schedule=replace(position.address, actions=(), schedule=str(schedule)).query(), knobs=_knobs(position),
    )  # fmt: skip


def moves_of(position: Position) -> list[Move]:
    """Describe every legal action, `stop` last. The fastest is marked if it improves on the current program."""
    if position.finished:
        return []
    moves, now = position.moves, float(position.seconds[-1])
    gains = np.log(now / moves.seconds)
    chances = chances_of(position) if len(gains) else gains
    best = int(np.argmax(gains)) if len(gains) and gains.max() > 1e-9 else -1
    found = []
    for place, (action, row) in enumerate(zip(moves.actions.tolist(), moves.rows, strict=True)):
        words, change = in_words(position, action, row)
        found.append(
            Move(
                action=str(ACTIONS[action]), words=words, change=change, seconds=in_seconds(float(moves.seconds[place])),
                gain=float(gains[place]), gain_words=_percent(float(gains[place])), chance=float(chances[place]),
                best=place == best, query=position.address.after(str(ACTIONS[action])).query(),
            )
        )  # fmt: skip
    query = position.address.after(str(ACTIONS[STOP])).query()
    return [*found, Move("stop", "stop", "the program is finished", in_seconds(now), 0.0, "", None, False, query)]


def in_words(position: Position, action: int, row: np.ndarray) -> tuple[str, str]:
    """Describe an action that leads to the program `row`, as (subject, effect) in words."""
    before, taken = position.rows[-1], ACTIONS[action]
    names = LEVEL_NAMES[position.graph.hardware.kind]
    if taken.knob is not None:
        place = KNOB_INDEX[taken.knob]
        values = KNOBS[place].values
        return taken.knob, f"{values[before[KNOB + place]]} → {values[row[KNOB + place]]}"
    if taken.axis is not None:
        spatial = len(position.graph.operator.spatial)
        axis = position.graph.operator.axes[taken.axis - SPATIAL_SLOTS + spatial].name
        if taken.primitive.endswith("vthread"):
            return f"virtual threads {axis}", f"{before[VTHREAD + taken.axis]} → {row[VTHREAD + taken.axis]}"
        place = TILE + int(before[LEVEL]) * MAX_AXES + taken.axis
        return f"tile {axis}", f"{before[place]} → {row[place]}"
    return taken.primitive.replace("_", " "), f"{names[before[LEVEL]]} → {names[row[LEVEL]]}"


def nested(lines: list[Line]) -> list[Nest]:
    """Nest the lines of a generated loop nest by their depths."""
    root = Nest("")
    stack = [root]
    for line in lines:
        del stack[line.depth + 1 :]
        name = line.text.removeprefix("for ").partition(" in ")[0] if line.text.startswith("for ") else ""
        item = Nest(line.text, line.note, _KINDS[name.rpartition(".")[2]] if name else "line")
        stack[-1].inside.append(item)
        stack.append(item)
    return root.inside


def _percent(gain: float) -> str:
    """Describe the gain log(time before / time after) as a change of speed: `same`, `+25 %`, `−3 %`, or `× 12` if it is large."""
    ratio = math.exp(gain)
    if abs(gain) < 5e-4:
        return "same"
    percent = (ratio - 1) * 100
    return f"× {ratio:.2g}" if ratio >= 10 or ratio < 0.1 else f"{percent:+.{int(abs(percent) < 10)}f} %".replace("-", "−")


def _regret(position: Position, seconds: float) -> str:
    certificate = certificate_of(position.graph)
    if certificate is None:
        return ""
    return f"{regret_of(seconds, certificate):.3f} to the certified optimum of {in_seconds(certificate.optimum)}"


def _axes(program: Program) -> list[Axis]:
    op = program.operator
    return [
        Axis(axis.name, axis.kind == "reduce", tuple(tile[a] for tile in program.tiles), program.vthread[a], op.extents[a])
        for a, axis in enumerate(op.axes)
    ]


def _terms(position: Position, seconds: float) -> tuple[list[Bar], float]:
    words, terms = TERM_WORDS[position.graph.hardware.kind], position.graph.terms(position.schedule)
    largest = max(terms.values())
    scale = max(largest, seconds, position.graph.floor)
    return [
        Bar(words[name], in_seconds(value) if value >= 5e-13 else "0", value / scale, "largest" if value == largest else "plain")
        for name, value in terms.items()
    ], scale


def _resource(use: Use) -> Bar:
    state = "good" if use.fraction <= 0.75 else "near" if use.fraction <= 1.0 or use.soft else "over"
    share = f"{use.fraction:.0%}" if use.fraction < 9.995 else f"× {use.fraction:.0f}"
    return Bar(str(use) + (" (may overflow)" if use.soft else ""), share, min(1.0, use.fraction), state)


def _roofline(position: Position) -> Roofline:
    graph, op = position.graph, position.graph.operator
    holding = resident_bandwidth(op, graph.hardware)
    levels = [level for level in graph.hardware.memory if level.name in ("dram", "l3", "l2", "l1")]
    first = graph.latency(graph.initial())
    return Roofline(
        intensity=op.intensity,
        peak=dict(graph.hardware.peak).get(op.dtype) or graph.hardware.peak_of("float32"),
        levels=tuple((level.name.upper(), level.bandwidth, level.bandwidth == holding) for level in levels),
        first=op.flops / first, here=op.flops / float(position.seconds[-1]), best=op.flops / graph.floor,
    )  # fmt: skip


def _way(position: Position) -> list[StepBack]:
    names = ("start", *position.address.actions)
    return [
        StepBack(number, name, float(seconds), in_seconds(float(seconds)), position.address.back_to(number).query())
        for number, (name, seconds) in enumerate(zip(names, position.seconds, strict=True))
    ]


def _knobs(position: Position) -> list[tuple[str, int, bool]]:
    graph, schedule = position.graph, position.schedule
    useful = [knob for knob in KNOBS if len(knob.usable(graph.operator, graph.hardware)) > 1]
    return [(knob.name, schedule.knob(knob.name), schedule.knob(knob.name) == knob.default) for knob in useful]


def rate(operations: float) -> str:
    """Return operations per second as text with an SI prefix."""
    for scale, unit in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if operations >= scale:
            return f"{operations / scale:.3g} {unit}flop/s"
    return f"{operations:.3g} flop/s"
