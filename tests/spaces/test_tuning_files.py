"""Files of tuning spaces: what they hold is read, written back without loss, and refused where it makes no sense."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gensor_gym
from gensor_gym import load_space, save_space
from gensor_gym.measure.measurement import Status
from gensor_gym.spaces import TuningSpace
from tests.support.tuning_files import CACHE, DATA, HUB_FILES, T4, random_cache, random_t4, read

FORMATS = ("kernel_tuner", "t4")
OTHER = {"kernel_tuner": "t4", "t4": "kernel_tuner"}
FILES = [CACHE, T4, *HUB_FILES]


def text(value: Any) -> str:
    """JSON that tells 1 from true and from 1.0; the order of keys is no part of it."""
    return json.dumps(value, sort_keys=True)


def assert_same_space(a: TuningSpace, b: TuningSpace) -> None:
    assert a.parameters == b.parameters and a.status == b.status
    assert np.array_equal(a.indices, b.indices)
    assert all(np.allclose(x, y, rtol=1e-15, atol=0) for x, y in zip(a.samples, b.samples, strict=True))
    assert np.allclose(a.reported, b.reported, rtol=1e-15) and np.allclose(a.charges, b.charges, rtol=1e-12)


def assert_lossless(path: Path, tmp_path: Path) -> None:
    """Read, write, read gives an equal document, in both formats and by way of the other one."""
    space = load_space(path)
    raw = json.loads(gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes())
    assert text(space.document) == text(raw)
    save_space(space, tmp_path / "same.json")
    assert text(read(tmp_path / "same.json")) == text(raw)
    order = "cache" if space.format == "kernel_tuner" else "results"
    assert list(read(tmp_path / "same.json")[order]) == list(raw[order])
    save_space(space, tmp_path / "other.json.gz", OTHER[space.format])
    other = load_space(tmp_path / "other.json.gz")
    assert other.format == OTHER[space.format]
    assert_same_space(space, other)
    save_space(other, tmp_path / "back.json", space.format)
    back = read(tmp_path / "back.json")
    assert text(back) == text(raw) and list(back[order]) == list(raw[order])


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_round_trips_lose_nothing(path: Path, tmp_path: Path) -> None:
    assert_lossless(path, tmp_path)


@pytest.mark.parametrize("make", [random_cache, random_t4])
@pytest.mark.parametrize("seed", range(6))
def test_round_trips_of_random_files_lose_nothing(make: Any, seed: int, tmp_path: Path) -> None:
    path = tmp_path / "space.json"
    path.write_text(json.dumps(make(seed)))
    assert_lossless(path, tmp_path)


@pytest.mark.skipif(not HUB_FILES, reason="GENSOR_GYM_HUB names no folder of the benchmark hub")
def test_twins_of_the_hub_are_the_same_space() -> None:
    pairs = [(p, p.with_name(p.name.replace(".json", "_T4.json"))) for p in HUB_FILES if "_T4" not in p.name]
    assert pairs
    for cache, twin in pairs:
        if twin.exists():
            a, b = load_space(cache), load_space(twin)
            assert a.parameters == b.parameters and a.status == b.status and np.array_equal(a.indices, b.indices)
            assert np.array_equal(a.reported, b.reported)
            assert all(np.array_equal(x, y) for x, y in zip(a.samples, b.samples, strict=True))
            assert a.best() == b.best() == int(np.argmin(_raw_times(cache)))


def _raw_times(cache: Path) -> list[float]:
    """Times of a cache read without any of the code under test."""
    records = json.loads(gzip.decompress(cache.read_bytes()))["cache"].values()
    return [r["time"] if isinstance(r["time"], float) else float("inf") for r in records]


@pytest.mark.parametrize("path", [CACHE, T4], ids=FORMATS)
def test_the_best_is_what_kernel_tuner_reported(path: Path) -> None:
    space, told = load_space(path), read(DATA / "best.json")
    seconds = told.pop("time") / 1e3
    assert space.configuration(space.best()) == told
    assert space.seconds()[space.best()] == seconds
    assert len(space) == 30 and space.status.count(Status.COMPILE_ERROR) == 3 and space.ok.sum() == 27
    assert {len(s) for s, ok in zip(space.samples, space.ok, strict=True) if ok} == {9}
    assert space.charges.min() > 0.01


def test_units(tmp_path: Path) -> None:
    document = read(T4)
    expected = load_space(T4)
    for unit, factor in (("seconds", 1e-3), ("us", 1e3), ("miliseconds", 1.0)):
        scaled = json.loads(json.dumps(document))
        scaled["metadata"]["timeunit"] = unit
        for result in scaled["results"]:
            for phase, found in result["times"].items():
                result["times"][phase] = [t * factor for t in found] if isinstance(found, list) else found * factor
            result["measurements"] = []
        (tmp_path / f"{unit}.json").write_text(json.dumps(scaled))
        assert_same_space(load_space(tmp_path / f"{unit}.json"), expected)
    assert np.allclose(load_space(CACHE, unit="s").reported, 1e3 * load_space(CACHE).reported)


def test_a_cache_that_is_cut_off(tmp_path: Path) -> None:
    whole = CACHE.read_text()
    path = tmp_path / "cache.json"
    for closed_badly in (whole.rstrip()[:-3], whole.rstrip()[:-3] + ","):
        path.write_text(closed_badly)
        assert text(load_space(path).document) == text(read(CACHE))
    last = whole.rindex('"32,32')
    path.write_text(whole[: last + 100])
    with pytest.warns(UserWarning, match="cut off"):
        assert len(load_space(path)) == 29
    path.write_text(json.dumps(read(CACHE))[:-200])  # all in one line
    with pytest.warns(UserWarning, match="cut off"):
        assert len(load_space(path)) == 29


def test_a_changed_file_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "space.json"
    path.write_text(CACHE.read_text())
    first = load_space(path)
    assert load_space(path) is first
    path.write_text(T4.read_text())
    assert load_space(path).format == "t4"


def test_values_and_failures_of_every_kind(tmp_path: Path) -> None:
    document = {
        "tune_params_keys": ["x", "mode"],
        "tune_params": {"x": [4, 1], "mode": ["fast", "slow"]},
        "cache": {
            "4,fast": {"x": "4", "mode": "fast", "time": "2.5"},
            "1,slow": {"time": 4, "times": [3, 5]},
            "1,fast": {"x": 1.0, "mode": "fast", "times": [1, 2, 3]},
            "4,slow": {"x": 4, "mode": "slow", "time": 1e20},
        },
    }
    (tmp_path / "x.json").write_text(json.dumps(document))
    space = load_space(tmp_path / "x.json")
    assert space.parameters[0].values == (1.0, 4) and space.parameters[1].values == ("fast", "slow")
    assert space.reported.tolist() == [2.5e-3, 4e-3, 2e-3, float("inf")]
    assert space.status[3] is Status.LAUNCH_ERROR
    assert space.index({"mode": "slow", "x": 1}) == 1
    assert space.charges.tolist() == [2.5e-3, 8e-3, 6e-3, 0.0]


def _cache(**entry: Any) -> dict[str, Any]:
    return {"tune_params_keys": ["x"], "tune_params": {"x": [1]}, "cache": {"1": {"x": 1, **entry}}}


def _t4(**result: Any) -> dict[str, Any]:
    whole = {"configuration": {"x": 1}, "times": {"runtimes": [1.0]}, "invalidity": "correct", "correctness": 1, **result}
    return {"results": [whole]}


HOSTILE: list[tuple[Any, str]] = [
    ("", "not JSON"),
    ("not json", "not JSON"),
    ("[1, 2]", "'cache'.*'results'"),
    ({"hello": 1}, "'cache'.*'results'"),
    ({"cache": {}}, "tune_params_keys"),
    ({"tune_params_keys": ["x"], "cache": {}}, "0 configurations"),
    ({"tune_params_keys": ["x"], "cache": []}, "'cache' is list"),
    ({"tune_params_keys": ["x"], "cache": {"1": 3}}, r"cache\['1'\] is 3"),
    ({"tune_params_keys": ["x"], "cache": {"1": {"time": 1.0}}}, "lacks parameter 'x'"),
    (_cache(), "neither 'time' nor 'times'"),
    (_cache(time=float("nan")), r"\['time'\] is nan"),
    (_cache(time=-1.0), r"\['time'\] is -1.0"),
    (_cache(time=0), r"\['time'\] is 0"),
    (_cache(time=True), r"\['time'\] is True"),
    (_cache(time="soon"), r"\['time'\] is 'soon'"),
    (_cache(time=1.0, times=[1.0, float("inf")]), r"\['times'\]\[1\] is inf"),
    (_cache(time=1.0, times=3), r"\['times'\] is 3"),
    (_cache(time=1.0, compile_time=-5), "compile_time.* is -5"),
    ('{"tune_params_keys": ["x"], "cache": {"1": {"x": 1, "time": 1}, "1": {"x": 1, "time": 2}}}', "stands twice"),
    (
        {"tune_params_keys": ["x"], "cache": {"1": {"x": 1, "time": 1}, "1.0": {"x": 1.0, "time": 2}}},
        "same configuration",
    ),
    ({"results": {}}, "'results' is dict"),
    ({"results": []}, "0 configurations"),
    ({"results": [{}]}, r"results\[0\] has no object 'configuration'"),
    (_t4(invalidity="wrong"), "'wrong'; it is one of .*'correct'"),
    (_t4(times=None), r"\['times'\] is None"),
    (_t4(times={"runtimes": [-1.0]}), r"runtimes'\]\[0\] is -1.0"),
    (_t4(times={}), "neither a measurement named 'time' nor runtimes"),
    (_t4(measurements=[{"name": "time", "value": 1, "unit": "parsec"}]), "'parsec'.*'ms'"),
    ({"metadata": {"timeunit": "fortnight"}, **_t4()}, "'fortnight'"),
    ({"results": [*_t4()["results"], *_t4(configuration={"y": 1})["results"]]}, r"results\[1\] has parameters \['y'\]"),
    ({"results": _t4()["results"] * 2}, r"results\[1\] and results\[0\] are the same configuration"),
]


@pytest.mark.parametrize("content, message", HOSTILE, ids=[message[:40] for _, message in HOSTILE])
def test_what_makes_no_sense_is_named(content: Any, message: str, tmp_path: Path) -> None:
    path = tmp_path / "hostile.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    with pytest.raises(ValueError, match=message) as caught:
        load_space(path)
    assert "hostile.json" in str(caught.value)


def test_arguments_are_checked(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="'csv'.*'kernel_tuner', 't4'"):
        load_space(CACHE, format="csv")
    with pytest.raises(ValueError, match="of format 'kernel_tuner'"):
        load_space(CACHE, format="t4")
    for nothing in (tmp_path / "none.json", tmp_path, 3):
        with pytest.raises(ValueError, match="no file"):
            load_space(nothing)  # type: ignore[arg-type]
    (tmp_path / "half.gz").write_bytes(gzip.compress(CACHE.read_bytes())[:-100])
    with pytest.raises(ValueError, match="gzip"):
        load_space(tmp_path / "half.gz")
    space = load_space(CACHE)
    with pytest.raises(ValueError, match="'csv'"):
        save_space(space, tmp_path / "x.csv", "csv")
    with pytest.raises(ValueError, match="'mode'.*'reported', 'median'"):
        space.seconds("mode")
    with pytest.raises(ValueError, match="it takes values for"):
        space.index({"TILE_I": 2})
    with pytest.raises(ValueError, match="TILE_I=3"):
        space.index({"TILE_I": 3, "TILE_K": 4, "UNROLL": '"GCC unroll 1"'})
    with pytest.raises(ValueError, match="not among the 30"):
        space.index({"TILE_I": 8, "TILE_K": 8, "UNROLL": '"GCC unroll 1"'})
    assert gensor_gym.load_space is load_space
