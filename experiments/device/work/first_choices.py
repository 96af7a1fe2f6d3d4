"""The model's own first choices of some operators, written before a device is at hand, and what of them a device tries first.

Choices that stand in a file before the device is asked cannot have seen its answers: what they cost says how the model ranks.
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
"""By machine and operator, schedules in the model's order."""


def top(op: Operator | str, hw: Hardware, count: int) -> list[Schedule]:
    """The first `count` programs of the model's ranking in space `extended`, as the traverser constructs and orders them."""
    traverser = MarkovExtended()
    built = traverser.construct(ConstructionGraph(op, hw, traverser.space), np.random.default_rng(0))
    return list(diverse(built.schedules, traverser.per_register_tile))[:count]


def first_choices(op: Operator, hw: Hardware, file: Path = FIRST_CHOICES) -> list[Schedule]:
    """Those that the file has of an operator and that are legal today, in order; ValueError for a file that is none."""
    if not file.exists():
        return []
    texts = parse_object(read_text(file)).get(hw.name, {}).get(str(op), [])
    graph = ConstructionGraph(op, hw, MarkovExtended().space)
    return [schedule for schedule in map(Schedule.parse, texts) if graph.is_legal(schedule)]
