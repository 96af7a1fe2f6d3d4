"""Build the wheel and the source distribution of a release, and use them as a user would: `python .ci/wheels.py --help`.

It builds both from a copy of the packages, checks their metadata with twine, and resolves every extra with uv. For each named
Python it creates an empty environment, installs gensor_gym by name with extra `lab` from the folder of the wheel, and runs
README's blocks and two commands from an empty folder. Everything is below build/wheels; the distributions are in its folder
`dist`. The exit status is 1 if a step failed.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
import venv
from collections.abc import Callable, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
WORK = ROOT / "build" / "wheels"
CONSTRAINTS = ROOT / "constraints.txt"
PACKAGES = ("gensor_gym", "agents", "experiments", "conf")
BESIDE = (
    "pyproject.toml", "README.md", "LICENSE", "MANIFEST.in", "CHANGELOG.md", "CITATION.cff", "CONTRIBUTING.md",
    "RELEASE_NOTES.md", "constraints.txt",
)  # fmt: skip
ALONE = ("cuda12", "rllib", "ray-sweeps")
"""Extras that are installed without constraints.txt (docs/start.md)."""
OF_TORCH = ("torch", "stable-baselines3", "sb3-contrib")
"""Packages of extra `lab` that need torch."""
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
LINK = re.compile(r"(?<!!)\[((?:[^\[\]]|\[[^\]]*\])+)\]\(([^)\s]+)\)")
PICTURE = re.compile(r'<picture>.*?<img src="([^"]+)" alt="([^"]*)">\s*</picture>\n\n(\*[^*].*?\*\n\n)', re.DOTALL)
CLONE = "    git clone <this repository> && cd gensor_gym\n    pip install -e '.[lab]'\n"
INSTALL = "    pip install 'gensor_gym[lab]'\n"
COMMANDS = (("--help",), ("optimize", "gemv(m=64, k=64)", "trials=2", "seed=0"))
"""Arguments of `gensor` that are run in each environment."""


def description(readme: str, repository: str) -> str:
    """Return README as the package index shows it: installed by name, with links and pictures of the release's tag.

    Without a repository's address, links become plain text, and pictures go with their captions, because relative ones are dead
    there.
    """
    if CLONE not in readme and INSTALL not in readme:
        raise ValueError(f"README.md: expected the lines {CLONE!r} or {INSTALL!r}")
    place = f"{repository}/blob/v{PROJECT['version']}/"
    text = readme.replace(CLONE, INSTALL)
    raw = f"{repository}/raw/v{PROJECT['version']}/"
    text = PICTURE.sub(lambda found: f"![{found[2]}]({raw}{found[1]})\n\n{found[3]}" if repository else "", text)

    def absolute(found: re.Match[str]) -> str:
        if found[2].startswith(("https://", "http://")) or found[2].startswith("#"):
            return found[0]
        return f"[{found[1]}]({place}{found[2]})" if repository else found[1]

    return LINK.sub(absolute, text)


def links(repository: str) -> str:
    """Return pyproject.toml's table of links, which the package index shows with the description."""
    names = {"Repository": "", "Documentation": "/tree/main/docs", "Changelog": "/blob/main/CHANGELOG.md", "Issues": "/issues"}
    return "[project.urls]\n" + "".join(f'{name} = "{repository}{path}"\n' for name, path in names.items()) + "\n"


def lay(tree: Path, repository: str = "") -> None:
    """Copy the distributed files into a folder, and add the repository's address to the metadata."""
    shutil.rmtree(tree, ignore_errors=True)
    for name in PACKAGES:
        shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in BESIDE:
        shutil.copy(ROOT / name, tree)
    readme, project = tree / "README.md", tree / "pyproject.toml"
    readme.write_text(description(readme.read_text(encoding="utf-8"), repository), encoding="utf-8")
    if repository:
        text = project.read_text(encoding="utf-8")
        project.write_text(text.replace("[project.scripts]", links(repository) + "[project.scripts]"), encoding="utf-8")


def call(*line: str | Path, folder: Path = WORK) -> str:
    """Run a command without this checkout on its path, and return what it prints; CalledProcessError if it fails."""
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")}
    kept |= {"OMP_NUM_THREADS": "1", "GENSOR_GYM_QUIET": "1"}
    done = subprocess.run([str(part) for part in line], cwd=folder, env=kept, capture_output=True, text=True, check=False)
    if done.returncode:
        print(f"{' '.join(map(str, line))}\n{done.stdout[-2000:]}{done.stderr[-4000:]}", file=sys.stderr)
        done.check_returncode()
    return done.stdout


