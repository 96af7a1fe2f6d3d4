"""Train, validation and test: a rule that sends every operator to one part, and its frozen result for the tables."""

from __future__ import annotations

import hashlib
import math
from dataclasses import replace

from gensor_gym.operators.shapes.tables import named_shapes, read
from gensor_gym.operators.text import parse
from gensor_gym.operators.types import Access, Operator
from gensor_gym.registry import check_known

PARTS = ("train", "validation", "test")
VERSIONS = ("v1",)

SALT = {"v1": 8}
"""Number that goes into the hash of a version. 8 is the first, counted from 0, that gives every class but HELD_OUT at
least two shapes in every part and the parts their shares within five points; it was chosen before any result."""

HELD_OUT = "depthwise_conv2d"
"""The class that is seen in the test part alone. It has dozens of published shapes, so a score on it means something;
its body (a sum of products over a window without channels) is close to, yet unlike, convolution and pooling, which
stay in training; and without it every other body is still there to learn from."""


def group(op: Operator) -> str:
    """Name of the group of `op`: its class and the rounded log2 of each extent. dtype and epilogue do not matter.

    Sizes that round alike share a group, and groups stay whole. Groups have borders all the same: a size just across one may be
    in another part (docs/design.md says how many test operators have a train operator of about their size). Elementwise
    operators are taken by their number of elements, however many axes they are looped over.
    """
    extents = (op.points,) if op.name == "elementwise" else op.extents
    return f"{op.name}/" + "-".join(str(round(math.log2(extent))) for extent in extents)


def part_of(op: Operator, version: str = "v1") -> str:
    """The part, one of PARTS, that any operator belongs to, be it in a table or not.

    A hash of version and group decides: 60 % of all groups are train, 20 % validation, 20 % test.
    """
    check_known("split", version, VERSIONS)
    if op.name == HELD_OUT:
        return "test"
    digest = hashlib.sha256(f"{version}:{SALT[version]}:{group(op)}".encode()).digest()
    share = int.from_bytes(digest[:8], "big") / 2**64
    return "train" if share < 0.6 else "validation" if share < 0.8 else "test"


def build(version: str = "v1") -> dict[str, list[str]]:
    """Full ids by part as the rule gives them, duplicates merged; `shapes/splits.json` holds this, frozen."""
    parts: dict[str, list[str]] = {part: [] for part in PARTS}
    seen: set[Operator] = set()
    for name, text in named_shapes().items():
        op = parse(text)
        if (loops := _loops(op)) not in seen:
            seen.add(loops)
            parts[part_of(op, version)].append(name)
    return parts


def split(part: str, version: str = "v1") -> tuple[str, ...]:
    """Full ids of one part, from the frozen file; ValueError for an unknown part or version."""
    check_known("split", version, VERSIONS)
    check_known(f"split {version}: part", part, PARTS)
    return tuple(read("splits")[version][part])


def _loops(op: Operator) -> Operator:
    """`op` without what does not reach the loops: how it was written down, and what axes of extent one multiply."""

    def bare(access: Access) -> Access:
        rows = tuple(
            tuple(0 if extent == 1 else c for c, extent in zip(row, op.extents, strict=True))
            for row in access.coefficients
        )
        return replace(access, tensor=replace(access.tensor, shape=access.view), coefficients=rows)

    return replace(op, arguments=(), reads=tuple(map(bare, op.reads)), write=bare(op.write))
