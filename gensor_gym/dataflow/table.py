"""The suite's operators and shapes, stored in `suite.json`. They stand in for IntelliGen's table of operators."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import resources
from types import MappingProxyType
from typing import Any

from gensor_gym.dataflow.graph import Dataflow
from gensor_gym.dataflow.resolve import resolve_computation
from gensor_gym.foreign import parse_object
from gensor_gym.registry import near


@cache
def _content() -> dict[str, Any]:
    return parse_object((resources.files("gensor_gym.dataflow") / "suite.json").read_text(encoding="utf-8"))


def stand_in() -> Mapping[str, str]:
    """Return the fused operators of the suite as {id: text}, such as {"bert/softmax": "softmax(m=1536, n=128)"}."""
    return MappingProxyType(_content()["operators"])


def source() -> str:
    """Return text about the sources of the suite's operators and shapes."""
    return str(_content()["source"])


def fused_operator(text: str) -> Dataflow:
    """Return the graph that a text names: an id of the suite, a call such as `softmax(m=128, n=768)`, or the text of a graph.

    ValueError for anything else.
    """
    known = stand_in()
    found = resolve_computation(known.get(text, text)) if text in known or "(" in text else None
    if not isinstance(found, Dataflow):
        raise ValueError(
            f"fused operator {text!r}: expected a call such as softmax(m=128, n=768), the text of a graph, or an id of the "
            f"suite: {', '.join(known)}{near(text, known)}"
        )
    return found
