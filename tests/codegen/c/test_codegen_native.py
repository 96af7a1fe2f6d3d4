"""A loaded C kernel: arrays of everyone, outputs that are never used again too early, threads, forks, clear errors."""

from __future__ import annotations

import collections
import gc
import itertools
import os
import warnings
import weakref
from typing import Any

import numpy as np
import pytest

from gensor_gym import operators
from gensor_gym.codegen.runtime import function
from gensor_gym.codegen.runtime.arrays import CopyWarning
from gensor_gym.codegen.runtime.c import NativeKernel
from gensor_gym.codegen.runtime.memory import ALIGNMENT, address_of
from tests.support.called_kernel import MORE_THAN_KEPT, OP, in_threads
from tests.support.resident import resident
from tests.support.thorough import thorough_but

torch = pytest.importorskip("torch")
@pytest.fixture
def arrays() -> tuple[np.ndarray, ...]:
    return operators.random_inputs(OP, np.random.default_rng(0))


def right(output: Any, a: np.ndarray, b: np.ndarray) -> bool:
    return np.allclose(np.asarray(output), a @ b, atol=1e-4)


def address(array: np.ndarray) -> int:
    return array.ctypes.data


def test_memory_is_used_again_only_when_nothing_refers_to_it(kernel: NativeKernel, arrays: tuple[np.ndarray, ...]) -> None:
    holders = {
        "itself": lambda output: output,
        "view": lambda output: output[3:].T,
        "view of a view": lambda output: output.reshape(-1)[5:][::2],
        "memoryview": memoryview,
        "capsule": lambda output: output.__dlpack__(),
        "tensor": torch.from_numpy,
        "view of a tensor": lambda output: torch.from_dlpack(output).T[1:],
    }
    for name, hold in holders.items():
        output = kernel(*arrays)
        where, held = address(output), hold(output)
        del output
        later = [kernel(*arrays) for _ in range(MORE_THAN_KEPT)]
        assert where not in map(address, later), name
        del held, later


def test_an_output_that_was_let_go_is_used_again(kernel: NativeKernel, arrays: tuple[np.ndarray, ...]) -> None:
    first = address(kernel(*arrays))
    assert first % ALIGNMENT == 0
    assert all(address(kernel(*arrays)) == first for _ in range(5))
    output = kernel(*arrays)
    before = output.copy()
    assert address(kernel(arrays[0] + 1, arrays[1])) != address(output) and np.array_equal(output, before)


class Elsewhere:
    """An array that speaks DLPack and lies on a GPU."""

    device = "cuda:1"

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, 1

    def __dlpack__(self) -> object:
        raise AssertionError("not asked for")


