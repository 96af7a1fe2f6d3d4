"""Learners: legal actions alone, their settings, what they save; the policy with masks."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from omegaconf import OmegaConf
from stable_baselines3 import A2C

from agents.cli.arguments import compose
from agents.learners import feature_groups
from agents.learners.former import former_names
from agents.learners.loading import load_model, save_policy
from agents.learners.masked import a2c, policy, q
from agents.learners.masked.policy import MaskedBuffer, MaskedPolicy
from agents.learners.masked.q import ILLEGAL, MaskedObservations, random_legal
from agents.learners.registry import LEARNERS, get_learner
from agents.learners.stored import POLICY
from gensor_gym.env.sb3 import make_sb3
from gensor_gym.graph.actions import NUM_ACTIONS
from tests.support.thorough import thorough_but

pytest.importorskip("sb3_contrib")



GEMM = "gemm(m=96, n=80, k=64)"
SMALL_Q = {
    "learning_rate": 1e-3, "buffer_size": 20000, "learning_starts": 500, "batch_size": 128, "train_freq": 1,
    "gradient_steps": 2, "target_update_interval": 1000, "exploration_fraction": 0.5, "net_arch": [64], "n_quantiles": 8,
}  # fmt: skip
SMALL = {
    "a2c": {"n_steps": 16, "learning_rate": 2e-3, "ent_coef": 0.01, "gae_lambda": 0.95, "net_arch": [32]},
    "dqn": SMALL_Q,
    "qrdqn": SMALL_Q,
}


def envs(count: int = 16, **arguments: Any) -> Any:
    return make_sb3(count, operator=GEMM, hardware="h200", **arguments)


FORMER = {
    feature_groups.Groups: ["agents.groups", "agents.learners.groups", "agents.learners.feature_groups"],
    policy.MaskedPolicy: ["agents.masked_policy", "agents.learners.masked_policy"],
}


@pytest.mark.parametrize(("known", "module"), [(known, module) for known, modules in FORMER.items() for module in modules])
def test_classes_are_found_under_the_names_of_older_checkpoints(known: type, module: str) -> None:
    with former_names():
        assert pickle.loads(f"c{module}\n{known.__name__}\n.".encode()) is known


def watched(env: Any) -> list[int]:
    """Counts the illegal actions that the environments inside are asked for."""
    illegal, step = [], env.step_async

    def counting(actions: np.ndarray) -> None:
        illegal.append(int((~env.envs.action_masks()[np.arange(len(actions)), actions]).sum()))
        step(actions)

    env.step_async = counting
    return illegal


@pytest.mark.parametrize("name", thorough_but(sorted(SMALL), "a2c"))
def test_it_learns_and_never_asks_for_an_illegal_action(name: str) -> None:
    env = envs()
    illegal = watched(env)
    model = get_learner(name).make(SMALL[name], env, 0)
    model.learn(1600)
    first = np.mean([episode["r"] for episode in model.ep_info_buffer])
    model.learn(12800, reset_num_timesteps=False)
    assert np.mean([episode["r"] for episode in model.ep_info_buffer]) > first + 0.3
    assert len(illegal) >= 900 and sum(illegal) == 0


@pytest.mark.parametrize("name", thorough_but(sorted(LEARNERS), *sorted(LEARNERS)[::3]))
def test_every_learner_has_its_settings_and_is_loaded_as_it_was(name: str, tmp_path: Path) -> None:
    cfg = compose([f"agent={name}"], "train")
    assert cfg.agent.name == name
    settings: Any = OmegaConf.to_container(cfg.agent, resolve=True)
    learner = get_learner(name)
    from agents.learners.observed import ObservedVecEnv

    env = ObservedVecEnv(envs(2), learner.observer)
    model = learner.make({**settings, "buffer_size": 10, "n_steps": 4, "batch_size": 8}, env, 1)
    seen, masks = env.reset(), np.stack(env.env_method("action_masks"))
    found = learner.logits(model, seen, masks)
    assert found.shape == masks.shape and (np.isfinite(found) == masks).all()
    np.testing.assert_allclose(np.exp(found).sum(axis=1), 1.0, rtol=1e-5)
    assert learner.values(model, seen).shape == (2,)
    save_policy(tmp_path / POLICY, model)
    before = torch.get_rng_state()
    again = load_model(tmp_path, {"agent": name, "config": {"agent": settings, "env": {"space": "gensor"}}})[1]
    assert torch.equal(torch.get_rng_state(), before), "loading draws nothing"
    assert np.array_equal(learner.logits(again, seen, masks), found)


def test_without_masks_a_step_is_that_of_a2c() -> None:
    """The same weights, states and actions give the same weights after the update."""

    settings = {"n_steps": 8, "learning_rate": 7e-4, "ent_coef": 0.01, "vf_coef": 0.5, "gae_lambda": 0.9, "net_arch": [16]}
    ours = a2c.make(settings, envs(4, discount=0.9), 3)
    same = {name: value for name, value in settings.items() if name != "net_arch"}
    theirs = A2C("MlpPolicy", envs(4), gamma=0.9, policy_kwargs={"net_arch": [16]}, seed=3, device="cpu", **same)
    before = {name: value.clone() for name, value in ours.policy.state_dict().items()}
    theirs.policy.load_state_dict(before)
    torch.manual_seed(0)
    ours.learn(32, use_masking=False)
    torch.manual_seed(0)
    theirs.learn(32)
    assert np.array_equal(ours.rollout_buffer.rewards, theirs.rollout_buffer.rewards)
    after, expected = ours.policy.state_dict(), theirs.policy.state_dict()
    assert any(not torch.equal(after[name], before[name]) for name in after)
    for name in after:
        assert torch.allclose(after[name], expected[name], atol=1e-6), name


@pytest.mark.parametrize("name", ["dqn", "qrdqn"])
def test_the_target_takes_the_best_legal_action(name: str) -> None:
    """Where every value of the target is its action's number, the best is the highest legal number."""
    env = envs(3)
    model = get_learner(name).make(SMALL[name], env, 0)
    target = model.q_net_target if name == "dqn" else model.quantile_net_target
    last = (target.q_net if name == "dqn" else target.quantile_net)[-1]
    with torch.no_grad():
        last.weight.zero_()
        last.bias.copy_(torch.arange(len(last.bias)) % NUM_ACTIONS)
    seen = model.env.reset()
    tensors = {key: torch.as_tensor(value) for key, value in seen.items()}
    values = target(tensors) if name == "dqn" else target(tensors).mean(dim=1)
    best = values.max(dim=1).values.detach().numpy()
    highest = NUM_ACTIONS - 1 - seen["mask"][:, ::-1].argmax(axis=1)
    assert np.array_equal(best, highest) and (best < NUM_ACTIONS - 1).all()
    assert values.min().item() == ILLEGAL


