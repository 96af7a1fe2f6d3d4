"""Networks whose kernels are chosen and compiled before a GPU is at hand, in one file of the archive.

Schedules are kept by computation, so that a network that another version of torch exports differently still finds most of its
schedules.
"""

from __future__ import annotations

import base64
import dataclasses
import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gensor_gym
from agents.optimizer import optimize
from gensor_gym import hardware
from gensor_gym.codegen.build import generate_variant
from gensor_gym.codegen.cuda import nvrtc
from gensor_gym.codegen.families import family_of
from gensor_gym.codegen.kernel import Kernel
from gensor_gym.codegen.remembered import remembered
from gensor_gym.files import write_whole
from gensor_gym.graph.schedule import Schedule
from gensor_gym.hardware.types import Hardware
from gensor_gym.networks.folding import folded
from gensor_gym.networks.fusion.rules import plan_of
from gensor_gym.networks.plan import Plan

_HALF = "/bfloat16"
NAMES = (
    f"resnet50{_HALF}", f"bert_of_ids{_HALF}", "resnet50", "bert_of_ids", f"mobilenet_v2{_HALF}", f"gpt2_of_ids{_HALF}",
    "mobilenet_v2", "gpt2_of_ids", f"resnet34{_HALF}", "resnet34",
)  # fmt: skip
"""Networks by their names in `experiments.networks.suite`, in the order of timing; a data type may follow `/`."""
FILE = "networks.json.gz"
ASKED: dict[str, Any] = {"backend": "analytic", "trials": 1}
"""Options of the search that chooses kernels on the model alone."""


def dtype_of(name: str) -> str:
    """Return the data type of the weights of a network of `NAMES`, which follows `/` in its name."""
    return name.partition("/")[2] or "float32"


def made(name: str) -> tuple[Any, tuple[Any, ...]]:
    """Return (torch module, inputs) of a network of `NAMES`, both in its data type."""
    from experiments.networks.suite import in_type

    return in_type(name.partition("/")[0], dtype_of(name))


def draw(machine: str, folder: Path, revision: str) -> None:
    """Search for the kernels of all networks by the machine's model, compile them, and write them to `FILE` in a folder.

    By network, the file has the fastest schedule of each computation, and by digest the compiled kernels. `pingpong` lists the
    computations whose kernel also compiles well with consumers that take turns.
    """
    found: dict[str, Any] = {}
    cubins: dict[str, Any] = {}
    for name in NAMES:
        network = gensor_gym.compile(*made(name), hardware=machine, reuse=False, **ASKED)
        schedules = {str(result.task.operator): str(result.schedule) for result in network.results}
        every = {str(one.task.operator): _turns(one.task.operator, one.schedule, network.hardware) for one in network.results}
        turns = {text: kernel for text, kernel in every.items() if kernel is not None}
        seconds = sum(result.seconds for result in network.results)
        found[name] = {"schedules": schedules, "model_s": seconds, "pingpong": sorted(turns)}
        for kernel in (*network.kernels, *turns.values()):
            if kernel.digest not in cubins:
                compiled = dataclasses.asdict(nvrtc.compile_cubin(kernel))
                cubins[kernel.digest] = {**compiled, "cubin": base64.b64encode(compiled["cubin"]).decode()}
    about = {"machine": machine, "revision": revision, "compiler": nvrtc.version()}
    text = json.dumps({**about, "networks": found, "cubins": cubins})
    write_whole(folder / FILE, gzip.compress(text.encode(), mtime=0))


def read(folder: Path) -> dict[str, Any]:
    """Read what `draw` wrote to a folder; raise FileNotFoundError without the file."""
    found: dict[str, Any] = json.loads(gzip.decompress((folder / FILE).read_bytes()))
    return found


def is_of(folder: Path, revision: str) -> bool:
    """Return whether a folder has the file of `draw`, written by this revision of the tree."""
    return (folder / FILE).exists() and read(folder)["revision"] == revision


def opened(archive: dict[str, Any], name: str) -> tuple[Any, tuple[Any, ...], Plan, list[Kernel]]:
    """Rebuild a network from the archive; return (torch module, inputs, fusion plan, kernels).

    The archive's compiled kernels are put into NVRTC's cache. A computation without a schedule in the archive is searched on the
    model. Raise ValueError for a schedule without a kernel.
    """
    from gensor_gym.frontends.torch_export import from_torch

    (module, inputs), hw = made(name), hardware.get(archive["machine"])
    plan = plan_of(folded(from_torch(module, inputs)), "fine", hw)
    known, kernels = archive["networks"][name]["schedules"], list[Kernel]()
    for computation in (step.computation for step in plan.steps):
        text = known.get(str(computation))
        parse: Any = family_of(computation).schedules[hw.kind].parse
        schedule = optimize(computation, hw, **ASKED).schedule if text is None else parse(text)
        kernels.append(remembered(computation, schedule, hw))
    _keep(archive, kernels)
    return module, inputs, plan, kernels


def pingpong(archive: dict[str, Any], name: str, kernels: Sequence[Kernel]) -> list[Kernel | None]:
    """Return, for each of a network's kernels, that of the same schedule whose consumers take turns; None where there is none.

    The archive's compiled kernels are put into NVRTC's cache.
    """
    hw, known = hardware.get(archive["machine"]), archive["networks"][name]
    made = {
        text: generate_variant(kernel.loop_nest, Schedule.parse(known["schedules"][text]), hw, "pingpong")
        for text, kernel in {str(kernel.operator): kernel for kernel in kernels}.items()
        if text in known["pingpong"]
    }
    _keep(archive, [kernel for kernel in made.values() if kernel is not None])
    return [made.get(str(kernel.operator)) for kernel in kernels]


def _turns(computation: Any, schedule: Any, hw: Hardware) -> Kernel | None:
    """Return the kernel of a schedule whose consumers take turns; None if there is none that compiles well."""
    made = generate_variant(computation, schedule, hw, "pingpong")
    return None if made is None or nvrtc.compile_cubin(made).loss else made


def _keep(archive: dict[str, Any], kernels: Sequence[Kernel]) -> None:
    """Put the archive's compiled kernels into NVRTC's cache, if this version of NVRTC compiled them."""
    if archive["compiler"] != nvrtc.version():
        return
    for digest, kernel in {kernel.digest: kernel for kernel in kernels}.items():
        if (row := archive["cubins"].get(digest)) is not None:
            nvrtc.keep_cubin(kernel, nvrtc.CompiledKernel(**{**row, "cubin": base64.b64decode(row["cubin"])}))
