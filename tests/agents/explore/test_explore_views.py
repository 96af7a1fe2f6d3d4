"""What the page says of states: the renderer's figures, actions in words, marked lines of code; everything escaped."""

from __future__ import annotations

import json
import math
import re
import threading
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from agents.explore import figures, pages
from agents.explore.address import Address
from agents.explore.code import listing_of
from agents.explore.readiness import Readiness
from agents.explore.session import Position, position_of
from agents.explore.timing import Timer, absence
from agents.explore.views import Nest, nested, view_of
from gensor_gym import operators
from gensor_gym.codegen.build import generate
from gensor_gym.codegen.program import lower
from gensor_gym.env.pictures.facts import uses
from gensor_gym.env.pictures.render import Line, as_text, loop_nest
from gensor_gym.measure.measurement import Measurement, Status

from .conftest import SMALL

WALKED = replace(SMALL, actions=("tile[4]", "tile[3]", "tile[4]", "cache", "tile[3]"))
STATES = [
    WALKED, replace(WALKED, space="extended"), replace(WALKED, machine="cascade_lake", space="extended"),
    replace(WALKED, operator="max_pool2d(n=1, c=8, h=32, w=32, r=3, s=3)", actions=("tile[4]", "stop")),
    replace(WALKED, machine="mi300x"),
]  # fmt: skip


@pytest.mark.parametrize("address", STATES, ids=lambda a: f"{a.operator} {a.machine} {a.space}")
def test_a_state_is_shown_whole(address: Address) -> None:
    """Every number of the renderer's text stands on the page, every legal action is a link that leads where it says."""
    position = position_of(address)
    view = view_of(position)
    html = pages.state(view, None, "")
    assert all(line.text in _lines(view.nest) for line in _program_lines(position))
    used = [str(use) for use in uses(position.graph, position.schedule)]
    assert [bar.name.removesuffix(" (may overflow)") for bar in view.resources] == used
    for move in view.moves:
        after = position_of(replace(position.address, actions=(*position.address.actions, move.action)))
        assert move.gain == pytest.approx(math.log(position.seconds[-1] / after.seconds[-1]), abs=1e-12)
        assert f'href="/?{move.query.replace("&", "&amp;")}"' in html
    assert sum(move.best for move in view.moves) <= 1
    assert (not view.moves) == (address.actions[-1] == "stop")
    _well_formed(html)


def _program_lines(position: Position) -> list[Line]:
    return loop_nest(lower(position.graph.operator, position.schedule, position.graph.hardware))


def _lines(items: list[Nest]) -> list[str]:
    """Texts of a nest in order."""
    return [text for item in items for text in (item.text, *_lines(item.inside))]


def _well_formed(html: str) -> None:
    """Every element is closed by its own end, and no attribute holds a style or a script."""

    class Checked(HTMLParser):
        open: list[str] = []

        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            assert not {name for name, _ in attrs if name == "style" or name.startswith("on")}, (tag, attrs)
            if tag not in ("br", "input", "meta", "link", "option"):
                self.open.append(tag)

        def handle_endtag(self, tag: str) -> None:
            assert tag == "option" or self.open.pop() == tag

        def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            pass

    checked = Checked()
    checked.open = []
    checked.feed(html)
    assert checked.open == []


def test_loops_hold_what_is_inside_them() -> None:
    texts = [(0, "for m.block in 4:", ""), (1, "a", ""), (1, "for m.inner in 2:", "x"), (2, "b", ""), (0, "c", "")]
    found = nested([Line(*text) for text in texts])
    assert found == [
        Nest("for m.block in 4:", "", "outer", [Nest("a"), Nest("for m.inner in 2:", "x", "inner", [Nest("b")])]), Nest("c"),
    ]  # fmt: skip


def test_the_text_of_a_rendered_program_is_made_of_the_same_lines() -> None:
    position = position_of(WALKED)
    text = as_text(position.graph, position.schedule)
    assert all(str(line) in text.splitlines() for line in _program_lines(position))


def test_actions_are_said_in_words() -> None:
    words = {move.action: f"{move.words} {move.change}" for move in view_of(position_of(WALKED)).moves}
    before = {move.action: f"{move.words} {move.change}" for move in view_of(position_of(WALKED.back_to(3))).moves}
    assert words["tile[4]"] == "tile n 4 → 8" and before["cache"] == "cache register tile → block tile"
    assert words["stop"] == "stop the program is finished" and words["set_vthread[3]"] == "virtual threads m 1 → 2"
    knobs = {move.action: f"{move.words} {move.change}" for move in view_of(position_of(STATES[1])).moves}
    assert knobs["raise[unroll]"] == "unroll 4 → 8"


