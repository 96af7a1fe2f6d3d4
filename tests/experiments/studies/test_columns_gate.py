"""Policies of columns that ship may go to a GPU: on a few validation operators here, on all of them in results/columns."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("torch")

from agents.policies.learned import POLICIES  # noqa: E402
from experiments.common.statistics import geometric_mean  # noqa: E402
from experiments.studies.columns import gate  # noqa: E402
from experiments.studies.columns.gate import DTYPES, HALVES, takes_tensor_cores, validation  # noqa: E402
from gensor_gym.construction import ConstructionGraph  # noqa: E402

SHIPPED = ["columns_extended_gpu", *(f"columns_extended_gpu_{seed}" for seed in range(1, 5))]
GEMMS = ("gemm(m=512, n=512, k=512", "gemm(m=2048, n=2304, k=768", "conv2d(n=128, c=64, h=56, w=56, k=256, r=1, s=1")
"""Validation operators, without their data type."""


def few(dtype: str) -> list[ConstructionGraph]:
    """Those tasks of a data type."""
    return [graph for graph in validation(dtype) if str(graph.operator).startswith(GEMMS)]


def test_tasks_of_the_gate_are_validation_operators_that_tensor_cores_take() -> None:
    for dtype in DTYPES:
        assert {graph.operator.dtype for graph in validation(dtype)} == {dtype} and len(few(dtype)) == len(GEMMS)
        assert dtype == "float32" or all(map(takes_tensor_cores, validation(dtype)))


@pytest.mark.thorough
@pytest.mark.parametrize("policy", SHIPPED)
def test_most_first_programs_of_16_bits_are_on_tensor_cores(policy: str) -> None:
    for dtype in HALVES:
        assert gate.share(str(POLICIES / policy), few(dtype)) > gate.LEAST


@pytest.mark.thorough
def test_the_shipped_policy_is_about_as_fast_as_the_traverser_by_the_model() -> None:
    found = [ratio for dtype in DTYPES for ratio in gate.ratios(str(POLICIES / SHIPPED[0]), few(dtype))]
    value = geometric_mean(found)
    assert value is not None and value <= gate.MOST


def test_the_page_is_made_of_its_rows_and_has_every_policy() -> None:
    rows = [json.loads(line) for line in gate.ROWS.read_text(encoding="utf-8").splitlines()]
    assert gate.markdown(rows) == gate.PAGE.read_text(encoding="utf-8")
    shipped = [row for row in rows if row["policy"] in SHIPPED]
    assert len(shipped) == len(SHIPPED) and all(row["ratio"] <= gate.MOST and row["share"] > gate.LEAST for row in shipped)
