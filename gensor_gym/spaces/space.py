"""A tuning space as a value: parameters, the configurations tried, and their results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from gensor_gym.measure.measurement import Status
from gensor_gym.spaces.values import Value, identity, ordered

TIMINGS = ("reported", "median")
"""Names of a configuration's times: the time that the file reports (Kernel Tuner: the mean), or the median of its raw samples."""


@dataclass(frozen=True)
class Parameter:
    """A tunable parameter with all values that occur in the space, sorted."""

    name: str
    values: tuple[Value, ...]


@dataclass(frozen=True)
class Entry:
    """One configuration as read from a file. Times are in seconds; `where` says which entry of the file it is."""

    where: str
    values: Mapping[str, Value]
    status: Status
    reported: float = float("inf")
    samples: tuple[float, ...] = ()
    charge: float = 0.0
    """Recorded seconds to compile, check and run the configuration."""
    error: str = ""


@dataclass(frozen=True, eq=False)
class TuningSpace:
    """A recorded tuning space: N configurations of P parameters, in the order of the file, with their results.

    `document` is the file's whole content in its own format.
    """

    parameters: tuple[Parameter, ...]
    indices: np.ndarray
    """int32 [N, P]: index of each value in its parameter's values."""
    status: tuple[Status, ...]
    reported: np.ndarray
    """float64 [N]: seconds as reported; infinite unless the status is OK."""
    samples: tuple[np.ndarray, ...]
    """Raw seconds in the order taken; empty unless the status is OK."""
    charges: np.ndarray
    """float64 [N]: seconds that compiling, checking and running took."""
    errors: tuple[str, ...]
    kernel: str
    device: str
    format: str
    source: str
    document: dict[str, Any] = field(repr=False)

    @classmethod
    def of(
        cls, entries: Sequence[Entry], names: Sequence[str], kernel: str, device: str, format: str, source: str,
        document: dict[str, Any],
    ) -> TuningSpace:  # fmt: skip
        """Make a space from the configurations of a file.

        ValueError for no entries, parameters other than `names`, or a repeated configuration.
        """
        if not entries or not names:
            raise ValueError(
                f"{source} holds {len(entries)} configurations of {len(names)} parameters; it takes 1 or more of both"
            )
        for entry in entries:
            if set(entry.values) != set(names):
                raise ValueError(f"{source}: {entry.where} has parameters {sorted(entry.values)}; the file's are {sorted(names)}")
        parameters = tuple(Parameter(name, ordered(entry.values[name] for entry in entries)) for name in names)
        places = [{identity(value): i for i, value in enumerate(p.values)} for p in parameters]
        rows = [[at[identity(e.values[p.name])] for p, at in zip(parameters, places, strict=True)] for e in entries]
        seen: dict[tuple[int, ...], str] = {}
        for row, entry in zip(rows, entries, strict=True):
            if tuple(row) in seen:
                raise ValueError(
                    f"{source}: {entry.where} and {seen[tuple(row)]} are the same configuration {dict(entry.values)}"
                )
            seen[tuple(row)] = entry.where
        return cls(
            parameters, np.array(rows, dtype=np.int32), tuple(e.status for e in entries),
            np.array([e.reported for e in entries]), tuple(np.array(e.samples) for e in entries),
            np.array([e.charge for e in entries]), tuple(e.error for e in entries), kernel, device, format, source, document,
        )  # fmt: skip

    def __len__(self) -> int:
        """Number of configurations, including those that failed."""
        return len(self.indices)

    @cached_property
    def ok(self) -> np.ndarray:
        """Whether each configuration was measured successfully, bool [N]."""
        return np.array([status is Status.OK for status in self.status])

    @property
    def variables(self) -> list[tuple[str, tuple[Value, ...]]]:
        """Names and values of the parameters that take more than one value, in the order of the file."""
        return [(p.name, p.values) for p in self.parameters if len(p.values) > 1]

    def configuration(self, index: int) -> dict[str, Value]:
        """Return the parameter values of the configuration with this index, by name."""
        return {p.name: p.values[i] for p, i in zip(self.parameters, self.indices[index], strict=True)}

    def index(self, configuration: Mapping[str, Value]) -> int:
        """Return the index of a configuration. ValueError if it is not recorded.

        Parameters with a single value may be omitted.
        """
        known = {p.name: p for p in self.parameters}
        lacking = [p.name for p in self.parameters if p.name not in configuration and len(p.values) > 1]
        if not isinstance(configuration, Mapping) or set(configuration) - set(known) or lacking:
            raise ValueError(f"configuration {configuration!r}: it takes values for {list(known)}")
        for name, value in configuration.items():
            if identity(value) not in self._ranks[name]:
                raise ValueError(f"{name}={value!r} is not recorded; it is one of {list(known[name].values)}")
        index = self.find(configuration)
        if index is None:
            raise ValueError(f"configuration {dict(configuration)} is not among the {len(self)} recorded in {self.source}")
        return index

    def find(self, configuration: Mapping[str, Value]) -> int | None:
        """Return the index of a configuration, None if it is not recorded. An omitted parameter counts as its smallest value."""
        if set(configuration) - set(self._ranks):
            return None
        row = (ranks.get(identity(configuration[name])) if name in configuration else 0 for name, ranks in self._ranks.items())
        return self._places.get(tuple(row))  # type: ignore[arg-type]

    @cached_property
    def _ranks(self) -> dict[str, dict[tuple[int, object], int]]:
        """Index of each value among its parameter's values, by the parameter's name and the value's `identity`."""
        return {p.name: {identity(value): i for i, value in enumerate(p.values)} for p in self.parameters}

    @cached_property
    def _places(self) -> dict[tuple[int, ...], int]:
        return {tuple(row): i for i, row in enumerate(self.indices.tolist())}

    def place(self, row: np.ndarray) -> int:
        """Return the index of the configuration whose row of value indices is `row` [P]. KeyError if it is not recorded."""
        return self._places[tuple(row.tolist())]

    def seconds(self, timing: str = "reported") -> np.ndarray:
        """Return the time of every configuration in seconds, float64 [N], infinite unless its status is OK.

        `timing` is `reported`, or `median` of the raw samples (the reported time if there are none). ValueError for any other.
        """
        if timing not in TIMINGS:
            raise ValueError(f"no timing {timing!r}; it is one of {TIMINGS}")
        return self.reported if timing == "reported" else self._medians

    @cached_property
    def _medians(self) -> np.ndarray:
        """Return the median of each configuration's raw samples; the reported time if there are none."""
        return np.array([np.median(s) if len(s) else t for s, t in zip(self.samples, self.reported, strict=True)])

    def best(self, timing: str = "reported") -> int:
        """Return the index of the fastest configuration, the earlier of two equally fast. ValueError if none succeeded."""
        if not self.ok.any():
            raise ValueError(f"{self.source}: none of {len(self)} configurations ran well, so there is no optimum")
        return int(np.argmin(self.seconds(timing)))

    def optimal(self, timing: str = "reported") -> np.ndarray:
        """Return which configurations are statistically tied with the best, bool [N] (`spaces.optimum`)."""
        from gensor_gym.spaces.optimum import tied_with_best

        if timing not in self._optimal:
            self._optimal[timing] = tied_with_best(self.samples, self.seconds(timing), timing)
        return self._optimal[timing]

    def regret(self, index: int, timing: str = "reported") -> float:
        """Return log(seconds of a configuration / seconds of the best); zero if tied with the best, infinite if it failed."""
        return float(self.regrets(timing)[index])

    def regrets(self, timing: str = "reported") -> np.ndarray:
        """Return the `regret` of every configuration, float64 [N], read-only."""
        if timing not in self._regrets:
            seconds = self.seconds(timing)
            over = np.log(seconds / seconds[self.best(timing)])
            self._regrets[timing] = np.where(self.optimal(timing), 0.0, over)
            self._regrets[timing].setflags(write=False)
        return self._regrets[timing]

    @cached_property
    def _regrets(self) -> dict[str, np.ndarray]:
        return {}

    @cached_property
    def _optimal(self) -> dict[str, np.ndarray]:
        return {}
