"""Benchmarks: every suite runs on tiny arguments; the numbers in it mean what they say."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from omegaconf import OmegaConf
from torch import nn

from agents.cli.arguments import CONF, compose
from agents.runs.journal import read_rows
from experiments.benches.bench import bench, suites
from experiments.benches.environment import parts
from experiments.benches.environment.start import COLD, start_of
from experiments.benches.environment.start_process import PHASES
from experiments.benches.lines import Lines, in_turn
from experiments.benches.networks.profile import sheet
from experiments.benches.networks.suite import overall
from experiments.benches.static import COLUMNS, page
from experiments.networks.held_out import HELD_OUT, IMAGES
from experiments.networks.suite import as_used, every, inputs_of, module_of, workload_of
from gensor_gym import operators
from gensor_gym.codegen.cuda import nvrtc, sass
from gensor_gym.construction import ConstructionGraph
from gensor_gym.cost.terms import NUM_TERMS, TERMS
from gensor_gym.graph.schedule import Schedule
from tests.support.coarse_figures import COARSE_FIGURES
from tests.support.thorough import thorough_but

pytestmark = COARSE_FIGURES

TINY = {
    "env": [
        "env.repeats=2", "env.single_steps=100", "env.vector_steps=20", "env.num_envs=8", "env.spaces=[extended]",
        "env.fused.operators=[softmax(m=4, n=16)]", "env.hardware=[h200]",
        "env.learning.operator=gemm(m=64, n=48, k=40)", "env.learning.num_envs=8",
        "env.learning.steps=32", "env.learning.batch_size=16", "env.learning.rounds=2",
    ],  # fmt: skip
    "kernels": ["kernels.shapes=gemm(m=32, n=24, k=16)", "kernels.trials=2", "kernels.rounds=3"],
    "call": ["call.operators=[gemv(m=32, k=24)]", "call.trials=2", "call.rounds=3"],
    "fused": ["fused.shapes=[softmax(m=4, n=16)]", "fused.peers=[eager]", "fused.trials=1", "fused.rounds=2"],
    "networks": [
        "networks.names=[mlp_1]", "networks.peers=[eager]", "networks.trials=1", "networks.rounds=2", "networks.threads=1",
    ],  # fmt: skip
    "profile": ["profile.names=[mlp_1]", "profile.trials=1", "profile.calls=3", "profile.threads=1"],
    "tuning": ["tuning.names=[mlp_1]", "tuning.seconds=1", "tuning.most_trials=2", "tuning.rounds=2", "tuning.moments=3"],
    "measure": [
        "measure.operator=gemm(m=32, n=24, k=16)", "measure.trials=4", "measure.compile.schedules=2",
        "measure.isolation.kernels=2", "measure.isolation.rounds=2",
        "measure.compile.operators=[gemv(m=64, k=48)]", "measure.episodes.operator=gemm(m=32, n=24, k=16)",
        "measure.episodes.environments=2", "measure.episodes.seconds=2", "measure.episodes.spaces=[gensor]",
    ],  # fmt: skip
    "clocks": ["clocks.operators=[gemm(m=192, n=160, k=128)]", "clocks.trials=2"],
    "static": [], "graphnet": [],  # it needs a clone: test_graphnet.py
    "model": [
        "model.operators=gemm(m=72, n=56, k=40)", "model.held_out=gemv(m=60, k=50)", "model.schedules=3",
        "model.constructed=2", "fit=coefficients",
    ],  # fmt: skip
    "start": ["start.environments=[h200]", "start.cold=false", "start.of.h200.operator=gemm(m=24, n=16, k=40)"],
}


def run_suite(suite: str, folder: Path, *more: str) -> list[dict]:
    """Lines of a suite with tiny arguments, without that of the machine."""
    places = [f"output={folder}", f"model.fits={folder}/fits.json"]
    lines = bench(compose([f"suite={suite}", *TINY[suite], *places, *more], "bench"))[suite]
    rows = [json.loads(line) for line in lines.path.read_text().splitlines()]
    assert all(row["suite"] == suite for row in rows)
    assert rows[0]["kind"] == "machine" and rows[0]["code"]
    return rows[1:]


def test_all_suites_have_arguments() -> None:
    config = compose(["suite=all"], "bench")
    assert set(suites()) <= set(config) and set(TINY) == set(suites())
    with pytest.raises(ValueError, match="nothing"):
        bench(compose(["suite=nothing"], "bench"))


@pytest.mark.thorough
@pytest.mark.parametrize("name", thorough_but(("h200", "host", "recorded", "graph"), "h200"))
def test_a_cold_start_waits_for_no_function(name: str, tmp_path: Path) -> None:
    """From an empty cache to the end of the first episode nothing is compiled in the process: it has its answers before."""
    settings = compose(["suite=start"], "bench").start
    found = start_of(OmegaConf.to_container(settings.of[name]), COLD, str(tmp_path), settings.limit_s)
    assert found["functions"] == [] and found["steps"] >= 1


@pytest.mark.thorough
def test_start(tmp_path: Path) -> None:
    """With the code that is there: what compiling takes is too much for a test."""
    (start,) = [row for row in run_suite("start", tmp_path) if row["kind"] == "start"]
    phases = [start[f"{name}_s"] for name in PHASES]
    assert start["cache"] == "warm" and all(seconds > 0 for seconds in phases)
    assert sum(phases) == pytest.approx(start["processor_s"]) and start["steps"] >= 1
    with pytest.raises(ValueError, match="nothing"):
        run_suite("start", tmp_path, "start.of.h200.hardware=nothing")


@pytest.mark.thorough
def test_networks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A network is compiled, verified and timed beside a peer; a second run does nothing anew."""
    monkeypatch.setenv("GENSOR_GYM_CACHE", str(tmp_path / "cache"))
    (row,) = [row for row in run_suite("networks", tmp_path) if row["kind"] == "network"]
    assert row["out_of_bounds"] == {} == row["missing"] and row["kernels"] == row["distinct"] == row["searched"] == 3
    assert row["least_arena_bytes"] <= row["arena_bytes"] and row["over"]["eager"]["median"] > 0
    monkeypatch.setattr("experiments.benches.networks.suite.raced", None)
    assert [row] == [again for again in run_suite("networks", tmp_path) if again["kind"] == "network"]
    with pytest.raises(ValueError, match="did you mean mlp_1"):
        run_suite("networks", tmp_path, "networks.names=[mlp1]")
    monkeypatch.undo()
    (row,) = [row for row in run_suite("networks", tmp_path, "networks.qualities=[fast,balanced]") if row["kind"] == "qualities"]
    assert row["out_of_bounds"] == {} == row["missing"]
    assert all(row[name].keys() == {"fast", "balanced", "inductor"} for name in ("compiled_s", "times"))
    with pytest.raises(ValueError, match="did you mean fast"):
        run_suite("networks", tmp_path, "networks.qualities=[fats]")


