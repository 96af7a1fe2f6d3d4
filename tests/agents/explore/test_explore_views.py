"""The explorer's page: its address, its players, and what it shows of a program."""

from __future__ import annotations

import json
import math
import re
import threading
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest

from agents.explore import figures, pages
from agents.explore.address import LONGEST, MOST_ACTIONS, Address, read
from agents.explore.code import listing_of
from agents.explore.players import chances_of, next_of, players_of, steps_of, traverser_of
from agents.explore.readiness import Readiness
from agents.explore.session import Position, graph_of, position_of
from agents.explore.timing import Timer, absence
from agents.explore.views import Nest, nested, view_of
from agents.gensor import walk
from gensor_gym import operators
from gensor_gym.codegen.build import generate
from gensor_gym.codegen.program import lower
from gensor_gym.construction import ConstructionGraph
from gensor_gym.env.construct import ConstructEnv
from gensor_gym.env.pictures.facts import uses
from gensor_gym.env.pictures.render import Line, as_text, loop_nest
from gensor_gym.exact.shipped import certificate_of, regret_of
from gensor_gym.graph.actions import ACTIONS
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


def test_an_address_is_read_back() -> None:
    graph = ConstructionGraph("gemm(m=64, n=64, k=64)", "h200", "extended")
    text = str(graph.random_schedule(np.random.default_rng(3)))
    actions = ("tile[4]", "raise[split_k]", "stop")
    address = Address("gemm(m=64, n=64, k=64)+bias+relu", "h200", "extended", 2**63 - 1, text, actions)
    assert read(address.query()) == (address, {})
    assert read(address.query() + "&player=markov", ("player",)) == (address, {"player": "markov"})
    assert read("") == (Address(), {})


def test_the_longest_episode_has_an_address() -> None:
    """Of every action the name fits, and all of an episode within one query."""
    longest = max(map(str, ACTIONS), key=len)
    address = Address(actions=(longest,) * MOST_ACTIONS)
    assert read(address.query())[0] == address


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("operator=" + "x" * (LONGEST["operator"] + 1), "operator of 301 characters: expected at most 300"),
        ("x" * 50_000, "an address of 50000 characters"),
        ("oprator=gemv", "'oprator'; expected operator"),
        ("seed=1&seed=2", "expected each once"),
        ("seed=-1", "seed '-1': expected a whole number"),
        ("seed=" + "9" * 19, "below 2^63"),
        ("actions=tile[9]", "no action 'tile[9]': expected one such as stop, tile[0]"),
        ("actions=" + "stop " * (MOST_ACTIONS + 1), "actions: expected at most 512"),
        ("schedule=__import__('os')", "not a schedule"),
    ],
)
def test_what_is_no_address_is_refused(query: str, said: str) -> None:
    with pytest.raises(ValueError) as refused:
        read(query)
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("address", "said"),
    [
        (Address("__import__('os').system('true')", "h200"), "expected a call such as"),
        (Address("gemm(m=__import__('os'), n=1, k=1)", "h200"), "expected literals as arguments"),
        (Address("gemm(m=64, n=64, k=64)", "h2000"), "unknown hardware 'h2000'"),
        (Address("gemm(m=64, n=64, k=64)", "h200", "all"), "no space 'all'"),
        (Address("gemm(m=64, n=64, k=64)", "h200", actions=("tile[0]",)), "step 1, tile[0], is illegal"),
        (Address("gemm(m=64, n=64, k=64)", "h200", actions=("stop", "stop", "tile[4]")), "step 3, tile[4], is illegal"),
        (Address("gemm(m=64, n=64, k=64)", "h200", actions=("stop",) * 300), "300 actions: an episode on this task has"),
    ],
)
def test_what_there_is_not_is_refused(address: Address, said: str) -> None:
    with pytest.raises(ValueError) as refused:
        position_of(address)
    assert said in str(refused.value)


CERTIFIED = Address("gemm(m=512, n=512, k=512)", "h200")


def played(address: Address, player: str) -> Position:
    """The last position of a player."""
    position: Position | None = position_of(address)
    while position is not None:
        last, position = position, next_of(position.address, player)
    return last


