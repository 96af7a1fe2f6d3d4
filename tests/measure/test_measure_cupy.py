"""What this project calls of CuPy and of CUDA's bindings, held against those that are installed: no GPU is needed for that.

`make gpu-dry` runs this under the packages of the GPU machine.
"""

from __future__ import annotations

import inspect
from types import ModuleType
from typing import Any

import pytest

from tests.support import fake_cupy, real_cupy

FUNCTIONS = ("asarray", "asnumpy", "empty", "from_dlpack", "get_default_memory_pool", "may_share_memory", "zeros")
RUNTIME = ("driverGetVersion", "runtimeGetVersion", "getDeviceProperties", "deviceGetPCIBusId", "getDeviceCount")


@pytest.fixture(scope="module")
def cupy() -> ModuleType:
    """CuPy, which need not find a driver."""
    found: ModuleType = pytest.importorskip("cupy")
    if found is fake_cupy.module:
        pytest.skip("CuPy stands in")
    return found


@pytest.mark.parametrize("file", real_cupy.FILES)
def test_calls_fit_the_installed_cupy(cupy: ModuleType, file: str) -> None:
    """Every `cupy.name(..)` exists and takes so many arguments and names."""
    path = real_cupy.ROOT / file
    if not path.exists():
        pytest.skip("not there")
    assert not real_cupy.misfits(cupy, path)


def test_classes_have_what_is_used_of_their_objects(cupy: ModuleType) -> None:
    """Attributes, which calls in the text do not show."""
    missing = [
        f"{name}.{attribute}"
        for name, used in real_cupy.OBJECTS.items()
        for attribute in used
        if not hasattr(real_cupy.found(cupy, name), attribute)
    ]
    assert not missing


def test_errors_are_the_classes_that_are_caught(cupy: ModuleType) -> None:
    """Names of classes in `except` are looked up only once something goes wrong."""
    for error in (cupy.cuda.runtime.CUDARuntimeError, cupy.cuda.driver.CUDADriverError, cupy.cuda.memory.OutOfMemoryError):
        assert issubclass(error, Exception)
    with pytest.raises(cupy.cuda.runtime.CUDARuntimeError):
        cupy.cuda.runtime.getDeviceProperties(1 << 20)


def test_a_call_that_does_not_fit_is_seen(cupy: ModuleType, tmp_path: Any) -> None:
    """The check itself: unknown names, unknown keywords, too many arguments."""
    path = tmp_path / "wrong.py"
    lines = ("cupy.cuda.Streams()", "cupy.empty(1, kind=2)", "cupy.RawModule(cubin=1)", "graph.launch(1, 2, 3)", "x.memset(0)")
    path.write_text("\n".join([*lines, "cupy.empty(1, dtype=2)", "x.memset(0, 8)", "graph.launch(1)"]))
    assert [int(text.split(":")[1]) for text in real_cupy.misfits(cupy, path)] == [1, 2, 3, 4, 5]


def test_the_stand_in_takes_no_more_than_cupy(cupy: ModuleType) -> None:
    """What tests call on the stand-in exists on the real one, with at least its parameters."""
    for name in ("cuda.Stream", "cuda.Event", "cuda.Graph", "cuda.Device"):
        real, fake = real_cupy.found(cupy, name), real_cupy.found(fake_cupy.module, name)
        for method in (m for m in vars(fake) if not m.startswith("_") and inspect.isfunction(getattr(fake, m))):
            signature = real_cupy.signature_of(getattr(real, method))
            given = [p.name for p in inspect.signature(getattr(fake, method)).parameters.values()]
            assert signature is None or len(given) <= len(signature.parameters), f"{name}.{method}"
    for name in (*FUNCTIONS, *(f"cuda.runtime.{name}" for name in RUNTIME)):
        assert callable(real_cupy.found(cupy, name)), name