@pytest.mark.thorough
def test_tuning(tmp_path: Path) -> None:
    """A network is searched from nothing, called as it was at moments of the search, and found again."""
    rows = run_suite("tuning", tmp_path)
    (whole,) = [row for row in rows if row["kind"] == "network"]
    points = [row for row in rows if row["kind"] == "point"]
    assert points and [row["searched_s"] for row in points] == sorted(row["searched_s"] for row in points)
    assert whole["near_after_s"] in [row["searched_s"] for row in points]
    # Trials that found nothing faster end at the same kernels as an earlier moment, which alone is kept.
    assert 3 <= points[0]["trials"] <= points[-1]["trials"] <= whole["trials"] <= 6
    assert whole["best_s"] == min(row["time_s"]["median"] for row in points) and whole["again_s"] > 0
    assert whole["new_process_s"] > 0 and whole["new_process_export_s"] == whole["again_export_s"] == 0  # it was converted before
    assert (tmp_path / "tuning_mlp_1.png").stat().st_size > 1000
    with pytest.raises(ValueError, match="did you mean mlp_1"):
        run_suite("tuning", tmp_path, "tuning.names=[mlp_11]")


@pytest.mark.thorough
def test_profile(tmp_path: Path) -> None:
    """Every kernel has its time in context, which add up to the network's, and floors."""
    whole, *steps = [row for row in run_suite("profile", tmp_path) if row["kind"] != "machine"]
    assert [row["step"] for row in steps] == [0, 1, 2] and all("relu" in row["computation"] for row in steps)
    assert sum(row["share"] for row in steps) == pytest.approx(1, abs=0.2) and 0 < whole["plain_s"]["median"]
    assert whole["sum_of_isolated_s"] == pytest.approx(sum(row["isolated_s"] for row in steps))
    assert all(row["in_context_s"]["median"] > 0 < row["bytes_floor_s"] for row in steps)
    with pytest.raises(ValueError, match="did you mean mlp_1"):
        run_suite("profile", tmp_path, "profile.names=[mlp1]")
    with pytest.raises(ValueError, match="did you mean cut_all"):
        run_suite("profile", tmp_path, "profile.plan=cut_al")


