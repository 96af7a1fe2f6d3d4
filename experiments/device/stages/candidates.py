"""Programs of an operator worth trying: the first of the model's rankings over both spaces, and the best of every kind.

Before them come choices in a file that was written before any device run. These are independent of the measurement: their times
show how well the model ranks.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from agents.core.ranking import best_of_each, diverse
from agents.gensor.markov import Markov, MarkovExtended
from agents.runs.settings import ROOT
from experiments.device.work.makers import Programs
from gensor_gym import hardware
from gensor_gym.construction import ConstructionGraph
from gensor_gym.foreign.files import read_text
from gensor_gym.foreign.jsons import parse_object
from gensor_gym.graph.knobs import KNOB_INDEX
from gensor_gym.graph.schedule import Schedule
from gensor_gym.graph.tables.layout import KNOB
from gensor_gym.hardware.types import Hardware
from gensor_gym.measure.native import make_kernel
from gensor_gym.operators.types import Operator

FIRST_CHOICES = ROOT / "results" / "gpu_ranking" / "first_ten.json"
"""File of schedules in the model's order, by machine and operator."""
COUNTS: dict[type[Markov], int] = {MarkovExtended: 36, Markov: 12}
"""Number of candidates from each ranking: three of four are from the extended space."""
FIRST = 3
"""Number of a ranking's first programs that come before the best of every kind."""
_KIND = [KNOB + KNOB_INDEX[name] for name in ("tensor_core", "convolution")]
"""Row indices of the knobs that define kinds of programs. The model errs most between kinds."""


def candidates(op: Operator, hw: Hardware, seed: int) -> list[Schedule]:
    """Distinct schedules: the recorded first choices, then the most promising by the model.

    The first candidates come from both spaces, because the time may run out.
    """
    ranked = []
    for strategy, count in COUNTS.items():
        chosen = strategy()
        graph = ConstructionGraph(op, hw, chosen.space)
        built = chosen.construct(graph, np.random.default_rng(seed))
        ranking = diverse(built.schedules, chosen.per_register_tile)
        kinds = best_of_each(_KIND, graph.stack(list(built.schedules)), np.array(built.latencies))
        order = dict.fromkeys([*ranking[:FIRST], *map(Schedule, kinds), *ranking])
        ranked += [((place + 0.5) / count, schedule) for place, schedule in enumerate(list(order)[:count])]
    ranked.sort(key=lambda pair: pair[0])
    return list(dict.fromkeys([*first_choices(op, hw), *(schedule for _, schedule in ranked)]))


def made(op: Operator, machine: str, seed: int) -> Programs:
    """The candidates with their kernels."""
    hw = hardware.get(machine)
    return [(schedule, make_kernel(op, schedule, hw)) for schedule in candidates(op, hw, seed)]


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
