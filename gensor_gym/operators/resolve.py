"""Finds operators by their text, id or table, by a part of a split, or by a list of these."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase

from gensor_gym.operators.registry import FACTORIES
from gensor_gym.operators.shapes.splits import PARTS, VERSIONS, split
from gensor_gym.operators.shapes.tables import TABLES, named_shapes, table
from gensor_gym.operators.text import parse
from gensor_gym.operators.types import Operator
from gensor_gym.registry import near

Spec = Operator | str | Sequence["Operator | str"]


def resolve(spec: Spec) -> list[Operator]:
    """Return the operators that `spec` names, in order, with repetitions.

    `spec` is an Operator, text ("gemm(m=4, n=4, k=4)+relu"), an id ("roller/C0"), a table ("roller", or "roller/C*" with the
    wildcards of file names), a part of a split ("split/v2/train"), or a list or tuple of these. ValueError for anything else, and
    if no operator is named.
    """
    if isinstance(spec, Operator):
        return [spec]
    if isinstance(spec, str):
        return [parse(spec)] if "(" in spec else [parse(text) for text in _texts(spec)]
    if isinstance(spec, (list, tuple)) and spec:
        return [op for item in spec for op in resolve(item)]
    raise ValueError(f"operators {spec!r}: expected an Operator, text, an id, a table, a split or a list of those")


def resolve_one(spec: Operator | str) -> Operator:
    """Return the operator that `spec` names: an Operator, text, or an id ("roller/C0").

    ValueError for anything else, and for a name of several operators (a table, a part of a split).
    """
    if not isinstance(spec, (Operator, str)):
        raise ValueError(f"operator {spec!r}: expected an Operator, text such as 'gemm(m=512, n=384, k=1000)', or an id")
    found = resolve(spec)
    if len(found) > 1:
        raise ValueError(f"operator {spec!r} stands for {len(found)} operators: expected one, such as the id 'roller/C0'")
    return found[0]


def _texts(name: str) -> list[str]:
    shapes = named_shapes()
    if name in shapes:
        return [shapes[name]]
    if name in TABLES:
        return list(table(name).values())
    if name.startswith("split/"):
        words = name.split("/")
        if len(words) != 3:
            raise ValueError(f"split {name!r}: expected split/VERSION/PART with {VERSIONS} and {PARTS}")
        return [shapes[key] for key in split(words[2], words[1])]
    found = [text for key, text in shapes.items() if fnmatchcase(key, name)]
    if not found:
        raise ValueError(
            f"operator {name!r}: expected text such as 'gemm(m=512, n=384, k=1000)', a table ({', '.join(TABLES)}), "
            "an id in one such as 'roller/C0' or 'roller/C*', or a split such as 'split/v2/train'"
            + near(name, [*FACTORIES, *TABLES, *shapes])
        )
    return found
