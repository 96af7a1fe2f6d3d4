"""Train a policy that writes programs column by column, by the rank of each program among those drawn for its task.

A batch has several programs for each of a few tasks, and is followed by one step of REINFORCE (Williams 1992). A program's weight
in training depends on its rank within its task and is 0 beyond the best share of programs; the mean weight is subtracted. This
improves the best programs and not the average, because only the fastest of several programs counts (risk-seeking policy
gradients, Petersen et al. 2021). Ranks need no scale, no optimum and no value function. Illegal programs rank last. An entropy
bonus decreases over training.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium.vector import AutoresetMode
from torch import nn

from agents.columns.choices import Choices, is_joint
from agents.columns.demonstrations import demonstrated
from agents.columns.feasible import Feasible
from agents.columns.given import Given
from agents.columns.network import network_of
from agents.learners.stored import save_tensors
from gensor_gym.construction import ConstructionGraph
from gensor_gym.cost.roofline import CAP_OVER_FLOOR
from gensor_gym.env.writing.env import WriteVectorEnv
from gensor_gym.hardware.types import Hardware

_CLIP = 1.0


class ColumnLearner:
    """A network that writes programs by columns (tiles of an axis, or a knob), and its training on several tasks' models.

    Settings (conf/agent/columns.yaml): width, tasks, programs, best, learning_rate, final_learning_rate, entropy, final_entropy.
    With `machines` the network sees the machine's constants, with `types` the kind of the data type, with `frozen` whether
    weights are constant. With `masked`, draws are restricted to feasible choices. `demonstrations` is the number of a task's
    drawn programs that known programs replace. The probability of a replacement decreases to 0 over training, and only operators
    in the attribute `shown` (by default all) have replacements.
    """

    def __init__(self, settings: Mapping[str, Any], graphs: Sequence[ConstructionGraph], steps: int, seed: int) -> None:
        """Prepare a training with `steps` written programs in total. ValueError names a setting out of range."""
        for name, least in (("width", 1), ("tasks", 1), ("programs", 2)):
            if type(settings[name]) is not int or settings[name] < least:
                raise ValueError(f"agent.{name} is {settings[name]!r}; expected a whole number, {least} or more")
        if not 0.0 < settings["best"] <= 1.0:
            raise ValueError(f"agent.best is {settings['best']!r}; expected a share above 0, at most 1")
        self.settings, self.steps, self.num_timesteps = dict(settings), steps, 0
        self.choices = [Choices(graph) for graph in graphs if is_joint(graph)]
        if not self.choices:
            raise ValueError(f"operators {[str(graph.operator) for graph in graphs][:3]}: expected one with several axes")
        self._writing: dict[str, WriteVectorEnv] = {}
        self.shown = {str(choices.graph.operator) for choices in self.choices}
        self.rewards: list[float] = []
        """Mean rewards of the batches since the last point of the learning curve."""
        self.rng = np.random.default_rng(seed)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.network = network_of(settings)
        self.optimizer = torch.optim.Adam(self.network.parameters(), lr=settings["learning_rate"])

    def advance(self) -> float:
        """Draw a batch of programs and take a gradient step; return the mean reward. An illegal program's reward is 0."""
        tasks, programs = self.settings["tasks"], self.settings["programs"]
        for group in self.optimizer.param_groups:
            group["lr"] = self._now("learning_rate")
        self.optimizer.zero_grad()
        rewards = []
        for number in self.rng.integers(len(self.choices), size=tasks).tolist():
            loss, reward = self._loss(self.choices[number], programs)
            (loss / tasks).backward()
            rewards.append(reward)
        nn.utils.clip_grad_norm_(self.network.parameters(), _CLIP)
        self.optimizer.step()
        self.num_timesteps += tasks * programs
        return float(np.mean(rewards))

    def _loss(self, choices: Choices, programs: int) -> tuple[torch.Tensor, float]:
        given = self.given(choices)
        feasible = Feasible(choices, self.rng) if self.settings.get("masked") else None
        if given is not None:
            given.feasible = feasible
        draws = self.rng.random((programs, len(choices.counts)))
        chosen, chances, entropy = self.network(choices, draws, substitute=given or feasible)
        seconds = self.seconds(choices, chosen)
        weights = torch.from_numpy(weights_of(seconds, self.settings["best"]))
        drawn = seconds[len(given.chosen) :] if given else seconds
        rewards = np.log(np.maximum(1.0, CAP_OVER_FLOOR * choices.graph.floor / drawn))
        return -(weights * chances).mean() - self._now("entropy") * entropy.mean(), float(rewards.mean())

    def given(self, choices: Choices) -> Given | None:
        """Draw the demonstrations that replace the first programs drawn for a task; None if nothing is replaced this time."""
        count = self.settings.get("demonstrations", 0)
        if not count or self.rng.random() < self.num_timesteps / self.steps or str(choices.graph.operator) not in self.shown:
            return None
        known = self.demonstrations(choices)
        return Given(known[self.rng.permutation(len(known))[:count]])

    def demonstrations(self, choices: Choices) -> np.ndarray:
        """Return the known programs of a task, which may replace drawn programs, as choices int64 [N, K]."""
        return demonstrated(choices)

    def seconds(self, choices: Choices, chosen: np.ndarray) -> np.ndarray:
        """Return the model's seconds float64 [N] of a task's programs, infinite for illegal programs.

        `chosen` int64 [N, K] is the index of the value of each column. The programs are written in `gensor_gym/Write-v0`, which
        decides these columns in this order.
        """
        writing = self.writing(choices.graph.hardware)
        writing.reset(options={"operator": choices.graph.operator})
        for actions in chosen.T:
            info = writing.step(actions)[-1]
        seconds: np.ndarray = info["runtime_s"]
        return seconds

    def writing(self, hardware: Hardware) -> WriteVectorEnv:
        """Return the environments in which the programs of a machine's tasks are written, one for each program of a batch.

        The environments are made at the first call for a machine.
        """
        if hardware.digest not in self._writing:
            graphs = [choices.graph for choices in self.choices if choices.graph.hardware == hardware]
            tasks = [graph.operator for graph in graphs], hardware, "analytic", graphs[0].space
            count, mode = self.settings["programs"], AutoresetMode.DISABLED
            made = WriteVectorEnv(count, *tasks, choices="columns", masked=False, autoreset_mode=mode, threads=1)
            self._writing[hardware.digest] = made
        return self._writing[hardware.digest]

    def _now(self, name: str) -> float:
        """Return the current value of a setting, which changes linearly to its `final_` value over the training."""
        first, last = float(self.settings[name]), float(self.settings[f"final_{name}"])
        return first + (last - first) * min(1.0, self.num_timesteps / self.steps)

    def save(self, path: Path) -> None:
        """Write the weights of the network to a safetensors file."""
        save_tensors(path, self.network.state_dict())

    def state(self) -> dict[str, Any]:
        """Return everything that further training depends on, for `restore`: weights, optimiser, random state, steps, rewards."""
        return {
            "network": self.network.state_dict(), "optimizer": self.optimizer.state_dict(),
            "rng": self.rng.bit_generator.state, "steps": self.num_timesteps, "rewards": list(self.rewards),
        }  # fmt: skip

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore a `state` that a learner with equal settings returned."""
        self.network.load_state_dict(state["network"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.rewards = list(state["rewards"])
        self.rng.bit_generator.state, self.num_timesteps = state["rng"], state["steps"]


def weights_of(seconds: np.ndarray, best: float) -> np.ndarray:
    """Return training weights float32 [N] with mean 0 for programs, from their latencies (infinite for an illegal program).

    Weights decrease linearly with rank, from 2 for the fastest program to 0 at the share `best` and beyond; then their mean is
    subtracted. Equal latencies have equal ranks. If all are equal, all weights are 0.
    """
    _, inverse, counts = np.unique(seconds, return_inverse=True, return_counts=True)
    middle = np.cumsum(counts) - (counts + 1) / 2  # mean rank of equal latencies, 0 for the fastest
    place = middle[inverse] / max(1, len(seconds) - 1)
    weights = 2.0 * np.maximum(0.0, 1.0 - place / best) * np.isfinite(seconds)
    return np.asarray(weights - weights.mean(), dtype=np.float32)
