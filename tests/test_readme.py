"""The pages: their Python runs, their commands and links exist, their tables name what is registered."""

from __future__ import annotations

import functools
import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from markdown.extensions.toc import slugify

from agents.cli.arguments import options
from agents.strategy import CONSTRUCTIONS, strategies_for
from experiments.entry import COMMANDS
from gensor_gym import hardware, operators
from gensor_gym.env.observation import NUM_FEATURES
from gensor_gym.env.views import NUM_SUCCESSOR_FEATURES
from gensor_gym.graph.actions import NUM_ACTIONS, SPACES
from gensor_gym.graph.knobs import KNOBS
from gensor_gym.graph.tables.layout import ROW
from gensor_gym.measure.backend import BACKENDS
from gensor_gym.measure.measurement import Status
from tests.support import page_runner
from tests.support.page_runner import programs

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
DOCS = ROOT / "docs"
PAGES = [README, *sorted(DOCS.rglob("*.md"))]
WITH_PYTHON = [page for page in PAGES if programs(page)]
LINK = re.compile(r"\]\(([^)\s]+)\)|(?:src|srcset)=\"([^\"]+)\"")
LARGEST_IMAGE, LARGEST_MOVING = 300_000, 2_000_000


def name_of(page: Path) -> str:
    """A page's path from the root."""
    return page.relative_to(ROOT).as_posix()


@pytest.fixture(scope="module")
def failures() -> dict[str, str]:
    """Of every page with Python what it raises; all run in one process."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, page_runner.__file__, *map(str, WITH_PYTHON)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=290)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.examples
@pytest.mark.parametrize("page", WITH_PYTHON, ids=name_of)
def test_python_runs(page: Path, failures: dict[str, str]) -> None:
    """Every block, in order, in a namespace of the page's own: what a reader types."""
    assert failures[str(page)] == ""


def test_a_page_that_fails_is_told(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Page\n\n```python\nhere = 1\n```\n\n```python\nassert here == 2\n```\n", encoding="utf-8")
    assert f'"{page}", line 8' in page_runner.run(page)


def test_readme_is_short() -> None:
    text = README.read_text(encoding="utf-8")
    assert len(text.split()) <= 900
    assert any("pip install" in line for line in text.splitlines()[:15])
    blocks = [block.strip().splitlines() for block in programs(README)]
    assert len(blocks) == 2 and all(len(lines) <= 12 for lines in blocks)
    assert "regret" in blocks[0][-1] and any("result.kernel(" in line for line in blocks[1])


@functools.cache
def anchors(page: Path) -> set[str]:
    """Anchors of a page's headings, as GitHub and the site make them."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    titles = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {slugify(re.sub(r"[`*]|\]\(.*?\)|\[", "", title), "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_and_images_exist(page: Path) -> None:
    for found in LINK.finditer(page.read_text(encoding="utf-8")):
        target, _, anchor = (found[1] or found[2]).partition("#")
        if target.startswith(("http://", "https://")):
            continue
        place = page.parent / target if target else page
        assert place.exists(), target
        if anchor and place.suffix == ".md":
            assert anchor in anchors(place.resolve()), f"{target}#{anchor}"


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
    images = [path for path in sorted((DOCS / "images").rglob("*")) if path.is_file()]
    assert images
    for image in images:
        assert image.stat().st_size < (LARGEST_MOVING if image.suffix == ".webp" else LARGEST_IMAGE)
        assert image.relative_to(DOCS).as_posix() in text
        if image.stem.endswith("_dark"):
            assert image.with_stem(image.stem.removesuffix("_dark")).exists()


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_commands_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for module in set(re.findall(r"python -m ([\w.]+)", text)):
        assert importlib.util.find_spec(module) is not None, module
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    assert set(re.findall(r"(?:`|^    )make (\w+)", text, re.MULTILINE)) <= targets
    assert set(re.findall(r"(?:python3? -m experiments|^    gensor|`gensor) (\w+)", text, re.MULTILINE)) <= set(COMMANDS)
    for command in re.findall(r"python -m experiments[. ]\w+[^`\n]*", text):
        for group, name in re.findall(r"\b(experiment|operator|strategy|hardware|backend)=(\w+)\b(?!\()", command):
            registered = {"hardware": {*hardware.names(), *hardware.recorded_names()}, "backend": {*BACKENDS, "auto", "recorded"}}
            assert name in registered.get(group, ()) or name in options(group), command
    for path in set(re.findall(r"`((?:gensor_gym|agents|experiments|conf|docs|tests|results)/[\w./]*)`", text)):
        assert (ROOT / path).exists(), path


def first_column(text: str, head: str) -> list[str]:
    """Names in backticks in the first column of the table whose head begins with `head`."""
    table = text[text.index(f"| {head} |") :].split("\n\n")[0]
    return [name for row in table.splitlines()[2:] for name in re.findall(r"`([\w.-]+)`", row.split("|")[1])]


def test_the_page_of_commands_has_all() -> None:
    page = (DOCS / "reference" / "commands.md").read_text(encoding="utf-8")
    assert [name for name in COMMANDS if not re.search(rf"`(gensor )?{name}\b", page)] == []


def test_pages_name_what_is_registered() -> None:
    pages = ("start.md", "concepts/tiers.md", "reference/index.md", "reference/strategies.md")
    text = "\n\n".join((DOCS / page).read_text(encoding="utf-8") for page in pages)
    assert set(first_column(text, "strategy")) <= set(strategies_for(CONSTRUCTIONS)), "`python -m agents` lists the others"
    assert set(first_column(text, "backend")) == {*BACKENDS, "recorded"}
    machines = re.search(r"^Hardware: (.*?), and", text, re.DOTALL | re.MULTILINE)
    assert machines and set(re.findall(r"\w+", machines[1])) <= {*hardware.names(), *hardware.recorded_names()}
    assert all(f"`{op.name}`" in text for op in operators.resolve("smoke"))
    extras = re.search(r"optional-dependencies\]\n(.*?)\n\[", (ROOT / "pyproject.toml").read_text(), re.DOTALL)
    assert set(first_column(text, "extra")) == set(re.findall(r"^([a-z0-9-]+) = \[", extras[1], re.MULTILINE))


def test_design_says_the_sizes_of_the_code() -> None:
    text = (DOCS / "design.md").read_text(encoding="utf-8")
    assert len(text.split()) <= 5000
    assert set(first_column(text, "space")) == set(SPACES)
    assert set(first_column(text, "knob")) == {knob.name for knob in KNOBS}
    for fact in (f"{NUM_ACTIONS} actions", f"{NUM_FEATURES} features", f"{ROW} int32", f"{len(KNOBS)} knobs"):
        assert fact in text, fact
    assert f"{NUM_ACTIONS} x {NUM_SUCCESSOR_FEATURES}" in text
    for part in ("train", "validation", "test"):
        assert f"{len(operators.split(part))} {part}" in text


def test_measurement_lists_every_status() -> None:
    text = (DOCS / "measurement.md").read_text(encoding="utf-8")
    assert set(first_column(text, "status")) == {status.value for status in Status}
