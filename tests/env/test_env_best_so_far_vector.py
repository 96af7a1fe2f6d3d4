"""`reward="best_so_far"` in the vector form: it agrees with the single one, in every autoreset mode, copied and saved."""

from __future__ import annotations

import copy
import json
import pickle
import warnings
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode

from gensor_gym.env.construct import ConstructEnv
from gensor_gym.env.vector import ConstructVectorEnv
from gensor_gym.graph.actions import STOP
from tests.support.env_backends import MadeUpBackend
from tests.support.graph_walks import OPERATORS

GEMM = "gemm(m=64, n=48, k=40)"


def drawn(masks: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """A legal action of each, `stop` only where nothing else is."""
    masks = masks.copy()
    masks[:, STOP] &= ~masks[:, 1:].any(axis=1)
    return np.where(masks, rng.random(masks.shape), -1.0).argmax(axis=1)


@pytest.mark.parametrize("reward", ["final", "best_so_far"])
@pytest.mark.parametrize("mode", list(AutoresetMode), ids=lambda mode: mode.name)
@pytest.mark.parametrize("backend", ["analytic", "made up"])
def test_vector_environments_are_single_ones(mode: AutoresetMode, reward: str, backend: str) -> None:
    """Observations, rewards, masks and facts of several episodes on two operators, in every autoreset mode."""
    count, facts_of = 4, ("runtime_s", "status", "steps")

    def made() -> dict[str, Any]:
        given = {"operator": [GEMM, "gemv(m=100, k=333)"], "hardware": "h200", "space": "extended"}
        return given | {"reward": reward, "backend": backend if backend == "analytic" else MadeUpBackend()}

    envs, ones = ConstructVectorEnv(count, autoreset_mode=mode, **made()), [ConstructEnv(**made()) for _ in range(count)]
    seen, _ = envs.reset(seed=5)
    own = [env.reset(seed=5 + i)[0] for i, env in enumerate(ones)]
    rng, over, ends = np.random.default_rng(5), np.zeros(count, dtype=bool), 0
    for _ in range(300):
        if mode is AutoresetMode.DISABLED and over.any():
            seen, _ = envs.reset(options={"reset_mask": over})
            own = [env.reset()[0] if over[i] else own[i] for i, env in enumerate(ones)]
            over[:] = False
        masks = envs.action_masks()
        assert all(np.array_equal(seen[i], own[i]) for i in range(count))
        assert all(np.array_equal(masks[i], env.action_masks()) for i, env in enumerate(ones))
        actions = np.where(rng.random(count) < 0.1, STOP, drawn(masks, rng))
        actions = np.where(rng.random(count) < 0.1, rng.integers(masks.shape[1], size=count), actions)
        seen, rewards, ended, _, info = envs.step(actions)
        for i, env in enumerate(ones):
            if over[i]:  # NEXT_STEP: this step of the vector form is a reset
                own[i], over[i] = env.reset()[0], False
                assert rewards[i] == 0.0 and not ended[i]
                continue
            own[i], gained, done, _, facts = env.step(int(actions[i]))
            assert rewards[i] == gained and ended[i] == done
            assert ("paid_s" in facts) == ("_paid_s" in info and bool(info["_paid_s"][i]))
            if "paid_s" in facts:
                assert (info["paid_s"][i], info["paid_status"][i]) == (facts["paid_s"], facts["paid_status"])
            if done:
                told = info["final_info"] if mode is AutoresetMode.SAME_STEP else info
                names = (*facts_of, "paid") if reward == "best_so_far" else facts_of
                assert all(told[name][i] == facts[name] and told[f"_{name}"][i] for name in names)
                assert reward == "final" or np.array_equal(told["best"][i], facts["best"])
                over[i], ends = mode is not AutoresetMode.SAME_STEP, ends + 1
                own[i] = own[i] if over[i] else env.reset()[0]
    assert ends > 8


@pytest.mark.parametrize("reward", ["final", "best_so_far"])
def test_threads_copies_and_saved_states_go_on_alike(reward: str) -> None:
    """One thread or three; a copy, a pickle, and another environment that is given the state."""
    arguments = {"operator": list(OPERATORS[:3]), "hardware": "h200", "reward": reward}
    envs = [ConstructVectorEnv(400, threads=threads, **arguments) for threads in (1, 3, 1)]  # type: ignore[arg-type]
    for one in envs[:2]:
        one.reset(seed=1)
    rng = np.random.default_rng(0)
    for _ in range(4):
        actions = np.where(rng.random(400) < 0.3, STOP, drawn(envs[0].action_masks(), rng))
        left, right = (one.step(actions) for one in envs[:2])
        assert all(np.array_equal(a, b) for a, b in zip(left[:3], right[:3], strict=True))
    envs[2].reset()
    envs[2].restore(envs[0].state())
    envs += [copy.deepcopy(envs[0]), pickle.loads(pickle.dumps(envs[0]))]
    for _ in range(20):
        actions = np.where(rng.random(400) < 0.3, STOP, drawn(envs[0].action_masks(), rng))
        first, *others = (one.step(actions) for one in envs)
        assert all(np.array_equal(first[k], other[k]) for other in others for k in range(3))
        assert all(np.array_equal(first[4].get("best", 0), other[4].get("best", 0)) for other in others)
    for one in envs:
        one.close()


@pytest.mark.parametrize("reward", ["final", "best_so_far"])
@pytest.mark.parametrize("observation", ["flat", "dict"])
def test_both_checkers_pass_without_a_warning(observation: str, reward: str) -> None:
    from stable_baselines3.common.env_checker import check_env as check_for_sb3

    env = ConstructEnv(GEMM, "h200", space="extended", observation=observation, reward=reward)
    made = gymnasium.make("gensor_gym/Construct-v0", operator=GEMM, hardware="h200", observation=observation, reward=reward)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(made.unwrapped)
        check_env(env, skip_render_check=True)
        check_for_sb3(env)


def test_specifications_round_trip_and_seeds_decide() -> None:
    """Made by id, single and vector; two with one seed play the same."""
    arguments = {"operator": list(OPERATORS[:3]), "hardware": "cascade_lake", "reward": "best_so_far"}
    env = gymnasium.make("gensor_gym/Construct-v0", **arguments)
    again = gymnasium.make(EnvSpec.from_json(env.spec.to_json()))  # type: ignore[union-attr]
    assert json.loads(env.spec.to_json())["kwargs"]["reward"] == "best_so_far"  # type: ignore[union-attr]
    assert env.unwrapped.settings == again.unwrapped.settings  # type: ignore[attr-defined]
    played = []
    for one in (env, again):
        _, info = one.reset(seed=3)
        rng, rewards, ended = np.random.default_rng(3), [], False
        while not ended:
            _, reward, ended, _, info = one.step(int(rng.choice(np.flatnonzero(info["action_mask"]))))
            rewards.append(reward)
        played.append((rewards, info["best"].tolist()))
    assert played[0] == played[1]
    for mode in (None, "sync"):
        envs = gymnasium.make_vec("gensor_gym/Construct-v0", num_envs=3, vectorization_mode=mode, **arguments)
        assert envs.reset(seed=1)[0].shape[0] == 3 and envs.single_action_space == env.action_space


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"moves": "columns"}, "no moves 'columns': expected 'primitives'; gensor_gym/Write-v0 with choices='columns'"),
        ({"reward": "mean"}, "no reward 'mean'; it is one of .'final', 'best_so_far'"),
        ({"space": "all"}, "'all'.*'gensor'"),
    ],
)
def test_bad_arguments_are_named_with_what_is_accepted(arguments: dict[str, Any], said: str) -> None:
    whole = {"operator": GEMM, "hardware": "h200"} | arguments
    with pytest.raises(ValueError, match=said):
        gymnasium.make("gensor_gym/Construct-v0", **whole)
    with pytest.raises(ValueError, match=said):
        gymnasium.make_vec("gensor_gym/Construct-v0", num_envs=2, **whole)


def test_actions_say_what_they_do() -> None:
    env = ConstructEnv(GEMM, "h200")
    assert env.meaning(0) == "stop" and env.meaning(5).startswith("tile")
    with pytest.raises(ValueError, match="action 73 is none"):
        env.meaning(73)


def test_recorded_times_pay_and_know_the_best() -> None:
    """With the tables that ship: what is not recorded pays nothing, and regret is known where a table is complete."""
    arguments = {"operator": "gemm(m=64, n=64, k=512)", "hardware": "zen5_1c", "space": "compact", "backend": "recorded"}
    env, rng, regrets = ConstructEnv(reward="best_so_far", **arguments), np.random.default_rng(0), []
    for seed in range(5):
        env.reset(seed=seed)
        ended = False
        while not ended:
            mask = env.action_masks()
            action = STOP if rng.random() < 0.3 else int(drawn(mask[None], rng)[0])
            _, _, ended, _, info = env.step(action)
        assert info["status"] == "OK" and info["paid"] > 1
        regrets.append(info["regret"])
    assert min(regrets) >= 0.0 and max(regrets) > 0.0
