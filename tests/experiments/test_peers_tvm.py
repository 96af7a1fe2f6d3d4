"""TVM as a peer: runs are kept and not made twice, pages say what they say, and TVM's kernels are called right."""

from __future__ import annotations

import dataclasses
import io
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from agents.cli.arguments import compose
from experiments.comparison.retime import TORCH, Comparison
from experiments.peers import runs, tvm, tvm_environment, tvm_report
from experiments.peers.runs import OURS, TVM, Plan, Run, Runs, Stopped, run_of, run_process
from experiments.peers.tvm_environment import ENTRY, TvmEnvironment, tvm_kernel
from gensor_gym import hardware, operators
from gensor_gym.measure.backend import get_backend
from gensor_gym.measure.workers.process import WorkerLost

RECORDED = Path(__file__).parents[1] / "data" / "peer_tvm.jsonl"
GEMM, CONV = "gemm(m=512, n=512, k=512)", "conv2d(n=1, c=64, h=56, w=56, k=64, r=3, s=3, padding=1)"
SMALL = ["peers.trials=[16]", "peers.seeds=[0,1]", f"peers.tasks=[{GEMM}]"]
ENVIRONMENT = tvm_environment.existing(tvm.ROOT / "outputs" / "peers" / "tvm" / "env")


def _plan(system: str = TVM, seed: int = 0, operator: str = GEMM, trials: int = 64) -> Plan:
    return Plan(system, operator, trials, seed, 1, "a processor", "1.0")


def _run(plan: Plan, tuning: float = 40.0, best: float = 2e-3) -> Run:
    return Run(plan, 4.0, tuning, 0.0, best, plan.trials, plan.trials - 1, "tvm/best.so" if plan.system == TVM else "tile[1x1]")


def _study(folder: Path, *more: str) -> tvm.Study:
    given = [*SMALL, f"output={folder / 'runs'}", f"results={folder / 'page'}", *more]
    return tvm.Study(compose(given, "peers"))


def _recorded() -> tuple[list[tuple[Run, Run]], dict[str, Comparison]]:
    """Two runs on one operator, tuned with 16 trials each on one core, and 31 rounds of their kernels."""
    lines = [json.loads(line) for line in RECORDED.read_text(encoding="utf-8").splitlines()]
    kinds: dict[str, list[dict[str, Any]]] = {}
    for line in lines:
        kinds.setdefault(line.pop("kind"), []).append(line)
    runs = {run.plan.system: run for run in (run_of(line) for line in kinds["run"])}
    return [(runs[OURS], runs[TVM])], {line["operator"]: Comparison(**line) for line in kinds["samples"]}


def test_runs_come_back_as_they_were_kept_and_a_torn_line_is_dropped(tmp_path: Path) -> None:
    runs = Runs(tmp_path)
    (tmp_path / "tvm").mkdir()
    (tmp_path / "tvm" / "best.so").write_bytes(b"module")
    kept = [runs.put(_run(_plan(seed=seed))) for seed in (0, 1)]
    runs.journal.close()
    with runs.journal.path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(dataclasses.asdict(_run(_plan(seed=2))))[:50])
    again = Runs(tmp_path)
    assert [again.get(run.plan) for run in kept] == kept
    assert again.get(_plan(seed=2)) is None
    again.put(_run(_plan(seed=2)))
    assert len(runs.journal.path.read_text().splitlines()) == 3


def test_a_run_whose_module_is_gone_is_made_again(tmp_path: Path) -> None:
    runs = Runs(tmp_path)
    runs.put(_run(_plan()))
    ours = runs.put(_run(_plan(OURS)))
    assert runs.get(_plan()) is None and runs.get(ours.plan) == ours


@pytest.mark.parametrize("row", [{}, {"plan": []}, {"plan": {"system": "tvm"}}])
def test_a_row_that_is_no_run_is_named(row: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="no run of a peer"):
        run_of(row)


@pytest.mark.parametrize("field", [field.name for field in dataclasses.fields(Plan)])
def test_a_plan_that_differs_in_anything_is_another_run(field: str) -> None:
    plan = _plan()
    other = dataclasses.replace(plan, **{field: getattr(plan, field) * 2 or 7})
    assert other.key != plan.key


