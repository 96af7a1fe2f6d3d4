"""Policies that learn in recorded spaces, orders of other devices, and the study of both."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from agents import tune
from agents.cli.arguments import CONF, compose
from agents.recorded.other_devices import order
from agents.recorded.tune import get_strategy_of_spaces
from agents.training.recorded_spaces import RecordedTraining, RecordedVecEnv, known_card, learn, training_of
from experiments.studies.transfer_recorded import study
from experiments.studies.transfer_recorded.plan import (
    BEST_OF,
    FROM_BEST,
    MEMORISED,
    OTHERS,
    POLICY_OF,
    RecordedSearch,
    Task,
    improvements,
    plan_of,
    regrets,
)
from experiments.studies.transfer_recorded.study import RecordedTransfer, Scores, roles
from gensor_gym import load_space, save_space
from gensor_gym.measure.session import Budget
from gensor_gym.spaces import TuningSession, compacted
from gensor_gym.spaces.moves import moves_of
from tests.support.coarse_figures import COARSE_FIGURES
from tests.support.device_spaces import BEST, write_space
from tests.support.in_process import one_after_the_other, search_here
from tests.support.thorough import thorough_but
from tests.support.tuning_files import CACHE, random_cache

pytestmark = COARSE_FIGURES
AGENT = {
    "name": "ppo", "n_steps": 64, "batch_size": 256, "n_epochs": 4, "learning_rate": 0.003, "ent_coef": 0.01, "gae_lambda": 0.95,
    "clip_range": 0.2, "net_arch": [32, 32],
}  # fmt: skip
ENV = {"horizon": 16, "step_cost": 0.02}
SHIPPED = Path(__file__).resolve().parents[2] / "gensor_gym" / "data" / "spaces" / "benchmark_hub"


def training(*paths: Path, **more: Any) -> RecordedTraining:
    return RecordedTraining(tuple(map(str, paths)), AGENT, ENV, **({"steps": 512, "num_envs": 8} | more))


@pytest.mark.thorough
def test_a_policy_learns_the_way_to_the_best_and_takes_it_along(tmp_path: Path) -> None:
    near, same, far = (write_space(tmp_path, device) for device in BEST)
    learn(training(near, steps=20_000), tmp_path / "near")
    learn(training(near, far, steps=20_000), tmp_path / "both")

    def regret(path: Path, name: str, **given: Any) -> float:
        return float(np.mean([tune(path, name, trials=8, seed=seed, **given).regret for seed in range(20)]))

    there = {"checkpoint": str(tmp_path / "near"), "starts": "random"}
    drawn = regret(same, "random_walk", batch=1)
    assert regret(same, "policy", **there) < 0.2 * drawn  # the same device by another name
    assert regret(far, "policy", **there) > drawn  # there it goes where it was good on `near`
    assert regret(far, "policy", **there | {"checkpoint": str(tmp_path / "both")}) < drawn
    best = {"checkpoint": str(tmp_path / "near"), "starts": "best"}
    first = tune(same, "policy", trials=1, **best)
    assert first.regret == 0.0 and first.configuration == {"x": 16, "y": 4}


def test_a_lesson_gives_the_same_policy_again_and_is_learned_once(tmp_path: Path) -> None:
    near, _, far = (write_space(tmp_path, device) for device in BEST)
    wanted = training(near, far)
    card = learn(wanted, tmp_path / "a")
    learn(wanted, tmp_path / "b")
    curves = [(tmp_path / name / "curve.jsonl").read_text() for name in "ab"]
    assert curves[0] == curves[1] and len(curves[0].splitlines()) == 1
    assert card["devices"] == ["near", "far"] and card["best"] == [{"x": 16, "y": 4}, {"x": 128, "y": 1}]
    written = (tmp_path / "a" / "policy.safetensors").stat().st_mtime_ns
    assert learn(wanted, tmp_path / "a") == card and (tmp_path / "a" / "policy.safetensors").stat().st_mtime_ns == written
    assert known_card(training(near, far, seed=1), tmp_path / "a") is None
    with pytest.raises(ValueError, match="the same ones"):
        learn(training(near, CACHE), tmp_path / "a")
    assert known_card(wanted, tmp_path / "a") == card  # what could not be learned has left it alone
    write_space(tmp_path, "near").write_text(near.read_text().replace("RuntimeFailedConfig", "InvalidConfig"))
    assert known_card(wanted, tmp_path / "a") is None  # the file holds something else now
    (tmp_path / "b" / "card.json").unlink()
    assert known_card(wanted, tmp_path / "b") is None  # killed before the card


def test_environments_take_spaces_by_turns(tmp_path: Path) -> None:
    near, _, far = (write_space(tmp_path, device) for device in BEST)
    envs = RecordedVecEnv(training(near, far, num_envs=5))
    assert [env.space.device for env in envs.envs] == ["near", "far", "near", "far", "near"]  # type: ignore[attr-defined]
    assert envs.discount == 1.0 and envs.observation_space.shape == (2 * 2 + 6 + 2 + 2 * 2,)


def test_trainings_that_cannot_be_learned_are_named(tmp_path: Path) -> None:
    near = write_space(tmp_path, "near")
    with pytest.raises(ValueError, match="agent 'dqn'.*'ppo', 'a2c'"):
        RecordedTraining((str(near),), AGENT | {"name": "dqn"})
    for bad in ({"steps": 0}, {"seed": None}, {"seed": 1.5}):
        with pytest.raises(ValueError, match="expected a whole number"):
            training(near, **bad)
    with pytest.raises(ValueError, match="timing 'resample'"):
        training(near, timing="resample")
    for env in ({"timing": "median"}, {"foo": 1}, 5):
        with pytest.raises(ValueError, match="expected values for some of"):
            RecordedTraining((str(near),), AGENT, env)  # type: ignore[arg-type]
    for agent in ({"net_arch": None}, {"batch_size": 0}):
        with pytest.raises(ValueError, match="widths in a list"):
            RecordedTraining((str(near),), AGENT | agent)
    with pytest.raises(ValueError, match="num_envs is 1; expected 2"):
        training(near, near, num_envs=1)
    with pytest.raises(ValueError, match="the same ones in the same order"):
        RecordedVecEnv(training(near, CACHE))
    with pytest.raises(ValueError, match="no file"):
        learn(training(tmp_path / "none.json"), tmp_path)
    with pytest.raises(ValueError, match="expected a list of files"):
        training_of(compose([], name="train_recorded"))
    assert training_of(compose([f"spaces=['{near}']", "seed=3"], name="train_recorded")).seed == 3


def test_searches_with_a_policy_name_what_is_wrong(tmp_path: Path) -> None:
    near = write_space(tmp_path, "near")
    learn(training(near), tmp_path / "p")
    renamed = tmp_path / "renamed.json"
    for old, new in (('"x"', '"z"'), ("256", "512")):  # another name; another value of the same place
        renamed.write_text(near.read_text().replace(old, new), encoding="utf-8")
        for path in (CACHE, renamed):
            with pytest.raises(ValueError, match="expected a space with the same ones"):
                tune(path, "policy", checkpoint=str(tmp_path / "p"))
    (tmp_path / "bare").mkdir()
    (tmp_path / "bare" / "policy.safetensors").write_bytes((tmp_path / "p" / "policy.safetensors").read_bytes())
    for folder in (tmp_path / "bare", CONF.parent / "agents" / "data" / "policies" / "ppo_gpu"):  # no card; of constructions
        with pytest.raises(FileNotFoundError, match="no policy of recorded spaces"):
            tune(near, "policy", checkpoint=str(folder))
    with pytest.raises(FileNotFoundError, match="experiments train_recorded"):
        tune(near, "policy", checkpoint=str(tmp_path))
    for bad in ({"checkpoint": ""}, {"temperature": 0.0}, {"starts": "here"}):
        with pytest.raises(ValueError, match="expected a folder"):
            tune(near, "policy", **({"checkpoint": str(tmp_path / "p")} | bad))
    assert len(tune(near, "policy", checkpoint=str(tmp_path / "p"), patience=2).trace) <= 30  # ends where all is known


def test_the_order_of_other_devices(tmp_path: Path) -> None:
    near, same, far = (load_space(write_space(tmp_path, device)) for device in BEST)
    by_time = np.argsort(far.seconds(), kind="stable")
    assert order(near, [far]).tolist() == by_time.tolist()  # failures are last there as well
    both = [np.log(other.seconds() / other.seconds().min()) for other in (same, far)]
    both = [np.where(np.isfinite(one), one, 2 * one[np.isfinite(one)].max()) for one in both]
    assert order(near, [same, far]).tolist() == np.argsort(both[0] + both[1], kind="stable").tolist()
    found = tune(near, "elsewhere", trials=3, spaces=[far.source])
    assert [row.seconds for row in found.trace] == near.seconds()[by_time[:3]].tolist()
    with pytest.raises(ValueError, match="expected the same"):
        tune(near, "elsewhere", spaces=[str(CACHE)])
    for bad in ((), "a.json", Path("a.json")):
        with pytest.raises(ValueError, match="expected a list of one file or more"):
            tune(near, "elsewhere", spaces=bad)


def test_annealing_cools_down_and_exhausts_small_spaces(tmp_path: Path) -> None:
    space = load_space(write_space(tmp_path, "near"))
    session = TuningSession(space, Budget())
    get_strategy_of_spaces("annealing", patience=20).search(session, np.random.default_rng(0))
    assert session.trials == len(space)
    drawn, annealed = (
        np.mean([tune(space, name, trials=12, seed=seed).regret for seed in range(30)]) for name in ("random_walk", "annealing")
    )
    assert annealed < drawn
    for bad in ({"starts": 0}, {"hot": 0.01}, {"cold": 0.0}):
        with pytest.raises(ValueError, match="expected"):
            tune(space, "annealing", **bad)


def test_what_spaces_share_cannot_be_written(tmp_path: Path) -> None:
    space = load_space(write_space(tmp_path, "near"))
    assert moves_of(space) is moves_of(space) and space.find({"x": 8, "nonsense": 1}) is None
    for array in (space.regrets(), moves_of(space).table, moves_of(space).parts):
        with pytest.raises(ValueError, match="read-only"):
            array[:] = 0
    moves_of(space).mask(0)[:] = False  # a copy
    assert moves_of(space).mask(0)[0]


def test_a_search_is_known_by_all_it_depends_on(tmp_path: Path) -> None:
    near = write_space(tmp_path, "near")
    learn(training(near), tmp_path / "p")
    one = RecordedSearch("bowl", "near", "n", str(near), "policy", {"checkpoint": str(tmp_path / "p")}, 0, 2, 4)
    changes = ({"kernel": "cup"}, {"device": "far"}, {"seed": 1}, {"repeats": 3}, {"trials": 5}, {"timing": "median"})
    others = [dataclasses.replace(one, **change) for change in changes]
    assert len({search.key for search in (one, *others)}) == 1 + len(others)
    assert one.stream(0) != one.stream(1) and one.stream(0) != dataclasses.replace(one, kernel="cup").stream(0)
    before = one.key
    card = tmp_path / "p" / "card.json"
    card.write_text(card.read_text().replace('"step_cost": 0.02', '"step_cost": 0.5'))
    assert one.key != before


def test_curves_and_regrets() -> None:
    curve = improvements([3.0, np.inf, 4.0, 2.0, 2.0, 1.0])
    assert curve == [[1, 4, 6], [3.0, 2.0, 1.0]]
    assert improvements([np.inf, np.inf]) == [[], []] and improvements([]) == [[], []]
    late = [[5], [1.0]]
    found = regrets([curve, late], [1, 4, 100], best=1.0, cap=8.0)
    assert np.allclose(found, np.log([[3, 2, 1], [8, 8, 1]]).mean(axis=0))


def test_compacted_spaces_move_alike(tmp_path: Path) -> None:
    path = tmp_path / "random.json"
    path.write_text(json.dumps(random_cache(3) | {}), encoding="utf-8")
    for source in (path, CACHE):
        space = load_space(source)
        save_space(compacted(space), tmp_path / "small.json.gz")
        small = load_space(tmp_path / "small.json.gz")
        assert np.array_equal(small.indices, space.indices) and np.array_equal(small.ok, space.ok)
        assert [p.values for p in small.parameters] == [p.values for p in space.parameters]
        assert np.allclose(small.reported[small.ok], space.seconds("median")[space.ok], rtol=1e-4)
        assert (small.device, small.kernel) == (space.device, space.kernel) and not any(map(len, small.samples))


@pytest.mark.thorough
def test_the_study_is_whole_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    search_here(monkeypatch)
    monkeypatch.setattr(study, "side_by_side", one_after_the_other)
    folder = tmp_path / "bowl"
    folder.mkdir()
    for device in BEST:
        write_space(folder, device)
    small = ["agent.n_steps=32", "agent.batch_size=128", "agent.net_arch=[16]", "steps=512", "num_envs=8", "repeats=2"]
    config = compose(
        [
            f"spaces='{tmp_path}/{{kernel}}/{{device}}.json'", "~kernels.convolution", "~kernels.dedispersion", "~kernels.gemm",
            "++kernels.bowl=[near,same,far]", "seeds=[0]", "trials=8", "shown=4", "checkpoints=[1,4,8]", "resamples=50",
            "processes=1", f"output={tmp_path / 'out'}", *small,
        ],
        name="transfer_recorded",
    )  # fmt: skip
    plan = plan_of(config)
    _, summary = RecordedTransfer(plan)(Console(quiet=True))
    assert set(summary["regret"]["all"]) == set(roles(plan)) and len(summary["training_s"]) == 3 * 2
    cells = summary["matrix"]["bowl"]
    assert set(cells["far"]) >= {POLICY_OF + "near", POLICY_OF + "far", POLICY_OF + OTHERS, FROM_BEST, BEST_OF + OTHERS}
    assert BEST_OF + "far" not in cells["far"] and BEST_OF + "far" in cells["near"]
    assert cells["near"][BEST_OF + "same"] == [0.0, 0.0, 0.0] and cells["near"][BEST_OF + "far"][0] > 0.5
    means = [cells[device][POLICY_OF + device][1] for device in BEST]
    assert summary["regret"]["all"][MEMORISED][1]["mean"] == pytest.approx(np.mean(means))
    page, lines = (tmp_path / "out" / "summary.md").read_text(), (tmp_path / "out" / "lines.jsonl").read_text()
    assert "Policies between real GPUs" in page and "![curves.png](curves.png)" in page
    assert all((tmp_path / "out" / name).read_bytes().startswith(b"\x89PNG") for name in ("curves.png", "matrix_bowl.png"))
    _, again = RecordedTransfer(plan)(Console(quiet=True))
    assert again["regret"] == summary["regret"] and (tmp_path / "out" / "lines.jsonl").read_text() == lines
    check_scores(Scores(plan, [json.loads(line) for line in lines.splitlines()]))


def check_scores(scores: Scores) -> None:
    """Regrets fall with trials, and another device's policies are those of the two others."""
    for device in BEST:
        task = Task("bowl", device)
        for name in scores.names(task):
            assert (np.diff(scores.of(task, name), axis=1) <= 0).all()
        others = [scores.of(task, POLICY_OF + other) for other in BEST if other != device]
        assert np.allclose(scores.role(task, "policy trained on another"), np.mean(others, axis=0))


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("spaces=a.json", "with {kernel} and {device}"),
        ("kernels.gemm=[RTX_3090]", "two devices or more"),
        ("shown=5", "expected one of the checkpoints"),
        ("trials=64", "none of which is above the trials"),
        ("seeds=[-1]", "whole numbers, 0 or more"),
        ("reference=markov", "expected one of the strategies"),
        ("+strategies.markov={}", "does not search recorded spaces"),
        ("repeats=0", "1 or more"),
        ("spaces='{kernel}{device}{x}'", "nothing in braces but"),
        ("strategies=annealing", "hyperparameters by the name of a strategy"),
        ("++strategies.annealing.starts=0", "starts is 0"),
        ("timing=mean", "timing 'mean'"),
        ("env=5", "env is 5"),
    ],
)
def test_what_cannot_be_studied_is_named(override: str, said: str) -> None:
    with pytest.raises(ValueError) as caught:
        plan_of(compose([override], name="transfer_recorded"))
    assert said in str(caught.value)


