"""Sums of vectors stay in registers while they are added up, with each compiler that is here."""

from __future__ import annotations

import platform
import re
import subprocess
from pathlib import Path

import pytest

from gensor_gym import hardware
from gensor_gym.codegen.gir.generate import GirProgram, generate_gir
from gensor_gym.dataflow.suite import make
from gensor_gym.gir.graph import GirGraph
from gensor_gym.hardware.compiler import find_compiler

_STACKED = re.compile(r"\bv?mov[ua]ps\s+%[xyz]mm\d+, -?\d*\(%r[bs]p\)")


@pytest.mark.as_shipped
@pytest.mark.skipif(platform.machine() != "x86_64", reason="reads assembly of x86-64")
@pytest.mark.parametrize("vector", [4, 8, 16])
@pytest.mark.parametrize("name", ["rmsnorm", "softmax"])
def test_one_vector_of_sums_is_not_kept_in_memory(name: str, vector: int, tmp_path: Path) -> None:
    """gcc 12 kept it there when the helper that joins its lanes took its address: twice the time on an AMD EPYC (Zen 5)."""
    machine = hardware.get("cascade_lake")
    graph = GirGraph(make(name, m=64, n=1024), machine)
    placed = "dram" if name == "rmsnorm" else "dram,recompute"
    schedule = graph.parse(f"vector={vector} tile=1 rows=1 loop=4 streaming=0 place={placed}")
    source, text = tmp_path / "kernel.c", tmp_path / "kernel.s"
    source.write_text(generate_gir(GirProgram(graph.nest, schedule, machine)).source)
    compiler = find_compiler()
    flags = (*compiler.flags("cascadelake", machine.lanes, shared=False), "-fPIC", "-S")
    subprocess.run([*compiler.command, *flags, str(source), "-o", str(text)], check=True, timeout=60)
    assert _STACKED.findall(text.read_text()) == []
