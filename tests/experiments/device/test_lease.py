"""A lease from end to end without a device: kernels compiled beforehand, stages over a device that stands in, everything home."""

from __future__ import annotations

import io
import json
import subprocess
import tarfile
from pathlib import Path

import pytest

from agents.runs.journal import read_rows
from experiments.device import lease
from experiments.device.archive import build
from experiments.device.archive.arms import Arm, Study, proposed, read_study
from experiments.device.archive.build import operators_timed
from experiments.device.archive.packed import Archive, described, kernel_of
from experiments.device.context import Context
from experiments.device.stages import known, study
from experiments.device.work import prebuilt
from experiments.evidence.ship import write_rows
from gensor_gym import hardware, operators
from gensor_gym.codegen.build import VARIANTS
from gensor_gym.codegen.cuda import nvrtc
from gensor_gym.codegen.kernel import Kernel
from gensor_gym.construction import ConstructionGraph
from gensor_gym.graph.schedule import Schedule
from gensor_gym.graph.starts import starts
from gensor_gym.measure.native import make_kernel
from tests.support import lease_stages
from tests.support.cuda_schedules import make_schedule
from tests.support.wgmma_kernels import wgmma_schedule

pytestmark = pytest.mark.skipif(not nvrtc.is_available(), reason="NVRTC is not installed")
ARMS = (Arm("markov_ext", "markov_ext"), Arm("random", "random", 0), Arm("random", "random", 1))
STUDY = Study("h100", ("gemm(m=64, n=48, k=32)", 'gemm(m=64, n=64, k=64, dtype="float16")'), ARMS, 2, 1, 3)


