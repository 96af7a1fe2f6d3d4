"""Draw the programs that a lease times, compile them, pack them: no GPU, resumable, each kernel once.

Everything lies in a folder that git ignores: `proposals.jsonl` and `kernels.jsonl` say what is done, `cubins/` holds machine
code, `carry/` the archive that travels.
"""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

from experiments.common.journal import Journal
from experiments.common.settings import ROOT
from experiments.device.archive.arms import Arm, Study, proposed, read_study
from experiments.device.archive.known import fastest
from experiments.device.archive.packed import ABOUT, PROPOSALS, described, write_part
from experiments.device.stages import families
from experiments.device.stages.candidates import candidates
from experiments.device.table import read_table
from experiments.device.work.progress import say
from gensor_gym import hardware
from gensor_gym.codegen.cuda import nvrtc
from gensor_gym.codegen.kernel import Kernel
from gensor_gym.files import write_whole
from gensor_gym.graph.schedule import Schedule
from gensor_gym.measure.measurement import Status
from gensor_gym.measure.native import make_kernel
from gensor_gym.measure.workers.builders import CompileFailed
from gensor_gym.measure.workers.compile_pool import CompilePool

FOLDER = ROOT / "build" / "lease"
PART = 600
"""Kernels of a part: compressed together they take a sixth of what each takes alone."""
GROUPS = ("never_run", "known", "study")
"""In the order in which they are made."""
KNOWN, CHOICES = 3, 6
"""Programs of earlier days, and first choices of today, of each operator of conf/bench/gpu.yaml."""
AHEAD = 8
"""Kernels under way for each compiler."""
SAID = 12
"""Searches after which it is said how far it is."""
CARD = "card.json"
"""Of a checkpoint that is whole."""
_SECONDS = 20.0
"""Of one compilation."""