@pytest.mark.thorough
def test_undoing_leads_back_to_the_same_programs() -> None:
    position = played(SMALL, "markov")
    for steps in (position.steps - 1, 5, 0):
        back = position_of(position.address.back_to(steps))
        assert np.array_equal(back.rows, position.rows[: steps + 1]) and not back.finished


def test_moves_are_the_graphs_own_successors() -> None:
    position = position_of(SMALL.after("tile[4]").after("tile[3]"))
    expected = position.graph.successors(position.schedule)
    assert position.moves.actions.tolist() == sorted(expected) and len(expected) > 4
    for action, row, seconds in zip(*position.moves.__dict__.values(), strict=True):
        assert np.array_equal(row, expected[action].row) and seconds == position.graph.latency(expected[action])


@pytest.mark.thorough
@pytest.mark.parametrize("space", ["gensor", "extended"])
def test_the_traverser_plays_its_own_compiled_walk(space: str) -> None:
    """Step by step from addresses alone, program by program what `agents.gensor.walk.walk` visits from this seed."""
    address = replace(SMALL, space=space, seed=11)
    graph = graph_of(*address.task)
    name, settings = traverser_of(graph)
    last = played(address, name)
    steps, row = steps_of(graph), graph.initial().row.copy()
    room = np.empty((1, row.size), dtype=np.int32), np.full(1, np.inf)
    options = settings.options(steps, settings.start_temperature)
    tables = graph.tables
    walk.walk(row, np.uint64(11), tables.ints, tables.floats, tables.sizes, options, graph.room(), *room, walk.new_trace())
    assert np.array_equal(last.rows[-1], row) and last.steps == steps + 1
    assert last.address.actions[-1] == "stop" and last.finished
    other = played(replace(address, seed=12), name)
    assert not np.array_equal(other.rows, last.rows)


def test_an_episode_of_the_page_is_one_of_the_environment() -> None:
    """The same masks and programs, and an end no later than the horizon."""
    last = played(SMALL, "markov")
    env = ConstructEnv(SMALL.operator, SMALL.machine, space=SMALL.space)
    env.reset()
    for steps, name in enumerate(last.address.actions):
        position = position_of(last.address.back_to(steps))
        assert position.moves.actions.tolist() == [a for a in np.flatnonzero(env.action_masks()) if a]
        *_, ended, _, _ = env.step([str(action) for action in ACTIONS].index(name))
        assert ended == (steps + 1 == last.steps) and np.array_equal(env.schedule.row, last.rows[steps + 1])


def test_chances_are_those_of_many_draws() -> None:
    position = position_of(SMALL.after("tile[4]"))
    chances = chances_of(position)
    taken = [next_of(replace(position.address, seed=seed), "markov") for seed in range(400)]
    names = [str(ACTIONS[action]) for action in position.moves.actions]
    counts = np.array([sum(one is not None and one.address.actions[-1] == name for one in taken) for name in names])
    assert chances.sum() == pytest.approx(1.0) and counts.sum() == 400
    assert np.abs(counts / 400 - chances).max() < 0.1  # four standard deviations of the widest


def test_the_optimum_is_reached_and_begins_anew_from_elsewhere() -> None:
    last = played(CERTIFIED.after("tile[4]").after("inverse_tile[4]"), "optimum")
    certificate = certificate_of(last.graph)
    assert certificate is not None and last.finished and last.steps < 30
    assert regret_of(float(last.seconds[-1]), certificate) == 0.0
    assert "optimum" not in players_of(graph_of("gemm(m=65, n=64, k=64)", "h200", "gensor"))


def test_a_shipped_policy_plays_to_its_end() -> None:
    pytest.importorskip("sb3_contrib")
    assert [name for name in players_of(graph_of(*SMALL.task)) if name.startswith("ppo")] == ["ppo_successors_gpu"]
    last = played(SMALL, "ppo_successors_gpu")
    assert last.finished and last.seconds[-1] < last.seconds[0] / 2
    programs = {row.tobytes() for row in last.rows[:-1]}
    assert len(programs) == last.steps  # it was nowhere twice


def test_a_player_that_there_is_not_is_refused() -> None:
    with pytest.raises(ValueError, match="no player 'optimum_of' on this task; players are markov"):
        next_of(SMALL, "optimum_of")
