"""The table of kernels without a device: what would be pruned is counted, and what was not counted is left empty."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from agents.runs.journal import read_rows
from experiments.benches.static import COLUMNS, page

STATIC = Path(__file__).resolve().parents[2] / "results/static"


def kernel(**changed: Any) -> dict[str, Any]:
    return {
        "kind": "kernel", "family": "one", "arch": "sm_90", "registers": 40, "spill_bytes": 0, "serialised": False, "loss": "",
        "main_loop": 0, "multiply_add_share": 0.0, **changed,
    }  # fmt: skip


def test_a_row_for_each_kernel() -> None:
    spilled = kernel(family="two", spill_bytes=8, loss="spills", main_loop=50, multiply_add_share=0.5, instructions_of_step=25)
    text = page([{"kind": "machine", "nvrtc": "13.0"}, kernel(), spilled, {"kind": "all"}])
    assert "2 kernels of every family by NVRTC 13.0, of which 1 would be pruned" in text
    assert "| two | sm_90 | 40 | 8 | no | 50 | 50 % | 25 |  |" in text and "| one | sm_90 | 40 | 0 | no |  |  |  |  |" in text
    assert all(line.count("|") == len(COLUMNS) + 1 for line in text.splitlines() if line.startswith("|"))


def test_the_page_is_what_the_shipped_lines_say() -> None:
    lines = read_rows(STATIC / "static.jsonl")
    assert (STATIC / "static.md").read_text() == page(lines)
    assert not any(line["loss"] or line["serialised"] for line in lines if line["kind"] == "kernel")
