"""Functions that are compiled once and called by name, never copied into their callers.

Numba copies all callees into each function that Python calls, and LLVM optimises every copy. A unit is not copied: callers refer
to its symbol, which the linker finds in the process. So LLVM compiles the analytic model, which thirty functions call, once for
each kind of machine. A process that loads a unit from disk does not even type the unit's parts.

Code from disk needs the symbols of its units when it is loaded, or the linker ends the process. Two measures ensure that. The
symbol's name is the same in every process, while Numba's own name would count earlier compilations. And `_reload_init` of a
library, which Numba runs before loading the library, contains a loader for each unit. Both rely on internals of Numba that
releases may change (`graph.compiling.parts`).
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, NamedTuple

from numba.core.compiler_lock import global_compiler_lock
from numba.core.compiler_machinery import register_pass
from numba.core.typed_passes import NativeLowering

from gensor_gym.graph.compiling.early import Hurried
from gensor_gym.graph.compiling.parts import pipeline


class _Load(NamedTuple):
    """Loads a unit from disk, or compiles it, for given argument types, before Numba loads code that calls the unit."""

    module: str
    name: str
    types: tuple[Any, ...]

    def __call__(self) -> None:
        import_module(self.module)
        _UNITS[self.module, self.name].compile(self.types)


@register_pass(mutates_CFG=True, analysis_only=False)
class _Lowering(NativeLowering):  # type: ignore[misc]
    """Numba's lowering, under a symbol that is the same in every process."""

    _name = "lowering_of_a_unit"

    def run_pass(self, state: Any) -> bool:
        """Lower the function like Numba, with the number 0 in its symbol. Numba's own numbers begin at 1."""
        state.func_id.unique_id = 0
        return bool(super().run_pass(state))


_COMPILER = pipeline(_Lowering)


class Unit(Hurried):
    """A function that is compiled once and called by its symbol. It is never copied into compiled callers."""

    def compile(self, sig: Any) -> Any:
        """Load or compile the function for a signature, like Numba. The first call also stores it on disk.

        Callers that are compiled later refer to the function on disk, instead of containing its code.
        """
        with global_compiler_lock:
            entry_point = super().compile(sig)
            found: dict[tuple[Any, ...], Any] = self.overloads
            for types, made in found.items():
                load = _Load(self.py_func.__module__, self.py_func.__name__, types)
                if load not in made.library._reload_init:
                    made.library._reload_init.add(load)
                    made.library._shared_module = made.library.codegen.create_library(load.name)._final_module
            return entry_point


_UNITS: dict[tuple[str, str], Unit] = {}
"""(module, name) -> unit."""


def unit(function: Any, **options: Any) -> Unit:
    """Make a Python function a `Unit` with Numba's options. ValueError if it is not at the top level of its module."""
    if function.__qualname__ != function.__name__:
        raise ValueError(f"{function.__qualname__} is inside of a function or a class: a unit stands at the top of its module")
    made = Unit(function, targetoptions={"nopython": True, "boundscheck": None, **options}, pipeline_class=_COMPILER)
    _UNITS[function.__module__, function.__name__] = made
    return made
