"""Graphs of GraphNet are drawn, run, told as right or not, and scored; the clone is a tiny one with programs of our own."""

from __future__ import annotations

import dataclasses
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch

from agents.cli.arguments import compose
from experiments.benches.graphnet import graphs, process, suite
from experiments.benches.graphnet.scores import closest, page, score
from experiments.benches.lines import Lines
from tests.support.coarse_figures import COARSE_FIGURES

pytestmark = COARSE_FIGURES

PROGRAM = """
import torch
from torch import device

class GraphModule(torch.nn.Module):
    def forward(self, L_x_: torch.Tensor, L_self_modules_a_parameters_weight_: torch.nn.parameter.Parameter,
                L_self_modules_a_eps: torch.Tensor, s0: torch.SymInt):
        x = L_x_.to(device(type="cuda", index=0)) + torch.zeros(s0, dtype=torch.float32, device="cuda:0")
        weight, eps = L_self_modules_a_parameters_weight_, L_self_modules_a_eps.item()
        return (torch.nn.functional.layer_norm(BODY, (s0,), weight, None, eps),)
"""
META = """
class Program_weight_tensor_meta_{name}:
    name = "{name}"
    shape = {shape}
    dtype = "{dtype}"
    device = "cuda:0"
    mean = {mean}
    std = 2.0
    data = {data}
"""
OWN = "L_self_modules_a_"
BODIES = {
    "timm/right": "x", "timm/refused": "x.sum() + x[x > 0].sum() * x", "timm/broken": "x @ x.new_ones(3, 3)",
    "timm/wild": "x * 0 / 0", "timm/constant": "x * 0 + 1",
    "timm/mapped": "(at := F._vmap_increment_nesting(2, 'error'), y := F._add_batch_dim(x, 0, at) * 2,"
    " z := F._remove_batch_dim(y, at, 2, 0), F._vmap_decrement_nesting())[2]".replace("F.", "torch._C._functorch."),
}  # fmt: skip


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A git repository with six graphs."""
    folder: Path = tmp_path_factory.mktemp("clone")
    fields = (("L_x_", [2, 4], "torch.float32", 0.5, None), (f"{OWN}parameters_weight_", [4], "torch.float32", 1.0, None),
              (f"{OWN}eps", [], "torch.float32", None, [1e-5]), ("s0", [], "torch.int64", None, [4]))  # fmt: skip
    names = ("name", "shape", "dtype", "mean", "data")
    texts = [META.format(**dict(zip(names, one, strict=True))) for one in fields]
    for name, body in BODIES.items():
        place = folder / "samples" / name
        place.mkdir(parents=True)
        (place / "model.py").write_text(PROGRAM.replace("BODY", body))
        (place / "weight_meta.py").write_text("".join(texts))
        (place / "input_meta.py").write_text("")
    for words in (("init", "-q"), ("add", "."), ("-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "-m", "Graphs")):
        subprocess.run(["git", "-C", str(folder), *words], check=True)
    return folder


def asked(clone: Path, name: str, **more: Any) -> dict[str, Any]:
    same = {"repository": str(clone), "graph": f"samples/{name}", "side": "ours", "seed": 0, "threads": 1, "rounds": 0}
    same |= {"turn": str(clone / "turn")}
    return {**same, "torch_s": 5.0, "quality": "fast", **more}


def test_a_draw_depends_on_the_seed_alone_and_numbers_are_numbers_again(clone: Path, tmp_path: Path) -> None:
    assert graphs.names(clone, 1) == graphs.names(clone, 1) != graphs.names(clone, 2)
    made = graphs.built(graphs.read(clone, "samples/timm/right"), 0)
    assert [tuple(one.shape) for one in made.inputs] == [(2, 4)]
    assert list(made.module.given.values())[2:] == [pytest.approx(1e-5), 4]  # type: ignore[operator, union-attr]
    assert made.exact is not None and made.exact[0].dtype == torch.float64
    assert made.depends and not graphs.built(graphs.read(clone, "samples/timm/constant"), 0).depends
    torch.testing.assert_close(made.expected[0].double(), made.exact[0], rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match="expected a clone of github.com/PaddlePaddle/GraphNet"):
        graphs.names(tmp_path, 0)
    with pytest.raises(graphs.NotBuilt, match="RuntimeError: mat1 and mat2"):
        graphs.built(graphs.read(clone, "samples/timm/broken"), 0)
    with pytest.raises(graphs.NotBuilt, match="no finite numbers"):
        graphs.built(graphs.read(clone, "samples/timm/wild"), 0)


def test_statistics_of_batch_normalisations_keep_numbers_from_vanishing() -> None:
    mean, variance, x = torch.zeros(3), torch.ones(3), 1e-6 * torch.randn(1, 3, 4, 4) + 2.0 * torch.randn(1, 3, 1, 1)
    with graphs._Measured():
        torch.nn.functional.batch_norm(x, mean, variance)
        torch.nn.functional.batch_norm(x[:, :, :1, :1], torch.ones(3), torch.ones(3))
    torch.testing.assert_close(mean, x.mean((0, 2, 3)))
    torch.testing.assert_close(variance, 1e-4 * mean.square() + 1e-6)


def test_each_graph_is_told_and_a_planted_fault_is_wrong(clone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right = process.answer(asked(clone, "timm/right", rounds=2))
    assert (right["status"], right["kernels"]) == ("right", 1) and right["closest"] <= -5 and right["call_s"] > 0
    assert process.answer(asked(clone, "timm/right", torch_s=0.0))["said"].startswith("a call of torch takes")
    assert process.answer(asked(clone, "timm/mapped"))["status"] == "right"
    refused = process.answer(asked(clone, "timm/refused"))
    assert refused["status"] == "refused" and refused["said"].startswith("Unsupported: ")
    monkeypatch.setitem(process.SIDES, "ours", lambda given, _: (lambda *x: [1.001 * one + 1e-4 for one in given.expected], {}))
    wrong = process.answer(asked(clone, "timm/right"))
    assert wrong["status"] == "wrong" and "expected" in wrong["said"] and wrong["closest"] == -2
    monkeypatch.setitem(process.SIDES, "ours", lambda given, _: (lambda *x: 1 / 0, {}))
    assert process.answer(asked(clone, "timm/right"))["said"] == "ZeroDivisionError: division by zero"


def test_the_score_is_the_mean_of_speed_ups_in_which_failures_count_a_tenth() -> None:
    rows = [{"eager_s": 8.0, "call_s": 1.0, "closest": -5}, {"eager_s": 1.0, "call_s": 2.0, "closest": -1}, {"status": "refused"}]
    for t, product in ((-5, 8 * 0.1 * 0.1), (0, 8 * 0.5 * 0.1)):
        assert score(rows, t) == pytest.approx(product ** (1 / 3))
    whole, near = torch.arange(3), torch.ones(3)
    assert closest([whole], [whole + 1]) is None and closest([whole, near], [whole, near]) == -10
    assert closest([near], [near + 2e-3]) == -2
    assert closest([near], [near.double()]) is None and closest([near], [near[:2]]) is None


def test_a_run_resumes_and_loses_nothing_to_a_process_that_ends(
    clone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def answered(command: list[str], seconds: float, **_: Any) -> int | None:
        request = json.loads(Path(command[3]).read_text())
        if "right" in request["graph"]:
            slow.extend([seconds] * (request["side"] == "inductor"))
            return None if request["side"] == "inductor" else 9
        status = "left out" if "wild" in request["graph"] else "right"
        times = {"eager_s": 2.0, "call_s": 1.0, "compiled_s": 5.0, "closest": -6}
        Path(command[4]).write_text(json.dumps({"status": status, "said": "", **(times if status == "right" else {})}))
        calls.append(request["graph"])
        return 0

    calls: list[str] = []
    slow: list[float] = []
    monkeypatch.setattr(suite, "run_group", answered)
    config = compose(["suite=graphnet", f"graphnet.repository={clone}", "graphnet.inductor=true", f"output={tmp_path}"], "bench")

    def ran() -> dict[tuple[Any, Any], object]:
        emit = Lines(tmp_path / "graphnet.jsonl", "graphnet")
        suite.run(config, emit)
        emit.journal.close()
        return {(str(row["graph"])[13:], row["side"]): row["status"] for row in emit.rows if row["kind"] == "graph"}

    assert ran() == (told := ran())
    assert told[("right", "ours")] == "error" and told[("right", "inductor")] == "slow" and len(told) == 11
    assert len(calls) == 9 and ("wild", "inductor") not in told
    config.graphnet.limit_s += 1
    ran()
    assert len(calls) == 9 and slow == [120, 121]
    monkeypatch.setattr(suite, "code_digest", lambda: "changed")
    ran()
    assert len(calls) == 14 and slow == [120, 121], "only ours is tried again"
    text = (tmp_path / "graphnet" / "graphnet.md").read_text()
    assert "| error | 1 | 0 |" in text and "| slow | 0 | 1 |" in text and "torch does not run them or takes too long: 1" in text
    assert "| S(-5) | 1.10 | 1.10 |" in text and "| median seconds to compile | 5 s | 5 s |" in text  # (2**4 * 0.1)**(1 / 5)
    assert (tmp_path / "graphnet" / "graphnet.png").stat().st_size
    assert "| timm/right | error | ended with status 9: " in text
    with pytest.raises(ValueError, match="expected a clone"):
        suite.run(compose(["suite=graphnet", f"output={tmp_path}"], "bench"), Lines(tmp_path / "none.jsonl", "graphnet"))


@pytest.mark.thorough
def test_a_process_of_its_own_answers_and_keeps_to_its_memory(clone: Path, tmp_path: Path) -> None:
    how = suite.Settings(str(clone), "fast", threads=1, at_once=1, rounds=2, torch_s=5.0, memory_gb=8.0, limit_s=300.0, seed=0)
    assert suite.one("samples/timm/right", "ours", how, tmp_path)["status"] == "right"
    assert suite.one("samples/timm/right", "inductor", how, tmp_path)["status"] == "right"
    small = dataclasses.replace(how, memory_gb=0.01)
    assert suite.one("samples/timm/right", "ours", small, tmp_path)["status"] == "error"
    assert "| right |" in page({"ours": [{"graph": "a", "status": "right", "said": ""}]}, {})
