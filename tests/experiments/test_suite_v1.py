"""Suite v1: frozen, limited, and its entries refused when a byte is changed."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from agents import get_strategy
from experiments.board import entries
from experiments.board.suite_page import tiers
from gensor_gym import operators, suites
from gensor_gym.measure.session import BudgetSpent, Session
from gensor_gym.suites.session import NoModel

SUITE = suites.get("v1")
QUICK = "few_trials_no_model"


def test_tracks_hold_what_they_say() -> None:
    assert set(SUITE.tracks) == {QUICK, "few_trials", "unseen_operators", "unseen_machines", "from_scratch"}
    for track in SUITE.tracks.values():
        assert len(track.seeds) == 10 and track.budget.trials == 10 and track.budget.seconds
        assert len({task.name for task in track.tasks}) == len(track.tasks) and all(task.best > 0 for task in track.tasks)
    unseen = SUITE.tracks["unseen_operators"].tasks
    test = set(map(str, operators.resolve("split/v2/test")))
    assert {task.operator for task in unseen} <= test and {task.group for task in unseen} == {"seen class", "unseen class"}
    assert {task.hardware for task in SUITE.tracks["few_trials"].tasks} == {"h100", "zen5_1c"}


def test_what_was_changed_since_is_refused() -> None:
    task = SUITE.tracks[QUICK].tasks[0]
    task.check()
    for changed in ({"fingerprint": "0" * 16}, {"edition": "0" * 16}):
        with pytest.raises(suites.SuiteChanged, match="changed"):
            SUITE.tracks[QUICK].session(dataclasses.replace(task, **changed))
    with pytest.raises(ValueError, match="'v0'"):
        suites.get("v0")


def test_a_track_without_the_model_gives_none_and_ends_at_ten_trials() -> None:
    track = SUITE.tracks[QUICK]
    with pytest.raises(NoModel):
        session = track.session(track.tasks[1])
        session.predict([session.graph.initial()])

    def everything(session: Session, rng: np.random.Generator) -> None:
        while True:
            session.measure([session.graph.random_schedule(rng)])

    (row,) = dataclasses.replace(track, tasks=track.tasks[1:2]).run(everything, (3,))
    assert row["trials"] == 10 and len(row["curve"]) == 10 and row["suite"] == "v1" and row["regret"] == min(row["curve"])
    with pytest.raises(ValueError, match="189 results are missing"):
        track.scores([row])


def test_an_environment_ends_at_its_steps() -> None:
    track = dataclasses.replace(SUITE.tracks["from_scratch"], steps=3)
    env = track.make_env(track.tasks[0], 0)
    for _ in range(3):
        env.step(0)
        env.reset()
    with pytest.raises(BudgetSpent):
        env.step(0)
    with pytest.raises(ValueError, match="track.make_env"):
        track.session(track.tasks[0])
    with pytest.raises(ValueError, match="track.run"):
        SUITE.tracks[QUICK].make_env(track.tasks[0], 0)


def _small(monkeypatch: pytest.MonkeyPatch) -> suites.Track:
    """Two tasks and two seeds, as a suite of their own."""
    track = SUITE.tracks[QUICK]
    small = dataclasses.replace(track, tasks=track.tasks[1:3], seeds=(0, 1))
    monkeypatch.setattr(entries, "get", lambda version: suites.Suite(version, {QUICK: small}))
    return small


def test_an_entry_is_verified_and_refused_when_any_byte_is_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = entries.play("random_walk", _small(monkeypatch), tmp_path)
    assert len(entries.verify(path)) == 4
    content = path.read_bytes()
    for at in np.random.default_rng(0).integers(0, len(content), 40):
        path.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
        with pytest.raises(ValueError):
            entries.verify(path)
    path.write_bytes(content)
    entries.verify(path)


def test_a_lie_under_a_new_digest_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A faster time than its actions come to, and a cheaper search than the budget allows."""
    path = entries.play("random_walk", _small(monkeypatch), tmp_path)
    rows = entries.verify(path)
    header = {"suite": "v1", "track": QUICK, "agent": "random_walk"}
    half = (float.fromhex(rows[0]["seconds"]) / 2).hex()
    lies = ({"seconds": half}, {"trials": 11}, {"actions": rows[1]["actions"][:-1] + "9"})
    for lie in lies:
        path.write_text(entries.text_of(header, [rows[0] | lie, *rows[1:]]))
        with pytest.raises(ValueError, match="seconds|trials|actions"):
            entries.verify(path)


def test_a_killed_run_goes_on_to_the_same_entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What has been searched is in the journal, and is not searched again."""
    small, made = _small(monkeypatch), []

    def stop(name: str, **arguments: object) -> object:
        made.append(name)
        if len(made) == 3:
            raise KeyboardInterrupt
        return get_strategy(name, **arguments)

    monkeypatch.setattr(entries, "get_strategy", stop)
    with pytest.raises(KeyboardInterrupt):
        entries.play("random_walk", small, tmp_path)
    entries.verify(entries.play("random_walk", small, tmp_path))
    assert len(made) == 5  # two, one that was stopped, two


def test_tiers_tell_apart_what_intervals_tell_apart() -> None:
    rng = np.random.default_rng(0)
    noise = rng.random((12, 10)) * 0.01
    assert tiers({"c": noise + 1.0, "a": noise, "b": rng.permuted(noise, axis=1), "d": noise + 0.3}) == [["a", "b"], ["d"], ["c"]]
