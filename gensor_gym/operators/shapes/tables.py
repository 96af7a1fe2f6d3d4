"""Named shapes: tables of operators from publications, stored as data files in this folder."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from importlib import resources
from types import MappingProxyType
from typing import Any

from gensor_gym.registry import check_known

TABLES = ("roller", "ansor", "autotvm", "gensor_table5", "common", "smoke", "networks")
"""All tables. If several tables contain an operator, the splits use its id in the earliest of these tables."""


@cache
def read(file: str) -> dict[str, Any]:
    """Return the content of a JSON file of this folder. `file` is its name without the ending."""
    folder = resources.files("gensor_gym.operators.shapes")
    content: dict[str, Any] = json.loads((folder / f"{file}.json").read_text(encoding="utf-8"))
    return content


def table(name: str) -> Mapping[str, str]:
    """Return one table of operators as {id: text}, such as {"C0": "conv2d(...)"}. ValueError for an unknown table."""
    check_known("table", name, TABLES)
    return MappingProxyType(read(name)["operators"])


def source(name: str) -> str:
    """Return text about the publication from which a table is taken, and about deviations from it."""
    check_known("table", name, TABLES)
    return str(read(name)["source"])


def named_shapes() -> dict[str, str]:
    """Return the operators of all tables as {full id: text}, such as {"roller/C0": "conv2d(...)"}."""
    return {f"{name}/{key}": text for name in TABLES for key, text in table(name).items()}
