"""Commands: refusals, kernels found and exported, a home that cannot be written."""

from __future__ import annotations

import ctypes
import io
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console

import gensor_gym
from agents.cli.command import command_line, say_where
from agents.cli.refusal import refusals
from experiments import entry
from gensor_gym.hardware.compiler import find_compiler
from gensor_gym.locate import ROOT
from tests.support.own_cache import with_this_machine


def test_a_refusal_is_said_and_ends_the_command_with_code_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended, refusals():
        raise OSError("folder [x] cannot be written,\n" + 4 * "which is long " + "\x1b[2J")
    assert ended.value.code == 2
    assert capsys.readouterr().err == "folder [x] cannot be written, " + 4 * "which is long " + "?[2J\n"
    with pytest.raises(KeyError), refusals():
        raise KeyError("an error of our own is shown whole")
    with pytest.raises(SystemExit) as ended, refusals(RuntimeError):
        raise RuntimeError("3\nlines\nlong" + "x" * 5000)
    (line,) = capsys.readouterr().err.splitlines()
    assert ended.value.code == 2 and line.startswith("3 lines long") and len(line) < 1300
    monkeypatch.setenv("GENSOR_GYM_DEBUG", "1")
    with pytest.raises(OSError, match="shown whole"), refusals():
        raise OSError("shown whole")


def test_arguments_are_readable_when_a_command_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["compare", "operator=gemm(m=8, n=8, k=8)", "seed=1"])
    seen: list[list[str]] = []
    command_line(lambda: seen.append(list(sys.argv)))
    assert seen == [["compare", "operators='gemm(m=8, n=8, k=8)'", "seed=1"]]


def test_the_last_line_names_seconds_and_folder() -> None:
    said = io.StringIO()
    say_where(Console(file=said, width=20), time.perf_counter() - 7.2, Path("outputs/a/long/name/of/a/[bold]/[/folder]"))
    assert said.getvalue() == "7 s. Results are in outputs/a/long/name/of/a/[bold]/[/folder]\n"


MODEL = ["hardware=h200", "backend=analytic", "strategy=random_walk", "trials=2"]


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> object:
    """Runs `gensor WORDS` into a pipe of no width: (exit code, what it printed, or said in refusal)."""
    monkeypatch.delenv("COLUMNS", raising=False)

    def run(*words: str) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["gensor", *words])
        with pytest.raises(SystemExit) as ended:
            entry.main()
        said = capsys.readouterr()
        return int(ended.value.code or 0), said.err if ended.value.code == 2 else said.out

    return run


def lines_of(said: str) -> dict[str, str]:
    """What a result says, by its first word; without the table that follows."""
    return dict(line.split(maxsplit=1) for line in said.partition("\n\n")[0].splitlines() if line.strip())


def test_a_kernel_is_found_said_written_and_kept(command, tmp_path: Path) -> None:
    op, store = "gemm(m=24, n=32, k=16)", f"store={tmp_path}/trials.sqlite"
    written = [f"source={tmp_path}/made/kernel.c", f"export={tmp_path}/library"]
    code, said = command("optimize", op, "strategy=random_walk", "trials=2", store, *written)
    lines = lines_of(said)
    assert code == 0 and lines["operator"] == op and lines["machine"].startswith("host: ")
    assert lines["trials"].startswith("2: ") and "interval" in lines["isolated"] and "GFLOP/s" in lines["rate"]
    assert "parallel" in (tmp_path / "made" / "kernel.c").read_text()
    assert (tmp_path / "library" / "libgensor_kernels.so").exists() and "libgensor_kernels.so" in lines["exported"]
    code, again = command("optimize", f"operator={op}", "reuse=true", "trials=2", store)
    assert code == 0 and lines_of(again)["trials"] == "none: it was found before" and "strategy" not in lines_of(again)
    assert all(lines_of(again)[name] == lines[name] for name in ("isolated", "rate", "schedule"))
    assert lines["status"].startswith("OK; its output was compared") and "9 samples" in lines["called"]
    table = said.partition("\n\n")[2].split()
    assert table.count("registers") == 1 and table[-1] and "whole 24 32 16" in " ".join(table)
    called = lines["kept"].rpartition(" and ")[2].removesuffix(" answer from it")
    assert eval(called, {"gensor_gym": gensor_gym}).source == (tmp_path / "made" / "kernel.c").read_text()
    assert f"kernel = {called}\n" in said and "C = kernel(A, B)  # A float32[24, 16], B float32[16, 32]" in said


def test_a_model_keeps_nothing(command) -> None:
    code, said = command("optimize", "smoke/gemm", *MODEL)
    assert code == 0 and not {"kept", "called"} & set(lines_of(said)) and lines_of(said)["machine"] == "h200: model of h200"
    assert lines_of(said)["status"] == "OK; nothing was run"


