"""Suites v1 to v1.2: frozen, limited, and their entries refused when a byte is changed."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agents.planning import searches
from agents.strategy import LEARNING, build, strategies_for
from experiments.board import entries, submit
from experiments.board.suite_figures import draw
from experiments.board.suite_page import lines
from experiments.board.suite_scores import CAP, scores_after, standings, tiers
from experiments.evidence.ship import ship
from gensor_gym import operators, suites
from gensor_gym.env import WRITE
from gensor_gym.measure.records import measured
from gensor_gym.measure.session import BudgetSpent, Session
from gensor_gym.networks import plan
from gensor_gym.suites.session import WINDOWS, LearningSession, NoModel
from tests.support.thorough import thorough_but

SUITE = suites.get("v1")
QUICK, LEARNED = "few_trials_no_model", "from_scratch"


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


def test_what_is_no_agent_seed_or_schedule_is_named() -> None:
    track = SUITE.tracks[QUICK]
    with pytest.raises(ValueError, match="agent 'markov': expected a function"):
        next(track.run("markov"))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="seed -1: expected whole numbers"):
        next(track.run(lambda session, rng: None, seeds=(-1,)))
    for wrong in (lambda graph: graph.initial(), lambda graph: [str(graph.initial())]):
        with pytest.raises(ValueError, match="expected a list of Schedule"):
            next(track.run(lambda session, rng, wrong=wrong: session.measure(wrong(session.graph)), seeds=(0,)))


def test_a_process_that_an_agent_forks_ends_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would give the same results again, and an entry would hold them twice."""

    def left(code: int) -> None:
        raise SystemExit(code)

    def agent(session: Session, rng: np.random.Generator) -> None:
        monkeypatch.setattr(os, "getpid", lambda: -1)  # as in the process that a fork makes
        raise ZeroDivisionError("of the agent's own")

    monkeypatch.setattr(os, "_exit", left)
    with pytest.raises(SystemExit):
        next(SUITE.tracks[QUICK].run(agent, seeds=(0,)))


def test_a_search_that_asks_for_nothing_new_ends() -> None:
    track = dataclasses.replace(SUITE.tracks[QUICK], tasks=SUITE.tracks[QUICK].tasks[1:2])

    def again(session: Session, rng: np.random.Generator) -> None:
        while True:
            session.measure([session.graph.initial()])

    (row,) = track.run(again, (0,))
    assert row["trials"] == 1


def _lesson(steps: int) -> LearningSession:
    """A session of the first task that is learned."""
    track = dataclasses.replace(SUITE.tracks[LEARNED], steps=steps)
    session = track.session(track.tasks[0])
    assert isinstance(session, LearningSession)
    return session


def test_steps_of_all_environments_and_evaluations_are_one_budget() -> None:
    session = _lesson(12)
    env, envs = session.make_env(), session.make_vec(2, WRITE, choices="columns")
    for _ in range(3):
        env.reset()
        env.step(0)
    envs.reset()
    for _ in range(2):
        envs.step(envs.action_masks().argmax(axis=1))
    session.predict([session.graph.initial()] * 3)
    assert (session.evaluations, session.steps_left, session.trials) == (10, 2, 0) and session.elapsed == 0.0
    with pytest.raises(BudgetSpent, match="10 of 12 steps"):
        session.predict([session.graph.initial()] * 3)
    for _ in range(2):
        env.reset()
        env.step(0)
    for step in (lambda: env.step(0), lambda: envs.step(np.zeros(2, dtype=int))):
        with pytest.raises(BudgetSpent, match="12 of 12 steps"):
            step()


def test_a_learning_curve_holds_what_episodes_came_to() -> None:
    session = _lesson(100)
    session.ended = [(3, 2.0), (4, 1.0), (50, np.inf), (51, 0.5), (99, 3.0)]
    curve = session.learning_curve()
    assert len(curve) == WINDOWS and curve[0] == [4, 1.5, 1.0] and curve[1] == [8, None, 1.0]
    assert curve[12] == [52, 0.5, 0.5] and curve[-1] == [100, 3.0, 0.5]


@pytest.mark.parametrize("name", thorough_but(strategies_for(LEARNING), "scratch_reinforce"))
def test_what_learns_from_nothing_ends_within_its_steps_the_same_each_time(name: str) -> None:
    track = dataclasses.replace(SUITE.tracks[LEARNED], steps=4100, tasks=SUITE.tracks[LEARNED].tasks[:1])
    agent = build(name, LEARNING, {"space": track.tasks[0].space})
    rows = [row for _ in range(2) for row in track.run(agent.search, (3,))]
    assert 2000 < rows[0]["evaluations"] <= 4100 and 1 <= rows[0]["trials"] <= 10 and len(rows[0]["learning"]) == WINDOWS
    timed = {"processor_s", "elapsed_s", "worked_s"}
    assert all(rows[0][key] == rows[1][key] for key in set(rows[0]) - timed)
    with pytest.raises(ValueError, match="from_scratch"):
        agent.search(SUITE.tracks[QUICK].session(SUITE.tracks[QUICK].tasks[1]), np.random.default_rng(0))


