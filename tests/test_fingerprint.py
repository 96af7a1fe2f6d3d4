"""Fingerprints of tasks: the same everywhere for the same behaviour, another for another; changes are planted."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import gensor_gym
from agents.exact.check_certificates import parts_of
from gensor_gym import ConstructionGraph, hardware, operators
from gensor_gym.exact import Certificate, read_certificates
from gensor_gym.exact.shipped import certificate_of, folder
from gensor_gym.fingerprint import common, fingerprint, fingerprints
from gensor_gym.graph.compiled import plain
from gensor_gym.graph.resources import registers_of, shared_bytes_of, threads_of
from gensor_gym.hardware.types import Hardware
from tests.support.thorough import thorough_but

PACKAGE = Path(gensor_gym.__file__).parent
GEMM = "gemm(m=64, n=48, k=40)"
TINY = [("gemm(m=4, n=3, k=2)", "h200", "gensor"), ("reduce_sum(m=3, k=5)", "cascade_lake", "gensor")]
PRINT = (
    "import sys, json; from gensor_gym import ConstructionGraph; from gensor_gym import fingerprint as f; "
    "import gensor_gym.exact; assert not f._known; "
    "print(json.dumps([f.fingerprint(ConstructionGraph(*task)) for task in json.loads(sys.argv[1])]))"
)


def certificates() -> Iterator[Certificate]:
    """All that ship."""
    for path in sorted(folder().glob("*.jsonl")):
        yield from read_certificates(path)


@pytest.mark.parametrize("apart", thorough_but([1, 3], 3))
def test_shipped_certificates_have_the_fingerprints_found_here(apart: int) -> None:
    """They were found on other processors and releases; a digit that differs here would show. By default every third."""
    found = list(certificates())
    wrong = [
        c.operator for c in found[::apart]
        if fingerprint(ConstructionGraph(c.operator, c.hardware, parts_of(c.space)[0])) != c.fingerprint
    ]  # fmt: skip
    assert len(found) >= 225 and not wrong


@pytest.mark.thorough
def test_plain_python_finds_the_same_and_importing_finds_none() -> None:
    """Without Numba the same text runs as Python: nothing hangs on how it was compiled."""
    environment = {**os.environ, "NUMBA_DISABLE_JIT": "1", "PYTHONPATH": str(PACKAGE.parent)}
    command = [sys.executable, "-c", PRINT, json.dumps(TINY)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=120)
    assert json.loads(done.stdout) == [fingerprint(ConstructionGraph(*task)) for task in TINY]


def test_names_do_not_count_and_figures_do() -> None:
    h200 = hardware.get("h200")
    here = fingerprint(ConstructionGraph(GEMM, h200))
    assert fingerprint(ConstructionGraph(GEMM, replace(h200, name="another"))) == here
    assert fingerprint(ConstructionGraph(operators.parse(GEMM).renamed(name="product"), h200)) == here
    others = [
        replace(h200, clock=h200.clock * 1.001),
        replace(h200, units=131),
        replace(h200, launch_overhead=h200.launch_overhead * 1.01),
        with_bandwidth(h200, "l2", 1.001),
        replace(h200, registers_per_thread=128),
    ]
    found = [fingerprint(ConstructionGraph(GEMM, other)) for other in others]
    assert len({here, *found}) == len(others) + 1


def with_bandwidth(hw: Hardware, name: str, factor: float) -> Hardware:
    """The machine with one level faster."""
    levels = tuple(replace(m, bandwidth=m.bandwidth * factor) if m.name == name else m for m in hw.memory)
    return replace(hw, memory=levels)


@pytest.mark.parametrize("name", ["h200", "cascade_lake"])
def test_spaces_epilogues_types_and_extents_are_tasks_of_their_own(name: str) -> None:
    texts = [GEMM, f"{GEMM}+bias", "gemm(m=64, n=48, k=48)", GEMM.replace(")", ', dtype="int8")')]
    found = [fingerprint(ConstructionGraph(text, name, space)) for text in texts for space in ("gensor", "compact", "extended")]
    assert len(set(found)) == len(found)


def test_a_part_in_a_million_does_not_count_and_nothing_is_charged() -> None:
    h200 = hardware.get("h200")
    nearly = replace(h200, clock=h200.clock * (1 + 1e-13), launch_overhead=h200.launch_overhead * (1 + 1e-13))
    graph = ConstructionGraph(GEMM, h200)
    before = graph.evaluations
    assert fingerprint(graph) == fingerprint(ConstructionGraph(GEMM, nearly))
    assert graph.evaluations == before


@pytest.mark.thorough
def test_a_limit_that_the_optimum_stands_at_counts() -> None:
    """Certified optima use all there is of something: a limit just below changes their certificates, and must show."""
    h200, missed, tried = hardware.get("h200"), [], 0
    for certificate in [c for c in certificates() if c.space == "gensor"][::9]:
        graph, row = ConstructionGraph(certificate.operator, h200), plain(certificate.best.row)
        ints = graph.tables.ints
        tighter = [
            replace(h200, registers_per_thread=int(registers_of(row, ints)) - 1),
            replace(h200, threads_per_block=int(threads_of(row, ints)) - 1),
            replace(h200, shared_per_block=max(0, int(shared_bytes_of(row, ints)) - 16)),
        ]
        for hw in tighter:
            other = ConstructionGraph(certificate.operator, hw)
            if not other.is_legal(certificate.best):
                tried += 1
                missed += [(certificate.operator, hw)] if fingerprint(other) == fingerprint(graph) else []
    assert tried > 50 and not missed


def test_the_hosts_rates_are_measured_and_do_not_count() -> None:
    """They are measured anew now and then: a run that was stopped goes on all the same."""
    cascade_lake = hardware.get("cascade_lake")
    here = replace(cascade_lake, name="host")
    again = replace(with_bandwidth(here, "l2", 1.07), clock=here.clock * 0.9, launch_overhead=here.launch_overhead * 2)
    assert fingerprint(ConstructionGraph(GEMM, here)) == fingerprint(ConstructionGraph(GEMM, again))
    fewer = replace(here, vector_registers=16)
    assert fingerprint(ConstructionGraph(GEMM, here)) != fingerprint(ConstructionGraph(GEMM, fewer))
    named = replace(again, name="mine")
    assert fingerprint(ConstructionGraph(GEMM, cascade_lake)) != fingerprint(ConstructionGraph(GEMM, named))


def test_several_tasks_have_one_in_common_in_any_order() -> None:
    found = fingerprints(map(operators.parse, [GEMM, "gemv(m=64, k=64)"]), "h200", "gensor")
    assert list(found) == [GEMM, "gemv(m=64, k=64)"]
    values = list(found.values())
    assert common(values) == common(reversed(values)) == common([*values, *values]) and common(values[:1]) == values[0]
    assert len(common(values)) == 16 and common(values) not in values


def test_a_certificate_of_other_rules_is_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    h200 = hardware.get("h200")
    graph = ConstructionGraph("gemm(m=1024, n=1024, k=1024)", h200)
    known = certificate_of(graph)
    assert known is not None and known.operator == str(graph.operator)
    slower = ConstructionGraph(graph.operator, replace(h200, clock=h200.clock * 0.99))
    assert certificate_of(slower) is None
    (tmp_path / "h200_gensor.jsonl").write_text(replace(known, fingerprint="0" * 16).to_json() + "\n")
    monkeypatch.setenv("GENSOR_GYM_CERTIFICATES", str(tmp_path))
    assert certificate_of(graph) is None


@pytest.mark.slow
def test_fingerprints_follow_a_planted_change(tmp_path: Path) -> None:
    """In a copy of the package: an edit of the model changes them, another name of its constant does not."""
    source = "cost/gpu/simt.py"
    edits = {"figure": [("STALL = 0.39", "STALL = 0.391")], "name": [("STALL = 0.39", "LOST = 0.39"), ("+ STALL *", "+ LOST *")]}
    before = [fingerprint(ConstructionGraph(*task)) for task in TINY[:1]]
    for what, changes in edits.items():
        copy = tmp_path / what / PACKAGE.name
        shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__", "recordings"))
        text = (copy / source).read_text(encoding="utf-8")
        for old, new in changes:
            assert text.count(old) == 1
            text = text.replace(old, new)
        (copy / source).write_text(text, encoding="utf-8")
        environment = {**os.environ, "PYTHONPATH": str(copy.parent), "NUMBA_CACHE_DIR": str(copy.parent / "numba")}
        command = [sys.executable, "-c", PRINT, json.dumps(TINY[:1])]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, cwd=tmp_path)
        assert (json.loads(done.stdout) == before) == (what == "name")
