"""The first difference of two texts of JSON lines."""

from __future__ import annotations

from gensor_gym.foreign import parse_json


class Difference(ValueError):
    """Raised if an entry differs from the environment's recomputation; the message names line, field, expected and found."""


def compare_texts(expected: str, found: str) -> None:
    """Compare two whole files; raise Difference for the first byte that differs."""
    lines, others = expected.split("\n"), found.split("\n")
    for at, (want, have) in enumerate(zip(lines, others, strict=False)):
        if want != have:
            before = sum(len(line.encode()) + 1 for line in others[:at])
            byte = before + _same_bytes(want.encode(), have.encode())
            raise Difference(f"line {at + 1}{_field(want, have)} (byte {byte})")
    if len(others) != len(lines):
        raise Difference(f"expected {len(lines)} lines, found {len(others)}")


def _field(expected: str, found: str) -> str:
    """Text that names the first field with different values and both values, or both lines."""
    try:
        want, have = parse_json(expected), parse_json(found)
    except ValueError:
        return f": expected {expected!r}, found {found!r}"
    same_fields = isinstance(want, dict) and isinstance(have, dict) and set(want) == set(have)
    for field in want if same_fields else ():
        if want[field] != have[field]:
            return f", {field}: expected {want[field]!r}, found {have[field]!r}"
    return f": expected {expected!r}, found {found!r}"


def _same_bytes(one: bytes, other: bytes) -> int:
    """Number of equal bytes at the beginning."""
    return next((i for i, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1]), min(len(one), len(other)))
