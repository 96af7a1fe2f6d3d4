"""A kernel as a builtin function of Python: the layouts of Python and NumPy for `call.c`, and checks of them."""

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
"""Codes of NumPy's kinds of numbers (`DLDataTypeCode` in the header of DLPack)."""
_TEXTS = ("objects.h", "tensors.c", "call.c")
"""Files that are concatenated and compiled."""
_ENTRIES = ("gg_python_call", "gg_python_fill")
Array = tuple[tuple[int, ...], np.dtype]
"""Shape and type."""


class _Python(ctypes.Structure):
    """`struct gg_python`."""

    _fields_ = [
        (name, ctypes.c_void_p)
        for name in (
            "none", "no", "hold", "release", "call", "call_with", "attribute", "named", "new_tuple", "put", "pointer_of",
            "forgive", "unlock", "lock", "runs", "enter", "leave",
        )
    ]  # fmt: skip


class _Kind(ctypes.Structure):
    """`struct gg_kind`."""

    _fields_ = [
        ("dtype", ctypes.c_void_p), ("shape", ctypes.c_void_p), ("axes", ctypes.c_ssize_t), ("bytes", ctypes.c_ssize_t),
        ("code", ctypes.c_int), ("bits", ctypes.c_int),
    ]  # fmt: skip


class _Pool(ctypes.Structure):
    """Public part of `struct gg_pool`; private fields follow."""

    _fields_ = [("new_output", ctypes.c_void_p), ("own", ctypes.c_void_p * 13)]


class _Function(ctypes.Structure):
    """Public part of `struct gg_function`; private fields follow."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("entry", "runtime", "ndarray", "kinds")), ("pools", ctypes.POINTER(_Pool)),
        ("inputs", ctypes.c_ssize_t), ("outputs", ctypes.c_ssize_t), ("new_workspace", ctypes.c_void_p),
        ("own", ctypes.c_void_p * 3),
    ]  # fmt: skip


class _Method(ctypes.Structure):
    """`PyMethodDef`."""

    _fields_ = [("name", ctypes.c_char_p), ("function", ctypes.c_void_p), ("flags", ctypes.c_int), ("doc", ctypes.c_char_p)]


class BuiltinKernel:
    """A kernel's entry with its workspace size and its arrays' types.

    Both functions return None, having done nothing, unless all are NumPy arrays, or tensors of torch (`tensors.know_torch`), of
    these shapes and types, dense and aligned. Safe from several threads: each call has its own workspace.
    """

    call: Callable[..., Any]
    """A builtin function of the inputs, which returns the output, of several a tuple.

    They are of the first input's library, and are handed out again when nothing refers to their memory any more.
    """
    fill: Callable[..., Any]
    """A builtin function of the inputs and the caller's own outputs, which it fills in; it returns the first of them.

    None also where one of them is not writable, or overlaps an input or another output.
    """

    def __init__(
        self, entry: Any, team: ctypes.Structure, workspace_bytes: int, inputs: Sequence[Array], outputs: Sequence[Array]
    ) -> None:
        """Shape and type of every array; RuntimeError for a Python or NumPy that `call.c` does not know."""
        library, sizes = builtins(), [_kind(*array) for array in (*inputs, *outputs)]
        kinds = (_Kind * len(sizes))(*(kind for kind, _ in sizes))
        self.workspaces = workspaces = list[np.ndarray]()
        """One for each concurrent call."""

        def new_workspace() -> int:  # which does not hold `self`: memory goes with the last who holds the kernel
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


def _kind(shape: tuple[int, ...], dtype: np.dtype) -> tuple[_Kind, Any]:
    """The type with which `call.c` compares an array, and the memory that it refers to."""
    kept = (ctypes.c_ssize_t * max(1, len(shape)))(*shape)
    size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    element = _DLPACK_CODES[dtype.kind], 8 * dtype.itemsize
    return _Kind(id(dtype), ctypes.addressof(kept), len(shape), size, *element), kept


@functools.cache
def _builtin() -> Any:
    """Python's maker of builtin functions, for an integer as the function's `self`."""
    make = ctypes.pythonapi.PyCFunction_NewEx
    make.restype, make.argtypes = ctypes.py_object, [ctypes.POINTER(_Method), ctypes.py_object, ctypes.c_void_p]
    return make


@functools.cache
def builtins() -> ctypes.PyDLL:
    """`call.c`, compiled at the first call on a machine. A PyDLL: it keeps the lock of the interpreter."""
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
    """RuntimeError unless objects and arrays have the memory layout that `call.c` reads, checked on a view."""
    array = np.empty((3, 5), np.float32)
    view = array[1:, ::2]
    expected = {
        "references": sys.getrefcount(array) - 1, "type": id(np.ndarray), "data": view.ctypes.data, "axes": 2,
        "shape": (2, 3), "strides": view.strides, "base": id(array), "dtype": id(view.dtype), "flags": view.flags.num,
    }  # fmt: skip
    head, pointer = object.__basicsize__, ctypes.sizeof(ctypes.c_void_p)
    if head != 2 * pointer or pointer != 8:  # before any memory is read at a place that may be none
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