def test_the_replay_buffer_holds_the_mask_of_the_next_state() -> None:
    model = q.DQN_LEARNER.make({**SMALL_Q, "learning_starts": 10**6}, envs(4), 0)
    model.learn(400)
    buffer = model.replay_buffer
    before, after = buffer.observations["mask"][: buffer.pos], buffer.next_observations["mask"][: buffer.pos]
    over = buffer.dones[: buffer.pos] > 0
    assert over.any() and (after[over] == 1).all()
    assert np.array_equal(after[:-1][~over[:-1]], before[1:][~over[:-1]])
    actions = buffer.actions[: buffer.pos, :, 0]
    assert np.take_along_axis(before, actions[..., None], axis=2).all()


def test_exploration_is_uniform_over_legal_actions() -> None:
    np.random.seed(0)
    masks = np.zeros((6000, NUM_ACTIONS), dtype=np.int8)
    masks[:, [0, 7, 70]] = 1
    counts = np.bincount(random_legal(masks), minlength=NUM_ACTIONS)
    assert set(np.flatnonzero(counts)) == {0, 7, 70} and counts[[0, 7, 70]].min() > 1850
    assert random_legal(masks[0]) in (0, 7, 70)


def test_actions_that_are_not_discrete_are_refused() -> None:
    from stable_baselines3.common.env_util import make_vec_env

    with pytest.raises(ValueError, match="has no masks"):
        MaskedObservations(make_vec_env("Pendulum-v1"))


