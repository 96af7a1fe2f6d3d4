"""What is packed, and what is promised of security."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml

from agents.policies.learned import POLICIES
from gensor_gym.exact import shipped
from gensor_gym.hardware.described import RECORDINGS
from gensor_gym.locate import located
from gensor_gym.version import VERSION

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "README.md"
SCRIPT = runpy.run_path(str(ROOT / ".ci" / "wheels.py"))
PACKAGES = SCRIPT["PACKAGES"]
REPOSITORY = "https://example.org/gensor_gym"
PICTURES = [f"docs/images/{name}" for name in ("results/answer.png", "growing.webp", "result.png")]
"""Pictures of README, in their order."""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel of this tree, made of a copy: building leaves files behind."""
    source, folder = tmp_path_factory.mktemp("tree"), tmp_path_factory.mktemp("wheel")
    SCRIPT["lay"](source, REPOSITORY)
    options = ["-q", "--no-deps", "--no-build-isolation", "--no-index", "-w", str(folder)]
    subprocess.run([sys.executable, "-m", "pip", "wheel", *options, str(source)], check=True, capture_output=True)
    (made,) = folder.glob("*.whl")
    return made


@pytest.mark.thorough
def test_the_wheel_holds_every_file_of_the_packages(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    files = [path for package in PACKAGES for path in (ROOT / package).rglob("*") if path.is_file()]
    kept = {path.relative_to(ROOT).as_posix() for path in files if "__pycache__" not in path.parts}
    assert len(kept) > 600 and kept - names == set()
    for folder in (POLICIES, shipped.folder(), RECORDINGS, located("results/spaces"), located("experiments/data/tuned")):
        inside = folder.resolve().relative_to(ROOT).as_posix()
        assert folder.is_dir() and sum(name.startswith(f"{inside}/") for name in names) >= 2, inside


def test_configurations_name_data_that_ships() -> None:
    """Paths below a package exist, up to what is filled in; `results` has pages, evidence and what commands wrote here."""
    found = []
    for path in sorted((ROOT / "conf").rglob("*.yaml")):
        lines = [line for line in path.read_text(encoding="utf-8").splitlines() if not line.lstrip().startswith("#")]
        found += re.findall(r"\b(\w+): ((?:gensor_gym|agents|experiments|results)/[\w/.{}]+)", "\n".join(lines))
    for _, text in found:
        assert text.startswith("results/") or (ROOT / text.rstrip("}").partition("{")[0]).exists(), text
    here = {text for _, text in found if text.startswith("results/")}
    studies = {"results/fused", "results/machines", "results/stock"}
    policies = {"results/generalise/policies/columns_{hardware}_{seed}", "results/machines/policies/columns_machines_{seed}"}
    # Policies of studies lie beside their lines.
    assert here == {"results/host/peer_tvm", *studies, *policies} and len(found) >= 10


def test_data_is_found_from_any_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert located("agents/data/policies/ppo_cpu") == POLICIES / "ppo_cpu" == located("results/policies/ppo_cpu")
    assert located("results/nothing") == Path("results/nothing") and located("results/policies2") == Path("results/policies2")
    mine = tmp_path / "results" / "policies" / "ppo_cpu"
    mine.mkdir(parents=True)
    assert located("results/policies/ppo_cpu").resolve() == mine  # what lies here comes first


@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_the_readme_runs_from_a_wheel() -> None:
    """In an empty environment, installed by name with dependencies of constraints.txt, from an empty folder."""
    assert SCRIPT["main"](["--python", sys.executable]) == 0


def test_the_version_is_the_same_everywhere() -> None:
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert SCRIPT["PROJECT"]["version"] == VERSION == cited["version"]
    assert f"## [{VERSION}]" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("repository", ["", REPOSITORY])
def test_the_description_has_no_dead_link(repository: str) -> None:
    """The package index shows README without this repository's files."""
    text = SCRIPT["description"](README.read_text(encoding="utf-8"), repository)
    targets = [found[1] for found in re.finditer(r"\]\(([^)\s]+)\)", text)]
    assert len(targets) >= 2 and all(target.startswith(("https://", "#")) for target in targets)
    assert "<" not in re.sub(r"`[^`]*`", "", text) and "pip install 'gensor_gym[lab]'" in text and "git clone" not in text
    shown = re.findall(r"!\[[^\]]*\]\((\S+)\)", text)
    assert [name.partition(f"/raw/v{VERSION}/")[2] for name in shown] == (PICTURES if repository else [])
    assert all((ROOT / name).exists() for name in PICTURES)


def test_workflows_run_what_make_has_on_every_python() -> None:
    targets = set(re.findall(r"^([\w-]+)(?: [\w-]+)*:", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    pythons = [name.rpartition(" ")[2] for name in SCRIPT["PROJECT"]["classifiers"] if re.search(r":: 3\.\d+$", name)]
    assert len(pythons) == 3 and f"PYTHONS ?= {' '.join(f'python{one}' for one in pythons)}" in (ROOT / "Makefile").read_text()
    for name in ("tests", "docs", "wheels"):
        text = (ROOT / ".github" / "workflows" / f"{name}.yml").read_text(encoding="utf-8")
        jobs = yaml.safe_load(text)["jobs"]
        called = set(re.findall(r"run: make ([\w-]+)", text))
        assert called and called <= targets, name
        for job in jobs.values():
            assert job.get("strategy", {"matrix": {"python": pythons}})["matrix"]["python"] == pythons


def test_a_readme_without_the_lines_of_installation_is_refused() -> None:
    with pytest.raises(ValueError, match="expected the lines"):
        SCRIPT["description"]("# gensor_gym\n", "")


def test_metadata_link_to_the_repository(tmp_path: Path) -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    project = tomllib.loads(text.replace("[project.scripts]", SCRIPT["links"](REPOSITORY) + "[project.scripts]"))["project"]
    assert project["urls"]["Issues"] == f"{REPOSITORY}/issues" and project["scripts"] == SCRIPT["PROJECT"]["scripts"]
    assert SCRIPT["ALONE"] and set(SCRIPT["ALONE"]) < set(project["optional-dependencies"])


PAGE = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
NAMED = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", PAGE)


@pytest.mark.parametrize(("path", "name"), NAMED)
def test_tests_that_are_named_exist(path: str, name: str) -> None:
    text = (ROOT / path).read_text(encoding="utf-8")
    assert f"def {name or 'test_'}" in text


def test_every_part_names_its_tests() -> None:
    promised = PAGE.partition("## What is kept apart")[2].partition("## What is not")[0]
    parts = [part for part in promised.split("\n**") if part.strip()]
    assert len(parts) == 6 and all("`tests/" in part for part in parts)
