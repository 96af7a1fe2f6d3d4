"""The pages: their Python runs, their commands and links exist, their tables name what is registered."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from agents.strategy import CONSTRUCTIONS, strategies_for
from gensor_gym import hardware, operators
from gensor_gym.env.observation import NUM_FEATURES
from gensor_gym.env.views import NUM_SUCCESSOR_FEATURES
from gensor_gym.graph.actions import NUM_ACTIONS, SPACES
from gensor_gym.graph.knobs import KNOBS
from gensor_gym.graph.tables.layout import ROW
from gensor_gym.measure.backend import BACKENDS
from gensor_gym.measure.measurement import Status
from tests.support.thorough import thorough_but

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
PAGES = [README, *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
LARGEST_IMAGE = 300_000


def programs(page: Path) -> list[str]:
    """Blocks of Python, each behind as many empty lines as stand before it: tracebacks name lines of the page."""
    text = page.read_text(encoding="utf-8")
    return ["\n" * text.count("\n", 0, found.start(1)) + found[1] for found in BLOCK.finditer(text)]


WITH_PYTHON = [page for page in PAGES if programs(page)]


@pytest.mark.parametrize("page", thorough_but(WITH_PYTHON, README, *WITH_PYTHON[1::4]), ids=lambda page: page.name)
def test_python_runs(page: Path, tmp_path: Path) -> None:
    """Every block, in order, in one fresh process: what a reader types."""
    script = tmp_path / "page.py"
    lines = [f"exec(compile({block!r}, {str(page)!r}, 'exec'))" for block in programs(page)]
    script.write_text("\n".join(lines), encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, str(script)], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=280
    )
    assert done.returncode == 0, done.stderr[-3000:]


def test_there_is_python_to_run() -> None:
    assert len(programs(README)) >= 6


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_and_images_exist(page: Path) -> None:
    targets = re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8"))
    for target in targets:
        if not target.startswith(("http://", "https://", "#")):
            assert (page.parent / target.partition("#")[0]).exists(), target


OTHERS = {"cuda_occupancy.h", "immintrin.h", "droplet_tuner.py", "xgb_model.py", "experiments/COMMAND.py"}
"""Files of other systems, and a pattern."""


def test_files_that_are_named_exist() -> None:
    """In pages and in what modules say of each other: the end of a path is enough."""
    sources = [path for package in ("gensor_gym", "agents", "experiments") for path in (ROOT / package).rglob("*.*")]
    beside = [path for folder in ("tests", "docs") for path in (ROOT / folder).rglob("*.*")]
    places = [f"/{path.relative_to(ROOT).as_posix()}" for path in (*sources, *beside)]
    ends = {place[at:] for place in places for at in range(len(place)) if place[at] == "/"}
    for page in [*PAGES, ROOT / "CONTRIBUTING.md", *(path for path in sources if path.suffix == ".py")]:
        named = set(re.findall(r"`([\w/]+\.(?:py|c|h|cu))`", page.read_text(encoding="utf-8")))
        assert {name for name in named - OTHERS if f"/{name}" not in ends} == set(), page


def test_images_are_small_and_shown() -> None:
    text = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    images = sorted((ROOT / "docs" / "images").glob("*"))
    assert images
    for image in images:
        assert image.stat().st_size < LARGEST_IMAGE
        assert f"images/{image.name}" in text


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for module in set(re.findall(r"python -m ([\w.]+)", text)):
        assert importlib.util.find_spec(module) is not None, module
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    assert set(re.findall(r"(?:`|^    )make (\w+)", text, re.MULTILINE)) <= targets
    for command in re.findall(r"python -m experiments\.\w+[^`\n]*", text):
        for group, name in re.findall(r"\b(experiment|operator|strategy|hardware|backend)=(\w+)\b(?!\()", command):
            registered = {"hardware": {*hardware.names(), *hardware.recorded_names()}, "backend": {*BACKENDS, "auto", "recorded"}}
            assert name in registered.get(group, ()) or (ROOT / "conf" / group / f"{name}.yaml").exists(), command
    for path in set(re.findall(r"`((?:gensor_gym|agents|experiments|conf|docs|tests|results)/[\w./]*)`", text)):
        assert (ROOT / path).exists(), path


def first_column(text: str, head: str) -> list[str]:
    """Names in backticks in the first column of the table whose head begins with `head`."""
    table = text[text.index(f"| {head} |") :].split("\n\n")[0]
    return [name for row in table.splitlines()[2:] for name in re.findall(r"`([\w.]+)`", row.split("|")[1])]


def test_readme_names_what_is_registered() -> None:
    text = README.read_text(encoding="utf-8")
    assert set(first_column(text, "strategy")) <= set(strategies_for(CONSTRUCTIONS)), "`python -m agents` lists the others"
    assert set(first_column(text, "backend")) == {*BACKENDS, "recorded"}
    machines = re.search(r"^Hardware: (.*?), and", text, re.DOTALL | re.MULTILINE)
    assert machines and set(re.findall(r"\w+", machines[1])) <= {*hardware.names(), *hardware.recorded_names()}
    assert all(f"`{op.name}`" in text for op in operators.resolve("smoke"))
    extras = re.search(r"optional-dependencies\]\n(.*?)\n\[", (ROOT / "pyproject.toml").read_text(), re.DOTALL)
    assert set(first_column(text, "extra")) == set(re.findall(r"^(\w+) = \[", extras[1], re.MULTILINE))


def test_design_says_the_sizes_of_the_code() -> None:
    text = (ROOT / "docs" / "design.md").read_text(encoding="utf-8")
    assert set(first_column(text, "space")) == set(SPACES)
    assert set(first_column(text, "knob")) == {knob.name for knob in KNOBS}
    for fact in (f"{NUM_ACTIONS} actions", f"{NUM_FEATURES} features", f"{ROW} int32", f"{len(KNOBS)} knobs"):
        assert fact in text, fact
    assert f"{NUM_ACTIONS} x {NUM_SUCCESSOR_FEATURES}" in text
    for part in ("train", "validation", "test"):
        assert f"{len(operators.split(part))} {part}" in text


def test_measurement_lists_every_status() -> None:
    text = (ROOT / "docs" / "measurement.md").read_text(encoding="utf-8")
    assert set(first_column(text, "status")) == {status.value for status in Status}
