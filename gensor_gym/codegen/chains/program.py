"""A schedule of a chain of two products on a machine, the input of the generators of all languages."""

from __future__ import annotations

from dataclasses import dataclass

from gensor_gym.chains.chain import Chain
from gensor_gym.chains.gpu.schedule import GpuChainSchedule
from gensor_gym.chains.schedule import ChainSchedule
from gensor_gym.hardware.types import Hardware

AnyChainSchedule = ChainSchedule | GpuChainSchedule


@dataclass(frozen=True)
class ChainProgram:
    """A schedule of a chain of two products (attention) on a machine."""

    chain: Chain
    schedule: AnyChainSchedule
    hardware: Hardware