@pytest.fixture(scope="module")
def carried(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The archive of a small study."""
    patch = pytest.MonkeyPatch()
    patch.setattr(build, "read_study", lambda: STUDY)
    folder = tmp_path_factory.mktemp("lease")
    build.build(folder, size=1, groups=("study",))
    patch.undo()
    return folder / "carry"


def test_arms_propose_different_kernels_in_ranks() -> None:
    rows = [row for row, _ in proposed(STUDY.operators[0], ARMS[0], "h100", 3)]
    assert [row["rank"] for row in rows] == [1, 2, 3]
    assert len({row["digest"] for row in rows}) == 3
    assert all(row["construct_s"] > 0 and row["evaluations"] > 0 for row in rows)


def test_the_study_that_ships_is_whole() -> None:
    study = read_study()
    assert len(study.operators) == len(set(study.operators)) >= 175
    assert [arm.seed for arm in study.arms if arm.name == "in_turn"] == [0, 1, 2]
    assert study.wanted(0) > study.wanted(len(study.operators) - 1) >= 4


@pytest.mark.parametrize("text", ['gemm(m=64, n=64, k=64, dtype="float16")', "gemm(m=64, n=48, k=32)+bias+relu"])
def test_a_kernel_comes_back_without_its_source(text: str) -> None:
    op, hw = operators.parse(text), hardware.get("h100")
    graph = ConstructionGraph(op, hw, "extended")
    for row in starts(graph.tables, graph.initial().row):
        kernel = make_kernel(op, Schedule(row), hw)
        assert isinstance(kernel, Kernel)
        again = kernel_of(json.loads(json.dumps(described(kernel))))
        assert again.source == ""
        assert again.digest == kernel.digest
        for name in ("operator", "arch", "launches", "workspace_bytes", "cleared_bytes", "maps"):
            assert getattr(again, name) == getattr(kernel, name)


@pytest.mark.thorough
def test_one_program_of_several_arms_is_one_kernel(carried: Path, tmp_path: Path) -> None:
    archive = Archive(carried, tmp_path)
    wanted = {row["digest"] for row in archive.proposals if not row["status"]}
    assert wanted == set(archive.rows)
    assert archive.about["kernels"] == len(wanted) <= len(archive.proposals) == 3 * 3 + 3 * 2
    assert {row["rank"] for row in archive.proposals} == {1, 2, 3}
    assert all(Path(archive.built(digest).path).read_bytes()[:4] == b"\x7fELF" for digest in wanted)


@pytest.mark.thorough
def test_building_again_compiles_nothing(carried: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "read_study", lambda: STUDY)
    monkeypatch.setattr(build, "proposed", lambda *given: pytest.fail("drawn again"))
    before = {path.name: path.stat().st_mtime_ns for path in carried.glob("part-*")}
    build.build(carried.parent, size=1, groups=("study",))
    assert {path.name: path.stat().st_mtime_ns for path in carried.glob("part-*")} == before


def test_a_folder_without_an_archive_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="plan=archive"):
        Archive(tmp_path, tmp_path / "scratch")


def home(out: Path) -> dict[str, bytes]:
    """Files of the results that came home."""
    with tarfile.open(fileobj=io.BytesIO((out / lease.RESULTS).read_bytes())) as tar:
        return {member.name: tar.extractfile(member).read() for member in tar.getmembers()}


def stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stages over a bench that answers, and nothing of our own code compiled."""
    monkeypatch.setattr(lease, "_prepare", lambda log, model: subprocess.Popen(["true"]))
    monkeypatch.setattr(lease, "STAGES", lease_stages.STAGES)
    monkeypatch.setattr(lease, "by_default", lambda archive: [stage.name for stage in lease_stages.STAGES])


@pytest.mark.thorough
def test_everything_comes_home(carried: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(lease_stages.CARRY, str(carried))
    stand_in(monkeypatch)
    assert lease.run(tmp_path / "out", 90.0, "h100", 0) == 0
    files = home(tmp_path / "out")
    assert {path.name for path in (tmp_path / "out").glob("[!.]*")} == {lease.RESULTS, *lease.SUMMARIES}
    trials = [json.loads(line) for line in files["trials.jsonl"].splitlines()]
    together = [json.loads(line) for line in files["together.jsonl"].splitlines()]
    archive = Archive(carried, tmp_path / "scratch")
    assert {row["digest"] for row in trials} == set(archive.rows)
    assert [row["operator"] for row in sorted(together, key=lambda row: row["operator"])] == sorted(STUDY.operators)
    for row in together:
        first = {p["digest"] for p in archive.proposals if p["operator"] == row["operator"] and p["rank"] <= 4 and p["digest"]}
        assert set(row["samples"]) - {"torch"} <= first
        best = min(first, key=lambda digest: int(digest[:4], 16))
        assert best in row["samples"]
    assert lease.run(tmp_path / "out", 90.0, "h100", 0) == 0
    assert home(tmp_path / "out")["trials.jsonl"] == files["trials.jsonl"]  # nothing is timed twice
    monkeypatch.setattr(lease, "machine_card", lambda: {"gpu": {"name": "NVIDIA A100"}, "cores": 2})
    with pytest.raises(ValueError, match="this one is of NVIDIA A100: name another folder"):
        lease.run(tmp_path / "out", 90.0, "h100", 0)
    (tmp_path / "out" / lease.RESULTS).write_bytes(b"torn")
    with pytest.raises(ValueError, match="results.tar.gz does not read"):
        lease.run(tmp_path / "out", 90.0, "h100", 0)


@pytest.mark.thorough
def test_a_stage_that_dies_goes_on_behind_what_killed_it(carried: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = Archive(carried, tmp_path / "scratch")
    monkeypatch.setenv(lease_stages.CARRY, str(carried))
    monkeypatch.setenv(lease_stages.FAILING, sorted(archive.rows)[0])
    stand_in(monkeypatch)
    lease.run(tmp_path / "out", 120.0, "h100", 0)
    trials = [json.loads(line) for line in home(tmp_path / "out")["trials.jsonl"].splitlines()]
    assert len({row["digest"] for row in trials}) >= len(archive.rows) - study_workers()


def study_workers() -> int:
    """Kernels that may have been under way when the process died."""
    return study.WORKERS


def test_what_lies_deeper_comes_when_all_operators_had_their_turn() -> None:
    rows = [{"operator": op, "rank": rank} for op in "ab" for rank in (6, 1, 5, 2)]
    turns = study.in_turns(rows, 4)
    assert [[(row["operator"], row["rank"]) for row in turn] for turn in turns] == [
        [("a", 1), ("a", 2)], [("b", 1), ("b", 2)], [("a", 5), ("a", 6)], [("b", 5), ("b", 6)],
    ]  # fmt: skip


def test_operators_that_a_lease_has_timed_come_last(tmp_path: Path) -> None:
    day = tmp_path / "h200" / "raw" / "2026-11-27"
    write_rows(day / "together.jsonl.gz", [{"operator": "a", "samples": {"x": [1.0]}}, {"operator": "b", "error": "none"}])
    assert operators_timed(tmp_path) == {"a"}


def test_programs_come_again_as_variants(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each kernel once, in an arm of its own; what it takes is no time of the schedule's plain kernel."""
    half, full = operators.gemm(2048, 2048, 512, dtype="bfloat16"), operators.gemm(1024, 1024, 128)
    few, *several = (wgmma_schedule(half, tile, [128, 128], stages=stages) for tile, stages in (
        ([64, 128], 4), ([128, 128], 4), ([64, 128], 3)))
    plain, odd = make_schedule(full, [8, 8, 4], [64, 64, 16], vector=4), make_schedule(full, [2, 2, 1], [8, 8, 1])
    drawn = {half: ([few, plain], several), full: ([plain, odd], [])}
    monkeypatch.setattr(build, "read_operators", lambda: {"one": half, "two": full})
    monkeypatch.setattr(build, "fastest", lambda op, *given: drawn[op][0])
    monkeypatch.setattr(build, "candidates", lambda op, *given: drawn[op][1])
    building = build.Building(tmp_path / "lease")
    build._known(building, "h100")
    rows = [row for row in building.proposals if row.get("arm")]
    building.compile(1)
    building.pack()
    building.close()
    assert [(row["operator"], row["arm"], row["rank"]) for row in rows] == [
        *((str(half), *place) for place in (
            ("known", 1), ("known", 2), ("candidates", 1), ("candidates", 2), ("pingpong", 1),
            ("tma_store", 1), ("tma_store", 2), ("pingpong_tma_store", 1))),
        *((str(full), *place) for place in (("known", 1), ("known", 2), ("producer", 1))),
    ]  # fmt: skip
    others = [row for row in rows if row["arm"] in VARIANTS]
    schedules = [row["schedule"] for row in others]
    assert len({row["digest"] for row in rows}) == 11 and schedules == [*map(str, (few, few, several[0], few, plain))]
    monkeypatch.setattr(prebuilt, "Bench", lease_stages.InstantBench)
    monkeypatch.setattr(study, "open_archive", lambda: Archive(tmp_path / "lease" / "carry", tmp_path / "scratch"))
    known.run(Context(str(tmp_path), str(tmp_path / "scratch"), "one", 60.0, "h100", 0))
    trials = {row["digest"]: row for row in read_rows(tmp_path / known.FILES[0])}
    assert {row["arm"] for row in rows if row["digest"] in trials} == {"known", "candidates", *VARIANTS}
    assert all(trials[row["digest"]].get("variant") == (row["arm"] if row in others else None) for row in rows)
    write_rows(tmp_path / "known_trials.jsonl.gz", list(trials.values()))
    assert {(op, text) for op, text, _ in build._trials(tmp_path / "known_trials.jsonl.gz")} == {
        (row["operator"], row["schedule"]) for row in rows if row not in others
    }
