"""Record Measured v1 on this machine: `gensor collect [output=FOLDER] [cpu=N] [operators=N]`.

Every trial is written to the journal before the next begins, and the same command resumes after any stop. Kernels are for one
core and are timed on CPU `cpu`, while the other CPUs compile the next operator's programs.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from omegaconf import DictConfig
from rich.console import Console

from agents.cli.checks import check_whole
from agents.cli.command import command
from agents.recording import pack
from agents.recording.ahead import alone_on, prepared
from agents.recording.programs import Program, programs
from agents.runs.files import make_folder, write_text
from agents.runs.journal import Journal, Row
from agents.runs.lines import with_bar
from agents.training.operators.chosen import Chosen, chosen
from gensor_gym import hardware as machines
from gensor_gym.codegen.kernel import Kernel
from gensor_gym.foreign import read_text
from gensor_gym.hardware.described import FILE
from gensor_gym.hardware.types import Hardware
from gensor_gym.measure.measurement import Measurement, Status
from gensor_gym.measure.native import NativeBackend, cpu_backend, make_kernel
from gensor_gym.measure.stats.others import OtherCores
from gensor_gym.measure.stats.timing import TimingRules
from gensor_gym.measure.workers.requests import Built

RULES = TimingRules(budget=0.03, sample=1e-3, warmup=4e-3, least=3)
"""Timing rules of the recording, with a third of a search's budget per program.

Many programs matter more here than the last percent of precision. The second timing (AGAIN) shows how much two times of a program
differ.
"""
AGAIN = 1
"""Value of the field `pass` in the row of an operator's second timing.

The operator's first successful program is timed again after all its other programs.
"""
NAME = "trials.jsonl"
FIELDS = ("operator", "digest", "pass")
"""Fields whose values identify a row of the journal."""


@dataclass(frozen=True)
class Ready:
    """A program to be timed: compiled, or with the reason why it did not compile."""

    program: Program
    built: Built | Measurement


class Collection:
    """Records the times of many operators' programs on one machine, into a journal."""

    def __init__(self, hw: Hardware, journal: Journal, backend: NativeBackend, seed: int = 0) -> None:
        self.hardware, self.journal, self.seed = hw, journal, seed
        self._backend = backend

    def run(self, listed: Sequence[Chosen], compilers: set[int]) -> Iterator[list[Row]]:
        """Time the unfinished operators of `listed` one by one, and yield each one's rows.

        Meanwhile the CPUs `compilers` compile the next operator.
        """
        for one, ready in prepared(self.missing(listed), self.compiled, compilers):
            yield self.timed(one, ready)

    def missing(self, listed: Sequence[Chosen]) -> list[Chosen]:
        """Return the operators without a second timing of a program, which is the last row of a finished operator."""
        done = {row["operator"] for row in self.journal if row["pass"] == AGAIN}
        return [one for one in listed if str(one.operator) not in done]

    def compiled(self, one: Chosen) -> list[Ready]:
        """Generate and compile the distinct kernels that are to be timed for an operator."""
        op, hw = one.operator, self.hardware
        made = [(program, make_kernel(op, program.schedule, hw)) for program in programs(op, hw, self.seed)]
        different = {kernel.digest: (program, kernel) for program, kernel in reversed(made)}
        pairs = list(reversed(different.values()))
        built = iter(self._backend.compile([kernel for _, kernel in pairs if isinstance(kernel, Kernel)]))
        return [Ready(program, next(built) if isinstance(kernel, Kernel) else kernel) for program, kernel in pairs]

    def timed(self, one: Chosen, ready: Sequence[Ready]) -> list[Row]:
        """Time those programs of an operator that the journal lacks, then the first successful program again.

        Return all rows of the operator.
        """
        others = OtherCores()
        rows = [self._row(one, item, 0, others) for item in ready]
        good = [item for item, row in zip(ready, rows, strict=True) if row["status"] == Status.OK.value]
        return [*rows, *(self._row(one, item, AGAIN, others) for item in good[:1])]

    def _row(self, one: Chosen, item: Ready, number: int, others: OtherCores) -> Row:
        """Return the row of one trial, from the journal or from a new measurement.

        The field `others` is the number of cores that other programs used since the operator's first trial.
        """
        digest = item.built.digest if isinstance(item.built, Measurement) else item.built.kernel.digest
        name = str(one.operator), digest, number
        if name in self.journal.rows:
            return self.journal.rows[name]
        begin = time.perf_counter()
        found = self._backend.trial(item.built, self.hardware)
        row: dict[str, Any] = {
            "operator": name[0], "digest": digest, "pass": number, "part": one.part, "origin": item.program.origin,
            "rank": item.program.rank, "schedule": str(item.program.schedule), "status": found.status.value,
            "samples": [float(f"{second:.4g}") for second in found.samples], "error": found.error[:200],
            "at": round(time.time(), 1), "compile_s": round(float(str(found.conditions.get("compile_seconds", 0.0))), 4),
            "trial_s": round(time.perf_counter() - begin, 4), "others": round((others.used() or (0.0, 0.0))[1], 2),
        }  # fmt: skip
        self.journal.add(row)
        return row


def machine(name: str, folder: Path) -> Hardware:
    """Return the machine's description in a folder, which is written if it is missing.

    A stored description is kept, because measured rates vary from run to run.
    """
    path = folder / FILE
    if not path.exists():
        write_text(path, machines.to_json(replace(machines.get("host"), name=name)))
    return replace(machines.from_json(read_text(path)), name="host")


@command("collect")
def run(config: DictConfig, console: Console) -> Path:
    """Record the operators of Measured v1, or resume an earlier recording; return the folder of the recording."""
    check_whole(config, 1, "operators", null=("operators",))
    check_whole(config, 0, "cpu", "seed")
    others = alone_on(config.cpu)
    folder = make_folder(Path(config.output))
    listed = chosen()[: config.operators]
    with Journal(folder / NAME, FIELDS) as journal, closing(cpu_backend(RULES)) as backend:
        collection = Collection(machine(config.machine, folder), journal, backend, config.seed)
        for _ in with_bar(console, "operators", collection.run(listed, others), len(collection.missing(listed))):
            pass
        pack.write(list(journal), folder, config.machine)
    return folder


main = run
