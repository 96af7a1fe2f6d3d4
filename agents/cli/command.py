"""Decorators for the commands of `experiments`: Hydra configuration, errors in one line, and the final message."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import hydra
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from rich.console import Console

from agents.cli.arguments import CONF, readable
from agents.cli.checks import check_shape
from agents.cli.hydra_folder import keep_configuration
from agents.cli.refusal import refusals
from agents.cli.words import in_a_line

Run = Callable[[DictConfig, Console], Path | None]
"""Type of a command as a function of its configuration and a console.

It returns the folder of its results, or None if it prints the folder itself.
"""


def command(name: str, *more: type[Exception]) -> Callable[[Run], Callable[[], None]]:
    """Decorate a function to be the command that conf/`name`.yaml configures.

    The function gets the configuration and a console. Errors of the classes `more` also count as user errors.
    """

    def made(run: Run) -> Callable[[], None]:
        @configured(name)
        @wraps(run)
        def shown(config: DictConfig) -> None:
            console, begin = Console(), time.perf_counter()
            with refusals(*more):
                folder = run(config, console)
            if folder is not None:
                keep_configuration(folder, config)
                say_where(console, begin, folder)

        return lambda: command_line(shown)

    return made


def configured(name: str) -> Callable[[Callable[[DictConfig], Any]], Callable[[], Any]]:
    """Decorate a function so that it gets its configuration from Hydra: conf/`name`.yaml with the process's arguments.

    `check_shape` checks the configuration first.
    """

    def made(run: Callable[[DictConfig], Any]) -> Callable[[], Any]:
        @hydra.main(version_base="1.3", config_path=str(CONF), config_name=name)
        @wraps(run)
        def checked(config: DictConfig) -> Any:
            with refusals():
                check_shape(config, OmegaConf.load(CONF / f"{name}.yaml"))
            return run(config)

        return checked

    return made


def command_line(run: Callable[[], object]) -> None:
    """Run a Hydra function on the process's arguments, after `readable` has rewritten them.

    An error of Hydra ends the process with one line.
    """
    with refusals():
        sys.argv[1:] = readable(sys.argv[1:])
        try:
            run()
        except HydraException as error:
            raise ValueError(in_a_line(error)) from error


def say_where(console: Console, begin: float, folder: Path) -> None:
    """Print a command's last line: the seconds since `begin` (of `time.perf_counter`), and the folder of the results."""
    console.print(f"{time.perf_counter() - begin:.0f} s. Results are in {folder}", soft_wrap=True, markup=False)