class Building:
    """The folder of an archive that is being made, and compilers that fill it while more is drawn."""

    def __init__(self, folder: Path, size: int) -> None:
        """Read what is done; `size` compilations at once."""
        self.folder, self.cubins = folder, folder / "cubins"
        self.cubins.mkdir(parents=True, exist_ok=True)
        self.proposals = Journal(folder / "proposals.jsonl")
        self.kernels = Journal(folder / "kernels.jsonl", ("digest",))
        self._ahead = AHEAD * size
        self._pool = CompilePool(size, seconds=_SECONDS)
        self._threads = ThreadPoolExecutor(size)
        self._under_way: dict[str, Future[None]] = {}

    def compile(self, kernel: Kernel) -> None:
        """Have a kernel compiled that is new; waits while many are under way."""
        if kernel.digest not in self.kernels.rows and kernel.digest not in self._under_way:
            self._under_way[kernel.digest] = self._threads.submit(self._compiled, kernel)
        self.wait(self._ahead)

    def wait(self, left: int = 0) -> None:
        """Until at most so many compilations are under way; errors that are no fault of a kernel's are raised."""
        while len(self._under_way) > left:
            wait(self._under_way.values(), return_when=FIRST_COMPLETED)
            for digest, future in list(self._under_way.items()):
                if future.done():
                    del self._under_way[digest]
                    future.result()

    def _compiled(self, kernel: Kernel) -> None:
        """A row of a kernel, whose cubin then lies in the folder; what fails is a row with the compiler's words."""
        row = {**described(kernel), "status": "", "error": ""}
        try:
            self._pool(kernel)
        except CompileFailed as error:
            failed = {"status": Status.COMPILE_ERROR.value, "error": str(error)[-600:]}
            self.kernels.add({"digest": kernel.digest, "operator": row["operator"], **failed})
            return
        found = nvrtc.compile_cubin(kernel)  # kept by the compiler's process
        write_whole(self.cubins / f"{kernel.digest}.cubin", found.cubin)
        said = {"registers": found.registers, "spill_bytes": found.spill_bytes, "bytes": len(found.cubin)}
        self.kernels.add({**row, **said})

    def close(self) -> None:
        """End the compilers; what is under way is compiled the next time."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._pool.close()
        self.proposals.close()
        self.kernels.close()

    def pack(self) -> dict[str, Any]:
        """Write the archive: parts that are full stay as they are, so that packing again is quick."""
        carry = self.folder / "carry"
        carry.mkdir(exist_ok=True)
        good = [row for row in self.kernels if not row["status"]]
        for number, begin in enumerate(range(0, len(good), PART)):
            rows, path = good[begin : begin + PART], carry / f"part-{number:03}.tar.xz"
            mark = carry / f".{path.name}.{len(rows)}"
            if not mark.exists():
                for old in carry.glob(f".{path.name}.*"):
                    old.unlink()
                write_part(path, rows, self.cubins)
                mark.touch()
        lines = [_with_status(row, self.kernels.rows) for row in self.proposals if row.get("arm")]
        write_whole(carry / PROPOSALS, gzip.compress("".join(json.dumps(row) + "\n" for row in lines).encode(), mtime=0))
        about = {
            "revision": _revision(), "compiler": f"nvrtc {nvrtc.version()}", "date": time.strftime("%Y-%m-%d", time.gmtime()),
            "kernels": len(good), "proposals": len(lines), "operators": len({row["operator"] for row in lines}),
        }  # fmt: skip
        write_whole(carry / ABOUT, (json.dumps(about, indent=1) + "\n").encode())
        size = sum(path.stat().st_size for path in carry.iterdir())
        say(f"{len(good)} kernels of {about['operators']} operators in {size / 2**20:.1f} MiB: {carry}")
        return about


def _with_status(row: dict[str, Any], kernels: dict[Any, dict[str, Any]]) -> dict[str, Any]:
    """A proposal with what its compilation said."""
    found = kernels.get(row["digest"], {})
    return row if row["status"] or not found.get("status") else {**row, "status": found["status"], "error": found["error"]}


def _revision() -> str:
    """Of the tree that builds, with a plus where it has changes."""
    command = ["git", "-C", str(ROOT), "describe", "--always", "--abbrev=40", "--dirty=+", "--exclude=*"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def study_jobs(study: Study) -> Iterator[tuple[str, Arm, int]]:
    """(operator, arm, kernels) in the order in which they are timed: operators as the file has them, a cut leaves whole ones."""
    for place, operator in enumerate(study.operators):
        for arm in study.arms:
            yield operator, arm, study.wanted(place)


def build(
    folder: Path = FOLDER, size: int | None = None, groups: tuple[str, ...] = GROUPS, seconds: float = float("inf")
) -> None:
    """Draw and compile what is missing, then pack. An arm whose checkpoint is not there yet is left for the next call."""
    os.environ.setdefault("GENSOR_GYM_THREADS", "1")
    study, begin = read_study(), time.monotonic()
    building = Building(folder, size or len(os.sched_getaffinity(0)))
    try:
        if "never_run" in groups:
            _never_run(building, study.hardware)
        if "known" in groups:
            _known(building, study.hardware)
        if "study" in groups:
            _study(building, study, lambda: time.monotonic() - begin < seconds)
        building.wait()
        building.pack()
    finally:
        building.close()


def _study(building: Building, study: Study, more: Callable[[], bool]) -> None:
    """All arms of all operators; the next are drawn while these are compiled."""
    jobs = [job for job in study_jobs(study) if _key(*job[:2]) not in building.proposals.rows]
    for number, (operator, arm, count) in enumerate(jobs):
        checkpoint = arm.hyperparameters.get("checkpoint")
        if not more() or (checkpoint and not (ROOT / str(checkpoint) / CARD).exists()):
            continue
        found = proposed(operator, arm, study.hardware, count)
        for _, kernel in found:
            if kernel is not None:
                building.compile(kernel)
        building.proposals.add(*({"key": f"{_key(operator, arm)} {row['rank']}", **row} for row, _ in found))
        building.proposals.add({"key": _key(operator, arm)})
        if number % SAID == 0:
            say(f"{number} of {len(jobs)} searches, {len(building.kernels.rows)} kernels compiled")


def _key(operator: str, arm: Arm) -> str:
    """Of an arm's proposals for an operator, once they are complete."""
    return f"{operator} {arm.name}/{arm.seed}"


def _never_run(building: Building, machine: str) -> None:
    """Kernels of families that no device has run, for the stage that says whether they are right."""
    if "never_run" in building.proposals.rows:
        return
    for number, (operator, schedule, kernel) in enumerate(families.never_run(machine, 0), 1):
        _put(building, "never_run", operator, schedule, kernel, ("never_run", number))
    building.proposals.add({"key": "never_run"})


def _known(building: Building, machine: str) -> None:
    """Of operators that a device timed before: the fastest programs then, and the first choices of today."""
    hw = hardware.get(machine)
    for op in read_table().operators.values():
        if f"known {op}" not in building.proposals.rows:
            arms = {"known": fastest(op, hw, KNOWN), "candidates": candidates(op, hw, 0)[:CHOICES]}
            for arm, schedules in arms.items():
                for rank, schedule in enumerate(schedules, 1):
                    made = make_kernel(op, schedule, hw)
                    if isinstance(made, Kernel):
                        _put(building, "known", str(op), schedule, made, (arm, rank))
            building.proposals.add({"key": f"known {op}"})


def _put(building: Building, group: str, operator: str, schedule: Schedule, kernel: Kernel, place: tuple[str, int]) -> None:
    """A proposal of an arm and rank that nobody constructed for a study, and its kernel."""
    building.compile(kernel)
    about = {"group": group, "operator": operator, "arm": place[0], "seed": 0, "rank": place[1], "schedule": str(schedule)}
    said = {"digest": kernel.digest, "status": "", "error": "", "construct_s": 0.0, "evaluations": 0}
    building.proposals.add({"key": f"{group} {operator} {place[0]} {place[1]}", **about, **said})
