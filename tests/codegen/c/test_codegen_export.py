"""Exported kernels: a folder that C uses without Python, with the digits that the kernel has here."""

from __future__ import annotations

import ctypes
import errno
import hashlib
import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gensor_gym import ConstructionGraph, operators
from gensor_gym.codegen import generate
from gensor_gym.codegen.export import Exported, export
from gensor_gym.codegen.export.kinds import kind_name, sizes_of
from gensor_gym.codegen.export.names import function_name
from gensor_gym.codegen.export.texts import FEATURES
from gensor_gym.codegen.runtime.c import load
from gensor_gym.hardware.compiler import Compiler, find_compiler
from tests.support.exports import OPERATORS, PATH, kernel_of, run


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Exported:
    known = [{"schedule": text} for text in OPERATORS]
    return export([kernel_of(text) for text in OPERATORS], tmp_path_factory.mktemp("export") / "kernels", 2, known)


def of_the_example(text: str) -> float:
    """The sum that the example prints of a kernel, from the kernel as Python calls it."""
    kernel = kernel_of(text)
    inputs = []
    for place, tensor in enumerate(kernel.operator.inputs):
        values = (np.arange(tensor.size) * (2 * place + 3)) % 7 - 3
        inputs.append(values.astype(tensor.dtype).reshape(tensor.shape))
    output = load(kernel)(*inputs).ravel()
    return float(np.sum(output.astype(np.float64) * (np.arange(output.size) % 5 + 1)))


def test_the_example_runs_without_python_and_has_the_same_digits(exported: Exported) -> None:
    compiler = find_compiler().command
    run([*compiler, "example.c", "-o", "example", "-L.", "-lgensor_kernels", "-Wl,-rpath,$ORIGIN"], exported.folder)
    lines = run(["./example"], exported.folder).splitlines()
    expected = {function_name(operators.resolve_one(text)): of_the_example(text) for text in OPERATORS}
    assert {line.split()[0]: float(line.split()[1]) for line in lines} == expected


def test_a_kind_is_called_by_its_sizes(exported: Exported) -> None:
    library = ctypes.CDLL(str(exported.binaries[0]))
    for text in OPERATORS:
        op = operators.resolve_one(text)
        arrays = [np.ones(tensor.shape, tensor.dtype) for tensor in (*op.inputs, op.output)]
        pointers, sizes = [array.ctypes.data_as(ctypes.c_void_p) for array in arrays], [n for _, n in sizes_of(op)]
        named = getattr(library, kind_name(op))
        for place in range(len(sizes)):
            changed = [n + (place == at) for at, n in enumerate(sizes)]
            assert named(*pointers, *map(ctypes.c_int64, changed)) == errno.EINVAL
        assert (arrays[-1] == 1).all()
        assert named(*pointers, *map(ctypes.c_int64, sizes)) == 0
        assert np.array_equal(arrays[-1], load(kernel_of(text))(*arrays[:-1]))


def test_kinds_have_names_and_sizes_of_their_own() -> None:
    texts = (*OPERATORS, 'elementwise("exp", 8, 12)', 'elementwise("exp", 8, 2, 6)', "gemv(m=4, k=5)")
    names = [kind_name(operators.resolve_one(text)) for text in texts]
    assert names == [
        "gemm_bias_relu", "gemm_bias_relu", "conv2d", "gemm_int8", "max_pool2d",
        "elementwise_exp_2d", "elementwise_exp_3d", "gemv",
    ]  # fmt: skip
    conv, pool = (dict(sizes_of(operators.resolve_one(texts[place]))) for place in (2, 4))
    assert [conv[name] for name in ("stride_0", "stride_1", "padding_0", "padding_1", "groups")] == [2, 1, 1, 1, 1]
    assert (pool["stride_0"], pool["stride_1"], pool["padding_0"]) == (2, 2, 0)
    assert sizes_of(operators.resolve_one(texts[6])) == (("shape_0", 8), ("shape_1", 2), ("shape_2", 6))


