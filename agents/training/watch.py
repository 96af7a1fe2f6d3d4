"""Callbacks of a training: the progress bar, the learning curve, validation, checkpoints."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn
from stable_baselines3.common.callbacks import BaseCallback

from agents.cli.stopping import Stopped, asked
from agents.learners.registry import Learner
from agents.policies.ppo import rollout
from agents.runs.journal import Journal, append_row, read_rows
from agents.training.checkpoints import save_checkpoint
from gensor_gym.construction import ConstructionGraph
from gensor_gym.foreign import meant

CURVE, VALIDATION, LAST = "curve.jsonl", "validation.jsonl", "last.zip"


def training_bar(console: Console) -> Progress:
    """Make the progress bar of a training."""
    return Progress("{task.description}", BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), console=console)


def steps_in_all(done: int, asked_for: int, each: int) -> int:
    """Return the number of steps at the end of a training that continues from `done` steps.

    The last rollout of `each` steps may exceed `asked_for`.
    """
    return done - (done - asked_for) // each * each if done < asked_for else done


class Every:
    """Callable that returns True once after a count has passed another multiple of `period`; never if `period` is 0."""

    def __init__(self, period: int) -> None:
        self.period, self._done = period, 0

    def skip_to(self, count: int) -> None:
        """Count every multiple of `period` up to `count` as passed."""
        self._done = count // self.period if self.period else 0

    def __call__(self, count: int) -> bool:
        """Return whether the count has passed another multiple of `period` since the last call."""
        before = self._done
        self.skip_to(count)
        return self._done > before


def over_floor(found: Iterable[tuple[float, ConstructionGraph]]) -> dict[str, float]:
    """Return the geometric mean of the best program's latency over the roofline floor, which cannot be less than 1.

    `found` has the latency and the graph of every operator.
    """
    return {"validation_latency_over_floor": float(np.exp(np.mean([np.log(best / graph.floor) for best, graph in found])))}


class Validation:
    """Validation of a policy by the model, on operators that it does not train on, with the same episodes every time."""

    def __init__(self, ops: Iterable[Any], arguments: dict[str, Any], episodes: int, seed: int, make: Any) -> None:
        """Create the environments of the operators `ops` with `make` and `arguments`. ValueError names a bad value."""
        if episodes < 1:
            raise ValueError(f"eval_episodes is {episodes}; expected 1 or more")
        self.seed = seed
        self.envs = [make(episodes, operator=op, autoreset_mode="Disabled", **arguments) for op in ops]

    def score(self, learner: Learner, model: Any) -> dict[str, float]:
        """Run the policy's episodes on all operators and return the score `over_floor` of the best programs."""
        rng = np.random.default_rng(self.seed)
        found = []
        for envs in self.envs:
            observer = learner.observer(envs, 1)
            rollout(learner, model, envs, observer, rng)
            found.append((float(observer.programs()[1].min()), envs.tasks.graphs[0]))
        return over_floor(found)

    def close(self) -> None:
        """Close the environments."""
        for envs in self.envs:
            envs.close()


class Watch(BaseCallback):
    """Callback that writes curve.jsonl and validation.jsonl periodically, and last.zip, from which a run resumes.

    It draws no random numbers from the learner's streams, so that it does not affect training.
    """

    def __init__(
        self, folder: Path, progress: Progress, learner: Learner, config: dict[str, Any], validation: Validation | None,
        spent: float,
    ) -> None:  # fmt: skip
        """Prepare the callback with the run's configuration; `spent` are the seconds of training so far.

        The configuration's `curve_every`, `eval_every` and `checkpoint_every` are numbers of steps.
        """
        super().__init__()
        self._begin = time.perf_counter() - spent
        self.folder, self.learner, self.config, self.validation = folder, learner, config, validation
        self.progress, self.bar = progress, progress.add_task("training", total=None)
        self._curve, self._eval = Every(config["curve_every"]), Every(config["eval_every"])
        self._save = Every(config["checkpoint_every"])

    @property
    def seconds(self) -> float:
        """Seconds of training, including earlier parts of the run, without validation and checkpoints."""
        return time.perf_counter() - self._begin

    def _on_training_start(self) -> None:
        """Prepare the run: drop the rows that an earlier part wrote after its checkpoint, and set the bar's total."""
        for every in (self._curve, self._eval, self._save):
            every.skip_to(self.model.num_timesteps)
        keep_rows(self.folder, self.model.num_timesteps)
        model: Any = self.model
        often = model.train_freq.frequency if hasattr(model, "train_freq") else model.n_steps  # train_freq with a replay buffer
        total = steps_in_all(model.num_timesteps, self.config["steps"], model.n_envs * often)
        self.progress.update(self.bar, completed=self.model.num_timesteps, total=total)

    def _on_step(self) -> bool:
        self.progress.update(self.bar, completed=self.num_timesteps)
        return True

    def _on_rollout_start(self) -> None:
        """Validate, write a checkpoint, and stop if a signal was received; the model has learned from all data so far."""
        steps, spent = self.model.num_timesteps, self.seconds
        self._validate(steps)
        stop = asked()
        if self._save(steps) or stop:
            save_checkpoint(self.folder / LAST, self.model, identity(self.config), spent)
        if stop:
            raise Stopped
        self._begin = time.perf_counter() - spent

    def _validate(self, steps: int) -> None:
        if self.validation is not None and self._eval(steps):
            self.progress.update(self.bar, description="validating")
            scores = self.validation.score(self.learner, self.model)
            self.progress.update(self.bar, description="training")
            append_row(self.folder / VALIDATION, {"steps": steps, **scores})
            for name, value in scores.items():
                self.logger.record(f"validation/{name}", value)

    def _on_rollout_end(self) -> None:
        if self._curve(self.model.num_timesteps):
            self._point()

    def _on_training_end(self) -> None:
        spent, rows = self.seconds, read_rows(self.folder / CURVE)
        if not rows or rows[-1]["steps"] < self.model.num_timesteps:
            self._point()
        self._validate(self.model.num_timesteps)
        if asked():  # the process may end before the policy is written
            save_checkpoint(self.folder / LAST, self.model, identity(self.config), spent)
        self._begin = time.perf_counter() - spent

    def _point(self) -> None:
        if (row := last_episodes(self.model)) is not None:
            append_row(self.folder / CURVE, row)


def last_episodes(model: Any) -> dict[str, float] | None:
    """Return a point of the learning curve: means over the last hundred episodes; None if no episode has ended."""
    if not (episodes := model.ep_info_buffer):
        return None
    means = {f"mean_{name}": float(np.mean([e[key] for e in episodes])) for name, key in (("return", "r"), ("length", "l"))}
    return {"steps": model.num_timesteps, **means}


def keep_rows(folder: Path, steps: int) -> None:
    """Drop rows that an earlier part of a run wrote after its last checkpoint, at `steps` steps."""
    for name in (CURVE, VALIDATION):
        with Journal(folder / name, ()) as journal, meant(journal.path, "curve of a training"):
            journal.drop({place for place, row in journal.rows.items() if row["steps"] > steps})


def identity(config: dict[str, Any]) -> dict[str, Any]:
    """Return the entries of a run's configuration that affect its learning curve."""
    names = (
        "agent", "env", "machine", "operators", "variants", "clone", "cloning", "num_envs", "seed", "steps", "torch_threads",
    )  # fmt: skip
    drawn = {"drawn": config["drawn"]} if (config.get("drawn") or {}).get("count") else {}
    return {name: config[name] for name in names if name in config} | drawn
