"""A policy of columns reaches tensor cores: draws keep to what the chosen unit takes, and demonstrations stand among them."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from agents.columns.choices import Choices  # noqa: E402
from agents.columns.demonstrations import WITHIN  # noqa: E402
from agents.columns.feasible import Feasible  # noqa: E402
from agents.columns.given import Given  # noqa: E402
from agents.columns.network import ColumnNetwork  # noqa: E402
from agents.columns.policy import Memory, write  # noqa: E402
from gensor_gym.construction import ConstructionGraph  # noqa: E402
from gensor_gym.env.writing.env import WriteEnv  # noqa: E402
from gensor_gym.env.writing.keeping import Room  # noqa: E402
from gensor_gym.graph.tables.layout import TENSOR_CORE  # noqa: E402

HALF = 'gemm(m=1024, n=1024, k=1024, dtype="float16")'


def choices_of(operator: str = HALF) -> Choices:
    return Choices(ConstructionGraph(operator, "h100", "extended"))


def network(masked: bool) -> ColumnNetwork:
    torch.manual_seed(0)
    return ColumnNetwork(8, masked=masked)


def test_the_unit_is_the_first_that_is_written() -> None:
    assert choices_of().columns[0].first == TENSOR_CORE


def test_draws_kept_to_feasible_choices_are_legal_tensor_core_programs() -> None:
    """Of an untrained policy: hardly any draw is legal at all otherwise."""
    choices, rng = choices_of(), np.random.default_rng(0)
    draws = rng.random((128, len(choices.counts)))
    with torch.no_grad():
        free, kept = (choices.rows(network(True)(choices, draws, 1.0, s)[0]) for s in (None, Feasible(choices, rng)))
    assert choices.graph.fits(free).mean() < 0.05
    legal = choices.graph.fits(kept)
    assert legal.mean() > 0.5 and (legal & (kept[:, TENSOR_CORE] > 0)).mean() > 0.3


def test_a_search_with_a_policy_that_learned_so_keeps_to_them_from_the_first_program() -> None:
    choices, memory = choices_of(), Memory(1.0)
    rows = write(network(True), choices, 10, memory, np.random.default_rng(0))
    assert memory.narrow and len(rows) == 10 and choices.graph.fits(rows).all()
    memory = Memory(1.0)
    write(network(False), choices_of("gemm(m=96, n=80, k=64)"), 0, memory, np.random.default_rng(0))
    assert not memory.narrow


def test_open_options_are_those_that_the_environment_masks() -> None:
    choices, rng = choices_of(), np.random.default_rng(0)
    room, env = Room(choices.graph), WriteEnv(HALF, "h100", "analytic", "extended", choices="columns")
    _, info = env.reset(seed=0)
    chosen = np.full((1, len(choices.counts)), -1)
    feasible = Feasible(choices, rng)
    for place, count in enumerate(choices.counts.tolist()):
        np.testing.assert_array_equal(feasible.open_choices(chosen, place)[0], info["action_mask"][:count] > 0)
        chosen[0, place] = rng.choice(np.flatnonzero(info["action_mask"]))
        assert feasible.is_feasible(chosen)[0]
        info = env.step(int(chosen[0, place]))[-1]
    assert np.isfinite(info["runtime_s"]) and room.kept(choices.rows(chosen), len(choices.counts) - 1)[0]


def test_the_surest_is_the_most_probable_feasible_choice() -> None:
    choices = choices_of()
    feasible = Feasible(choices, np.random.default_rng(0), surest=True)
    chosen = np.full((1, len(choices.counts)), -1)
    chosen[0, 0] = 2  # wgmma
    open_ones = feasible.open_choices(chosen, 1)[0]
    chances = np.linspace(1.0, 2.0, len(open_ones))[None]
    closed = np.flatnonzero(~open_ones)
    if len(closed):
        found = feasible.kept(chosen, 1, closed[:1], chances)
        assert found[0] == np.flatnonzero(open_ones)[-1]
    assert feasible.kept(chosen, 1, np.flatnonzero(open_ones)[:1], chances)[0] == np.flatnonzero(open_ones)[0]


def test_programs_that_are_given_stay_and_the_others_are_kept_feasible() -> None:
    choices, rng = choices_of(), np.random.default_rng(0)
    known = np.zeros((2, len(choices.counts)), dtype=np.int64)
    with torch.no_grad():
        chosen, _, _ = network(True)(choices, rng.random((64, len(choices.counts))), 1.0, Given(known, Feasible(choices, rng)))
    np.testing.assert_array_equal(chosen[:2], known)
    assert choices.graph.fits(choices.rows(chosen[2:])).mean() > 0.5


def test_demonstrations_are_fast_legal_programs_and_found_once(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    from agents.columns import demonstrations

    monkeypatch.setenv("GENSOR_GYM_CACHE", str(tmp_path))
    monkeypatch.setattr(demonstrations, "_known", {})
    choices = choices_of('gemm(m=128, n=128, k=128, dtype="float16")')
    seconds = choices.graph.latencies(choices.rows(found := demonstrations.demonstrated(choices)))
    assert len(found) and (seconds <= WITHIN * seconds.min()).all()
    monkeypatch.setattr(demonstrations, "_known", {})
    monkeypatch.setattr(demonstrations, "_found", None)
    np.testing.assert_array_equal(demonstrations.demonstrated(choices), found)
