"""Rewrite Hydra's errors about unknown words as one line that suggests similar words."""

from __future__ import annotations

import re

from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from agents.cli.arguments import CONF
from gensor_gym.registry import near

_KEY = re.compile(r"Could not override '([^']+)'")


def in_a_line(error: HydraException) -> str:
    """Describe a configuration error in one line: the unknown word, the known words, and similar words."""
    if isinstance(error, MissingConfigException) and error.missing_cfg_file and error.options is not None:
        group, _, option = error.missing_cfg_file.rpartition("/")
        return f"no {group or 'configuration'} {option!r}; there are {', '.join(error.options)}{near(option, error.options)}"
    if match := _KEY.search(str(error)):
        return _no_key(match[1], error.__cause__)
    if isinstance(error, OverrideParseException):
        return f"{error.override!r} does not read: expected NAME=VALUE, other signs than letters and digits in quotes"
    return " ".join(str(error).split())


def _no_key(key: str, cause: BaseException | None) -> str:
    where, _, last = key.rpartition(".")
    node = cause.parent_node if isinstance(cause, OmegaConfBaseException) else None
    known = [str(name) for name in node] if isinstance(node, DictConfig) else []
    if not where:
        known += sorted(path.name for path in CONF.iterdir() if path.is_dir())
    known = [name for name in dict.fromkeys(known) if name != "hydra"]
    place = f"{where} has" if where else "the configuration has"
    said = f"; there are {', '.join(known)}" if known else ""
    return f"{place} no {last!r}{said}{near(last, known)}"
