"""Searches and schedules of recorded tuning spaces."""

from __future__ import annotations

import json
import math
from collections import deque
from dataclasses import asdict
from pathlib import Path

import gymnasium
import numpy as np
import pytest

import gensor_gym
from agents import tune
from agents.baselines.beam import Beam
from agents.recorded.tune import get_strategy_of_spaces
from agents.strategy import RECORDED, get_strategy, strategies_for
from gensor_gym import hardware, load_space
from gensor_gym.graph.schedule import Schedule
from gensor_gym.measure.measurement import Measurement, Status
from gensor_gym.measure.records.store import Record
from gensor_gym.measure.records.tables import read_table, write_table
from gensor_gym.measure.session import Budget, BudgetSpent
from gensor_gym.measure.stats.intervals import block_resamples
from gensor_gym.spaces import TuningSession, TuningSpace
from gensor_gym.spaces.moves import FIRST_MOVE, JUMP, STOP, Moves
from gensor_gym.spaces.optimum import block_length, tied_with_best
from tests.support.tuning_files import CACHE, DATA, HUB_FILES, T4, random_cache, read


def space_from(document: dict, tmp_path: Path) -> TuningSpace:
    (tmp_path / "space.json").write_text(json.dumps(document))
    return load_space(tmp_path / "space.json")


def steps_from(moves: Moves, start: int) -> dict[int, int]:
    """Fewest steps to every configuration that can be reached."""
    steps, queue = {start: 0}, deque([start])
    while queue:
        at = queue.popleft()
        for action in np.flatnonzero(moves.mask(at)):
            to = moves.successor(at, int(action))
            if to not in steps:
                steps[to] = steps[at] + 1
                queue.append(to)
    return steps


@pytest.mark.parametrize("share", [0.05, 0.3, 1.0])
@pytest.mark.parametrize("seed", range(3))
def test_everything_can_be_reached_within_the_horizon(share: float, seed: int, tmp_path: Path) -> None:
    moves = Moves(space_from(random_cache(seed, share), tmp_path))
    assert share < 1.0 or moves.count == 1
    for start in range(len(moves.space)):
        steps = steps_from(moves, start)
        assert set(steps) == set(range(len(moves.space)))
        assert max(steps.values()) <= moves.horizon - 2


def test_moves_are_the_definition(tmp_path: Path) -> None:
    space = space_from(random_cache(1, 0.4), tmp_path)
    moves = Moves(space)
    rows = space.indices.tolist()
    for at, row in enumerate(rows):
        for column, parameter in enumerate(moves.movable):
            rest = [p for p in range(len(row)) if p != parameter]
            alike = [i for i, other in enumerate(rows) if all(other[p] == row[p] for p in rest)]
            above = [i for i in alike if rows[i][parameter] > row[parameter]]
            below = [i for i in alike if rows[i][parameter] < row[parameter]]
            up = min(above, key=lambda i: rows[i][parameter], default=at)
            down = max(below, key=lambda i: rows[i][parameter], default=at)
            assert moves.successor(at, FIRST_MOVE + 2 * column) == up
            assert moves.successor(at, FIRST_MOVE + 2 * column + 1) == down
            assert moves.mask(at)[FIRST_MOVE + 2 * column] == bool(above)
        assert moves.successor(at, STOP) == moves.successor(at, -1) == moves.successor(at, 99) == at
    assert moves.names[FIRST_MOVE] == "x up" and len(moves.names) == moves.number


def test_jump_goes_through_the_parts(tmp_path: Path) -> None:
    entries = {f"{x}": {"x": x, "y": x, "time": 1.0} for x in range(4)}
    moves = Moves(space_from({"tune_params_keys": ["x", "y"], "cache": entries}, tmp_path))
    assert moves.count == 4 and [moves.successor(i, JUMP) for i in range(4)] == [1, 2, 3, 0]
    assert Moves(load_space(CACHE)).mask(0)[JUMP] == (Moves(load_space(CACHE)).count > 1)


def test_the_optimum_is_a_set() -> None:
    """Copies shifted by far less than their noise are tied, one shifted by far more is not, a failed one never is."""
    noise = 1.0 + 0.01 * np.random.default_rng(0).standard_normal(32)
    samples = [noise, noise[::-1] + 0.001, noise + 0.1, noise + 0.001, np.empty(0)]
    for timing, statistic in (("reported", np.mean), ("median", np.median)):
        seconds = np.array([statistic(s) if len(s) else np.inf for s in samples])
        assert tied_with_best(samples, seconds, timing).tolist() == [True, True, False, True, False]
    few = [s[:5] for s in samples]
    times = np.array([1.0, 1.0, 1.001, 2.0, np.inf])
    assert tied_with_best(few, times, "median").tolist() == [True, True, False, False, False]


