"""The best so far: rewards, masks and info, of the single and of the vector environment."""

from __future__ import annotations

import copy
import math
import pickle
import warnings
from typing import Any

import numpy as np
import pytest

from gensor_gym import ConstructionGraph
from gensor_gym.cost.roofline import CAP_OVER_FLOOR
from gensor_gym.env.construct import ConstructEnv
from gensor_gym.env.vector import ConstructVectorEnv
from gensor_gym.exact.shipped import certificate_of
from gensor_gym.graph.actions import STOP
from gensor_gym.graph.schedule import Schedule
from tests.support.env_backends import MadeUpBackend
from tests.support.graph_walks import OPERATORS

GEMM, CERTIFIED = "gemm(m=64, n=48, k=40)", "gemm(m=512, n=512, k=512)"
COST = 0.01


class Fast(MadeUpBackend):
    """Times between 1 and 2 us, at which programs of a small product are worth something."""

    def expected(self, digest: str) -> float | None:
        seconds = super().expected(digest)
        return None if seconds is None else seconds / 1000.0


def worth(graph: ConstructionGraph, seconds: float) -> float:
    """R."""
    return max(0.0, math.log(CAP_OVER_FLOOR * graph.floor / seconds)) if seconds < math.inf else 0.0


def played(env: ConstructEnv, seed: int, stop: float = 0.3) -> list[tuple[float, dict[str, Any], Schedule]]:
    """Rewards, infos and programs of an episode that asks for so many programs, illegal actions among the others."""
    env.reset(seed=seed)
    rng, steps, ended = np.random.default_rng(seed), [], False
    while not ended:
        mask = env.action_masks()
        action = STOP if rng.random() < stop else int(rng.choice(np.flatnonzero(mask if rng.random() < 0.9 else ~mask)))
        left = env.remaining
        _, reward, ended, truncated, info = env.step(action)
        assert not truncated and ended == (left == 1)
        assert ("paid_s" in info) == (action == STOP or ended)
        steps.append((reward, info, env.schedule))
    return steps


@pytest.mark.parametrize("backend", ["analytic", "made up"])
@pytest.mark.parametrize("shaping", [True, False])
def test_the_return_is_that_of_the_best_program(backend: str, shaping: bool) -> None:
    """Less the steps; without shaping every payment is what is more than the best before it, in every tier."""
    improved = 0
    for seed in range(6):
        operator, tier = (CERTIFIED, backend) if backend == "analytic" else (GEMM, Fast())
        env = ConstructEnv(operator, "h200", tier, reward="best_so_far", step_cost=COST, shaping=shaping)
        steps, best, asked = played(env, seed), math.inf, 0
        for at, (reward, info, program) in enumerate(steps):
            cost, before = COST if at + 1 < len(steps) else 0.0, best
            if "paid_s" in info:
                assert (info["paid_status"] == "OK") == (info["paid_s"] < math.inf)
                assert backend != "analytic" or info["paid_s"] == env.graph.latency(program)
                best, asked = min(best, info["paid_s"]), asked + 1
                improved += worth(env.graph, best) > worth(env.graph, before) > 0.0
            if not shaping:
                assert reward == pytest.approx(worth(env.graph, best) - worth(env.graph, before) - cost, abs=1e-9)
        last = steps[-1][1]
        assert last["runtime_s"] == best and last["paid"] == asked and last["steps"] == len(steps) - 1
        assert sum(reward for reward, _, _ in steps) == pytest.approx(worth(env.graph, best) - COST * last["steps"], abs=1e-9)
        assert last["status"] == ("OK" if best < math.inf else last["paid_status"])
        of_best = [program for _, info, program in steps if info.get("paid_s") == best]
        assert best == math.inf or env.graph.schedule(last["best"]) in of_best
    assert improved > 2


def test_potentials_of_a_step_that_pays_stand_still() -> None:
    """Shaping: paying changes no program, so its potential is discounted alone; the last step takes it back."""
    env = ConstructEnv(GEMM, "h200", discount=0.9, reward="best_so_far", step_cost=COST)
    env.reset()
    env.step(int(np.flatnonzero(env.action_masks())[1]))
    graph = env.graph
    potential = math.log(graph.latency(graph.initial()) / graph.latency(env.schedule))
    _, first, ended, _, _ = env.step(STOP)
    assert not ended and first == pytest.approx(worth(graph, graph.latency(env.schedule)) - 0.1 * potential - COST, abs=1e-12)
    _, second, _, _, _ = env.step(STOP)
    assert second == pytest.approx(-0.1 * potential - COST, abs=1e-12)
    while not ended:
        _, last, ended, _, _ = env.step(STOP)
    assert last == pytest.approx(-potential, abs=1e-12)


def test_where_all_programs_fail_nothing_is_paid() -> None:
    class Failing(MadeUpBackend):
        def expected(self, digest: str) -> None:
            return None

    env = ConstructEnv(GEMM, "h200", Failing(), reward="best_so_far", shaping=False, step_cost=COST)
    steps = played(env, 0)
    last = steps[-1][1]
    assert last["status"] == "CRASHED" and last["runtime_s"] == math.inf and "regret" not in last
    assert sum(reward for reward, _, _ in steps) == pytest.approx(-COST * last["steps"])


@pytest.mark.parametrize(("timing", "measured"), [("pooled", 1), ("fresh", 5)])
def test_timing_says_whether_a_program_is_timed_again(timing: str, measured: int) -> None:
    backend = MadeUpBackend()
    env = ConstructEnv(GEMM, "h200", backend, timing=timing, reward="best_so_far")
    env.reset()
    for _ in range(5):
        env.step(STOP)
    assert len(backend.measured) == measured


