"""Texts of kernels are written once on a machine, by sources that are still the same, and by this user."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gensor_gym import ConstructionGraph, hardware, operators
from gensor_gym.codegen import remembered as module
from gensor_gym.codegen.build import build, generate
from gensor_gym.codegen.families import graph_of
from gensor_gym.codegen.remembered import remembered
from gensor_gym.dataflow.resolve import resolve_computation

OP = operators.resolve_one("gemm(m=24, n=32, k=16)+bias")
HERE = hardware.get("cascade_lake")


@pytest.fixture
def texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of texts of an empty cache."""
    monkeypatch.setenv("GENSOR_GYM_CACHE", str(tmp_path))
    return tmp_path / module.FOLDER


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Of every text that was generated whether it is of a kernel that keeps weights packed."""
    asked: list[bool] = []

    def building(*given: Any) -> Any:
        made = build(*given)
        asked.append(made.prepacked)
        return made

    monkeypatch.setattr(module, "build", building)
    return asked


def elsewhere(*asked: Any) -> Any:
    """`remembered` in a process that has no kernel at hand."""
    module._lately.cache_clear()
    return remembered(*asked)


def test_a_process_reads_a_text_once(texts: Path, written: list[bool]) -> None:
    schedule = schedule_of(1)
    first = elsewhere(OP, schedule, HERE)
    (file,) = texts.iterdir()
    file.unlink()
    assert remembered(OP, schedule, HERE) is first and len(written) == 1


def schedule_of(seed: int, packs: int = 0) -> Any:
    graph, rng = ConstructionGraph(OP, HERE, "extended"), np.random.default_rng(seed)
    return next(one for one in (graph.random_schedule(rng) for _ in range(1000)) if one.knob("pack_b") == packs)


def test_a_text_is_written_once(texts: Path, written: list[bool]) -> None:
    one, packed = schedule_of(0), schedule_of(0, 1)
    first = elsewhere(OP, one, HERE)
    again = elsewhere(OP, one, HERE)
    assert again == first == build(OP, one, HERE) and again.digest == first.digest and written == [False]
    ahead = [elsewhere(OP.freeze(), packed, HERE) for _ in range(2)]
    made = generate(OP.freeze(), packed, HERE)
    assert ahead[0] == ahead[1] and ahead[0].digest == made.digest and ahead[0].prepares == made.prepares
    assert not elsewhere(OP, packed, HERE).prepacked and written == [False, True, False]
    assert len(list(texts.iterdir())) == 3
    given = operators.random_inputs(OP, np.random.default_rng(1))
    assert np.allclose(again(*given), OP.reference(*given), atol=1e-4)


def test_fused_ones_are_remembered_too(texts: Path, written: list[bool]) -> None:
    op = resolve_computation("softmax(m=8, n=24)")
    schedule = graph_of(op, HERE).initial()
    assert elsewhere(op, schedule, HERE) == elsewhere(op, schedule, HERE) and len(written) == 1


def test_other_sources_and_broken_files_are_written_anew(
    texts: Path, written: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    schedule = schedule_of(2)
    first = elsewhere(OP, schedule, HERE)
    (file,) = texts.iterdir()
    for spoiled in ("", "[]", file.read_text().replace('"source"', '"text"'), file.read_text()[:-9]):
        file.write_text(spoiled)
        assert elsewhere(OP, schedule, HERE) == first
    assert len(written) == 5
    monkeypatch.setattr(module, "sources", lambda: "others")
    assert elsewhere(OP, schedule, HERE) == first and len(written) == 6 and len(list(texts.iterdir())) == 2


def test_what_others_may_write_is_not_believed(texts: Path, written: list[bool]) -> None:
    schedule = schedule_of(3)
    elsewhere(OP, schedule, HERE)
    (file,) = texts.iterdir()
    file.chmod(0o666)
    elsewhere(OP, schedule, HERE)
    assert len(written) == 2