@pytest.mark.parametrize("correlation, share", [(0.0, 0.9), (0.6, 0.8)])
def test_how_often_a_true_tie_is_called_a_tie(correlation: float, share: float) -> None:
    """Pairs of configurations that are alike, 32 samples each, neighbours correlated or not."""
    rng = np.random.default_rng(1)
    held = 0
    for _ in range(150):
        shocks = rng.standard_normal((2, 32))
        for i in range(1, 32):
            shocks[:, i] = correlation * shocks[:, i - 1] + np.sqrt(1 - correlation**2) * shocks[:, i]
        pair = list(1.0 + 0.01 * shocks)
        held += bool(tied_with_best(pair, np.array([p.mean() for p in pair]), "reported").all())
    assert held >= share * 150


def test_blocks() -> None:
    rng = np.random.default_rng(0)
    index = block_resamples(10, 4, 50, rng)
    assert index.shape == (50, 10) and index.min() >= 0 and index.max() <= 9
    assert ((np.diff(index[:, :4], axis=1) % 10) == 1).all()
    assert block_length(np.tile([1.0, 2.0], 16)) == 3
    assert block_length(np.linspace(1.0, 2.0, 32)) == 16
    assert block_length(np.ones(32)) == 3


@pytest.mark.parametrize("path", [CACHE, T4, *HUB_FILES], ids=lambda path: path.name)
def test_exhaustive_finds_the_best(path: Path) -> None:
    space = load_space(path)
    found = tune(space, "exhaustive")
    assert found.configuration == space.configuration(space.best())
    assert found.regret == 0.0 and found.in_optimal_set and len(found.trace) == len(space)
    assert found.seconds == min(row.seconds for row in found.trace)
    if path in (CACHE, T4):
        assert found.configuration == {k: v for k, v in read(DATA / "best.json").items() if k != "time"}


PLAIN = [name for name in strategies_for(RECORDED) if name not in ("elsewhere", "policy")]
"""Strategies that know nothing beforehand; for the others see tests/spaces/test_recorded_policies.py."""


@pytest.mark.parametrize("name", PLAIN)
def test_a_seed_decides_and_budgets_hold(name: str) -> None:
    one, two = (tune(CACHE, name, trials=8, seed=3) for _ in range(2))
    assert one == two and len(one.trace) == 8 and one.regret >= 0.0
    assert len({row.schedule for row in one.trace}) == 8
    space = load_space(CACHE)
    timed = tune(space, name, seconds=0.3, seed=3)
    spent = [row.elapsed_s for row in timed.trace]
    assert spent[-1] >= 0.3 > spent[-2]  # the trial that the budget ran out in is finished
    assert np.allclose(np.diff(spent), [space.charges[i] for i in _places(space, timed.trace)[1:]])


def _places(space: TuningSpace, trace: tuple) -> list[int]:
    texts = [", ".join(f"{k}={v}" for k, v in space.configuration(i).items()) for i in range(len(space))]
    return [texts.index(row.schedule) for row in trace]


def test_local_search_ends_in_local_optima_and_exhausts_small_spaces() -> None:
    space = load_space(CACHE)
    assert tune(space, "local_search").regret == 0.0
    session = TuningSession(space, Budget())
    with pytest.raises(BudgetSpent):
        get_strategy_of_spaces("local_search").search(TuningSession(space, Budget(trials=3)), np.random.default_rng(0))
    get_strategy_of_spaces("local_search", patience=1).search(session, np.random.default_rng(0))
    best = session.best
    assert best is not None
    graph = session.graph
    assert all(session.measure([n])[0].seconds >= best[1].seconds for n in graph.successors(best[0]).values())


class AsksTheModel:
    def search(self, session: TuningSession, rng: np.random.Generator) -> None:
        session.predict(session.graph.space.indices)


def test_defaults_of_recorded_spaces_are_their_own() -> None:
    plain, recorded = asdict(get_strategy("annealing")), asdict(get_strategy_of_spaces("annealing"))  # type: ignore[call-overload]
    assert plain["reach"] == 4 and recorded == plain | {"reach": 2}
    assert asdict(get_strategy_of_spaces("annealing", reach=3))["reach"] == 3  # type: ignore[call-overload]


