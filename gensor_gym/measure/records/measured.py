"""Measured v1: times of programs on real machines.

It has some twenty programs of each of 1,728 operators on CPUs (`gensor collect`), and some sixty of each of 123 operators on a
GPU (`experiments.evidence.measured`). Each machine has a Parquet file and a description in `gensor_gym/data/measured`. Columns of
the table, one row for each program:

| column | meaning |
|---|---|
| `part` | `train`, `validation`, `test` (classes of `train`), `unseen` (other classes) |
| `operator`, `schedule` | text that `operators.parse` and `Schedule.parse` read |
| `origin`, `rank` | the proposer of the program, and its rank among the proposals |
| `status` | `OK`, or how the trial failed |
| `seconds` | median of the samples, infinite unless `OK` |
| `quiet` | seconds on an otherwise idle machine: `Measurement.quiet_seconds` |
| `spread` | half of the median's 95 percent interval, over the median |
| `samples` | number of samples |
| `again` | quiet seconds of a second timing after the operator's other programs; NaN without one |
| `others` | cores that other programs used meanwhile, on average since the operator's first program |
| `compile_s` | seconds of the C compiler |
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from gensor_gym import hardware
from gensor_gym.foreign import read_text
from gensor_gym.hardware.described import MEASURED
from gensor_gym.hardware.types import Hardware
from gensor_gym.registry import check_known

FOLDER = MEASURED
PARTS = ("train", "validation", "test", "unseen")


def names(kind: str | None = None) -> list[str]:
    """Return the names of the machines whose tables ship with the package. `kind` selects `cpu` or `gpu`."""
    every = sorted(path.stem for path in FOLDER.glob("*.parquet"))
    return every if kind is None else [name for name in every if machine_of(name).kind == kind]


def load(machine: str | Path, part: str | None = None) -> Any:
    """Load the table of a machine, or one part of it, as a pandas DataFrame. A path reads a file of `gensor collect`.

    ValueError for an unknown machine or part. ImportError without pandas and pyarrow (extra `lab`).
    """
    import pandas

    if part is not None:
        check_known("part", part, PARTS)
    found = pandas.read_parquet(path_of(machine))
    return found if part is None else found[found.part == part].reset_index(drop=True)


def machine_of(machine: str | Path) -> Hardware:
    """Return the hardware on which a table was recorded."""
    return hardware.from_json(read_text(path_of(machine).with_suffix(".json")))


def here(machine: str | Path) -> Hardware:
    """Return the hardware on which a table was recorded, for tasks whose kernels this machine runs.

    A CPU gets the name `host`, for which C kernels of this processor are generated.
    """
    described = machine_of(machine)
    return dataclasses.replace(described, name="host") if described.kind == "cpu" else described


def path_of(machine: str | Path) -> Path:
    """Return the path of a machine's table. A path is returned unchanged."""
    if str(machine).endswith(".parquet"):
        return Path(machine)
    check_known("machine of Measured v1", str(machine), names())
    return FOLDER / f"{machine}.parquet"
