"""Save and restore a model of stable-baselines3: networks, optimiser, counters, last observations, replay buffer."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

import numpy as np
from stable_baselines3.common.buffers import ReplayBuffer

COUNTERS = (
    "num_timesteps", "_num_timesteps_at_start", "_total_timesteps", "_episode_num", "_n_updates", "_n_calls",
    "_current_progress_remaining", "exploration_rate", "_last_obs", "_last_episode_starts", "ep_info_buffer", "ep_success_buffer",
)  # fmt: skip
"""Attributes of a model that change while it learns. Not every model has all of them."""
_EPISODES = ("ep_info_buffer", "ep_success_buffer")
_COLUMNS = ("observations", "next_observations", "actions", "rewards", "dones", "timeouts")
"""Attributes of a replay buffer that are arrays. The first two may be dictionaries of arrays."""


def state_of_model(model: Any) -> dict[str, Any]:
    """Return the state of a stable-baselines3 model, for `restore_model`."""
    buffer = getattr(model, "replay_buffer", None)
    return {
        "network": model.policy.state_dict(), "optimizer": model.policy.optimizer.state_dict(),
        "counters": {name: getattr(model, name) for name in COUNTERS if hasattr(model, name)},
        "replay": None if buffer is None else _state_of_buffer(buffer),
    }  # fmt: skip


def restore_model(model: Any, state: Mapping[str, Any]) -> None:
    """Load a state into a fresh model of the same architecture. ValueError if the state does not fit the model."""
    try:
        model.policy.load_state_dict(state["network"])
        model.policy.optimizer.load_state_dict(state["optimizer"])
        for name, value in state["counters"].items():
            if name not in COUNTERS:
                raise ValueError(f"a state with a counter {name!r}; expected some of {COUNTERS}")
            kept = deque(value, maxlen=model._stats_window_size) if name in _EPISODES and value is not None else value
            setattr(model, name, kept)
        if state["replay"] is not None:
            _restore_buffer(model.replay_buffer, state["replay"])
    except (KeyError, TypeError, AttributeError, RuntimeError) as error:
        raise ValueError(f"the state is not one of such a model: {' '.join(str(error).split())[:200]}") from error


def _state_of_buffer(buffer: ReplayBuffer) -> dict[str, Any]:
    """Return the state of a replay buffer, with only the rows written so far."""
    filled = buffer.buffer_size if buffer.full else buffer.pos
    columns: dict[str, Any] = {}
    for name in _COLUMNS:
        column = getattr(buffer, name)
        columns[name] = {key: part[:filled] for key, part in column.items()} if isinstance(column, dict) else column[:filled]
    return {"pos": buffer.pos, "full": buffer.full, "columns": columns}


def _restore_buffer(buffer: ReplayBuffer, state: Mapping[str, Any]) -> None:
    for name in _COLUMNS:
        column, found = getattr(buffer, name), state["columns"][name]
        for mine, theirs in ((column[key], found[key]) for key in column) if isinstance(column, dict) else ((column, found),):
            _put(mine, theirs)
    if not 0 <= state["pos"] <= buffer.buffer_size:
        raise ValueError(f"a replay buffer of {buffer.buffer_size} rows at row {state['pos']}")
    buffer.pos, buffer.full = int(state["pos"]), bool(state["full"])


def _put(mine: np.ndarray, theirs: np.ndarray) -> None:
    """Copy the rows `theirs` to the beginning of a buffer's column `mine`.

    ValueError if their shape or type differs, or if they are more than the column's rows.
    """
    if theirs.shape[1:] != mine.shape[1:] or theirs.dtype != mine.dtype or len(theirs) > len(mine):
        raise ValueError(f"a replay buffer of {mine.dtype} {mine.shape}, in the state {theirs.dtype} {theirs.shape}")
    mine[: len(theirs)] = theirs
