"""Exported CUDA kernels: a manifest that says all that a launch takes, and C++ that passes just that to the driver.

No GPU runs here. The example is compiled with the real `cuda.h` and run on a driver that says what it is asked for.
"""

from __future__ import annotations

import glob
import json
import os
import subprocess
from pathlib import Path

import pytest

from agents.optimizer import Result, export_all
from gensor_gym import ConstructionGraph, operators
from gensor_gym.codegen import generate
from gensor_gym.codegen.cuda import nvrtc
from gensor_gym.codegen.cuda.tensor_map import _fields, described
from gensor_gym.codegen.export import Exported, export
from gensor_gym.codegen.kernel import Kernel
from gensor_gym.measure.measurement import Measurement, Status
from gensor_gym.measure.session import Task
from tests.support.cuda_schedules import make_kernel, make_schedule
from tests.support.wgmma_kernels import wgmma_kernel

STUB = Path(__file__).parents[2] / "support" / "stub_cuda.cpp"
HEADERS = [Path(name) for name in (os.environ.get("CUDA_HOME", "/usr/local/cuda"), *glob.glob("/usr/local/cuda-*"))]
CUDA_H = next((path / "include" for path in HEADERS if (path / "include" / "cuda.h").exists()), None)

pytestmark = pytest.mark.skipif(not nvrtc.is_available(), reason="NVRTC is not installed")


def kernels() -> list[Kernel]:
    """One with tensor maps and much shared memory, one with two launches and a workspace."""
    product = wgmma_kernel(operators.gemm(256, 256, 128, dtype="bfloat16"), [64, 128], [128, 128], stages=2)
    split = operators.gemv(12, 4096)
    return [product, make_kernel(split, make_schedule(split, [1, 1], [4, 8], split_k=2))]


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Exported:
    return export(kernels(), tmp_path_factory.mktemp("export") / "kernels", 1)


def entries(exported: Exported) -> list[dict]:
    return list(json.loads(exported.manifest.read_text())["kernels"])


def test_the_manifest_says_what_a_launch_takes(exported: Exported) -> None:
    """As the Python runtime passes it: maps, arrays, output, workspace; grid, block, shared memory."""
    for kernel, said in zip(kernels(), entries(exported), strict=True):
        assert (said["arch"], said["workspace_bytes"], said["digest"]) == (kernel.arch, kernel.workspace_bytes, kernel.digest)
        assert (exported.folder / said["cubin"]).read_bytes() == nvrtc.compile_cubin(kernel).cubin
        assert (exported.folder / f"{said['function']}.cu").read_text() == kernel.source
        maps = [f"map {place}" for place in range(len(kernel.maps))]
        assert said["argument_order"] == [*maps, "inputs", "output", "workspace"]
        for launch, one in zip(kernel.launches, said["launches"], strict=True):
            assert (one["entry"], tuple(one["grid"]), tuple(one["block"])) == (launch.entry, launch.grid, launch.block)
            assert (one["dynamic_shared_bytes"], one["cluster"]) == (launch.shared_bytes, launch.cluster)
        for tensor_map, one in zip(kernel.maps, said["tensor_maps"], strict=True):
            assert one == {"argument": tensor_map.argument, "offset": tensor_map.offset, **described(tensor_map)}
    assert [len(said["launches"]) for said in entries(exported)] == [1, 2]
    assert len(entries(exported)[0]["tensor_maps"]) == 2 and entries(exported)[1]["workspace_bytes"] > 0


def test_numbers_of_a_map_are_those_of_the_bindings() -> None:
    driver = pytest.importorskip("cuda.bindings.driver")
    for dtype in ("bfloat16", "int8", "tf32"):
        for tensor_map in wgmma_kernel(operators.gemm(256, 256, 128, dtype=dtype), [64, 64], [64, 64]).maps:
            kind, rank, _, *lists, interleave, swizzle, promotion, fill = _fields(driver, tensor_map, 0)
            numbers = [int(kind), rank, *([int(n) for n in values] for values in lists)]
            assert [*numbers, int(interleave), int(swizzle), int(promotion), int(fill)] == [*described(tensor_map).values()]