contrib = pytest.importorskip("sb3_contrib")


ARGUMENTS = {"n_steps": 32, "batch_size": 128, "n_epochs": 4, "seed": 0, "device": "cpu", "learning_rate": 1e-3}


def learner(policy: object, buffer: object) -> contrib.MaskablePPO:
    """A fresh learner, with the random numbers that follow from its seed."""
    env = make_sb3(16, operator="gemm(m=96, n=80, k=64)", hardware="h200")
    more = {"policy_kwargs": {"net_arch": [16]}, "gamma": env.discount, "rollout_buffer_class": buffer}
    return contrib.MaskablePPO(policy, env, **more, **ARGUMENTS)


STOCK, OURS = ("MlpPolicy", None), (MaskedPolicy, MaskedBuffer)


def test_values_probabilities_and_entropies_agree() -> None:
    stock, ours = learner(*STOCK), learner(*OURS)
    ours.policy.load_state_dict(stock.policy.state_dict())
    env = stock.get_env()
    obs, masks = torch.as_tensor(env.reset()), np.stack(env.env_method("action_masks"))
    actions = torch.as_tensor([np.flatnonzero(mask)[-1] for mask in masks])
    expected = stock.policy.evaluate_actions(obs, actions, action_masks=masks)
    for left, right in zip(expected, ours.policy.evaluate_actions(obs, actions, action_masks=masks), strict=True):
        assert left.shape == right.shape and torch.allclose(left, right, atol=1e-6)
    for deterministic in (False, True):
        given = []
        for model in (stock, ours):
            torch.manual_seed(3)
            given.append(model.policy(obs, deterministic, masks))
        for left, right in zip(*given, strict=True):
            assert left.shape == right.shape and torch.allclose(left, right, atol=1e-6)


def test_masked_actions_have_no_chance_and_no_entropy() -> None:
    ours = learner(*OURS)
    obs = torch.as_tensor(ours.get_env().reset())
    masks = np.zeros((16, ours.action_space.n), dtype=bool)
    masks[:, 5] = True
    actions, _, logs = ours.policy(obs, action_masks=masks)
    assert (actions == 5).all() and (logs == 0.0).all()
    assert (ours.policy.evaluate_actions(obs, actions, action_masks=masks)[2] == 0.0).all()


def test_learning_is_the_same() -> None:
    """From the same seed: the same actions, and parameters that differ by rounding alone."""
    stock, ours = (learner(*kind).learn(1024) for kind in (STOCK, OURS))
    assert ours.rollout_buffer.action_masks.dtype == np.bool_
    assert np.array_equal(stock.rollout_buffer.actions, ours.rollout_buffer.actions)
    for name, left in stock.policy.state_dict().items():
        assert torch.allclose(left, ours.policy.state_dict()[name], atol=1e-4), name


def test_a_saved_policy_is_loaded_again(tmp_path: object) -> None:
    ours = learner(*OURS)
    ours.save(f"{tmp_path}/policy.zip", exclude=["rollout_buffer"])
    again = contrib.MaskablePPO.load(f"{tmp_path}/policy.zip", device="cpu")
    env = ours.get_env()
    obs, masks = env.reset(), np.stack(env.env_method("action_masks"))
    left, right = (model.predict(obs, deterministic=True, action_masks=masks)[0] for model in (ours, again))
    assert isinstance(again.policy, MaskedPolicy) and np.array_equal(left, right)