WALK = entries.Entrant("random_walk", "random_walk")


def _small(monkeypatch: pytest.MonkeyPatch) -> suites.Track:
    """Two tasks and two seeds, as a suite of their own."""
    track = SUITE.tracks[QUICK]
    small = dataclasses.replace(track, tasks=track.tasks[1:3], seeds=(0, 1))
    monkeypatch.setattr(entries, "get", lambda version: suites.Suite(version, {QUICK: small}))
    return small


def test_an_entry_is_verified_and_refused_when_any_byte_is_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = entries.play(WALK, _small(monkeypatch), tmp_path)
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
    path = entries.play(WALK, _small(monkeypatch), tmp_path)
    rows = entries.verify(path)
    header = WALK.header(SUITE.tracks[QUICK])
    half = (float.fromhex(rows[0]["seconds"]) / 2).hex()
    lies = ({"seconds": half}, {"trials": 11}, {"actions": rows[1]["actions"][:-1] + "9"})
    for lie in lies:
        path.write_text(entries.text_of(header, [rows[0] | lie, *rows[1:]]))
        with pytest.raises(ValueError, match="seconds|trials|actions"):
            entries.verify(path)


def test_a_killed_run_goes_on_to_the_same_entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What has been searched is in the journal, and is not searched again."""
    small, made = _small(monkeypatch), []

    def stop(name: str, searched: str, given: dict[str, object]) -> object:
        made.append(name)
        if len(made) == 4:
            raise KeyboardInterrupt
        return build(name, searched, given)

    monkeypatch.setattr(entries, "build", stop)
    with pytest.raises(KeyboardInterrupt):
        entries.play(WALK, small, tmp_path)
    path = entries.play(WALK, small, tmp_path)
    entries.verify(path)
    assert len(made) == 7  # one to warm up and two, one that was stopped, one to warm up and two
    assert entries.play(WALK, small, tmp_path) == path and len(made) == 7, "an entry that is there is not made again"
    assert [one.name for one in path.parent.iterdir()] == [path.name]
    packed = ship(path)
    assert entries.play(WALK, small, tmp_path) == path and len(made) == 7 and len(entries.verify(path)) == 4
    assert list(path.parent.iterdir()) == [packed], "nor one that ships packed"


AGENT = """
def search(session, rng):
    while True:
        session.measure([session.graph.random_schedule(rng)])
