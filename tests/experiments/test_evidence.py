"""Pages and tables of a device's evidence are made again byte for byte; what a lease brought is taken home."""

from __future__ import annotations

import dataclasses
import gzip
import io
import json
import math
import shutil
import tarfile
from pathlib import Path

import gymnasium
import numpy as np
import pyarrow.parquet
import pytest

from agents import optimize
from agents.runs.journal import read_rows
from agents.runs.settings import ROOT
from experiments.device.lease import RESULTS
from experiments.evidence import __main__ as command
from experiments.evidence import measured as lease
from experiments.evidence.facts import RAW, read_facts
from experiments.evidence.lease import take
from experiments.evidence.ship import slim, write_rows
from experiments.evidence.tables import OPERATORS, drift_of, twice_timed, write_tables
from gensor_gym import ConstructionGraph, hardware, operators
from gensor_gym.graph.schedule import Schedule
from gensor_gym.hardware.described import FILE, RECORDINGS
from gensor_gym.measure.backend import get_backend
from gensor_gym.measure.devices import presence as cuda_presence
from gensor_gym.measure.measurement import Measurement, Status
from gensor_gym.measure.records import measured
from gensor_gym.measure.records.backend import open_recorded
from gensor_gym.measure.records.tables import read_table
from tests.support.coarse_figures import COARSE_FIGURES

pytestmark = COARSE_FIGURES

SHIPPED, TABLES = command.FOLDER, RECORDINGS / "h100"
GEMM = "gemm(m=1024, n=1024, k=1024)"
PLACE = {"hardware": "h100", "space": "compact", "backend": "recorded"}


