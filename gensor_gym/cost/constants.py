"""Constants of the CPU model: costs of generated C that no data sheet states, in cycles, instructions or shares.

Each has an index among the floats of a task (`graph.tables.tables`), so that a fit changes data and not code. The values in
`cpu_constants.json` were fitted by `python -m experiments.bench suite=model fit=constants` to timings of operators of the train
part of split v1; the file names device, date and operators. They describe the code that is generated, not one machine: rates and
sizes of a machine are in its `Hardware`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib import resources

from gensor_gym.graph.tables.tables import CONSTANT, NUM_CONSTANTS
from gensor_gym.operators.inputs import ARRAY_OFFSET

FILE = "cpu_constants.json"


@dataclass(frozen=True)
class Constant:
    """A constant of the CPU model, fitted to timings: its value at the start of a fit (an order of magnitude), and its range."""

    name: str
    start: float
    low: float
    high: float
    meaning: str


CPU_CONSTANTS: tuple[Constant, ...] = (
    Constant("guarded", 2.0, 0.2, 20.0, "instructions to see whether a line lies inside the tensor, where it may be padding"),
    Constant("masked", 3.0, 0.2, 20.0, "instructions besides a load where lanes may be padding"),
    Constant("call_cycles", 5.0, 0.2, 100.0, "cycles: pointer set-up and loop control of one micro-kernel call"),
    Constant("task_cycles", 50.0, 1.0, 2000.0, "cycles to begin a task"),
    Constant("gather_lane", 2.0, 0.5, 8.0, "load slots of a lane that is gathered"),
    Constant("pair_loads", 3.0, 1.5, 8.0, "load slots of a vector of lanes two elements apart"),
    Constant("loop_overhead", 2.0, 0.5, 8.0, "instructions of a step of the reduction loop besides loads and FMAs"),
    Constant("decode", 5.0, 2.0, 8.0, "instructions a cycle"),
    Constant("decode_groups", 5.0, 2.0, 8.0, "the same where int8 elements are multiplied in groups of four"),
    Constant("prefetches", 1.0, 0.1, 3.0, "load slots of a software prefetch"),
    Constant("carry_cycles", 3.0, 0.5, 100.0, "cycles to carry a vector of partial sums through the output"),
    Constant("pack_rows", 0.3, 0.02, 10.0, "cycles to pack an element, lines staying lines"),
    Constant("pack_bytes", 0.2, 0.02, 10.0, "the same where elements are bytes"),
    Constant("pack_across", 0.4, 0.05, 10.0, "cycles to pack an element, lines becoming columns of panels"),
    Constant("pack_line", 5.0, 1.0, 200.0, "cycles to begin a line of a packed box"),
    Constant("pack_call", 100.0, 10.0, 2000.0, "cycles to begin packing a box"),
    Constant("store", 1.0, 0.3, 10.0, "cycles to begin and store an accumulator"),
    Constant("store_row", 10.0, 1.0, 100.0, "cycles to store a piece of a row of pixels of a shifted product"),
    Constant("fold", 1.0, 0.2, 10.0, "cycles of a step of adding up lanes"),
    Constant("scattered_lane", 1.0, 0.1, 10.0, "cycles to store a lane of an output that is not contiguous along it"),
    Constant("function", 10.0, 1.0, 100.0, "cycles of a vector of a function such as GELU"),
    Constant("split_loads", 0.5, 0.02, 2.0, "load slots more for a vector that lies in two cache lines"),
    Constant("run_bytes", 64.0, 4.0, 512.0, "bytes that beginning a run of neighbouring cache lines costs"),
    Constant("near", 1.0, 0.1, 3.0, "time of bytes from L2 over that at its bandwidth"),
    Constant("far", 1.0, 0.3, 3.0, "time of bytes from the last cache over that at its bandwidth"),
    Constant("ungrouped", 17.0, 2.0, 50.0, "time of an int8 multiply-add element by element over one in groups of four"),
    Constant("overlap", 0.5, 0.02, 1.0, "share of the smaller of compute and memory time that the larger does not hide"),
)
"""All constants of the CPU model, in the order of their indices from `CONSTANT` on."""

(
    GUARDED, MASKED, CALL_CYCLES, TASK_CYCLES, GATHER_LANE, PAIR_LOADS, LOOP_OVERHEAD, DECODE, DECODE_GROUPS,
    PREFETCHES, CARRY_CYCLES, PACK_ROWS, PACK_BYTES, PACK_ACROSS, PACK_LINE, PACK_CALL, STORE, STORE_ROW, FOLD,
    SCATTERED_LANE, FUNCTION, SPLIT_LOADS, RUN_BYTES, NEAR, FAR, UNGROUPED, OVERLAP,
) = range(CONSTANT, CONSTANT + len(CPU_CONSTANTS))  # fmt: skip

PAST_LINE = CONSTANT + len(CPU_CONSTANTS)
"""Index of a value that is not fitted: the bytes by which inputs begin after the start of a cache line. It is ARRAY_OFFSET on the
host, where kernels are timed and called, and 0 on all other machines (and in the timings of the fit)."""

assert len(CPU_CONSTANTS) < NUM_CONSTANTS


@cache
def shipped_constants() -> dict[str, object]:
    """Return the fitted constants that ship: {"values": {name: value}, "device", "date", "operators", ..}."""
    return json.loads((resources.files("gensor_gym.cost") / FILE).read_text(encoding="utf-8"))


@cache
def constant_values(hardware: str) -> tuple[float, ...]:
    """Return the values of `CPU_CONSTANTS` for a machine, in order, then that of `PAST_LINE`.

    The latter is 0 for all machines but `host`. A constant that the fit lacks has the value at which fits start (`start`).
    """
    values: dict[str, float] = shipped_constants()["values"]  # type: ignore[assignment]
    fitted = (float(values.get(constant.name, constant.start)) for constant in CPU_CONSTANTS)
    return (*fitted, ARRAY_OFFSET if hardware == "host" else 0.0)
