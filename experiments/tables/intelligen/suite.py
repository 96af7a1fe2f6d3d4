"""Tables from the results of `suite=fused`: the suite next to the averages of IntelliGen's abstract, and Ansor's NRM."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from omegaconf import DictConfig

from agents.runs.journal import read_rows
from agents.runs.settings import ROOT
from agents.runs.sheets.cells import factor
from agents.runs.texts import seconds_text
from experiments.benches.fused import suite
from experiments.tables.table import Cell, Stamp, Table
from gensor_gym import hardware as machines
from gensor_gym.codegen.cuda import nvrtc
from gensor_gym.codegen.gir.cuda.generate import generate_gir_cuda
from gensor_gym.codegen.gir.generate import GirProgram
from gensor_gym.dataflow.table import fused_operator, source, stand_in
from gensor_gym.gir.graph import GirGraph
from gensor_gym.measure.stats.intervals import LEVEL

# Facts about fused operators on a GPU without a device: the program of each that the model predicts to be fastest, by NVRTC.

MODEL_OF = "h100"
LARGE = (
    "softmax(m=16384, n=4096)", "layernorm(m=16384, n=4096)", "rmsnorm(m=16384, n=4096)", "add_layernorm(m=16384, n=4096)",
    "swiglu(m=8192, n=11008)", "bias_gelu(m=16384, n=4096)",
)  # fmt: skip
"""Large operators, with tensors of 256 MB and more, for which a device's copy rate is a fair reference."""
TARGET = 0.85
"""Aim for the large operators on a device, as a share of its copy rate."""


def predicted(config: DictConfig) -> Table:
    """Make the table of what the model and NVRTC say about each operator of the suite and each large operator.

    Without NVRTC its columns are empty.
    """
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


LINES = ROOT / "results" / "host" / "fused_intel_one_thread.jsonl"
"""File of results that is part of the repository."""
PUBLISHED = {"NVIDIA GPU": (1.28, 1.97), "AMD GPU": (1.23, 2.93), "Cambricon MLU": (2.31, 16.91)}
"""Kind of machine -> (average, largest) speed-up in the abstract, over "current most performant frameworks", not named there."""
_NRM = "nrm/"
Row = dict[str, Any]


def tables(path: Path, limit: int | None) -> list[Table]:
    """Make the tables of the suite and of Ansor's NRM from a file of results, with at most `limit` operators.

    Raise ValueError unless the file has operators compared with peers, from one run.
    """
    lines = list(read_rows(path))
    timed = [row for row in lines if row.get("kind") == "operator" and suite.HEADLINE in row]
    machines = [row for row in lines if row.get("kind") == "machine"]
    if not timed or len(machines) != 1:
        raise ValueError(f"{path}: expected lines of one run of `python -m experiments.bench suite=fused` with its peers")
    conditions = _conditions(machines[0], timed)
    norms = [row for row in timed if str(row["id"]).startswith(_NRM)]
    found = [_suite(timed[:limit], conditions)]
    return [*found, _norms(norms[:limit], conditions)] if norms else found


def _conditions(machine: Row, timed: Sequence[Row]) -> str:
    threads, versions = machine["threads"], ", ".join(f"{name} {version}" for name, version in machine["versions"].items())
    return (
        f"Ours: {machine['processor']}, {threads} thread{'s' * (threads > 1)}, {machine['date'][:10]}, float32; {versions}. "
        f"Best of {timed[0]['trials']} programs measured, then {machine['rounds']} rounds in turns, a process for each library, "
        f"over the fastest of torch eager, torch.compile and ONNX Runtime; in brackets {LEVEL} intervals."
    )


def _suite(timed: Sequence[Row], conditions: str) -> Table:
    ordered = sorted(timed, key=lambda row: float(row[suite.HEADLINE]["median"]))
    rows: list[tuple[Cell, ...]] = [
        (row["operator"], factor(row[suite.HEADLINE]).text, row["best"], factor(row[suite.HEADLINE_INNER]).text,
         row["bytes_per_second"] / 1e9, None)
        for row in ordered
    ]  # fmt: skip
    whole = suite.overall(timed)
    average, most = (", ".join(f"{name} {found[place]:g}" for name, found in PUBLISHED.items()) for place in (0, 1))
    ours, inner = ([float(row[name]["median"]) for row in timed] for name in (suite.HEADLINE, suite.HEADLINE_INNER))
    geometric, geometric_inner = (factor(whole[name]).text for name in (suite.HEADLINE, suite.HEADLINE_INNER))
    rows += [
        (f"geometric mean of {len(timed)}", geometric, None, geometric_inner, None, average),
        ("arithmetic mean", fmean(ours), None, fmean(inner), None, average),
        ("at most", max(ours), None, max(inner), None, most),
    ]
    columns = (
        "operator", "over the fastest library, ours", "which", "without torch.compile's calls, ours", "GB/s, ours", "published",
    )  # fmt: skip
    notes = (
        conditions,
        "The suite is a stand-in. " + source(),
        "Published: averages and the most of the abstract of arXiv 2307.04995, on GPUs and an MLU that it does not name, over "
        "frameworks, operators and shapes that are not public. Which mean was taken is not said, so both stand here.",
        "Rows do not compare with anything published; means compare as ratios over libraries on another kind of machine. What "
        "differs: one thread of a CPU, where a value kept between passes lies in a cache anyway, so that placement is worth less "
        "than on a GPU, and calls that take microseconds, of which what a framework adds is a large share.",
    )
    return Table("IntelliGen: a stand-in for its operators", Stamp.REPLICATED, columns, tuple(rows), notes)


def _norms(timed: Sequence[Row], conditions: str) -> Table:
    rows: tuple[tuple[Cell, ...], ...] = tuple(
        (
            row["operator"], row["schedule"], row["bytes_per_second"] / 1e9,
            *(_seconds(row, name) for name in ("ours", "eager", "inductor", "onnxruntime")), factor(row[suite.HEADLINE]).text,
            "Ansor",
        )
        for row in timed
    )  # fmt: skip
    columns = (
        "operator", "schedule", "GB/s, ours", "us, ours", "torch eager", "torch.compile", "ONNX Runtime",
        "over the fastest, ours", "best, published",
    )  # fmt: skip
    notes = (
        conditions,
        "Table `ansor` has NRM as the sum alone: one loop nest says no more. Here is all of it, at batch 1; 4096^2 is ours.",
        "Published (Ansor, figure 6): Intel CPU with 18 cores, against PyTorch, Halide's auto-scheduler, FlexTensor and AutoTVM; "
        "Ansor is best in class NRM, by a reduction in parallel. The bars' numbers are in an image and not at hand.",
        "One thread: nothing here says how the sum of one long row would be shared between cores.",
    )
    return Table("Ansor's NRM as a whole", Stamp.REPLICATED, columns, rows, notes)


def _seconds(row: Row, name: str) -> float | None:
    found = suite.time_of(row, name)
    return None if found is None else float(found["median"]) * 1e6
