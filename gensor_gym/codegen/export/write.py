"""Export kernels in C or CUDA to a folder that needs neither Python nor this package."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gensor_gym.codegen.export.cubins import export_cuda
from gensor_gym.codegen.export.folder import Exported, check_folder
from gensor_gym.codegen.export.library import export_c
from gensor_gym.codegen.kernel import Kernel
from gensor_gym.hardware.compiler import Compiler, find_compiler

LANGUAGES = ("c", "cuda")
"""Languages of the kernels that can be exported."""


def export(
    kernels: Sequence[Kernel],
    folder: str | Path,
    threads: int,
    known: Sequence[Mapping[str, Any]] | None = None,
    library: str = "gensor_kernels",
    compiler: Compiler | None = None,
) -> Exported:
    """Write a folder with compiled kernels, their header and sources, an example, and a manifest.

    C kernels become a shared library and a C header. CUDA kernels become one cubin each and a C++ header that uses CUDA's
    driver API. `known` has further facts on each kernel for the manifest (schedule, measurement). `threads` is the default
    number of threads of C kernels, `compiler` compiles them.

    Raises:
        ValueError: without kernels; for kernels in several languages, prepacked kernels or two kernels of one operator; for a
            library name that is not an identifier; and for a folder that contains anything but an earlier export.
        CompileError, NvrtcError: with the compiler's message.
    """
    if not kernels:
        raise ValueError("no kernel to export: expected at least one")
    target, language = check_folder(folder), kernels[0].language
    if language not in LANGUAGES:
        raise ValueError(f"{kernels[0].operator}: kernels in {language!r} are not exported; expected {' or '.join(LANGUAGES)}")
    notes = known or [{} for _ in kernels]
    if language == "cuda":
        return export_cuda(kernels, target, notes, library)
    return export_c(kernels, target, notes, library, threads, compiler or find_compiler())
