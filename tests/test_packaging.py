"""What is packed, and what is promised of security."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

from agents.policies.learned import POLICIES
from gensor_gym.exact import shipped
from gensor_gym.hardware.described import RECORDINGS
from gensor_gym.locate import located
from tests.support.page_runner import programs

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "README.md"
PACKAGES = ("gensor_gym", "agents", "experiments", "conf")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel of this tree, made of a copy: building leaves files behind."""
    source, folder = tmp_path_factory.mktemp("tree"), tmp_path_factory.mktemp("wheel")
    for name in PACKAGES:
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
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
def test_the_readme_runs_from_a_wheel(wheel: Path, tmp_path: Path) -> None:
    """In an empty environment, with dependencies of constraints.txt, from an empty folder."""
    home, empty = tmp_path / "environment", tmp_path / "empty"
    venv.create(home, with_pip=True)
    empty.mkdir()
    python = home / "bin" / "python"
    install = [python, "-m", "pip", "install", "-q", f"gensor_gym[lab] @ {wheel.as_uri()}", "-c", ROOT / "constraints.txt"]
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}  # where pip would find this tree installed
    subprocess.run(install, check=True, cwd=empty, env=kept)
    script = tmp_path / "page.py"
    lines = [f"exec(compile({block!r}, 'README', 'exec'))" for block in programs(README)]
    script.write_text("\n".join(lines), encoding="utf-8")
    done = subprocess.run([python, "-I", script], cwd=empty, env=kept, capture_output=True, text=True, timeout=1500)
    assert done.returncode == 0, done.stderr[-3000:]
    asked = [python, "-c", "import agents; print(agents.__file__)"]
    where = subprocess.run(asked, cwd=empty, env=kept, capture_output=True, text=True, check=True)
    assert Path(where.stdout.strip()).is_relative_to(home)


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
