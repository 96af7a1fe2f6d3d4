"""Everything that wants an NVIDIA GPU, in one command of under nine minutes: `python3 -m experiments.gpu [key=value]`.

    budget_s=530         seconds for all stages together
    prepare_s=120        seconds at most to compile our own code before them, which is not taken from theirs
    out=results/h200     folder of the results
    stages=a,b           which, of correctness, operators, tables, refit, compare, policies (these by default, in this order), and
                         fused, fine_tuning and headline, which take minutes; `stages=` only compiles our own code
    hardware=auto        the machine model; auto takes the one that the driver's name of the GPU fits
    previous=FOLDER,..   results that are continued: what their tables hold is not recorded again (but for rows of an older timing
                         protocol), and of a whole run (the first folder, of the same code) every stage goes on where it ended
    plan=                archive: draw, compile and pack what a lease times, without a device; lease: time it, within
                         deadline_s=575 of the start, preparation included, results packed into `out` every half minute
    selfcheck=false      check first what can be checked without a device, which also fills Numba's cache
    seed=0

Runs with the machine's own Python: no virtual environment, no Hydra, no network. Packages that are missing there travel
as wheels (experiments/gpu_wheels.txt). Results come as JSON lines while they are made; summary.json and summary.md are
written anew after each stage. Exit code 0 when every stage ended well, 1 when one did not, 2 when there is no device or
something is missing without which nothing runs.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.commands.refusal import exit_code
from experiments.common.folders import make_folder
from experiments.common.journal import locked
from experiments.device.arguments import read_words
from experiments.device.card import gpu_state, machine_card
from experiments.device.context import Context
from experiments.device.continued import continue_table
from experiments.device.report import write_summary
from experiments.device.runner import DONE, GRACE, Outcome, Stage, run_stage, run_stages
from experiments.device.stages import ASKED_FOR, FRESH, STAGES
from experiments.device.wheels import NEEDED, ON_DEVICE, missing, use_wheels
from experiments.device.work.progress import say
from gensor_gym.registry import near

PREPARE = Stage("prepare", "experiments.device.prepare:run", 1.0, 5.0)
SELFCHECK = Stage("selfcheck", "experiments.device.selfcheck:run", 1.0, 5.0)
SELFCHECK_SECONDS = 150.0
RECORDED = ("recorded.jsonl", "recorded_tensor.jsonl", "recorded_test.jsonl")
SUMMARY = ("summary.json", "summary.md")
PLANS = ("", "archive", "lease")
LEASE = ("first_contact", "study", "environment", "known", "adaptive", "fused")
"""Stages of a lease, in their order."""


@dataclass(frozen=True)
class Settings:
    """The arguments."""

    budget_s: float = 530.0
    prepare_s: float = 120.0
    out: str = "results/h200"
    stages: tuple[str, ...] = tuple(stage.name for stage in STAGES if stage.name not in ASKED_FOR)
    hardware: str = "auto"
    previous: tuple[str, ...] = ()
    selfcheck: bool = False
    seed: int = 0
    plan: str = ""
    deadline_s: float = 575.0


def read_arguments(arguments: list[str]) -> Settings:
    """`key=value` words as settings; ValueError names what is wrong and what is accepted."""
    settings = read_words(Settings, arguments)
    names = [*(stage.name for stage in STAGES), *LEASE]
    if unknown := set(settings.stages) - set(names):
        raise ValueError(f"stages {sorted(unknown)}: expected some of {', '.join(names)}{near(unknown, names)}")
    if settings.plan not in PLANS:
        raise ValueError(f"plan={settings.plan}: expected {' or '.join(filter(None, PLANS))}{near([settings.plan], PLANS)}")
    for name in ("budget_s", "prepare_s", "deadline_s"):
        if not getattr(settings, name) > 0:
            raise ValueError(f"{name}={getattr(settings, name)}: expected seconds above 0")
    return settings


def absent() -> list[str]:
    """What is missing for a run on a device, in words."""
    found = []
    if not gpu_state():
        found.append("an NVIDIA GPU: nvidia-smi is not there or names none")
    if names := missing(ON_DEVICE):
        found.append(f"Python modules {', '.join(names)}: pip install cupy-cuda13x cuda-bindings nvidia-cuda-nvrtc")
    return found


def hardware_name(wanted: str) -> str:
    """The machine model: the one asked for, or the one that the first GPU's product name fits; ValueError for none."""
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