def tools() -> Path:
    """Return the folder of commands of an environment that has build, twine and uv, made at the first call."""
    home = WORK / "tools"
    if not (home / "bin" / "twine").exists():
        venv.create(home, with_pip=True, clear=True)
        call(home / "bin" / "python", "-m", "pip", "install", "-q", "build", "twine", "uv", "readme-renderer[md]")
    return home / "bin"


def build(repository: str) -> None:
    """Build the source distribution, the wheel from it, and check the metadata and the description of both."""
    dist = WORK / "dist"
    lay(WORK / "tree", repository)
    shutil.rmtree(dist, ignore_errors=True)
    call(tools() / "python", "-m", "build", "-o", dist, WORK / "tree")
    call(tools() / "twine", "check", "--strict", *sorted(dist.iterdir()))


def resolve(python: str) -> None:
    """Resolve all extras together under constraints.txt, then each of ALONE without it, for one version of Python."""
    version = call(python, "-c", "import platform; print(platform.python_version())").strip()
    project = WORK / "tree" / "pyproject.toml"
    line: list[str | Path] = [tools() / "uv", "pip", "compile", "-q", "--python-version", version, project]
    together = [part for name in PROJECT["optional-dependencies"] if name not in ALONE for part in ("--extra", name)]
    call(*line, *together, "-c", CONSTRAINTS)
    for name in ALONE:
        call(*line, "--extra", name)


def install(python: str, home: Path, torch: bool) -> Path:
    """Return the Python of a new environment with gensor_gym installed by name, and extra `lab`, if needed without torch."""
    shutil.rmtree(home, ignore_errors=True)
    call(python, "-m", "venv", home)
    made = home / "bin" / "python"
    line: list[str | Path] = [made, "-m", "pip", "install", "-q", "-c", CONSTRAINTS, "--find-links", WORK / "dist"]
    wanted = [f"gensor_gym[lab]=={PROJECT['version']}"]
    if not torch:
        lab = PROJECT["optional-dependencies"]["lab"]
        wanted = [f"gensor_gym=={PROJECT['version']}", *(need for need in lab if re.split(r"[>=<]", need)[0] not in OF_TORCH)]
    call(*line, *wanted)
    call(made, "-m", "pip", "check")
    return made


def use(python: Path, folder: Path) -> None:
    """Run README's blocks and the commands from an empty folder; AssertionError if the package is not the environment's."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    where = call(python, "-c", "import agents; print(agents.__file__)", folder=folder).strip()
    if not Path(where).is_relative_to(python.parents[1]):
        raise AssertionError(f"{where} was imported: expected the package installed in {python.parents[1]}")
    blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    for block in blocks:
        call(python, "-I", "-c", block, folder=folder)
    for arguments in COMMANDS:
        call(python.parent / "gensor", *arguments, folder=folder)


def step(name: str, work: Callable[[], object]) -> bool:
    """Do a step and print its seconds; return whether it succeeded."""
    began = time.monotonic()
    try:
        work()
    except (subprocess.CalledProcessError, AssertionError, OSError) as error:
        print(f"FAILED  {name}: {error}", flush=True)
        return False
    print(f"{time.monotonic() - began:6.1f} s  {name}", flush=True)
    return True


def check(python: str, torch: bool) -> bool:
    """Resolve, install and use the distributions under one Python; False at the first step that fails."""
    home, said = WORK / f"environment-{Path(python).name}", "" if torch else ", extra lab without torch"
    found = home / "bin" / "python"
    return (
        step(f"{python}: extras resolve", lambda: resolve(python))
        and step(f"{python}: installed by name{said}", lambda: install(python, home, torch))
        and step(f"{python}: README and gensor run", lambda: use(found, WORK / "empty"))
    )


def main(arguments: Sequence[str]) -> int:
    """Build, then check under each Python; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repository", default="", help="address of the repository, for links of the description")
    parser.add_argument("--python", action="append", default=[], help="a Python to check with extra lab; may be repeated")
    parser.add_argument("--without-torch", action="append", default=[], metavar="PYTHON", help="the same without torch")
    given = parser.parse_args(arguments)
    WORK.mkdir(parents=True, exist_ok=True)
    if not step("wheel and source distribution built; twine check", lambda: build(given.repository.rstrip("/"))):
        return 1
    checks = [(python, True) for python in given.python] + [(python, False) for python in given.without_torch]
    return 0 if all([check(python, torch) for python, torch in checks]) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
