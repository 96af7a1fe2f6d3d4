"""Kernels as builtin functions of Python, without interpreted code in a call.

This module has the ctypes structures that `call.c` reads, and checks its assumptions.
"""

from __future__ import annotations

import ctypes
import functools
import sys
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gensor_gym.codegen.runtime.compile import compile_text
from gensor_gym.codegen.runtime.memory import address_of, aligned, workspace_of
from gensor_gym.codegen.runtime.threads import ARCH

_METH_FASTCALL = 0x0080
_DLPACK_CODES = {"i": 0, "u": 1, "f": 2, "b": 6}
"""NumPy's `dtype.kind` -> DLPack's type code (`DLDataTypeCode` in the header of DLPack)."""
_BFLOAT16 = 4
"""DLPack's type code of bfloat16; NumPy arrays contain its bits."""
_TEXTS = ("objects.h", "tensors.c", "call.c")
"""Names of the C source files that are concatenated and compiled together."""
_ENTRIES = ("gg_python_call", "gg_python_fill")
Array = tuple[tuple[int, ...], np.dtype]
"""Description of an array: (shape, dtype)."""


class _Python(ctypes.Structure):
    """`struct gg_python` of `objects.h`: Python's C functions and constants that `call.c` uses."""

    _fields_ = [
        (name, ctypes.c_void_p)
        for name in (
            "none", "no", "hold", "release", "call", "call_with", "attribute", "named", "new_tuple", "put", "pointer_of",
            "forgive", "unlock", "lock", "runs", "enter", "leave",
        )
    ]  # fmt: skip


class _Kind(ctypes.Structure):
    """`struct gg_kind` of `objects.h`: the shape and type that an array must have."""

    _fields_ = [
        ("dtype", ctypes.c_void_p), ("shape", ctypes.c_void_p), ("axes", ctypes.c_ssize_t), ("bytes", ctypes.c_ssize_t),
        ("code", ctypes.c_int), ("bits", ctypes.c_int),
    ]  # fmt: skip


class _Pool(ctypes.Structure):
    """`struct gg_pool` of `call.c`, which keeps the memory of one output.

    `own` is space for fields that only C code uses.
    """

    _fields_ = [("new_output", ctypes.c_void_p), ("own", ctypes.c_void_p * 13)]


class _Function(ctypes.Structure):
    """`struct gg_function` of `call.c`, the state of one builtin function.

    `own` is space for fields that only C code uses.
    """

    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("entry", "runtime", "ndarray", "kinds")), ("pools", ctypes.POINTER(_Pool)),
        ("inputs", ctypes.c_ssize_t), ("outputs", ctypes.c_ssize_t), ("new_workspace", ctypes.c_void_p),
        ("own", ctypes.c_void_p * 3),
    ]  # fmt: skip


class _Method(ctypes.Structure):
    """`PyMethodDef` of Python's C interface, which describes a builtin function."""

    _fields_ = [("name", ctypes.c_char_p), ("function", ctypes.c_void_p), ("flags", ctypes.c_int), ("doc", ctypes.c_char_p)]


class BuiltinKernel:
    """Two builtin functions, `call` and `fill`, that run a kernel's entry on arrays without interpreted code.

    Both do nothing and return None unless all arguments are NumPy arrays, or torch tensors (after `tensors.know_torch`), of
    the right shapes and types, dense and aligned. Threads may call them concurrently: each call has its own workspace.
    """

    call: Callable[..., Any]
    """A builtin function of the inputs that returns the output, or a tuple of several, in the first input's library.

    The memory of an output is used again for a later output when nothing refers to it any more.
    """
    fill: Callable[..., Any]
    """A builtin function of the inputs and the caller's own outputs. It fills the outputs in and returns the first output.

    It also does nothing and returns None if an output is not writable, or overlaps an input or another output.
    """

    def __init__(
        self, entry: Any, team: ctypes.Structure, workspace_bytes: int, inputs: Sequence[Array], outputs: Sequence[Array],
        types: Sequence[str],
    ) -> None:  # fmt: skip
        """Make the two builtin functions of a kernel's entry.

        `inputs` and `outputs` are (shape, dtype) of each array, `types` the data types of the operator's tensors.

        RuntimeError if `call.c` does not support the installed Python or NumPy.
        """
        library = builtins()
        sizes = [_kind(*array, name) for array, name in zip((*inputs, *outputs), types, strict=True)]
        kinds = (_Kind * len(sizes))(*(kind for kind, _ in sizes))
        self.workspaces = workspaces = list[np.ndarray]()
        """The workspaces allocated so far: as many as calls have run at the same time."""

        def new_workspace() -> int:  # without a reference to `self`, so that the memory is freed with the kernel's last user
            workspaces.append(workspace_of(workspace_bytes))
            return address_of(workspaces[-1])

        new_outputs = [functools.partial(aligned, *output) for output in outputs]
        pools = (_Pool * len(outputs))(*(_Pool(id(new_output)) for new_output in new_outputs))
        state = _Function(
            ctypes.cast(entry, ctypes.c_void_p), ctypes.addressof(team), id(np.ndarray), ctypes.addressof(kinds), pools,
            len(inputs), len(outputs), id(new_workspace),
        )  # fmt: skip
        methods = [_Method(b"kernel", ctypes.cast(library[name], ctypes.c_void_p), _METH_FASTCALL, None) for name in _ENTRIES]
        self._kept = (state, methods, kinds, sizes, new_outputs, new_workspace, entry, team)
        self.call, self.fill = (_builtin()(ctypes.byref(method), ctypes.addressof(state), None) for method in methods)
        weakref.finalize(self, library.gg_python_forget, ctypes.byref(state)).atexit = False


