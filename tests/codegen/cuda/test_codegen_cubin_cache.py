"""Cubins: kept between processes, and launched in a graph."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from gensor_gym import operators
from gensor_gym.cache.owned import is_own
from gensor_gym.codegen.cuda import nvrtc
from gensor_gym.codegen.runtime import cuda as cuda_load
from gensor_gym.codegen.runtime.cuda import CudaKernel
from gensor_gym.measure.workers.builders import build_cubin
from gensor_gym.measure.workers.requests import Built
from tests.codegen.cuda.test_codegen_cuda_load import KERNEL as KERNEL_capture
from tests.codegen.cuda.test_codegen_cuda_load import OP as OP_capture
from tests.codegen.cuda.test_codegen_cuda_load import OnDevice, on_device, random_inputs, stand_in
from tests.support.cuda_schedules import make_kernel, make_schedule

pytestmark = pytest.mark.skipif(not nvrtc.is_available(), reason=f"NVRTC is not installed: {nvrtc.PACKAGES}")

OP = operators.gemm(m=16, n=16, k=8)
KERNEL = make_kernel(OP, make_schedule(OP, [1, 1, 1], [4, 4, 4]))


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GENSOR_GYM_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_a_note_that_others_could_have_written_is_not_believed(cache: Path) -> None:
    first = nvrtc.compile_cubin(KERNEL)
    (path,) = nvrtc.cache_folder().glob("*.json")
    path.write_text(json.dumps(json.loads(path.read_text()) | {"registers": 1}))
    assert nvrtc.compile_cubin(KERNEL).registers == 1  # it is this user's own
    path.chmod(0o666)
    with pytest.warns(RuntimeWarning, match=f"{path.name} belongs to another user or can be written by others: .* compiled anew"):
        assert nvrtc.compile_cubin(KERNEL) == first
    assert is_own(path) and nvrtc.compile_cubin(KERNEL) == first


@pytest.mark.parametrize("kind", ["of everybody", "a link", "another's bytes"])
def test_a_file_for_the_device_holds_what_was_compiled(cache: Path, kind: str) -> None:
    built = build_cubin(KERNEL)
    assert isinstance(built, Built)
    path, right = Path(built.path), Path(built.path).read_bytes()
    path.unlink()
    if kind == "a link":
        path.symlink_to(cache.parent / "forged")
        (cache.parent / "forged").write_bytes(b"forged")
    else:
        path.write_bytes(b"forged")
        path.chmod(0o666 if kind == "of everybody" else 0o600)
    again = build_cubin(KERNEL)
    assert isinstance(again, Built) and again.path == str(path)
    assert path.read_bytes() == right and is_own(path)


class Watched:
    """A kernel on the stand-in: what it allocates, clears and launches, in order."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, cleared: int = 0) -> None:
        """Loaded, with arrays of the device."""
        self.launched: list[tuple] = []
        self.other: list[tuple[str, int]] = []
        module = stand_in(self.launched)
        monkeypatch.setitem(sys.modules, "cupy", module)
        monkeypatch.setattr(cuda_load, "_LOADED", {})

        class Cleared(OnDevice):
            """An array of the stand-in whose memory can be cleared."""

            @property
            def data(array) -> SimpleNamespace:  # noqa: N805 - `self` is the watcher
                """As CuPy's."""
                return SimpleNamespace(ptr=array.ctypes.data, memset_async=self._clear)

        module.ndarray = np.ndarray

        def empty(shape: tuple[int, ...], dtype: str) -> np.ndarray:
            self.other.append(("empty", int(np.prod(shape))))
            return np.empty(shape, dtype).view(Cleared)

        module.empty = empty
        self.given = [on_device(array) for array in random_inputs(OP_capture, np.random.default_rng(0))]
        self.kernel = CudaKernel(replace(KERNEL_capture, cleared_bytes=cleared), module)

    def _clear(self, value: int, size: int) -> None:
        """As CuPy's `memset_async`."""
        assert value == 0
        self.other.append(("clear", size))


def test_a_bound_kernel_allocates_nothing_when_it_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    """Allocations of a stream that is captured are refused; the output and the workspace are there from binding on."""
    watched = Watched(monkeypatch, cleared=64)
    bound = watched.kernel.bind(*watched.given)
    assert [name for name, _ in watched.other] == ["empty", "empty", "clear"] and not watched.launched
    watched.other.clear()
    outputs = [bound() for _ in range(3)]
    assert not watched.other and len(watched.launched) == 3 * len(KERNEL_capture.launches)
    assert all(output is bound.out for output in outputs)


def test_a_call_allocates_its_workspace(monkeypatch: pytest.MonkeyPatch) -> None:
    """So it is no call that a graph captures, with an output of the caller's own neither."""
    watched = Watched(monkeypatch)
    out = on_device(np.zeros((128, 128), np.float32))
    watched.kernel(*watched.given, out=out)
    assert watched.other == [("empty", KERNEL_capture.workspace_bytes // 4)]
