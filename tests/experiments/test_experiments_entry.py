"""The command line: every command is found, explained and refused by name; folders of results are made."""

from __future__ import annotations

import ast
import runpy
import shlex
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from agents.cli.arguments import compose
from agents.runs.files import make_folder
from agents.runs.jobs import Jobs
from agents.runs.settings import ROOT
from experiments import entry
from experiments.benches.bench import bench
from experiments.device import lease
from experiments.tables.reproduce import reproduce
from gensor_gym.measure.analytic import AnalyticBackend
from gensor_gym.measure.native import cpu_backend
from tests.support.thorough import thorough_but


@pytest.mark.parametrize("name", sorted(entry.COMMANDS))
def test_a_command_has_a_target_and_two_examples(name: str) -> None:
    command = entry.COMMANDS[name]
    module, _, function = command.target.partition(":")
    assert callable(getattr(import_module(module), function))
    assert len(set(command.examples)) == 2
    assert all(words in entry.help_of(name) for words in command.examples)


def test_modules_beside_the_rooms_are_ways_in_that_were_promised() -> None:
    """A line of a docstring, an import and a call: nothing lives outside a room."""
    found = {path.stem for path in (ROOT / "experiments").glob("*.py")} - {"__init__", "__main__", "entry"}
    rooms = {path.parent.name for path in (ROOT / "experiments").glob("*/__main__.py")}
    assert found == {"compare", "reproduce", "bench", "gpu"} and rooms < set(entry.COMMANDS)
    for name in found:
        assert len(ast.parse((ROOT / "experiments" / f"{name}.py").read_text()).body) == 3


CONFIGURED = ["compare", *sorted({path.stem for path in (ROOT / "conf").glob("*.yaml")} & set(entry.COMMANDS))]


@pytest.mark.thorough
@pytest.mark.parametrize("name", CONFIGURED)
def test_examples_compose(name: str) -> None:
    """Those of commands that take a configuration: every word is one that it knows."""
    for words in entry.COMMANDS[name].examples:
        given = [word for word in shlex.split(words) if word != "-m"]
        swept = ["seed=0" if word.startswith("seed=0,1") else word for word in given]
        assert compose(swept, "config" if name == "compare" else name)


def test_imports_of_a_way_in_run_nothing() -> None:
    assert import_module("experiments.compare").run_as_main is entry.run_as_main


def test_an_unknown_command_is_refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["gensor", "comapre"])
    with pytest.raises(SystemExit) as ended:
        entry.main()
    (said,) = capsys.readouterr().err.splitlines()
    assert ended.value.code == 2 and said.startswith("gensor: no command 'comapre'; commands are optimize, ")
    assert said.endswith("; did you mean compare?")


WAYS_IN = (
    ["-m", "experiments", "compare"],
    ["-m", "experiments.compare"],
    ["-c", "from experiments.entry import main; main()", "compare"],
)


@pytest.mark.parametrize("words", thorough_but(WAYS_IN, WAYS_IN[2]))
def test_all_ways_lead_to_the_command(words: list[str]) -> None:
    done = subprocess.run([sys.executable, *words, "--help"], capture_output=True, text=True, cwd=ROOT, check=True)
    assert "gensor compare: strategies under equal budgets" in done.stdout and "budget" in done.stdout


def test_descriptions_name_the_cost_model_and_the_default_after_adapting() -> None:
    said = {name: command.about for name, command in entry.COMMANDS.items()}
    assert not any("the model" in about for about in said.values())  # the overview has no glossary
    assert "adapted" not in said["adapt"]  # the default becomes `in_turn`


@pytest.mark.parametrize("words", [["--help"], []])
def test_help_lists_every_command(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["experiments", *words])
    runpy.run_module("experiments", run_name="__main__")
    said = capsys.readouterr().out
    assert all(said.count(f"\n  {name} ") == 1 for name in entry.COMMANDS)
    assert "usage: gensor COMMAND" in said


@pytest.fixture
def nowhere(tmp_path: Path) -> Path:
    """A path below a file: not even root can make it a folder."""
    (tmp_path / "file").write_text("")
    return tmp_path / "file" / "below"


def test_folders_are_made(tmp_path: Path, nowhere: Path) -> None:
    assert make_folder(str(tmp_path / "a" / "b")) == make_folder(tmp_path / "a" / "b") == tmp_path / "a" / "b"
    assert list((tmp_path / "a" / "b").iterdir()) == []
    for wrong in (nowhere, nowhere.parent):
        with pytest.raises(ValueError, match=f"^folder {wrong} cannot be written: .*; name another one$"):
            make_folder(wrong)


def test_every_program_names_the_folder(tmp_path: Path, nowhere: Path) -> None:
    store = tmp_path / "trials.sqlite"
    for call in (
        lambda: Jobs(AnalyticBackend(), store, nowhere),
        lambda: Jobs(cpu_backend(), nowhere / "trials.sqlite", tmp_path / "out"),
        lambda: reproduce(OmegaConf.create({"table": "gensor_operators", "output": str(nowhere)})),
        lambda: bench(compose(["suite=env", f"output={nowhere}"], "bench")),
        lambda: lease.run(nowhere, 1.0, "h200", 0),
    ):
        with pytest.raises(ValueError, match=f"folder {nowhere} cannot be written"):
            call()
