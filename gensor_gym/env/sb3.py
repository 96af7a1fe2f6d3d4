"""Vector environments as a `VecEnv` of stable-baselines3, for the library's algorithms and callbacks and for MaskablePPO."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env.base_vec_env import VecEnv, VecEnvIndices, VecEnvStepReturn

from gensor_gym.env.episodes.several import EpisodesVectorEnv
from gensor_gym.env.fused.env import GirVectorEnv
from gensor_gym.env.planning.env import FuseVectorEnv
from gensor_gym.env.vector import ConstructVectorEnv
from gensor_gym.env.writing.env import WriteVectorEnv

_OF_ONE = {"graph": "graphs", "schedule": "schedules", "remaining": "remaining"}
"""Attribute of a single environment -> attribute of the vector environment that lists it for all environments."""


class ConstructVecEnv(VecEnv):
    """Adapter that makes a vector environment of this package, in mode SAME_STEP, a `VecEnv` of stable-baselines3.

    The environment is a `ConstructVectorEnv`, `WriteVectorEnv`, `GirVectorEnv` or `FuseVectorEnv`. Ended episodes are reset
    within the step. Their info contains `episode` {r, l, t, regret} (like Monitor), `terminal_observation`, `TimeLimit.truncated`
    (always False), `runtime_s`, `status`, `steps` and `regret` (nan if no optimum is known). Measured programs add `samples`, and
    `reward="best_so_far"` adds `paid` and `best`. Other infos are empty. Masks come from `env_method("action_masks")`. VecMonitor
    is unnecessary, because infos already contain `episode`.
    """

    def __init__(self, envs: EpisodesVectorEnv) -> None:
        """Wrap `envs`. ValueError unless their autoreset mode is SAME_STEP."""
        if envs.autoreset_mode is not AutoresetMode.SAME_STEP:
            raise ValueError(
                f"autoreset_mode is {envs.autoreset_mode}; stable-baselines3 needs {AutoresetMode.SAME_STEP}"
            )
        self.envs = envs
        self._actions = np.zeros(envs.num_envs, dtype=np.int64)
        self._returns = np.zeros(envs.num_envs)
        self._lengths = np.zeros(envs.num_envs, dtype=np.int64)
        self._begun = time.time()
        super().__init__(envs.num_envs, envs.single_observation_space, envs.single_action_space)

    @property
    def discount(self) -> float:
        """Discount of the process; agents take gamma from here."""
        return self.envs.discount

    def reset(self) -> Any:
        """Start all episodes with the seeds and options set before; return the observations."""
        options = self._options
        if any(o != options[0] for o in options):
            for i, own in enumerate(options):
                only = np.arange(self.num_envs) == i
                observations, infos = self.envs.reset(seed=list(self._seeds), options={**own, "reset_mask": only})
        else:
            observations, infos = self.envs.reset(seed=list(self._seeds), options=options[0] or None)
        self.reset_infos = [{"action_mask": mask} for mask in self.envs.action_masks().astype(np.int8)]
        self._returns[:] = 0.0
        self._lengths[:] = 0
        self._reset_seeds()
        self._reset_options()
        return observations

    def step_async(self, actions: np.ndarray) -> None:
        """Keep the actions [B] until `step_wait`."""
        self._actions = np.asarray(actions)

    def step_wait(self) -> VecEnvStepReturn:
        """Take the actions of `step_async`; return (observations, rewards float32 [B], ended bool [B], list of infos)."""
        observations, rewards, ended, _, info = self.envs.step(self._actions)
        self._returns += rewards
        self._lengths += 1
        infos: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        if ended.any():
            self._end(np.flatnonzero(ended), info, infos)
        return observations, rewards.astype(np.float32), ended, infos

    def _end(self, ended: np.ndarray, info: dict[str, Any], infos: list[dict[str, Any]]) -> None:
        facts, elapsed = info["final_info"], round(time.time() - self._begun, 6)
        regret = facts.get("regret", np.full(self.num_envs, np.nan))
        columns = (self._returns, self._lengths, facts["runtime_s"], facts["status"], facts["steps"], regret)
        rows = zip(ended.tolist(), *(column[ended].tolist() for column in columns), strict=True)
        for i, returned, length, runtime, status, steps, gap in rows:
            infos[i] = {
                "episode": {"r": returned, "l": length, "t": elapsed, "regret": gap},
                "terminal_observation": info["final_obs"][i],
                "TimeLimit.truncated": False,
                "runtime_s": runtime,
                "status": status,
                "steps": steps,
                "regret": gap,
                **{name: facts[name][i] for name in ("samples", "paid", "best") if name in facts},
            }
            self.reset_infos[i] = {"action_mask": info["action_mask"][i]}
        self._returns[ended], self._lengths[ended] = 0.0, 0

    def close(self) -> None:
        """Stop the threads and workers of the vector environment."""
        self.envs.close()

    def state(self) -> dict[str, Any]:
        """Return a copy of the running episodes, with their returns and lengths so far, which `restore` accepts."""
        return {"envs": self.envs.state(), "returns": self._returns.copy(), "lengths": self._lengths.copy()}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from `state`, which an adapter with the same arguments returned. No `reset` is needed."""
        self.envs.restore(state["envs"])
        self._returns[:], self._lengths[:] = state["returns"], state["lengths"]

    def get_attr(self, attr_name: str, indices: VecEnvIndices = None) -> list[Any]:
        """Return an attribute of every environment in `indices`; a shared one is repeated. AttributeError if it is unknown."""
        chosen = self._chosen(indices)
        if attr_name in _OF_ONE:
            values = getattr(self.envs, _OF_ONE[attr_name])
            return [values[i] for i in chosen]
        return [getattr(self.envs, attr_name)] * len(chosen)

    def set_attr(self, attr_name: str, value: Any, indices: VecEnvIndices = None) -> None:
        """Set an attribute that all environments share. ValueError if `indices` leave out an environment."""
        if set(self._chosen(indices)) != set(range(self.num_envs)):
            raise ValueError(
                f"attribute {attr_name!r} is shared by all {self.num_envs} environments; indices must be None"
            )
        setattr(self.envs, attr_name, value)

    def env_method(
        self, method_name: str, *method_args: Any, indices: VecEnvIndices = None, **method_kwargs: Any
    ) -> list[Any]:
        """Call `action_masks` (bool [N]) or `render` of each environment in `indices`, and return the results.

        AttributeError for other methods.
        """
        if method_name not in ("action_masks", "render"):
            raise AttributeError(f"no method {method_name!r} per environment; there are 'action_masks' and 'render'")
        chosen = self._chosen(indices)
        if method_name == "action_masks":
            masks = self.envs.action_masks()
            return list(masks) if indices is None else [masks[i] for i in chosen]
        frames = self.envs.render()
        return [None if frames is None else frames[i] for i in chosen]

    def env_is_wrapped(self, wrapper_class: type, indices: VecEnvIndices = None) -> list[bool]:
        """Return True for Monitor, because infos contain its statistics; False for all other wrappers."""
        return [issubclass(Monitor, wrapper_class)] * len(self._chosen(indices))

    def get_images(self) -> Sequence[np.ndarray | None]:
        """Return the figure of every environment, uint8 [H, W, 3] (render mode `rgb_array`). None without a render mode."""
        return self.env_method("render")

    def _chosen(self, indices: VecEnvIndices) -> list[int]:
        """Return the indices of the chosen environments; None selects all."""
        if indices is None:
            return list(range(self.num_envs))
        found: Iterable[int] = self._get_indices(indices)
        return [int(i) for i in found]


