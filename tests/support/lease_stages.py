"""Stages of a lease over a device that stands in: a bench that answers after a moment. Run in processes of their own."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from experiments.device.archive import packed
from experiments.device.archive.packed import Archive
from experiments.device.context import Context
from experiments.device.runner import Stage
from experiments.device.stages import first_contact as first_contact_stage
from experiments.device.stages import study as study_stage
from gensor_gym.measure.measurement import Measurement, Status
from gensor_gym.measure.stats.timing import TimingRules
from gensor_gym.measure.workers.requests import Built

TRIAL_SECONDS = 0.02
CARRY, FAILING = "LEASE_TEST_CARRY", "LEASE_TEST_FAILING"
"""Variables: the archive; the digest of a kernel that crashes its worker's process, and the stage with it."""
STAGES = tuple(Stage(name, f"{__spec__.name}:{name}", weight, 0.1) for name, weight in (("first_contact", 1.0), ("study", 9.0)))


class InstantBench:
    """In place of `experiments.device.work.prebuilt.Bench`."""

    def __init__(self, hw: object) -> None:
        """Nothing starts."""

    def trial(self, built: Built, rules: TimingRules | None = None, seed: int = 0) -> Measurement:
        """The cubin must be there. Seconds come of the digest."""
        assert Path(built.path).read_bytes()[:4] == b"\x7fELF"
        time.sleep(TRIAL_SECONDS)
        if built.kernel.digest == os.environ.get(FAILING):
            os._exit(9)
        seconds = 1e-6 * (1 + int(built.kernel.digest[:4], 16))
        return Measurement(Status.OK, (seconds,) * 5, {"device": "stand-in"}, "", built.kernel.digest)

    def together(self, built: Mapping[str, Built], rounds: int) -> tuple[dict[str, list[float]], dict[str, str]]:
        """The same, and torch."""
        return {name: [1e-6 * (1 + int(name[:4], 16))] * rounds for name in built} | {"torch": [2e-6] * rounds}, {}

    def close(self) -> None:
        """Nothing ends."""


def _stand_in(stage: object) -> None:
    """The bench, and the archive of the variable."""
    patch = pytest.MonkeyPatch()
    patch.setattr("experiments.device.work.prebuilt.Bench", InstantBench)
    patch.setattr(stage, "open_archive", lambda: packed.open_archive(Path(os.environ[CARRY])))


def first_contact(context: Context) -> dict[str, object]:
    """The stage of this name."""
    _stand_in(first_contact_stage)
    return first_contact_stage.run(context)


def study(context: Context) -> dict[str, object]:
    """The stage of this name."""
    _stand_in(study_stage)
    return study_stage.run(context)


def archive(folder: Path, scratch: Path) -> Archive:
    """An archive that was packed."""
    return Archive(folder, scratch)
