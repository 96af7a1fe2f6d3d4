"""The `recorded` backend: earlier timings, looked up by program. No kernel runs.

A request returns the recorded samples, or with `resample` that many of them, drawn at random. The draw depends on the seed, the
program and the number of earlier requests for it.
"""

from __future__ import annotations

import dataclasses
import hashlib
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import numpy as np

from gensor_gym import hardware
from gensor_gym.construction import ConstructionGraph
from gensor_gym.graph.compiling.early import at_once
from gensor_gym.graph.schedule import Schedule
from gensor_gym.hardware.described import RECORDINGS, differences
from gensor_gym.hardware.types import Hardware
from gensor_gym.measure.analytic import program_digest, program_key
from gensor_gym.measure.measurement import Measurement, Status
from gensor_gym.measure.records.optimum import Optimum, find_optimum
from gensor_gym.measure.records.store import Record, Store
from gensor_gym.measure.records.tables import Table, file_name, read_table
from gensor_gym.operators.types import Operator

FEW = 1 << 16
"""Spaces of at most this number of programs are listed by plain Python (40 us each), which ends before Numba would have compiled
the rules.
"""

_WITHIN = {"medium": ("compact",)}
"""Name of a space -> names of the spaces that are subsets of it."""

Source = str | Path | Store | Iterable[Record]


@dataclasses.dataclass(frozen=True)
class _Part:
    """Content of one file of timings: measurements by (operator, program), and facts about device and drift."""

    measurements: Mapping[tuple[str, bytes], Measurement]
    device: str
    hardware: Hardware | None
    drift: float
    """Standard deviation of the logarithm of a program's median from one pass over the table to the next; see
    `optimum.find_optimum`.
    """
    space: str
    """Name of the space whose programs the file has; empty if the file names none."""

    @cached_property
    def operators(self) -> frozenset[str]:
        """Return the operators with timings, as text."""
        return frozenset(op for op, _ in self.measurements)


