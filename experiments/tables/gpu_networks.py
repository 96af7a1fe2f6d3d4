"""Networks compiled for GPUs with the model's schedules, without a GPU: `python -m experiments.reproduce table=gpu_networks`.

Every kernel is compiled by NVRTC for the machine. No time is measured; the model predicts the times.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from omegaconf import DictConfig

import gensor_gym
from agents.networks import CompiledNetwork
from experiments.networks.suite import in_type, operations
from experiments.studies.study import Stamp
from experiments.tables.networks import megabytes
from experiments.tables.table import Cell, Table
from gensor_gym.chains.chain import is_chain
from gensor_gym.codegen.cuda.nvrtc import compile_cubin
from gensor_gym.cost.roofline import roofline_floor
from gensor_gym.dataflow.graph import Dataflow
from gensor_gym.measure.stats.floor import warm_floor
from gensor_gym.networks.gpu.function import GpuNetwork
from gensor_gym.operators.types import Operator

NETWORKS = ("resnet34", "resnet50", "mobilenet_v2", "bert_of_ids", "gpt2_of_ids")
"""Whole networks of Gensor's figures 9 to 12."""
TYPES = ("float32", "bfloat16")
MACHINES = ("a100", "rtx4090", "h100")
"""Machines of three architectures: sm_80, sm_89 and sm_90a."""
ASKED: dict[str, Any] = {"backend": "analytic", "trials": 1, "reuse": False}
MOST = 3
"""Number of kinds of kernels that are listed with their share of the predicted time."""
NOTES = (
    "Batch 1, images of 224 x 224, 128 tokens; random weights. Kernels are the best of one search by the model of the "
    "machine that NVRTC compiles without spills, one network one CUDA graph. No GPU has run them.",
    "Predicted: the sum of the kernels' times by the model. Floor: the sum of their roofline floors, each kernel's arrays in the "
    "device's memory.",
    "Launches of torch: operations of the exported program that are not views, each at least one kernel in eager mode.",
    "Between kernels: bytes of the block of memory, over the least that any placement needs.",
)


def row_of(name: str, dtype: str, network: CompiledNetwork, torchs: int) -> tuple[Cell, ...]:
    """Return the table row of a network in a data type on a machine.

    `torchs` is the number of operations for which torch launches kernels.
    """
    function, layout = network.function, network.function.layout
    assert isinstance(function, GpuNetwork)
    cubins = [compile_cubin(kernel) for kernel in {kernel.digest: kernel for kernel in network.kernels}.values()]
    predicted = sum(result.seconds for result in network.results)
    floor = sum(floor_of(result.task.operator, network) for result in network.results)
    shares: dict[str, float] = {}
    for result in network.results:
        op = result.task.operator
        kind = op.name if isinstance(op, Operator) else "chain" if is_chain(op) else "rows"
        shares[kind] = shares.get(kind, 0.0) + result.seconds / predicted
    slowest = sorted(shares.items(), key=lambda item: -item[1])[:MOST]
    return (
        name, dtype, network.hardware.name, float(len(network.kernels)), float(len(cubins)),
        float(function.launches), float(torchs), megabytes(layout.arena.bytes), layout.arena.bytes / layout.needed,
        megabytes(layout.fixed_bytes), 1e3 * predicted, 1e3 * floor, floor / predicted,
        float(sum(one.spill_bytes > 0 for one in cubins)), float(max(one.registers for one in cubins)),
        ", ".join(f"{kind} {share:.0%}" for kind, share in slowest),
    )  # fmt: skip


def floor_of(op: Operator | Dataflow, network: CompiledNetwork) -> float:
    """Return the seconds of a kernel's roofline floor, if its arrays are in the device's memory."""
    if isinstance(op, Operator):
        return roofline_floor(op, network.hardware)
    return max(warm_floor(op, network.hardware), op.compulsory_bytes / network.hardware.memory[-1].bandwidth)


def make(config: DictConfig, folder: Path) -> list[Table]:
    """Make the table of networks and machines; `limit` is the largest number of networks."""
    rows = []
    for name in NETWORKS[: config.limit]:
        for dtype in TYPES:
            module, inputs = in_type(name, dtype)
            torchs = operations(module, inputs)
            for machine in MACHINES:
                made = gensor_gym.compile(module, inputs, hardware=machine, **ASKED)
                rows.append(row_of(name, dtype, made, torchs))
    columns = (
        "network", "type", "machine", "kernels", "different", "launches", "launches of torch", "between kernels",
        "over the least", "constants", "predicted ms", "floor ms", "floor over predicted", "kernels that spill", "most registers",
        "where the time goes",
    )  # fmt: skip
    return [Table("Networks compiled for GPUs", Stamp.PREDICTED, columns, tuple(rows), NOTES)]
