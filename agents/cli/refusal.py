"""End a command on a user error, with one line on standard error and exit code 2.

A user error concerns the input: a value, a file, a missing package, a full disk. Any other error is a fault of this project and
is shown with its traceback. `--debug` (or $GENSOR_GYM_DEBUG=1) shows every error with its traceback.
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

from agents.cli.stopping import of_a_stop

DEBUG = "GENSOR_GYM_DEBUG"
"""Environment variable that shows every error with its traceback. Commands that a command starts inherit it."""
CODE = 2
_LONGEST = 1200
"""Maximum length of an error's line in characters."""
_USERS = (ValueError, OSError, ImportError, EOFError, MemoryError, sqlite3.Error, zlib.error, zipfile.BadZipFile)
_LIBRARIES = (
    ("omegaconf.errors", "OmegaConfBaseException"), ("hydra.errors", "HydraException"), ("yaml", "YAMLError"),
    ("gensor_gym.hardware.compiler", "NoCompilerError"),
)  # fmt: skip
"""(module, name) of error classes of libraries that count as user errors: configurations, a missing compiler.

A class counts once its module is loaded.
"""


def users_errors() -> tuple[type[Exception], ...]:
    """Return the classes of errors that count as user errors."""
    loaded = [(sys.modules[module], name) for module, name in _LIBRARIES if module in sys.modules]
    return (*_USERS, *(getattr(module, name) for module, name in loaded))


def one_line(error: BaseException) -> str:
    """Return an error's text on one line. Unprintable characters, which may come from a file, become question marks."""
    text = " ".join(str(error).split()) or type(error).__name__
    if isinstance(error, ModuleNotFoundError) and text == f"No module named '{error.name}'":
        text += ": pip install 'gensor_gym[lab]' brings what most commands need"
    shown = "".join(letter if letter.isprintable() else "?" for letter in text)
    return shown if len(shown) <= _LONGEST else f"{shown[:_LONGEST]} .."


def first_line(error: BaseException) -> str:
    """Return the first line of an error's text, without a worker's traceback; in debugging mode the whole text."""
    return str(error) if debugging() else str(error).partition("\n")[0]


def refuse(error: BaseException) -> NoReturn:
    """Print an error's text on one line of standard error, and end the process with exit status 2 (`CODE`)."""
    print(one_line(error), file=sys.stderr, flush=True)
    sys.exit(CODE)


def debugging() -> bool:
    """Return whether errors are shown with their traceback, as $GENSOR_GYM_DEBUG demands."""
    return bool(os.environ.get(DEBUG))


@contextmanager
def refusals(*more: type[Exception]) -> Iterator[None]:
    """End the process with one line if the `with` block raises a user error, or an error of the classes `more`."""
    try:
        yield
    except BrokenPipeError:  # the reader closed the pipe
        _close_output()
        sys.exit(1)
    except Exception as error:
        if debugging() or of_a_stop(error) or not isinstance(error, (*users_errors(), *more)):
            raise
        refuse(error)


def exit_code(work: Callable[[], int | None]) -> int:
    """Run a command without Hydra and return its exit status: the result of `work` (0 for None), or the code if it exits."""
    try:
        with refusals():
            return work() or 0
    except SystemExit as ended:
        if not isinstance(ended.code, int):
            raise
        return ended.code


@contextmanager
def whole_output() -> Iterator[None]:
    """End the process with one line on a user error in the `with` block; afterwards flush standard output.

    An error of flushing (a full disk, a closed pipe) ends the process too.
    """
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
    """Redirect standard output to nowhere, because the interpreter would flush it again at its end and complain."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