class RecordedBackend:
    """Backend that answers from a table of earlier timings. Programs that are not in the table are NOT_RECORDED."""

    name = "recorded"
    stored = False

    def __init__(self, source: Source, device: str | None = None, resample: int | None = None, seed: int = 0) -> None:
        """Open a table: a file of timings (see `tables`), a folder of such files, a Store, or records.

        `device` selects the records of one device. `resample` is the number of samples drawn at each request, with `seed`; None
        returns all samples. ValueError for a missing or unreadable file, mixed devices or protocols, or an invalid number of
        samples.
        """
        if resample is not None and resample < 1:
            raise ValueError(f"resample={resample!r}: expected 1 or more samples a measurement, or None for exact replay")
        self._path = Path(source) if isinstance(source, str | Path) else None
        self._only, self._resample, self._seed = device, resample, seed
        self._asked: dict[str, int] = {}
        self._optima: dict[tuple[str, str], tuple[dict[bytes, int], Optimum] | None] = {}
        self._parts: dict[str, _Part] = {}
        self._same: set[tuple[Hardware, Hardware]] = set()
        if self._path is None:
            table = Table(list(source.records() if isinstance(source, Store) else source))  # type: ignore[arg-type]
            self._parts[""] = _part(table, "the table", device)
        elif not self._path.is_dir():
            self._parts[""] = _read(self._path, self._path.stat().st_mtime_ns if self._path.exists() else 0, device)
        elif not any(self._path.glob("*.parquet")):
            raise ValueError(f"folder {self._path} holds no recorded table (*.parquet)")

    def __len__(self) -> int:
        """Return the number of programs in the table; for a folder, in the tables that were read so far."""
        return sum(len(part.measurements) for part in self._parts.values())

    def device(self, hw: Hardware) -> str:
        """Return the name of the device on which the table was recorded."""
        if not self._parts and self._path is not None:
            first = min(self._path.glob("*.parquet"))
            return _read(first, first.stat().st_mtime_ns, self._only).device
        return next((part.device for part in self._parts.values()), "")

    @property
    def edition(self) -> str:
        """Return sixteen hexadecimal digits that identify the answers: content of the files, `resample`, seed.

        Empty without a file.
        """
        if self._path is None:
            return ""
        whole = hashlib.sha256(f"{self._resample} {self._seed}".encode())
        for path in sorted(self._path.glob("*.parquet")) if self._path.is_dir() else [self._path]:
            whole.update(path.read_bytes())
        return whole.hexdigest()[:16]

    def digest(self, op: Operator, schedule: Schedule, hw: Hardware) -> str:
        """Return the digest of the timed kernel, or `analytic.program_digest` of a program that is not recorded."""
        found = self._find(op, schedule, hw)
        return found.digest if found is not None and found.digest else program_digest(op, schedule, hw)

    def measure(self, op: Operator, schedules: Sequence[Schedule], hw: Hardware) -> list[Measurement]:
        """Return the table's measurement of each schedule.

        ValueError if the table was recorded on hardware that differs from `hw`.
        """
        return list(self.stream(op, schedules, hw))

    def stream(self, op: Operator, schedules: Sequence[Schedule], hw: Hardware) -> Iterator[Measurement]:
        """Yield the measurements of `measure` one at a time."""
        for schedule in schedules:
            digest = self.digest(op, schedule, hw)
            found = self._find(op, schedule, hw)
            if found is None:
                yield Measurement(Status.NOT_RECORDED, error=f"not in the table: {op} {schedule!r}", digest=digest)
            else:
                yield dataclasses.replace(found, samples=self._samples(found, digest), digest=digest)

    def regret(self, graph: ConstructionGraph, schedule: Schedule) -> float | None:
        """Return a program's regret: the logarithm of its time over the best program's; zero if the two are statistically tied.

        The regret is infinite if the program failed, and None if the best program is unknown because the table lacks a schedule
        of the task's space.
        """
        key = (str(graph.operator), graph.space)
        if key not in self._optima:
            few = isinstance(graph, ConstructionGraph) and graph.coordinates.size <= FEW
            with at_once() if few else nullcontext():
                self._optima[key] = self._find_optimum(graph)
        known = self._optima[key]
        if known is None or program_key(schedule) not in known[0]:
            return None
        found = self._find(graph.operator, schedule, graph.hardware)
        assert found is not None
        return known[1].regret(known[0][program_key(schedule)], found.seconds)

    def gap(self, operators: Sequence[Operator], space: str) -> str:
        """Check whether the table has timings of all `operators` and all programs of `space`.

        Return a message that names missing operators and the spaces that the table covers instead; empty if nothing is missing.
        """
        missing, spaces = list[str](), dict[str, str]()
        for op in operators:
            part = self._part(op)
            if part is None or str(op) not in part.operators:
                missing.append(str(op))
            elif part.space and space not in (part.space, *_WITHIN.get(part.space, ())):
                spaces.setdefault(part.space, str(op))
        said = []
        if missing:
            more = f" and {len(missing) - 1} more operators" if len(missing) > 1 else ""
            said.append(f"no table has timings of {missing[0]}{more}: expected one of {self._tables()}")
        for recorded, table in spaces.items():
            said.append(f"space={space!r} has programs that the table of {table} lacks: expected space={recorded!r}")
        return "; ".join(said)

    def _tables(self) -> str:
        if self._path is not None and self._path.is_dir():
            return ", ".join(sorted(path.stem for path in self._path.glob("*.parquet")))
        return ", ".join(sorted({op for part in self._parts.values() for op in part.operators}))

    def restart(self) -> None:
        """Reset the counts of requests, so that the same samples are drawn again."""
        self._asked.clear()

    def close(self) -> None:
        """Do nothing, because no processes need to end."""

    def _find_optimum(self, graph: ConstructionGraph) -> tuple[dict[bytes, int], Optimum] | None:
        """Find the best program of a space. Return (index of each program by its key, the optimum).

        None if a program of the space is not recorded, or if no program has status OK.
        """
        rows: list[Schedule] = []
        whole: list[Measurement] = []
        for schedule in (Schedule(row) for batch in graph.enumerate() for row in batch):
            found = self._find(graph.operator, schedule, graph.hardware)
            if found is None or found.status is Status.NOT_RECORDED:
                return None  # at the first missing program, because the space may be thousands of times larger than the table
            rows.append(schedule)
            whole.append(found)
        if not any(m.status is Status.OK for m in whole):
            return None
        samples = [m.samples if m.status is Status.OK else () for m in whole]
        places = {program_key(schedule): i for i, schedule in enumerate(rows)}
        part = self._part(graph.operator)
        assert part is not None
        return places, find_optimum(samples, [passes_of(m) for m in whole], drift=part.drift)

    def _samples(self, found: Measurement, digest: str) -> tuple[float, ...]:
        if self._resample is None or not found.samples:
            return found.samples
        times = self._asked.get(digest, 0)
        self._asked[digest] = times + 1
        rng = np.random.default_rng([self._seed, int(digest[:16], 16), times])
        return tuple(found.samples[i] for i in rng.integers(0, len(found.samples), size=self._resample))

    def _find(self, op: Operator, schedule: Schedule, hw: Hardware) -> Measurement | None:
        """Return the measurement of a program, None if it is not recorded; ValueError for a table of other hardware."""
        part = self._part(op)
        if part is None:
            return None
        self._check(part, hw)
        return part.measurements.get((str(op), program_key(schedule)))

    def _check(self, part: _Part, hw: Hardware) -> None:
        """Raise ValueError if the file was recorded on hardware whose properties differ from those of `hw`.

        See `described.differences`.
        """
        if part.hardware is None or (part.hardware, hw) in self._same:
            return
        if found := differences(part.hardware, hw):
            raise ValueError(
                f"recorded on {part.hardware.name}, whose figures are not those of {hw.name!r} ({'; '.join(found[:4])}): take "
                "the hardware that the table describes (hardware.get of a shipped machine's name, or hardware.from_json of "
                "hardware.json)"
            )
        self._same.add((part.hardware, hw))

    def _part(self, op: Operator) -> _Part | None:
        """Return the content of the file with an operator's timings, or None. Files of a folder are read at the first request."""
        if "" in self._parts:
            return self._parts[""]
        name = file_name(op)
        if name not in self._parts:
            assert self._path is not None
            path = self._path / f"{name}.parquet"
            if not path.exists():
                return None
            self._parts[name] = _read(path, path.stat().st_mtime_ns, self._only)
        return self._parts[name]

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for pickling, without the tables of files, which the copy reads again."""
        return self.__dict__ | {"_optima": {}, **({"_parts": {}} if self._path is not None else {})}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if self._path is not None and not self._path.is_dir():
            self._parts[""] = _read(self._path, self._path.stat().st_mtime_ns, self._only)


def warn_of_gap(backend: object, operators: Sequence[Operator], space: str) -> None:
    """Warn (RuntimeWarning) if a recorded backend lacks programs of these operators in a space."""
    if isinstance(backend, RecordedBackend) and (said := backend.gap(operators, space)):
        warnings.warn(f"backend 'recorded': {said}. What is not recorded ends NOT_RECORDED.", RuntimeWarning, stacklevel=4)


def open_recorded(text: str, hw: Hardware) -> RecordedBackend:
    """Open the recorded backend that a text `recorded[:WHAT][?resample=COUNT&seed=NUMBER]` names.

    WHAT is a file or folder, or the name of a shipped table (`zen5_2c`, `zen5_2c/gemv_m1024_k1024`); without it, the shipped
    tables of `hw`. ValueError for another text, or if there is no such table.
    """
    place, mark, query = text.partition("?")
    what = place.removeprefix("recorded").removeprefix(":")
    try:
        options = {name: int(value) for name, value in parse_qsl(query, strict_parsing=True)} if mark else {}
    except ValueError as error:
        raise ValueError(f"backend {text!r}: {error}; expected recorded:WHAT?resample=COUNT&seed=NUMBER") from error
    if set(options) - {"resample", "seed"}:
        raise ValueError(f"backend {text!r}: expected no other options than resample and seed")
    return RecordedBackend(_place(what, hw), **options)  # type: ignore[arg-type]


def passes_of(measurement: Measurement) -> Sequence[int]:
    """Return for each sample the number of the pass over the table in which it was taken; empty if the passes are unknown."""
    passes = measurement.conditions.get("passes", ())
    return passes if isinstance(passes, list | tuple) else ()


def _place(what: str, hw: Hardware) -> Path:
    shipped = RECORDINGS / (what or hw.name)
    for path in (shipped, shipped.with_name(f"{shipped.name}.parquet")):
        if path.exists():
            return path
    if what and Path(what).exists():
        return Path(what)
    known = ", ".join(hardware.recorded_names()) or "none"
    if not what:
        raise ValueError(f"no table of {hw.name} is shipped (there are tables of: {known}); name one: backend='recorded:FILE'")
    raise ValueError(f"no recorded table at {what}, nor among those shipped (machines: {known})")


@lru_cache(maxsize=64)
def _read(path: Path, _changed: int, device: str | None) -> _Part:
    """Read a file of timings, once as long as it is unchanged. Return its content."""
    return _part(read_table(path), str(path), device)


def _part(table: Table, name: str, device: str | None) -> _Part:
    """Convert the records of a table, or those of one `device`.

    ValueError if they mix devices, or timing protocols of one operator.

    `name` is the table's name in messages.
    """
    records = [record for record in table.records if device is None or record.device == device]
    devices, protocols = {record.device for record in records}, dict[str, int]()
    if len(devices) > 1:
        raise ValueError(f"{name} mixes devices {sorted(devices)}; pass device= to choose one")
    for record in records:
        if (first := protocols.setdefault(record.operator, record.protocol)) != record.protocol:
            pair = sorted((first, record.protocol))
            raise ValueError(f"{name} mixes timing protocols {pair} of {record.operator}, whose numbers do not compare")
    found = {(r.operator, program_key(Schedule.parse(r.schedule))): r.measurement for r in records}
    machine = table.about.get("hardware")
    described = None if machine is None else hardware.from_json(machine)
    drift, space = table.about.get("drift", 0.0), table.about.get("space", "")
    return _Part(found, next(iter(devices), "nothing recorded"), described, drift, space)
