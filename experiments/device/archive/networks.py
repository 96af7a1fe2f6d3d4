"""Networks whose kernels are chosen by the model before a GPU is lent: their plans and schedules, in one file of the archive."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import gensor_gym
from gensor_gym import hardware
from gensor_gym.codegen.families import family_of
from gensor_gym.codegen.kernel import Kernel
from gensor_gym.codegen.remembered import remembered
from gensor_gym.files import write_whole
from gensor_gym.networks.folding import folded
from gensor_gym.networks.plan import Plan

NAMES = ("resnet50", "bert_of_ids", "mobilenet_v2", "gpt2_of_ids", "resnet34")
"""Names in `experiments.networks.suite`: Gensor's networks, in the order in which a lease times them."""
FILE = "networks.json.gz"


def draw(machine: str, folder: Path) -> None:
    """Write FILE to a folder: for each network its plan, and each piece's schedule that is fastest by the machine's model."""
    from experiments.networks.suite import inputs_of, module_of

    found: dict[str, Any] = {}
    for name in NAMES:
        asked: dict[str, Any] = {"hardware": machine, "backend": "analytic", "trials": 1, "reuse": False}
        made = gensor_gym.compile(module_of(name), inputs_of(name), **asked)
        schedules = [str(result.schedule) for result in made.results]
        found[name] = {"plan": str(made.plan), "schedules": schedules, "model_s": sum(one.seconds for one in made.results)}
    text = json.dumps({"machine": machine, "networks": found})
    write_whole(folder / FILE, gzip.compress(text.encode(), mtime=0))


def read(folder: Path) -> dict[str, Any]:
    """What `draw` wrote. FileNotFoundError without the file."""
    found: dict[str, Any] = json.loads(gzip.decompress((folder / FILE).read_bytes()))
    return found


def opened(archive: dict[str, Any], name: str) -> tuple[Any, tuple[Any, ...], Plan, list[Kernel]]:
    """(torch's module, its inputs, plan, kernels) of a network of `read`; ValueError if a schedule no longer has a kernel."""
    from experiments.networks.suite import inputs_of, module_of
    from gensor_gym.frontends.torch_export import from_torch

    module, inputs, drawn = module_of(name), inputs_of(name), archive["networks"][name]
    plan, hw = Plan.parse(folded(from_torch(module, inputs)), drawn["plan"]), hardware.get(archive["machine"])
    kernels = list[Kernel]()
    for step, text in zip(plan.steps, drawn["schedules"], strict=True):
        schedule: Any = family_of(step.computation).schedule.parse(text)
        kernels.append(remembered(step.computation, schedule, hw))
    return module, inputs, plan, kernels
