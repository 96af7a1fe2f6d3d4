"""Fine-tuning: rewards are the measured ones, every kernel is kept, a run that was stopped goes on, the card says so."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from agents.cli.arguments import compose
from agents.policies.learned import load_policy
from agents.training.fine_tuning import fine_tune
from agents.training.fine_tuning import walk as fine_tune_walk
from agents.training.fine_tuning.measured_reward import CURVE, MeasuredVectorEnv, Timings, seconds_before
from gensor_gym import operators
from gensor_gym.construction import ConstructionGraph
from gensor_gym.cost.roofline import CAP_OVER_FLOOR
from gensor_gym.env.sb3 import ConstructVecEnv, make_sb3
from gensor_gym.graph.actions import STOP
from gensor_gym.measure.analytic import AnalyticBackend
from tests.support.env_backends import MadeUpBackend
from tests.support.policies_made import make_policy

GEMM = "gemm(m=256, n=128, k=128)"


def environment(path: Path, backend: MadeUpBackend | AnalyticBackend) -> ConstructVecEnv:
    return ConstructVecEnv(MeasuredVectorEnv(Timings(path, backend, None), 4, operator=GEMM, hardware="h200", space="gensor"))


def play(env: ConstructVecEnv, steps: int, seed: int) -> list[tuple[float, dict]]:
    """(reward, info) of every episode that ended in random play."""
    rng, found = np.random.default_rng(seed), []
    env.seed(seed)
    env.reset()
    for turn in range(steps):
        masks = np.array(env.env_method("action_masks"))
        actions = np.array([rng.choice(np.flatnonzero(mask)) for mask in masks])
        if turn % 5 == 4:
            actions[0] = STOP
        _, rewards, ended, infos = env.step(actions)
        found += [(float(rewards[i]), infos[i]) for i in np.flatnonzero(ended)]  # type: ignore[arg-type]
    return found


def test_the_last_reward_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside the same play on the model: what is added is the gain, and to the end of an episode alone."""
    backend, gains = MadeUpBackend(), []
    env, plain = environment(tmp_path / "m.jsonl", backend), make_sb3(4, operator=GEMM, hardware="h200", space="gensor")
    inside = env.envs.timings.gain
    monkeypatch.setattr(env.envs.timings, "gain", lambda *of: gains.append(inside(*of)) or gains[-1])
    ours, theirs = play(env, 60, 1), play(plain, 60, 1)
    assert len(ours) == len(theirs) == len(gains) > 10
    assert len(set(backend.measured)) == len(backend.measured) == env.envs.timings.spent > 5
    for (reward, info), (modelled, other), gain in zip(ours, theirs, gains, strict=True):
        assert info["runtime_s"] == other["runtime_s"] and reward - modelled == pytest.approx(gain, abs=1e-4)
        assert info["episode"]["r"] - other["episode"]["r"] == pytest.approx(gain)


def test_a_gain_is_measured_less_modelled_less_the_mean(tmp_path: Path) -> None:
    backend, graph, rng = MadeUpBackend(), ConstructionGraph(GEMM, "h200", "gensor"), np.random.default_rng(0)
    timings, ran = Timings(tmp_path / "m.jsonl", backend, None), []
    for _ in range(20):
        schedule = graph.random_schedule(rng)
        seconds = backend.expected(backend.digest(graph.operator, schedule, graph.hardware))
        model, known = graph.latency(schedule), timings.spent
        cap = CAP_OVER_FLOOR * graph.floor
        raw = (0.0 if seconds is None else max(0.0, math.log(cap / seconds))) - max(0.0, math.log(cap / model))
        found = timings.gain(graph, schedule.row, model)
        ran += [raw] if timings.spent > known and seconds is not None else []
        assert found == pytest.approx(raw - (np.mean(ran) if ran else 0.0))


def test_what_was_measured_is_not_measured_again(tmp_path: Path) -> None:
    first, second = MadeUpBackend(), MadeUpBackend()
    env = environment(tmp_path / "m.jsonl", first)
    play(env, 60, 1)
    with (tmp_path / "m.jsonl").open("a") as file:
        file.write('{"torn')
    again = environment(tmp_path / "m.jsonl", second)
    play(again, 60, 1)
    assert second.measured == [] and again.envs.timings.rows == env.envs.timings.rows
    assert len((tmp_path / "m.jsonl").read_text().splitlines()) == env.envs.timings.spent