def start_afresh(settings: Settings, folder: Path, device: str = "") -> dict[str, Any]:
    """Make the folder of the results, with what is continued there; the summary of the run that is, {} of none.

    Without one, what the stages asked for wrote there before goes. Recorded tables stay, of this `device` where it is given.
    """
    from gensor_gym.cache.jsons import read_json

    make_folder(folder)
    earlier = [Path(name) for name in settings.previous]
    before = earlier[0] if earlier else None
    summary = read_json(before / SUMMARY[0]) or {} if before else {}
    if before is None or not summary:
        for name in (*(FRESH[stage] for stage in settings.stages if stage in FRESH), *SUMMARY):
            (folder / name).unlink(missing_ok=True)
    elif before.resolve() != folder.resolve():
        for name in FRESH.values():
            if (before / name).exists():
                shutil.copyfile(before / name, folder / name)
    for name in RECORDED:
        continue_table(earlier, folder / name, device)
    return summary


def prepared(settings: Settings, model: str, scratch: str) -> dict[str, Any]:
    """Our own code compiled, in a process of its own; what that says of it."""
    context = Context(scratch, scratch, "prepare", settings.prepare_s, model, settings.seed)
    outcome = run_stage(PREPARE, context, settings.prepare_s + GRACE)
    return outcome.result or {"seconds": outcome.seconds, "parts": 0, "failed": {"all": outcome.error[-300:]}}


def run(settings: Settings) -> int:
    """Run the stages asked for; the exit code. ValueError where another process works in the folder."""
    folder = Path(settings.out)
    with locked(folder):
        return _run(settings, folder)


def _run(settings: Settings, folder: Path) -> int:
    """`run` in a folder of its own."""
    card = machine_card()
    say(f"{card['gpu']}, {card['cores']} cores; results go to {folder.resolve()}")
    model = hardware_name(settings.hardware)
    before = start_afresh(settings, folder, gpu_state().get("name", ""))
    stages = [stage for stage in STAGES if stage.name in settings.stages]
    with tempfile.TemporaryDirectory(prefix="gensor-gym-") as scratch:
        card["prepared"] = done = prepared(settings, model, scratch)
        begin = time.monotonic()
        name = before.get("run") or time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        context = Context(str(folder.resolve()), scratch, name, settings.budget_s, model, settings.seed)

        def ended(outcomes: list[Outcome]) -> None:
            write_summary(context, card, stages, outcomes, before.get("stages"))
            for last in outcomes[-1:]:
                say(f"== {last.stage}: {last.status} after {last.seconds:.1f} s {last.error[-300:]}")

        ended([])  # so that a run stopped in its first stage is continued under its name
        outcomes = run_stages(stages, context, settings.budget_s, ended)
    if outcomes:
        print((folder / SUMMARY[1]).read_text(encoding="utf-8"))
    say(f"{time.monotonic() - begin:.0f} s of stages after {done['seconds']:.0f} s of preparation; results are in")
    for path in sorted(path for path in folder.glob("[!.]*") if path.is_file()):
        say(f"  {path} ({path.stat().st_size} bytes)")
    say(f"continue with: python3 -m experiments.gpu previous={folder} out={folder} stages=...")
    return 0 if all(outcome.status == DONE for outcome in outcomes) else 1


def self_check(settings: Settings) -> Outcome:
    """What can be checked without a device, in a process of its own."""
    with tempfile.TemporaryDirectory(prefix="gensor-gym-") as scratch:
        model = "h200" if settings.hardware == "auto" else settings.hardware
        context = Context(scratch, scratch, "selfcheck", SELFCHECK_SECONDS, model, settings.seed)
        outcome = run_stage(SELFCHECK, context, SELFCHECK_SECONDS)
    print(f"self-check {outcome.status} after {outcome.seconds:.1f} s {outcome.error}", flush=True)
    return outcome


def main(arguments: list[str] | None = None) -> int:
    """Command line; the exit code."""
    return exit_code(lambda: _checked(read_arguments(sys.argv[1:] if arguments is None else arguments)))


def _checked(settings: Settings) -> int:
    """Run where nothing is missing; the exit code."""
    use_wheels()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    lacking = [f"Python modules {', '.join(names)}: see experiments/gpu_wheels.txt"] if (names := missing(NEEDED)) else []
    if not lacking and settings.selfcheck and self_check(settings).status != DONE:
        return 1
    if not lacking and settings.plan == "archive":
        from experiments.device.lease.build import build

        build()
        return 0
    if lacking := lacking + absent():
        print("`make gpu` needs a machine with an NVIDIA GPU. Missing here:\n- " + "\n- ".join(lacking), file=sys.stderr)
        print("Without a GPU: backend=analytic, recorded or emulated, and every cpu task.", file=sys.stderr)
        return 2
    if settings.plan == "lease":
        from experiments.device.lease import run as lease

        wanted = settings.stages if settings.stages != Settings().stages else ()
        return lease.run(Path(settings.out), settings.deadline_s, hardware_name(settings.hardware), settings.seed, wanted)
    return run(settings)