def test_searches_that_are_done_are_not_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study, made = _study(tmp_path), []

    def search(study: tvm.Study, op: object, plan: Plan, environment: object) -> Run:
        made.append(plan)
        if plan.system == TVM and plan.seed == 1 and len(made) <= 4:
            raise Stopped("killed")
        return _run(plan)

    monkeypatch.setattr(tvm, "search", search)
    monkeypatch.setattr(tvm, "compile_ours", lambda study: None)
    environment = TvmEnvironment(Path("python"), ())
    (study.folder / "tvm").mkdir(parents=True)
    (study.folder / "tvm" / "best.so").write_bytes(b"module")
    console = Console(file=io.StringIO())
    wrong = tvm.searches(study, environment, Runs(study.folder), console)
    assert len(made) == 4 and len(wrong) == 1 and "seed 1" in wrong[0] and "killed" in wrong[0]
    assert tvm.searches(study, environment, Runs(study.folder), console) == []
    assert [plan.label for plan in made[4:]] == ["tvm@16 seed 1"]
    assert tvm.searches(study, environment, Runs(study.folder), console) == [] and len(made) == 5


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ("peers.trials=[0]", "peers.trials"), ("peers.seeds=[]", "peers.seeds"), ("peers.seeds=[x]", "peers.seeds"),
        ("peers.rounds=0", "peers.rounds"), ("peers.ours.trials=null", "ours.trials"),
        ("peers.tasks=[gemm(m=8, n=8, k=8)+bias]", "without epilogue"), ("peers.tasks=[gemv(m=8, k=8)]", "expected gemm"),
        ("peers.tasks=[conv2d(n=1, c=8, h=8, w=8, k=8, r=1, s=1, groups=2)]", "one group"),
    ],
)  # fmt: skip
def test_a_wrong_argument_is_named(tmp_path: Path, given: str, names: str) -> None:
    with pytest.raises(ValueError, match=names):
        _study(tmp_path, given)


def test_the_study_is_the_one_that_was_set_out() -> None:
    study = tvm.Study(compose([], "peers"))
    assert study.trials == (64, 512) and study.seeds == (0, 1, 2)
    assert (study.strategy, study.our_trials) == ("markov_ext", 16)
    assert [op.name for op in study.tasks] == ["gemm", "gemm", "conv2d", "conv2d"]
    assert len({plan.key for op in study.tasks for plan in study.plans(op)}) == 4 * 3 * 3


@pytest.mark.thorough
def test_an_environment_that_cannot_be_made_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = tmp_path / "requirements.txt"
    wanted.write_text("apache-tvm==0.0.0\n")
    monkeypatch.setattr(tvm_environment, "REQUIREMENTS", wanted)
    with pytest.raises(ValueError, match=r"apache-tvm 0\.0\.0 cannot be made in .*env.*status 1"):
        tvm_environment.environment(tmp_path / "env", arguments=("--no-index",))
    assert tvm_environment.existing(tmp_path / "env") is None


def test_an_environment_of_other_versions_does_not_count(tmp_path: Path) -> None:
    packages = tmp_path / "lib" / "python3.11" / "site-packages"
    for path in (tmp_path / "bin" / "python", *(packages / name for name in tvm_environment.LIBRARIES)):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"")
    assert tvm_environment.existing(tmp_path) is None
    (tmp_path / "made.txt").write_text(tvm_environment._digest())
    found = tvm_environment.existing(tmp_path)
    assert found is not None and found.variables(3, 2)["TVM_NUM_THREADS"] == "3"
    (tmp_path / "made.txt").write_text("older")
    assert tvm_environment.existing(tmp_path) is None


@pytest.mark.thorough
def test_a_program_is_killed_with_its_children_and_its_last_words_are_kept(tmp_path: Path) -> None:
    log, alive = tmp_path / "log.txt", tmp_path / "alive"
    with pytest.raises(Stopped, match="status 3; its last words: why"):
        run_process(["sh", "-c", "echo why; exit 3"], log, 30.0)
    with pytest.raises(Stopped, match="more than 0.5 s"):
        run_process(["sh", "-c", f"(sleep 2; touch {alive}) & sleep 30"], log, 0.5)
    run_process(["sleep", "2.5"], log, 30.0)
    assert not alive.exists()
    assert runs._last(tmp_path / "log.txt") == "none"


def test_a_missing_compiler_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(ValueError, match=r"install g\+\+"):
        tvm_environment.compilers()


def test_the_page_of_recorded_runs() -> None:
    pairs, comparisons = _recorded()
    summary = tvm_report.summarise(pairs, comparisons)
    (row,), (mean,) = summary["rows"], summary["means"]
    ours, theirs = (comparisons[GEMM].samples[run.plan.label] for run in pairs[0])
    assert row["time_ratio"]["median"] == pytest.approx(np.median(np.array(ours) / np.array(theirs)))
    assert row["time_ratio"]["low"] < row["time_ratio"]["median"] < row["time_ratio"]["high"] < 1
    assert row["verdict"] == "FASTER" and row["part"] == "validation"
    assert row["tuning_ratio"] == pytest.approx(pairs[0][0].tuning_s / pairs[0][1].tuning_s)
    assert row["over_torch"]["ours"]["median"] > row["over_torch"]["tvm"]["median"]
    assert mean["time_ratio"] == pytest.approx(row["time_ratio"]["median"]) and mean["time_interval"] is None
    assert mean["fast_enough"] and mean["tuned_fast_enough"] == (mean["tuning_ratio"] <= 0.2)
    about = {"versions": tvm_environment.requirements(), "strategy": "markov_ext", "rounds": 31, "threads": 1}
    about |= {"processor": "a processor", "date": "today", "code": "0"}
    page = tvm_report.markdown(about, summary, ["tvm@64 seed 0: killed"])
    assert "**A system comparison.**" in page and "Not searched: tvm@64 seed 0: killed" in page
    assert f"| {GEMM} | 0 |" in page and "1 FASTER" in page
    tvm_report.means(summary).show(Console(file=io.StringIO()))
    lines = tvm_report.lines(about, summary, [run for pair in pairs for run in pair], comparisons)
    assert [line["kind"] for line in lines] == ["study", "run", "run", "samples", "pair", "mean"]
    json.dumps(lines, allow_nan=False)


