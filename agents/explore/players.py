"""Players choose one action at a time: the traverser, the shipped policies, and a guide to the certified optimum.

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
"""Increment of the state of the generator `walk.uniform` at every draw."""
OPTIMUM = "optimum"


@dataclass(frozen=True)
class Player:
    """A player on a task: its name, its description and the function that takes its next step."""

    name: str
    about: str
    next: Callable[[Position], Address | None]
    """The address one step later; None at the end. ValueError or ImportError if the player cannot play here."""


def players_of(graph: ConstructionGraph) -> dict[str, Player]:
    """Players on a task, by name."""
    name = traverser_of(graph)[0]
    found = [Player(name, "Gensor's traverser" if name == "markov" else "the traverser with knobs", _walked)]
    found += [Player(each, "a shipped policy, greedy", partial(_asked, each)) for each in policies_for(graph)]
    if certificate_of(graph) is not None:
        found.append(Player(OPTIMUM, "the fewest steps to the certified optimum", _led))
    return {player.name: player for player in found}


def traverser_of(graph: ConstructionGraph) -> tuple[str, Markov]:
    """(name, settings) of the traverser for a space: `markov_ext` if the space has actions on knobs, else `markov`."""
    knobs = any(action.knob for action, there in zip(ACTIONS, space_actions(graph.space), strict=True) if there)
    return ("markov_ext", MarkovExtended()) if knobs else ("markov", Markov())


def chances_of(position: Position) -> np.ndarray:
    """Probability of each of the position's K moves under the traverser's policy at this step, float64 [K]."""
    gains, temperature = _gains(position)
    weights = np.exp((gains - gains.max(initial=-math.inf)) / temperature)
    return weights / weights.sum()


def _walked(position: Position) -> Address | None:
    """Take the step that `agents.gensor.walk.walk` takes here with this seed; None after `stop`."""
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
    """Number of steps of the traverser's walk: its setting, but at most an episode's steps before `stop`."""
    return min(traverser_of(graph)[1].steps, graph.horizon - 1)


def _gains(position: Position) -> tuple[np.ndarray, float]:
    """(logarithms of the benefits [K] of a position's moves, temperature of its step)."""
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
    """Names of the shipped policies that construct programs for this kind of machine and this space."""
    return [
        name for name, kind, space in _shipped(POLICIES) if kind == graph.hardware.kind and space == graph.space
    ]


@lru_cache(maxsize=1)
def _shipped(folder: Path) -> list[tuple[str, str, str]]:
    """(name, kind of machine, space) of every policy in a folder that takes construction actions."""
    cards = {path.parent.name: read_card(path.parent) for path in sorted(folder.glob("*/card.json"))}
    trained = {name: card["config"]["env"] for name, card in cards.items() if card["agent"] in LEARNERS}
    return [(name, hardware.get(env["hardware"]).kind, env["space"]) for name, env in trained.items()]


def _asked(name: str, position: Position) -> Address | None:
    """Take the policy's most probable action that leads to a program not yet visited on this path."""
    if position.finished:
        return None
    learner, model = load_policy(str(POLICIES / name))
    here, visited = position.rows[-1:], Visited(position.graph, 1)
    visited.been[0].update(row.tobytes() for row in position.rows)
    chances = Guide(learner, model, position.graph).ask(here, position.left).chances
    action = int(visited.choose(np.zeros(1, dtype=np.int64), here, chances)[0])
    return position.address.after(str(ACTIONS[action]))


def _led(position: Position) -> Address | None:
    """Take one step on the path to the optimum. From a state off the path, restart at the unscheduled program."""
    address, way = position.address, (*way_to_optimum(*position.address.task), str(ACTIONS[STOP]))
    if address.actions == way and not address.schedule:
        return None
    on_it = not address.schedule and way[: position.steps] == address.actions
    return address.after(way[position.steps]) if on_it else replace(address, schedule="", actions=way[:1])


@lru_cache(maxsize=16)
def way_to_optimum(operator: str, machine: str, space: str) -> tuple[str, ...]:
    """Names of the shortest sequence of actions to a task's certified optimum, without `stop`. ValueError if none ships."""
    graph = graph_of(operator, machine, space)
    certificate = certificate_of(graph)
    if certificate is None:
        raise ValueError(f"no certified optimum of {operator} on {machine} in space {space!r} ships")
    return tuple(str(ACTIONS[action]) for action in actions_to(graph, certificate.best))


def next_of(address: Address, name: str) -> Position | None:
    """The position after one step of a player; None at its end. ValueError for an unknown player."""
    position = position_of(address)
    known = players_of(position.graph)
    if name not in known:
        raise ValueError(f"no player {name!r} on this task; players are {', '.join(known)}")
    after = known[name].next(position)
    return None if after is None else position_of(after)
