"""Measured v1 as rewards of environments and as a Minari data set, and the scripts that learn from it."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec
from omegaconf import OmegaConf
from rich.console import Console

from agents.cli.command import CONF
from agents.recording.minari_episodes import episode, write
from gensor_gym import hardware
from gensor_gym.graph.schedule import Schedule
from gensor_gym.measure.backend import get_backend, measure
from gensor_gym.measure.measurement import Status
from gensor_gym.measure.records import measured

MACHINE = "zen4_1c"
EXAMPLES = Path(__file__).resolve().parents[3] / "docs" / "examples"
NAME = "gensor_gym/zen4_1c-validation-sizes-v1"


@pytest.fixture(scope="module")
def rows() -> Any:
    """Rows of three operators."""
    table = measured.load(MACHINE, "validation")
    return table[table.operator.isin(sorted(map(str, table.operator.unique()))[:3])]


def made(folder: Path, operators: int) -> None:
    """The data set of so many operators of the part `validation`, by the command's function."""
    config = OmegaConf.load(CONF / "minari.yaml")
    config.update(part="validation", operators=operators, output=str(folder))
    write(config, Console(quiet=True))  # type: ignore[arg-type]


def written(rows: Any, choices: str, backend: str = "measured") -> Any:
    operators = sorted(map(str, rows.operator.unique()))
    settings = {"operator": operators, "hardware": MACHINE, "backend": backend, "space": "extended", "choices": choices}
    return gymnasium.make("gensor_gym/Write-v0", **settings)


@pytest.mark.parametrize("choices", ["sizes", "columns"])
def test_an_episode_writes_the_program_and_is_paid_by_its_time(rows: Any, choices: str) -> None:
    env, modelled = written(rows, choices), written(rows, choices, "analytic")
    for row in rows.itertuples():
        found = episode(env, str(row.operator), str(row.schedule))
        steps = len(found["actions"])
        assert len(found["observations"]) == len(found["infos"]["action_mask"]) == steps + 1 == len(found["rewards"]) + 1
        assert all(mask[action] for mask, action in zip(found["infos"]["action_mask"], found["actions"], strict=False))
        assert found["terminations"] == [False] * (steps - 1) + [True] and not any(found["rewards"][:-1])
        told = episode(modelled, str(row.operator), str(row.schedule))
        ratio = np.exp(told["rewards"][-1] - found["rewards"][-1]) if min(told["rewards"][-1], found["rewards"][-1]) else None
        seconds = measure(str(row.operator), _schedule(row), MACHINE, "analytic").seconds
        assert row.status != Status.OK.value or ratio is None or ratio == pytest.approx(row.quiet / seconds)


def _schedule(row: Any) -> Schedule:
    return Schedule.parse(str(row.schedule))


def test_what_is_not_recorded_is_named(rows: Any) -> None:
    env = written(rows, "sizes")
    _, info = env.reset(seed=0)
    done = False
    while not done:
        _, reward, done, _, info = env.step(int(np.flatnonzero(info["action_mask"])[0]))
    assert (info["status"], reward) == ("NOT_RECORDED", 0.0)
    with pytest.raises(ValueError, match="h100.*zen4_1c"):
        measure(str(rows.operator.iloc[0]), _schedule(next(rows.itertuples())), "h100", "measured")
    assert get_backend("measured", hardware.get(MACHINE)).device(hardware.get(MACHINE)) == MACHINE
    again = EnvSpec.from_json(env.spec.to_json())
    assert again.kwargs["hardware"] == MACHINE and gymnasium.make(again).unwrapped.tasks.hardware.name == MACHINE


def test_a_data_set_is_what_its_environment_plays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    minari = pytest.importorskip("minari", reason="extra minari")
    made(tmp_path, 3)
    with pytest.raises(ValueError, match=r"is in .*: expected dataset=ANOTHER, or minari.delete_dataset\("):
        made(tmp_path, 3)
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    dataset = minari.load_dataset(NAME)
    env, told = dataset.recover_environment(), list(dataset.storage.get_episode_metadata(range(3)))
    for number, options in enumerate(json.loads(json.dumps(one["options"])) for one in told):
        own = dataset[number]
        observation, info = env.reset(options={"operator": options["operator"]})
        for step, action in enumerate(own.actions):
            assert np.array_equal(observation, own.observations[step])
            assert np.array_equal(info["action_mask"], own.infos["action_mask"][step])
            observation, reward, ended, _, info = env.step(action)
            assert reward == own.rewards[step] and ended == own.terminations[step]
        assert ended
    assert dataset.recover_environment(eval_env=True).spec.kwargs["backend"] == "cpu"
    low, high = (dataset.storage.metadata[name] for name in ("ref_min_score", "ref_max_score"))
    assert 0 < low < high and minari.get_normalized_score(dataset, np.array(high)) == pytest.approx(1.0)


@pytest.mark.examples
def test_scripts_learn_from_a_data_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("minari", reason="extra minari")
    made(tmp_path, 6)
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    _, losses = runpy.run_path(str(EXAMPLES / "minari_cloning.py"))["clone"](NAME, epochs=150)
    assert losses[-1] < 0.85 * losses[0]
    learn = runpy.run_path(str(EXAMPLES / "minari_offline.py"))["learn"]
    assert learn(NAME, epochs=12)[1] < 0.2 * learn(NAME, epochs=1)[1]
    assert all(len((EXAMPLES / f"minari_{name}.py").read_text().splitlines()) <= 40 for name in ("cloning", "offline"))
