"""The whole command `gensor gpu` on a machine without a GPU: a stage in a process of its own, over a device that stands in.

`python -m tests.support.gpu_command WORD ..` runs it with these words.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import pytest

from experiments import entry
from experiments.device import gpu, lease
from experiments.device.context import Context
from experiments.device.runner import Stage
from experiments.device.stages import correctness as correctness_stage

TRIAL_SECONDS = 0.4
"""Of the device."""
STAGES = (Stage("correctness", f"{__spec__.name}:correctness", 1.0, 0.1),)
CARD = {"gpu": {"name": "NVIDIA H200"}, "cores": 2}


def correctness(context: Context) -> dict[str, object]:
    """The stage of this name, in its own process."""
    _stand_in()
    return correctness_stage.run(context)


def _stand_in() -> None:
    """Trials take a moment and answer; makers are threads; operators are small."""
    from tests.experiments.device.test_gpu_stages import InstantDevice, fake_device

    fake_device(pytest.MonkeyPatch())
    answer = InstantDevice.trial

    def slowly(*given: object) -> object:
        time.sleep(TRIAL_SECONDS)
        return answer(*given)  # type: ignore[arg-type]

    InstantDevice.trial = slowly  # type: ignore[assignment, method-assign]


def main() -> None:
    """The command, told that a GPU is there, and nothing compiled ahead."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a test run in the background inherits it ignored
    patch = pytest.MonkeyPatch()
    patch.setattr(lease, "STAGES", STAGES)
    patch.setattr(lease, "EVERY", 0.2)
    patch.setattr(lease, "_prepare", lambda log, model: subprocess.Popen(["true"]))
    patch.setattr(lease, "machine_card", lambda: dict(CARD))
    patch.setattr(gpu, "absent", list)
    sys.argv = ["gensor", "gpu", *sys.argv[1:]]
    entry.main()


if __name__ == "__main__":
    main()
