"""Descriptions of machines: GPUs and CPUs as constants, and the CPU that Python runs on."""

from __future__ import annotations

from collections.abc import Callable

from gensor_gym.hardware import amd
from gensor_gym.hardware.cpu import CPUS
from gensor_gym.hardware.described import from_json, measured_names, recorded_machine, recorded_names, to_json
from gensor_gym.hardware.host import detect
from gensor_gym.hardware.nvidia import GPUS
from gensor_gym.hardware.types import Hardware, MemoryLevel
from gensor_gym.plugins import load_named
from gensor_gym.registry import near, register

__all__ = [
    "Hardware", "MemoryLevel", "from_json", "get", "measured_names", "names", "recorded_names", "register_machine", "to_json",
]  # fmt: skip

_KNOWN = {hardware.name: hardware for hardware in (*GPUS, *amd.GPUS, *CPUS)}


def register_machine(make: Callable[[], Hardware]) -> Callable[[], Hardware]:
    """Register the function that makes a machine, so that `get` and every command accept the machine's name (decorator).

    ValueError for a name with capitals, and for the name of another module's machine, of the host or of a recorded machine.
    """
    machine = make()
    recorded = {"host", *recorded_names(), *measured_names()} - _KNOWN.keys()
    if machine.name != machine.name.lower() or machine.name in recorded:
        raise ValueError(f"machine {machine.name!r} of {make.__module__}: expected a name of its own in small letters")
    register("machine", _KNOWN, machine.name, machine, make.__module__)
    return make


def names() -> tuple[str, ...]:
    """Return the names of the machines that are constants, then `host`. `get` also accepts recorded and measured machines."""
    return (*_KNOWN, "host")


def get(name: str | Hardware) -> Hardware:
    """Return the machine of this name, in upper or lower case; `host` is the CPU that Python runs on.

    A `Hardware` is returned unchanged. ValueError for a name that is in none of `names()`, `recorded_names()` and
    `measured_names()`.
    """
    if isinstance(name, Hardware):
        return name
    key = name.strip().lower() if isinstance(name, str) else None
    if key == "host":
        return detect()
    if key is not None and key not in _KNOWN:
        load_named()
    if key in _KNOWN:
        return _KNOWN[key]
    if key in (*recorded_names(), *measured_names()):
        return recorded_machine(key)
    known = dict.fromkeys((*names(), *recorded_names(), *measured_names()))
    raise ValueError(f"unknown hardware {name!r}; accepted: {', '.join(known)}{near(name, known)}")
