"""Finds the computation that a text describes: `softmax(m=128, n=768)`, `gemm(m=4, n=4, k=4)`, or the text of a graph."""

from __future__ import annotations

import re

from gensor_gym.dataflow.graph import Dataflow
from gensor_gym.dataflow.suite import FACTORIES, make
from gensor_gym.dataflow.text import parse
from gensor_gym.operators.resolve import resolve_one
from gensor_gym.operators.text import read_call
from gensor_gym.operators.types import Operator
from gensor_gym.registry import near


def resolve_computation(spec: Operator | Dataflow | str) -> Operator | Dataflow:
    """Return the operator or fused operator that `spec` names; ValueError for anything else.

    Text without a call, such as the id of a table's operator, always names an operator.
    """
    if isinstance(spec, Dataflow):
        return spec
    if isinstance(spec, str) and spec.lstrip().startswith("def "):
        return parse(spec)
    name = re.match(r"\s*(\w+)\(", spec) if isinstance(spec, str) else None
    if name is None:
        return resolve_one(spec)
    if name[1] in FACTORIES:
        values, options = read_call(spec)  # type: ignore[arg-type]
        return make(name[1], *values, **options)
    try:
        return resolve_one(spec)
    except ValueError as error:
        raise ValueError(f"{error}{near(name[1], FACTORIES)}") from error