@pytest.fixture
def raw(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """(results, recordings): copies of the raw files and of the machine's description alone.

    The model has other rates for the machine than it had: what was recorded, and what was said of it then, stays as it is.
    """
    results, recordings = tmp_path / "results", tmp_path / "recordings"
    shutil.copytree(SHIPPED / RAW, results / RAW)
    (recordings / "h100").mkdir(parents=True)
    shutil.copy(TABLES / FILE, recordings / "h100")
    monkeypatch.setitem(hardware._KNOWN, "h100", with_other_rates(hardware.get("h100")))
    return results, recordings


def with_other_rates(hw: hardware.Hardware) -> hardware.Hardware:
    """The machine as a calibration might leave it."""
    memory = tuple(dataclasses.replace(level, bandwidth=level.bandwidth / 2, latency=0.0) for level in hw.memory)
    return dataclasses.replace(hw, clock=1e9, memory=memory, tensor_sustained=0.5, peak=(("float32", 1e12),))


def files(folder: Path) -> set[str]:
    """Names of all files below a folder."""
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


@pytest.mark.thorough
def test_pages_are_made_again_byte_for_byte(raw: tuple[Path, Path]) -> None:
    """By the command, which makes the tables as well."""
    results, recordings = raw
    assert command.main([str(results), "--recordings", str(recordings)]) == 0
    assert files(results) == files(SHIPPED) - {"README.md"}
    (page,) = [name for name in files(results) if name.endswith(".md")]
    assert (results / page).read_bytes() == (SHIPPED / page).read_bytes()
    assert files(recordings / "h100") == files(TABLES)


def test_tables_are_made_again(raw: tuple[Path, Path]) -> None:
    """What they say, value for value; of what their heads count by logarithms twelve digits."""
    results, recordings = raw
    write_tables(results, read_facts(results), recordings / "h100")
    assert files(recordings / "h100") == files(TABLES)
    for name in files(TABLES):
        one, other = recordings / "h100" / name, TABLES / name
        if name.endswith(".parquet"):
            assert head(one) == head(other), name
            assert pyarrow.parquet.read_table(one).equals(pyarrow.parquet.read_table(other)), name
        else:
            assert one.read_bytes() == other.read_bytes(), name


def head(table: Path) -> object:
    """What a table says about itself; NumPy's exp and log have other last places on other processors."""
    metadata = pyarrow.parquet.read_schema(table).metadata
    assert set(metadata) == {b"gensor_gym"}
    return json.loads(metadata[b"gensor_gym"], parse_float=lambda digits: float(f"{float(digits):.12g}"))


def test_an_episode_ends_in_a_regret_on_real_times() -> None:
    env = gymnasium.make("gensor_gym/Construct-v0", operator=GEMM, **PLACE)
    records = read_table(TABLES / "gemm_m1024_n1024_k1024.parquet").records
    times = {record.measurement.seconds for record in records}
    for seed in range(3):
        _, info = env.reset(seed=seed)
        rng, ended = np.random.default_rng(seed), False
        while not ended:
            _, _, ended, _, info = env.step(int(rng.choice(np.flatnonzero(info["action_mask"]))))
        apart = np.log(info["runtime_s"] / min(times))
        assert info["runtime_s"] in times and info["regret"] in (0.0, pytest.approx(apart))
        assert info["status"] == ("OK" if np.isfinite(info["runtime_s"]) else "COMPILE_ERROR")


def test_what_the_model_ranks_first_is_measured_first() -> None:
    result = optimize(GEMM, "h100", "exhaustive", trials=3, backend="recorded", space="compact")
    regret = open_recorded("recorded", hardware.get("h100")).regret(result.task.graph(), result.schedule)
    assert regret is not None and 0.0 <= regret < 0.5 and result.seconds > 7e-5


def test_tables_answer_for_the_machine_and_for_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """The H200 has the same limits; rates of the H100's model may change, its limits may not."""
    assert "h100" in hardware.recorded_names() and "h100" in hardware.names()
    h100, backend = hardware.get("h100"), open_recorded("recorded:h100", hardware.get("h100"))
    graph = ConstructionGraph(GEMM, h100, "compact")
    first = Schedule(next(graph.enumerate())[0])
    known = backend.measure(graph.operator, [first], h100)
    assert known[0].status is not Status.NOT_RECORDED
    assert backend.measure(graph.operator, [first], with_other_rates(h100)) == known
    for other in (hardware.get("h200"), dataclasses.replace(h100, registers_per_unit=32768), hardware.get("a100")):
        with pytest.raises(ValueError, match="recorded on h100, whose figures are not those of"):
            backend.measure(graph.operator, [first], other)
    monkeypatch.setattr(cuda_presence, "absence", lambda _: "made up")
    with pytest.raises(ValueError, match="h100 cannot be timed here: made up; choose backend analytic, recorded"):
        get_backend("auto", h100)
    with pytest.raises(ValueError, match="there are tables of: h100, zen5_1c"):
        open_recorded("recorded", hardware.get("h200"))
    with pytest.raises(ValueError, match="accepted: ") as caught:
        hardware.get("h300")
    assert str(caught.value).partition("; did you mean")[0].count("h100") == 1


def test_the_drift_is_that_of_kernels_timed_in_two_runs() -> None:
    rows = read_rows(SHIPPED / RAW / OPERATORS)
    ratios = twice_timed(rows)
    assert len(ratios) == 16 and np.abs(ratios).max() < 0.012
    about = read_table(TABLES / "gemv_m16384_k1000.parquet").about
    assert about["drift"] == drift_of(rows) == pytest.approx(np.sqrt(np.mean(ratios**2) / 2)) and about["passes"] == 1
    assert "There was one pass" in (TABLES / "gemv_m16384_k1000.md").read_text(encoding="utf-8")
    with pytest.raises(ValueError, match="no kernel of stage `operators` was timed in two runs"):
        drift_of([row for row in rows if row["run"] == rows[0]["run"]])


def test_what_is_missing_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main([str(tmp_path)]) == 2 and "conditions.json: expected the raw files of runs" in capsys.readouterr().err
    (tmp_path / RAW).mkdir()
    (tmp_path / RAW / "conditions.json").write_text('{"machine": "h100"}')
    assert command.main([str(tmp_path)]) == 2 and "does not describe runs" in capsys.readouterr().err
    shutil.copytree(SHIPPED / RAW, tmp_path / RAW, dirs_exist_ok=True)
    (tmp_path / "h100").mkdir()
    assert command.main([str(tmp_path), "--recordings", str(tmp_path)]) == 2 and FILE in capsys.readouterr().err


def test_packing_keeps_rows_and_drops_what_repeats(tmp_path: Path) -> None:
    rows = [
        {"key": "op s", "operator": "op", "schedule": "s", "status": "WRONG_ANSWER", "source": "wrong"},
        {"key": "short", "operator": "op", "schedule": "tile", "status": "CRASHED", "source": "right"},
    ]
    for name in ("one.jsonl.gz", "two.jsonl.gz"):
        write_rows(tmp_path / name, map(slim, rows))
    assert (tmp_path / "one.jsonl.gz").read_bytes() == (tmp_path / "two.jsonl.gz").read_bytes()
    kept = [{k: v for k, v in row.items() if k != gone} for row, gone in zip(rows, ("key", "source"), strict=True)]
    assert read_rows(tmp_path / "one.jsonl.gz") == kept


RAW_MEASURED = ROOT / "results" / "h200" / "raw" / "2026-11-27"


def test_the_shipped_table_is_that_of_the_leases_rows(tmp_path: Path) -> None:
    assert lease.main([str(RAW_MEASURED), "h200", "--output", str(tmp_path)]) == 0
    for ending in ("md", "json"):
        assert (tmp_path / f"h200.{ending}").read_text() == (measured.FOLDER / f"h200.{ending}").read_text()
    found, shipped = measured.load(tmp_path / "h200.parquet"), measured.load("h200")
    assert found.equals(shipped) and len(list(tmp_path.iterdir())) == 3


def test_times_origins_and_parts_are_those_of_the_trials() -> None:
    table, rng = measured.load("h200"), np.random.default_rng(0)
    trials = {(row["operator"], row["schedule"]): row for row in read_rows(RAW_MEASURED / "trials.jsonl.gz")}
    proposals = read_rows(RAW_MEASURED / "proposals.jsonl.gz")
    for place in rng.choice(len(table), 12, replace=False):
        row = table.iloc[place]
        trial = trials[row.operator, row.schedule]
        assert row.part == operators.part_of(operators.parse(row.operator)) and row.status == trial["status"]
        quiet = Measurement(Status(trial["status"]), tuple(trial["samples"])).quiet_seconds
        assert row.quiet == pytest.approx(quiet, rel=1e-3)
        of = [(p["arm"], p["rank"] - 1) for p in proposals if (p["operator"], p["digest"]) == (row.operator, trial["digest"])]
        assert (row.origin, row["rank"]) in of
        assert row.origin == "markov_ext" or "markov_ext" not in {arm for arm, _ in of}


def test_an_environment_of_the_card_is_paid_by_them() -> None:
    table = measured.load("h200", "train")
    row = table[table.status == Status.OK.value].iloc[0]
    hw = hardware.get("h200")
    graph = ConstructionGraph(row.operator, hw, "extended")
    known, other = get_backend("measured", hw).measure(graph.operator, [Schedule.parse(row.schedule), graph.initial()], hw)
    assert known.seconds == pytest.approx(row.quiet) and other.status is Status.NOT_RECORDED and math.isinf(other.seconds)


def test_names_by_kind() -> None:
    assert measured.names("gpu") == ["h200"] and "zen4_1c" in measured.names("cpu")
    assert sorted([*measured.names("gpu"), *measured.names("cpu")]) == measured.names()
    assert measured.here("h200") == measured.machine_of("h200") and measured.here("zen4_1c").name == "host"


CARD = {
    "date": "2026-11-26T23:59:00+00:00", "python": "3.12.3", "cores": 16, "packages": {"torch": "2.11.0"},
    "nvidia_smi": "CUDA Version: 13.0", "gpu": {"name": "NVIDIA H200", "driver_version": "580.1"},
    "archive": {"revision": "abc", "compiler": "nvrtc 13.0"},
}  # fmt: skip
ROW = {"key": "gemm x", "operator": "gemm", "schedule": "x", "digest": "d", "status": "OK", "samples": [1e-6]}


def packed(folder: Path, **files: bytes) -> Path:
    """What came back."""
    folder.mkdir()
    with tarfile.open(folder / RESULTS, "w:gz") as tar:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return folder


def came(folder: Path, card: dict[str, object]) -> Path:
    """A card, rows of which the last is torn, and rows that were packed."""
    lines = json.dumps(ROW) + "\n" + '{"key": "torn'
    proposals = gzip.compress((json.dumps(ROW) + "\n").encode())
    rows = {"trials.jsonl": lines.encode(), "proposals.jsonl.gz": proposals}
    return packed(folder, **{"card.json": json.dumps(card).encode()}, **rows)


def test_rows_and_conditions_lie_where_pages_are_made_of(tmp_path: Path) -> None:
    home = take(came(tmp_path / "back", CARD), results=tmp_path / "results")
    assert home == tmp_path / "results" / "h200" / "raw" / "2026-11-26"
    (row,) = read_rows(home / "trials.jsonl.gz")
    assert row["samples"] == [1e-6]
    about = json.loads((home / "conditions.json").read_text())
    assert (about["device"], about["commit"], about["cuda"]) == ("NVIDIA H200", "abc", "13.0")
    assert set(about["files"]) == {"trials.jsonl.gz", "proposals.jsonl.gz"}


def test_nothing_is_written_over(tmp_path: Path) -> None:
    back = came(tmp_path / "back", CARD)
    take(back, results=tmp_path / "results")
    with pytest.raises(ValueError, match="is there already: name another date, such as 2026-11-26b"):
        take(back, results=tmp_path / "results")
    assert take(back, "2026-11-26b", tmp_path / "results").name == "2026-11-26b"


def test_what_is_no_lease_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="does not read"):
        take(tmp_path)
    with pytest.raises(ValueError, match="the card is 'NVIDIA T4': expected one of H100, H200"):
        take(came(tmp_path / "back", {**CARD, "gpu": {"name": "NVIDIA T4"}}), results=tmp_path / "results")
