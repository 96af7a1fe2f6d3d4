"""`python -m experiments.device.lease.dry`: what a first contact with a device imports and compiles, on a machine without one.

Run under the packages of the GPU machine (`make gpu-dry`), it says what does not travel.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
from collections.abc import Iterator

import experiments.device
from experiments.device.wheels import NEEDED, ON_DEVICE, missing, use_wheels

if __name__ == "__main__":
    use_wheels()

from experiments.device.gpu import Settings, self_check  # noqa: E402
from experiments.device.lease.run import STAGES as OF_LEASE  # noqa: E402
from experiments.device.runner import DONE  # noqa: E402
from experiments.device.stages import STAGES  # noqa: E402

THERE = ("torch", "triton", "ray")
"""Packages that a GPU machine has or does without, and that need not be here."""


def modules() -> list[str]:
    """What is imported: everything that runs on a device, the stages of a lease among it."""
    below = pkgutil.walk_packages(experiments.device.__path__, "experiments.device.")
    named = [stage.target.partition(":")[0] for stage in (*OF_LEASE, *STAGES)]
    return sorted({*(module.name for module in below), *named})


def lacking(names: list[str]) -> Iterator[str]:
    """A line for each module that cannot be imported, but for want of a package that is only there."""
    for name in names:
        try:
            importlib.import_module(name)
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] not in THERE:
                yield f"{name}: {error}"
        except Exception as error:  # whatever it is, the device would meet it
            yield f"{name}: {type(error).__name__}: {error}"


def main() -> int:
    """Imports, then the self-check; the exit code."""
    found = [*(f"no module {name}" for name in missing((*NEEDED, *ON_DEVICE))), *lacking(modules())]
    for line in found:
        print(line, file=sys.stderr)
    if found:
        return 1
    print(f"{len(modules())} modules can be imported under Python {sys.version.split()[0]}", flush=True)
    return 0 if self_check(Settings()).status == DONE else 1


if __name__ == "__main__":
    sys.exit(main())
