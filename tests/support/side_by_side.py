"""A vector environment beside single ones: it shows, pays, tells and ends what they do, in every autoreset mode."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode

FACTS = ("runtime_s", "status", "steps", "regret", "paid", "best")
"""What may be told of an episode that ended."""


def row_of(observations: Any, index: int) -> Any:
    if isinstance(observations, dict):
        return {name: values[index] for name, values in observations.items()}
    return observations[index]


def equal(a: Any, b: Any) -> bool:
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(equal(a[key], b[key]) for key in a)
    return a.dtype == b.dtype and np.array_equal(a, b)


def check_final(info: dict[str, Any], index: int, single: dict[str, Any]) -> None:
    """What the vector's info says of an ended episode is what the single environment's says."""
    assert {"runtime_s", "status", "steps"} <= single.keys()
    for key in single.keys() & set(FACTS):
        assert info[f"_{key}"][index] and np.array_equal(info[key][index], single[key])


def check_end_and_reset(info: dict[str, Any], index: int, observation: Any, single: dict[str, Any]) -> None:
    """Where an episode ends and the next begins in one step, what it ended with stands beside."""
    assert info["_final_obs"][index] and info["_final_info"][index]
    assert equal(info["final_obs"][index], observation)
    check_final(info["final_info"], index, single)
    assert equal(info["final_info"]["action_mask"][index], single["action_mask"])


def check_resets(envs: Any, singles: Sequence[Any], over: np.ndarray) -> None:
    """Those that are over are reset, and no others."""
    observations, info = envs.reset(options={"reset_mask": over})
    assert (info["_action_mask"] == over).all()
    for i in np.flatnonzero(over):
        assert equal(row_of(observations, i), singles[i].reset()[0])


def check_side_by_side(
    envs: Any, singles: Sequence[Any], mode: AutoresetMode, steps: int, choose: Callable[[np.ndarray], np.ndarray]
) -> int:
    """How many episodes ended in so many steps of what is chosen of the masks; environment i is seeded with seed + i."""
    observations, info = envs.reset(seed=11)
    for i, env in enumerate(singles):
        observation, own = env.reset(seed=11 + i)
        assert equal(row_of(observations, i), observation)
        assert equal(info["action_mask"][i], own["action_mask"]) and info["_action_mask"][i]
    over, ended_in_all = np.zeros(len(singles), dtype=bool), 0
    for _ in range(steps):
        if mode is AutoresetMode.DISABLED and over.any():
            check_resets(envs, singles, over)
            over[:] = False
        assert (envs.action_masks() == np.stack([env.action_masks() for env in singles])).all()
        actions = choose(envs.action_masks())
        observations, rewards, ended, truncated, info = envs.step(actions)
        assert rewards.dtype == np.float64 and ended.dtype == truncated.dtype == np.bool_ and not truncated.any()
        for i, env in enumerate(singles):
            if mode is AutoresetMode.NEXT_STEP and over[i]:
                (observation, own), reward, terminated = env.reset(), 0.0, False
            else:
                observation, reward, terminated, _, own = env.step(int(actions[i]))
            assert ("paid_s" in own) == ("_paid_s" in info and bool(info["_paid_s"][i]))
            if "paid_s" in own:
                assert (info["paid_s"][i], info["paid_status"][i]) == (own["paid_s"], own["paid_status"])
            if terminated and mode is not AutoresetMode.SAME_STEP:
                check_final(info, i, own)
            elif terminated:
                check_end_and_reset(info, i, observation, own)
                observation = env.reset()[0]
            assert equal(row_of(observations, i), observation)
            assert rewards[i] == reward and ended[i] == terminated
            assert equal(info["action_mask"][i], env.action_masks().astype(np.int8))
            assert envs.schedules[i] == env.schedule and envs.remaining[i] == env.remaining
            over[i] = terminated
            ended_in_all += terminated
    return ended_in_all
