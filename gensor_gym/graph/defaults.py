"""Where construction starts, and the one rule that gives knobs to spaces without knob actions.

The rule looks at the operator and the hardware only, so it is the same for every strategy:
GPU: the widest aligned load, shared rows padded, the reduction step unrolled by 4 (Roller's generated code copies in
vectors and unrolls; it never splits the reduction). CPU: an operand of a product is packed when other output tiles read
it again (some spatial axis longer than 1 is missing from it) and it is larger than 16 KiB or strides along the vector
axis, and any padded operand of a reduction (else tiles at the border run guarded); a conv2d with at least one vector of
output channels runs its vectors over channels and packs its weights; the reduction is unrolled by 4.
"""

from __future__ import annotations

import numpy as np

from gensor_gym.graph.knobs import KNOB_INDEX, KNOBS
from gensor_gym.graph.layout import KNOB, MAX_AXES, MAX_LEVELS
from gensor_gym.graph.schedule import make_row
from gensor_gym.graph.structure import vector_axis
from gensor_gym.graph.tables import KNOB_BITS
from gensor_gym.hardware.types import Hardware
from gensor_gym.operators.types import Access, Operator


def initial_row(op: Operator, hardware: Hardware, ints: np.ndarray) -> np.ndarray:
    """The unscheduled program's row: tiles and virtual threads 1, level 0, knobs by the rule."""
    wanted = gpu_knobs() if hardware.kind == "gpu" else cpu_knobs(op, hardware)
    row = make_row([[1] * MAX_AXES] * MAX_LEVELS, [1] * MAX_AXES, 0)
    for name, value in wanted.items():
        index = KNOB_INDEX[name]
        usable = [i for i in range(len(KNOBS[index].values)) if ints[KNOB_BITS + index] >> i & 1]
        fitting = [i for i in usable if KNOBS[index].values[i] <= value]
        row[KNOB + index] = max(fitting) if fitting else min(usable)
    return row


def gpu_knobs() -> dict[str, int]:
    """Knob values wanted on a GPU; the largest usable value not above each is taken."""
    return {"vector": 4, "shared_layout": 1, "unroll": 4}


def cpu_knobs(op: Operator, hardware: Hardware) -> dict[str, int]:
    """Knob values wanted on a CPU."""
    channels = dict(op.arguments).get("k", 0) if op.name == "conv2d" else 0
    convolution = int(op.name == "conv2d" and op.axes[op.channel_axis].extent >= hardware.lanes and bool(channels))
    packs = {f"pack_{'ab'[i]}": int(_wants_pack(op, read, convolution)) for i, read in enumerate(op.reads[:2])}
    if convolution:
        packs["pack_b"] = 1
    return {"unroll": 4, "convolution": convolution, **packs}


def _wants_pack(op: Operator, read: Access, convolution: int) -> bool:
    """Whether the rule packs this read (see the module's text)."""
    if not op.reduce:
        return False
    if read.is_padded(op.extents):
        return True
    strides = read.axis_strides()
    reused = op.body == "multiply_add" and any(strides[a] == 0 and op.axes[a].extent > 1 for a in op.spatial)
    large = read.tensor.nbytes > 1 << 14
    strided = strides[vector_axis(op, convolution)] > 1
    return reused and (large or strided)