def test_means_over_tasks_and_seeds_have_intervals_and_untimed_pairs_none() -> None:
    pairs, comparisons = [], {}
    for task, factor in ((GEMM, 0.5), (CONV, 2.0)):
        samples = {TORCH: [3e-3] * 9}
        for seed in (0, 1):
            ours, theirs = _run(_plan(OURS, seed, task, 16), tuning=4.0), _run(_plan(TVM, seed, task))
            pairs.append((ours, theirs))
            samples |= {ours.plan.label: [factor * 2e-3 * (1 + 1e-3 * i) for i in range(9)]}
            samples |= {theirs.plan.label: [2e-3 * (1 + 1e-3 * i) for i in range(9)]}
        comparisons[task] = Comparison(task, samples)
    (mean,) = tvm_report.summarise(pairs, comparisons)["means"]
    assert mean["time_ratio"] == pytest.approx(1.0) and mean["verdicts"] == {"FASTER": 2, "SLOWER": 2}
    assert mean["time_interval"] == pytest.approx((0.5, 2.0)) and mean["tuning_interval"] == pytest.approx((0.1, 0.1))
    assert mean["whole_ratio"] == pytest.approx(8 / 44) and mean["tuned_fast_enough"]
    del comparisons[CONV].samples["tvm@64 seed 1"]
    summary = tvm_report.summarise(pairs, comparisons)
    assert summary["means"][0]["timed"] == 3 and summary["means"][0]["time_interval"] is None
    assert "| - | - | - | - |" in tvm_report.markdown(
        {"versions": tvm_environment.requirements(), "strategy": "s", "rounds": 9, "threads": 1, "processor": "p", "date": "d",
         "code": "f"}, summary, [],
    )  # fmt: skip


def test_the_kernel_of_a_module_names_its_tensors_and_its_content(tmp_path: Path) -> None:
    module, library = tmp_path / "best.so", tmp_path / "libtvm_ffi.so"
    library.write_bytes(b"")
    op = operators.resolve_one(CONV)
    with pytest.raises(ValueError, match=r"no file .*best\.so"):
        tvm_kernel(op, module, [library])
    module.write_bytes(b"one")
    kernel = tvm_kernel(op, module, [library])
    assert kernel.launches[0].entry == ENTRY and kernel.language == "c"
    assert "shape0[] = {1, 64, 56, 56};" in kernel.source and "strides0[] = {200704, 3136, 56, 1};" in kernel.source
    assert "strides1[] = {576, 9, 3, 1};" in kernel.source and f'"{module}"' in kernel.source
    assert "@" not in kernel.source
    module.write_bytes(b"two")
    assert tvm_kernel(op, module, [library]).digest != kernel.digest
    with pytest.raises(ValueError, match="float32"):
        tvm_kernel(operators.resolve_one("gemm(m=8, n=8, k=8, dtype='int8')"), module, [library])


@pytest.mark.thorough
def test_a_module_that_does_not_load_is_the_trials_fault(tmp_path: Path) -> None:
    paths = [tmp_path / "best.so", tmp_path / "libtvm_ffi.so"]
    for path in paths:
        path.write_bytes(b"no library")
    hw = hardware.get("host")
    backend = get_backend("cpu", hw)
    try:
        with pytest.raises(WorkerLost, match="SIGABRT; TVM's module .*cannot load a library of TVM"):
            backend.compare({"tvm": tvm_kernel(operators.resolve_one("gemm(m=8, n=8, k=8)"), paths[0], paths[1:])}, hw, 1)
    finally:
        backend.close()


@pytest.mark.slow
@pytest.mark.skipif(ENVIRONMENT is None, reason="TVM's environment was not made (python -m experiments.peers.tvm)")
@pytest.mark.skipif(shutil.which("g++") is None, reason="TVM links with g++")
@pytest.mark.parametrize(
    "text", ["gemm(m=24, n=40, k=16)", "conv2d(n=2, c=3, h=9, w=8, k=4, r=3, s=3, stride=2, padding=1)"]
)
def test_tvm_tunes_and_its_kernel_is_right(tmp_path: Path, text: str) -> None:
    assert ENVIRONMENT is not None
    study = _study(tmp_path, f"peers.tasks=[{text}]")
    (op,) = study.tasks
    plan = study.theirs(op, 4, 0)
    run = tvm.search(study, op, plan, ENVIRONMENT)
    assert run.tried == 4 and 1 <= run.valid <= 4 and run.best_s < 1 and run.startup_s > 0 and run.tuning_s > 0
    backend = get_backend("cpu", study.hardware)
    try:
        samples = backend.compare({"tvm": tvm_kernel(op, study.folder / run.product, ENVIRONMENT.libraries)}, study.hardware, 5)
    finally:
        backend.close()
    assert len(samples["tvm"]) == 5 and all(seconds > 0 for seconds in samples["tvm"])
