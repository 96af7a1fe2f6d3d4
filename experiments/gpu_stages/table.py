"""What the stages time: conf/bench/gpu.yaml, read without Hydra, which a GPU machine need not have."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import yaml

from gensor_gym import operators
from gensor_gym.operators.types import Operator

FILE = Path(__file__).resolve().parents[2] / "conf" / "bench" / "gpu.yaml"


@dataclass(frozen=True)
class Table:
    """Operators of every stage that times, and the comparison's strategies and trials."""

    operators: dict[str, Operator]
    """By a short name, in order of importance."""
    tables: tuple[Operator, ...]
    compare: tuple[Operator, ...]
    strategies: tuple[str, ...]
    trials: int


@cache
def read_table(file: Path = FILE) -> Table:
    """The file's content. ValueError for an operator that does not parse or one of the test part among `tables`."""
    content = yaml.safe_load(file.read_text(encoding="utf-8"))
    tables = tuple(map(operators.parse, content["tables"]))
    for op in tables:
        if operators.part_of(op) == "test":
            raise ValueError(f"{file.name}: the model is fitted on `tables`, and {op} is of the test part")
    return Table(
        {name: operators.parse(text) for name, text in content["operators"].items()},
        tables,
        tuple(map(operators.parse, content["compare"])),
        tuple(content["strategies"]),
        int(content["trials"]),
    )
