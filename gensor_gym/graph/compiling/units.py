"""Compiled functions that are compiled once and called by name: their text goes into no other function.

What Numba makes of a function holds a copy of all that it calls, which LLVM optimises anew for each function that Python calls.
A unit stays out of these: they refer to its symbol, which the linker finds among what the process has loaded. So the analytic
model, which thirty functions ask, goes through LLVM once for each kind of machine, and a process that finds it on disk does not
even have its parts typed.

Code that is loaded from the disk needs the symbols of its units at once, or the linker ends the process. Two things see to that:
the symbol's name is the same in every process (Numba's counts what was compiled before), and Numba runs what a library's
`_reload_init` holds before it loads the library: there stands for each unit who loads it. Both are inner parts of Numba, which
releases may change; see `graph.compiling.parts`.
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
    """Who loads a unit for some types of arguments, or compiles it, before code that calls it is loaded."""

    module: str
    name: str
    types: tuple[Any, ...]

    def __call__(self) -> None:
        """Nothing where it is there already."""
        import_module(self.module)
        _UNITS[self.module, self.name].compile(self.types)


@register_pass(mutates_CFG=True, analysis_only=False)
class _Lowering(NativeLowering):  # type: ignore[misc]
    """Numba's, under a name that is the same in every process."""

    _name = "lowering_of_a_unit"

    def run_pass(self, state: Any) -> bool:
        """See Numba's, whose numbers begin at 1."""
        state.func_id.unique_id = 0
        return bool(super().run_pass(state))


_COMPILER = pipeline(_Lowering)


class Unit(Hurried):
    """A function that Python may call as any other; compiled ones call it where it is."""

    def compile(self, sig: Any) -> Any:
        """See Numba's. By the end of that the function is on disk; those that link it now get no text, but who loads it."""
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
"""By module and name."""


def unit(function: Any, **options: Any) -> Unit:
    """A unit with Numba's options. ValueError where another module could not import it by its name."""
    if function.__qualname__ != function.__name__:
        raise ValueError(f"{function.__qualname__} is inside of a function or a class: a unit stands at the top of its module")
    made = Unit(function, targetoptions={"nopython": True, "boundscheck": None, **options}, pipeline_class=_COMPILER)
    _UNITS[function.__module__, function.__name__] = made
    return made
