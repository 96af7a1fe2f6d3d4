"""Tables of benchmark records (lines of JSON), one table for each kind of record."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from agents.runs.sheets.cells import NOTHING, Cell, number, plain, seconds, spread
from agents.runs.sheets.sheet import Sheet

INTERVAL = {"median", "low", "high"}


def of_records(suite: str, rows: Sequence[Mapping[str, Any]], times: Collection[str] = ()) -> dict[str, Sheet]:
    """Make one table for each kind of record. Nested entries become columns, lists are left out.

    Values that all records of a kind share are in a note below the table. Entries named in `times`, and names that end in `_s` or
    `seconds`, are seconds.
    """
    kinds: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        flat = dict(_flat({name: value for name, value in row.items() if name not in ("suite", "kind")}))
        kinds.setdefault(str(row.get("kind", suite)), []).append(flat)
    return {kind: _sheet(f"{suite}: {kind}", found, times) for kind, found in kinds.items()}


def _sheet(title: str, rows: list[dict[str, Any]], times: Collection[str]) -> Sheet:
    """Make the table of the records of one kind. A single record becomes a table of names and values."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    if len(rows) == 1:
        facts = [(_words(name), _cell(name, rows[0][name], times)) for name in names]
        return Sheet.of(title, ("name", "value"), facts, words=("value",))
    same = [name for name in names if len({str(row.get(name)) for row in rows}) == 1]
    varying = sorted((name for name in names if name not in same), key=lambda name: _weight(_any(rows, name)))
    cells = [[_cell(name, row.get(name), times) for name in varying] for row in rows]
    note = " · ".join(f"{_words(name)}: {_cell(name, rows[0][name], times).text}" for name in same)
    return Sheet.of(title, tuple(map(_words, varying)), cells, [note] if note else [])


def _weight(value: object) -> int:
    return 0 if isinstance(value, str) else 1 if isinstance(value, Mapping) else 2


def _any(rows: list[dict[str, Any]], name: str) -> object:
    return next(row[name] for row in rows if row.get(name) is not None)


def _flat(row: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (name, value) of a record's entries. The name of a nested entry begins with the outer name."""
    for name, value in row.items():
        if isinstance(value, Mapping) and set(value) != INTERVAL:
            yield from _flat(value, f"{prefix}{name} ")
        elif not isinstance(value, list | tuple):
            yield prefix + str(name), value


def _words(name: str) -> str:
    return name.replace("_", " ").removesuffix(" s")


def _cell(name: str, value: Any, times: Collection[str]) -> Cell:
    time = name.split(" ")[-1] in times or name.endswith(("_s", "seconds"))
    if isinstance(value, Mapping):
        numbers = (value["median"], value["low"], value["high"])
        short = plain(value["median"]).text
        return spread(value) if time else Cell(f"{short} [{number(value['low'])}, {number(value['high'])}]", numbers, short)
    if value is None or not time or not isinstance(value, int | float):
        return plain(value) if value is not None else NOTHING
    return seconds(value)
