"""Where the correction that `gensor adapt` learned of this machine is kept."""

from __future__ import annotations

import hashlib
from pathlib import Path

from agents.policies.card import CARD
from gensor_gym.cache.folders import cache_dir
from gensor_gym.hardware.cpuinfo import cpu_info
from gensor_gym.hardware.types import Hardware


def adapted_folder() -> Path:
    """Folder of this machine's recording and correction in the user's cache; each number of cores has its own."""
    info = cpu_info()
    text = repr((info.model, info.cores, info.lanes, info.caches, sorted(info.flags)))
    return cache_dir() / "adapted" / hashlib.sha256(text.encode()).hexdigest()[:16]


def is_adapted(hardware: Hardware) -> bool:
    """Whether `gensor adapt` has ended on the machine, which is this one."""
    return hardware.name == "host" and (adapted_folder() / CARD).is_file()
