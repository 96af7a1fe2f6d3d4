"""Fits of the model to measured times, and how well it ranks: their lines, what a run goes on from, and the numbers by hand."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from experiments.benches.model import COEFFICIENTS, LARGEST, Sample, fit, loss
from experiments.common.statistics import spearman, top_k_regret
from gensor_gym.construction import ConstructionGraph
from gensor_gym.cost.constants import CPU_CONSTANTS
from gensor_gym.cost.terms import ISSUE, NUM_TERMS, TERMS
from tests.experiments.test_experiments_bench import run_suite
from tests.support.coarse_figures import COARSE_FIGURES

pytestmark = COARSE_FIGURES


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict]]:
    """The folder of a fit of coefficients, and its lines."""
    folder = tmp_path_factory.mktemp("fitted")
    return folder, run_suite("model", folder)


@pytest.mark.thorough
def test_model_and_its_fit(fitted: tuple[Path, list[dict]]) -> None:
    folder, rows = fitted
    each = [(kind, model) for model in ("model", "fitted") for _ in range(2) for kind in ("operator", "all")]
    assert [(row["kind"], row.get("model")) for row in rows] == [*each, ("fit", None)]
    assert [row["group"] for row in rows if row["kind"] == "all"] == ["fitted on", "held out"] * 2
    written = json.loads((folder / "fits.json").read_text())["host"]
    assert len(written["coefficients"]) == NUM_TERMS and written["terms"] == list(TERMS)
    assert written["loss_after"] <= written["loss_before"]


@pytest.mark.thorough
def test_constants_are_fitted_from_the_timings_that_a_run_left(tmp_path: Path, fitted: tuple[Path, list[dict]]) -> None:
    shutil.copytree(fitted[0], tmp_path, dirs_exist_ok=True)
    timings = tmp_path / "model_timings.jsonl"
    before = timings.read_text()
    run_suite("model", tmp_path, "fit=constants")
    assert timings.read_text() == before
    written = json.loads((tmp_path / "fits.json").read_text())
    assert list(written["values"]) == [constant.name for constant in CPU_CONSTANTS]
    assert all(c.low <= written["values"][c.name] <= c.high for c in CPU_CONSTANTS)
    assert written["operators"] == ["gemm(m=72, n=56, k=40)"] and written["loss_after"] <= written["loss_before"]


def test_a_fit_refuses_the_test_part(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="test part"):
        run_suite("model", tmp_path, "model.operators=gemv(m=1000, k=2048)")


def test_a_fit_finds_the_coefficient_that_made_the_times() -> None:
    rng = np.random.default_rng(0)
    samples = []
    for text in ("gemm(m=512, n=384, k=1000)", "gemv(m=1024, k=1024)"):
        graph = ConstructionGraph(text, "cascade_lake", "extended", calibrated=False)
        rows = graph.stack([graph.random_schedule(rng) for _ in range(60)])
        truth = np.ones(NUM_TERMS)
        truth[ISSUE] = 3.0
        samples.append(Sample(graph, rows, Sample(graph, rows, np.ones(60), (COEFFICIENTS, truth)).predicted()))
    found = fit(samples)
    assert found[ISSUE] == pytest.approx(3.0, rel=0.2)
    assert loss([s.with_values(COEFFICIENTS, found) for s in samples]) < 0.1 * loss(samples)
    assert np.all(np.abs(np.log(found)) <= LARGEST + 1e-9)


def test_spearman_and_regret() -> None:
    measured = np.array([3.0, 1.0, 2.0, 5.0])
    assert spearman(measured**3, measured) == pytest.approx(1.0)
    assert spearman(-measured, measured) == pytest.approx(-1.0)
    assert spearman(np.array([1.0, 1.0, 2.0, 2.0]), np.array([1.0, 2.0, 3.0, 4.0])) == pytest.approx(2 / 5**0.5)
    assert np.isnan(spearman(np.ones(4), measured))
    model = np.array([1.0, 3.0, 2.0, 4.0])
    assert top_k_regret(model, measured, 1) == pytest.approx(np.log(3.0))
    assert top_k_regret(model, measured, 2) == pytest.approx(np.log(2.0))
    assert top_k_regret(model, measured, 3) == 0.0
