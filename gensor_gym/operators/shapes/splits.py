"""Train, validation and test parts: a rule that assigns every operator to one part, and its frozen result for the tables.

Version v1 keeps groups of similar sizes in one part. Version v2 has the groups of v1, more tables, and a distance: no train or
validation operator is near an operator of v2's test part. That part is a subset of the test part of v1's rule. So anything
trained or tuned under v1 has not seen v2's test part, but may have seen similar sizes.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache

from gensor_gym.operators.shapes.nearness import near
from gensor_gym.operators.shapes.tables import TABLES, named_shapes, read
from gensor_gym.operators.text import parse
from gensor_gym.operators.types import Access, Operator
from gensor_gym.registry import check_known

PARTS = ("train", "validation", "test")
VERSIONS = ("v1", "v2")
TABLES_OF = {"v1": TABLES[: TABLES.index("networks")], "v2": TABLES}
"""Version of the split -> tables whose shapes it divides into parts."""
NETWORKS = "networks/"
"""Prefix of the ids of networks' operators, which are kept first when the held-out class is reduced."""
LARGEST_SHARE = 4
"""In v2 the held-out class, which has most test operators of v1, is reduced to less than 1 / LARGEST_SHARE of the test part."""

SALT = 8
"""Number in the hash of a group. Counting from 0, 8 is the first number with at least two shapes of every class but HELD_OUT in
every part, and with the parts' shares within five points of their targets. It was chosen before any result."""

HELD_OUT = "depthwise_conv2d"
"""The class of operators that is only in the test part. It has dozens of published shapes, so a score on it is meaningful. Its
body (a sum of products over a window without channels) is close to, yet unlike, convolution and pooling, which stay in training.
The train part still has all bodies."""


def group(op: Operator) -> str:
    """Return the name of an operator's group: its class and the rounded log2 of each extent.

    Data type and epilogue do not matter. Operators of a group are in one part of the split. But similar sizes on both sides of a
    rounding border may be in different parts (docs/design.md counts the test operators with a train operator of about their
    size). The group of an elementwise operator depends on its number of elements only.
    """
    extents = (op.points,) if op.name == "elementwise" else op.extents
    return f"{op.name}/" + "-".join(str(round(math.log2(extent))) for extent in extents)


def part_of(op: Operator, version: str = "v1") -> str:
    """Return the part of the split (train, validation or test) of any operator, even if no table lists it.

    A hash of the operator's group decides: 60 % of all groups are train, 20 % validation, 20 % test. In v2 an operator near an
    operator of the frozen test part belongs to test as well, though the frozen part does not list it.
    """
    check_known("split", version, VERSIONS)
    part = _by_hash(op)
    if version == "v1" or part == "test":
        return part
    return "test" if any(near(op, other) for other in _test_operators() if other.name == op.name) else part


def _by_hash(op: Operator) -> str:
    if op.name == HELD_OUT:
        return "test"
    digest = hashlib.sha256(f"v1:{SALT}:{group(op)}".encode()).digest()
    share = int.from_bytes(digest[:8], "big") / 2**64
    return "train" if share < 0.6 else "validation" if share < 0.8 else "test"


@cache
def _test_operators() -> tuple[Operator, ...]:
    shapes = named_shapes()
    return tuple(parse(shapes[name]) for name in split("test", "v2"))


def build(version: str = "v1") -> dict[str, list[str]]:
    """Compute the split: the full ids of each part, without duplicates. `shapes/splits.json` contains the frozen result."""
    check_known("split", version, VERSIONS)
    parts: dict[str, list[str]] = {part: [] for part in PARTS}
    shapes = dict(_different(version))
    for name, op in shapes.items():
        parts[_by_hash(op)].append(name)
    if version == "v1":
        return parts
    test = _chosen(parts["test"], shapes)
    chosen = [shapes[name] for name in test]
    far = {part: [n for n in parts[part] if not any(near(shapes[n], op) for op in chosen)] for part in PARTS[:2]}
    return {**far, "test": test}


def _different(version: str) -> Iterator[tuple[str, Operator]]:
    """Yield (full id, operator) of the tables of a version. Of several operators with equal loops only the first is yielded."""
    seen: set[Operator] = set()
    for name, text in named_shapes().items():
        op = parse(text)
        if name.partition("/")[0] in TABLES_OF[version] and (loops := _loops(op)) not in seen:
            seen.add(loops)
            yield name, op


def _chosen(test: Sequence[str], shapes: dict[str, Operator]) -> list[str]:
    """Return the test part with fewer depthwise convolutions, the class that only the test part has.

    Operators of networks are kept first, then others in the order of a hash.
    """
    held = [name for name in test if shapes[name].name == HELD_OUT]
    room = (len(test) - len(held)) // (LARGEST_SHARE - 1) - 1  # one more would make a quarter

    def rank(name: str) -> tuple[bool, str]:
        return not name.startswith(NETWORKS), hashlib.sha256(f"v2:{name}".encode()).hexdigest()

    kept = set(sorted(held, key=rank)[:room])
    return [name for name in test if shapes[name].name != HELD_OUT or name in kept]


def split(part: str, version: str = "v1") -> tuple[str, ...]:
    """Return the full ids of one part of the frozen split. ValueError for an unknown part or version."""
    check_known("split", version, VERSIONS)
    check_known(f"split {version}: part", part, PARTS)
    return tuple(read("splits")[version][part])


def _loops(op: Operator) -> Operator:
    """Return `op` without details that do not affect its loops: its arguments, and coefficients of axes of extent one."""

    def bare(access: Access) -> Access:
        rows = tuple(
            tuple(0 if extent == 1 else c for c, extent in zip(row, op.extents, strict=True))
            for row in access.coefficients
        )
        return replace(access, tensor=replace(access.tensor, shape=access.view), coefficients=rows)

    return replace(op, arguments=(), reads=tuple(map(bare, op.reads)), write=bare(op.write))
