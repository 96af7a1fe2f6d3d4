"""Stopping a command: the first SIGINT or SIGTERM ends it at the next safe point, the second at once.

The exit code is 130 in both cases. After the first signal a line says how to resume.

Almost any point is safe, because results are written as they arrive: the main thread gets a KeyboardInterrupt. There are three
exceptions. First, code may poll instead (`at_safe_points`): training calls `asked` when it can save. Second, Numba must not be
interrupted while it compiles, because LLVM crashes later if an exception leaves its objects half made. Third, an exception is
lost in callbacks without a caller, such as finalizers. A stop that nobody handled, and that did not end the command, is therefore
raised again.

A separate thread receives the signals, because the main thread may be in compiled code for seconds. SIGINT is blocked in all
other threads, so that child processes ignore the terminal's Ctrl-C from their first instruction. Child processes end when the
command tells them to, or with the command.
"""

from __future__ import annotations

import math
import os
import select
import signal
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

CODE = 130
"""Exit code of a command that was stopped."""
_POKE = signal.SIGUSR2
"""Signal that wakes the main thread; its handler raises."""
_EVERY = 0.05
"""Seconds between two wake-up signals."""
_LOST = 1.0
"""Seconds after which a stop that nobody handles counts as lost, and is raised again.

Code that catches a stop may end in its own way.
"""

_asked = threading.Event()
_raised_at = math.inf
"""Time (monotonic clock) at which the main thread last raised a stop; infinite while it must not raise."""
_held = 0


class Stopped(KeyboardInterrupt):
    """Raised in the main thread when a signal asks the command to stop; `except Exception` does not catch it."""


def asked() -> bool:
    """Return whether a signal has asked the command to stop and the command has not ended yet."""
    return _asked.is_set()


@contextmanager
def at_safe_points() -> Iterator[None]:
    """Defer the stop of a command within the `with` block: a first signal raises nothing there.

    The block polls `asked` when it can save, then raises `Stopped` itself.
    """
    global _held
    _held += 1
    try:
        yield
    finally:
        _held -= 1


@contextmanager
def stoppable(how_to_go_on: str) -> Iterator[None]:
    """Let SIGINT and SIGTERM stop the `with` block at a safe point, then print `how_to_go_on` and exit.

    The module describes safe points. In any other thread than the main thread, signals stop nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    try:
        with _listening():
            yield
    except BaseException as stop:
        if not of_a_stop(stop):
            raise
        traceback.clear_frames(stop.__traceback__)  # closes generators that hold processes
        _say(f"Stopped. {how_to_go_on}")
        _leave()
    finally:
        _asked.clear()  # nobody asked later work of this process to stop


def of_a_stop(error: BaseException | None) -> bool:
    """Return whether an error is a stop or follows from one: code that a stop interrupts may fail during its cleanup."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__context__
    return error is not None


def _leave() -> None:
    """Exit with status 130 (`CODE`) after threads and finalizers have ended. Another signal exits at once."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: os._exit(CODE))
    sys.exit(CODE)


@contextmanager
def _listening() -> Iterator[None]:
    """Install the signal handlers and start the listening thread for the `with` block; afterwards restore the previous state."""
    global _raised_at
    _asked.clear()
    # A command that was started in the background, with SIGINT ignored, keeps ignoring it.
    numbers = [n for n in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(n) is not signal.SIG_IGN]
    read, write = os.pipe()
    os.set_blocking(write, False)
    woken = signal.set_wakeup_fd(write, warn_on_full_buffer=False)  # before the handlers, or a signal in between is lost
    before = {number: signal.signal(number, lambda *_: None) for number in numbers}
    before[_POKE] = signal.signal(_POKE, _in_main)
    printed, sys.unraisablehook = sys.unraisablehook, lambda lost: of_a_stop(lost.exc_value) or printed(lost)
    thread = threading.Thread(target=_listen, args=(read, numbers), name="stopping", daemon=True)
    thread.start()  # before the mask, which it would inherit
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    _raised_at = -math.inf
    try:
        yield
    finally:
        _raised_at = math.inf
        sys.unraisablehook = printed
        signal.set_wakeup_fd(woken)
        os.close(write)  # the thread reads the end of the pipe and returns
        thread.join()
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for number, handler in before.items():
            signal.signal(number, handler)


def _listen(read: int, numbers: list[signal.Signals]) -> None:
    """Receive signals in the listening thread until the pipe is closed.

    After the first stop signal, wake the main thread many times a second; at the second, exit at once.
    """
    main = threading.main_thread().ident or 0
    while True:
        heard, _, _ = select.select([read], [], [], _EVERY if asked() else None)
        came = os.read(read, 16) if heard else b""
        if heard and not came:
            os.close(read)
            return
        for _ in (number for number in came if number in numbers):
            if asked():
                _say("Stopped at once.")
                os._exit(CODE)
            _asked.set()
            _say("Stopping at the next safe point; a second signal (Ctrl-C) stops at once.")
        if not heard or set(came) != {_POKE}:  # the wake-up signal itself arrives here too
            signal.pthread_kill(main, _POKE)


def _in_main(*_: Any) -> None:
    """Raise `Stopped` in the main thread, or raise it again if it was lost.

    While Numba compiles, the end of the compilation is awaited first.
    """
    global _raised_at
    if asked() and not _held and time.monotonic() - _raised_at > _LOST and not of_a_stop(sys.exc_info()[1]):
        if _compiles():
            _hear_of_its_end()
            return
        _raised_at = time.monotonic()
        raise Stopped


def _compiles() -> bool:
    numba = sys.modules.get("numba.core.compiler_lock")
    return numba is not None and numba.global_compiler_lock.is_locked()


@cache
def _hear_of_its_end() -> None:
    """Make `_in_main` run whenever Numba ends a compilation, because every wake-up signal may arrive during a compilation."""
    from numba.core import event

    class End(event.Listener):
        def on_start(self, _: event.Event) -> None:
            """Do nothing."""

        def on_end(self, _: event.Event) -> None:
            if threading.current_thread() is threading.main_thread():
                _in_main()

    event.register("numba:compiler_lock", End())


def _say(line: str) -> None:
    """Write a line to standard error in one call, so that lines of several threads do not mix."""
    start = "\n" if os.isatty(2) else ""  # a terminal's line may contain ^C or a progress bar
    os.write(2, f"{start}{line}\n".encode())
