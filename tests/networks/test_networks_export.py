"""A network taken away: C runs it without Python, with the digits that it has here, clean under the compiler's sanitizers."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from gensor_gym.codegen.export import Exported
from gensor_gym.codegen.export.names import Exports
from gensor_gym.frontends.torch_export import from_torch
from gensor_gym.hardware.compiler import find_compiler
from gensor_gym.networks import export as module
from gensor_gym.networks.export import export_network
from gensor_gym.networks.folding import folded
from gensor_gym.networks.load import NetworkFunction
from gensor_gym.networks.plan import cut_all
from tests.support.exports import run, sanitized, threads_program
from tests.support.networks import packed_kernels
from tests.support.thorough import thorough_but

MEMORY, THREADS = "-fsanitize=address,undefined", "-fsanitize=thread"
CHECKED = thorough_but([("example.c", MEMORY), ("threads.c", MEMORY), ("threads.c", THREADS)], ("threads.c", THREADS))
PARTS = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 16, 3, 2, groups=8), nn.Flatten())


@dataclass(frozen=True)
class Taken:
    """A network's folder, its function here, and the same as a kernel, which programs of tests call."""

    made: Exported
    function: NetworkFunction
    one: Exports


def taken(folder: Path, shape: tuple[int, ...], *layers: nn.Module) -> Taken:
    """A network of random weights, its products' packed."""
    torch.manual_seed(0)
    net = nn.Sequential(*layers).eval()
    plan = cut_all(folded(from_torch(net, [torch.randn(shape)])))
    kernels = packed_kernels(plan)
    function, known = NetworkFunction(plan, kernels, 2), [{"schedule": str(number)} for number in range(len(kernels))]
    made = export_network(plan, kernels, function, folder, 2, known, "gensor_network")
    return Taken(made, function, Exports(module._whole(plan, range(len(kernels)), kernels, function.layout)))


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Taken:
    """Two products with a softmax and a normalisation, whose texts are the same every time: what they become is kept."""
    torch.manual_seed(0)
    layers = nn.Linear(24, 40), nn.GELU(), nn.LayerNorm(40), nn.Linear(40, 24), nn.Softmax(-1)
    found = taken(tmp_path_factory.mktemp("rows") / "made", (16, 24), *layers)
    (found.made.folder / "threads.c").write_text(threads_program(found.one.kernel, "gensor_network", calls=20))
    return found


@pytest.fixture
def copied(rows: Taken, tmp_path: Path) -> Path:
    """Its sources, to be changed."""
    return Path(shutil.copytree(rows.made.folder, tmp_path / "changed"))


def of_the_example(found: Taken) -> float:
    """The sum that the example prints, from the network as Python calls it."""
    (shape,) = (one.shape for one in found.one.kernel.operator.inputs)
    given = ((np.arange(np.prod(shape)) * 3) % 7 - 3).astype(np.float32).reshape(shape)
    made = found.function(given).ravel()
    return float(np.sum(made.astype(np.float64) * (np.arange(made.size) % 5 + 1)))


def run_example(folder: Path) -> float:
    """What the example prints that was compiled as its first line says."""
    run([*find_compiler().command, "example.c", "-o", "example", "-L.", "-lgensor_network", "-Wl,-rpath,$ORIGIN"], folder)
    return float(run(["./example"], folder).split()[1])


def test_the_example_runs_without_python_and_has_the_same_digits(rows: Taken, tmp_path: Path) -> None:
    moved = Path(shutil.copytree(rows.made.folder, tmp_path / "elsewhere"))
    for name in ("weights.bin", "weights.S"):  # the library has them
        (moved / name).unlink()
    assert rows.function.layout.fixed_bytes > 0 and run_example(moved) == of_the_example(rows)


@pytest.mark.thorough
def test_a_network_of_convolutions(tmp_path: Path) -> None:
    found = taken(tmp_path / "made", (2, 3, 9, 8), *PARTS)
    assert run_example(found.made.folder) == of_the_example(found)
    assert sanitized(found.made.folder, "example.c", MEMORY) == ""


def test_build_sh_and_the_manifest(rows: Taken, copied: Path) -> None:
    (copied / "libgensor_network.so").unlink()
    run(["sh", "build.sh"], copied)
    manifest = json.loads((copied / "manifest.json").read_text())
    assert len(manifest["plan"]) == len(manifest["steps"]) and manifest["licence"] == "Apache-2.0"
    assert {step["source"] for step in manifest["steps"]} <= set(manifest["files"]) and manifest["steps"][1]["schedule"] == "1"
    assert sum(step["packed_weights"] for step in manifest["steps"]) == 2
    digest = hashlib.sha256((copied / "weights.bin").read_bytes()).hexdigest()
    assert manifest["files"]["weights.bin"] == digest and manifest["kernels"][0]["function"] == "sequential"


@pytest.mark.thorough
@pytest.mark.parametrize(("main", "sanitizer"), CHECKED)
def test_exported_sources_are_clean(main: str, sanitizer: str, rows: Taken) -> None:
    assert sanitized(rows.made.folder, main, sanitizer) == ""


def unlocked(text: str) -> str:
    return text.replace(".exclusive = 1", ".exclusive = 0")


def beyond(text: str) -> str:
    """The last value between kernels ends behind the workspace."""
    at = max(map(int, re.findall(r"GG_WORKSPACE, (\d+)", text)))
    return text.replace(f"GG_WORKSPACE, {at},", f"GG_WORKSPACE, {at + (1 << 16)},")


@pytest.mark.parametrize("fault, said, main, sanitizer", [
    pytest.param(unlocked, "ThreadSanitizer: data race", "threads.c", THREADS, marks=pytest.mark.thorough),
    (beyond, "AddressSanitizer", "example.c", MEMORY),
])  # fmt: skip
def test_planted_faults_are_caught(fault: Callable[[str], str], said: str, main: str, sanitizer: str, copied: Path) -> None:
    source = copied / "network.c"
    before = source.read_text()
    source.write_text(fault(before))
    assert source.read_text() != before and said in sanitized(copied, main, sanitizer)


@pytest.mark.thorough
def test_other_weights_and_values_on_one_another_are_caught(rows: Taken, copied: Path) -> None:
    """The comparison of digits sees both."""
    content = (copied / "weights.bin").read_bytes()
    source, tables = copied / "network.c", (copied / "network.c").read_text()
    at_0 = re.sub(r"GG_WORKSPACE, \d+", "GG_WORKSPACE, 0", tables)
    for weights, text in ((content[64:] + content[:64], tables), (content, at_0)):
        (copied / "weights.bin").write_bytes(weights)
        source.write_text(text)
        run(["sh", "build.sh"], copied)
        assert run_example(copied) != of_the_example(rows)


def test_what_cannot_be_written_is_refused(rows: Taken, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    plan = cut_all(folded(from_torch(nn.Linear(8, 8).eval(), [torch.randn(4, 8)])))
    kernels = packed_kernels(plan)
    function = NetworkFunction(plan, kernels, 1)
    with pytest.raises(ValueError, match="identifier in lower case"):
        export_network(plan, kernels, function, tmp_path / "new", 1, [{}], "Upper Case")
    (tmp_path / "letters.txt").write_text("mine")
    with pytest.raises(ValueError, match="expected a new folder"):
        export_network(plan, kernels, function, tmp_path, 1, [{}], "net")
    monkeypatch.setattr(module, "MOST_BYTES", 100)
    with pytest.raises(ValueError, match="weights of .* bytes, expected at most 100"):
        export_network(plan, kernels, function, tmp_path / "new", 1, [{}], "net")
