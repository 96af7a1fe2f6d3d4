"""Players choose one action at a time for the page: the traverser, the shipped policies, and a guide to the optimum.

A player's action depends only on the address and its seed. A walk therefore continues identically after it is interrupted, shared
or undone.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path

import numpy as np

from agents.explore.address import Address
from agents.explore.session import Position, graph_of, position_of
from agents.gensor import walk
from agents.gensor.markov import Markov, MarkovExtended
from agents.learners.guide import Guide
from agents.learners.registry import LEARNERS
from agents.policies.card import read_card
from agents.policies.learned import POLICIES, load_policy
from agents.policies.visited import Visited
from gensor_gym import hardware
from gensor_gym.construction import ConstructionGraph
from gensor_gym.exact.paths import actions_to
from gensor_gym.exact.shipped import certificate_of
from gensor_gym.graph.actions import ACTIONS, CACHE, STOP, UNCACHE, space_actions
from gensor_gym.graph.compiled import plain

_NEXT_DRAW = 0x9E3779B97F4A7C15
"""Increment of the random generator's state (`walk.uniform`) at every draw."""
OPTIMUM = "optimum"


@dataclass(frozen=True)
class Player:
    """A player that constructs a task's program step by step: its name, its description, and the function that takes a step."""

    name: str
    about: str
    next: Callable[[Position], Address | None]
    """Function from a position to the address one step later; None at the player's end.

    ValueError or ImportError if the player cannot play here.
    """


def players_of(graph: ConstructionGraph) -> dict[str, Player]:
    """Return the players that can play a task, by name."""
    name = traverser_of(graph)[0]
    found = [Player(name, "Gensor's traverser" if name == "markov" else "the traverser with knobs", _walked)]
    found += [Player(each, "a shipped policy, greedy", partial(_asked, each)) for each in policies_for(graph)]
    if certificate_of(graph) is not None:
        found.append(Player(OPTIMUM, "the fewest steps to the certified optimum", _led))
    return {player.name: player for player in found}


def traverser_of(graph: ConstructionGraph) -> tuple[str, Markov]:
    """Return (name, settings) of the traverser for a graph's space.

    It is `markov_ext` if the space has actions on knobs, otherwise `markov`.
    """
    knobs = any(action.knob for action, there in zip(ACTIONS, space_actions(graph.space), strict=True) if there)
    return ("markov_ext", MarkovExtended()) if knobs else ("markov", Markov())


def chances_of(position: Position) -> np.ndarray:
    """Return the probability of each of the position's K moves under the traverser's policy at this step, float64 [K]."""
    gains, temperature = _gains(position)
    weights = np.exp((gains - gains.max(initial=-math.inf)) / temperature)
    return weights / weights.sum()


def _walked(position: Position) -> Address | None:
    """Take the step that the traverser (`agents.gensor.walk.walk`) takes here with this seed.

    Return the new address; None if `stop` has been taken.
    """
    if position.finished:
        return None
    moves = position.moves
    if not len(moves.actions) or position.steps >= steps_of(position.graph):
        return position.address.after("stop")
    gains, temperature = _gains(position)
    state = np.array([(position.address.seed + position.steps * _NEXT_DRAW) % 2**64], dtype=np.uint64)
    action = walk.choose(gains, moves.actions, len(moves.actions), temperature, state)
    return position.address.after(str(ACTIONS[action]))


def steps_of(graph: ConstructionGraph) -> int:
    """Return the number of steps of the traverser's walk: its setting, but at most an episode's steps before `stop`."""
    return min(traverser_of(graph)[1].steps, graph.horizon - 1)


