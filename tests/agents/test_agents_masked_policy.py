"""The policy that masks once gives the numbers of sb3-contrib's, and learns the same."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")
contrib = pytest.importorskip("sb3_contrib")

from agents.learners.masked.policy import MaskedBuffer, MaskedPolicy  # noqa: E402
from gensor_gym.env.sb3 import make_sb3  # noqa: E402

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
