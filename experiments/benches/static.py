"""Report on compiled GPU kernels from the assembler and the disassembler: no GPU is needed.

There is a kernel of each family, an operator with the schedule that its settings describe. For each kernel: registers and the
model's estimate of them, spills, shared memory, resident blocks by the model, the assembler's warnings, the share of
multiply-adds in the main loop, and the loop's instructions for a step of the reduction. For wgmma also the tensor cores' cycles
for the main loop, which should exceed the number of instructions in the loop. A kernel with a `loss` (spills, or wgmma
instructions that wait for one another) would be pruned before timing. The table is static.md (`page`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from omegaconf import DictConfig, OmegaConf

from agents.gensor.markov import MarkovExtended
from agents.runs.files import write_text
from agents.runs.texts import table
from experiments.benches.lines import Lines, machine
from gensor_gym import operators
from gensor_gym.codegen import generate
from gensor_gym.codegen.cuda import nvrtc, sass
from gensor_gym.construction import ConstructionGraph
from gensor_gym.cost.gpu.gpu import resident_blocks
from gensor_gym.graph.resources import registers_of
from gensor_gym.graph.schedule import Schedule, make_row
from gensor_gym.graph.tables.geometry import columns_of, computed_product, reduce_product, spatial_product
from gensor_gym.graph.tables.layout import MAX_AXES, MAX_LEVELS, TENSOR_CORE, slot_of
from gensor_gym.graph.tables.tables import INSTRUCTION_K, PRODUCTS

SPACE = "extended"
SHOWN = ("FFMA", "HMMA", "IMMA", "HGMMA", "IGMMA", "QGMMA", "UTMALDG", "LDGSTS", "LDG", "LDS", "LDSM", "LDL", "STL", "BAR")
"""Instructions of the disassembly that are counted over the whole kernel."""
WGMMA = ("HGMMA", "IGMMA", "QGMMA")
"""Tensor-core instructions of a warpgroup: 64 rows x 32 bytes of k x two columns take a cycle (2,048 16-bit multiply-adds)."""
SERIALISED = "C75"
"""Prefix of the codes of NVRTC's warnings that wgmma instructions wait for one another (NVRTC 13.0: C7510, C7514, C7520)."""

COLUMNS = (
    "kernel", "architecture", "registers", "spilled bytes", "serialised", "main loop", "of it multiply-adds",
    "instructions of a step", "cycles of tensor cores",
)  # fmt: skip


def run(config: DictConfig, emit: Lines) -> None:
    """Compile a kernel of each family for each machine; emit a line for each and one over all, and write the page.

    Raise ValueError if a configured schedule is illegal.
    """
    emit(kind="machine", nvrtc=nvrtc.version(), disassembler=sass.is_available(), **machine())
    families: Any = OmegaConf.to_container(config.static.families, resolve=True)
    lines = []
    for name, family in families.items():
        for hardware in family["machines"]:
            found = evidence(family, hardware, config.seed)
            emit(kind="kernel", family=name, hardware=hardware, **found)
            lines.append(found)
    emit(
        kind="all", kernels=len(lines), with_loss=sum(bool(line["loss"]) for line in lines),
        share_kept=sum(line["kept"] is True for line in lines), share_missed=sum(line["kept"] is False for line in lines),
    )  # fmt: skip
    write_text(emit.path.with_suffix(".md"), page(emit.rows))


def evidence(family: dict[str, Any], hardware: str, seed: int) -> dict[str, Any]:
    """Compile one family's kernel for one machine and return what assembler and disassembler say about it, as a row."""
    graph = ConstructionGraph(operators.parse(family["operator"]), hardware, SPACE)
    schedule = schedule_of(family, graph, seed)
    if not graph.is_legal(schedule):
        raise ValueError(f"{family['operator']} on {hardware}: {schedule} is not legal")
    kernel = generate(graph.operator, schedule, hardware)
    compiled = nvrtc.compile_cubin(kernel)
    main = kernel.main
    row: dict[str, Any] = {
        "operator": family["operator"], "arch": kernel.arch, "schedule": str(schedule), "threads": main.block[0],
        "registers": compiled.registers, "registers_by_model": int(registers_of(schedule.row, graph.tables.ints)),
        "spill_bytes": compiled.spill_bytes, "shared_bytes": main.shared_bytes, "warnings": list(compiled.warnings),
        "resident_blocks_by_model": int(resident_blocks(schedule.row, graph.tables.ints)), "loss": compiled.loss,
        "serialised": any(code.startswith(SERIALISED) for code in compiled.warnings),
        "share_target": family.get("share"), "kept": None,
    }  # fmt: skip
    if sass.is_available():
        step = multiply_adds(schedule, graph.tables.ints)
        row |= _machine_code(compiled.cubin, columns_of(schedule.row, graph.tables.ints), step)
        if row["share_target"] is not None:
            row["kept"] = bool(row["multiply_add_share"] >= row["share_target"] and not compiled.loss)
    return row


