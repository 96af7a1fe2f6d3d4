"""Reader of YAML that others may have written. No other module needs PyYAML (extra `lab`)."""

from __future__ import annotations

import os
from typing import Any

from gensor_gym.foreign.files import read_text
from gensor_gym.foreign.jsons import check_nesting

MOST_BYTES = 64 << 10
"""Limit on the bytes of a file, which is written by hand."""


def read_yaml(path: str | os.PathLike[str]) -> Any:
    """Return the value in a YAML file: texts, numbers, lists and dictionaries.

    ValueError for invalid YAML and for aliases, with which a small file expands to large data. OSError if the file is missing.
    """
    import yaml

    text = read_text(path, MOST_BYTES)
    try:
        check_nesting(text)
        if any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(text, yaml.SafeLoader)):
            raise ValueError("an alias (*name); write the value itself")
        return yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise ValueError(f"{path} is no YAML: {' '.join(str(error).split())}") from error
