"""The machine model under which a page was made, in a form that a test compares with the tree's."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from gensor_gym import operators
from gensor_gym.fingerprint import common, fingerprints

MARKED = ("gemm(m=1024, n=1024, k=1024)", "gemv(m=4096, k=4096)", "conv2d(n=16, c=64, h=56, w=56, k=64, r=3, s=3, padding=1)")
"""Operators that the mark of a machine is of, in space `extended`."""
OLDER = "Made under an older model"
"""Prefix of a page's note that it should be made again."""
_LINE = re.compile(r"Model of `(\w+)`: fingerprint `([0-9a-f]+)`")


def mark(hardware: str) -> str:
    """Sixteen digits of rules and model of a machine, as far as `MARKED` shows them."""
    return common(fingerprints([operators.parse(text) for text in MARKED], hardware, "extended").values())


def lines(hardware: Iterable[str]) -> list[str]:
    """A page's lines about its models."""
    return [f"Model of `{name}`: fingerprint `{mark(name)}`." for name in hardware]


def marked(page: str) -> Iterator[tuple[str, str]]:
    """(machine, fingerprint) of all that a page says."""
    yield from _LINE.findall(page)
