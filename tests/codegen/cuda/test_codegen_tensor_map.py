"""Tensor maps: their limits, what the driver is asked, and that kernels get them before their plain arguments."""

from __future__ import annotations

import types
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from gensor_gym import operators
from gensor_gym.codegen.cuda import tensor_map
from gensor_gym.codegen.cuda.tensor_map import TensorMap, TensorMapError
from gensor_gym.codegen.kernel import Kernel, Launch
from gensor_gym.codegen.runtime import cuda as cuda_load
from gensor_gym.measure.answers.expectation import ExpectationCache
from gensor_gym.measure.measurement import Measurement, Status
from gensor_gym.measure.workers.requests import Built, TrialRequest
from gensor_gym.measure.workers.trial import run_trial
from tests.support import fake_cupy
from tests.support.fake_driver import KINDS, Driver, Encoded

OP = operators.elementwise("relu", 64, 32)
MAP = TensorMap(0, "float32", (64, 32), (128,), (8, 32))
KERNEL = Kernel(OP, "cuda", "sm_90a", "none", (Launch("entry", block=(64, 1, 1)),), 0, maps=(MAP,))


@pytest.fixture(params=KINDS)
def driver(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Driver:
    """The bindings' module replaced, with enumerations as of either kind of release."""
    made = Driver(request.param)
    monkeypatch.setattr(tensor_map, "bindings", lambda: made)
    return made


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"shape": (64,), "box": (8,)}, "lengths of its fields"),
        ({"strides": (120,)}, "strides .120,.: multiples of 16"),
        ({"box": (257, 32)}, "box .257, 32.: 1 to 256"),
        ({"box": (8, 33)}, "rows of 132 bytes"),
        ({"box": (8, 3)}, "rows of 12 bytes"),
        ({"swizzle": 96}, "swizzle 96"),
        ({"steps": (2,)}, "lengths of its fields"),
        ({"steps": (9, 1)}, "steps .9, 1.: 1 to 8"),
        ({"steps": (2, 2)}, "steps .2, 2.: 1 along the innermost"),
        ({"steps": (3, 1), "box": (96, 32)}, "box .288, 32.: 1 to 256"),
        ({"offset": 8}, "offset 8: multiples of 16"),
    ],
)
def test_what_the_hardware_cannot_take_is_refused(change: dict, words: str) -> None:
    """When it is described, long before a device is there."""
    with pytest.raises(ValueError, match=f"argument 0: {words}"):
        replace(MAP, **change)


def test_maps_are_part_of_the_digest() -> None:
    """Of one text with two maps."""
    other = replace(KERNEL, maps=(replace(MAP, box=(16, 32)),))
    assert len({KERNEL.digest, other.digest, replace(KERNEL, maps=()).digest}) == 3


def test_a_map_of_tf32_has_floats_of_the_driver_s_type_for_it(driver: Driver) -> None:
    """Four bytes an element."""
    argument = types.SimpleNamespace(data=types.SimpleNamespace(ptr=4096))
    (given, _) = tensor_map.with_maps([replace(MAP, dtype="tf32")], [argument])
    assert driver.of(given).kind == "CU_TENSOR_MAP_DATA_TYPE_TFLOAT32"
    with pytest.raises(ValueError, match="rows of 132 bytes"):
        replace(MAP, dtype="tf32", box=(8, 33))


def test_steps_and_offset_reach_the_driver(driver: Driver) -> None:
    """The driver's box is what it goes over, its address that of the array within the argument."""
    argument = types.SimpleNamespace(data=types.SimpleNamespace(ptr=4096))
    (given, plain) = tensor_map.with_maps([replace(MAP, offset=1024, steps=(2, 1))], [argument])
    assert plain is argument
    made = driver.of(given)
    assert (made.address, made.box, made.steps) == (5120, (32, 16), (1, 2))


def test_a_trial_encodes_maps_for_its_own_buffers(monkeypatch: pytest.MonkeyPatch, driver: Driver) -> None:
    """Innermost dimension first, at the address of the buffer that the kernel gets; one map for all launches."""
    seen = []

    def launch(entry: str, arguments: tuple) -> None:
        given, x, y, _ = arguments
        seen.append((driver.of(given), x.ctypes.data))
        y[...] = np.maximum(x, 0)

    result = run_on_fake(monkeypatch, launch)
    assert result.status is Status.OK, result.error
    assert len(driver.encoded) == 1
    expected = Encoded(
        "CU_TENSOR_MAP_DATA_TYPE_FLOAT32", seen[0][1], (32, 64), (128,), (32, 8), (1, 1), "CU_TENSOR_MAP_SWIZZLE_128B"
    )
    assert {made for made, _ in seen} == {expected}


def test_a_refused_map_is_a_launch_error(monkeypatch: pytest.MonkeyPatch, driver: Driver) -> None:
    """The trial's status, not the worker's end."""
    monkeypatch.setattr(Driver, "cuTensorMapEncodeTiled", lambda *_: (_refusal(), None))
    result = run_on_fake(monkeypatch, lambda *_: pytest.fail("launched"))
    assert result.status is Status.LAUNCH_ERROR
    assert "CUDA_ERROR_INVALID_VALUE" in result.error and "argument=0" in result.error


def test_without_a_driver_the_error_says_so() -> None:
    """Here, where there is none, or where the address is not one."""
    with pytest.raises(TensorMapError, match="driver does not load|CUDA_ERROR|cuda-bindings"):
        tensor_map.encode(MAP, 8)


def test_kernels_called_directly_get_their_maps(monkeypatch: pytest.MonkeyPatch, driver: Driver) -> None:
    """`kernel(x)`: maps of this call's arrays, before them."""

    def called(grid: tuple, block: tuple, arguments: tuple, shared_mem: int) -> None:
        assert driver.of(arguments[0]).address == arguments[1].ctypes.data
        arguments[2][...] = arguments[1] + 1

    module = types.ModuleType("cupy")
    module.asarray = lambda a: np.array(a).view(fake_cupy.Array)
    module.empty = lambda shape, dtype: np.empty(shape, dtype).view(fake_cupy.Array)
    module.asnumpy, module.ndarray = np.array, fake_cupy.Array
    module.cuda = types.SimpleNamespace(Device=fake_cupy.Device)
    monkeypatch.setattr(cuda_load, "_load_module", lambda *_: types.SimpleNamespace(get_function=lambda _: called))
    x = np.arange(64 * 32, dtype=np.float32).reshape(64, 32)
    np.testing.assert_array_equal(cuda_load.CudaKernel(KERNEL, module)(x), x + 1)


def _refusal() -> int:
    from tests.support.fake_driver import Status as Result

    return Result(1)


def run_on_fake(monkeypatch: pytest.MonkeyPatch, launch: Callable[[str, tuple], object]) -> Measurement:
    """A trial of the kernel on a GPU made of NumPy."""
    device = fake_cupy.device_module(monkeypatch, launch).CudaDevice()
    return run_trial(device, ExpectationCache(), TrialRequest(Built(KERNEL, "none.cubin"), 1, 0.0), lambda stage: None)
