"""How the model is scored beside a device: ties fall out badly, a kernel counts once, and the test part stays closed."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from experiments.benches.model import Sample
from experiments.device.stages import operators as stage
from experiments.evidence import ranking as command
from experiments.evidence.ranking import EVERY, FITTED, TENSOR, TEST, raced, recorded, scored, thinned, worst_tied
from gensor_gym import ConstructionGraph, hardware, operators

SHIPPED = command.FOLDER
TEST_OPERATOR = "gemm(m=2048, n=2048, k=2048)"


def measured(text: str, count: int) -> Sample:
    """Programs of an operator that take as long as the model says."""
    graph = ConstructionGraph(text, "h100", "compact", calibrated=False)
    rng = np.random.default_rng(0)
    rows = np.unique(graph.stack([graph.random_schedule(rng) for _ in range(count)]), axis=0)
    return Sample(graph, rows, graph.latencies(rows))


def test_of_equal_predictions_the_slowest_comes_first() -> None:
    order = worst_tied(np.array([2.0, 1.0, 1.0, 1.0]), np.array([1.0, 3.0, 5.0, 4.0]))
    assert order.tolist() == [2, 3, 1, 0]


def test_what_the_model_says_itself_is_ranked_perfectly() -> None:
    table = measured("gemm(m=256, n=256, k=256)", 64)
    one = scored(table)
    assert (one.first, one.first_ten, one.scale) == (1.0, 1.0, 1.0) and one.ranks == pytest.approx(1.0)
    reversed_ = scored(Sample(table.graph, table.rows, 1.0 / table.seconds))
    assert reversed_.ranks < -0.99 and reversed_.first == pytest.approx(table.seconds.max() / table.seconds.min())


def test_no_fit_reads_the_test_part() -> None:
    assert operators.part_of(operators.parse(TEST_OPERATOR)) == "test"
    with pytest.raises(ValueError, match="part test: a fit reads train and validation alone"):
        thinned(measured(TEST_OPERATOR, 4))
    assert len(thinned(measured("gemm(m=256, n=256, k=256)", 400)).seconds) <= 250


def test_the_test_part_is_opened_only_where_it_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    read = command.recorded.__globals__["read_rows"]
    monkeypatch.setitem(command.recorded.__globals__, "read_rows", lambda path: opened.append(path.name) or read(path))
    day = tmp_path / "raw" / "2026-11-23"
    day.mkdir(parents=True)
    for name, text in ((TENSOR, 'gemm(m=1024, n=1024, k=1024, dtype="float16")'), (TEST, TEST_OPERATOR)):
        schedule = str(ConstructionGraph(text, "h100", "extended", calibrated=False).initial())
        row = {"operator": text, "schedule": schedule, "status": "OK", "samples": [1.0, 3.0, 2.0], "digest": "a"}
        with gzip.open(day / name, "wt") as file:
            file.write(2 * (json.dumps(row) + "\n"))
    (day / "recorded.jsonl.gz").write_bytes(gzip.compress(b""))
    assert [(t.part, t.seconds.tolist()) for t in recorded(tmp_path, "h100")] == [("train", [2.0])]
    assert TEST not in opened
    assert {t.part for t in recorded(tmp_path, "h100", (*FITTED, "test"))} == {"train", "test"}
    with pytest.raises(ValueError, match="no recorded table of an operator of validation"):
        recorded(tmp_path, "h100", ("validation",))


def test_candidates_of_the_test_part_are_left_out() -> None:
    assert {one.part for one in raced(SHIPPED, "h100")} == set(FITTED)
    assert len(raced(SHIPPED, "h100")) == 11 and len(raced(SHIPPED, "h100", ("test",))) == 9


@pytest.mark.thorough
def test_the_page_is_that_of_the_model(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    assert command.main([str(page), "--title", "How the model ranks"]) == 0
    text = page.read_text()
    assert text.count(" | train |") + text.count(" | validation |") == 41 and "| test |" not in text
    assert command.main([str(page), "--folder", str(tmp_path)]) == 2


def test_first_choices_are_written_and_tried_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of every operator that was raced; illegal ones are passed over, and without a file there are none."""
    op, hw = operators.parse('gemm(m=128, n=3072, k=768, dtype="float16")'), hardware.get("h100")
    shipped = json.loads(stage.FIRST_CHOICES.read_text())["h100"]
    assert set(shipped) == {one.operator for one in raced(SHIPPED, "h100", EVERY)} and len(shipped) == 20
    assert {len(texts) for texts in shipped.values()} == {10}
    first_choices = stage.first_choices
    assert first_choices(op, hw, tmp_path / "none.json") == []
    of_convolution = next(texts[0] for text, texts in shipped.items() if text.startswith("conv2d"))
    file = tmp_path / "some.json"
    file.write_text(json.dumps({"h100": {str(op): [of_convolution, *reversed(shipped[str(op)])]}}))
    monkeypatch.setattr(stage, "first_choices", lambda op, hw: first_choices(op, hw, file))
    monkeypatch.setattr(stage, "COUNTS", {})
    assert list(map(str, stage.candidates(op, hw, 0))) == shipped[str(op)][::-1]
