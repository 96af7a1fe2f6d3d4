"""`gensor optimize`: what it says, what it refuses, and what it leaves behind."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import gensor_gym
from experiments import entry

MODEL = ["hardware=h200", "backend=analytic", "strategy=random_walk", "trials=2"]


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> object:
    """Runs `gensor WORDS`: (exit code, what it printed)."""

    def run(*words: str) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["gensor", *words])
        with pytest.raises(SystemExit) as ended:
            entry.main()
        return int(ended.value.code or 0), capsys.readouterr().out

    return run


def lines_of(said: str) -> dict[str, str]:
    """What a result says, by its first word."""
    return dict(line.split(maxsplit=1) for line in said.splitlines() if line.strip())


def test_a_kernel_is_found_said_written_and_kept(command, tmp_path: Path) -> None:
    op, store = "gemm(m=24, n=32, k=16)", f"store={tmp_path}/trials.sqlite"
    written = [f"source={tmp_path}/made/kernel.c", f"export={tmp_path}/library"]
    code, said = command("optimize", op, "strategy=random_walk", "trials=2", store, *written)
    lines = lines_of(said)
    assert code == 0 and lines["operator"] == op and lines["machine"].startswith("host: ")
    assert lines["trials"].startswith("2: ") and "interval" in lines["time"] and "GFLOP/s" in lines["rate"]
    assert "parallel" in (tmp_path / "made" / "kernel.c").read_text()
    assert (tmp_path / "library" / "libgensor_kernels.so").exists() and "libgensor_kernels.so" in lines["exported"]
    code, again = command("optimize", f"operator={op}", "reuse=true", store)
    assert code == 0 and lines_of(again)["trials"] == "none: it was found before" and "strategy" not in lines_of(again)
    assert all(lines_of(again)[name] == lines[name] for name in ("time", "rate", "schedule"))
    called = lines["kept"].rpartition(" and ")[2].removesuffix(" answer from it")
    assert eval(called, {"gensor_gym": gensor_gym}).source == (tmp_path / "made" / "kernel.c").read_text()


def test_a_model_keeps_nothing(command) -> None:
    code, said = command("optimize", "smoke/gemm", *MODEL)
    assert code == 0 and "kept" not in lines_of(said) and lines_of(said)["machine"] == "h200: model of h200"


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
    monkeypatch.setattr(sys.modules["agents.optimize"], "run", lambda *_: None)
    code, said = command("optimize", "gemm(m=4, n=4, k=4)", *MODEL)
    assert code == 1 and "ran well in 0 trials" in said
