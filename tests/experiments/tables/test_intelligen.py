"""Table `intelligen`: the stand-in suite beside the published averages, and an ablation of the steps."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from omegaconf import DictConfig, OmegaConf

from agents.cli.arguments import compose
from experiments.tables.intelligen import ablation, make, suite
from experiments.tables.intelligen.ablation import APART, DRAM, FULL, TEMPLATE, chain_of
from experiments.tables.table import Stamp, Table
from gensor_gym import codegen, dataflow
from gensor_gym.dataflow.graph import Dataflow
from gensor_gym.dataflow.suite import make as operator
from gensor_gym.dataflow.text import parse
from gensor_gym.gir.graph import GirGraph
from gensor_gym.gir.schedule import HEADER
from tests.support.dataflows import inputs_of
from tests.support.gir_cases import machine


def config(folder: Path, **values: object) -> DictConfig:
    """As conf/reproduce.yaml."""
    given = OmegaConf.merge(compose([], "reproduce"), {"table": "intelligen", "output": str(folder), **values})
    assert isinstance(given, DictConfig)
    return given


def test_the_suite_stands_beside_what_is_published() -> None:
    table, norms = suite.tables(suite.LINES, None)
    assert table.stamp is Stamp.REPLICATED and "stand-in" in table.title and any("Xeon" in note for note in table.notes)
    *operators, geometric, arithmetic, most = table.rows
    assert len(operators) == 26 and all(row[-1] is None for row in operators)
    assert [text.split(" ")[0] for row in operators for text in (str(row[1]),)] == sorted(
        (str(row[1]).split(" ")[0] for row in operators), key=lambda text: float(text.rstrip("x"))
    )
    assert str(geometric[1]).startswith("1.71x") and "NVIDIA GPU 1.28" in str(geometric[-1]) == str(arithmetic[-1])
    assert isinstance(most[1], float) and most[1] == pytest.approx(3.33, abs=0.01) and "16.91" in str(most[-1])
    assert [str(row[0]).partition("(")[0] for row in norms.rows] == ["norm"] * 4


def test_lines_of_something_else_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="expected lines of one run of"):
        suite.tables(tmp_path / "nothing.jsonl", None)
    with pytest.raises(ValueError, match="of C, expected a CPU"):
        ablation.one_thread("h100")


NODES = """def nodes(x: float32[6, 8], gain: constant(float32[8])):
    flat = reshape(x, to=[6, 8, 1])
    top = reduce_max(flat, axes=[1])
    e = exp(flat - top)
    again = reshape(e, to=[6, 8])
    turned = transpose(again, order=[1, 0])
    y = again * gain
    return turned, y
"""


@pytest.mark.thorough
@pytest.mark.parametrize("graph", [operator("softmax", 5, 33), parse(NODES)], ids=str)
def test_every_node_by_itself_computes_the_same(graph: Dataflow) -> None:
    chain, inputs = chain_of(graph), list(inputs_of(graph))
    assert [part.returns[0] for part in chain.parts] == [
        name for name, node in graph.nodes if type(node).__name__ not in ("Broadcast", "Reshape")
    ]
    schedules = {part: GirGraph(part, machine()).optimum()[0] for part in chain.parts}
    call = chain.bound({part: codegen.build(part, one, machine()) for part, one in schedules.items()}, inputs)
    for _ in range(2):
        for output, expected in zip(call(), dataflow.evaluate(graph, inputs), strict=True):
            assert (np.abs(output - expected.value) <= expected.error).all()


def test_a_repetition_has_no_kernel() -> None:
    graph = parse("def f(x: float32[4, 1]):\n    e = exp(x)\n    y = broadcast(e, to=[4, 3])\n    return y\n")
    with pytest.raises(ValueError, match="output y is a broadcast"):
        chain_of(graph)


def test_what_a_variant_may_take() -> None:
    graph = GirGraph(operator("softmax", 64, 200), ablation.one_thread("cascade_lake"))
    rows = {name: ablation.ranked(graph, name) for name in ablation.WITHIN}
    assert graph.latencies(rows[FULL])[0] == graph.optimum()[1] and len(rows[FULL]) > len(rows[DRAM]) > len(rows[TEMPLATE]) > 0
    assert not rows[DRAM][:, HEADER:].any() and len({row[:HEADER].tobytes() for row in rows[TEMPLATE]}) == 1
    assert len({row[HEADER:].tobytes() for row in rows[TEMPLATE]}) > 3


def check(table: Table) -> None:
    """Of an operator of several nodes and of one."""
    assert table.columns[-3:] == (APART, DRAM, TEMPLATE) and len(table.rows) == 3
    assert all(isinstance(cell, float) and cell > 0 for row in table.rows for cell in row[2:])
    assert table.rows[1][2] == table.rows[1][3] == 1.0


@pytest.fixture
def two(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two small operators for the suite."""
    monkeypatch.setattr(ablation, "operators", lambda _: [operator("layernorm", 8, 48), operator("gelu", 4, 40)])
    monkeypatch.setattr(ablation, "ROUNDS", 2)


@pytest.mark.usefixtures("two")
def test_the_ablation_by_the_model(tmp_path: Path) -> None:
    *_, table, gpu = make(config(tmp_path, tiers=["model"], limit=1), tmp_path)
    assert gpu.stamp is Stamp.PREDICTED and "No device ran any of this" in gpu.notes[0]
    assert [str(row[0]).partition("(")[0] for row in gpu.rows] == ["relu_add", "softmax"]
    assert all(isinstance(row[3], float) and 0.5 < row[3] <= 1.0 and row[6] in (0, None) for row in gpu.rows)
    check(table)
    assert table.stamp is Stamp.PREDICTED and all(float(str(cell)) >= 1.0 for cell in table.rows[0][3:])


@pytest.mark.thorough
@pytest.mark.usefixtures("two")
def test_the_ablation_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = config(tmp_path, tiers=["live"], trials=1, limit=1)
    *_, table = make(given, tmp_path)
    check(table)
    assert table.stamp is Stamp.REPLICATED
    monkeypatch.setattr(ablation, "_measured", None)
    assert make(given, tmp_path)[-1] == table
