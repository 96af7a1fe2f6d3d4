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
    """Content of a JSON file of this folder."""
    folder = resources.files("gensor_gym.operators.shapes")
    content: dict[str, Any] = json.loads((folder / f"{file}.json").read_text(encoding="utf-8"))
    return content


def table(name: str) -> Mapping[str, str]:
    """Operator text by id of one table, such as {"C0": "conv2d(...)"}. ValueError for an unknown table."""
    check_known("table", name, TABLES)
    return MappingProxyType(read(name)["operators"])


def source(name: str) -> str:
    """Source of a table, and its deviations from the publication."""
    check_known("table", name, TABLES)
    return str(read(name)["source"])


def named_shapes() -> dict[str, str]:
    """Operator text by full id of all tables in order, such as {"roller/C0": "conv2d(...)"}."""
    return {f"{name}/{key}": text for name in TABLES for key, text in table(name).items()}