"""


def test_an_agent_in_a_file_enters_by_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _small(monkeypatch)
    file = tmp_path / "mine.py"
    file.write_text(AGENT)
    words = ["--frozen", "v1", "--track", QUICK, "--output", str(tmp_path / "out")]
    assert submit.main([*words, "--agent", f"{file}:search", "--name", "mine"]) == 0
    path = tmp_path / "out" / "v1" / "mine" / f"{QUICK}.jsonl"
    assert len(entries.verify(path)) == 4
    other = path.parent.parent / "yours" / path.name
    other.parent.mkdir()
    other.write_bytes(path.read_bytes())
    with pytest.raises(ValueError, match="expected 'yours' by the folder"):
        entries.verify(other)
    named = ["--name", "mine"]
    for wrong in (["--agent", f"{file}:search"], ["--agent", f"{file}:nothing", *named], [], ["random_walk", "--set", "a=1"]):
        assert submit.main([*words, *wrong]) == 2
    assert submit.main(["--frozen", "v1", "--track", "few", "random_walk"]) == 2


def test_a_search_by_the_model_leaves_a_track_without_one_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(NoModel):
        entries.play(entries.Entrant("greedy", "greedy"), _small(monkeypatch), tmp_path)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]

    def played(_: entries.Entrant, track: suites.Track, folder: Path, seeds: int | None) -> Path:
        if not track.model:
            raise NoModel("4 evaluations of the model asked for")
        return folder / track.name

    monkeypatch.setattr(entries, "play", played)
    monkeypatch.setattr(entries, "get", suites.get)
    words = ["--frozen", "v1", "greedy", "--output", str(tmp_path)]
    assert submit.main(words) == 0
    first, second, *_ = capsys.readouterr().out.splitlines()
    assert first == f"wrote {tmp_path / 'few_trials'}"
    assert second.startswith(f"left out {QUICK}, since greedy asks the model: 4 eval")
    assert submit.main([*words, "--track", QUICK]) == 2


def test_a_seed_of_the_suite_chooses_among_policies() -> None:
    track = SUITE.tracks[QUICK]
    columns = entries.Entrant("columns", "columns", {"checkpoint": "policies/of_{seed}"})
    agents = [columns.agent(track, track.tasks[0], seed).__self__ for seed in (3, 4)]  # type: ignore[attr-defined]
    assert [agent.checkpoint for agent in agents] == ["policies/of_3", "policies/of_4"]
    with pytest.raises(ValueError, match="checkpoint"):
        entries.Entrant("mine", "mine.py:search", {"checkpoint": "x"})


def test_more_seeds_join_those_that_are_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small, other = _small(monkeypatch), tmp_path / "other"
    first = entries.verify(entries.play(WALK, small, tmp_path, 1))
    assert [row["seed"] for row in first] == [0, 0]
    both, whole = (entries.verify(entries.play(WALK, small, folder)) for folder in (tmp_path, other))
    told = ("task", "seed", "actions", "regret", "curve")
    assert [[row[name] for name in told] for row in both] == [[row[name] for name in told] for row in whole]
    assert [row for row in both if row["seed"] == 0] == first


def test_a_search_that_others_held_up_is_made_again() -> None:
    track = SUITE.tracks["unseen_operators"]
    row = {"trials": 3, "elapsed_s": 10.2, "worked_s": 1.0}
    assert entries.held_up(row, track)
    for other in ({"trials": 10}, {"elapsed_s": 9.0}, {"worked_s": 6.0}):
        assert not entries.held_up(row | other, track)


def test_tiers_tell_apart_what_intervals_tell_apart() -> None:
    rng = np.random.default_rng(0)
    noise = rng.random((12, 10)) * 0.01
    assert tiers({"c": noise + 1.0, "a": noise, "b": rng.permuted(noise, axis=1), "d": noise + 0.3}) == [["a", "b"], ["d"], ["c"]]


def test_regret_after_so_much_was_spent_is_that_of_what_was_measured_until_then() -> None:
    track = dataclasses.replace(SUITE.tracks[QUICK], tasks=SUITE.tracks[QUICK].tasks[:1], seeds=(0,))
    task = track.tasks[0]
    row = {"suite": "v1", "track": QUICK, "task": task.name, "seed": 0, "fingerprint": task.fingerprint}
    row |= {"curve": [None, 0.7, 0.2], "processor_s": [0.1, 0.2, 0.4], "asked": [0, 0, 0]}
    found = scores_after(track, [row], "processor_s", (0.05, 0.1, 0.3, 0.4))
    assert found.tolist() == [[[CAP, CAP, 0.7, 0.2]]]


@pytest.mark.thorough
def test_a_page_and_figures_follow_from_entries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of searches and of learning, by the lines of real entries."""
    small = _small(monkeypatch)
    lesson = dataclasses.replace(SUITE.tracks[LEARNED], steps=400, tasks=SUITE.tracks[LEARNED].tasks[:1], seeds=(0, 1))
    suite = suites.Suite("v1", {QUICK: small, LEARNED: lesson})
    monkeypatch.setattr(entries, "get", lambda version: suite)
    file = tmp_path / "mine.py"
    file.write_text("def search(session, rng):\n    env = session.make_env()\n    env.reset()\n    while session.steps_left:\n"
                    "        if env.step(rng.choice(env.action_masks().nonzero()[0]))[2]:\n            env.reset()\n"
                    "    session.measure([env.get_wrapper_attr('schedule')])\n")  # fmt: skip
    entries.play(WALK, small, tmp_path)
    entries.play(entries.Entrant("mine", f"{file}:search"), lesson, tmp_path)
    entries.play(entries.Entrant("few", "random_walk"), small, tmp_path, 1)
    ship(tmp_path / "v1" / "random_walk" / f"{small.name}.jsonl")
    found = standings(suite, entries.verified("v1", tmp_path))
    text = "\n".join(lines(found, "pictures"))
    assert "fewer where the table says so" in text and "| few | 1 |" in text and "| random_walk | 2 |" in text
    assert f"### {QUICK}" in text and "| 1 | mine |" in text and "best met until" in text and "| 400 |" in text
    assert [path.name for path in draw(found, tmp_path)] == [f"{QUICK}.png", f"{LEARNED}.png", f"{LEARNED}_learning.png"]
    assert all((tmp_path / path).stat().st_size > 10_000 for path in (f"{QUICK}.png", f"{LEARNED}.png"))