def test_what_cannot_be_searched_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="'markov'.*'exhaustive'"):
        tune(CACHE, "markov")
    with pytest.raises(ValueError, match="'Beam' does not search recorded spaces; these do: .*'annealing', 'elsewhere'"):
        tune(CACHE, Beam())  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="'elsewhere' does not search construction graphs; these do: .*'annealing'.*'welder'"):
        get_strategy("elsewhere", spaces=[str(CACHE)])
    with pytest.raises(ValueError, match="no model predicts .*product_cache.json"):
        tune(CACHE, AsksTheModel())
    with pytest.raises(ValueError, match="positive integer"):
        tune(CACHE, trials=0)
    failed: dict = {"tune_params_keys": ["x"], "cache": {"1": {"x": 1, "time": "InvalidConfig"}}}
    with pytest.raises(ValueError, match="none of 1 configurations ran well"):
        tune(space_from(failed, tmp_path))
    with pytest.raises(RuntimeError, match="in 1 trials"):
        failed["cache"]["2"] = {"x": 2, "time": 1}
        tune(space_from(failed, tmp_path), "exhaustive", trials=1)


FOLDER = Path(__file__).parents[1] / "golden" / "recorded"
FILE = FOLDER / "gemv_m16_k64.parquet"


@pytest.mark.parametrize("format", ("t4", "kernel_tuner"))
def test_a_table_goes_out_and_comes_back(tmp_path: Path, format: str) -> None:
    records = {r.schedule: r.measurement for r in read_table(FILE).records}
    space = gensor_gym.load_space(FILE)
    path = tmp_path / "space.json.gz"
    gensor_gym.save_space(space, path, format)
    again = gensor_gym.load_space(path)
    assert len(space) == len(again) == len({Schedule.parse(s).row[:40].tobytes() for s in records})
    assert [p.name for p in space.parameters] == [p.name for p in again.parameters]
    assert (space.indices == again.indices).all()
    lost = Status.LAUNCH_ERROR if format == "kernel_tuner" else Status.WRONG_ANSWER  # a cache has no word for a wrong answer
    assert again.status == tuple(lost if status is Status.WRONG_ANSWER else status for status in space.status)
    np.testing.assert_allclose(again.seconds("median"), space.seconds("median"), rtol=1e-12)
    best = min((m for m in records.values() if m.status is Status.OK), key=lambda m: m.seconds)
    assert tune(again, "exhaustive", timing="median").seconds == pytest.approx(best.seconds, rel=1e-12)
    assert sum(map(len, again.samples)) == sum(len(m.samples) for m in records.values() if m.status is Status.OK)


def test_it_is_an_environment() -> None:
    env = gymnasium.make("gensor_gym/Recorded-v0", path=str(FILE), timing="median")
    _, info = env.reset(seed=0)
    names = env.unwrapped.moves.names
    assert any("register_m" in name for name in names) and not any("level" in name for name in names)
    ended = False
    while not ended:
        legal = np.flatnonzero(info["action_mask"])
        _, _, ended, _, info = env.step(int(env.unwrapped.np_random.choice(legal)))
    assert info["regret"] >= 0.0 and math.isfinite(info["best_s"])


def test_failures_have_their_words(tmp_path: Path) -> None:
    table = read_table(FILE)
    odd = [Status.CRASHED, Status.IMPLAUSIBLE, Status.WRONG_ANSWER, Status.TIMEOUT, Status.COMPILE_ERROR]
    records = [
        Record(r.device, r.operator, r.schedule, Measurement(odd[i]) if i < len(odd) else r.measurement, 0.0)
        for i, r in enumerate(table.records)
    ]
    write_table(tmp_path / "odd.parquet", records, {"hardware": table.about["hardware"]})
    found = gensor_gym.load_space(tmp_path / "odd.parquet").status[: len(odd)]
    assert found == (Status.LAUNCH_ERROR, Status.WRONG_ANSWER, Status.WRONG_ANSWER, Status.TIMEOUT, Status.COMPILE_ERROR)


def test_a_table_of_no_machine_or_two_operators_is_refused(tmp_path: Path) -> None:
    table = read_table(FILE)
    write_table(tmp_path / "bare.parquet", table.records)
    other = [Record(r.device, "gemv(m=8, k=8)", r.schedule, r.measurement, 0.0) for r in table.records[:1]]
    machine = {"hardware": hardware.to_json(hardware.get("cascade_lake"))}
    write_table(tmp_path / "two.parquet", [*table.records, *other], machine)
    for name in ("bare", "two"):
        with pytest.raises(ValueError, match=f"{name}.parquet: expected the timings of one operator"):
            gensor_gym.load_space(tmp_path / f"{name}.parquet")
