"""How much memory this process has, for tests that nothing leaks."""

from __future__ import annotations

import resource
from pathlib import Path


def resident() -> int:
    """Bytes of this process in memory now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
