"""Policies of columns on machines and units: what they write is feasible."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agents.cli.arguments import compose
from agents.columns.choices import Choices
from agents.columns.demonstrations import WITHIN
from agents.columns.feasible import Feasible
from agents.columns.given import Given
from agents.columns.learner import ColumnLearner
from agents.columns.network import ColumnNetwork
from agents.columns.policy import Memory, load_columns, write
from agents.training import columns as training
from agents.training.train import settings_of, write_card
from gensor_gym import hardware
from gensor_gym.construction import ConstructionGraph
from gensor_gym.env.writing.env import WriteEnv
from gensor_gym.env.writing.keeping import Room
from gensor_gym.graph.tables.layout import TENSOR_CORE
from gensor_gym.hardware.drawn import drawn
from tests.support.thorough import thorough_but

torch = pytest.importorskip("torch")


LARGE = "conv2d(n=64, c=128, h=28, w=28, k=128, r=3, s=3, padding=1)"
TASKS = [
    ("gemm(m=512, n=384, k=1000)", "h200", "gensor"), (LARGE, "h200", "gensor"), (LARGE, "cascade_lake", "gensor"),
    ("gemm(m=512, n=384, k=1000)", "h200", "extended"), ("gemm(m=512, n=384, k=1000)", "cascade_lake", "extended"),
    ("max_pool2d(n=16, c=64, h=56, w=56, r=2, s=2, stride=2)", "h200", "gensor"),
    ("depthwise_conv2d(n=1, c=32, h=28, w=28, r=3, s=3, padding=1)", "zen5_1c", "extended"),
]  # fmt: skip


def feasible_of(task: tuple[str, str, str]) -> Feasible:
    return Feasible(Choices(ConstructionGraph(*task)), np.random.default_rng(0))


def begun(vectors: np.ndarray, count: int) -> np.ndarray:
    """With the first `count` columns chosen, nothing beyond."""
    found = np.full_like(vectors, -1)
    found[:, :count] = vectors[:, :count]
    return found


def vectors(feasible: Feasible, count: int, rng: np.random.Generator) -> np.ndarray:
    return rng.integers(0, feasible.choices.counts, size=(count, len(feasible.choices.counts)))


@pytest.mark.parametrize("task", thorough_but([(task,) for task in TASKS], (TASKS[0],), (TASKS[6],)))
def test_a_legal_program_is_feasible_all_along(task: tuple[str, str, str]) -> None:
    feasible, rng = feasible_of(task), np.random.default_rng(1)
    drawn = vectors(feasible, 40_000, rng)
    knobs = sum(column.is_knob for column in feasible.choices.columns)
    drawn[:20_000, :knobs] = 0  # tensor cores and the like make most draws illegal
    legal = drawn[feasible.choices.graph.fits(feasible.choices.rows(drawn))]
    assert len(legal) > 50
    for k in range(1, drawn.shape[1] + 1):
        assert feasible.is_feasible(begun(legal, k)).mean() > 0.999, k


def test_a_whole_program_is_feasible_if_it_fits() -> None:
    feasible = feasible_of(TASKS[1])
    drawn = vectors(feasible, 5000, np.random.default_rng(2))
    np.testing.assert_array_equal(feasible.is_feasible(drawn), feasible.choices.graph.fits(feasible.choices.rows(drawn)))


def test_open_choices_are_those_that_are_feasible_one_by_one() -> None:
    feasible = feasible_of(TASKS[1])
    drawn = vectors(feasible, 5000, np.random.default_rng(3))
    before = drawn[feasible.choices.graph.fits(feasible.choices.rows(drawn))][:7]
    found = feasible.open_choices(begun(before, 3), 3)
    for row, chosen in zip(found, begun(before, 3), strict=True):
        tried = (np.array([[*chosen[:3], choice, *chosen[4:]]]) for choice in range(feasible.choices.counts[3]))
        each = [feasible.is_feasible(program)[0] for program in tried]
        np.testing.assert_array_equal(row, each)
    assert found.any() and not found.all()


def test_what_is_not_feasible_is_drawn_again_by_its_chances() -> None:
    feasible, count = feasible_of(TASKS[1]), 4000
    last = len(feasible.choices.counts) - 1
    before = next(
        row[None] for row in begun(vectors(feasible, 1000, np.random.default_rng(4)), last)
        if 2 <= feasible.open_choices(row[None], last).sum() <= 40
    )  # fmt: skip
    open_ones, rng = feasible.open_choices(before, last)[0], np.random.default_rng(5)
    chances = rng.dirichlet(np.ones(feasible.choices.counts[last]))
    at = rng.choice(len(chances), size=count, p=chances)
    kept = feasible.kept(np.repeat(before, count, axis=0), last, at, np.repeat(chances[None], count, axis=0))
    np.testing.assert_array_equal(kept[open_ones[at]], at[open_ones[at]])
    assert open_ones[kept].all() and not open_ones[at].all()
    expected = chances * open_ones / (chances * open_ones).sum()
    assert np.abs(np.bincount(kept, minlength=len(chances)) / count - expected).max() < 0.05
    sure = np.zeros_like(chances)
    sure[closed := int(np.flatnonzero(~open_ones)[0])] = 1.0  # no chance is left for those that are feasible
    again = feasible.kept(np.repeat(before, count, axis=0), last, np.full(count, closed), np.repeat(sure[None], count, axis=0))
    assert set(again.tolist()) == set(np.flatnonzero(open_ones).tolist())


def test_a_policy_whose_draws_hardly_ever_fit_writes_programs_all_the_same() -> None:
    torch.manual_seed(0)
    choices, net = Choices(ConstructionGraph(LARGE, "h200", "gensor")), ColumnNetwork(8)
    with torch.no_grad():
        chosen, _, _ = net(choices, np.random.default_rng(0).random((2000, len(choices.counts))))
    assert choices.graph.fits(choices.rows(chosen)).mean() < 0.02
    rows = write(net, choices, 100, Memory(1.0), np.random.default_rng(0))
    assert len(np.unique(rows, axis=0)) == 100 and choices.graph.fits(rows).all()


GEMM = "gemm(m=96, n=80, k=64)"
SETTINGS: dict[str, Any] = {
    "name": "columns", "width": 8, "tasks": 2, "programs": 8, "best": 0.25, "learning_rate": 0.01,
    "final_learning_rate": 0.001, "entropy": 0.01, "final_entropy": 0.0, "machines": ["h200", "a100"],
}  # fmt: skip


def chances(net: ColumnNetwork, machine: Any) -> float:
    """Logarithm of the chance of the first choices."""
    choices = Choices(ConstructionGraph(GEMM, machine, "gensor"))
    return float(net(choices, np.zeros((1, len(choices.counts))))[1][0].detach())


def test_what_is_chosen_depends_on_the_machine_only_where_it_is_seen() -> None:
    near = hardware.get("h200")
    other = drawn([near], np.random.default_rng(0))  # the same limits, so the same columns
    torch.manual_seed(0)
    blind, seeing = ColumnNetwork(8), ColumnNetwork(8, machine=True)
    assert chances(blind, near) == chances(blind, other) and chances(seeing, near) != chances(seeing, other)


def test_it_learns_on_a_machine_for_every_operator_and_seconds_are_those_of_the_machine() -> None:
    rng = np.random.default_rng(0)
    machines = [drawn([hardware.get("h200"), hardware.get("a100")], rng, f"drawn_{i}") for i in range(3)]
    learner = ColumnLearner(SETTINGS, [ConstructionGraph(GEMM, machine, "gensor") for machine in machines], 160, 0)
    before = [part.clone() for part in learner.network.parameters()]
    for _ in range(3):
        assert 0.0 < learner.advance() < 8.0
    assert any((old != new).any() for old, new in zip(before, learner.network.parameters(), strict=True))
    for choices in learner.choices:
        chosen = np.zeros((8, len(choices.counts)), dtype=np.int64)
        assert learner.seconds(choices, chosen)[0] == choices.graph.latencies(choices.rows(chosen))[0]


@pytest.mark.thorough
def test_a_training_says_so_in_its_card_and_its_policy_is_read_with_it(tmp_path: Path) -> None:
    words = ["agent=columns", "+agent.machines=[h200,a100]", "agent.width=8", "agent.programs=4", "steps=64", "env.hardware=h200"]
    words += ["env.space=gensor", f"operators='{GEMM}'", "wandb.mode=disabled", f"output={tmp_path}", "agent.tasks=2"]
    config = settings_of(compose(words, "train"))
    from rich.console import Console

    learner, seconds, _ = training.learn(config, tmp_path, Console(quiet=True))
    write_card(config, tmp_path, seconds, learner.num_timesteps)
    assert [choices.graph.hardware.name for choices in learner.choices] == ["drawn_0"]
    assert json.loads((tmp_path / "card.json").read_text())["config"]["agent"]["machines"] == ["h200", "a100"]
    assert load_columns(str(tmp_path)).machine


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
