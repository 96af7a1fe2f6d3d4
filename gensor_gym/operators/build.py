"""Functions from which operators are built: axes, accesses, canonical arguments."""

from __future__ import annotations

from collections.abc import Mapping

from gensor_gym.operators.checks import PLAIN_TYPES, data_type, integer, tensor, window
from gensor_gym.operators.types import INPUT, OUTPUT, Access, Axis, Operator, Tensor

Index = Mapping[str, int]
"""Affine index into one dimension of a tensor: axis name -> coefficient. The key "" is the constant (default 0)."""

Dimensions = Mapping[str, tuple[int, Index | str]]
"""Letter of each dimension of a tensor -> (extent, index)."""


def axes(spatial: Mapping[str, int], reduce: Mapping[str, int] | None = None) -> tuple[Axis, ...]:
    """Make the loop axes of an operator from {name: extent}: spatial axes first, then reduce axes, in canonical order."""
    outer = tuple(Axis(name, extent, "spatial") for name, extent in spatial.items())
    return outer + tuple(Axis(name, extent, "reduce") for name, extent in (reduce or {}).items())


def access(
    tensor: Tensor, loops: tuple[Axis, ...], *index: Index | str, view: tuple[int, ...] | None = None
) -> Access:
    """Make an access to `tensor` from one index per dimension.

    An index is the name of an axis of `loops`, or {axis name: coefficient} with the constant under "".
    """
    rows = [{item: 1} if isinstance(item, str) else item for item in index]
    coefficients = tuple(tuple(row.get(axis.name, 0) for axis in loops) for row in rows)
    return Access(tensor, view or tensor.shape, coefficients, tuple(row.get("", 0) for row in rows))


def in_memory(
    name: str, dimensions: Dimensions, order: str, dtype: str, loops: tuple[Axis, ...], pitch: int = 0
) -> Access:
    """Make an access to a tensor whose dimensions are in memory in the given order of their letters, such as "nhwc".

    `pitch` is that of the tensor (`Tensor.pitch`).
    """
    shape, index = zip(*(dimensions[letter] for letter in order), strict=True)
    return access(tensor(name, shape, dtype, pitch), loops, *index)


def plain(
    name: str, sizes: Mapping[str, object], dtype: object, reads: Mapping[str, str], write: tuple[str, str],
    body: str = "multiply_add", **optional: tuple[object, object],
) -> Operator:  # fmt: skip
    """Make an operator each of whose indices is a single axis with a one-letter name, such as gemm.

    `sizes` are its arguments and the extents of its axes. `reads` maps each tensor to its axes, such as "km" for A[k, m]; `write`
    is the output and its axes. Axes that are not written are reduced. A bias has one element per index of the last axis written.
    `optional` are further arguments like those of `arguments`. ValueError for an invalid size or data type.
    """
    extents = {axis: integer(axis, size) for axis, size in sizes.items()}
    checked = data_type(dtype, tuple(INPUT) if body == "multiply_add" else PLAIN_TYPES)
    loops = axes({a: extents[a] for a in write[1]}, {a: n for a, n in extents.items() if a not in write[1]})

    def plainly(key: str, index: str, stored: str) -> Access:
        return access(tensor(key, tuple(extents[a] for a in index), stored), loops, *index)

    return Operator(
        name=name,
        arguments=arguments(extents, dtype=(checked, "float32"), **optional),
        axes=loops,
        body=body,
        reads=tuple(plainly(key, index, INPUT[checked]) for key, index in reads.items()),
        write=plainly(*write, OUTPUT[checked]),
        dtype=checked,
        channel_axis=len(write[1]) - 1,
    )


def windows(
    sizes: Mapping[str, int], stride: tuple[int, int], padding: tuple[int, int], dilation: tuple[int, int] = (1, 1),
    behind: tuple[int, int] = (0, 0),
) -> tuple[tuple[int, int], Index, Index]:  # fmt: skip
    """Return (output size (p, q), row index, column index) for windows of r x s over an image of h x w.

    `behind` is further padding behind rows and columns. The two indices say which row and column of the image the window at
    (p, q) reads at its element (r, s).
    """
    p = window("h", sizes["h"], sizes["r"], stride[0], padding[0], dilation[0], behind[0])
    q = window("w", sizes["w"], sizes["s"], stride[1], padding[1], dilation[1], behind[1])
    row = {"p": stride[0], "r": dilation[0], "": -padding[0]}
    return (p, q), row, {"q": stride[1], "s": dilation[1], "": -padding[1]}


def arguments(required: Mapping[str, object], **optional: tuple[object, object]) -> tuple[tuple[str, object], ...]:
    """Return an operator's arguments in canonical form, as (name, value) pairs.

    `optional` maps a name to (value, default). A pair of equal numbers becomes one number. Values equal to the default are left
    out.
    """
    kept = dict(required)
    for name, (value, default) in optional.items():
        plain = value[0] if isinstance(value, tuple) and value[0] == value[1] else value
        if plain != default:
            kept[name] = plain
    return tuple(kept.items())
