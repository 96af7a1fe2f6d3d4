"""Stopping a command: the first SIGINT or SIGTERM ends it at the next safe point, the second at once.

The exit code is 130 either way; after the first a line says how to resume.

Almost any point is safe, because results are written as they come: the main thread gets a KeyboardInterrupt. There are three
exceptions. Code may ask for it (`at_safe_points`): a training calls `asked` when it can save. Numba must not be interrupted while
it compiles, because LLVM crashes later if an exception leaves its objects half made. And an exception is lost in callbacks
without a caller, such as finalizers: a stop that nobody handles, and that has not ended the command, is sent again.

A separate thread receives the signals, because the main thread may be in compiled code for seconds. SIGINT is blocked everywhere
else, so that child processes ignore the terminal's Ctrl-C from their first instruction: they end when the command says so, or
with it.
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
"""Wakes the main thread, which raises in its handler."""
_EVERY = 0.05
"""Seconds between two of them."""
_LOST = 1.0
"""Seconds after which a stop that nobody is handling is taken for lost: code that catches one may end in its own way."""

_asked = threading.Event()
_raised_at = math.inf
"""When the main thread raised last, by the monotonic clock; infinite if it must not."""
_held = 0


class Stopped(KeyboardInterrupt):
    """A signal asked the command to stop; no `except Exception` takes it for an error."""


def asked() -> bool:
    """Whether a signal asked the command to stop, and it has not ended since."""
    return _asked.is_set()


@contextmanager
def at_safe_points() -> Iterator[None]:
    """Within, a first signal raises nothing: the code asks `asked` where it can save, and raises `Stopped` itself."""
    global _held
    _held += 1
    try:
        yield
    finally:
        _held -= 1


@contextmanager
def stoppable(how_to_go_on: str) -> Iterator[None]:
    """Within, signals stop the command as the module says; the line is said at the end. For the main thread alone."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    try:
        with _listening():
            yield
    except BaseException as stop:
        if not of_a_stop(stop):
            raise
        traceback.clear_frames(stop.__traceback__)  # generators that hold processes are closed
        _say(f"Stopped. {how_to_go_on}")
        _leave()
    finally:
        _asked.clear()  # what the same process does afterwards was not asked to stop


def of_a_stop(error: BaseException | None) -> bool:
    """Whether an error is a stop, or came of one: code that a stop interrupts may fail while it is cleaned up."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__context__
    return error is not None


def _leave() -> None:
    """End with CODE after threads and finalizers; a second signal ends these too."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: os._exit(CODE))
    sys.exit(CODE)


@contextmanager
def _listening() -> Iterator[None]:
    """Handlers and the thread that listens; afterwards all is as before."""
    global _raised_at
    _asked.clear()
    # One that began in the background with SIGINT ignored goes on to ignore it.
    numbers = [n for n in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(n) is not signal.SIG_IGN]
    read, write = os.pipe()
    os.set_blocking(write, False)
    woken = signal.set_wakeup_fd(write, warn_on_full_buffer=False)  # before the handlers, or a signal between is lost
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
        os.close(write)  # the thread reads the end, and ends
        thread.join()
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for number, handler in before.items():
            signal.signal(number, handler)


def _listen(read: int, numbers: list[signal.Signals]) -> None:
    """Count signals until the pipe is closed; from the first one on wake the main thread now and then."""
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
        if not heard or set(came) != {_POKE}:  # a poke is heard as well
            signal.pthread_kill(main, _POKE)


def _in_main(*_: Any) -> None:
    """Raise; again where it was lost."""
    global _raised_at
    if asked() and not _held and time.monotonic() - _raised_at > _LOST and not of_a_stop(sys.exc_info()[1]):
        if _compiles():
            _hear_of_its_end()
            return
        _raised_at = time.monotonic()
        raise Stopped


def _compiles() -> bool:
    """Whether Numba compiles in this thread."""
    numba = sys.modules.get("numba.core.compiler_lock")
    return numba is not None and numba.global_compiler_lock.is_locked()


@cache
def _hear_of_its_end() -> None:
    """Raise as soon as Numba has compiled: where it compiles function after function, no poke would come between two."""
    from numba.core import event

    class End(event.Listener):
        def on_start(self, _: event.Event) -> None:
            """Nothing is to be done."""

        def on_end(self, _: event.Event) -> None:
            if threading.current_thread() is threading.main_thread():
                _in_main()

    event.register("numba:compiler_lock", End())


def _say(line: str) -> None:
    """Write to stderr in one call, so that lines do not mix."""
    start = "\n" if os.isatty(2) else ""  # a terminal's line holds ^C, or a bar
    os.write(2, f"{start}{line}\n".encode())
