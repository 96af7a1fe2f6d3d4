"""Tables of networks on pages of results, made again from the lines of their measurements."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from agents.runs.journal import read_rows

ROOT = Path(__file__).resolve().parents[2]
HELD_OUT = {
    threads: ROOT / f"results/host/networks_intel_amx_held_out_{name}.jsonl.gz"
    for threads, name in ((1, "one_thread"), (2, "two_threads"))
}
"""Number of threads -> rows of networks on an Intel Xeon with AMX."""
ZEN4 = ROOT / "results/host/networks_zen4_held_out_one_thread.jsonl.gz"
LIBRARIES = "inductor", "onnxruntime", "openvino"
SEEN = "squeezenet", "resnet18", "resnet50", "densenet121", "swin_t", "swin_v2_t", "maxvit_t", "convnext_v2_tiny", "unet"
"""Networks in `HELD_OUT` that were looked at; the page marks them."""


def held_out(threads: int) -> dict[str, dict[str, Any]]:
    """Rows of networks on the Xeon by their names."""
    rows = {row["network"]: row for row in read_rows(HELD_OUT[threads]) if row["kind"] == "network"}
    assert not any(row["out_of_bounds"] or row["missing"] for row in rows.values())
    return rows


def cells(row: dict[str, Any] | None) -> list[str]:
    """Cells of a network's row of the table: our time, speed-ups over the libraries and over the fastest."""
    if row is None:
        return [""] * (len(LIBRARIES) + 2)
    over = [f"{row['over'][peer]['median']:.2f}" if peer in row["over"] else "" for peer in LIBRARIES]
    best = row["over_best"]
    return [f"{1e3 * row['times']['ours']['median']:.3g}", *over, f"{best['median']:.2f} [{best['low']:.2f}, {best['high']:.2f}]"]


def over_fastest(threads: int) -> list[float]:
    """Speed-ups over the fastest library of the networks that were not looked at."""
    return [row["over_best"]["median"] for name, row in held_out(threads).items() if name not in SEEN]


def table_of_held_out() -> list[str]:
    """Rows of the page's table, those of networks that were looked at last."""
    rows = {threads: held_out(threads) for threads in HELD_OUT}
    names = sorted({**rows[1], **rows[2]}, key=lambda name: name in SEEN)
    told = []
    for name in names:
        made = [cell for threads in HELD_OUT for cell in cells(rows[threads].get(name))]
        told.append([f"{name} \\*" if name in SEEN else name, *made])
    return [f"| {' | '.join(row)} |".replace("|  |", "| |").replace("|  |", "| |") for row in told]


def kind_of(step: dict[str, Any]) -> str:
    """Kind of a kernel of Swin-T, by what it computes and where it begins."""
    if step["computation"].startswith(("frozen gemm", "gemv")):
        return "products"
    if step["computation"].startswith("frozen conv2d"):
        return "convolution"
    return "attention of windows" if ".attn#permute" in step["piece"] else "norms, moves, joined products"


def swin_page() -> str:
    """Table of results/host/swin_kernels.md, from the kernels of Swin-T before and after."""
    found = {when: read_rows(ROOT / f"results/host/swin_kernels_{when}.jsonl.gz") for when in ("before", "after")}
    steps = {when: [row for row in rows if row["kind"] == "step"] for when, rows in found.items()}
    lines = ["| kernels | number | before, ms | after, ms | floor, ms | of the floor |", "|---|---:|---:|---:|---:|---:|"]
    for kind in (*dict.fromkeys(map(kind_of, steps["after"])), "all"):
        some = {when: [row for row in rows if kind in ("all", kind_of(row))] for when, rows in steps.items()}
        before, after = (1e3 * sum(row["in_context_s"]["median"] for row in some[when]) for when in ("before", "after"))
        floor = 1e3 * sum(max(row["flops_floor_s"], row["bytes_floor_s"]) for row in some["after"])
        lines.append(f"| {kind} | {len(some['after'])} | {before:.3g} | {after:.3g} | {floor:.3g} | {floor / after:.2f} |")
    return "\n".join(lines) + "\n"