def _gains(position: Position) -> tuple[np.ndarray, float]:
    """Return (logarithms of the benefits of a position's K moves, temperature of the traverser's step there)."""
    graph, moves = position.graph, position.moves
    settings = traverser_of(graph)[1]
    options = settings.options(steps_of(graph), settings.start_temperature)
    row, now = plain(position.rows[-1]).copy(), float(position.seconds[-1])
    at_level, ints, floats = _steps_at_level(position), graph.tables.ints, graph.tables.floats
    gains = np.array(
        [
            walk.log_benefit(int(action), now, float(after), row, plain(result), at_level, ints, floats, options)
            for action, result, after in zip(moves.actions, moves.rows, moves.seconds, strict=True)
        ],
        dtype=np.float64,
    )
    temperature, cooling = settings.start_temperature, _cooling(settings, steps_of(graph))
    for _ in range(position.steps):
        temperature *= cooling
    return gains, temperature


def _cooling(settings: Markov, steps: int) -> float:
    return float((settings.final_temperature / settings.start_temperature) ** (1.0 / max(1, steps - 1)))


def _steps_at_level(position: Position) -> int:
    turns = (str(ACTIONS[CACHE]), str(ACTIONS[UNCACHE]))
    actions = position.address.actions
    return next((count for count, name in enumerate(reversed(actions)) if name in turns), len(actions))


def policies_for(graph: ConstructionGraph) -> list[str]:
    """Return the names of the shipped policies that construct programs for this kind of machine in this space."""
    return [
        name for name, kind, space in _shipped(POLICIES) if kind == graph.hardware.kind and space == graph.space
    ]


@lru_cache(maxsize=1)
def _shipped(folder: Path) -> list[tuple[str, str, str]]:
    """List the policies in a folder that walk on the construction graph: (name, kind of machine, space) of each."""
    cards = {path.parent.name: read_card(path.parent) for path in sorted(folder.glob("*/card.json"))}
    trained = {name: card["config"]["env"] for name, card in cards.items() if card["agent"] in LEARNERS}
    return [(name, hardware.get(env["hardware"]).kind, env["space"]) for name, env in trained.items()]


def _asked(name: str, position: Position) -> Address | None:
    """Take the most probable action of policy `name` that leads to a program not yet visited on this path.

    Return the new address; None at the end of the episode.
    """
    if position.finished:
        return None
    learner, model = load_policy(str(POLICIES / name))
    here, visited = position.rows[-1:], Visited(position.graph, 1)
    visited.been[0].update(row.tobytes() for row in position.rows)
    chances = Guide(learner, model, position.graph).ask(here, position.left).chances
    action = int(visited.choose(np.zeros(1, dtype=np.int64), here, chances)[0])
    return position.address.after(str(ACTIONS[action]))


def _led(position: Position) -> Address | None:
    """Take one step on the shortest path to the certified optimum; from a state off the path, restart at its first step.

    Return the new address; None at the end of the path.
    """
    address, way = position.address, (*way_to_optimum(*position.address.task), str(ACTIONS[STOP]))
    if address.actions == way and not address.schedule:
        return None
    on_it = not address.schedule and way[: position.steps] == address.actions
    return address.after(way[position.steps]) if on_it else replace(address, schedule="", actions=way[:1])


@lru_cache(maxsize=16)
def way_to_optimum(operator: str, machine: str, space: str) -> tuple[str, ...]:
    """Return the names of the actions on a shortest path to a task's certified optimum, without `stop`.

    ValueError if no certificate ships.
    """
    graph = graph_of(operator, machine, space)
    certificate = certificate_of(graph)
    if certificate is None:
        raise ValueError(f"no certified optimum of {operator} on {machine} in space {space!r} ships")
    return tuple(str(ACTIONS[action]) for action in actions_to(graph, certificate.best))


def next_of(address: Address, name: str) -> Position | None:
    """Let player `name` take one step from an address; return the new position, or None at the player's end.

    ValueError for an unknown player.
    """
    position = position_of(address)
    known = players_of(position.graph)
    if name not in known:
        raise ValueError(f"no player {name!r} on this task; players are {', '.join(known)}")
    after = known[name].next(position)
    return None if after is None else position_of(after)
