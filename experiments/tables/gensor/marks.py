"""Mark a page with the fingerprints of the machine models it was made with, so that a test can compare them with the tree's."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from gensor_gym import operators
from gensor_gym.fingerprint import common, fingerprints

MARKED = ("gemm(m=1024, n=1024, k=1024)", "gemv(m=4096, k=4096)", "conv2d(n=16, c=64, h=56, w=56, k=64, r=3, s=3, padding=1)")
"""Operators over which the mark of a machine is computed, in space `extended`."""
OLDER = "Made under an older model"
"""Beginning of a page's note that says it should be made again."""
_LINE = re.compile(r"Model of `(\w+)`: fingerprint `([0-9a-f]+)`")


def mark(hardware: str) -> str:
    """Fingerprint, sixteen digits, of a machine's rules and model on the operators `MARKED`."""
    return common(fingerprints([operators.parse(text) for text in MARKED], hardware, "extended").values())


def lines(hardware: Iterable[str]) -> list[str]:
    """Lines of a page that state the fingerprints of its models."""
    return [f"Model of `{name}`: fingerprint `{mark(name)}`." for name in hardware]


def marked(page: str) -> Iterator[tuple[str, str]]:
    """Yield (machine, fingerprint) of every such statement on a page."""
    yield from _LINE.findall(page)
