"""Reads and writes tables of timings as Parquet. Only this file uses pyarrow (extra `lab`)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from gensor_gym.files import whole
from gensor_gym.foreign import parse_object

KEY = b"gensor_gym"
"""Key of the table's description, as JSON, in a file's metadata."""
MOST_ROWS, MOST_BYTES = 200_000, 256 << 20
"""Largest number of rows of a file, and of its uncompressed bytes."""
_LIFTED = {"passes": list, "compile_seconds": float, "trial_seconds": float}
"""Conditions of a measurement that have a column of their own -> the column's type. Other conditions are stored as JSON."""
_REPEATED = ["operator", "device", "status", "error", "conditions", "protocol"]
"""Columns whose values mostly repeat, and that are therefore stored with a dictionary of values."""


def write(path: Path, rows: Sequence[Mapping[str, Any]], about: Mapping[str, Any]) -> None:
    """Write rows (see `tables.to_row`) to a file atomically. ImportError without pyarrow."""
    arrow, parquet = _arrow()
    table = arrow.Table.from_pylist([_flat(row) for row in rows], schema=_schema(arrow))
    options = {"compression": "zstd", "compression_level": 19, "use_dictionary": _REPEATED, "write_statistics": False}
    split = {"samples.list.element": "BYTE_STREAM_SPLIT"}

    def into(temporary: Path) -> None:
        with parquet.ParquetWriter(temporary, table.schema, store_schema=False, column_encoding=split, **options) as writer:
            writer.write_table(table)
            writer.add_key_value_metadata({KEY: json.dumps(about, default=str).encode()})

    whole(path, into, 0o644)


def read(path: Path) -> tuple[Iterator[dict[str, Any]], dict[str, Any]]:
    """Read a Parquet file. Return (rows, description of the table).

    ValueError for another kind of file, ImportError without pyarrow.
    """
    arrow, parquet = _arrow()
    try:
        _check_size(parquet.read_metadata(path), path)
        table = parquet.read_table(path)
        table = table.cast(_schema(arrow))
    except (arrow.ArrowException, OSError, ValueError, KeyError) as error:
        raise ValueError(f"{path} is no Parquet file of timings: {error}") from error
    about = parse_object((parquet.read_metadata(path).metadata or {}).get(KEY, b"{}").decode())
    return map(_nested, table.to_pylist()), about


def _check_size(about: Any, path: Path) -> None:
    """Raise ValueError if the rows, or the bytes (compressed or not), exceed the limits."""
    size = sum(about.row_group(i).total_byte_size for i in range(about.num_row_groups))
    if about.num_rows > MOST_ROWS or size > MOST_BYTES or path.stat().st_size > MOST_BYTES:
        raise ValueError(f"{about.num_rows:,} rows, {size:,} bytes; at most {MOST_ROWS:,} and {MOST_BYTES:,} are read")


def _schema(arrow: Any) -> Any:
    text, number = arrow.string(), arrow.float64()
    return arrow.schema(
        {
            "operator": text, "schedule": text, "digest": text, "device": text, "protocol": arrow.int32(), "status": text,
            "samples": arrow.list_(arrow.field("element", number)), "passes": arrow.list_(arrow.field("element", arrow.int8())),
            "compile_seconds": number, "trial_seconds": number, "conditions": text, "error": text, "created": number,
        }
    )  # fmt: skip


def _flat(row: Mapping[str, Any]) -> dict[str, Any]:
    """Convert a row to the columns of the file: conditions in `_LIFTED` become columns, all others one JSON text."""
    conditions = dict(row["conditions"])
    lifted = {name: conditions.pop(name) for name, kind in _LIFTED.items() if isinstance(conditions.get(name), kind)}
    return {**row, **lifted, "conditions": json.dumps(conditions, default=str, sort_keys=True)}


def _nested(row: dict[str, Any]) -> dict[str, Any]:
    """Convert a row of the file to a row for `tables.from_row`: all conditions become one dictionary."""
    lifted = {name: value for name in _LIFTED if (value := row.pop(name)) is not None}
    return {**row, "conditions": {**parse_object(row["conditions"], finite=False), **lifted}}


def _arrow() -> tuple[Any, Any]:
    """Import pyarrow when it is needed. Return the modules (pyarrow, pyarrow.parquet); ImportError without them."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise ImportError("tables in Parquet are read and written with pyarrow: pip install 'gensor_gym[lab]'") from error
    return pyarrow, pyarrow.parquet
