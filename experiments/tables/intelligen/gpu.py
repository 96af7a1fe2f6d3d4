"""Facts about fused operators on a GPU without a device: each operator's best program by the model, compiled by NVRTC."""

from __future__ import annotations

from omegaconf import DictConfig

from agents.runs.texts import seconds_text
from experiments.tables.intelligen.suite import PUBLISHED
from experiments.tables.table import Cell, Stamp, Table
from gensor_gym import hardware as machines
from gensor_gym.codegen.cuda import nvrtc
from gensor_gym.codegen.gir.cuda.generate import generate_gir_cuda
from gensor_gym.codegen.gir.generate import GirProgram
from gensor_gym.dataflow.table import fused_operator, source, stand_in
from gensor_gym.gir.graph import GirGraph

MODEL_OF = "h100"
LARGE = (
    "softmax(m=16384, n=4096)", "layernorm(m=16384, n=4096)", "rmsnorm(m=16384, n=4096)", "add_layernorm(m=16384, n=4096)",
    "swiglu(m=8192, n=11008)", "bias_gelu(m=16384, n=4096)",
)  # fmt: skip
"""Operators with tensors of 256 MB and more, for which a device's copy rate is a fair reference."""
TARGET = 0.85
"""Aim on a device, as a share of the memory's rate."""


def predicted(config: DictConfig) -> Table:
    """Table with a row for each operator of the suite and each large operator; without NVRTC its columns are empty."""
    chosen = [*list(stand_in())[: config.limit], *LARGE[: config.limit]]
    columns = (
        "operator", "schedule", "time by the model", "share of the floor's speed", "launches", "registers", "spilled bytes",
        "shared bytes", "would be pruned",
    )  # fmt: skip
    notes = (
        f"No device ran any of this. Times are of {MODEL_OF}'s model, of each operator's best program; the floor is the time of "
        f"its inputs and outputs at the memory's speed. Target with a device: {TARGET:g} of what it copies, for operators of "
        f"256 MB and more (the last {len(LARGE)}), and 1.0 over the best of torch eager and compiled; IntelliGen's averages on "
        f"NVIDIA GPUs are {PUBLISHED['NVIDIA GPU'][0]:g}, at most {PUBLISHED['NVIDIA GPU'][1]:g}.",
        f"Registers and spills: NVRTC {nvrtc.version()} for {machines.get(MODEL_OF).arch}, the most of any launch and the sum."
        if nvrtc.is_available()
        else "NVRTC is not installed here: pip install nvidia-cuda-nvrtc.",
        "The suite is a stand-in. " + source(),
    )
    rows = tuple(_row(text) for text in chosen)
    return Table(f"Fused operators on {MODEL_OF}: prediction and what NVRTC says", Stamp.PREDICTED, columns, rows, notes)


def _row(text: str) -> tuple[Cell, ...]:
    graph = GirGraph(fused_operator(text), machines.get(MODEL_OF))
    schedule, seconds = graph.optimum()
    kernel = generate_gir_cuda(GirProgram(graph.nest, schedule, graph.hardware))
    shared, share = max(launch.shared_bytes for launch in kernel.launches), graph.floor / seconds
    known: tuple[Cell, ...] = (str(graph.operator), str(schedule), seconds_text(seconds), share, len(kernel.launches))
    if not nvrtc.is_available():
        return (*known, None, None, shared, None)
    made = nvrtc.compile_cubin(kernel)
    return (*known, made.registers, made.spill_bytes, shared, made.loss or "no")
