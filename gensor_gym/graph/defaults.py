"""The initial program, and the rule that sets knobs in spaces without knob actions.

The rule depends on the operator and the hardware only, so all strategies share it.

On a GPU: the widest aligned load, padded rows in shared memory, and a reduction step unrolled by 4. (Roller's generated code
copies in vectors and unrolls; it never splits the reduction.)

On a CPU the reduction is unrolled by 4. An operand of a product is packed if other output tiles read it again (some spatial axis
longer than 1 does not index it) and it is larger than 16 KiB or strides along the vector axis. A conv2d is a shifted matrix
product: one product of matrices for each element of the window. Its image is copied if necessary, and its weights are not (the
fastest program of every train operator in `results/host/model_timings.jsonl.gz` does this). Constant weights are always packed,
because packing them takes no time in a call; vectors of a convolution then contain channels.
"""

from __future__ import annotations

import numpy as np

from gensor_gym.graph.knobs import KNOB_INDEX, KNOBS
from gensor_gym.graph.schedule import make_row
from gensor_gym.graph.structure import needs_copy, vector_axis
from gensor_gym.graph.tables.layout import KNOB, MAX_AXES, MAX_LEVELS
from gensor_gym.graph.tables.tables import KNOB_BITS
from gensor_gym.hardware.types import Hardware
from gensor_gym.operators.traits import has_channel_lanes, is_convolution, is_product, weights
from gensor_gym.operators.types import Access, Operator


def initial_row(op: Operator, hardware: Hardware, ints: np.ndarray) -> np.ndarray:
    """Return the row of the unscheduled program: tiles and virtual threads 1, level 0, knobs by the rule of this module."""
    wanted = gpu_knobs() if hardware.kind == "gpu" else cpu_knobs(op)
    row = make_row([[1] * MAX_AXES] * MAX_LEVELS, [1] * MAX_AXES, 0)
    for name, value in wanted.items():
        index = KNOB_INDEX[name]
        usable = [i for i in range(len(KNOBS[index].values)) if ints[KNOB_BITS + index] >> i & 1]
        fitting = [i for i in usable if KNOBS[index].values[i] <= value]
        row[KNOB + index] = max(fitting) if fitting else min(usable)
    return row


def gpu_knobs() -> dict[str, int]:
    """Return the value that the default rule wants for each knob on a GPU, by the knob's name.

    The program gets the largest usable value that is not above it.
    """
    return {"vector": 4, "shared_layout": 1, "unroll": 4}


def cpu_knobs(op: Operator) -> dict[str, int]:
    """Return the value that the default rule wants for each knob on a CPU, by the knob's name."""
    if has_channel_lanes(op) and (op.frozen or not is_convolution(op)):
        return {"unroll": 4, "convolution": 1, "pack_a": int(op.reads[0].is_padded(op.extents)), "pack_b": 1}
    if is_convolution(op):
        return {"unroll": 4, "convolution": 2, "pack_a": int(needs_copy(op)), "pack_b": 0}
    return {"unroll": 4, **{f"pack_{'ab'[i]}": int(_wants_pack(op, read)) for i, read in enumerate(op.reads[:2])}}


def _wants_pack(op: Operator, read: Access) -> bool:
    """Whether the default rule packs an operand of a product (see the module's docstring)."""
    strides = read.axis_strides()
    reused = is_product(op) and any(strides[a] == 0 and op.axes[a].extent > 1 for a in op.spatial)
    large = read.tensor.nbytes > 1 << 14
    kept = op.frozen and read is weights(op)
    return kept or (reused and (large or strides[vector_axis(op, 0)] > 1))
