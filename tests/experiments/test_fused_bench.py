"""Fused operators beside their peers: what the peers compute, how a run is kept, what its lines mean."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib import import_module, util
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agents.cli.arguments import compose
from experiments.benches.bench import bench
from experiments.benches.fused import eager, suite
from experiments.benches.fused.race import SIDES, Lost, Side, Ways, arrays_of, prepared, wrong
from gensor_gym import dataflow
from gensor_gym.dataflow.suite import FACTORIES
from gensor_gym.dataflow.table import fused_operator, source, stand_in
from tests.support.coarse_figures import COARSE_FIGURES
from tests.support.dataflows import inputs_of, of_suite

pytestmark = COARSE_FIGURES
ASKED: dict[str, Any] = {"threads": 1, "strategy": "exhaustive", "trials": 1, "seed": 0}


def test_every_operator_of_the_suite_is_a_factorys() -> None:
    assert "not public" in source() and len(stand_in()) == len(set(stand_in().values())) == 26
    assert all(fused_operator(name) == fused_operator(text) for name, text in stand_in().items())
    assert {fused_operator(name).name for name in stand_in()} <= set(FACTORIES)
    with pytest.raises(ValueError, match="did you mean bert/softmax"):
        fused_operator("bert/softmaxx")


def check_peer(side: str, name: str) -> None:
    """Every way to call a library gives a factory's outputs, up to approximations of its own that our bounds may not admit."""
    graph = of_suite(name)
    inputs = inputs_of(graph)
    ways: Ways = import_module(SIDES[side]).prepare(graph, inputs, ASKED)
    assert "called" in ways.calls
    for call in ways.calls.values():
        for output, expected in zip(arrays_of(call()), dataflow.evaluate(graph, inputs), strict=True):
            np.testing.assert_allclose(output, expected.value, rtol=1e-5, atol=1e-6)
            assert output.shape == expected.value.shape


