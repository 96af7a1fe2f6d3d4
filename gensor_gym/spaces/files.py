"""Reading and writing files of tuning spaces: JSON, plain or gzip, complete or cut off; and recorded tables of this project."""

from __future__ import annotations

import gzip
import json
import os
import warnings
from functools import lru_cache
from typing import Any

from gensor_gym.files import write_whole
from gensor_gym.foreign import meant, parse_json, read_text
from gensor_gym.locate import located
from gensor_gym.measure.records.tables import read_table
from gensor_gym.spaces import kernel_tuner, t4
from gensor_gym.spaces.convert import document_in
from gensor_gym.spaces.schedules import document_of
from gensor_gym.spaces.space import TuningSpace

FORMATS = (kernel_tuner.NAME, t4.NAME)


def load_space(path: str | os.PathLike[str], format: str = "auto", unit: str | None = None) -> TuningSpace:
    """Read a Kernel Tuner cache or a T4 result file, `.gz` or not; the same unchanged file is read once per process.

    Args:
        path: The file; also a table that `gensor record` wrote (`.parquet`), which becomes a T4 document. A cache that
            lacks its closing brackets, as a running or killed tuner leaves it, is read as well; an entry that is cut off is
            skipped with a warning.
        format: `kernel_tuner`, `t4`, or `auto` to detect it from the keys.
        unit: Unit of times (`ms`, `s`, ...), if it is not the file's own (milliseconds if the file has none).

    Raises:
        ValueError: names file and key of the unreadable part, and accepted values.
    """
    if format not in ("auto", *FORMATS):
        raise ValueError(f"no format {format!r}; it is one of {('auto', *FORMATS)}")
    if not isinstance(path, str | os.PathLike) or not (file := located(path)).is_file():
        raise ValueError(f"no file {path!r}: expected a Kernel Tuner cache, a T4 result file or a recorded table (.parquet)")
    known = file.stat()
    return _load(os.path.abspath(file), os.fspath(path), format, unit, known.st_mtime_ns, known.st_size)


@lru_cache(maxsize=16)
def _load(full: str, source: str, format: str, unit: str | None, changed: int, size: int) -> TuningSpace:
    """Read a space, or return the cached one. `changed` and `size` identify the version of the file for the cache."""
    own = full.endswith(".parquet")
    document = document_of(read_table(full), source) if own else _parse(_text(full, source), source)
    found = _format_of(document, source)
    if format not in ("auto", found):
        raise ValueError(f"{source} is of format {found!r}, not {format!r}")
    reader = kernel_tuner.space_of if found == kernel_tuner.NAME else t4.space_of
    with meant(source, "tuning space"):
        return reader(document, source, unit)


def save_space(space: TuningSpace, path: str | os.PathLike[str], format: str | None = None) -> None:
    """Write a space to a file in `format`, or in the format that it was read from. A path that ends in `.gz` is compressed.

    Reading the file gives an equal document. In the other format it gives an equal space, and converting back gives an equal
    document. ValueError for an unknown format, OSError if nothing can be written.
    """
    format = format or space.format
    if format not in FORMATS:
        raise ValueError(f"no format {format!r}; it is one of {FORMATS}")
    document = document_in(space, format)
    text = kernel_tuner.text_of(document, json.dumps) if format == kernel_tuner.NAME else json.dumps(document)
    data = text.encode()
    write_whole(path, gzip.compress(data, mtime=0) if os.fspath(path).endswith(".gz") else data)


def _text(full: str, source: str) -> str:
    """Return the text of a file. Files of gzip are recognised by their first bytes."""
    try:
        return read_text(full)
    except (OSError, ValueError) as error:
        raise ValueError(f"{source} is neither JSON text nor complete gzip of it ({error})") from error


def _parse(text: str, source: str) -> Any:
    """Parse the JSON of a file. A cache that is cut off gets its closing brackets first."""
    text = text.strip()
    try:
        return parse_json(text, finite=False)
    except json.JSONDecodeError as error:
        if '"cache"' not in text:
            raise ValueError(f"{source} is not JSON: {error}") from error
        fault = error
    except ValueError as error:
        raise ValueError(f"{source}: {error}") from error
    last = text.rfind("},") + 1
    for whole, lost in ((text.rstrip(","), ""), (text[:last], text[last + 1 :])):
        try:
            document = parse_json(whole + "}}", finite=False)
        except json.JSONDecodeError:
            continue
        except ValueError as error:
            raise ValueError(f"{source}: {error}") from error
        if lost:
            warnings.warn(f"{source} is cut off; dropped its last {len(lost)} characters: {lost.strip()[:60]!r}", stacklevel=4)
        return document
    raise ValueError(f"{source} is not JSON, nor a cache that lacks its end: {fault}") from fault


def _format_of(document: Any, source: str) -> str:
    """Return the name of a document's format. ValueError names the keys that distinguish the formats."""
    if isinstance(document, dict) and "cache" in document:
        return kernel_tuner.NAME
    if isinstance(document, dict) and "results" in document:
        return t4.NAME
    found = sorted(document)[:8] if isinstance(document, dict) else type(document).__name__
    raise ValueError(f"{source} holds {found}; a Kernel Tuner cache has the key 'cache', a T4 file the key 'results'")
