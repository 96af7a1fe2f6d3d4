"""`python -m experiments.device.dry`: import and compile everything of a device run on a machine without a GPU.

Run under the packages of the GPU machine (`make gpu-dry`), it reports what is missing there.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
from collections.abc import Iterator, Sequence

import experiments.device
from experiments.device.wheels import NEEDED, ON_DEVICE, missing, use_wheels

if __name__ == "__main__":
    use_wheels()

from experiments.device.stages import STAGES  # noqa: E402
from experiments.device.stages.families import FAMILIES, drawn  # noqa: E402
from experiments.device.stages.operators import candidates  # noqa: E402
from experiments.device.table import read_operators  # noqa: E402
from gensor_gym import hardware  # noqa: E402
from gensor_gym.codegen.cuda import nvrtc  # noqa: E402
from gensor_gym.codegen.kernel import Kernel  # noqa: E402
from gensor_gym.construction import ConstructionGraph  # noqa: E402
from gensor_gym.hardware.types import Hardware  # noqa: E402
from gensor_gym.measure.emulator.emulator import EmulatorError, find_cxx  # noqa: E402
from gensor_gym.measure.measurement import Status  # noqa: E402

THERE = ("torch", "triton", "ray")
"""Optional packages of a GPU machine that may be missing on a machine without a GPU."""
COMPILED = 12
"""Approximate number of kernels that the check compiles."""
EMULATED = ("gemm(m=13, n=11, k=7)", "conv2d(n=1, c=4, h=6, w=6, k=4, r=3, s=3, padding=1)", "reduce_sum(m=5, k=31)")


def modules() -> list[str]:
    """Return the names of all modules that run on a device."""
    below = pkgutil.walk_packages(experiments.device.__path__, "experiments.device.")
    return sorted({*(module.name for module in below), *(stage.target.partition(":")[0] for stage in STAGES)})


def lacking(names: list[str]) -> Iterator[str]:
    """Yield a line for each module that cannot be imported, unless it only lacks one of `THERE`, packages of the GPU machine."""
    for name in names:
        try:
            importlib.import_module(name)
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] not in THERE:
                yield f"{name}: {error}"
        except Exception as error:  # any error here would also occur on the device
            yield f"{name}: {type(error).__name__}: {error}"


def checked(hw: Hardware) -> dict[str, object]:
    """Generate, compile and emulate some kernels and return facts about it, as far as compiler and emulator are installed.

    Raise RuntimeError if an installed part does not work.
    """
    made = [kernel for text in FAMILIES for _, kernel in drawn(text, hw.name, 0, 1)]
    kernels = [kernel for kernel in made if isinstance(kernel, Kernel)]
    if len(kernels) < len(made):
        raise RuntimeError(f"{len(made) - len(kernels)} of {len(made)} families have no kernel")
    named = read_operators()
    return {
        "operators": len(named), "candidates": len(candidates(next(iter(named.values())), hw, 0)), "kernels": len(kernels),
        "nvrtc": _compile(kernels), "emulator": _emulate(hw),
    }  # fmt: skip


def _compile(kernels: Sequence[Kernel]) -> str:
    """Compile some of the kernels for the device's architecture; return a sentence that says how it went."""
    if not nvrtc.is_available():
        return f"not installed: pip install {nvrtc.PACKAGES}"
    some = kernels[:: max(1, len(kernels) // COMPILED)]
    for kernel in some:
        if nvrtc.compile_cubin(kernel).cubin[:4] != b"\x7fELF":
            raise RuntimeError(f"NVRTC gave no cubin for {kernel.operator}")
    return f"{nvrtc.version()}: {len(some)} kernels compiled for {kernels[0].arch}"


def _emulate(hw: Hardware) -> str:
    """Run a few kernels in the emulator on this CPU and verify their answers; return a sentence that says how it went."""
    try:
        find_cxx()
    except EmulatorError as error:
        return str(error)
    from gensor_gym.measure.emulator.backend import EmulatedBackend

    for text in EMULATED:
        graph = ConstructionGraph(text, hw, "extended")
        (result,) = EmulatedBackend().measure(graph.operator, [graph.initial()], hw)
        if result.status is not Status.OK:
            raise RuntimeError(f"{text} in the emulator: {result.status.value}: {result.error}")
    return f"{len(EMULATED)} kernels right"


def main() -> int:
    """Import all modules of a device run, then run the checks; return the exit status, 1 if something is missing."""
    found = [*(f"no module {name}" for name in missing((*NEEDED, *ON_DEVICE))), *lacking(modules())]
    for line in found:
        print(line, file=sys.stderr)
    if found:
        return 1
    print(f"{len(modules())} modules can be imported under Python {sys.version.split()[0]}", flush=True)
    print(f"checked: {checked(hardware.get('h200'))}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