def test_regret_is_that_of_the_best() -> None:
    """By the certificate of the task, at the end of an episode."""
    env = ConstructEnv(CERTIFIED, "h200", reward="best_so_far")
    certificate = certificate_of(env.graph)
    assert certificate is not None
    env.reset(options={"schedule": certificate.best})
    _, _, _, _, info = env.step(STOP)
    assert info["paid_s"] == certificate.optimum and "regret" not in info
    rng, ended = np.random.default_rng(0), False
    while not ended:
        _, _, ended, _, info = env.step(int(rng.choice(np.flatnonzero(env.action_masks()))))
    assert info["regret"] == 0.0 and env.graph.latency(env.schedule) > certificate.optimum
    for seed in range(3):
        last = played(env, seed)[-1][1]
        assert last["regret"] == pytest.approx(math.log(last["runtime_s"] / certificate.optimum)) and last["regret"] > 0.0


def test_a_new_episode_knows_nothing_of_the_last() -> None:
    env = ConstructEnv(GEMM, "h200", reward="best_so_far", shaping=False, step_cost=0.0)
    for _ in range(2):
        env.reset()
        assert env.step(STOP)[1] == pytest.approx(worth(env.graph, env.graph.latency(env.schedule)))
        assert env.step(STOP)[1] == 0.0


@pytest.mark.parametrize("reward", ["final", "best_so_far"])
def test_regret_comes_through_the_adapter(reward: str) -> None:
    """MaskablePPO trains, is evaluated, and its monitor keeps regrets, nan where no optimum is known; nothing warns."""
    contrib = pytest.importorskip("sb3_contrib")
    from sb3_contrib.common.maskable.evaluation import evaluate_policy
    from stable_baselines3.common.callbacks import StopTrainingOnMaxEpisodes

    from gensor_gym.env.sb3 import make_sb3

    env = make_sb3(4, operator=[CERTIFIED, GEMM], hardware="h200", reward=reward)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = contrib.MaskablePPO(
            "MlpPolicy", env, n_steps=100, batch_size=100, n_epochs=1, gamma=env.discount, seed=0, device="cpu",
            policy_kwargs={"net_arch": [8]},
        )  # fmt: skip
        model.learn(1200, callback=StopTrainingOnMaxEpisodes(10**6))
        evaluate_policy(model, env, n_eval_episodes=4)
    kept = [episode["regret"] for episode in model.ep_info_buffer]
    assert any(regret > 0.0 for regret in kept) and any(math.isnan(regret) for regret in kept)
    assert all(episode["l"] > 0 and math.isfinite(episode["r"]) for episode in model.ep_info_buffer)


def test_the_adapter_hands_the_best_program_on() -> None:
    """Where the best so far counts, the last program is not the one that was looked for."""
    from gensor_gym.env.sb3 import make_sb3

    env, envs = (made(3, operator=GEMM, hardware="h200", reward="best_so_far") for made in (make_sb3, _same_step))
    env.seed(0)
    env.reset()
    envs.reset(seed=0)
    rng, ends = np.random.default_rng(0), 0
    for _ in range(250):
        actions = np.array([rng.choice(np.flatnonzero(mask)) for mask in envs.action_masks()])
        _, _, ended, infos = env.step(actions)
        _, _, _, _, info = envs.step(actions)
        for i in np.flatnonzero(ended):
            assert np.array_equal(infos[i]["best"], info["final_info"]["best"][i])
            assert infos[i]["paid"] == info["final_info"]["paid"][i] and infos[i]["runtime_s"] < math.inf
            ends += 1
    assert ends > 3


def _same_step(count: int, **arguments: Any) -> ConstructVectorEnv:
    return ConstructVectorEnv(count, autoreset_mode="SameStep", **arguments)


GEMM_VECTOR = "gemm(m=64, n=48, k=40)"


def drawn(masks: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """A legal action of each, `stop` only where nothing else is."""
    masks = masks.copy()
    masks[:, STOP] &= ~masks[:, 1:].any(axis=1)
    return np.where(masks, rng.random(masks.shape), -1.0).argmax(axis=1)


@pytest.mark.parametrize("reward", ["final", "best_so_far"])
def test_threads_copies_and_saved_states_go_on_alike(reward: str) -> None:
    """One thread or three; a copy, a pickle, and another environment that is given the state."""
    arguments = {"operator": list(OPERATORS[:3]), "hardware": "h200", "reward": reward}
    envs = [ConstructVectorEnv(400, threads=threads, **arguments) for threads in (1, 3, 1)]  # type: ignore[arg-type]
    rng, (first, second) = np.random.default_rng(0), (one.reset(seed=1)[0] for one in envs[:2])
    assert np.array_equal(first, second)
    for _ in range(12):
        actions = np.where(rng.random(400) < 0.3, STOP, drawn(envs[0].action_masks(), rng))
        left, right = (one.step(actions) for one in envs[:2])
        assert all(np.array_equal(a, b) for a, b in zip(left[:4], right[:4], strict=True))
        assert np.array_equal(left[4]["action_mask"], right[4]["action_mask"])
    assert envs[1]._pool is not None and envs[0]._pool is None
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


def test_actions_say_what_they_do() -> None:
    env = ConstructEnv(GEMM_VECTOR, "h200")
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
