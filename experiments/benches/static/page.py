"""The table of `suite=static` as Markdown: a row for each kernel, from its lines."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from experiments.common.texts import table

COLUMNS = (
    "kernel", "architecture", "registers", "spilled bytes", "serialised", "main loop", "of it multiply-adds",
    "instructions of a step", "cycles of tensor cores",
)  # fmt: skip


def page(lines: Iterable[Mapping[str, Any]]) -> str:
    """The Markdown page of the suite's lines; equal lines give equal text."""
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
    """Table cells of one kernel."""
    loop, share = line.get("main_loop"), line.get("multiply_add_share")
    return (
        line["family"], line["arch"], str(line["registers"]), str(line["spill_bytes"]), "yes" if line["serialised"] else "no",
        str(loop or ""), f"{100 * share:.0f} %" if loop and share else "", str(line.get("instructions_of_step") or ""),
        str(line.get("tensor_cycles", "")),
    )  # fmt: skip