def make_sb3(num_envs: int = 1, **arguments: Any) -> ConstructVecEnv:
    """Make a stable-baselines3 `VecEnv` of `num_envs` environments `Construct-v0`.

    It takes the arguments of `ConstructVectorEnv` except `autoreset_mode`.
    """
    return ConstructVecEnv(ConstructVectorEnv(num_envs, autoreset_mode=AutoresetMode.SAME_STEP, **arguments))


def make_fused_sb3(num_envs: int = 1, **arguments: Any) -> ConstructVecEnv:
    """Make a stable-baselines3 `VecEnv` of `num_envs` environments `Gir-v0`.

    It takes the arguments of `GirVectorEnv` except `autoreset_mode`.
    """
    return ConstructVecEnv(GirVectorEnv(num_envs, autoreset_mode=AutoresetMode.SAME_STEP, **arguments))


def make_writing_sb3(num_envs: int = 1, **arguments: Any) -> ConstructVecEnv:
    """Make a stable-baselines3 `VecEnv` of `num_envs` environments `Write-v0`.

    It takes the arguments of `WriteVectorEnv` except `autoreset_mode`.
    """
    return ConstructVecEnv(WriteVectorEnv(num_envs, autoreset_mode=AutoresetMode.SAME_STEP, **arguments))


def make_planning_sb3(num_envs: int = 1, **arguments: Any) -> ConstructVecEnv:
    """Make a stable-baselines3 `VecEnv` of `num_envs` environments `Fuse-v0`.

    It takes the arguments of `FuseVectorEnv` except `autoreset_mode`.
    """
    return ConstructVecEnv(FuseVectorEnv(num_envs, autoreset_mode=AutoresetMode.SAME_STEP, **arguments))
