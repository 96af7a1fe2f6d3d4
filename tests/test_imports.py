"""The gym stays light, each heavy library has its few files, no modules import each other. Read from the source, not run."""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from tests.support.import_graph import SOURCE, Arrow, Import, arrows, circles, imports, modules, room

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("gensor_gym", "agents", "experiments")
CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]["contracts"]
LAYERS = {name for layer in CONTRACTS[0]["layers"] for name in layer.split(" | ")}
"""Inside gensor_gym: `make lint` has their order. Other modules are its face: nothing in a layer imports them."""
TOP = {"numpy", "numba", "gymnasium"}
"""What gensor_gym may import at the top of a module, besides the standard library and itself."""
LAZY = {
    "gensor_gym/measure/devices/cuda.py": {"cupy"},
    "gensor_gym/measure/workers/ray_pool.py": {"ray"},
    "gensor_gym/env/sb3.py": {"stable_baselines3"},
    "gensor_gym/frontends/cached/digest.py": {"torch"},
    "gensor_gym/frontends/cached/networks.py": {"torch"},
    "gensor_gym/frontends/decomposed.py": {"torch"},
    "gensor_gym/frontends/dynamic.py": {"torch"},
    "gensor_gym/frontends/objects.py": {"torch"},
    "gensor_gym/frontends/padding.py": {"torch"},
    "gensor_gym/frontends/torch_export.py": {"torch"},
    "gensor_gym/frontends/constants.py": {"torch"},
}
"""Files that exist to use a heavy library and import it at their top; no other module imports them at its own top."""
HOMES: dict[str, tuple[str, ...]] = {
    "cuda": ("gensor_gym/codegen/cuda/",),
    "cupy": ("gensor_gym/codegen/runtime/cuda.py", "gensor_gym/measure/devices/cuda.py", "experiments/device/"),
    "hydra": ("agents/cli/", "experiments/comparison/sweep.py", "experiments/tuning/sweep_table.py"),
    "sb3_contrib": (
        "agents/learners/masked/", "agents/scratch/sb3.py", "experiments/benches/environment/env.py",
        "experiments/studies/stock/trials.py", "experiments/device/stages/environment.py",
    ),
    "stable_baselines3": (
        "agents/learners/", "agents/scratch/sb3.py", "agents/training/", "experiments/benches/environment/env.py",
        "experiments/device/stages/environment.py", "experiments/studies/stock/trials.py",
    ),
    "torch": (
        "agents/autotvm/", "agents/columns/", "agents/learners/", "agents/planning/", "agents/recording/extract.py",
        "agents/scratch/sb3.py", "agents/training/", "experiments/benches/", "experiments/conformance/", "experiments/device/",
        "experiments/networks/", "experiments/studies/cost_models/learners.py", "experiments/studies/stock/trials.py",
        "experiments/tables/dynamic_shapes.py", "experiments/tables/gensor/gensor_lengths.py", "experiments/tables/rounds.py",
        "gensor_gym/codegen/runtime/torch_operator.py", "gensor_gym/frontends/",
        "gensor_gym/measure/baselines/", "gensor_gym/measure/devices/cuda.py",
    ),
    "xgboost": (
        "agents/hybrids/correction.py", "agents/ansor/score_model.py", "agents/autotvm/tree_model.py",
        "experiments/studies/cost_models/learners.py",
    ),
}  # fmt: skip
"""Heavy library -> files, and folders of such files, that import it, where one file in each package is not enough.

hydra: programs of `experiments` that take a configuration are decorated by `agents.cli.command`; the others read its
errors, folders and callbacks.
torch, stable_baselines3, sb3_contrib: every way to learn is a file of its own, imported when it is chosen by name.
"""
HEAVY = ("cupy", "torch", "stable_baselines3", "sb3_contrib", "hydra", "wandb", "xgboost", "cuda", "ray")


def sources(package: str) -> list[Path]:
    """Python files of a package, relative to the root."""
    return sorted(path.relative_to(ROOT) for path in (ROOT / package).rglob("*.py"))


@cache
def imported(path: Path) -> list[Import]:
    """What a file imports."""
    return imports((ROOT / path).read_text(encoding="utf-8"), ".".join(path.parent.parts))


def found(wanted: Callable[[Path, Import], bool], *packages: str) -> list[str]:
    """The wanted imports of the files of packages, of all of them where none is named."""
    paths = (path for package in packages or PACKAGES for path in sources(package))
    return [f"{path}:{each.line} imports {each.name}" for path in paths for each in imported(path) if wanted(path, each)]


def test_every_folder_of_the_gym_is_a_layer() -> None:
    folders = {p.name for p in (ROOT / "gensor_gym").iterdir() if p.is_dir() and any(p.glob("*.py"))}
    assert folders <= LAYERS


def test_no_layer_imports_the_face_of_the_gym_and_nothing_the_tests() -> None:
    def out(path: Path, each: Import) -> bool:
        package, _, rest = each.name.partition(".")
        inside = path.parts[1].removesuffix(".py") in LAYERS
        return inside and package == "gensor_gym" and rest.partition(".")[0] not in LAYERS

    assert found(out, "gensor_gym") == []
    assert found(lambda _, each: each.name.split(".")[0] == "tests") == []


def test_no_modules_and_no_rooms_import_each_other() -> None:
    """Not at the top, not in functions, not for types; rooms not at the top and not in functions."""
    known = arrows(modules(ROOT, SOURCE))
    assert circles(known, ("top", "lazy", "type")) == []
    assert circles([Arrow(room(each.source), room(each.target), each.kind) for each in known], ("top", "lazy")) == []


def test_tops_of_gym_modules_import_only_the_core() -> None:
    allowed = TOP | {"gensor_gym", "__future__"} | set(sys.stdlib_module_names)

    def heavy(path: Path, each: Import) -> bool:
        return each.kind == "top" and each.name.split(".")[0] not in allowed | LAZY.get(path.as_posix(), set())

    assert found(heavy, "gensor_gym") == []


def test_files_that_load_a_heavy_library_are_themselves_imported_late() -> None:
    late = tuple(file.removesuffix(".py").replace("/", ".") + "." for file in LAZY)
    assert found(lambda path, each: each.kind == "top" and f"{each.name}.".startswith(late) and str(path) not in LAZY) == []


@pytest.mark.parametrize("library", HEAVY)
def test_a_heavy_library_is_imported_only_in_its_files(library: str) -> None:
    for package in PACKAGES:
        users = [str(path) for path in sources(package) if any(each.name.split(".")[0] == library for each in imported(path))]
        homes = [home for home in HOMES.get(library, ()) if home.startswith(f"{package}/")]
        strangers = [user for user in users if not user.startswith(tuple(homes))]
        assert len(strangers) <= (not homes), f"{library} belongs in one file of {package}, or in HOMES above: {strangers}"
        assert [home for home in homes if not any(user.startswith(home) for user in users)] == [], "each is needed"