@pytest.mark.thorough
def test_profile_of_16_bits(tmp_path: Path) -> None:
    """NumPy has no bfloat16: a profile takes and compares torch's tensors."""
    rows = run_suite("profile", tmp_path, "profile.dtype=bfloat16")
    assert not any("error" in row for row in rows) and any(row["kind"] == "step" for row in rows)


def test_a_profile_names_kernels_far_from_their_floor() -> None:
    """The most seconds beyond floors first, and none that reach the share."""
    row = {"piece": "first", "share": 0.5, "isolated_s": 1e-3, "flops_floor_s": 0.8e-3, "bytes_floor_s": 1e-6}
    times = {"near": 1e-3, "far": 4e-3, "farther": 9e-3}
    steps = [{**row, "computation": name, "in_context_s": {"median": time}} for name, time in times.items()]
    whole = {"in_context_s": {"median": 0.014}, "plain_s": {"median": 0.014}, "sum_of_isolated_s": 3e-3, "sum_of_floors_s": 3e-3}
    assert [line[0].text for line in sheet("net", steps, whole, 0.7).rows] == ["farther", "far"]
    assert len(sheet("net", steps, whole).rows) == 3


def test_networks_by_their_paths() -> None:
    assert workload_of("torch.nn.ReLU(2, 3)").inputs == ((2, 3),) and workload_of("torch.nn.ReLU").inputs == ((3, 224, 224),)
    assert module_of("torch.nn.ReLU")(-torch.ones(1)) == 0 and inputs_of("torch.nn.ReLU(2, 3)", batch=4)[0].shape == (4, 2, 3)
    for name in ("torch.nn.Relu", "torch.nothing.f", "resnet5", "torch.nn.ReLU()"):
        with pytest.raises(ValueError, match="network"):
            workload_of(name)


def test_zero_weights_are_drawn() -> None:
    """Also those of modules that are not torch's, such as the normalisations of ConvNeXt-V2; others stay."""
    scale, linear, norm = nn.Module(), nn.Linear(2, 2), nn.LayerNorm(2)
    scale.weight = nn.Parameter(torch.zeros(3))
    kept = linear.weight.detach().clone()
    used = as_used(nn.Sequential(scale, linear, norm))
    assert scale.weight.all() and torch.equal(linear.weight, kept) and bool((norm.weight == 1).all()) and not used.training


