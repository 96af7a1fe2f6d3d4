"""Operators of torch's database give torch's numbers, or are refused by name: a part by default, all with `-m thorough`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from agents.runs.journal import read_rows
from experiments.conformance import __main__ as conformance
from experiments.conformance import kernelbench, models
from experiments.conformance.cases import Case, Outcome, cases, tried
from tests.support.thorough import thorough_but

STEP = 192
KNOWN = (
    "nn_functional_conv_transpose2d",  # infinite weights meet the zeros around the image
    "nn_functional_multi_margin_loss",  # torch's decomposition keeps a margin that is NaN
    "native_group_norm",  # a variance of 0 that torch finds below 0
)
"""What special numbers are still wrong of."""


@pytest.mark.parametrize("kind", conformance.KINDS)
@pytest.mark.parametrize("first", thorough_but(range(STEP), 5))
def test_operators_are_right_or_refused(first: int, kind: str) -> None:
    found = [tried(case) for case in cases(kind, STEP, first)]
    wrong = [one for one in found if one.status in ("wrong", "error")]
    assert [one for one in wrong if kind != "special" or not one.name.startswith(KNOWN)] == []
    shipped = read_rows(Path(conformance.OUTPUT) / f"{kind}.jsonl")
    known = {row["name"] for row in shipped if row["status"] == "right"}
    assert [one for one in found if one.name in known and one.status != "right"] == []
    assert {one.name for one in found} <= {row["name"] for row in shipped}


def test_a_difference_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    case = next(case for case in cases("plain", STEP, 5) if tried(case).status == "right")
    compiled = conformance.tried.__globals__["gensor_gym"].compile

    def worse(module: torch.nn.Module, inputs: tuple[torch.Tensor, ...], **options: int) -> object:
        made = compiled(module, inputs, **options)
        return lambda *given: torch.zeros_like(torch.as_tensor(made(*given)).float()) + 77

    monkeypatch.setattr(conformance.tried.__globals__["gensor_gym"], "compile", worse)
    assert tried(case).status == tried(case, 1.0).status == "wrong"


def test_what_is_no_farther_from_float64_than_torch_is_right() -> None:
    """A normalisation of one number is 0, of which torch's rounding makes another number."""
    x = 1000 * torch.randn(2, 8, generator=torch.Generator().manual_seed(0))
    case = Case("groups", torch.nn.GroupNorm(8, 8).eval(), (x,))
    assert (tried(case).status, tried(case, 1.0).status) == ("wrong", "right")


def test_the_page_counts_and_lists() -> None:
    found = {
        "plain": [
            Outcome("a float32 0", "right"), Outcome("b float32 0", "refused", "b: no kernels; did you mean a?"),
            Outcome("c int64 0", "wrong", "1 of 2"),
        ],
        "special": [Outcome("a float32 0", "error", "KeyError: 3")],
    }  # fmt: skip
    page = conformance.page(found)
    assert "| 1 | 1 | 1 | 0 |" in page and "- `c int64 0`: 1 of 2" in page and "- `a float32 0`: KeyError: 3" in page
    assert "| b | 1 | b: no kernels |" in page


def test_the_page_that_ships_is_that_of_its_lines() -> None:
    folder = Path(conformance.OUTPUT)
    rows = {kind: read_rows(folder / f"{kind}.jsonl") for kind in conformance.KINDS}
    found = {kind: [Outcome(row["name"], row["status"], row["said"]) for row in own] for kind, own in rows.items()}
    assert all(found.values()) and conformance.page(found) == (folder / conformance.PAGE).read_text()


@pytest.mark.parametrize(("suite", "count"), [(kernelbench, 250), (models, 190)], ids=["kernelbench", "models"])
def test_the_page_of_modules_is_that_of_its_lines(suite: Any, count: int) -> None:
    rows = read_rows(suite.ROWS)
    found = [Outcome(row["name"], row["status"], row["said"]) for row in rows]
    assert len(found) == count and suite.page(found) == suite.ROWS.with_suffix(".md").read_text()
    assert not any(one.status in ("wrong", "error") for one in found)
