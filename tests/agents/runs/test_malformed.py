"""What is no good is refused in every command: one line on the standard error, exit code 2, nothing half written."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("sb3_contrib")

from agents.cli.refusal import refusals  # noqa: E402
from agents.runs.settings import ROOT  # noqa: E402
from experiments import entry  # noqa: E402
from gensor_gym.graph.compiling.notice import QUIET  # noqa: E402
from gensor_gym.hardware.compiler import find_compiler  # noqa: E402
from tests.support import malformed  # noqa: E402
from tests.support.thorough import thorough_but  # noqa: E402

ONE_OF_EACH = list({words[0]: name for name, (words, _) in malformed.CASES.items()}.values())
"""A file for every command that reads some."""


def refusal(words: list[str], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> str:
    """The line on which a command ends, in this process."""
    monkeypatch.setattr(sys, "argv", ["gensor", *words])
    monkeypatch.setenv(QUIET, "1")  # nothing but the refusal, also where functions are compiled first
    with pytest.raises(SystemExit) as ended:
        entry.main()
    said = capfd.readouterr().err
    (line,) = said.splitlines()
    assert ended.value.code == 2 and 0 < len(line) < 1300 and "Traceback" not in said
    return line


@pytest.mark.parametrize("name", thorough_but(malformed.CASES, *ONE_OF_EACH))
@pytest.mark.filterwarnings("ignore:policy .* was trained on tasks of other rules")
def test_what_is_no_good_is_one_line(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    words, files = malformed.CASES[name]
    malformed.put(tmp_path, files)
    before = sorted(path for path in tmp_path.rglob("*.*") if path.is_file())
    line = refusal([word.replace("{here}", str(tmp_path)) for word in words], monkeypatch, capfd)
    assert malformed.SAID.get(name, "") in line
    left = {path for path in tmp_path.rglob("*.*") if path.is_file()} - set(before)
    assert not [path for path in left if path.suffix == ".tmp" or path.stat().st_size == 0 and path.suffix in (".json", ".md")]


def process(words: list[str], before: str = "", **more: object) -> tuple[int, str, int]:
    """(exit code, standard error, most memory in bytes) of a command in a process of its own.

    The process says its memory itself: what the system says of a child has that of the parent before `exec` in it.
    """
    peak = "[line for line in open('/proc/self/status') if line.startswith('VmHWM')][0].split()[1]"
    code = (
        f"import atexit, sys, resource\n{before}\natexit.register(lambda: print({peak}, file=sys.stderr))\n"
        f"sys.argv = ['gensor', *{words!r}]\nfrom experiments.entry import main; main()"
    )
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    started = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True, env=environment, **more)
    assert started.stderr is not None
    said = started.stderr.read()
    *lines, peak_kib = said.splitlines(keepends=True)
    return started.wait(), "".join(lines), int(peak_kib) * 1024


BOMBS = {
    "timings": ([*malformed.IMPORT, "{here}/a.jsonl.gz"], "a.jsonl.gz"),
    "a space": ([*malformed.LEARN, malformed.ZIPPED], "a.json.gz"),
    "certificates": (malformed.CHECK, "a.jsonl"),
    "a card": (["sweep_table", "{here}"], "a/card.json"),
}


@pytest.mark.thorough
@pytest.mark.parametrize("name", thorough_but(BOMBS, "a space"))
def test_what_unfolds_to_700_megabytes_is_one_line_in_less_than_500(name: str, tmp_path: Path) -> None:
    words, file = BOMBS[name]
    malformed.put(tmp_path, {file: malformed.bomb(700 << 20)})
    code, said, memory = process([word.replace("{here}", str(tmp_path)) for word in words])
    assert code == 2 and len(said.splitlines()) == 1 and "than" in said, said
    assert memory < 500 << 20, f"{memory >> 20} MiB"


@pytest.mark.thorough
def test_a_full_disk_is_one_line_and_leaves_what_was_there(tmp_path: Path) -> None:
    """A file may have 64 bytes: more ends in an error of the system, as on a full disk."""
    config, scored = {"seed": 1, "agent": {"name": "ppo"}}, {"validation_latency_over_markov": 1.0}
    card = {"config": config, "training_seconds": 1.0, "evaluation": scored}
    malformed.put(tmp_path, {"a/card.json": malformed.text(card), "summary.md": b"before"})
    code, said, _ = process(["sweep_table", str(tmp_path)], "resource.setrlimit(resource.RLIMIT_FSIZE, (64, 64))")
    assert code == 2 and said.splitlines() == [f"[Errno 27] File too large: '{tmp_path / 'summary.md'}'"], said
    assert (tmp_path / "summary.md").read_text() == "before"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "summary.md"]


def test_output_that_cannot_be_written_is_one_line() -> None:
    with open("/dev/full", "w") as full:
        code, said, _ = process(["--help"], stdout=full)
    assert code == 2 and said.splitlines() == ["[Errno 28] No space left on device"]


def test_a_compiler_that_is_none_is_one_line(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("GENSOR_GYM_CC", "/bin/nothing")
    with pytest.raises(SystemExit) as ended, refusals():
        find_compiler()
    (line,) = capfd.readouterr().err.splitlines()
    assert ended.value.code == 2 and line.startswith("$GENSOR_GYM_CC='/bin/nothing' does not answer --version; install gcc")


@pytest.mark.thorough
def test_a_terminal_without_a_letter_ends_nothing(tmp_path: Path) -> None:
    """`µ` and the lines of a table, which are no ASCII."""
    malformed.put(tmp_path, {"ops.txt": "gemm(m=4) µ".encode()})
    told = "sys.stderr.reconfigure(encoding='ascii', errors='strict')"
    code, said, _ = process(["export", str(tmp_path / "ops.txt"), f"folder={tmp_path / 'out'}", "--", "µ"], told)
    assert code == 2 and len(said.splitlines()) == 1 and "?" in said, said


def test_debug_shows_the_whole_error(tmp_path: Path) -> None:
    code, said, _ = process(["store", "list", str(tmp_path / "none"), "--debug"])
    assert code == 1 and "Traceback" in said and said.rstrip().endswith(f"ValueError: no store at {tmp_path / 'none'}")


@pytest.mark.filterwarnings("ignore:policy .* was trained on tasks of other rules")
def test_no_pickle_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    """Files in which 4394c3f ran what they hold: the policy's, the checkpoints of training and fine-tuning, PyTorch's."""
    seen = tmp_path / "seen"
    evil = malformed.canary(seen)
    policy = malformed.archive({"data": evil, "policy.pth": evil, "archive/data.pkl": evil})
    last = malformed.archive({"state.pkl": evil, "model.zip": policy, "archive/data.pkl": evil})
    tuned_ppo = [word.replace("columns", "ppo") for word in malformed.TUNED]
    cases = {
        "walk": (malformed.PPO, {"card.json": malformed.text(malformed.PPO_CARD), "policy.zip": policy}, "trust=true"),
        "columns": (malformed.COLUMNS, {"card.json": malformed.text(malformed.CARD), "policy.zip": policy}, "trust=true"),
        "training": (malformed.TRAIN, {"out/last.zip": last}, "begin anew with resume=false"),
        "fine-tuning": (malformed.TUNED, {"out/last.zip": last}, "begin anew with another output"),
        "fine-tuning ppo": (tuned_ppo, {"out/last.zip": last}, "begin anew with another output"),
        "training columns": ([*malformed.TRAIN[:1], "agent=columns", *malformed.TRAIN[3:]], {"out/last.zip": last}, "begin anew"),
    }
    for name, (words, files, advice) in cases.items():
        malformed.put(tmp_path / name, files)
        line = refusal([word.replace("{here}", str(tmp_path / name)) for word in words], monkeypatch, capfd)
        assert advice in line and not seen.exists()


@pytest.mark.filterwarnings("ignore:policy .* was trained on tasks of other rules")
def test_a_file_of_stable_baselines3_is_read_where_it_is_trusted(tmp_path: Path) -> None:
    from agents.learners.blank import Blank
    from agents.learners.registry import get_learner
    from agents.policies.learned import load_policy
    from gensor_gym.env.observation import NUM_FEATURES
    from gensor_gym.graph.actions import NUM_ACTIONS

    malformed.put(tmp_path, {"card.json": malformed.text(malformed.PPO_CARD)})
    settings = {**malformed.PPO_CARD["config"]["agent"], "n_steps": 2, "batch_size": 2}
    model = get_learner("ppo").make(settings, Blank(NUM_FEATURES, NUM_ACTIONS, "gensor"), 0)
    model.save(tmp_path / "policy.zip")
    with pytest.raises(ValueError, match="runs whatever code its maker put into it.*trust=true"):
        load_policy(str(tmp_path))
    with pytest.warns(UserWarning, match="is trusted: the code that it holds is run"):
        _, again = load_policy(str(tmp_path), trust=True)
    assert all(bool((a == b).all()) for a, b in zip(model.policy.parameters(), again.policy.parameters(), strict=True))


def test_the_configuration_is_checked_before_the_state_is_read(tmp_path: Path) -> None:
    from agents.training.state.archive import read_state, write_state

    path = tmp_path / "last.zip"
    write_state(path, {"seed": 1}, {"x": 1})
    members = {"begun.json": b'{"seed": 1}', "state.json": malformed.BRACKETS, "arrays.safetensors": b"broken"}
    path.write_bytes(malformed.archive(members))

    def other(begun: dict) -> None:
        raise ValueError(f"another seed than {begun['seed']}")

    with pytest.raises(ValueError, match="another seed than 1"):
        read_state(path, other)
    with pytest.raises(ValueError, match="no whole checkpoint.*begin anew"):
        read_state(path, lambda _: None)
