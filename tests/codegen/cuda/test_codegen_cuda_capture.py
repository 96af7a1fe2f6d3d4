"""What a CUDA graph may capture: launches of a bound kernel, which allocates and clears nothing. A call has its own workspace."""

from __future__ import annotations

import sys
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from gensor_gym.codegen.cuda import nvrtc
from gensor_gym.codegen.runtime import cuda as cuda_load
from gensor_gym.codegen.runtime.cuda import CudaKernel
from tests.codegen.cuda.test_codegen_cuda_load import KERNEL, OP, OnDevice, on_device, random_inputs, stand_in

pytestmark = pytest.mark.skipif(not nvrtc.is_available(), reason=f"NVRTC is not installed: {nvrtc.PACKAGES}")


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
        self.given = [on_device(array) for array in random_inputs(OP, np.random.default_rng(0))]
        self.kernel = CudaKernel(replace(KERNEL, cleared_bytes=cleared), module)

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
    assert not watched.other and len(watched.launched) == 3 * len(KERNEL.launches)
    assert all(output is bound.out for output in outputs)


def test_a_call_allocates_its_workspace(monkeypatch: pytest.MonkeyPatch) -> None:
    """So it is no call that a graph captures, with an output of the caller's own neither."""
    watched = Watched(monkeypatch)
    out = on_device(np.zeros((128, 128), np.float32))
    watched.kernel(*watched.given, out=out)
    assert watched.other == [("empty", KERNEL.workspace_bytes // 4)]
