"""Examples of the documentation run."""

from __future__ import annotations

import importlib.util
import runpy
import sys
import types
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from tests.support.thorough import thorough_but

torch = pytest.importorskip("torch")
pytest.importorskip("stable_baselines3")

EXAMPLES = Path(__file__).resolve().parents[1] / "docs" / "examples"
ID = "gensor_gym:gensor_gym/Construct-v0"


@pytest.fixture(scope="module")
def clean() -> Any:
    spec: Any = importlib.util.spec_from_file_location("clean_ppo", EXAMPLES / "clean_ppo.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["clean_ppo"] = module  # where dataclasses look for the types of fields
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def of_random_actions() -> float:
    """Mean return of uniformly drawn actions, illegal ones among them: what a policy begins with."""
    envs = gymnasium.wrappers.vector.RecordEpisodeStatistics(gymnasium.make_vec(ID, num_envs=32))
    envs.reset(seed=0)
    envs.action_space.seed(0)
    returns: list[float] = []
    while len(returns) < 300:
        *_, info = envs.step(envs.action_space.sample())
        if "episode" in info:
            returns.extend(info["episode"]["r"][info["_episode"]])
    return float(np.mean(returns))


@pytest.mark.examples
@pytest.mark.parametrize("masks", thorough_but([False, True], True), ids=["all actions", "masks"])
def test_ppo_in_one_file_learns(clean: Any, of_random_actions: float, masks: bool) -> None:
    curve = clean.train(clean.Arguments(total_steps=36_000, masks=masks))
    assert abs(curve[0] - of_random_actions) < 1.0 and curve[-1] > of_random_actions + 1.5


@pytest.mark.examples
def test_ppo_in_one_file_knows_nothing_of_this_environment(clean: Any) -> None:
    curve = clean.train(clean.Arguments(env_id="CartPole-v1", total_steps=40_000))
    assert curve[0] < 40 and curve[-1] > 3 * curve[0]
    text = (EXAMPLES / "clean_ppo.py").read_text()
    assert text.count("gensor_gym") == 2 and ID in text  # the default of its id, once on either side of the colon
    assert len(text.splitlines()) <= 150


@pytest.mark.examples
def test_ppo_in_one_file_repeats_itself(clean: Any) -> None:
    one, other, third = (clean.train(clean.Arguments(total_steps=6000, seed=seed)) for seed in (1, 1, 2))
    assert one == other != third


def run_stock_script(folder: Path) -> dict[str, Any]:
    """What stands in the script's variables at its end; `folder` is where one is."""
    torch.manual_seed(0)
    np.random.seed(0)
    path = EXAMPLES / "sb3_ppo.py"
    script: dict[str, Any] = {}
    exec(compile(path.read_text(), str(path), "exec"), script)
    assert (folder / "ppo_construct.zip").exists()
    return script


@pytest.mark.thorough
def test_the_stock_script_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """With a fortieth of its steps of training."""
    from stable_baselines3 import PPO

    learn = PPO.learn
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(PPO, "learn", lambda model, total_timesteps: learn(model, total_timesteps // 40))
    model = run_stock_script(tmp_path)["model"]
    assert 600 <= model.num_timesteps < 25_000 and "us by the model" in capsys.readouterr().out


@pytest.mark.thorough
def test_what_the_stock_script_trains_learns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, of_random_actions: float) -> None:
    monkeypatch.chdir(tmp_path)
    script = run_stock_script(tmp_path)
    returns: list[float] = []
    vec_env, model = script["vec_env"], script["model"]
    model.set_env(vec_env)
    model.learn(32_768)  # as much again: it begins by learning to stop soon, which is paid at once
    observations = vec_env.reset()
    while len(returns) < 300:
        observations, _, _, infos = vec_env.step(model.predict(observations)[0])
        returns += [info["episode"]["r"] for info in infos if "episode" in info]
    assert np.mean(returns) > of_random_actions + 1.0


@pytest.mark.examples
def test_a_window_is_drawn_into(monkeypatch: pytest.MonkeyPatch) -> None:
    """`vec_env.render("human")` of the documented example, with a stand-in for OpenCV."""
    pytest.importorskip("matplotlib")
    from stable_baselines3.common.env_util import make_vec_env

    shown: list[np.ndarray] = []
    window = types.SimpleNamespace(imshow=lambda name, frame: shown.append(frame), waitKey=lambda time: 0)
    monkeypatch.setitem(sys.modules, "cv2", window)
    vec_env = make_vec_env(ID, n_envs=2)
    vec_env.reset()
    vec_env.render("human")
    assert len(shown) == 1 and shown[0].dtype == np.uint8 and shown[0].shape[2] == 3 and np.ptp(shown[0]) > 0
    vec_env.close()


@pytest.mark.examples
def test_ppo_on_a_gpu_runs_by_its_model(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("sb3_contrib")
    monkeypatch.setattr(sys, "argv", ["cuda_ppo.py", "h100", "analytic", "2"])
    runpy.run_path(str(EXAMPLES / "cuda_ppo.py"))
    assert "ep_rew_mean" in capsys.readouterr().out
    assert len((EXAMPLES / "cuda_ppo.py").read_text().splitlines()) <= 16
