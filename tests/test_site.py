"""The site without building it: every page is in the menu, every public name in the reference, and code's links become pages."""

from __future__ import annotations

import importlib
import importlib.util
import re
from pathlib import Path
from typing import Any

import gymnasium
import pytest
import yaml

from experiments.entry import COMMANDS

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PUBLIC = (
    "gensor_gym", "gensor_gym.operators", "gensor_gym.hardware", "gensor_gym.measure", "gensor_gym.exact", "gensor_gym.spaces",
    "gensor_gym.codegen", "gensor_gym.codegen.export", "gensor_gym.codegen.targets", "gensor_gym.graph.knobs", "agents",
)  # fmt: skip
"""Modules whose `__all__` is what a user may import."""
PROMISED = (*PUBLIC, "gensor_gym.suites")
"""Modules whose every public name is called stable or experimental."""
MOST = 15


def menu(entries: Any) -> list[str]:
    """All paths of a navigation."""
    if isinstance(entries, str):
        return [entries]
    values = entries.values() if isinstance(entries, dict) else entries
    return [path for value in values for path in menu(value)]


@pytest.fixture(scope="module")
def config() -> dict[str, Any]:
    """mkdocs.yml."""
    return yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))


def test_every_page_is_in_the_menu_once(config: dict[str, Any]) -> None:
    named = menu(config["nav"])
    assert len(named) == len(set(named))
    pages = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")}
    inside = {path for path in named if not path.startswith("repository/")}
    assert inside == pages | {"index.md"}  # README.md
    for path in set(named) - inside:
        assert (ROOT / path.removeprefix("repository/")).is_file(), path


VERDICT = re.compile(r"faster|slower|beat|regret|wrong|Yes|No\b")


def test_pages_of_results_begin_with_their_verdict(config: dict[str, Any]) -> None:
    """The first sentence after the title says what came out, and asks nothing."""
    (pages,) = [entry["Results"] for entry in config["nav"] if "Results" in entry]
    for page in pages:
        path = ROOT / page.removeprefix("repository/") if page.startswith("repository/") else DOCS / page
        first = re.split(r"(?<=[.?])\s", path.read_text(encoding="utf-8").split("\n\n", 2)[1])[0]
        assert VERDICT.search(first) and not first.endswith("?"), (page, first)


def test_folders_of_pages_are_small() -> None:
    folders = [DOCS, *(path for path in DOCS.rglob("*") if path.is_dir() and path.name != "__pycache__")]
    assert {str(folder) for folder in folders if sum(path.is_file() for path in folder.iterdir()) > MOST} == set()


def described() -> set[str]:
    """Names that the reference is generated for."""
    pages = (DOCS / "reference").glob("*.md")
    return {name for page in pages for name in re.findall(r"^::: ([\w.]+)$", page.read_text(encoding="utf-8"), re.MULTILINE)}


def attribute(path: str) -> Any:
    """What a dotted path names."""
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)


def test_the_reference_names_what_there_is() -> None:
    assert len(described()) > 70
    for path in sorted(described()):
        assert (attribute(path).__doc__ or "").strip(), path


def test_every_public_name_is_in_the_reference() -> None:
    shown = {id(attribute(path)) for path in described()}
    text = "".join(page.read_text(encoding="utf-8") for page in (DOCS / "reference").glob("*.md"))
    for module in PUBLIC:
        for name in importlib.import_module(module).__all__:
            found = getattr(importlib.import_module(module), name)
            if isinstance(found, (dict, tuple)):  # a registry: said in words
                assert f"`{name}`" in text, f"{module}.{name}"
            elif type(found).__name__ != "module" and name != "measure":  # both a module and a function
                assert id(found) in shown, f"{module}.{name}"


def promises() -> dict[str, tuple[list[str], list[str]]]:
    """(stable, experimental) names of every line of the reference's table."""
    text = (DOCS / "reference" / "index.md").read_text(encoding="utf-8").partition("## Stable and experimental")[2]
    cells = [line.split("|")[1:-1] for line in text.splitlines() if line.startswith("|")][2:]
    return {of.strip().strip("`"): (re.findall(r"`(.*?)`", one), re.findall(r"`(.*?)`", two)) for of, one, two in cells}


def test_every_public_name_is_called_stable_or_experimental() -> None:
    said = promises()
    known = {"environments": [name.partition("/")[2] for name in gymnasium.registry if name.startswith("gensor_gym/")]}
    known |= {module: importlib.import_module(module).__all__ for module in PROMISED}
    for of, names in known.items():
        stable, experimental = said.pop(of)
        assert sorted([*stable, *experimental]) == sorted(names), of
    (commands,) = said.values()  # of `gensor`: all others are experimental
    assert set(commands[0]) <= set(COMMANDS) and commands[1] == []


@pytest.fixture(scope="module")
def hook() -> Any:
    """docs/site/repository.py, which MkDocs loads by its path."""
    pytest.importorskip("mkdocs")
    spec: Any = importlib.util.spec_from_file_location("repository_hook", DOCS / "site" / "repository.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_links_out_of_the_pages_lead_to_pages_of_the_repository(hook: Any) -> None:
    assert hook.in_site("README.md") == "index.md"
    assert hook.in_site("docs/guides/agent.md") == "guides/agent.md"
    assert hook.in_site("docs/examples/sb3_ppo.py") == "repository/docs/examples/sb3_ppo.py.md"
    assert hook.in_site("results/h100") == "repository/results/h100/README.md"
    assert hook.in_site("results/host") == "repository/results/host/index.md"
    assert hook.in_site("results/host/call.jsonl") == "repository/results/host/call.jsonl"
    assert hook.target_of("docs/guides/agent.md", "../../CHANGELOG.md") == "CHANGELOG.md"
    assert hook.target_of("docs/guides/agent.md", "../nothing.md") is None  # MkDocs refuses it
    assert hook.linked("docs/x.md", "[a](../LICENSE)\n```\n[b](../Makefile)\n```\n[c](https://example.org)") == {"LICENSE"}
