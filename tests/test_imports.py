"""Imports go one way, the gym stays light, and each heavy library has its few files. Read from the source, not run."""

from __future__ import annotations

import sys
import tomllib
from functools import cache
from pathlib import Path

import pytest

from tests.support.import_graph import SOURCE, Arrow, Import, arrows, circles, imports, modules, room

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("gensor_gym", "agents", "experiments")
CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]["contracts"]
LAYERS = [layer.split(" | ") for layer in reversed(CONTRACTS[0]["layers"])]
"""Inside gensor_gym, from the bottom, as `make lint` has them. Other modules are its face: nothing in a layer imports them."""
TOP = {"numpy", "numba", "gymnasium"}
"""What gensor_gym may import at the top of a module, besides the standard library and itself."""
LAZY = {
    "gensor_gym/measure/devices/cuda.py": {"cupy"},
    "gensor_gym/measure/workers/ray_pool.py": {"ray"},
    "gensor_gym/env/sb3.py": {"stable_baselines3"},
    "gensor_gym/frontends/decomposed.py": {"torch"},
    "gensor_gym/frontends/objects.py": {"torch"},
    "gensor_gym/frontends/torch_export.py": {"torch"},
    "gensor_gym/frontends/constants.py": {"torch"},
}
"""Files that exist to use a heavy library and import it at their top; no other module imports them at its own top."""
HOMES: dict[str, tuple[str, ...]] = {
    "cuda": ("gensor_gym/codegen/cuda/nvrtc.py", "gensor_gym/codegen/cuda/tensor_map.py"),
    "cupy": (
        "gensor_gym/codegen/runtime/cuda.py",
        "gensor_gym/measure/devices/cuda.py",
        "experiments/device/sanitize.py",
        "experiments/device/stages/environment.py",
        "experiments/device/stages/networks.py",
    ),
    "hydra": (
        "agents/cli/arguments.py",
        "agents/cli/command.py",
        "agents/cli/words.py",
        "agents/cli/hydra_folder.py",
        "experiments/comparison/sweep.py",
        "experiments/tuning/sweep_table.py",
    ),
    "sb3_contrib": (
        "agents/learners/masked/a2c.py",
        "agents/learners/masked/policy.py",
        "agents/learners/masked/ppo.py",
        "agents/learners/masked/q.py",
        "agents/scratch/sb3.py",
        "experiments/benches/environment/learning.py",
        "experiments/studies/stock/trials.py",
        "experiments/device/stages/environment.py",
    ),  # fmt: skip
    "stable_baselines3": (
        "agents/learners/blank.py",
        "agents/learners/feature_groups.py",
        "agents/learners/masked/q.py",
        "agents/scratch/sb3.py",
        "agents/learners/observed.py",
        "experiments/benches/environment/learning.py",
        "experiments/device/stages/environment.py",
        "agents/training/checkpoints.py",
        "agents/training/fine_tuning/walk.py",
        "agents/training/state/model.py",
        "experiments/studies/stock/trials.py",
        "agents/training/recorded_spaces.py",
        "agents/training/walk.py",
        "agents/training/watch.py",
    ),
    "torch": (
        "experiments/conformance/cases.py",
        "experiments/conformance/models.py",
        "experiments/conformance/kernelbench.py",
        "agents/recording/extract.py",
        "agents/learners/cloning.py",
        "experiments/studies/cost_models/learners.py",
        "experiments/studies/stock/trials.py",
        "experiments/device/stages/networks.py",
        "experiments/device/work/beside_torch.py",
        "agents/columns/learner.py",
        "agents/columns/network.py",
        "agents/columns/policy.py",
        "agents/learners/feature_groups.py",
        "agents/learners/masked/a2c.py",
        "agents/learners/masked/policy.py",
        "agents/learners/masked/ppo.py",
        "agents/learners/masked/q.py",
        "agents/scratch/sb3.py",
        "agents/learners/loading.py",
        "agents/learners/networks.py",
        "agents/learners/stored.py",
        "agents/autotvm/tree_gru.py",
        "agents/autotvm/tree_gru_network.py",
        "experiments/benches/call.py",
        "experiments/benches/fused/eager.py",
        "experiments/benches/fused/inductor.py",
        "experiments/benches/networks/process.py",
        "experiments/networks/again.py",
        "experiments/networks/attention.py",
        "experiments/networks/convolutional.py",
        "experiments/networks/language.py",
        "experiments/networks/suite.py",
        "experiments/benches/kernel_sets/called.py",
        "experiments/benches/environment/learning.py",
        "experiments/device/stages/environment.py",
        "agents/training/checkpoints.py",
        "agents/training/state/tree.py",
        "agents/training/fine_tuning/columns.py",
        "agents/training/recorded_spaces.py",
        "agents/training/tracking/tensorboard.py",
        "agents/training/train.py",
        "gensor_gym/codegen/runtime/torch_operator.py",
        "gensor_gym/frontends/decomposed.py",
        "gensor_gym/frontends/objects.py",
        "gensor_gym/frontends/constants.py",
        "gensor_gym/frontends/torch_export.py",
        "gensor_gym/measure/baselines/torch.py",
        "gensor_gym/measure/devices/cuda.py",
        "gensor_gym/measure/baselines/torch_cuda.py",
        "gensor_gym/measure/baselines/torch_prepacked.py",
    ),
    "xgboost": ("agents/hybrids/correction.py", "agents/ansor/score_model.py", "agents/autotvm/tree_model.py"),
}
"""Heavy library -> the files that import it, where one file in each package is not enough.

hydra: programs of `experiments` that take a configuration are decorated by `agents.cli.command`; the others read its
errors, folders and callbacks.
torch, stable_baselines3, sb3_contrib: every way to learn is a file of its own, imported when it is chosen by name.
"""
HEAVY = ("cupy", "torch", "stable_baselines3", "sb3_contrib", "hydra", "wandb", "xgboost", "cuda", "ray")