@pytest.fixture
def eager_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch in this process keeps its threads and its gradients."""
    import torch

    monkeypatch.setattr(eager, "tensors", lambda inputs, threads: [torch.from_numpy(array) for array in inputs])


@pytest.mark.usefixtures("eager_torch")
@pytest.mark.parametrize("name", FACTORIES)
def test_torch_computes_what_the_graph_says(name: str) -> None:
    check_peer("eager", name)


@pytest.mark.skipif(util.find_spec("onnxruntime") is None, reason="onnxruntime is not installed")
@pytest.mark.parametrize("name", FACTORIES)
def test_onnx_models_compute_what_the_graph_says(name: str) -> None:
    check_peer("onnxruntime", name)


def test_peers_say_what_they_know() -> None:
    own = dataflow.parse("def mine(x: float32[4, 4]):\n    y = exp(x)\n    return y\n")
    with pytest.raises(ValueError, match="softmax"):
        eager.function_of(own)


def test_wrong_outputs_are_told() -> None:
    graph = of_suite("softmax")
    inputs = inputs_of(graph)
    right = dataflow.evaluate(graph, inputs)[0].value.astype(np.float32)
    calls: dict[str, Callable[[], Any]] = {
        "right": lambda: right, "off": lambda: right * np.float32(1.001), "flat": lambda: right.reshape(-1),
    }  # fmt: skip
    found = wrong(graph, inputs, Ways(calls))
    assert set(found) == {"off", "flat"} and "shapes" in found["flat"]


SAMPLES = {
    "ours": {"called": [2e-6] * 7, "into": [1e-6] * 7},
    "eager": {"called": [3e-6] * 7},
    "inductor": {"called": [9e-6] * 7, "into": [8e-6] * 7, "called_inner": [2.5e-6] * 7, "into_inner": [1.5e-6] * 7},
}


def test_what_counts_is_the_form_that_was_timed() -> None:
    row = suite.compared(SAMPLES)
    found = {form: (one["best"], one["over_best"]["median"]) for form, one in row["forms"].items()}
    assert found == {
        "called": ("eager", pytest.approx(1.5)), "called_inner": ("inductor", pytest.approx(1.25)),
        "into": ("eager", pytest.approx(3.0)), "into_inner": ("inductor", pytest.approx(1.5)),
    }  # fmt: skip
    assert row["counts"] == "into" and row["over_best"]["median"] == pytest.approx(3.0) and row["verdict"] == "FASTER"
    large = suite.compared({name: {"called": ways["called"]} for name, ways in SAMPLES.items()})
    assert large["counts"] == "called" and set(large["forms"]) == {"called", "called_inner"}
    assert "over_best" not in suite.compared({"ours": SAMPLES["ours"]})


def test_over_all_operators() -> None:
    fast, slow = ({"operator": name, **suite.compared(scaled(by))} for name, by in (("fast", 1.0), ("slow", 6.0)))
    whole = suite.overall([fast, slow])
    assert whole["over_best"]["median"] == pytest.approx((3.0 * 0.5) ** 0.5)
    assert whole["over_best"]["low"] == pytest.approx(0.5) and whole["over_best"]["high"] == pytest.approx(3.0)
    assert whole["least_over_best"]["operator"] == "slow" and whole["verdict"] == {"FASTER": 1, "SLOWER": 1}


def scaled(by: float) -> dict[str, dict[str, list[float]]]:
    """Samples where ours take longer."""
    ours = {way: [by * seconds for seconds in found] for way, found in SAMPLES["ours"].items()}
    return SAMPLES | {"ours": ours}


def lines(folder: Path, *more: str, shapes: list[str] | None = None) -> list[dict[str, Any]]:
    """What a run writes; `shapes` as a file has them."""
    small = ["fused.peers=[eager]", "fused.trials=1", "fused.rounds=2", "fused.threads=1", f"output={folder}"]
    config = compose(["suite=fused", *small, *more], "bench")
    config.fused.shapes = shapes or config.fused.shapes
    path = bench(config)["fused"].path
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.mark.thorough
def test_a_run_says_what_was_timed_and_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = "fused.shapes=[softmax(m=4, n=16)]"
    head, row, whole = lines(tmp_path, chosen)
    assert head["threads"] == 1 and head["versions"]["torch"] and row["missing"] == {} == row["out_of_bounds"]
    assert row["counts"] == "into" and set(row["times"]["eager"]) == {"called", "into"}
    assert whole["operators"] == 1 and whole["over_best"]["median"] == pytest.approx(row["over_best"]["median"])
    assert (tmp_path / "fused.png").exists() and 0 < row["bytes_per_second"] < 1e13
    monkeypatch.setattr("experiments.benches.fused.suite.raced", None)
    assert lines(tmp_path, chosen)[1] == row
    with pytest.raises(ValueError, match="expected some of eager"):
        lines(tmp_path, "fused.peers=[eagre]")
    with pytest.raises(ValueError, match="fused.rounds"):
        lines(tmp_path, "fused.rounds=0")


def test_what_has_no_kernel_yet_is_listed(tmp_path: Path) -> None:
    own = tmp_path / "own"
    twice = "def twice(x: float32[4, 6]):\n    a = reduce_sum(x, axes=[0])\n    b = reduce_sum(a, axes=[1])\n    return b\n"
    rows = lines(own, shapes=[twice])
    assert "different axes" in rows[1]["not_covered"] and len(rows) == 2


@pytest.mark.thorough
def test_a_process_that_cannot_is_left_out_with_its_reason(tmp_path: Path) -> None:
    sides = {"eager": Side("eager", 1, tmp_path)}
    try:
        answers, missing = prepared(sides, {**ASKED, "operator": "softmax(m=4)"}, 60)
    finally:
        for side in sides.values():
            side.close()
    assert answers == {} == sides and "softmax" in missing["eager"]
    gone = Side("nothing", 1, tmp_path)
    with pytest.raises(Lost, match="KeyError"):
        gone.hear(60)
    gone.close()


@pytest.mark.thorough
def test_inductor_with_and_without_its_call(tmp_path: Path) -> None:
    for name in ("add_layernorm(m=4, n=32)", "rope(t=2, h=3, d=8)"):
        rows = lines(tmp_path, f"fused.shapes=[{name}]", "fused.peers=[inductor]")
        times = rows[1]["times"]["inductor"]
        assert set(times) == {"called", "into", "called_inner", "into_inner"} and rows[1]["out_of_bounds"] == {}
        assert times["called_inner"]["median"] < times["called"]["median"]
