"""A state in a file: an uncompressed zip archive of the run's initial settings, JSON, and arrays (safetensors).

The initial settings are read and checked before anything else.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from agents.training.state.tree import from_tree, to_tree
from gensor_gym.files import whole
from gensor_gym.foreign import parse_json, parse_object

BEGUN, STATE, ARRAYS = "begun.json", "state.json", "arrays.safetensors"
"""Members of the archive: the settings of the run that the state belongs to, numbers and text, arrays."""
MOST_BYTES = {BEGUN: 16 << 20, STATE: 64 << 20, ARRAYS: 4 << 30}
"""Maximum size of each member in bytes. A replay buffer of DQN has about 150 MB."""


def write_state(path: Path, begun: Mapping[str, Any], state: Any) -> None:
    """Write a training's `state` to a file, with the settings `begun` that its run had at the start.

    An earlier file is replaced only when the new file is complete.
    """
    from safetensors.numpy import save

    arrays: dict[str, np.ndarray] = {}
    tree = json.dumps(to_tree(state, arrays), allow_nan=False)
    members = {BEGUN: json.dumps(begun, default=str).encode(), STATE: tree.encode(), ARRAYS: save(arrays)}

    def write(temporary: Path) -> None:
        with zipfile.ZipFile(temporary, "w", zipfile.ZIP_STORED) as file:
            for name, data in members.items():
                file.writestr(name, data)

    whole(path, write)


def read_state(path: Path, check: Callable[[dict[str, Any]], None], anew: str = "resume=false or another output=FOLDER") -> Any:
    """Read the state of a training from a file, after `check` has accepted the settings that its run had at the start.

    ValueError for a broken file, and for a file of an earlier version, which contains pickles. The message ends with the advice
    `anew`.
    """
    with _told(path, anew):
        file = zipfile.ZipFile(path)
    with file:
        if set(file.namelist()) != set(MOST_BYTES):
            raise ValueError(
                f"{path} is no checkpoint of this version (earlier ones kept pickles, which are not read); begin anew with {anew}"
            )
        with _told(path, anew):
            begun = parse_object(_member(file, BEGUN).decode(), finite=False)
        check(begun)
        with _told(path, anew):
            return from_tree(parse_json(_member(file, STATE).decode()), _arrays(_member(file, ARRAYS)))


@contextmanager
def _told(path: Path, anew: str) -> Iterator[None]:
    """Turn errors of a broken file in the `with` block into a ValueError with advice."""
    try:
        yield
    except (zipfile.BadZipFile, EOFError, NotImplementedError, ValueError) as error:
        raise ValueError(f"{path} is no whole checkpoint ({error}); begin anew with {anew}") from error


def _member(file: zipfile.ZipFile, name: str) -> bytes:
    about = file.getinfo(name)
    if about.compress_type != zipfile.ZIP_STORED or about.file_size > MOST_BYTES[name]:
        raise ValueError(f"{name} is compressed, or has more than {MOST_BYTES[name]:,} bytes")
    return file.read(name)


def _arrays(data: bytes) -> dict[str, np.ndarray]:
    """Decode a safetensors file to arrays by name, as writable copies."""
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        return {name: np.array(array) for name, array in load(data).items()}
    except SafetensorError as error:
        raise ValueError(f"{ARRAYS}: {error}") from error