def test_candidates_are_the_recorded_programs_of_operators_outside_the_train_part() -> None:
    for track in suites.get("v1.1").tracks.values():
        (machine,) = {task.hardware for task in track.tasks}
        table = measured.load(machine)
        best = table[table.part.isin(["test", "unseen"]) & (table.status == "OK")].groupby("operator", observed=True).quiet.min()
        assert {task.operator: task.best for task in track.tasks} == best.to_dict() and track.candidates
    session = track.session(track.tasks[0])
    assert list(map(str, session.candidates)) == sorted(set(table[table.operator == track.tasks[0].operator].schedule))
    with pytest.raises(ValueError, match=f"expected some of the {len(session.candidates)} session.candidates"):
        session.measure([session.graph.random_schedule(np.random.default_rng(0))])
    with pytest.raises(suites.SuiteChanged, match="recorded table changed"):
        track.session(dataclasses.replace(track.tasks[0], edition="0" * 16))


def test_an_entry_that_chooses_candidates_is_verified_by_their_indices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    suite = suites.get("v1.1")
    short = dataclasses.replace(suite.tracks["measured_h200"], tasks=suite.tracks["measured_h200"].tasks[:2])
    frozen = dataclasses.replace(suite, tracks={"measured_h200": short})
    monkeypatch.setattr(entries, "get", lambda version: frozen)
    path = entries.play(entries.Entrant("ranked_model", "ranked_model"), short, tmp_path, seeds=1)
    rows = entries.verify(path)
    table = measured.load("h200")
    for task, row in zip(short.tasks, rows, strict=True):
        chosen = sorted(set(table[table.operator == task.operator].schedule))[int(row["actions"])]
        assert float.fromhex(row["seconds"]) == table[(table.operator == task.operator) & (table.schedule == chosen)].quiet.min()
    header, changed = {**entries.Entrant("ranked_model", "ranked_model").header(short)}, [dict(row) for row in rows]
    for wrong, message in (("100000", "expected the index of one of"), ("0 1", "expected the index of one of")):
        changed[0]["actions"] = wrong
        path.write_text(entries.text_of(header, changed))
        with pytest.raises(ValueError, match=message):
            entries.verify(path)
    changed[0]["actions"] = str(0 if rows[0]["actions"] != "0" else 1)
    path.write_text(entries.text_of(header, changed))
    with pytest.raises(entries.Difference):
        entries.verify(path)
    standing = standings(frozen, {"measured_h200": {"ranked_model": rows}})
    assert "after one trial" in "\n".join(lines(standing, None))


def test_a_track_of_plans_counts_decisions_and_verifies_plans(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    suite = suites.get("v1.2")
    whole = suite.tracks["plans"]
    assert len(whole.tasks) == 32 and {task.group for task in whole.tasks} == {"test", "unseen"}
    (task,) = (task for task in whole.tasks if task.operator == "layered(seed=316)")
    short = dataclasses.replace(whole, tasks=(task,))
    with pytest.raises(suites.SuiteChanged, match="changed"):
        short.session(dataclasses.replace(task, fingerprint="0" * 16))
    session: Any = short.session(task)
    with pytest.raises(BudgetSpent, match="512 of 512 decisions"):
        searches.random_plans(searches.Walker(session.graph, 10_000), np.random.default_rng(0))
    with pytest.raises(ValueError, match="expected a list of plans of"):
        session.measure(["v0"])
    alone = session.graph.plan_of(session.graph.first)
    loops = plan.Plan(alone.network, (alone.pieces[0], *(dataclasses.replace(one, follows=4) for one in alone.pieces[1:])))
    assert [found.status.value for found in session.measure([alone, alone, loops])] == ["OK", "OK", "ILLEGAL"]
    assert session.trials == 2
    monkeypatch.setattr(entries, "get", lambda version: dataclasses.replace(suite, tracks={"plans": short}))
    for name in ("fine", "local", "beam"):
        path = entries.play(entries.Entrant(name, f"agents.planning.entrants:{name}"), short, tmp_path, seeds=1)
        (row,) = entries.verify(path)
        assert float.fromhex(row["regret"]) == pytest.approx(0.0, abs=1e-3)
    header = entries.Entrant("beam", "agents.planning.entrants:beam").header(short)
    for text, message in ((str(alone), "regret|seconds|curve"), ("v0 nothing", "nothing")):
        path.write_text(entries.text_of(header, [{**row, "actions": text}]))
        with pytest.raises(ValueError, match=message):
            entries.verify(path)
