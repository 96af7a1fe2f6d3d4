"""Compilation of CUDA text to a cubin with NVRTC, which needs no GPU and no driver, only two Python packages."""

from __future__ import annotations

import hashlib
import json
import re
import warnings
from dataclasses import asdict, dataclass
from pathlib import Path
from types import ModuleType

from gensor_gym.cache.folders import cache_dir, make_cache_dir
from gensor_gym.cache.owned import is_own_folder, read_own
from gensor_gym.codegen.cuda.bytes import raw_words
from gensor_gym.codegen.kernel import Kernel
from gensor_gym.files import write_whole

PACKAGES = "nvidia-cuda-nvrtc==13.0.88 cuda-bindings==13.0.3"
_OPTIONS = ("--std=c++17", "-default-device", "--ptxas-options=-v")
_CHECKS = "raw words"
"""Checks that a cubin passes before it is cached. They are part of the cache key, so a new check invalidates old cubins."""


class NvrtcError(RuntimeError):
    """NVRTC is missing or rejected a kernel; the message contains its log."""


@dataclass(frozen=True)
class CompiledKernel:
    """A cubin (machine code of a CUDA kernel) and the assembler's report.

    `registers` is the maximum per thread over all entries, and `spill_bytes` is the sum of spill stores and loads over all
    entries. `shared_bytes` is static shared memory, which is 0 for generated kernels. `log` is NVRTC's program log.
    """

    cubin: bytes
    registers: int
    spill_bytes: int
    shared_bytes: int
    log: str

    @property
    def warnings(self) -> tuple[str, ...]:
        """Codes of the assembler's warnings in the order of the log, each once.

        C7508 means that setmaxnreg is ignored. C7510, C7511 and similar codes mean that wgmma instructions wait for one another.
        """
        return tuple(dict.fromkeys(re.findall(r"\((C\d+)\) (?:Potential Performance Loss|[Ww]arning)", self.log)))

    @property
    def loss(self) -> str:
        """Reasons why the kernel is not worth timing: register spills and the assembler's warnings. Empty if there are none."""
        reasons = [f"{self.spill_bytes} bytes of register spills"] if self.spill_bytes else []
        lines = {code: next(line for line in self.log.splitlines() if f"({code})" in line) for code in self.warnings}
        return "; ".join(reasons + [line[line.index("(") :] for line in lines.values()])


def is_available() -> bool:
    """Return whether NVRTC is installed and can be loaded."""
    try:
        version()
    except NvrtcError:
        return False
    return True


def version() -> str:
    """Return NVRTC's version, for example `13.0`. NvrtcError if it is not installed."""
    return ".".join(map(str, _call(_nvrtc(), "nvrtcVersion")))


def cache_folder() -> Path:
    """Return the folder of cached cubins: nvrtc/ in the cache folder of gensor_gym."""
    return cache_dir() / "nvrtc"


def compile_cubin(kernel: Kernel, arch: str = "", cache: bool = True) -> CompiledKernel:
    """Compile a CUDA kernel for `arch`, for example `sm_90`; empty means the kernel's own architecture.

    With `cache`, the result comes from the cache if the same NVRTC has compiled the same source for the same architecture and
    options. ValueError for a kernel in another language. NvrtcError if NVRTC is not installed, or rejects the kernel.
    """
    return compile_text(kernel.in_language("cuda").source, arch or kernel.arch, cache)


def compile_text(source: str, arch: str, cache: bool = True) -> CompiledKernel:
    """Compile generated CUDA text for `arch`, with the same cache and errors as `compile_cubin`."""
    if not cache:
        return _compile(source, _options(arch))
    key = _key(source, arch)
    found = _read(key)
    if found is None:
        found = _compile(source, _options(arch))
        _write(key, found)
    return found


def keep_cubin(kernel: Kernel, compiled: CompiledKernel) -> None:
    """Cache a kernel's cubin, which the same version of NVRTC compiled on any machine, so that `compile_cubin` finds it."""
    _write(_key(kernel.in_language("cuda").source, kernel.arch), compiled)


def _options(arch: str) -> tuple[str, ...]:
    return (f"--gpu-architecture={arch}", *_OPTIONS)


def _key(source: str, arch: str) -> str:
    return hashlib.sha256("\0".join([source, *_options(arch), version(), _CHECKS]).encode()).hexdigest()


