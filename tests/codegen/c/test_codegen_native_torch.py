"""A loaded C kernel called with tensors of torch: read where they lie without Python, and only where that is right."""

from __future__ import annotations

import ctypes
import gc
import weakref
from typing import Any

import numpy as np
import pytest

from gensor_gym import operators
from gensor_gym.codegen.c.codegen import generate_c
from gensor_gym.codegen.runtime import tensors
from gensor_gym.codegen.runtime.arrays import CopyWarning, Signature
from gensor_gym.codegen.runtime.c import NativeKernel
from tests.support.c_cases import program
from tests.support.called_kernel import MORE_THAN_KEPT, OP, in_threads

torch = pytest.importorskip("torch")
@pytest.fixture
def given() -> tuple[Any, Any]:
    a, b = map(torch.from_numpy, operators.random_inputs(OP, np.random.default_rng(0)))
    return a, b


@pytest.fixture
def python(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A number for each time that Python looked at the arrays of a call."""
    asked: list[int] = []
    plain = Signature.read
    monkeypatch.setattr(Signature, "read", lambda self, values: (asked.append(len(values)), plain(self, values))[1])
    return asked


def right(output: Any, a: Any, b: Any) -> bool:
    return isinstance(output, torch.Tensor) and torch.allclose(output, a.detach() @ b.detach(), atol=1e-4)


@pytest.mark.skipif(not tensors.know_torch(), reason="this torch has no exchange interface: Python reads its tensors")
def test_python_looks_at_no_tensor(kernel: NativeKernel, given: tuple[Any, Any], python: list[int]) -> None:
    a, b = given
    kernel(a, b)
    python.clear()
    own, within = torch.empty(24, 32), torch.zeros(40, 16)
    within[8:32] = a
    assert right(kernel(a, b), a, b) and kernel(a, b, out=own) is own and right(own, a, b)
    assert right(kernel(within[8:32], b), a, b)
    assert right(kernel(a, b.numpy()), a, b) and type(kernel(a.numpy(), b)) is np.ndarray
    with torch.no_grad():
        assert right(kernel(torch.nn.Parameter(a), b), a, b)
    with torch.inference_mode():
        assert kernel(a, b).is_inference()
    assert not python


def test_what_does_not_stand_in_memory_as_it_is_read_is_refused(kernel: NativeKernel, given: tuple[Any, Any]) -> None:
    a, b = given
    kernel(a, b)
    flat = torch.zeros(a.numel() + 1, dtype=torch.float32).view(torch.uint8)
    wrong = {
        "gradient": a.clone().requires_grad_(),
        "parameter": torch.nn.Parameter(a),
        "negated": torch._neg_view(a),
        "sparse": a.to_sparse(),
        "no memory": torch._efficientzerotensor(a.shape),
        "meta": a.to("meta"),
        "integers": a.to(torch.int32),
        "half as many bits": a.to(torch.bfloat16),
        "shape": a[:-1],
        "axes": a[None],
        "gradient of a part": (a.clone().requires_grad_() * 1)[:],
    }
    for name, one in wrong.items():
        with pytest.raises(ValueError, match="A"):
            kernel(one, b)
        assert right(kernel(a, b), a, b), name  # no error is left behind
    for out in (torch.empty(24, 32, requires_grad=True), a[:, :1].expand(24, 32), torch.empty(24, 32, dtype=torch.int32)):
        with pytest.raises(ValueError, match="out"):
            kernel(a, b, out=out)
    whole = torch.zeros(24 * 32 + a.numel())
    inside = whole[24 * 32 - 8 :][: a.numel()].view(a.shape)
    with pytest.raises(ValueError, match="out overlaps input A"):
        kernel(inside, b, out=whole[: 24 * 32].view(24, 32))
    misaligned = torch.from_numpy(flat.numpy()[1 : 1 + 4 * a.numel()].view(np.float32).reshape(a.shape))
    for one in (misaligned, a.T.contiguous().T):
        with pytest.warns(CopyWarning):
            kernel(one, b)


@pytest.fixture(scope="module")
def of_bfloat16() -> NativeKernel:
    op = operators.gemm(24, 32, 16, dtype="bfloat16")
    return NativeKernel(generate_c(program(op, (6, 16, 1), (12, 32, 16), (24, 32, 16), pack_b=1)), 1)


def test_bfloat16_is_read_and_returned_as_such(of_bfloat16: NativeKernel) -> None:
    """Tensors of bfloat16 and arrays of its bits, in place: `bind` reads them in Python, a call by the interface for C."""
    bits = operators.random_inputs(of_bfloat16.kernel.operator, np.random.default_rng(0))
    a, b = (torch.from_numpy(one.view(np.int16)).view(torch.bfloat16) for one in bits)
    expected = NativeKernel(of_bfloat16.kernel, 1)(*bits)
    wide = torch.from_numpy(expected.view(np.int16)).view(torch.bfloat16)
    assert torch.allclose(wide.float(), a.float() @ b.float(), rtol=2**-7, atol=1e-2)
    own = torch.empty(24, 32, dtype=torch.bfloat16)
    assert of_bfloat16(a, b, out=own) is own and torch.equal(own, wide)
    assert of_bfloat16.bind(a, b)().dtype == torch.bfloat16 and torch.equal(of_bfloat16.bind(a, b)(), wide)
    with pytest.warns(CopyWarning):
        assert torch.equal(of_bfloat16(a.T.contiguous().T, b, out=own), wide)
    for wrong in (a.clone().requires_grad_(), torch._neg_view(a), a.float(), a.half(), a.to("meta")):
        with pytest.raises(ValueError, match="input A"):
            of_bfloat16(wrong, b, out=own)
    assert torch.equal(of_bfloat16(a, b), wide) and of_bfloat16(a, b).dtype == torch.bfloat16
    assert torch.equal(of_bfloat16(a, bits[1]), wide) and np.array_equal(of_bfloat16(bits[0], b), expected)


def test_a_tensor_under_a_transform_is_refused(kernel: NativeKernel, given: tuple[Any, Any]) -> None:
    a, b = given
    kernel(a, b)
    with pytest.raises(ValueError, match="input A"):
        torch.vmap(lambda one: kernel(one, b))(a[None])
    with pytest.raises(ValueError, match="input A"):
        torch.func.grad(lambda one: kernel(one, b).sum())(a)


def test_a_subclass_is_left_to_itself(kernel: NativeKernel, given: tuple[Any, Any], python: list[int]) -> None:
    class Named(torch.Tensor):
        pass

    a, b = given
    kernel(a, b)
    python.clear()
    assert np.allclose(np.asarray(kernel(a.as_subclass(Named), b)), a @ b, atol=1e-4) and python


def test_a_tensor_holds_its_memory(kernel: NativeKernel, given: tuple[Any, Any]) -> None:
    kernel(*given)
    holders = {
        "itself": lambda output: output,
        "view": lambda output: output[3:].T,
        "storage": lambda output: output.untyped_storage(),
        "array": lambda output: output.numpy(),
        "capsule": lambda output: output.__dlpack__(),
        "detached": lambda output: output.detach(),
    }
    for name, hold in holders.items():
        output = kernel(*given)
        where, held = output.data_ptr(), hold(output)
        del output
        later = [kernel(*given) for _ in range(MORE_THAN_KEPT)]
        assert where not in [one.data_ptr() for one in later], name
        del held, later
    first = kernel(*given).data_ptr()
    assert all(kernel(*given).data_ptr() == first for _ in range(5))


def test_an_output_outlives_its_kernel(kernel: NativeKernel, given: tuple[Any, Any]) -> None:
    short_lived = NativeKernel(kernel.kernel, 1)
    owner = weakref.ref(short_lived(*(one.numpy() for one in given)).base)
    held = short_lived(*given)
    del short_lived
    gc.collect()
    assert right(held, *given) and owner() is not None
    del held
    gc.collect()
    assert owner() is None


def test_an_output_that_ends_in_a_thread_without_python(kernel: NativeKernel, given: tuple[Any, Any]) -> None:
    """Autograd's threads let go of what was saved for them."""
    weight = torch.ones(24, 32, requires_grad=True)
    for _ in range(200):
        (weight * kernel(*given)).sum().backward()
    assert torch.allclose(weight.grad, 200 * (given[0] @ given[1]), rtol=1e-3, atol=1e-2)


def test_an_older_torch_is_read_by_python(
    kernel: NativeKernel, given: tuple[Any, Any], python: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Older:
        __dlpack_c_exchange_api__ = None

    class Newer:
        """With an interface of a version to come, and none before it."""

    make = ctypes.pythonapi.PyCapsule_New
    make.restype, make.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    future = tensors._Exchange(major=2)
    Newer.__dlpack_c_exchange_api__ = make(ctypes.addressof(future), b"dlpack_exchange_api", None)  # type: ignore[attr-defined]
    assert tensors._exchange_of(Older) is None and tensors._exchange_of(Newer) is None
    monkeypatch.setattr("gensor_gym.codegen.runtime.c.know_torch", lambda: False)
    other = NativeKernel(kernel.kernel, 1)
    monkeypatch.setattr(other, "_compute", lambda *values: None if isinstance(values[0], torch.Tensor) else kernel(*values))
    assert right(other(*given), *given) and python


def test_threads_call_one_kernel_with_tensors(kernel: NativeKernel) -> None:
    def call(seed: int) -> None:
        given = [torch.from_numpy(one) for one in operators.random_inputs(OP, np.random.default_rng(seed))]
        expected, held = kernel(*given).clone(), []
        for _ in range(1000):
            held = [*held[-2:], kernel(*given)]
            assert all(torch.equal(one, expected) for one in held), f"thread {seed}"

    in_threads(call, 3)