def test_the_header_is_c_plus_plus_as_well(exported: Exported, tmp_path: Path) -> None:
    (tmp_path / "call.cpp").write_text('#include "gensor_kernels.h"\nint main() { gensor_kernels_set_threads(1); return 0; }\n')
    here = exported.folder
    line = ["g++", "-Wall", "-Werror", "-pedantic", "call.cpp", f"-I{here}", f"-L{here}", "-lgensor_kernels"]
    run([*line, f"-Wl,-rpath,{here}", "-o", "call"], tmp_path)
    run(["./call"], tmp_path)


def test_a_processor_that_lacks_something_is_told_so(exported: Exported, tmp_path: Path) -> None:
    """The checks ask here for a bit of CPUID that no processor has: EAX of leaf 7 is the number of the last subleaf."""
    folder = Path(shutil.copytree(exported.folder, tmp_path / "changed"))
    (source,) = folder.glob("gemm_m24_n40*.c")
    checks = [line for line in source.read_text().splitlines() if "|| !gg_saves(" in line]
    assert len(checks) == len(FEATURES)
    for check in checks:
        source.write_text(source.read_text().replace(check, "    if (!gg_has(7, eax, 30)) return 0;"))
    subprocess.run(["sh", "build.sh"], cwd=folder, env=PATH, check=True)
    line = ["cc", "example.c", "-o", "example", "-L.", "-lgensor_kernels", "-Wl,-rpath,$ORIGIN"]
    subprocess.run(line, cwd=folder, env=PATH, check=True)
    done = subprocess.run(["./example"], cwd=folder, env=PATH, capture_output=True, text=True, check=False)
    vectors = "__AVX2__" in macros()
    assert (done.returncode == 1 and f"status {errno.ENOTSUP}" in done.stderr) == vectors


def macros() -> str:
    """What the compiler defines for the processor of this machine."""
    return run(["cc", "-march=native", "-dM", "-E", "-xc", "/dev/null"], Path("/"))


@pytest.mark.thorough
def test_zig_compiles_an_export(tmp_path: Path) -> None:
    pytest.importorskip("ziglang")
    zig = (sys.executable, "-m", "ziglang", "cc")
    made = export([kernel_of(OPERATORS[0])], tmp_path / "made", 2, compiler=Compiler(zig, "zig", "zig"))
    link = ["example.c", "-o", "example", "-L.", "-lgensor_kernels", "-Wl,-rpath,$ORIGIN"]
    subprocess.run([*zig, *link], cwd=made.folder, check=True, timeout=200)
    assert float(run(["./example"], made.folder).split()[1]) == of_the_example(OPERATORS[0])


def test_build_sh_makes_the_library_anew(exported: Exported) -> None:
    exported.binaries[0].unlink()
    run(["sh", "build.sh"], exported.folder)
    assert exported.binaries[0].exists()


def test_the_manifest_names_every_file_and_kernel(exported: Exported) -> None:
    manifest = json.loads(exported.manifest.read_text())
    assert [entry["operator"] for entry in manifest["kernels"]] == [str(operators.resolve_one(text)) for text in OPERATORS]
    assert [entry["schedule"] for entry in manifest["kernels"]] == list(OPERATORS)
    for name in ("gensor_kernels.h", "runtime.c", "example.c"):
        assert manifest["files"][name] == hashlib.sha256((exported.folder / name).read_bytes()).hexdigest()


def test_what_is_no_export_is_refused(tmp_path: Path) -> None:
    kernel = kernel_of(OPERATORS[0])
    with pytest.raises(ValueError, match="expected at least one"):
        export([], tmp_path, 1)
    with pytest.raises(ValueError, match="expected one for each operator"):
        export([kernel, kernel], tmp_path, 1)
    with pytest.raises(ValueError, match="identifier in lower case"):
        export([kernel], tmp_path, 1, library="no name")
    (tmp_path / "letters.txt").write_text("mine")
    with pytest.raises(ValueError, match="expected a new folder"):
        export([kernel], tmp_path, 1)
    assert [path.name for path in tmp_path.iterdir()] == ["letters.txt"]
    other = generate(kernel.operator, ConstructionGraph(kernel.operator, "h200").initial(), "h200")
    with pytest.raises(ValueError, match="plain kernels in 'c'"):
        export([kernel, other], tmp_path / "new", 1)
    prepacked = replace(kernel, prepares="gg_prepare")
    with pytest.raises(ValueError, match="a prepacked kernel is not exported"):
        export([prepacked], tmp_path / "new", 1)