def _nvrtc() -> ModuleType:
    try:
        from cuda.bindings import nvrtc
    except ImportError as error:
        raise NvrtcError(f"NVRTC is not installed: pip install {PACKAGES}") from error
    return nvrtc


def _call(nvrtc: ModuleType, name: str, *arguments: object) -> tuple:
    """Call a function of the NVRTC bindings and return its values without the status.

    NvrtcError if the library does not load or the call fails.
    """
    try:
        status, *values = getattr(nvrtc, name)(*arguments)
    except RuntimeError as error:  # the bindings load the library at the first call
        raise NvrtcError(f"NVRTC does not load ({error}): pip install {PACKAGES}") from error
    if int(status):
        raise NvrtcError(f"{name}: {status!r}")
    return tuple(values)


def _compile(source: str, options: tuple[str, ...]) -> CompiledKernel:
    nvrtc = _nvrtc()
    (program,) = _call(nvrtc, "nvrtcCreateProgram", source.encode(), b"kernel.cu", 0, [], [])
    try:
        encoded = [option.encode() for option in options]
        (status,) = nvrtc.nvrtcCompileProgram(program, len(encoded), encoded)
        (size,) = _call(nvrtc, "nvrtcGetProgramLogSize", program)
        log = b" " * size
        _call(nvrtc, "nvrtcGetProgramLog", program, log)
        lines = log.decode(errors="replace").rstrip("\0 \n").splitlines()
        text = "\n".join(line for line in lines if "Compile time" not in line)  # the one line that differs between runs
        if int(status):
            raise NvrtcError(f"{status!r} with {' '.join(options)}\n{text}")
        if wrong := raw_words(_output(nvrtc, program, "PTX").decode(errors="replace")):
            raise NvrtcError(f"miscompiled: {wrong[0]} takes bytes of memory for 16-bit numbers (codegen/cuda/bytes.py)")
        cubin = _output(nvrtc, program, "CUBIN")
    finally:
        nvrtc.nvrtcDestroyProgram(program)
    return CompiledKernel(cubin, *parse_log(text), text)


def _output(nvrtc: ModuleType, program: object, kind: str) -> bytes:
    (size,) = _call(nvrtc, f"nvrtcGet{kind}Size", program)
    data = b" " * size
    _call(nvrtc, f"nvrtcGet{kind}", program, data)
    return data


def parse_log(log: str) -> tuple[int, int, int]:
    """Read ptxas's report. Return (registers, spill bytes, static shared bytes): maximum, sum and maximum over all entries."""
    registers = [int(n) for n in re.findall(r"Used (\d+) registers", log)]
    spills = [int(n) for n in re.findall(r"(\d+) bytes spill (?:stores|loads)", log)]
    shared = [int(n) for n in re.findall(r"(\d+) bytes smem", log)]
    return max(registers, default=0), sum(spills), max(shared, default=0)


def _read(key: str) -> CompiledKernel | None:
    """Return the compilation that is cached under `key`.

    The result is None if the cache's entry is missing or incomplete, or if other users can write to it.
    """
    path = cache_folder() / f"{key}.json"
    if not path.exists() or not is_own_folder(path.parent, cache_dir()):
        return None
    try:
        about, cubin = json.loads(read_own(path)), read_own(path.with_suffix(".cubin"))
    except ValueError as error:
        warnings.warn(f"{error}: the kernel is compiled anew", RuntimeWarning, stacklevel=4)
        return None
    if hashlib.sha256(cubin).hexdigest() != about.pop("sha256", ""):
        return None
    return CompiledKernel(cubin, **about)


def _write(key: str, compiled: CompiledKernel) -> None:
    """Store a compilation in the cache, each file atomically.

    If the folder is not writable or not private, nothing is stored.
    """
    about = asdict(compiled)
    cubin = about.pop("cubin")
    about["sha256"] = hashlib.sha256(cubin).hexdigest()
    try:
        folder = make_cache_dir(cache_folder().name)
        if not is_own_folder(folder, cache_dir()):
            return
        for suffix, data in ((".cubin", cubin), (".json", json.dumps(about).encode())):
            write_whole(folder / f"{key}{suffix}", data, 0o600)
    except (OSError, ValueError):
        return
