"""Exported networks for a GPU: C++ that runs on the driver API with the cubins alone. The emulator stands in for the driver."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from agents.modules import compile_module  # noqa: E402
from agents.networks import CompiledNetwork  # noqa: E402
from gensor_gym.codegen.cuda import nvrtc  # noqa: E402
from gensor_gym.codegen.export import Exported  # noqa: E402
from gensor_gym.measure.emulator.emulator import HEADER, _include_text, find_cxx  # noqa: E402
from tests.codegen.cuda.test_codegen_export_cuda import CUDA_H, STUB  # noqa: E402
from tests.networks.test_gpu_networks import OfIds, network  # noqa: E402
from tests.support.thorough import thorough_but  # noqa: E402

pytestmark = [
    pytest.mark.skipif(not nvrtc.is_available(), reason="NVRTC is not installed"),
    pytest.mark.skipif(CUDA_H is None, reason="no cuda.h: install the CUDA toolkit, or name it in $CUDA_HOME"),
]
FLAGS = ["-std=c++17", "-O1", "-fno-strict-aliasing", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]


def functions_text(compiled: CompiledNetwork, folder: Path) -> str:
    """C++ text with all kernels under names of their own, and the table of `emulated_cuda.h`."""
    parts = ["#define EMULATOR_WARP 32", '#include "emulator.h"', '#include "emulator_mma.h"', '#include "emulated_cuda.h"']
    rows = []
    for number, kernel in enumerate({kernel.digest: kernel for kernel in compiled.kernels}.values()):
        assert not kernel.maps
        (folder / f"kernel_{number}.cu").write_text(kernel.source)
        parts.append(_include_text(number, kernel))
        arrays = len(kernel.operator.inputs) + len(kernel.operator.outputs) + 1
        for launch in kernel.launches:
            shared = "shared_memory" + f"_{number}" if launch.shared_bytes else "nullptr"
            rows.append(f'{{"piece_{number}.cubin", "{launch.entry}", {arrays}, call_{launch.entry}_{number}, {shared}}}')
    return "\n".join([*parts, f"const std::vector<Function> functions = {{{', '.join(rows)}}};", ""])


def run_example(compiled: CompiledNetwork, made: Exported, folder: Path) -> float:
    """The sum that the example prints. Its text is compiled with all warnings, and all of it runs under sanitizers."""
    (folder / "functions.cpp").write_text(functions_text(compiled, folder))
    strict = ["-Wall", "-Wextra", "-Werror", "-pedantic", f"-isystem{CUDA_H}"]
    lax = ["-w", "-DEMULATED", f"-I{HEADER.parent}", f"-I{STUB.parent}", f"-I{CUDA_H}"]
    example, flags = made.folder / "example.cpp", [*find_cxx(), *FLAGS]
    subprocess.run([*flags, *strict, "-c", str(example), "-o", str(folder / "example.o")], check=True)
    sources = [str(folder / "example.o"), str(folder / "functions.cpp"), str(STUB)]
    subprocess.run([*flags, *lax, *sources, "-o", str(folder / "example")], check=True)
    environment = {**os.environ, "ASAN_OPTIONS": "detect_leaks=0:detect_stack_use_after_return=0"}
    command = [str(folder / "example"), str(made.folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stdout[-500:] + done.stderr[-2000:]
    return float(done.stdout.splitlines()[-1].split()[1])


def of_the_example(compiled: CompiledNetwork, module: Any) -> float:
    """The sum that the example prints, from the module."""
    given, limits = [], compiled.plan.network.id_limits
    for place, value in enumerate(compiled.plan.network.inputs):
        numbers = np.arange(int(np.prod(value.shape))) * (2 * place + 3)
        numbers = numbers % min(7, limits[value.name]) if value.name in limits else numbers % 7 - 3
        dtype = {"bool": torch.bool, "int32": torch.int32, "int64": torch.int64}.get(value.dtype, torch.float32)
        given.append(torch.from_numpy(numbers.reshape(value.shape)).to(dtype))
    with torch.no_grad():
        made = module(*given)
    each = [np.asarray(one, dtype=np.float64).ravel() for one in (made if isinstance(made, tuple) else (made,))]
    return float(sum(np.sum(one * (np.arange(one.size) % 5 + 1)) for one in each))


@pytest.mark.parametrize("name", thorough_but(["mlp", "parts", "block", "encoder"], "parts"))
def test_the_example_computes_the_network(name: str, tmp_path: Path) -> None:
    """Also arrays that begin at no multiple of 16 bytes, and several outputs: `parts` has both."""
    compiled, module, _ = network(name)
    made = compiled.export(tmp_path / "made", "parts")
    assert run_example(compiled, made, tmp_path) == pytest.approx(of_the_example(compiled, module), rel=1e-4, abs=1e-3)


@pytest.mark.thorough
def test_ids_of_the_example_are_in_their_table(tmp_path: Path) -> None:
    given = torch.randint(11, (3, 7)), torch.tensor([3, -2, 5], dtype=torch.int32), torch.rand(3, 7) > 0.5
    module = OfIds().eval()
    compiled = compile_module(module, given, hardware="h100", backend="analytic", trials=1, reuse=False)
    made = compiled.export(tmp_path / "made")
    assert run_example(compiled, made, tmp_path) == pytest.approx(of_the_example(compiled, module), rel=1e-4, abs=1e-3)


def test_the_manifest_names_every_kernel(tmp_path: Path) -> None:
    """Its cubin, launches, and the step that runs it; the weights are those of the network's memory."""
    compiled, _, _ = network("mlp")
    made = compiled.export(tmp_path / "made")
    said = json.loads(made.manifest.read_text())
    digests = {kernel.digest: f"piece_{n}.cubin" for n, kernel in enumerate({k.digest: k for k in compiled.kernels}.values())}
    assert [step["cubin"] for step in said["steps"]] == [digests[kernel.digest] for kernel in compiled.kernels]
    assert {one["digest"]: one["cubin"] for one in said["kernels"]} == digests
    for one in said["kernels"]:
        kernel = next(kernel for kernel in compiled.kernels if kernel.digest == one["digest"])
        assert (made.folder / one["cubin"]).read_bytes() == nvrtc.compile_cubin(kernel).cubin and one["spill_bytes"] == 0
    assert (made.folder / "weights.bin").read_bytes() == compiled.function.tasks.fixed().tobytes()
    assert [one["name"] for one in said["network"]["arguments"]] == ["input", compiled.plan.network.outputs[0].name]
    with pytest.raises(ValueError, match="library='Net'"):
        compiled.export(tmp_path / "other", "Net")