@pytest.mark.skipif(CUDA_H is None, reason="no cuda.h: install the CUDA toolkit, or name it in $CUDA_HOME")
def test_the_example_asks_the_driver_for_what_the_manifest_says(exported: Exported, tmp_path: Path) -> None:
    flags = ["g++", "-std=c++17", "-Wall", "-Wextra", "-Werror", f"-I{CUDA_H}"]
    subprocess.run([*flags, "-shared", "-fPIC", str(STUB), "-o", str(tmp_path / "libcuda.so.1")], check=True)
    example = [*flags, "-pedantic", "example.cpp", "-o", str(tmp_path / "example"), str(tmp_path / "libcuda.so.1")]
    subprocess.run([*example, f"-Wl,-rpath,{tmp_path}"], check=True, cwd=exported.folder)
    arguments = {one["entry"]: str(_count(said)) for said in entries(exported) for one in said["launches"]}
    done = subprocess.run(
        [str(tmp_path / "example")], env=arguments, cwd=exported.folder, capture_output=True, text=True, check=True
    )
    product, gemv = (text.split("\n")[:-1] for text in _by_kernel(done.stdout))
    _check(product, entries(exported)[0])
    _check(gemv, entries(exported)[1])
    done = subprocess.run([str(tmp_path / "example"), "nowhere"], env=arguments, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "kernel.load(folder): SAID" in done.stderr


def _by_kernel(said: str) -> tuple[str, str]:
    """What was said of each of the two kernels, without the line of its sum."""
    lines = said.splitlines(keepends=True)
    (end,) = [place for place, line in enumerate(lines) if line.startswith("gemm_")]
    return "".join(lines[:end]), "".join(lines[end + 1 : -1])


def _count(entry: dict) -> int:
    """Arguments of a launch: maps, arrays, workspace."""
    return len(entry["tensor_maps"]) + len(entry["arguments"]) + 1


def _check(lines: list[str], entry: dict) -> None:
    """That the driver was asked for twice the launches of the manifest, each with its maps and arrays."""
    words = [line.split() for line in lines]
    arrays = [int(line[1]) for line in words if line[0] == "array"]
    sizes = [int(line[2]) for line in words if line[0] == "array"]
    assert sizes[len(entry["arguments"]) :] == [entry["workspace_bytes"]] * (entry["workspace_bytes"] > 0)
    arrays += [0] * (len(entry["arguments"]) + 1 - len(arrays))
    launches = [line[1:] for line in words if line[0] == "launch"]
    assert len(launches) == 2 * len(entry["launches"])
    maps = {line[1]: dict(word.split("=") for word in line[2:]) for line in words if line[0] == "map"}
    for place, (name, grid, block, shared, *given) in enumerate(launches):
        launch = entry["launches"][place % len(entry["launches"])]
        assert name == launch["entry"] and int(shared) == launch["dynamic_shared_bytes"]
        assert [grid, block] == [",".join(map(str, launch[side])) for side in ("grid", "block")]
        assert len(given) == _count(entry) and [int(word) for word in given[len(entry["tensor_maps"]) :]] == arrays
        for number, said in zip(given, entry["tensor_maps"], strict=False):
            found = maps[number]
            assert int(found.pop("address")) == arrays[said["argument"]] + said["offset"]
            plainly = {key: ",".join(map(str, value)) if isinstance(value, list) else str(value) for key, value in said.items()}
            assert found == {key: plainly[key] for key in found} and set(plainly) - set(found) == {"argument", "offset"}
    large = {launch["entry"]: launch["dynamic_shared_bytes"] for launch in entry["launches"]}
    allowed = {line[1]: int(line[3]) for line in words if line[0] == "attribute"}
    assert allowed == {name: size for name, size in large.items() if size > 48 * 1024}


def test_a_result_says_how_it_was_measured(tmp_path: Path) -> None:
    task = Task.of("gemv(m=12, k=64)", "h200", "analytic")
    schedule = ConstructionGraph(task.operator, task.hardware).initial()
    measured = Measurement(Status.OK, (2e-6, 3e-6, 4e-6), {"device": "NVIDIA H200", "protocol": 2})
    made = export_all([Result(schedule, measured, (), task)], tmp_path / "made")
    (entry,) = entries(made)
    assert entry["schedule"] == str(schedule) and entry["hardware"] == "h200"
    assert entry["measurement"]["seconds"] == 3e-6 and entry["measurement"]["conditions"]["device"] == "NVIDIA H200"
    assert json.loads(made.manifest.read_text())["licence"] == "Apache-2.0"


def test_kernels_of_other_languages_are_refused(tmp_path: Path) -> None:
    op = operators.gemv(12, 64)
    others = [generate(op, ConstructionGraph(op, name).initial(), name) for name in ("h200", "host", "mi300x")]
    with pytest.raises(ValueError, match="expected plain kernels in 'cuda'"):
        export(others[:2], tmp_path / "new", 1)
    with pytest.raises(ValueError, match="kernels in 'hip' are not exported; expected c or cuda"):
        export(others[2:], tmp_path / "new", 1)
    assert not (tmp_path / "new").exists()