def test_fine_tuning_goes_on_and_says_what_it_did(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = MadeUpBackend()
    monkeypatch.setattr(fine_tune, "get_backend", lambda name, hw: backend)
    make_policy(tmp_path / "p0", 0)
    common = [
        f"checkpoint={tmp_path / 'p0'}", f"output={tmp_path / 'tuned'}", "env.hardware=h200", f"operators=['{GEMM}']",
        "num_envs=2", "ppo.n_steps=8", "ppo.batch_size=16", f"store={tmp_path / 's.sqlite'}",
    ]  # fmt: skip

    def run(measurements: int) -> dict:
        return fine_tune.fine_tune(compose([*common, f"measurements={measurements}"], name="fine_tune"), Console(quiet=True))

    run(4)
    before = [row["digest"] for row in _rows(tmp_path)]
    card = run(10)
    rows = [row["digest"] for row in _rows(tmp_path)]
    assert rows[: len(before)] == before and len(rows) >= 10 and len(backend.measured) == len(rows)
    found = card["fine_tuned"]
    assert found["measurements"] == len(rows) and found["operators"] == [str(operators.parse(GEMM))]
    assert found["from"] == str(tmp_path / "p0") and found["backend"] == "made_up" and found["split"] == "v1 train"
    assert card["training_seconds"] >= 10.0 and json.loads((tmp_path / "tuned" / "card.json").read_text()) == card
    assert (tmp_path / "tuned" / "policy.safetensors").read_bytes() != (tmp_path / "p0" / "policy.safetensors").read_bytes()


def test_a_killed_fine_tuning_has_learned_what_it_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The policy that a kill leaves is that after a rollout's update; the same command goes on from there."""
    monkeypatch.setattr(fine_tune, "get_backend", lambda name, hw: MadeUpBackend())
    make_policy(tmp_path / "p0", 0)
    config = compose(
        [
            f"checkpoint={tmp_path / 'p0'}", f"output={tmp_path / 'tuned'}", "env.hardware=h200", f"operators=['{GEMM}']",
            "num_envs=2", "ppo.n_steps=32", "ppo.batch_size=16", f"store={tmp_path / 's.sqlite'}", "measurements=10000",
        ],
        name="fine_tune",
    )  # fmt: skip
    inside, saved = fine_tune_walk.Until._save, []

    def save_and_end(until: fine_tune_walk.Until) -> None:
        inside(until)
        saved.append((until.model.num_timesteps, until.model.policy.state_dict()["action_net.weight"].numpy().copy()))
        raise KeyboardInterrupt

    monkeypatch.setattr(fine_tune_walk.Until, "_save", save_and_end)
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            fine_tune.fine_tune(config, Console(quiet=True))
        with (tmp_path / "tuned" / CURVE).open("a") as file:
            file.write('{"torn')
    first = load_policy(str(tmp_path / "p0"))[1].policy.state_dict()["action_net.weight"].numpy()
    (steps, once), (more, twice) = saved
    assert (steps, more) == (64, 128)
    assert not np.array_equal(first, once) and not np.array_equal(once, twice)
    assert seconds_before(tmp_path / "tuned" / CURVE) >= 0
    assert len((tmp_path / "tuned" / CURVE).read_text().splitlines()) == 2  # without what was torn


def _rows(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / "tuned" / "measured.jsonl").read_text().splitlines()]


def test_operators_of_other_parts_are_refused() -> None:
    config = compose(["checkpoint=a", "output=b", "operators=split/v1/test"], name="fine_tune")
    with pytest.raises(ValueError, match="expected operators of the train part"):
        fine_tune.chosen(config)
    config = compose(["checkpoint=a", "output=b"], name="fine_tune")
    found = fine_tune.chosen(config)
    assert {operators.part_of(op) for op in found} == {"train"} and len({op.name for op in found} - {"elementwise"}) >= 5
    assert all(op.points <= config.most_points and op.name != "elementwise" for op in found)


@pytest.mark.parametrize(
    "name, first, policy, least",
    [
        ("live_policies", "markov_ext", "ppo", 12),
        ("live_columns", "markov_ext", "columns", 12),
        ("gpu_headline", "markov_ext", "columns", 12),
    ],  # fmt: skip
)
def test_studies_of_kernels_are_of_the_test_part(name: str, first: str, policy: str, least: int) -> None:
    config = compose([f"experiment={name}"])
    parts = {operators.part_of(op) for op in operators.resolve(list(config.operators))}
    assert parts == {"test"} and len(config.operators) >= least and config.budget.trials == 10
    assert next(iter(config.strategies)) == first and "checkpoint" in config.strategies[policy]
