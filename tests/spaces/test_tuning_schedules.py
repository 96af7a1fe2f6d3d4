"""Tables of this project's schedules as tuning spaces of other tools."""

from __future__ import annotations

import math
from pathlib import Path

import gymnasium
import numpy as np
import pytest

import gensor_gym
from agents import tune
from gensor_gym import hardware
from gensor_gym.graph.schedule import Schedule
from gensor_gym.measure.measurement import Measurement, Status
from gensor_gym.measure.records.store import Record
from gensor_gym.measure.records.tables import read_table, write_table

FOLDER = Path(__file__).parents[1] / "golden" / "recorded"
FILE = FOLDER / "gemv_m16_k64.parquet"


@pytest.mark.parametrize("format", ("t4", "kernel_tuner"))
def test_a_table_goes_out_and_comes_back(tmp_path: Path, format: str) -> None:
    records = {r.schedule: r.measurement for r in read_table(FILE).records}
    space = gensor_gym.load_space(FILE)
    path = tmp_path / "space.json.gz"
    gensor_gym.save_space(space, path, format)
    again = gensor_gym.load_space(path)
    assert len(space) == len(again) == len({Schedule.parse(s).row[:40].tobytes() for s in records})
    assert [p.name for p in space.parameters] == [p.name for p in again.parameters]
    assert (space.indices == again.indices).all()
    lost = Status.LAUNCH_ERROR if format == "kernel_tuner" else Status.WRONG_ANSWER  # a cache has no word for a wrong answer
    assert again.status == tuple(lost if status is Status.WRONG_ANSWER else status for status in space.status)
    np.testing.assert_allclose(again.seconds("median"), space.seconds("median"), rtol=1e-12)
    best = min((m for m in records.values() if m.status is Status.OK), key=lambda m: m.seconds)
    assert tune(again, "exhaustive", timing="median").seconds == pytest.approx(best.seconds, rel=1e-12)
    assert sum(map(len, again.samples)) == sum(len(m.samples) for m in records.values() if m.status is Status.OK)


def test_it_is_an_environment() -> None:
    env = gymnasium.make("gensor_gym/Recorded-v0", path=str(FILE), timing="median")
    _, info = env.reset(seed=0)
    names = env.unwrapped.moves.names
    assert any("register_m" in name for name in names) and not any("level" in name for name in names)
    ended = False
    while not ended:
        legal = np.flatnonzero(info["action_mask"])
        _, _, ended, _, info = env.step(int(env.unwrapped.np_random.choice(legal)))
    assert info["regret"] >= 0.0 and math.isfinite(info["best_s"])


def test_failures_have_their_words(tmp_path: Path) -> None:
    table = read_table(FILE)
    odd = [Status.CRASHED, Status.IMPLAUSIBLE, Status.WRONG_ANSWER, Status.TIMEOUT, Status.COMPILE_ERROR]
    records = [
        Record(r.device, r.operator, r.schedule, Measurement(odd[i]) if i < len(odd) else r.measurement, 0.0)
        for i, r in enumerate(table.records)
    ]
    write_table(tmp_path / "odd.parquet", records, {"hardware": table.about["hardware"]})
    found = gensor_gym.load_space(tmp_path / "odd.parquet").status[: len(odd)]
    assert found == (Status.LAUNCH_ERROR, Status.WRONG_ANSWER, Status.WRONG_ANSWER, Status.TIMEOUT, Status.COMPILE_ERROR)


def test_a_table_of_no_machine_or_two_operators_is_refused(tmp_path: Path) -> None:
    table = read_table(FILE)
    write_table(tmp_path / "bare.parquet", table.records)
    other = [Record(r.device, "gemv(m=8, k=8)", r.schedule, r.measurement, 0.0) for r in table.records[:1]]
    machine = {"hardware": hardware.to_json(hardware.get("cascade_lake"))}
    write_table(tmp_path / "two.parquet", [*table.records, *other], machine)
    for name in ("bare", "two"):
        with pytest.raises(ValueError, match=f"{name}.parquet: expected the timings of one operator"):
            gensor_gym.load_space(tmp_path / f"{name}.parquet")
