"""Main entry point for recorded spaces: search a space, and report the result's distance from the space's optimum."""

from __future__ import annotations

import os
from dataclasses import dataclass

from agents.optimizer import run
from agents.strategy import RECORDED, Search, build, resolve
from gensor_gym.measure.session import Budget, TraceRow
from gensor_gym.spaces import TuningSession, TuningSpace, load_space
from gensor_gym.spaces.values import Value

RecordedStrategy = Search[TuningSession]
"""Type of all strategies that search recorded spaces."""


def get_strategy_of_spaces(name: str, **hyperparameters: object) -> RecordedStrategy:
    """Make a strategy for recorded spaces by name.

    ValueError for unknown strategies or hyperparameters lists the known names.
    """
    return build(name, RECORDED, hyperparameters)


@dataclass(frozen=True)
class Tuned:
    """Result of a search of a recorded space: the best configuration found, its time, and how far it is from the optimum."""

    configuration: dict[str, Value]
    seconds: float
    regret: float
    """log(T / T*) of the found time T and the best recorded time T*; zero if T is statistically tied with T*."""
    in_optimal_set: bool
    """Whether the found configuration is statistically tied with the best."""
    trace: tuple[TraceRow, ...]


def tune(
    space: TuningSpace | str | os.PathLike[str],
    strategy: str | RecordedStrategy = "local_search",
    trials: int | None = None,
    seconds: float | None = None,
    seed: int = 0,
    timing: str = "reported",
    **hyperparameters: object,
) -> Tuned:
    """Search a recorded space, or the space in a file, and return the best configuration found.

    `trials` and recorded `seconds` are the budget; None means no limit. ValueError names an unknown argument. RuntimeError if no
    trial succeeded.
    """
    if not isinstance(space, TuningSpace):
        space = load_space(space)
    search: RecordedStrategy = resolve(strategy, RECORDED, hyperparameters)
    session = TuningSession(space, Budget(len(space) if trials is None else trials, seconds=seconds), timing)
    run(search, session, seed)
    if session.best is None:
        raise RuntimeError(f"no configuration of {space.source} ran well in {session.trials} trials")
    found = session.best[0].index
    time, tied = float(space.seconds(timing)[found]), bool(space.optimal(timing)[found])
    return Tuned(space.configuration(found), time, space.regret(found, timing), tied, tuple(session.trace))
