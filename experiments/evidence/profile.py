"""Figures of a profile by Nsight Compute, of our kernel and the library's."""

from __future__ import annotations

import re
from pathlib import Path

from experiments.evidence.facts import RAW, Facts
from experiments.studies.search.report import table
from gensor_gym.foreign import read_text

FILE = "profile.txt.gz"
FIGURES = {
    "Duration": "duration", "Executed Instructions": "instructions", "Executed Ipc Active": "instructions a cycle and SM",
    "No Eligible": "cycles with no warp to issue from", "Registers Per Thread": "registers a thread",
    "Dynamic Shared Memory Per Block": "shared memory a block, KB", "Waves Per SM": "waves a multiprocessor",
}  # fmt: skip
_HEAD = re.compile(r"^  (\w+) \(\d+, \d+, \d+\)x\(\d+, \d+, \d+\), Context")
_LONGEST = 44


def section(folder: Path, facts: Facts) -> list[str]:
    """Lines of Markdown: a column for each kernel."""
    kernels = read_profile(read_text(folder / RAW / FILE))
    names = [f"`{name if len(name) <= _LONGEST else name[: _LONGEST - 2] + '..'}`" for name in kernels]
    rows = [(words, *(found.get(figure, "") for found in kernels.values())) for figure, words in FIGURES.items()]
    return [
        facts.source(FILE), "", *table(("", *names), rows), "",
        "Counted by the profiler, which slows kernels down: instructions and waits compare, durations only with each other.",
    ]  # fmt: skip


def read_profile(text: str) -> dict[str, dict[str, str]]:
    """Figures with their units by kernel, its last launch; ValueError where there is no kernel."""
    kernels: dict[str, dict[str, str]] = {}
    found: dict[str, str] = {}
    for line in text.splitlines():
        if head := _HEAD.match(line):
            found = kernels[head[1]] = {}
        for figure in FIGURES:
            if line.startswith(f"    {figure}  "):
                *unit, value = line.removeprefix(f"    {figure}").split()
                found[figure] = " ".join([value, *(u for u in unit if "/" not in u and u != "inst")])
    if not kernels:
        raise ValueError("no kernel in this profile: expected what Nsight Compute prints")
    return kernels
