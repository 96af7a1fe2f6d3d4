"""Export CUDA kernels as cubins, with a C++ header that uses CUDA's driver API and a manifest of all launch parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gensor_gym.codegen.cuda import nvrtc
from gensor_gym.codegen.cuda.tensor_map import described
from gensor_gym.codegen.export import cuda_texts
from gensor_gym.codegen.export.folder import Exported, check_exports, entry, write_manifest
from gensor_gym.codegen.export.names import Exports
from gensor_gym.codegen.kernel import Kernel


def export_cuda(kernels: Sequence[Kernel], target: Path, known: Sequence[Mapping[str, Any]], library: str) -> Exported:
    """Write the export's folder for CUDA kernels, and return its paths. NVRTC is needed, a GPU is not.

    `known` holds further entries of the manifest, one mapping for each kernel.
    """
    exports = [Exports(kernel) for kernel in kernels]
    check_exports(exports, library, "cuda")
    target.mkdir(parents=True, exist_ok=True)
    entries, binaries = [], []
    for one, more in zip(exports, known, strict=True):
        binary, about = written(one, target)
        binaries.append(binary)
        entries.append(entry(one, **about, **more))
    header = target / f"{library}.hpp"
    header.write_text(cuda_texts.header(exports, library), encoding="utf-8")
    (target / "example.cpp").write_text(cuda_texts.example(exports, library), encoding="utf-8")
    made = Exported(target, tuple(binaries), header, target / "manifest.json")
    write_manifest(made, f"nvrtc {nvrtc.version()}", entries)
    return made


def written(one: Exports, target: Path) -> tuple[Path, dict[str, Any]]:
    """Write a kernel's cubin and source to a folder. Return (path of the cubin, the kernel's part of the manifest).

    The manifest's `spill_bytes` are bytes of register spills, stores and loads.
    """
    compiled, path = nvrtc.compile_cubin(one.kernel), target / f"{one.name}.cubin"
    path.write_bytes(compiled.cubin)
    path.with_suffix(".cu").write_text(one.kernel.source, encoding="utf-8")
    about = {"cubin": path.name, "registers": compiled.registers, "spill_bytes": compiled.spill_bytes}
    return path, about | launched(one.kernel)


def launched(kernel: Kernel) -> dict[str, Any]:
    """Return a kernel's part of the manifest: launches in order, tensor maps, order of arguments.

    In a tensor map, `argument` is the index of its array among inputs, output and workspace, and `offset` the start of the mapped
    data in bytes. The cubin fixes the cluster size, so no launch attribute is needed. The first `cleared_bytes` bytes of the
    workspace must be zero before the first launch.
    """
    launches = [
        {
            "entry": launch.entry, "grid": list(launch.grid), "block": list(launch.block),
            "dynamic_shared_bytes": launch.shared_bytes, "cluster": launch.cluster,
        }
        for launch in kernel.launches
    ]  # fmt: skip
    maps = [{"argument": one.argument, "offset": one.offset, **described(one)} for one in kernel.maps]
    order = [*(f"map {place}" for place in range(len(maps))), "inputs", "output", "workspace"]
    return {"launches": launches, "tensor_maps": maps, "argument_order": order, "cleared_bytes": kernel.cleared_bytes}