def sources(package: str) -> list[Path]:
    """Python files of a package, relative to the root."""
    return sorted(path.relative_to(ROOT) for path in (ROOT / package).rglob("*.py"))


@cache
def imported(path: Path, text: str | None = None) -> list[Import]:
    """What a file imports, or would with that text."""
    source = (ROOT / path).read_text(encoding="utf-8") if text is None else text
    return imports(source, ".".join(path.parent.parts))


def at_top(path: Path, text: str | None = None) -> list[Import]:
    """What it imports when it is imported itself."""
    return [each for each in imported(path, text) if each.kind == "top"]


def height(part: str) -> int | None:
    """Position of a part of gensor_gym in the layers, from 0 at the bottom."""
    return next((number for number, layer in enumerate(LAYERS) if part in layer), None)


def part_of(path: Path) -> str:
    """`graph` for gensor_gym/graph/rules.py, `construction` for gensor_gym/construction.py."""
    return path.parts[1].removesuffix(".py")


def against_the_layers(path: Path, text: str | None = None) -> list[str]:
    """Imports of a gensor_gym file that go up, sideways, or out to the face of the package."""
    own = height(part_of(path))
    if own is None:
        return []
    wrong = []
    for each in imported(path, text):
        words = each.name.split(".")
        if words[0] != "gensor_gym" or words[1:2] == [part_of(path)]:
            continue
        other = height(words[1]) if len(words) > 1 else None
        if other is None or other >= own:
            wrong.append(said(path, each))
    return wrong


def said(path: Path, each: Import) -> str:
    return f"{path}:{each.line} imports {each.name}"


def test_layers_go_one_way() -> None:
    wrong = [text for path in sources("gensor_gym") for text in against_the_layers(path)]
    assert wrong == []


def test_every_folder_of_the_gym_is_a_layer() -> None:
    folders = {p.name for p in (ROOT / "gensor_gym").iterdir() if p.is_dir() and any(p.glob("*.py"))}
    assert {name for name in folders if height(name) is None} == set()


def test_the_gym_knows_no_agent_and_agents_no_experiment() -> None:
    wrong = []
    for number, package in enumerate(PACKAGES):
        for path in sources(package):
            above = (*PACKAGES[number + 1 :], "tests")
            wrong += [said(path, each) for each in imported(path) if each.name.split(".")[0] in above]
    assert wrong == []


def test_no_modules_and_no_rooms_import_each_other() -> None:
    """Not at the top, not in functions, not for types; rooms not at the top and not in functions."""
    found = arrows(modules(ROOT, SOURCE))
    assert circles(found, ("top", "lazy", "type")) == []
    assert circles([Arrow(room(each.source), room(each.target), each.kind) for each in found], ("top", "lazy")) == []


def test_tops_of_gym_modules_import_only_the_core() -> None:
    allowed = TOP | {"gensor_gym", "__future__"} | set(sys.stdlib_module_names)
    wrong = [
        said(path, each)
        for path in sources("gensor_gym")
        for each in at_top(path)
        if each.name.split(".")[0] not in allowed | LAZY.get(path.as_posix(), set())
    ]
    assert wrong == []


def test_files_that_load_a_heavy_library_are_themselves_imported_late() -> None:
    modules = {file.removesuffix(".py").replace("/", ".") for file in LAZY}
    wrong = [
        said(path, each)
        for package in PACKAGES
        for path in sources(package)
        for each in at_top(path)
        if any(f"{each.name}.".startswith(f"{module}.") for module in modules) and str(path) not in LAZY
    ]
    assert wrong == []


@pytest.mark.parametrize("library", HEAVY)
def test_a_heavy_library_is_imported_only_in_its_files(library: str) -> None:
    users: dict[str, list[str]] = {package: [] for package in PACKAGES}
    for package in PACKAGES:
        for path in sources(package):
            if any(each.name.split(".")[0] == library for each in imported(path)):
                users[package].append(path.as_posix())
    for package, files in users.items():
        homes = {home for home in HOMES.get(library, ()) if home.startswith(f"{package}/")}
        if homes:
            assert set(files) == homes
        else:
            assert len(files) <= 1, f"{library} belongs in one file of {package}, or in HOMES above: {files}"


def test_the_checks_see_what_they_should() -> None:
    def wrong(path: str, text: str) -> list[str]:
        return against_the_layers(Path(path), text)

    assert wrong("gensor_gym/graph/a.py", "from gensor_gym.operators import x\nfrom gensor_gym.graph.b import y") == []
    assert wrong("gensor_gym/graph/a.py", "def f():\n    import gensor_gym.measure.workers.trial")
    assert wrong("gensor_gym/graph/a.py", "import gensor_gym")
    assert wrong("gensor_gym/graph/a.py", "from gensor_gym import build")
    assert wrong("gensor_gym/graph/a.py", "from ..cost import model")
    assert wrong("gensor_gym/hardware/a.py", "from gensor_gym.operators.types import Operator")
    assert wrong("gensor_gym/construction.py", "from gensor_gym.codegen import lower")
    assert wrong("gensor_gym/construction.py", "from gensor_gym.cost.model import latency") == []
    lazy = "import numpy\nif TYPE_CHECKING:\n    import torch\ndef f():\n    import cupy\nclass A:\n    import rich\n"
    assert [each.name for each in at_top(Path("a/b.py"), lazy)] == ["numpy", "rich"]
