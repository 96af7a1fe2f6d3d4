"""Exit of a command on a user error: one line on standard error, exit code 2.

A user error concerns the input: a value, a file, a missing package, a full disk. Any other error is ours and is shown with its
trace. `--debug` (or $GENSOR_GYM_DEBUG=1) shows every error with its trace.
"""

from __future__ import annotations

import os
import sqlite3
import sys
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NoReturn

from experiments.commands.stopping import of_a_stop

DEBUG = "GENSOR_GYM_DEBUG"
"""Environment variable: shows errors whole. Commands that a command starts inherit it."""
CODE = 2
_LONGEST = 1200
"""Characters of a line."""
_USERS = (ValueError, OSError, ImportError, EOFError, MemoryError, sqlite3.Error, zlib.error, zipfile.BadZipFile)
_LIBRARIES = (
    ("omegaconf.errors", "OmegaConfBaseException"), ("hydra.errors", "HydraException"), ("yaml", "YAMLError"),
    ("gensor_gym.hardware.compiler", "NoCompilerError"),
)  # fmt: skip
"""Errors of configurations, and of a machine that lacks something, where their module is loaded: (module, name)."""


def users_errors() -> tuple[type[Exception], ...]:
    """Kinds of errors that are the user's."""
    loaded = [(sys.modules[module], name) for module, name in _LIBRARIES if module in sys.modules]
    return (*_USERS, *(getattr(module, name) for module, name in loaded))


def one_line(error: BaseException) -> str:
    """An error's text on one line, without control characters, which may come from a file."""
    text = " ".join(str(error).split()) or type(error).__name__
    shown = "".join(letter if letter.isprintable() else "?" for letter in text)
    return shown if len(shown) <= _LONGEST else f"{shown[:_LONGEST]} .."


def first_line(error: BaseException) -> str:
    """The first line of an error's text, without a worker's trace; all of it in debugging mode."""
    return str(error) if debugging() else str(error).partition("\n")[0]


def refuse(error: BaseException) -> NoReturn:
    """End the process with an error's line."""
    print(one_line(error), file=sys.stderr, flush=True)
    sys.exit(CODE)


def debugging() -> bool:
    """Whether errors are shown whole."""
    return bool(os.environ.get(DEBUG))


@contextmanager
def refusals(*more: type[Exception]) -> Iterator[None]:
    """Errors of the user's, and of these kinds, end the process with a line."""
    try:
        yield
    except BrokenPipeError:  # who read has enough
        _close_output()
        sys.exit(1)
    except Exception as error:
        if debugging() or of_a_stop(error) or not isinstance(error, (*users_errors(), *more)):
            raise
        refuse(error)


def exit_code(work: Callable[[], int | None]) -> int:
    """Exit status of a command without Hydra, 0 for None; the code of its refusal if it ends in one."""
    try:
        with refusals():
            return work() or 0
    except SystemExit as ended:
        if not isinstance(ended.code, int):
            raise
        return ended.code


@contextmanager
def whole_output() -> Iterator[None]:
    """As `refusals`, and the printed output is flushed, with an error if that fails."""
    with refusals():
        yield
    try:
        sys.stdout.flush()
    except OSError as error:
        _close_output()
        if isinstance(error, BrokenPipeError):
            sys.exit(1)
        refuse(error)


def _close_output() -> None:
    """Print to nowhere from now on: the interpreter would try again, and complain, when it ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