class OnlyDlpack:
    """An array that speaks DLPack alone."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.array.__dlpack_device__()

    def __dlpack__(self, **options: Any) -> object:
        return self.array.__dlpack__(**options)


def test_whatever_speaks_dlpack_is_read(kernel: NativeKernel, arrays: tuple[np.ndarray, ...]) -> None:
    assert right(kernel(OnlyDlpack(arrays[0]), arrays[1]), *arrays)


def test_arrays_that_cannot_be_read_are_named(kernel: NativeKernel, arrays: tuple[np.ndarray, ...]) -> None:
    a, b = arrays
    wrong: list[tuple[tuple[Any, ...], str]] = [
        ((a,), "1 arrays given, expected 2"),
        ((a, b, np.empty((24, 32), np.float32)), "3 arrays given, expected 2"),
        ((a, b.T), "input B is float32"),
        ((a, b.astype(np.float64)), "input B is float64"),
        ((Elsewhere(), b), "cuda:1"),
        ((torch.from_numpy(a).requires_grad_(), b), "grad"),
        ((torch.from_numpy(a).to("meta"), b), "input A"),
        ((torch.from_numpy(a).to(torch.bfloat16), b), "BFloat16"),
    ]
    for given, words in wrong:
        with pytest.raises(ValueError, match=words):
            kernel(*given)


def test_a_copy_is_made_and_said(kernel: NativeKernel, arrays: tuple[np.ndarray, ...]) -> None:
    a, b = arrays
    bytes_ = np.zeros(b.nbytes + 1, np.uint8)
    misaligned = bytes_[1:].view(np.float32).reshape(b.shape)
    misaligned[:] = b
    turned = torch.from_numpy(b.T.copy()).T
    for given, why in (((np.asfortranarray(a), b), "not dense"), ((a, misaligned), "misaligned"), ((a, turned), "not dense")):
        with pytest.warns(CopyWarning, match=why):
            assert right(kernel(*given), a, b)
    read_only = a.copy()
    read_only.flags.writeable = False
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert right(kernel(read_only, b), a, b)


def test_out_is_checked(kernel: NativeKernel, arrays: tuple[np.ndarray, ...]) -> None:
    a, b = arrays
    own = np.empty((24, 32), np.float32)
    assert kernel(a, b, out=own) is own and right(own, a, b)
    shared = np.empty(24 * 32 + a.size, np.float32)
    inside = shared[24 * 32 - 8 :][: a.size].reshape(a.shape)
    read_only = own.copy()
    read_only.flags.writeable = False
    misaligned = np.empty(own.nbytes + 1, np.uint8)[1:].view(np.float32).reshape(own.shape)
    wrong = [
        (own.T, "out is float32\\[32, 24\\]"),
        (own.astype(np.float64), "float64"),
        (np.asfortranarray(own), "not dense"),
        (read_only, "read-only"),
        (misaligned, "misaligned"),
    ]
    for out, words in wrong:
        with pytest.raises(ValueError, match=words):
            kernel(a, b, out=out)
    with pytest.raises(ValueError, match="out is a list, expected an array"):
        kernel(a, b, out=own.tolist())
    with pytest.raises(ValueError, match="1 arrays given, expected 2"):
        kernel(a, out=b)
    with pytest.raises(ValueError, match="out overlaps input A"):
        kernel(inside, b, out=shared[: 24 * 32].reshape(24, 32))


def test_a_bound_call_reads_what_its_arrays_hold(kernel: NativeKernel, arrays: tuple[np.ndarray, ...]) -> None:
    a, b = (array.copy() for array in arrays)
    out = np.empty((24, 32), np.float32)
    call = kernel.bind(a, b, out)
    assert call() is out and right(out, a, b)
    a += 1
    call()
    assert right(out, a, b)
    assert right(kernel.bind(a, b)(), a, b)
    with pytest.raises(ValueError, match="copies nothing"):
        kernel.bind(np.asfortranarray(a), b)
    with pytest.raises(ValueError, match="at most one output"):
        kernel.bind(a, b, out, out)


WAYS = ("dropped", "kept", "bound", "into out", "tensors")


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("way", "calls"), thorough_but(itertools.product(WAYS, (20_000, 1_000_000)), *((way, 20_000) for way in WAYS))
)
def test_nothing_leaks(way: str, calls: int, kernel: NativeKernel, arrays: tuple[np.ndarray, ...]) -> None:
    own = np.empty((24, 32), np.float32)
    bound, tensors = kernel.bind(*arrays, own), [torch.from_numpy(array) for array in arrays]
    kept: collections.deque[Any] = collections.deque(maxlen=MORE_THAN_KEPT)
    call = {
        "dropped": lambda: kernel(*arrays), "kept": lambda: kept.append(kernel(*arrays)), "bound": bound,
        "into out": lambda: kernel(*arrays, out=own), "tensors": lambda: kernel(*tensors),
    }[way]  # fmt: skip
    for _ in range(5000):
        call()
    before = resident()
    for _ in range(calls):
        call()
    assert resident() - before < 1 << 20


def test_addresses_are_those_of_numpy() -> None:
    whole = np.zeros((6, 8), np.float32)
    for array in (whole, whole[2:, 3:], whole.T, whole[::-1], np.frombuffer(bytes(8), np.int8), np.zeros((), np.float16)):
        assert address_of(array) == array.ctypes.data


def test_views_that_lie_as_kernels_read_them_are_not_copied(kernel: NativeKernel, arrays: tuple[np.ndarray, ...]) -> None:
    a, b = arrays
    larger = np.zeros((30, 16), np.float32)
    larger[3:27] = a
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert right(kernel(larger[3:27], b), a, b) and right(kernel.bind(larger[3:27], b)(), a, b)


def test_arrays_whose_type_is_equal_but_another_object(kernel: NativeKernel, arrays: tuple[np.ndarray, ...]) -> None:
    """As pickles and byte orders make them: what is read by its address would not know them."""
    other = np.dtype("<f4", metadata={"unit": "m"})
    given = [array.view(other) for array in arrays]
    assert given[0].dtype == arrays[0].dtype and given[0].dtype is not arrays[0].dtype
    out = np.empty((24, 32), other)
    assert right(kernel(*given), *arrays) and kernel(*given, out=out) is out and right(out, *arrays)


def test_a_kernel_that_goes_leaves_nothing_behind(kernel: NativeKernel, arrays: tuple[np.ndarray, ...]) -> None:
    short_lived = NativeKernel(kernel.kernel, 1)
    owners = [weakref.ref(short_lived(*arrays).base) for _ in range(3)]
    held = short_lived(*arrays)
    del short_lived
    gc.collect()
    assert right(held, *arrays) and owners[0]() is not None  # of the output that is still held
    del held
    gc.collect()
    assert all(owner() is None for owner in owners)


def test_a_kernel_that_is_called_while_it_makes_an_output(kernel: NativeKernel, arrays: tuple[np.ndarray, ...]) -> None:
    """Python collects garbage when it allocates, and finalizers may call the same kernel."""
    inner: list[np.ndarray] = []

    class Last:
        def __del__(self) -> None:
            inner.append(kernel(*arrays))

    before = gc.get_threshold()
    gc.set_threshold(1)
    try:
        for _ in range(200):
            circle = Last()
            circle.itself = circle  # type: ignore[attr-defined]
            del circle
            outer = kernel(*arrays)
            assert all(address(outer) != address(one) for one in inner[-MORE_THAN_KEPT:] if one is not outer)
    finally:
        gc.set_threshold(*before)
    assert len(inner) > 100 and right(outer, *arrays) and all(right(one, *arrays) for one in inner[-5:])


def test_an_interpreter_whose_arrays_lie_otherwise_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    class Other:
        float32, ndarray, __version__ = np.float32, np.matrix, "9.9"
        empty = staticmethod(np.empty)

    monkeypatch.setattr(function, "np", Other)
    with pytest.raises(RuntimeError, match=r"arrays of NumPy 9\.9 lie in memory as .*'type'"):
        function._check_layout()


@pytest.mark.parametrize("calls", thorough_but([2000, 500_000], 2000))
def test_threads_call_one_kernel_at_a_time(calls: int, kernel: NativeKernel) -> None:
    def call(seed: int) -> None:
        given = operators.random_inputs(OP, np.random.default_rng(seed))
        expected = kernel(*given).copy()
        assert right(expected, *given)
        held: list[np.ndarray] = []
        for number in range(calls):
            held = [*held[-2:], kernel(*given)]
            assert all(one.tobytes() == expected.tobytes() for one in held), f"thread {seed}, call {number}"

    in_threads(call, 3)


def test_a_fork_between_calls(kernel: NativeKernel, arrays: tuple[np.ndarray, ...]) -> None:
    """The child's outputs, and what a bound call writes there, are its own."""
    held, out = kernel(*arrays), np.zeros((24, 32), np.float32)
    call = kernel.bind(*arrays, out)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            output = kernel(*arrays)
            code = 0 if right(output, *arrays) and address(output) != address(held) and right(call(), *arrays) else 2
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    assert right(held, *arrays) and right(kernel(*arrays), *arrays)
    assert not out.any() and right(call(), *arrays)
