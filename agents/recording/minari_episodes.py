"""Programs of Measured v1 as a Minari data set: `gensor minari [machine=NAME] [part=PART] [operators=N] [output=FOLDER]`.

An episode writes one recorded program in `Write-v0` with backend `measured`, so its last reward is that of the recorded time. The
data set has the environment's specification; its environment for evaluation times kernels of this machine (backend `cpu`).
"""

from __future__ import annotations

import copy
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from omegaconf import DictConfig
from rich.console import Console
from rich.progress import track

from agents.cli.checks import check_whole
from agents.cli.command import command
from agents.runs.files import make_folder
from gensor_gym.env.writing.env import WriteEnv
from gensor_gym.env.writing.replay import actions_of
from gensor_gym.graph.coordinates import opened
from gensor_gym.graph.schedule import Schedule
from gensor_gym.measure.measurement import Status
from gensor_gym.measure.records import measured
from gensor_gym.registry import check_known

ENVIRONMENT, RANDOM = "gensor_gym/Write-v0", "random"
"""Environment of the episodes, and origin of those programs whose mean return is the reference score 0."""
AT_ONCE = 500
"""Number of episodes that are kept in memory and written together."""


def write(config: DictConfig, console: Console) -> Path:
    """Write the Minari data set; return the folder that $MINARI_DATASETS_PATH must name.

    ValueError if the data set exists already. ImportError without minari and h5py (extra `minari`).
    """
    check_whole(config, 1, "operators", null=("operators",))
    check_known("part", config.part, measured.PARTS)
    minari = _minari()
    folder = make_folder(Path(config.output))
    os.environ["MINARI_DATASETS_PATH"] = str(folder.resolve())
    name = config.dataset or f"gensor_gym/{config.machine}-{config.part}-{config.choices}-v1"
    if name in minari.list_local_datasets():
        raise ValueError(f"data set {name} is in {folder}: expected dataset=ANOTHER, or minari.delete_dataset({name!r}) before")
    rows = _rows(config)
    listed = sorted(map(str, rows.operator.unique()))
    kept: dict[str, Any] = {"operator": listed, "space": config.space, "choices": config.choices}
    env = gymnasium.make(ENVIRONMENT, hardware=config.machine, backend="measured", **kept)
    evaluated = copy.deepcopy(env.spec)
    assert evaluated is not None
    evaluated.kwargs.update(hardware="host", backend="cpu")
    dataset: Any = None
    for buffers in _batches(minari, env, rows, console):
        if dataset is not None:
            dataset.update_dataset_from_buffer(buffers)
            continue
        dataset = minari.create_dataset_from_buffers(
            name, buffers, env=env, eval_env=evaluated, data_format="hdf5", author="the gensor_gym authors",
            algorithm_name="proposers of Measured v1", description=__doc__, **_scores(rows, env),
        )  # fmt: skip
    console.print(f"{name}: {dataset.total_episodes} episodes, {dataset.total_steps} steps of {len(listed)} operators")
    console.print(f"MINARI_DATASETS_PATH={folder.resolve()}", soft_wrap=True, markup=False)
    return folder


def _minari() -> Any:
    try:
        import h5py  # noqa: F401
        import minari
    except ModuleNotFoundError as error:
        raise ImportError(f"{error}: pip install 'gensor_gym[minari]'") from error
    return minari


def _rows(config: DictConfig) -> Any:
    """Load the recorded rows of the chosen operators.

    Trials with status IMPLAUSIBLE, whose times are too short (`gensor_gym.measure.stats.floor`), are left out.
    """
    found = measured.load(config.machine, config.part)
    first = sorted(map(str, found.operator.unique()))[: config.operators]
    return found[found.operator.isin(first) & (found.status != Status.IMPLAUSIBLE.value)]


def _batches(minari: Any, env: gymnasium.Env[Any, Any], rows: Any, console: Console) -> Iterator[list[Any]]:
    waiting: list[Any] = []
    for row in track(rows.itertuples(), "episodes", console=console, total=len(rows)):
        waiting.append(minari.data_collector.EpisodeBuffer(**episode(env, str(row.operator), str(row.schedule))))
        if len(waiting) == AT_ONCE:
            yield waiting
            waiting = []
    if waiting:
        yield waiting


def episode(env: gymnasium.Env[Any, Any], operator: str, schedule: str) -> dict[str, Any]:
    """Replay the episode that writes one program; return the fields of Minari's buffer.

    `infos` has `action_mask` int8 [steps + 1, actions]; `options` has the texts of operator and schedule.
    """
    observation, info = env.reset(seed=0, options={"operator": operator})
    own = env.unwrapped
    assert isinstance(own, WriteEnv)
    task = own.tasks.add(operator)
    graph = own.tasks.graphs[task]
    row = opened(graph.stack([Schedule.parse(schedule)]), graph.tables.ints)[0]
    actions, ended = actions_of(own.tasks.decisions[task], row), False
    observations, masks, rewards = [observation], [info["action_mask"].copy()], list[float]()
    for action in actions:
        assert not ended
        observation, reward, ended, _, info = env.step(action)
        observations.append(observation)
        masks.append(info["action_mask"].copy())
        rewards.append(float(reward))
    assert ended
    return {
        "observations": np.stack(observations), "actions": np.array(actions, np.int64), "rewards": rewards,
        "terminations": [False] * (len(actions) - 1) + [True], "truncations": [False] * len(actions),
        "infos": {"action_mask": np.stack(masks).astype(np.int8)}, "options": {"operator": operator, "schedule": schedule},
    }  # fmt: skip


def _scores(rows: Any, env: gymnasium.Env[Any, Any]) -> dict[str, float]:
    """Return Minari's reference scores: mean returns of random programs, and of each operator's fastest recorded program."""
    best = rows.loc[rows.groupby("operator", observed=True).quiet.idxmin()]
    drawn = rows[rows.origin == RANDOM]
    means = [_mean_return(some, env) for some in (drawn if len(drawn) else rows, best)]
    return {"ref_min_score": means[0], "ref_max_score": means[1]}


def _mean_return(rows: Any, env: gymnasium.Env[Any, Any]) -> float:
    return float(np.mean([sum(episode(env, str(row.operator), str(row.schedule))["rewards"]) for row in rows.itertuples()]))


main = command("minari", ImportError)(write)
