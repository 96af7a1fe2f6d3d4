"""On-disk cache of compiled functions: one process compiles a function while other processes wait for the result."""

from __future__ import annotations

import fcntl
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import IO, Any

from numba.core.caching import FunctionCache
from numba.core.compiler_lock import global_compiler_lock
from numba.core.registry import CPUDispatcher

from gensor_gym.graph.compiling.notice import NOTICE

_LOOK_S = 0.02
"""Seconds between two checks whether another process has finished compiling."""


class Kept(CPUDispatcher):  # type: ignore[misc]
    """A Numba function that is loaded from the disk cache, or else compiled by one process while others wait."""

    _cache: Any
    targetctx: Any
    _compile_for_args: Any

    @property
    def keeps(self) -> bool:
        """Whether compiled code of the function is cached on disk."""
        return isinstance(self._cache, FunctionCache)

    def is_kept(self, types: tuple[Any, ...]) -> bool:
        """Return whether compiled code of the function for these argument types is in the disk cache."""
        if not self.keeps:
            return False
        file = self._cache._cache_file
        name = file._load_index().get(self._cache._index_key(types, self.targetctx.codegen()))
        return name is not None and Path(file._data_path(name)).exists()

    def compile(self, sig: Any) -> Any:
        """Load or compile the function for a signature, like Numba, but in one process at a time.

        Numba already allows one thread at a time.
        """
        with global_compiler_lock, nullcontext() if self._is_at_hand(sig) else self._alone():
            return super().compile(sig)

    def _is_at_hand(self, sig: Any) -> bool:
        return isinstance(sig, tuple) and (sig in self.overloads or self.is_kept(sig))

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Hold a lock in the `with` block, so that no other process compiles the function.

        The holder waits only for functions that it calls, so no two processes wait for each other.
        """
        if not self.keeps:
            yield
            return
        self._cache._impl.locator.ensure_cache_path()
        with open(f"{self._cache._cache_file._index_path}.lock", "ab") as file:
            _lock(file)
            try:
                yield
            finally:
                fcntl.flock(file, fcntl.LOCK_UN)  # closing does not unlock while a forked process has the file open


def _lock(held: IO[bytes]) -> None:
    begin = time.monotonic()
    while True:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            NOTICE.lasts(time.monotonic() - begin)
            time.sleep(_LOOK_S)
        else:
            return
