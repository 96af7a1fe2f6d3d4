"""Argument parser of the commands without Hydra. Its errors have one line, which suggests words similar to an unknown word."""

from __future__ import annotations

import argparse
import re
import sys
from typing import NoReturn

from gensor_gym.registry import near

_CHOICE = re.compile(r"invalid choice: '([^']*)' \(choose from (.*)\)")
_UNKNOWN = re.compile(r"unrecognized arguments: (.*)")


class Parser(argparse.ArgumentParser):
    """Parser that ends with exit code 2 and one line on standard error for bad arguments."""

    def error(self, message: str) -> NoReturn:
        """Print the message and exit. Words similar to an unknown word in the message are added."""
        if match := _CHOICE.search(message):
            message += near(match[1], re.findall(r"[\w-]+", match[2]))
        elif match := _UNKNOWN.search(message):
            options = re.findall(r"--?[\w-]+", self.format_help())
            message += near([word.partition("=")[0] for word in match[1].split()], options)
        print(f"{self.prog}: {message}", file=sys.stderr)
        sys.exit(2)