def schedule_of(family: dict[str, Any], graph: ConstructionGraph, seed: int) -> Schedule:
    """Return the schedule that a family's settings describe, or the first that `markov_ext` constructs if they describe none."""
    if "register" not in family:
        return MarkovExtended().construct(graph, np.random.default_rng(seed)).schedules[0]
    slots = [slot_of(a, len(graph.operator.spatial)) for a in range(len(graph.operator.axes))]

    def row_of(values: list[int]) -> list[int]:
        row = [1] * MAX_AXES
        for slot, value in zip(slots, values, strict=True):
            row[slot] = value
        return row

    inner, outer = row_of(family["register"]), row_of(family["block"])
    virtual = row_of(family.get("vthread", [1] * len(slots)))
    return Schedule(make_row([inner] + [outer] * (MAX_LEVELS - 1), virtual, 1, family["knobs"]))


def multiply_adds(schedule: Schedule, ints: np.ndarray) -> int:
    """Return the number of multiply-add instructions in a step of the reduction.

    They are the instructions of a thread, of a warp with tensor cores, or of a warpgroup with wgmma.
    """
    row, core = schedule.row, schedule.row[TENSOR_CORE]
    points = int(reduce_product(row, 1, ints))
    if core == 0:
        return int(spatial_product(row, 0, ints)) * points
    chunks = points // int(ints[INSTRUCTION_K])
    if core == 1:
        return int(spatial_product(row, 0, ints)) // 128 * chunks * int(ints[PRODUCTS])
    return int(computed_product(row, 0, ints)) // (64 * int(columns_of(row, ints))) * chunks


def _machine_code(cubin: bytes, columns: int, step: int) -> dict[str, Any]:
    """Disassemble a kernel and count its instructions and those of its main loop.

    `columns` is the width of a wgmma instruction, and `step` the number of multiply-adds in a step of the reduction.
    """
    names = [line.partition(".")[0] for lines in sass.instructions(sass.disassemble(cubin)).values() for line in lines]
    found: dict[str, Any] = {"operations": {name: names.count(name) for name in SHOWN if name in names}}
    try:
        loop = sass.main_loop(cubin)
    except sass.SassError:
        return found | {"main_loop": 0, "multiply_add_share": 0.0, "instructions_of_step": None}
    wgmma = sum(loop.counts[name] for name in WGMMA)
    found |= {"tensor_cycles": wgmma * columns // 2} if wgmma else {}
    size, share = len(loop.operations), loop.share()
    steps = round(size * share) / step  # below one if the loop covers a part of a step
    found["instructions_of_step"] = round(size / steps) if steps >= 1 and steps == int(steps) else None
    return found | {"main_loop": size, "multiply_add_share": share}


def page(lines: Iterable[Mapping[str, Any]]) -> str:
    """Return the suite's page as Markdown, with a row for each kernel; equal lines give equal text."""
    rows = list(lines)
    machine = next(line for line in rows if line["kind"] == "machine")
    kernels = [line for line in rows if line["kind"] == "kernel"]
    lost = sum(bool(line["loss"]) for line in kernels)
    head = [
        "# Kernels without a device", "",
        f"{len(kernels)} kernels of every family by NVRTC {machine['nvrtc']}, of which {lost or 'none'} would be pruned before "
        "timing (registers in memory, wgmma instructions that wait for one another). Made by "
        "`python -m experiments.bench suite=static`; tiles and knobs stand in conf/bench/static.yaml.", "",
        "The main loop is the loop with the most multiply-adds that holds no other with some, counted in the disassembly; a "
        "step is one tile of the reduction, of one warp, or warpgroup of wgmma. No figure for a step: its loop goes over a "
        "part of one. Where few steps are unrolled whole the loop is that over tiles, whose stores are counted with them "
        "(1x1 convolutions). Cycles: what the tensor cores take for the loop's wgmma at their peak; its instructions are to "
        "be few beside them.", "",
    ]  # fmt: skip
    return "\n".join([*head, *table(COLUMNS, [_cells(line) for line in kernels])]) + "\n"


def _cells(line: Mapping[str, Any]) -> tuple[str, ...]:
    loop, share = line.get("main_loop"), line.get("multiply_add_share")
    return (
        line["family"], line["arch"], str(line["registers"]), str(line["spill_bytes"]), "yes" if line["serialised"] else "no",
        str(loop or ""), f"{100 * share:.0f} %" if loop and share else "", str(line.get("instructions_of_step") or ""),
        str(line.get("tensor_cycles", "")),
    )  # fmt: skip
