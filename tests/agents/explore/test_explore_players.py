"""Positions and players: undoing, the traverser's very walk, shipped policies, the certified optimum."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from agents.explore.address import Address
from agents.explore.players import chances_of, next_of, players_of, steps_of, traverser_of
from agents.explore.session import Position, graph_of, position_of
from agents.gensor import walk
from gensor_gym.env.construct import ConstructEnv
from gensor_gym.exact.shipped import certificate_of, regret_of
from gensor_gym.graph.actions import ACTIONS

from .conftest import SMALL

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
