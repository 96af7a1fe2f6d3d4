"""Estimates of the time of a chain of two products whose products and loops are separate kernels."""

from __future__ import annotations

from gensor_gym.chains.chain import Chain
from gensor_gym.cost.roofline import bandwidth_of
from gensor_gym.hardware.types import Hardware
from gensor_gym.operators.types import ITEM_BYTES

APART = 2.0
"""Time of separate kernels over the least that they can take (`least_apart`): our assumption."""


def least_apart(chain: Chain, hardware: Hardware) -> float:
    """Return a lower bound in seconds on the time of three separate kernels, without their arithmetic. It is our own estimate.

    It counts three launches, the traffic of all tensors, and writing and reading scores and weights.
    """
    scores = chain.elements * chain.rows * chain.columns
    nbytes = chain.graph.compulsory_bytes + 4 * ITEM_BYTES[chain.dtype] * scores
    return 3 * hardware.launch_overhead + nbytes / bandwidth_of(nbytes, hardware)


def is_faster_apart(chain: Chain, cpu: Hardware) -> bool:
    """Return whether separate kernels are faster on a CPU whose tile registers (AMX) multiply the chain's data type.

    The chain's kernel multiplies in float32 vectors, and leaves out the tiles that a causal mask hides. In bfloat16, attention of
    128 to 1024 rows takes 0.55 to 0.78 of the time in separate kernels, of 512 rows with a causal mask 0.99, and of Swin's 49
    rows more than in one (one core of an Intel Xeon with AMX).
    """
    tiles = dict(cpu.tensor_peak).get(chain.dtype, 0.0)
    if not tiles:
        return False
    flops = chain.elements * sum(product.flops for product in chain.products)
    seen = 1.0 if chain.diagonal is None else 0.5
    return seen * flops / cpu.peak_of("float32") > APART * (least_apart(chain, cpu) + flops / tiles)
