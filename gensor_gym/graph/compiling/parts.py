"""Parts: functions that compiled functions call. They are typed separately and optimised only inside their callers.

Numba optimises and emits every function with all its callees, so LLVM compiles a leaf once for each function above it. That took
two thirds of the compile time of a first episode. A part stops before that step. Its text is inserted into the function that
Python calls, which LLVM optimises as a whole. A part that is called from Python becomes such a function.

The code relies on Numba's documented pipelines (numba.core.compiler.CompilerBase) and on internals of its code libraries and
dispatchers, which releases may change. With an untried release (`TRIED`), Numba compiles every function as usual: results are
equal, and a first episode waits three times as long.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any

import numba
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import register_pass
from numba.core.registry import CPUDispatcher
from numba.core.typed_passes import NativeLowering

from gensor_gym.graph.compiling.early import Hurried

TRIED = ("0.68",)
"""Releases of Numba with which tests/graph/test_graph_parts.py passes."""


class _Text(JITCodeLibrary):  # type: ignore[misc]
    """LLVM text of a part, neither optimised nor emitted. Linking the text adds the texts of all its callees."""

    _with_called: Any = None

    def finalize(self) -> None:
        """Finish the library without optimising it. Nothing may be added afterwards."""
        self._raise_if_finalized()
        for library in self._linking_libraries:
            self._reload_init.update(library._reload_init)
        self._finalized = True

    def _get_module_for_linking(self) -> Any:
        """Return the LLVM module with the text of the part and of all its callees, each once."""
        if self._with_called is None:
            module = self._own().clone()
            for library in reversed(list(self._called({self}))):  # LLVM omits functions that are not called yet
                module.link_in(library._own() if isinstance(library, _Text) else library._get_module_for_linking(), preserve=True)
            self._with_called = module
        return self._with_called

    def _own(self) -> Any:
        """Return the LLVM module with the text of the part alone. Other modules may define the same functions again."""
        return super()._get_module_for_linking()

    def _called(self, met: set[Any]) -> Iterator[Any]:
        """Yield the libraries that the part calls, directly or through other parts, callees first.

        Libraries in `met` are left out, and yielded libraries are added to it.
        """
        for library in self._linking_libraries:
            if library not in met:
                met.add(library)
                if isinstance(library, _Text):
                    yield from library._called(met)
                yield library


@register_pass(mutates_CFG=True, analysis_only=False)
class _Lowering(NativeLowering):  # type: ignore[misc]
    """Numba's lowering into a `_Text`, without an entry that Python could call."""

    _name = "lowering_of_a_part"

    def run_pass(self, state: Any) -> bool:
        """Lower the function like Numba, and register it for compiled callers."""
        state.flags = state.flags.copy()
        state.flags.no_compile = state.flags.no_cpython_wrapper = state.flags.no_cfunc_wrapper = True
        state.library = _Text(state.targetctx.codegen(), state.func_id.func_qualname)
        super().run_pass(state)
        name = object()  # callers find the part by this object; they find other functions by the entry for Python
        state.targetctx.insert_user_function(name, state.cr.fndesc, [state.library])
        state.cr = state.cr._replace(cfunc=name)
        return True


def pipeline(lowering: type[NativeLowering]) -> type[CompilerBase]:
    """Return Numba's compiler pipeline with its lowering pass replaced by `lowering`."""

    class Compiler(CompilerBase):  # type: ignore[misc]
        def define_pipelines(self) -> list[Any]:
            """Return Numba's default passes, with the lowering replaced."""
            made = DefaultPassBuilder.define_nopython_pipeline(self.state)
            made.passes = [(lowering if each is NativeLowering else each, why) for each, why in made.passes]
            made._finalized = False
            made.finalize()
            return [made]

    return Compiler


_COMPILER = pipeline(_Lowering)


class Part(CPUDispatcher):  # type: ignore[misc]
    """A function that compiled functions call: it is typed alone, and optimised only as part of its callers."""

    def add_overload(self, cres: Any) -> None:
        """Keep a compiled version of the function for compiled callers. Python cannot call it."""
        self.overloads[tuple(cres.signature.args)] = cres

    def _compile_for_args(self, *args: Any, **kws: Any) -> Any:
        """Compile and register an overload that Python can call. Numba calls this for new argument types."""
        found = self.whole._compile_for_args(*args, **kws)
        for types, compiled in self.whole.overloads.items():
            if types not in self._answered:  # a duplicate would match two functions, and every call would compile again
                self._answered.add(types)
                self._insert([kind._code for kind in types], compiled.entry_point, False)  # type: ignore[attr-defined]
        return found

    @cached_property
    def _answered(self) -> set[tuple[Any, ...]]:
        return set()

    @cached_property
    def whole(self) -> Any:
        """The function compiled together with all its callees, which Python can call."""
        return _WHOLE[self.py_func](self.py_func)


class Entry(Hurried):
    """A function that Python calls. Compiled functions that call it, too, use its `part`, which LLVM optimises inside them."""

    @cached_property
    def part(self) -> Any:
        """The function as a `Part`, which compiled callers use."""
        return Part(self.py_func, targetoptions=self.targetoptions, pipeline_class=_COMPILER)

    def get_call_template(self, args: Any, kws: Any) -> Any:
        """Return the typing template that Numba uses for a call from compiled code: that of `part`."""
        return self.part.get_call_template(args, kws)

    def get_overload(self, sig: Any) -> Any:
        """Return the compiled version that Numba uses for a call from compiled code: that of `part`."""
        return self.part.get_overload(sig)


class Early(Entry):
    """An `Entry` whose calls run interpreted until it is compiled. For functions whose first calls should not wait."""

    early = True


_WHOLE: dict[Callable[..., Any], Callable[[Any], Any]] = {}
"""Python function of a `Part` -> `whole`, the function that compiles it for calls from Python."""


def is_tried(version: str) -> bool:
    """Return whether `Part` was tested with this release of Numba."""
    return ".".join(version.split(".")[:2]) in TRIED


def entry(function: Any, kind: type[Entry] = Entry, **options: Any) -> Entry:
    """Make a Python function an `Entry`, or an instance of the subclass `kind`, with Numba's options."""
    return kind(function, targetoptions={"nopython": True, "boundscheck": None, **options})


def part(function: Any, whole: Callable[[Any], Any], **options: Any) -> Any:
    """Make a Python function a `Part` with Numba's options; if Numba is off, return the function itself.

    `whole` compiles the function for calls from Python.
    """
    if numba.config.DISABLE_JIT:  # type: ignore[attr-defined]
        return function
    if not is_tried(numba.__version__):
        return whole(function)
    _WHOLE[function] = whole
    return Part(function, targetoptions={"nopython": True, "boundscheck": None, **options}, pipeline_class=_COMPILER)
