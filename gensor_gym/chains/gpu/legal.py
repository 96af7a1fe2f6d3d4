"""Conditions under which a chain of two products has a kernel on a GPU's tensor cores."""

from __future__ import annotations

from gensor_gym.chains.chain import Chain
from gensor_gym.chains.gpu.boxes import boxes_of
from gensor_gym.dataflow.nodes import HALVES
from gensor_gym.gir.nest import Access
from gensor_gym.hardware.types import Hardware

_FIRST = 80
"""Compute capability 8.0, the first with asynchronous copies and with instructions of 16 elements along the reduction."""


def check(chain: Chain, hardware: Hardware) -> None:
    """Check that a chain of two products has a kernel on a GPU's tensor cores; ValueError with the reason if not."""
    if fault := _fault(chain, hardware):
        raise ValueError(f"{chain.graph.name} on {hardware.name}: {fault}")


def has_wgmma(chain: Chain, hardware: Hardware) -> bool:
    """Return whether a chain also has a kernel with wgmma, in addition to mma.sync.

    The machine must be sm_90, and tensor maps must be able to describe all operands.
    """
    return hardware.arch == "sm_90" and boxes_of(chain) is not None


def _fault(chain: Chain, hardware: Hardware) -> str:
    arch = hardware.arch
    if not arch.startswith("sm_") or int(arch[3:].rstrip("a")) < _FIRST:
        return f"chains have kernels from sm_{_FIRST} on, found {arch}"
    if chain.dtype not in HALVES:
        return f"products of {chain.dtype}, expected {' or '.join(HALVES)} for tensor cores"
    if (kind := chain.graph.values[chain.weights].dtype) != chain.dtype:
        return f"weights {chain.weights} are kept in {kind}, expected {chain.dtype}, which tensor cores multiply"
    if chain.middle is not None and chain.columns == 1:
        return "rows of one column between the products, expected two or more"
    for cell in chain.middle.cells if chain.middle is not None else ():
        if isinstance(cell.made, Access) and cell.made.chosen is not None:
            return f"ids choose rows of {cell.made.tensor} between the products, expected plain tensors"
    return ""