def test_figures_lie_within_their_frames() -> None:
    for address in STATES:
        view = view_of(position_of(address))
        tiles, way = figures.tiles(view.axes, view.level_names), figures.way(view.way, view.floor_seconds)
        for figure in (tiles, figures.roofline(view.roofline), way):
            for shape in figure.shapes:
                if isinstance(shape, figures.Path):
                    places = [tuple(map(float, point.split(","))) for point in shape.points.split()]
                elif isinstance(shape, figures.Rect):
                    places = [(shape.x, shape.y), (shape.x + shape.width, shape.y + shape.height)]
                else:
                    places = [(shape.x, shape.y)]
                assert all(-1 <= x <= figure.width + 1 and -1 <= y <= figure.height + 1 for x, y in places), (address, shape)


def test_changed_lines_of_the_code_are_marked() -> None:
    position = position_of(WALKED)
    listing = listing_of(position)
    before = position_of(WALKED.back_to(4))
    sources = [generate(p.graph.operator, p.schedule, p.graph.hardware).source.splitlines() for p in (before, position)]
    assert [line.text for line in listing.lines] == sources[1] and listing.language == "CUDA"
    kept = [line.text for line in listing.lines if not line.changed]
    assert 0 < listing.changed == len(sources[1]) - len(kept) and listing.removed == len(sources[0]) - len(kept)
    assert listing_of(position_of(SMALL)).changed == 0
    assert pages.part("code", listing=listing).count('class="changed"') == listing.changed


def test_what_is_typed_is_escaped() -> None:
    bad = "<script>alert(1)</script>\"'&"
    html = pages.page(replace(SMALL, operator=bad, machine=bad), pages.part("refusal", error=bad), "token", [(bad, bad)])
    assert "<script>alert" not in html and html.count("&lt;script&gt;alert") >= 4
    assert re.findall(r"<script[^>]*>", html) == ['<script src="/page.js" defer>']
    assert not re.findall(r"(?:src|href)=\"(?:https?:)?//", html)


def test_players_reach_the_page_as_data() -> None:
    html = pages.state(view_of(position_of(SMALL)), None, "")
    assert all(operators.resolve_one(example) for example in pages.EXAMPLES)
    data = re.search(r'data-players="([^"]*)"', html)
    assert data is not None and json.loads(data[1].replace("&#34;", '"').replace("&#39;", "'"))[0][0] == "markov"


def test_a_program_is_measured_once_at_a_time_and_remembered() -> None:
    position = position_of(replace(SMALL, machine="host"))
    timer = Timer(lambda graph, schedule: Measurement(Status.OK, samples=(1e-6, 3e-6, 2e-6)))
    assert timer.known(position) is None
    timed = timer.measure(position)
    assert timed.time == "2 us" and timer.known(position) == timed and "median of 3 samples" in timed.interval
    failing = Timer(lambda graph, schedule: Measurement(Status.WRONG_ANSWER, error="far off"))
    assert (failing.measure(position).status, failing.measure(position).error) == ("WRONG_ANSWER", "far off")

    def within(graph: object, schedule: object) -> Measurement:
        with pytest.raises(RuntimeError, match="another measurement is under way"):
            nesting.measure(position)
        return Measurement(Status.OK, samples=(1e-6,))

    nesting = Timer(within)
    assert nesting.measure(position).status == "OK"


@pytest.mark.parametrize(
    ("address", "said"),
    [
        (SMALL, "h200 cannot be timed here"),
        (replace(SMALL, machine="cascade_lake"), "choose machine host"),
        (replace(SMALL, machine="mi300x"), "mi300x cannot be timed here: nothing loads"),
        (Address("elementwise('relu', 32768, 32768)"), "tensors take 8 GiB"),
        (Address("gemm(m=8192, n=8192, k=8192)"), "one call takes"),
    ],
)
def test_what_cannot_be_measured_here_says_why(address: Address, said: str) -> None:
    assert said in absence(position_of(address))


def test_readiness_says_what_is_awaited_and_forgets_what_failed() -> None:
    gate, seen = threading.Event(), []

    def second(address: Address) -> None:
        gate.wait(10)
        seen.append(address)
        if address.operator == "bad":
            raise ValueError("no operator 'bad'")

    readiness = Readiness((("first", lambda address: None), ("second", second)))
    progress = readiness.waiting_for(SMALL, 0.05)
    assert progress is not None and progress.share <= 0.5
    assert "Getting ready" in pages.part("waiting", progress=progress, address=SMALL)
    gate.set()
    assert readiness.waiting_for(SMALL, 10.0) is None and readiness.waiting_for(SMALL.after("stop"), 0.0) is None
    assert len(seen) == 1
    for _ in range(2):
        with pytest.raises(ValueError, match="no operator 'bad'"):
            readiness.waiting_for(Address("bad", "other"), 10.0)
