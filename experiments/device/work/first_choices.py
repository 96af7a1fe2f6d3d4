"""The model's first choices for some operators, written before any device run, and the first choices that a device tries.

Choices in a file from before the measurement are independent of it: their times show how well the model ranks.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from agents.core.ranking import diverse
from agents.gensor.markov import MarkovExtended
from experiments.common.settings import ROOT
from gensor_gym.construction import ConstructionGraph
from gensor_gym.foreign.files import read_text
from gensor_gym.foreign.jsons import parse_object
from gensor_gym.graph.schedule import Schedule
from gensor_gym.hardware.types import Hardware
from gensor_gym.operators.types import Operator

FIRST_CHOICES = ROOT / "results" / "gpu_ranking" / "first_ten.json"
"""File of schedules in the model's order, by machine and operator."""


def top(op: Operator | str, hw: Hardware, count: int) -> list[Schedule]:
    """The first `count` programs of the model's ranking in space `extended`, as the traverser constructs and orders them."""
    traverser = MarkovExtended()
    built = traverser.construct(ConstructionGraph(op, hw, traverser.space), np.random.default_rng(0))
    return list(diverse(built.schedules, traverser.per_register_tile))[:count]


def first_choices(op: Operator, hw: Hardware, file: Path = FIRST_CHOICES) -> list[Schedule]:
    """The file's schedules of an operator that are still legal, in order; ValueError for an invalid file."""
    if not file.exists():
        return []
    texts = parse_object(read_text(file)).get(hw.name, {}).get(str(op), [])
    graph = ConstructionGraph(op, hw, MarkovExtended().space)
    return [schedule for schedule in map(Schedule.parse, texts) if graph.is_legal(schedule)]