def _kind(shape: tuple[int, ...], dtype: np.dtype, name: str) -> tuple[_Kind, Any]:
    """Return (description of an array for the checks in `call.c`, C array of its shape, which must be kept alive)."""
    kept = (ctypes.c_ssize_t * max(1, len(shape)))(*shape)
    size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    element = _BFLOAT16 if name == "bfloat16" else _DLPACK_CODES[dtype.kind], 8 * dtype.itemsize
    return _Kind(id(dtype), ctypes.addressof(kept), len(shape), size, *element), kept


@functools.cache
def _builtin() -> Any:
    """Return Python's C function `PyCFunction_NewEx`.

    It makes a builtin function of a `_Method` and its `self`, which is an address here.
    """
    make = ctypes.pythonapi.PyCFunction_NewEx
    make.restype, make.argtypes = ctypes.py_object, [ctypes.POINTER(_Method), ctypes.py_object, ctypes.c_void_p]
    return make


@functools.cache
def builtins() -> ctypes.PyDLL:
    """Return the library of `call.c`, compiled at the first use on a machine and loaded. Its functions run with the GIL held."""
    _check_layout()
    text = "".join(Path(__file__).with_name(name).read_text("utf-8") for name in _TEXTS)
    library = ctypes.PyDLL(str(compile_text(text, ARCH)))
    of_python = ctypes.pythonapi
    functions = (
        of_python.Py_IncRef, of_python.Py_DecRef, of_python.PyObject_CallNoArgs, of_python.PyObject_Vectorcall,
        of_python.PyObject_GetAttrString, of_python.PyObject_GetAttr, of_python.PyTuple_New, of_python.PyTuple_SetItem,
        of_python.PyLong_AsVoidPtr, of_python.PyErr_Clear, of_python.PyEval_SaveThread, of_python.PyEval_RestoreThread,
        of_python.Py_IsInitialized, of_python.PyGILState_Ensure, of_python.PyGILState_Release,
    )  # fmt: skip
    addresses = (ctypes.cast(function, ctypes.c_void_p).value for function in functions)
    library.gg_python_init(ctypes.byref(_Python(id(None), id(False), *addresses)))
    return library


def _check_layout() -> None:
    """Check that Python objects and NumPy arrays have the memory layout that `call.c` reads; RuntimeError if not.

    The check compares the memory of an example array with its attributes.
    """
    array = np.empty((3, 5), np.float32)
    view = array[1:, ::2]
    expected = {
        "references": sys.getrefcount(array) - 1, "type": id(np.ndarray), "data": view.ctypes.data, "axes": 2,
        "shape": (2, 3), "strides": view.strides, "base": id(array), "dtype": id(view.dtype), "flags": view.flags.num,
    }  # fmt: skip
    head, pointer = object.__basicsize__, ctypes.sizeof(ctypes.c_void_p)
    if head != 2 * pointer or pointer != 8:  # checked before memory is read at assumed offsets
        raise RuntimeError(f"objects begin with {head} bytes: kernels are called from CPython of 64 bits with its global lock")

    def sizes(at: int) -> tuple[int, ...]:
        return tuple((ctypes.c_ssize_t * 2).from_address(address(at) or 0))

    address = lambda at: ctypes.c_void_p.from_address(at).value  # noqa: E731
    number = lambda at: ctypes.c_int.from_address(at).value  # noqa: E731
    at = id(view)
    found = {
        "references": number(id(array)), "type": address(at + 8), "data": address(at + 16), "axes": number(at + 24),
        "shape": sizes(at + 32), "strides": sizes(at + 40), "base": address(at + 48), "dtype": address(at + 56),
        "flags": number(at + 64),
    }  # fmt: skip
    if found != expected:
        raise RuntimeError(f"arrays of NumPy {np.__version__} lie in memory as {found}, expected {expected}")
