"""Stage: a policy that writes programs goes on learning from kernels that run on this GPU, over as many calls as it is given.

What it measures and how it learns stands in conf/fine_tune_gpu.yaml. Kernels are compiled on all cores but a few and timed one
at a time, each as soon as it is there, while the policy learns from those before (`experiments.fine_tuning.arrivals`). Every
measurement is
in `fine_tuning/measured.jsonl` before anything else is done with it; the next call goes on from there, whatever ended this one.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any

import torch
import yaml

from agents.columns.policy import load_columns
from agents.learners.stored import POLICY
from agents.policies.card import read_card
from agents.policies.training_tasks import changed_tasks
from experiments.device.context import Context
from experiments.device.table import CONF
from experiments.device.work.fine_tuning_folder import MEASURED, Folder, digest_of, summary
from experiments.device.work.pipeline import Pipeline
from experiments.device.work.side_by_side import SideBySide
from experiments.device.work.trials import compilers, device_backends, device_pipeline
from experiments.fine_tuning.arrivals import ArrivingLearner, Asked
from experiments.training.operators.halves import halves
from gensor_gym import hardware, operators
from gensor_gym.construction import ConstructionGraph
from gensor_gym.cost.roofline import roofline_floor
from gensor_gym.hardware.types import Hardware
from gensor_gym.locate import located
from gensor_gym.measure.devices.presence import device_name
from gensor_gym.measure.native import GPU_WARMUP
from gensor_gym.measure.stats.timing import TimingRules
from gensor_gym.operators.types import Operator

FOLDER = "fine_tuning"
"""Of the results: a checkpoint that strategies load."""
FILE = CONF / "fine_tune_gpu.yaml"
FREE = ("measurements", "save_every")
"""Settings that may be others in the next call."""
BROKEN = 48
"""Kernels from the first on that all fail: the fault is not theirs."""
_SPARE_CORES = 3
"""That do not compile: those of the learner, of the worker that times, and of the rest."""


@cache
def read_settings(file: Path = FILE) -> Mapping[str, Any]:
    """The file's content."""
    return yaml.safe_load(file.read_text(encoding="utf-8"))


def chosen(settings: Mapping[str, Any], hw: Hardware) -> list[Operator]:
    """Operators to measure, by the rule of the file. ValueError for one that is not of the train part, and for none."""
    low, high = (1e-6 * value for value in settings["microseconds"])
    found = [
        op
        for op in operators.resolve(settings["operators"])
        if op.name not in settings["leave_out"]
        and low <= roofline_floor(op, hw) <= high
        and op.compulsory_bytes <= 1e6 * settings["megabytes"]
    ]
    others = sorted({operators.part_of(op) for op in found} - {"train"})
    if others or not found:
        raise ValueError(f"operators {settings['operators']}: expected some of the train part, found {others or 'none'}")
    return [*found, *(halves(found) if settings["halves"] else [])]


def begun_with(settings: Mapping[str, Any], card: Mapping[str, Any], hw: Hardware, seed: int) -> dict[str, Any]:
    """Everything that what is learned depends on, for the card.

    ValueError for a policy of another agent, and for one of another machine's model where the settings do not allow it.
    """
    if card["agent"] != "columns":
        raise ValueError(f"policy {settings['checkpoint']} was learned by agent {card['agent']!r}: expected columns")
    trained_for = card["config"]["env"]["hardware"]
    if trained_for != hw.name and not settings["other_model"]:
        raise ValueError(
            f"policy {settings['checkpoint']} was trained for {trained_for}, and this is {hw.name}: expected the same, "
            "or other_model: true"
        )
    kept = {name: value for name, value in settings.items() if name not in FREE}
    policy = located(settings["checkpoint"]) / POLICY
    return {
        "from": settings["checkpoint"], "digest": digest_of(policy), "hardware": hw.name, "device": device_name(hw),
        "trained_for": trained_for, "other_rules": changed_tasks(card), "seed": seed, "settings": kept,
    }  # fmt: skip


def run(context: Context) -> dict[str, object]:
    """Measure and learn until the time is out, or enough is measured, or nothing new is left."""
    torch.set_num_threads(1)
    settings, hw = read_settings(), hardware.get(context.hardware)
    source = located(settings["checkpoint"])
    network, card = load_columns(str(source)), read_card(source)
    begun = begun_with(settings, card, hw, context.seed)
    graphs = [ConstructionGraph(op, hw, card["config"]["env"]["space"]) for op in chosen(settings, hw)]
    width = card["config"]["agent"]["width"]
    learner = ArrivingLearner({**settings["columns"], "width": width}, graphs, settings["window"], context.seed)
    learner.network.load_state_dict(network.state_dict())
    with closing(context.journal(f"{FOLDER}/{MEASURED}", keep=True)) as journal:
        folder = Folder(context.path(FOLDER), journal, begun)
        learner.resume(folder.state, folder.lines)
        _Call(context, settings, card, hw, folder, learner).run()
    return digest(Path(context.out), context.run)


class _Call:
    """One call: from the learner that was brought back to one that is saved."""

    def __init__(
        self, context: Context, settings: Mapping[str, Any], card: Mapping[str, Any], hw: Hardware, folder: Folder,
        learner: ArrivingLearner,
    ) -> None:  # fmt: skip
        """Nothing is measured yet."""
        self.context, self.settings, self.card, self.hw = context, settings, card, hw
        self.folder, self.learner = folder, learner
        self._begin, self._before = time.monotonic(), folder.seconds

    def run(self) -> None:
        """Measure and learn; saved at the beginning, every few kernels, and at the end."""
        (backend,) = device_backends(TimingRules(budget=self.settings["sampling"], warmup=GPU_WARMUP))
        self._save()
        pipeline: Pipeline[Asked] = device_pipeline(backend, self.hw, size=compilers(_SPARE_CORES))
        device = SideBySide(pipeline, self.folder.put)
        try:
            if self._goes_on():
                self._submit(device, list(self.learner.pending.values()))
            while self._goes_on():
                if (found := device.take(min(1.0, self.context.left))) is not None:
                    self._submit(device, self._arrived(found[0]))
            device.stop()
            while (found := device.take(0.0)) is not None:
                self._arrived(found[0])
            self._save()
        finally:
            device.stop()
            backend.close()

    def _goes_on(self) -> bool:
        """Whether anything is left to do: kernels under way, measurements allowed, time."""
        few = len(self.learner.arrived) < self.settings["measurements"]
        return bool(self.context.left > 0 and few and self.learner.pending)

    def _arrived(self, asked: Asked) -> list[Asked]:
        """Learn from a measurement; what to measure beside. RuntimeError where the first ones all failed."""
        self.learner.arrive(self.folder.line(asked))
        new, arrived = self.learner.ask(), self.learner.arrived
        if len(arrived) == BROKEN and all(line["seconds"] is None for line in arrived.values()):
            last = self.folder.line(asked)
            raise RuntimeError(f"the first {BROKEN} kernels all failed, the last with {last['status']}: {last['error']}")
        if len(arrived) % self.settings["save_every"] == 0:
            self._save()
        return new

    def _submit(self, device: SideBySide[Asked], asked: Sequence[Asked]) -> None:
        """Have kernels measured."""
        for kernel in asked:
            device.put(kernel, kernel.made)

    def _save(self) -> None:
        """Learner, policy, card."""
        self.folder.save(self.learner, self.card, self._before + time.monotonic() - self._begin)


def digest(out: Path, run: str) -> dict[str, object]:
    """What the folder says so far, and how fast kernels were measured in this run."""
    return summary(out / FOLDER, run)
