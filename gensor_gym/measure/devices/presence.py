"""Names of this machine's GPUs, found without a CUDA context: this process must not have a context, because it may fork."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
from functools import lru_cache

from gensor_gym.hardware.types import Hardware


@lru_cache(maxsize=1)
def gpu_names() -> tuple[str, ...]:
    """Return the product names of the GPUs, as nvidia-smi prints them; empty without a driver."""
    if shutil.which("nvidia-smi") is None:
        return ()
    command = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except subprocess.TimeoutExpired:
        return ()
    return tuple(line.strip() for line in done.stdout.splitlines() if line.strip()) if done.returncode == 0 else ()


def is_named(hw: Hardware, product: str) -> bool:
    """Whether a GPU's product name matches a hardware. `rtx4090` matches `NVIDIA GeForce RTX 4090`, `a100` not `RTX A1000`."""
    words = re.split(r"[^a-z0-9]+", hw.name.lower())
    pieces = (re.findall(r"[a-z]+|[0-9]+", word) for word in words)
    patterns = (r"\b" + "[ -]?".join(piece) + r"(?![a-z0-9])" for piece in pieces)
    return all(re.search(pattern, product.lower()) for pattern in patterns)


def absence(hw: Hardware) -> str:
    """Return the reason why kernels for `hw` cannot run here; empty if they can.

    Only the first GPU counts, because workers use device 0.
    """
    names = gpu_names()
    if names and not is_named(hw, names[0]):
        return f"the GPU of this machine is a {names[0]}"
    return absence_of_cuda()


def absence_of_cuda() -> str:
    """Return the reason why no CUDA kernel can run here; empty if some kernel can."""
    if not gpu_names():
        return "no NVIDIA GPU was found (nvidia-smi)"
    if importlib.util.find_spec("cupy") is None:
        return "CuPy is not installed (extra cuda12 or cuda13)"
    return ""


def device_name(hw: Hardware) -> str:
    """Return the product name of the GPU that runs kernels; `hw.name` without a GPU."""
    names = gpu_names()
    return names[0] if names else hw.name