FILES = sorted(SHIPPED.rglob("*.json.gz"))
FIRST_OF_EACH = {path.parent: path for path in reversed(FILES)}.values()


@pytest.mark.parametrize("path", thorough_but(FILES, *FIRST_OF_EACH), ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_shipped_recordings_are_complete(path: Path) -> None:
    space = load_space(path)
    first = load_space(sorted(path.parent.glob("*.json.gz"))[0])
    assert [p.values for p in space.parameters] == [p.values for p in first.parameters] and space.ok.mean() > 0.7
    assert space.kernel and len(space) > 4000


@pytest.mark.thorough
@pytest.mark.parametrize("kernel", thorough_but(["convolution", "dedispersion", "gemm"], "gemm"))
def test_nothing_of_the_tested_device_is_learned_from_elsewhere(kernel: str) -> None:
    plan = plan_of(compose(["seeds=[0]"], name="transfer_recorded"))
    plan = dataclasses.replace(plan, kernels={kernel: plan.kernels[kernel]})
    by_folder = {folder: training.spaces for training, folder in plan.trainings()}
    searches = list(plan.searches())
    for task in plan.tasks:
        own = plan.file(task.kernel, task.device)
        for search in (one for one in searches if (one.kernel, one.device) == (task.kernel, task.device)):
            assert search.space == own
            learned = by_folder.get(Path(search.parameters.get("checkpoint", "")), search.parameters.get("spaces", ()))
            assert (own in learned) == (search.name == POLICY_OF + task.device), search.name
            if OTHERS in search.name:
                assert len(learned) == len(plan.kernels[task.kernel]) - 1


@pytest.mark.thorough
def test_the_study_asks_for_what_is_shipped() -> None:
    assert (CONF / "transfer_recorded.yaml").is_file() and "MIT License" in (SHIPPED / "LICENSE").read_text()
    assert len(plan_of(compose([], name="transfer_recorded")).tasks) == 15
