"""Everything that needs an NVIDIA GPU, in one command: `python3 -m experiments.gpu [key=value]`.

    plan=                archive: draw, compile and pack the programs of conf/lease.yaml, on a machine without a GPU;
                         lease (by default): run the stages on this machine's GPU
    stages=a,b           some of first_contact, study, known, correctness, operators, environment, adaptive and fused; by
                         default all but correctness and operators if there is an archive, otherwise all but the first three
    out=results/h200     folder of the results: one packed file, rewritten every half minute, and a summary. If it contains
                         results already, the run resumes from them
    deadline_s=575       seconds for everything, including compilation of our own code
    hardware=auto        the machine model; auto takes the model that fits the driver's name of the GPU
    seed=0

Runs with the machine's own Python: no virtual environment, no Hydra, no network. Packages that are missing there are brought
along as wheels (experiments/gpu_wheels.txt). Exit code 0 if every stage ended well, 1 if a stage did not, 2 if there is no device
or a requirement of all stages is missing.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agents.cli.refusal import exit_code
from experiments.device.card import gpu_state
from experiments.device.stages import STAGES
from experiments.device.wheels import NEEDED, ON_DEVICE, missing, use_wheels
from gensor_gym.registry import near

PLANS = ("archive", "lease")


@dataclass(frozen=True)
class Settings:
    """The arguments of the command."""

    plan: str = "lease"
    stages: tuple[str, ...] = ()
    out: str = "results/h200"
    deadline_s: float = 575.0
    hardware: str = "auto"
    seed: int = 0


def read_arguments(arguments: list[str]) -> Settings:
    """Read settings from words `key=value`; ValueError names what is wrong and which values are accepted."""
    settings = _of_words(arguments)
    names = [stage.name for stage in STAGES]
    if unknown := set(settings.stages) - set(names):
        raise ValueError(f"stages {sorted(unknown)}: expected some of {', '.join(names)}{near(unknown, names)}")
    if settings.plan not in PLANS:
        raise ValueError(f"plan={settings.plan}: expected {' or '.join(PLANS)}{near([settings.plan], PLANS)}")
    if not settings.deadline_s > 0:
        raise ValueError(f"deadline_s={settings.deadline_s}: expected seconds above 0")
    return settings


def _of_words(words: list[str]) -> Settings:
    """Return the default settings, changed by words `key=value`; ValueError names an unknown key or an invalid value."""
    kinds = {name: type(value) for name, value in vars(Settings()).items()}
    values: dict[str, Any] = {}
    for word in words:
        key, equals, text = word.partition("=")
        if not equals or key not in kinds:
            raise ValueError(f"argument {word!r}: expected key=value with a key of {', '.join(kinds)}")
        try:
            listed = tuple(filter(None, text.strip("[]").replace(" ", "").split(",")))
            values[key] = listed if kinds[key] is tuple else kinds[key](text)
        except ValueError:
            raise ValueError(f"{key}={text}: expected a number") from None
    return Settings(**values)


def absent() -> list[str]:
    """Return what a device run needs and this machine lacks, as sentences."""
    found = []
    if not gpu_state():
        found.append("an NVIDIA GPU: nvidia-smi is not there or names none")
    if names := missing(ON_DEVICE):
        found.append(f"Python modules {', '.join(names)}: pip install cupy-cuda13x cuda-bindings nvidia-cuda-nvrtc")
    return found


def hardware_name(wanted: str) -> str:
    """Return the full name of the machine model `wanted`; for `auto`, of the model that fits the name of the first GPU.

    Raise ValueError if no model fits.
    """
    from gensor_gym import hardware
    from gensor_gym.measure.devices.presence import gpu_names, is_named

    if wanted != "auto":
        return hardware.get(wanted).name
    products = gpu_names()
    models = [name for name in hardware.names() if name != "host" and hardware.get(name).kind == "gpu"]
    fitting = [name for name in models if products and is_named(hardware.get(name), products[0])]
    if fitting:
        return fitting[0]
    if products:
        raise ValueError(f"no machine model fits {products[0]!r}; name one: hardware={'|'.join(models)}")
    return "h200"


def main(arguments: list[str] | None = None) -> int:
    """Run the command and return the exit code; `--help` prints the text at the beginning of this module."""
    words = sys.argv[1:] if arguments is None else arguments
    if set(words) & {"-h", "--help"}:
        print(__doc__)
        return 0
    return exit_code(lambda: _checked(read_arguments(words)))


def _checked(settings: Settings) -> int:
    use_wheels()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    lacking = [f"Python modules {', '.join(names)}: see experiments/gpu_wheels.txt"] if (names := missing(NEEDED)) else []
    if not lacking and settings.plan == "archive":
        from experiments.device.archive.build import build

        build()
        return 0
    if lacking := lacking + absent():
        print("`make gpu` needs a machine with an NVIDIA GPU. Missing here:\n- " + "\n- ".join(lacking), file=sys.stderr)
        print("Without a GPU: backend=analytic, recorded or emulated, and every cpu task.", file=sys.stderr)
        return 2
    from experiments.device.lease import run

    return run(Path(settings.out), settings.deadline_s, hardware_name(settings.hardware), settings.seed, settings.stages)