def test_a_result_fits_the_screen_whole(command, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every word of the wide form is there, and no line is wider than the screen."""
    wide = command("optimize", "smoke/conv2d", *MODEL)[1]
    monkeypatch.setenv("COLUMNS", "80")
    narrow = command("optimize", "smoke/conv2d", *MODEL)[1]
    assert max(map(len, wide.splitlines())) > 100 > 80 >= max(map(len, narrow.splitlines()))
    assert narrow.partition("\n\n")[0].split() == wide.partition("\n\n")[0].split()


@pytest.mark.parametrize(
    "words, message",
    [
        (["gmm(m=4, n=4, k=4)"], "did you mean gemm"),
        (["gemm"], "operator 'gemm': expected text such as"),
        (["gemm(m=4, n=4, k=4)", "hardware=h20"], "did you mean h200"),
        (["gemm(m=4, n=4, k=4)", "strategy=markof"], "did you mean markov"),
        (["gemm(m=4, n=4, k=4)", "strategy=[markov,roller]"], "expected one"),
        (["gemm(m=4, n=4, k=4)", "trials=0"], "trials is 0"),
        (["gemm(m=4, n=4, k=4)", "threads=0"], "threads is 0"),
        (["gemm(m=4, n=4, k=4)", "export=FULL"], "no earlier export"),
        ([], "no operator: name one"),
    ],
)
def test_a_refusal_is_one_line_and_exit_code_2(words: list[str], message: str, command, tmp_path: Path) -> None:
    (tmp_path / "letters.txt").write_text("mine")
    code, said = command("optimize", *(word.replace("FULL", str(tmp_path)) for word in words))
    assert code == 2 and message in said and len(said.splitlines()) == 1


def test_a_search_that_finds_nothing_ends_with_1(command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["agents.optimizer"], "run", lambda *_: None)
    code, said = command("optimize", "gemm(m=4, n=4, k=4)", *MODEL)
    assert code == 1 and "ran well in 0 trials" in said


@pytest.mark.thorough
def test_a_file_of_operators_becomes_one_library(command, tmp_path: Path) -> None:
    """Programs that were found are taken as they are, others only searched for if asked; the example needs cc alone."""
    ops, store = ["gemm(m=24, n=32, k=16)", "gemm(m=16, n=32, k=8)"], f"store={tmp_path}/trials.sqlite"
    (tmp_path / "network.txt").write_text(f"# a network\n{ops[0]}\n\n{ops[1]}  # once more: {ops[0]}\n{ops[0]}\n")
    words = ["export", f"{tmp_path}/network.txt", f"folder={tmp_path}/made", store, "strategy=random_walk"]
    assert command("optimize", ops[0], "strategy=random_walk", "trials=1", store)[0] == 0
    code, said = command(*words)
    assert code == 2 and ops[1] in said and ops[0] not in said and not (tmp_path / "made").exists()
    code, said = command(*words, "trials=1")
    assert code == 0 and "before" in said and "1 trials" in said
    manifest = json.loads((tmp_path / "made" / "manifest.json").read_text())
    assert [one["operator"] for one in manifest["kernels"]] == ops
    assert all(one["measurement"]["seconds"] > 0 and one["measurement"]["conditions"] for one in manifest["kernels"])
    line = [*find_compiler().command, "example.c", "-o", "example", "-L.", "-lgensor_kernels", "-Wl,-rpath,$ORIGIN"]
    subprocess.run(line, cwd=tmp_path / "made", check=True)
    done = subprocess.run(["./example"], cwd=tmp_path / "made", env={}, capture_output=True, text=True, check=True)
    assert [one.split()[0] for one in done.stdout.splitlines()] == ["gemm_m24_n32_k16", "gemm_m16_n32_k8"]


@pytest.mark.parametrize(
    "words, message",
    [
        (["FILE", "folder=NEW"], "line 2: operator 'gmm'"),
        (["EMPTY", "folder=NEW"], "has no operators"),
        (["nowhere.txt", "folder=NEW"], "no file nowhere.txt"),
        (["FILE"], "no folder: name a new one"),
        (["folder=NEW"], "no operators: name a file"),
        (["smoke/gemm", "folder=FULL"], "no earlier export"),
        (["smoke/gemm", "folder=NEW", "library=Mine", *MODEL], "identifier in lower case"),
        (["smoke/gemm", "folder=NEW", "hardware=h200", "backend=analytic"], "trials=N searches for them"),
    ],
)
def test_an_export_is_refused_in_one_line(words: list[str], message: str, command, tmp_path: Path) -> None:
    (tmp_path / "file.txt").write_text("gemm(m=4, n=4, k=4)\ngmm(m=4, n=4, k=4)\n")
    (tmp_path / "empty.txt").write_text("# nothing\n")
    places = {"FILE": tmp_path / "file.txt", "EMPTY": tmp_path / "empty.txt", "FULL": tmp_path, "NEW": tmp_path / "new"}
    for name, path in places.items():
        words = [word.replace(name, str(path)) for word in words]
    code, said = command("export", *words, f"store={tmp_path}/trials.sqlite")
    assert code == 2 and message in said and len(said.strip().splitlines()) == 1


pytest.importorskip("sb3_contrib")


GEMM = "gemm(m=64, n=48, k=40)"
COMMANDS = {
    "optimize": ["optimize", GEMM, "trials=2", "strategy=random_walk"],
    "compare": [
        "compare", f"operator={GEMM}", "strategy=random_walk", "budget.trials=2", "rounds=3", "figures=false",
        "output={here}/out",
    ],
    "train": [
        "train", "agent=a2c", "agent.net_arch=[8]", "num_envs=2", "steps=32", f"operators=['{GEMM}']",
        f"eval_operators=['{GEMM}']", "eval_episodes=2", "env.hardware=h200", "env.space=gensor", "output={here}/out",
    ],
    "tune": ["tune", "tune=markov", "rungs=[{settings: 2, tasks: 2}]", "finalists=1", "final_seeds=1", "output={here}/out"],
}  # fmt: skip
"""With W&B, offline, where that is the default."""
KEPT = {"optimize": {"tuned", "kernels"}, "compare": {"kernels", "wandb"}, "train": {"wandb"}, "tune": set()}
"""What is there afterwards in the folder that takes the place of ~/.cache/gensor_gym."""
NO_NEWS = ("gensor_gym: compiling, once", "rung 1:", "validation:")
"""Beginnings of lines that commands may say on the way."""
_PR_CAPBSET_DROP, _CAP_DAC_OVERRIDE = 24, 1


def _as_others() -> None:
    """Modes of files bind root as well in what is executed from here on."""
    if os.geteuid() == 0 and ctypes.CDLL(None).prctl(_PR_CAPBSET_DROP, _CAP_DAC_OVERRIDE, 0, 0, 0):
        raise OSError("prctl")


def _mounted(home: Path) -> list[str]:
    """What runs the words after it where the home is a mount that is read only."""
    text = 'mount --bind "$0" "$0" && mount -o remount,ro,bind "$0" && exec "$@"'
    words = ["unshare", "--mount", "sh", "-c", text, str(home)]
    if shutil.which("unshare") is None or subprocess.run([*words, "true"], capture_output=True).returncode:
        pytest.skip("this user, or this system, cannot mount")
    return words


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    (made := tmp_path / "home").mkdir()
    yield made
    made.chmod(0o700)


@pytest.mark.thorough
@pytest.mark.parametrize("by", ["its mode", "its mount"])
@pytest.mark.parametrize("name", COMMANDS)
def test_commands_end_in_results(name: str, by: str, home: Path, tmp_path: Path) -> None:
    kept = tmp_path / "tmp" / f"gensor_gym-{os.geteuid()}"
    kept.mkdir(mode=0o700, parents=True)
    with_this_machine(kept)
    given = {name: value for name, value in os.environ.items() if not name.startswith(("GENSOR_GYM_CACHE", "XDG_", "WANDB_"))}
    environment = {**given, "HOME": str(home), "TMPDIR": str(tmp_path / "tmp"), "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    before = _mounted(home) if by == "its mount" else []
    home.chmod(0o755 if before else 0o555)
    words = [word.replace("{here}", str(tmp_path)) for word in COMMANDS[name]]
    script = "from experiments.entry import main; main()"
    done = subprocess.run(
        [*before, sys.executable, "-c", script, *words], cwd=tmp_path, env=environment, capture_output=True, text=True,
        timeout=300, preexec_fn=None if before else _as_others,
    )  # fmt: skip
    assert done.returncode == 0 and "Traceback" not in done.stderr, done.stderr
    said = re.sub(r".*RuntimeWarning: other programs used .*\n.*\n", "", done.stderr)  # the tests on the other core
    assert not [line for line in said.splitlines() if line.strip() and not line.startswith(NO_NEWS)], done.stderr
    assert not list(home.iterdir())
    assert {path.name for path in kept.iterdir()} >= KEPT[name]


def test_a_missing_package_names_the_extra(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit), refusals():
        raise ModuleNotFoundError("No module named 'rich'", name="rich")
    assert capsys.readouterr().err == "No module named 'rich': pip install 'gensor_gym[lab]' brings what most commands need\n"
    with pytest.raises(SystemExit), refusals():
        raise ImportError("it needs ray: pip install 'gensor_gym[ray]'")
    assert capsys.readouterr().err == "it needs ray: pip install 'gensor_gym[ray]'\n"