def test_held_out_networks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every name has its inputs where its library is there, and a missing library is named."""
    names = every(["mlp_1", "held_out"])
    assert names == ["mlp_1", *HELD_OUT] and inputs_of("qwen3")[0].shape == (1, 128)
    found = {path.rpartition(".")[2]: nn.Identity for path in IMAGES.values()}
    monkeypatch.setattr("experiments.networks.suite.library_module", lambda path: SimpleNamespace(**found))
    assert all(workload_of(name).inputs[0] for name in names)
    monkeypatch.undo()
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(ValueError, match="network 'vit_tiny': .*timm"):
        workload_of("vit_tiny")


def test_best_library_over_all_networks() -> None:
    """The fastest library of each network counts, in rounds that all have."""
    rows = [
        {"network": name, "best": "b", "over_best": {"median": by}, "samples": {"ours": [1.0, 2.0], "b": [by, 2 * by, 9.0]}}
        for name, by in (("one", 2.0), ("two", 0.5))
    ]
    found = overall(rows)
    assert found["over_best"]["median"] == pytest.approx(1) and found["least"] == {"network": "two", "median": 0.5}


@pytest.mark.thorough
def test_env(tmp_path: Path) -> None:
    rows = run_suite("env", tmp_path)
    each = [("single", 1), ("vector", 8), ("writing", 8), ("parts", 8)]
    forms = [("single", 1), ("vector", 8), *each * 2, *[("learning", 8)] * 2]
    assert [(row["kind"], row["num_envs"]) for row in rows] == forms
    for row in (row for row in rows if row["kind"] != "parts"):
        assert row["steps"] > 0 and 0 <= row["stolen"] <= 1 and row["calibration_loop_per_second"]["low"] > 1e5
        for what in ("steps_per_second", "cpu_us_per_step"):
            assert 0 < row[what]["low"] <= row[what]["median"] <= row[what]["high"]
    assert [row["policy"] for row in rows[-2:]] == ["MlpPolicy", "MaskedPolicy"]
    assert all(0 < row["environment_share"] < 1 for row in rows[-2:])


@pytest.mark.thorough
def test_kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shape, whole = run_suite("kernels", tmp_path)
    monkeypatch.setattr("experiments.benches.kernels._shape", None)
    assert run_suite("kernels", tmp_path) == [shape, whole]  # what is done is kept
    assert shape["over_torch"]["median"] == pytest.approx(whole["over_torch"])
    assert shape["kernel"]["median"] > shape["roofline_s"]
    assert (tmp_path / "kernels.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.thorough
def test_call(tmp_path: Path) -> None:
    (row,) = run_suite("call", tmp_path)
    assert row["operator"] == "gemv(m=32, k=24)" and row["measured"]["median"] > 0
    for way in ("called", "into_out", "bound", "bound_at_lines", "called_with_tensors"):
        added = row[f"{way}_adds"]
        assert added["low"] <= added["median"] <= added["high"]
        assert added["median"] == pytest.approx(row[way]["median"] - row["measured"]["median"], abs=1e-3)
    assert row["torch"]["median"] > 0


@pytest.mark.thorough
def test_measure(tmp_path: Path) -> None:
    random, ranked, episodes, isolation, compiled, compiled_all = run_suite("measure", tmp_path)
    assert episodes["statuses"] == {"OK": episodes["episodes"]} and 1 < episodes["episodes"] < episodes["steps"]
    assert episodes["episodes_per_second"] == pytest.approx(episodes["episodes"] / episodes["wall_s"])
    assert isolation["trials"] == 4 and set(isolation["trials_per_second"]) == {"on", "off"} and isolation["ratio"]["median"] > 0
    assert (random["schedules"], ranked["schedules"]) == ("random", "ranked")
    for rate in (random, ranked):
        assert rate["trials"] == 3 and rate["trials_per_second"] == pytest.approx(3 / rate["wall_s"])
        assert 0 < rate["sampling_share"] < 1
        # A compilation takes longer than finding a kernel in the cache does.
        assert 0.01 < rate["compile_s"]["median"] <= rate["compile_s"]["largest"] < rate["wall_s"]
    assert compiled["kernels"] + compiled["failed"] <= 2 and compiled["kernels"] == compiled_all["kernels"]
    assert compiled["largest_s"] == compiled_all["largest_s"] >= compiled_all["median_s"] > 0.01
    assert compiled_all["over_limit"] == 0


@pytest.mark.thorough
def test_clocks(tmp_path: Path) -> None:
    """Every clock measures the same two programs; those of other clocks are not found compiled."""
    (row,) = run_suite("clocks", tmp_path)
    names = {"shared", "inside", "outside"}
    assert row["statuses"] == {name: {"OK": 2} for name in names} and row["trials"] == 2
    for name, rate in row["trials_per_second"].items():
        assert rate == pytest.approx(1 / row["trial_s"][name])  # the median of two is their mean
        assert 0 < row["kernel_s"][name] < row["trial_s"][name]
    assert {name: over["low"] <= over["median"] <= over["high"] for name, over in row["over"].items()} == dict.fromkeys(
        names - {"outside"}, True
    )


def test_ways_take_turns() -> None:
    """Every way does every item, in every order of the ways."""
    done: list[str] = []
    seconds = in_turn({"a": lambda item: done.append(f"a{item}"), "b": lambda item: done.append(f"b{item}")}, [0, 1])
    assert done == ["a0", "b0", "b1", "a1"] and {name: len(found) for name, found in seconds.items()} == {"a": 2, "b": 2}


@pytest.mark.thorough
@pytest.mark.skipif(not nvrtc.is_available(), reason=f"NVRTC is not installed: {nvrtc.PACKAGES}")
def test_static(tmp_path: Path) -> None:
    names = ("fp32_128x128x8", "bf16_wgmma_128x256x64", "gemv")
    families = {name: family for name, family in OmegaConf.load(CONF / "bench" / "static.yaml").families.items() if name in names}
    config = compose(["suite=static", f"output={tmp_path}"], "bench")
    config.static.families = {name: {**family, "machines": ["h200"]} for name, family in families.items()}
    _, *kernels, whole = [json.loads(line) for line in bench(config)["static"].path.read_text().splitlines()]
    simt, wgmma, gemv = kernels
    assert whole["kernels"] == 3 and whole["with_loss"] == 0
    assert simt["registers"] <= 128 and simt["spill_bytes"] == 0 and wgmma["arch"] == "sm_90a" and wgmma["warnings"] == []
    if sass.is_available():
        assert simt["kept"] and simt["multiply_add_share"] >= 0.85 and gemv["kept"] is None
        assert wgmma["operations"]["HGMMA"] >= 4 and wgmma["operations"]["UTMALDG"] >= 2
    OmegaConf.update(config, "static.families.gemv", {"register": [3, 1], "block": [4, 1], "knobs": {}}, force_add=True)
    with pytest.raises(ValueError, match="is not legal"):
        bench(config)


@pytest.mark.thorough
def test_int8_kernels_stand_beside_their_float32_twins(tmp_path: Path) -> None:
    shape, whole = run_suite("kernels", tmp_path, 'kernels.shapes=gemm(m=32, n=24, k=16, dtype="int8")+bias', "figures=false")
    assert shape["over_torch"]["median"] == pytest.approx(whole["over_torch"])
    assert shape["over_float32"]["low"] <= shape["over_float32"]["median"] == pytest.approx(whole["over_float32"])
    assert 'dtype="int8"' in shape["operator"] and shape["float32"]["median"] > 0


@pytest.mark.thorough
def test_sets_of_shapes_can_be_chosen() -> None:
    chosen, default = compose(["+bench=kernels_int8"], "bench").kernels, compose([], "bench").kernels
    assert set(chosen) == set(default) and list(chosen.shapes) != list(default.shapes)
    assert len(operators.resolve(list(chosen.shapes))) >= 4


TASK = {"operator": "conv2d(n=1, c=8, h=14, w=14, k=8, r=3, s=3, padding=1)", "hardware": "cascade_lake", "space": "extended"}


def states(count: int) -> tuple[ConstructionGraph, np.ndarray]:
    graph, rng = ConstructionGraph(*TASK.values()), np.random.default_rng(0)
    return graph, graph.stack([graph.random_schedule(rng) for _ in range(count)])


def test_parts_are_those_of_the_graph() -> None:
    graph, rows = states(16)
    ints, floats = graph.tables.ints, graph.tables.floats
    terms, latencies = np.zeros((16, NUM_TERMS)), np.zeros(16)
    parts._model(rows, ints, floats, graph.room(), terms, latencies)
    np.testing.assert_array_equal(latencies, graph.latencies(rows))
    assert dict(zip(TERMS, terms[3], strict=True)) == graph.terms(Schedule(rows[3]))


def test_a_line_has_all_parts(tmp_path: Path) -> None:
    emit = Lines(tmp_path / "env.jsonl", "env")
    parts.run(*states(8), TASK, 3, emit)
    (row,) = emit.rows
    for part in ("model_us", "mask_us", "observation_us"):
        times: dict = row[part]  # type: ignore[assignment]
        assert 0.0 <= times["low"] <= times["median"] <= times["high"]
    assert row["num_envs"] == 8 and row["hardware"] == "cascade_lake"


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
