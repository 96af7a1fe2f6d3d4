"""Train, validation and test: a rule that sends every operator to one part, and its frozen result for the tables.

Version v1 keeps groups of sizes whole. Version v2 has the same groups, more tables, and a distance: its test part is a subset of
v1's, and no train or validation operator is near it. So anything trained or tuned under v1 has not seen v2's test part, but may
have seen similar sizes.
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
"""Tables whose shapes a version divides."""
NETWORKS = "networks/"
"""How ids begin whose operators are preferred where there are too many."""
LARGEST_SHARE = 4
"""In v2 the held-out class, which has most of v1's test operators, is cut to one in this many of the test part."""

SALT = 8
"""Number that goes into the hash of a group. 8 is the first, counted from 0, that gives every class but HELD_OUT at
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
    """The part, one of PARTS, of any operator, listed in a table or not.

    A hash of its group decides: 60 % of all groups are train, 20 % validation, 20 % test. In v2 operators near one of its frozen
    test part belong to test as well, though they are not listed there.
    """
    check_known("split", version, VERSIONS)
    part = _by_hash(op)
    if version == "v1" or part == "test":
        return part
    return "test" if any(near(op, other) for other in _test_operators() if other.name == op.name) else part


def _by_hash(op: Operator) -> str:
    """The part by the group."""
    if op.name == HELD_OUT:
        return "test"
    digest = hashlib.sha256(f"v1:{SALT}:{group(op)}".encode()).digest()
    share = int.from_bytes(digest[:8], "big") / 2**64
    return "train" if share < 0.6 else "validation" if share < 0.8 else "test"


@cache
def _test_operators() -> tuple[Operator, ...]:
    """Operators of v2's frozen test part."""
    shapes = named_shapes()
    return tuple(parse(shapes[name]) for name in split("test", "v2"))


def build(version: str = "v1") -> dict[str, list[str]]:
    """Full ids by part as the rule gives them, duplicates merged; `shapes/splits.json` holds this, frozen."""
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
    """Named operators of a version's tables; of several with the same loops the first."""
    seen: set[Operator] = set()
    for name, text in named_shapes().items():
        op = parse(text)
        if name.partition("/")[0] in TABLES_OF[version] and (loops := _loops(op)) not in seen:
            seen.add(loops)
            yield name, op


def _chosen(test: Sequence[str], shapes: dict[str, Operator]) -> list[str]:
    """The test part without the excess of the held-out class: named networks' first, then by a hash of the id."""
    held = [name for name in test if shapes[name].name == HELD_OUT]
    room = (len(test) - len(held)) // (LARGEST_SHARE - 1) - 1  # a quarter would be one more

    def rank(name: str) -> tuple[bool, str]:
        return not name.startswith(NETWORKS), hashlib.sha256(f"v2:{name}".encode()).hexdigest()

    kept = set(sorted(held, key=rank)[:room])
    return [name for name in test if shapes[name].name != HELD_OUT or name in kept]


def split(part: str, version: str = "v1") -> tuple[str, ...]:
    """Full ids of one part, from the frozen file; ValueError for an unknown part or version."""
    check_known("split", version, VERSIONS)
    check_known(f"split {version}: part", part, PARTS)
    return tuple(read("splits")[version][part])


def _loops(op: Operator) -> Operator:
    """`op` without details that do not reach the loops: its spelling, and coefficients of axes of extent one."""

    def bare(access: Access) -> Access:
        rows = tuple(
            tuple(0 if extent == 1 else c for c, extent in zip(row, op.extents, strict=True))
            for row in access.coefficients
        )
        return replace(access, tensor=replace(access.tensor, shape=access.view), coefficients=rows)

    return replace(op, arguments=(), reads=tuple(map(bare, op.reads)), write=bare(op.write))
