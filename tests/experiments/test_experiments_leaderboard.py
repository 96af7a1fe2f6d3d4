"""The leaderboard: replay files go round, whatever is changed in them is found and named, the page follows from them."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from experiments.board import leaderboard, submit, verify
from experiments.board.replay_file import Difference, hash_of, verify_file, verify_text
from experiments.board.suite import SUITE, read_suite
from gensor_gym import operators
from gensor_gym.measure.session import Budget

TASKS = """
budget: {trials: 3, evaluations: null, seconds: null}
tasks:
  - {hardware: h200, backend: analytic, space: compact, operator: "gemm(m=64, n=64, k=64)"}
  - {hardware: zen5_1c, backend: recorded, space: compact, operator: "gemm(m=64, n=64, k=512)"}
"""


def act(observation: np.ndarray, legal: np.ndarray, rng: np.random.Generator) -> int:
    """A policy: any legal action."""
    assert len(observation) > 0
    return int(rng.choice(np.flatnonzero(legal)))


def stray(observation: np.ndarray, legal: np.ndarray, rng: np.random.Generator) -> int:
    """A policy that gives what is no action."""
    return 99


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    """A suite of two small tasks."""
    path = tmp_path / "suite.yaml"
    path.write_text(TASKS)
    return path


@pytest.fixture(scope="module")
def replay() -> str:
    """A replay file of a random walk on the analytic tier."""
    task = read_suite().tasks[0]
    return submit.play(submit.Entrant("walker", "random_walk"), task, 3, Budget(trials=2))


def run(suite: Path, *arguments: str) -> int:
    """`experiments.submit` into a folder beside the suite."""
    return submit.main([*arguments, "--suite", str(suite), "--output", str(suite.parent / "out")])


def tampered(text: str, line: int, **values: Any) -> str:
    """The text with fields of one line changed."""
    lines = text.split("\n")
    lines[line] = json.dumps(json.loads(lines[line]) | values)
    return "\n".join(lines)


def test_what_a_strategy_and_a_policy_submit_is_verified(suite: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(suite, "random_walk") == 0
    policy = f"{__name__}:act"
    assert run(suite, "--policy", policy, "--name", "lots") == 0
    assert run(suite, "--policy", policy, "--name", "ahead", "--observation", "successors") == 0
    files = sorted((suite.parent / "out").rglob("*.jsonl"))
    assert len(files) == 6
    assert verify.main([str(suite.parent / "out"), "--search"]) == 0
    assert "6 of 6 files verified" in capsys.readouterr().out
    outcomes = [verify_file(path).outcome for path in files]
    assert all(outcome.status == "OK" and outcome.seconds > 0 for outcome in outcomes)
    verified = [(path.parent.name, verify_file(path)) for path in files]
    spent = {name: one.header["evaluations"] - one.outcome.steps for name, one in verified}
    assert spent["lots"] == 0 < 3 < spent["ahead"]  # successors are answers of the model as well
    recorded = [verify_file(path).outcome.regret for path in files if "zen5" in path.name]
    assert all(regret is not None and regret >= 0 for regret in recorded)


def test_a_change_of_any_value_is_found_and_named(replay: str) -> None:
    verify_text(replay)
    step = json.loads(replay.split("\n")[4])
    digits = step["reward"]
    at = digits.index("p") - 1
    reward = digits[:at] + ("1" if digits[at] != "1" else "2") + digits[at + 1 :]
    other = "tile[3]" if step["action"] != "tile[3]" else "tile[4]"
    flipped = ("0" if step["observation"][0] != "0" else "1") + step["observation"][1:]
    cases = {
        "step 3, observation: expected": tampered(replay, 4, action=other),
        f"step 3, reward: expected '{step['reward']}', found '{reward}'": tampered(replay, 4, reward=reward),
        f"step 3, observation: expected '{step['observation']}', found '{flipped}'": tampered(replay, 4, observation=flipped),
        "step 3, step: expected 3, found 9": tampered(replay, 4, step=9),
        "header, fingerprint: expected": tampered(replay, 0, fingerprint="0" * 16),
        "step 0, observation: expected": tampered(replay, 1, observation="0" * 16),
        "end, seconds: expected": tampered(replay, -2, seconds="0x1.0p-30"),
        "end, return: expected": tampered(replay, -2, **{"return": "0x1.0p+9"}),
        "header: expected": replay.replace('{"replay": 1', '{"replay":1', 1),
    }
    for message, text in cases.items():
        assert text != replay
        with pytest.raises(Difference) as caught:
            verify_text(text)
        assert str(caught.value).startswith(message)


def test_the_byte_that_is_named_is_the_first_that_differs(replay: str) -> None:
    at = replay.index('"observation"', len(replay) // 2) + len('"observation": "') + 4
    changed = replay[:at] + ("0" if replay[at] != "0" else "1") + replay[at + 1 :]
    with pytest.raises(Difference, match=rf"\(byte {at}\)$"):
        verify_text(changed)


def test_lines_that_are_missing_or_too_many_are_named(replay: str) -> None:
    lines = replay.split("\n")
    cases = {
        r"step 2, step: expected 2, found 3": [*lines[:3], *lines[4:]],
        r"is not over after step 2": lines[:4],
        r"end: expected .*found the end of the file": lines[:-2],
        r"after the end: expected nothing": [*lines, ""],
        r"end: expected .*\"end\": .* found .*\"action\": \"stop\"": [*lines[:-2], lines[-3], *lines[-2:]],
    }
    for message, changed in cases.items():
        with pytest.raises(ValueError, match=message):
            verify_text("\n".join(changed))


def test_files_that_do_not_read_say_so(replay: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    header = json.loads(replay.split("\n")[0])
    cases = {
        "header: expected a line of JSON": "nonsense\n",
        "header: expected a JSON object": "[1]\n",
        "header: expected the fields": '{"replay": 1}\n',
        "header, replay: expected version 1, found 2": tampered(replay, 0, replay=2),
        "header, id: expected": tampered(replay, 0, id="CartPole-v1"),
        "header, backend: expected one of analytic, recorded, found 'cpu'": tampered(
            replay, 0, arguments=header["arguments"] | {"backend": "cpu"}
        ),
        "header, seed: expected a number from 0, found 'x'": tampered(replay, 0, seed="x"),
        "unknown hardware 'abacus'": tampered(replay, 0, arguments=header["arguments"] | {"hardware": "abacus"}),
        "unexpected keyword argument": tampered(replay, 0, arguments=header["arguments"] | {"colour": 1}),
        "step 2, action: expected a name": tampered(replay, 3, action="fly"),
        "step 1: expected a line of JSON": "\n".join([*replay.split("\n")[:2], "tile", ""]),
    }
    for message, text in cases.items():
        path = tmp_path / "bad.jsonl"
        path.write_text(text)
        with pytest.raises(ValueError, match="bad.jsonl") as caught:
            verify_file(path)
        assert message in str(caught.value)
    assert verify.main([str(tmp_path)]) == 2
    assert "bad.jsonl: step 1" in capsys.readouterr().err
    assert verify.main([str(tmp_path / "nothing.jsonl")]) == 2
    (tmp_path / "bytes.jsonl").write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError, match="does not read"):
        verify_file(tmp_path / "bytes.jsonl")


def test_what_a_file_states_is_found_by_searching_again(suite: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(suite, "random_walk") == 0
    path = sorted((suite.parent / "out").rglob("*.jsonl"))[0]
    path.write_text(tampered(path.read_text(), 0, trials=1))
    assert verify.main([str(path)]) == 0
    assert verify.main([str(path), "--search"]) == 1
    assert "searched again: header, trials: expected 3, found 1" in capsys.readouterr().err


def test_a_killed_submission_goes_on_where_it_was(suite: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    play, made = submit.play, []

    def killed(entrant: submit.Entrant, task: Any, seed: int, budget: Budget) -> str:
        if len(made) == 1:
            raise KeyboardInterrupt
        made.append(task)
        return play(entrant, task, seed, budget)

    monkeypatch.setattr(submit, "play", killed)
    with pytest.raises(KeyboardInterrupt):
        run(suite, "random_walk")
    (whole,) = (suite.parent / "out").rglob("*.jsonl")
    before = whole.stat().st_mtime_ns
    (whole.parent / f"{read_suite(suite).tasks[1].name}.jsonl").write_text('{"repl')  # no whole header
    monkeypatch.setattr(submit, "play", play)
    assert run(suite, "random_walk") == 0
    assert whole.stat().st_mtime_ns == before
    assert verify.main([str(suite.parent / "out")]) == 0
    assert run(suite, "random_walk", "--again") == 0
    assert whole.stat().st_mtime_ns > before


@pytest.mark.thorough
def test_a_submission_ended_by_the_system_leaves_whole_files(suite: Path) -> None:
    out = suite.parent / "out"
    command = [sys.executable, "-m", "experiments.submit", "random_walk", "--suite", str(suite), "--output", str(out)]
    child = subprocess.Popen(command, cwd=submit.ROOT, stdout=subprocess.DEVNULL)
    until = time.monotonic() + 120
    while not list(out.rglob("*.jsonl")) and child.poll() is None and time.monotonic() < until:
        time.sleep(0.01)
    child.kill()
    child.wait()
    assert list(out.rglob("*.jsonl"))
    assert verify.main([str(out)]) == 0
    assert run(suite, "random_walk") == 0
    assert {path.stem for path in out.rglob("*.jsonl")} == {task.name for task in read_suite(suite).tasks}
    assert verify.main([str(out), "--search"]) == 0


def test_the_policy_of_the_page_can_be_submitted(suite: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = leaderboard.PAGE.read_text(encoding="utf-8")
    (suite.parent / "my_agent.py").write_text(page.split("```python\n")[1].split("```")[0])
    monkeypatch.syspath_prepend(str(suite.parent))
    assert run(suite, "--policy", "my_agent:act", "--name", "my_agent") == 0
    assert verify.main([str(suite.parent / "out")]) == 0


def test_other_settings_and_seeds_are_played_anew(suite: Path) -> None:
    task = read_suite(suite).tasks[0]
    entrant = submit.Entrant("walker", "random_walk")
    assert run(suite, "random_walk", "--name", "walker") == 0
    path = suite.parent / "out" / "walker" / f"{task.name}.jsonl"
    assert submit.is_played(path, entrant.header(task, 0, Budget(trials=3)))
    assert not submit.is_played(path, entrant.header(task, 1, Budget(trials=3)))
    other = submit.Entrant("walker", "random_walk", settings={"patience": 5})
    assert not submit.is_played(path, other.header(task, 0, Budget(trials=3)))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "expected strategies"),
        (("no_such",), "no strategy 'no_such'"),
        (("random_walk", "--name", "../up"), "name '../up'"),
        (("random_walk", "--name", "x", "--set", "colour=1"), "no hyperparameters"),
        (("random_walk", "--name", "x", "--set", "colour"), "expected NAME=VALUE"),
        (("random_walk", "roller", "--name", "x"), "one strategy with --name"),
        (("--policy", "no_such_module:act", "--name", "x"), "no_such_module"),
        (("--policy", f"{__name__}:nothing", "--name", "x"), "nothing"),
        (("--policy", f"{__name__}:stray", "--name", "x"), "gave action 99 in step 1"),
        (("--policy", f"{__name__}:act"), "takes a --name"),
        (("--policy", f"{__name__}:act", "--name", "x", "--observation", "graph"), "found 'graph'"),
    ],
)
def test_bad_submissions_are_refused(
    suite: Path, arguments: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(suite, *arguments) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tasks: []", "expected 'budget' and a list of 'tasks'"),
        (TASKS.replace("trials", "turns"), "expected trials, evaluations and seconds"),
        (TASKS.replace("analytic", "cpu"), "backend 'cpu' is none of"),
        (TASKS.replace("space: compact, ", ""), "a task has hardware, backend, space, operator"),
        (TASKS + TASKS.strip().split("\n")[-1].replace("  -", "  -"), "names a task twice"),
        ("{", "does not read"),
    ],
)
def test_bad_suites_are_refused(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "suite.yaml"
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        read_suite(path)


def test_a_hash_looks_at_shape_type_and_values() -> None:
    array = np.arange(4, dtype=np.float32)
    others = [array.reshape(2, 2), array.astype(np.float64), array + 1, {"a": array}, {"b": array}]
    assert len({hash_of(value) for value in [array, *others]}) == 6
    assert hash_of(array.astype(">f4")) == hash_of(array)
    assert hash_of({"a": array, "b": array[:2]}) == hash_of({"b": array[:2], "a": array})


def test_the_table_follows_from_the_files(suite: Path) -> None:
    assert run(suite, "random_walk") == 0
    assert run(suite, "--policy", f"{__name__}:act", "--name", "lots") == 0
    chosen, folder = read_suite(suite), suite.parent / "out"
    entries = leaderboard.read_entries(folder, chosen)
    apart = leaderboard.gaps(entries, chosen)
    for number, task in enumerate(chosen.tasks):
        seconds = {entry.name: entry.outcomes[task].seconds for entry in entries}
        for name, value in seconds.items():
            assert apart[name][number] == pytest.approx(np.log(value / min(seconds.values())))
    page = suite.parent / "page.md"
    page.write_text(f"before\n{leaderboard.BEGIN}\n{leaderboard.END}\nafter\n")
    places = ["--folder", str(folder), "--page", str(page), "--suite", str(suite)]
    assert leaderboard.main([*places, "--check"]) == 1
    assert leaderboard.main(places) == 0
    assert leaderboard.main([*places, "--check"]) == 0
    text = page.read_text()
    assert text.startswith("before\n") and text.endswith("\nafter\n") and "| 1 | " in text and "2 of 2" in text
    (folder / "lots" / f"{chosen.tasks[0].name}.jsonl").unlink()
    assert leaderboard.main(places) == 0
    assert "| 2 | lots | 1 of 2 | ? |" in page.read_text()


def test_a_page_without_marks_is_refused_before_entries_are_verified(suite: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = suite.parent / "page.md"
    page.write_text("a page")
    monkeypatch.setattr(leaderboard, "read_entries", lambda folder, chosen: pytest.fail("verified first"))
    with pytest.raises(ValueError, match="has no lines"):
        leaderboard.build(suite.parent, page, suite)


def test_what_is_not_of_the_suite_stays_out(suite: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(suite, "random_walk") == 0
    chosen, folder = read_suite(suite), suite.parent / "out"
    first, second = (folder / "random_walk" / f"{task.name}.jsonl" for task in chosen.tasks)
    kept = first.read_text()
    agent = json.loads(kept.split("\n")[0])["agent"]
    cases = {
        "arguments: expected": second.read_text(),
        "agent: expected 'random_walk'": tampered(kept, 0, agent=agent | {"name": "me"}),
        "budget: expected": tampered(kept, 0, budget={"trials": 99, "evaluations": None, "seconds": None}),
        "budget: expected {'trials": tampered(kept, 0, budget=None),
        "trials: expected at most 3, found 4": tampered(kept, 0, trials=4),
        "an entry has one of each": tampered(kept, 0, agent=agent | {"settings": {"batch": 9}}),
        "fingerprint: expected": tampered(kept, 0, fingerprint="0" * 16),
    }
    for message, text in cases.items():
        first.write_text(text)
        with pytest.raises(ValueError, match=message):
            leaderboard.read_entries(folder, chosen)
    first.rename(first.with_name("another.jsonl"))
    assert leaderboard.main(["--folder", str(folder), "--suite", str(suite)]) == 2
    assert "expected AGENT/TASK.jsonl" in capsys.readouterr().err


def test_the_suite_is_of_the_test_part() -> None:
    suite = read_suite(SUITE)
    assert len(suite.tasks) == 12
    assert {operators.part_of(operators.resolve_one(task.operator)) for task in suite.tasks} == {"test"}


@pytest.mark.thorough
def test_the_page_is_what_the_shipped_files_say(monkeypatch: pytest.MonkeyPatch) -> None:
    entries = leaderboard.read_entries(submit.FOLDER, read_suite())
    monkeypatch.setattr(leaderboard, "read_entries", lambda *_: entries)  # verifying them takes seconds
    assert leaderboard.build()[0] == leaderboard.PAGE.read_text(encoding="utf-8")
    assert {"markov", "random_walk", "roller"} <= {entry.name for entry in entries}
