"""Draw the programs that a run on a GPU will time, compile them and pack them, without a GPU.

An interrupted command resumes, and each kernel is compiled once. A folder that git ignores contains everything: drawn programs
and kernels (`proposals.jsonl`, `texts/`), compiled kernels (`kernels.jsonl`, `cubins/`), and the archive to be transferred
(`carry/`).
"""

from __future__ import annotations

import gzip
import json
import os
import statistics
import subprocess
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import chain, islice
from pathlib import Path
from typing import Any

from agents.runs.files import make_folder
from agents.runs.journal import Journal, read_rows
from agents.runs.settings import ROOT
from experiments.device.archive import networks
from experiments.device.archive.arms import SEEN, Arm, Study, proposed, read_study
from experiments.device.archive.packed import (
    ABOUT,
    FOLDER,
    PROPOSALS,
    VARIANT,
    described,
    kernel_of,
    write_part,
)
from experiments.device.stages import families
from experiments.device.stages.operators import candidates
from experiments.device.table import read_operators
from experiments.device.work.progress import say
from gensor_gym import hardware
from gensor_gym.codegen.build import VARIANTS, generate_variant
from gensor_gym.codegen.cuda import nvrtc
from gensor_gym.codegen.kernel import Kernel
from gensor_gym.construction import ConstructionGraph
from gensor_gym.files import write_whole
from gensor_gym.graph.schedule import Schedule
from gensor_gym.hardware.types import Hardware
from gensor_gym.measure.measurement import Status
from gensor_gym.measure.native import make_kernel
from gensor_gym.measure.workers.builders import CompileFailed
from gensor_gym.measure.workers.compile_pool import CompilePool
from gensor_gym.operators.types import Operator

# The fastest programs that a device timed on earlier days, by operator, to detect regressions of a search.

RESULTS = ROOT / "results"
CARDS = ("h100", "h200")
"""Folders of results, one for each GPU; programs that one GPU timed are tried on the other."""
TABLES = ("recorded", "recorded_tensor", "recorded_test", "trials", "known_trials", "headline", "results", "policies")
"""Names of files that have one row for each trial."""
FIRST_DAY = "libraries_after_mends"
"""Name of the first day's file; its row for an operator has a list of (schedule, note, microseconds)."""
LISTS = ("operators",)
"""Names of files that have one row for each operator, with a list of its trials."""


def fastest(op: Operator, hw: Hardware, count: int) -> list[Schedule]:
    """Return the fastest legal programs that a GPU timed on earlier days, fastest first, at most `count`."""
    timed, graph = _timed().get(str(op), {}), ConstructionGraph(op, hw, "extended")
    programs = map(Schedule.parse, sorted(timed, key=timed.__getitem__))
    return list(islice(filter(graph.is_legal, programs), count))


def operators_timed(results: Path = RESULTS) -> set[str]:
    """Return the operators of the study whose winners were timed together on an earlier day."""
    paths = [path for card in CARDS for path in sorted((results / card / "raw").glob("*/together.jsonl.gz"))]
    return {row["operator"] for path in paths for row in read_rows(path) if "samples" in row}


@cache
def _timed() -> dict[str, dict[str, float]]:
    """Return, by operator and schedule, the least seconds that were measured on earlier days."""
    found: dict[str, dict[str, float]] = defaultdict(dict)
    for card in CARDS:
        for path in sorted((RESULTS / card / "raw").rglob("*.jsonl.gz")):
            for operator, schedule, seconds in _trials(path):
                found[operator][schedule] = min(seconds, found[operator].get(schedule, seconds))
    return found


def _trials(path: Path) -> Iterator[tuple[str, str, float]]:
    """Yield (operator, schedule, seconds) of the successful trials in a file; nothing for a file without trials."""
    name = path.name.removesuffix(".jsonl.gz")
    if name == FIRST_DAY:
        for row in read_rows(path):
            yield from ((row["operator"], text, 1e-6 * us) for text, said, us in row["rows"] if us and said.startswith("ok"))
    for row in read_rows(path) if name in (*TABLES, *LISTS) else []:
        for trial in row.get("trials", [row]) if name in LISTS else [row]:
            seconds = statistics.median_high(trial["samples"]) if trial.get("samples") else trial.get("seconds")
            plain = trial.get("schedule") and VARIANT not in trial
            if trial.get("status") == Status.OK.value and plain and seconds is not None:
                yield row["operator"], trial["schedule"], seconds


PART = 600
"""Number of kernels in a part of the archive: compressed together they take a sixth of their separate size."""
GROUPS = ("never_run", "known", "study", "networks")
"""Groups of proposals, in the order in which they are built."""
KNOWN, CHOICES = 3, 6
"""Numbers of programs of each operator of conf/bench/gpu.yaml: from earlier days, and of today's first choices."""
SAID = 24
"""Number of searches, or of compiled kernels, between two lines about progress."""
CARD = "card.json"
"""File whose existence says that a training checkpoint is complete."""
_SECONDS = 20.0
"""Time limit of one compilation, in seconds."""


class Building:
    """Folder in which an archive is made, with its journals of proposals and compiled kernels."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.cubins, self.texts = folder, folder / "cubins", folder / "texts"
        self.cubins.mkdir(parents=True, exist_ok=True)
        self.texts.mkdir(exist_ok=True)
        self.proposals = Journal(folder / "proposals.jsonl")
        self.kernels = Journal(folder / "kernels.jsonl", ("digest",))

    def keep(self, kernel: Kernel) -> None:
        """Write a drawn kernel to a file, from which it is compiled later; do nothing if it is compiled already."""
        path = self.texts / f"{kernel.digest}.json"
        if kernel.digest not in self.kernels.rows and not path.exists():
            write_whole(path, json.dumps({**described(kernel), "source": kernel.source}).encode())

    def missing(self) -> list[dict[str, Any]]:
        """Return the kernels that were drawn and not compiled yet, in the order of their proposals."""
        drawn = dict.fromkeys(row["digest"] for row in self.proposals if row.get("digest"))
        paths = [self.texts / f"{digest}.json" for digest in drawn if digest not in self.kernels.rows]
        return [json.loads(path.read_text(encoding="utf-8")) for path in paths if path.exists()]

    def compile(self, size: int) -> None:
        """Compile the missing kernels in `size` parallel processes and record them."""
        pool, rows = CompilePool(size, seconds=_SECONDS), self.missing()
        threads = ThreadPoolExecutor(size)
        try:
            for number, done in enumerate(threads.map(lambda row: self._compiled(pool, row), rows), 1):
                self.kernels.add(done)
                if number % SAID == 0:
                    say(f"{number} of {len(rows)} kernels compiled")
        finally:
            threads.shutdown(wait=False, cancel_futures=True)
            pool.close()

    def _compiled(self, pool: CompilePool, text: Mapping[str, Any]) -> dict[str, Any]:
        """Compile one kernel into the folder and return its row; after a failure the row has the compiler's message."""
        kernel, row = kernel_of(text), {name: value for name, value in text.items() if name != "source"}
        try:
            pool(kernel)
        except CompileFailed as error:
            failed = {"status": Status.COMPILE_ERROR.value, "error": str(error)[-600:]}
            return {"digest": kernel.digest, "operator": row["operator"], **failed}
        found = nvrtc.compile_cubin(kernel)  # from the cache that the compiler's process filled
        write_whole(self.cubins / f"{kernel.digest}.cubin", found.cubin)
        said = {"registers": found.registers, "spill_bytes": found.spill_bytes, "bytes": len(found.cubin)}
        return {**row, "status": "", "error": "", **said}

    def close(self) -> None:
        """Close the journals, so that other processes can write."""
        self.proposals.close()
        self.kernels.close()

    def pack(self) -> dict[str, Any]:
        """Write the archive and return its description; full parts stay as they are, so that packing again is quick."""
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
        timed, seen = operators_timed(), {row["operator"] for row in self.proposals if row.get(SEEN)}
        lines = [_with_status(row, self.kernels.rows) for row in self.proposals if row.get("arm")]
        # A lease continues where the previous lease ended. Operators that do not count come last.
        lines.sort(key=lambda row: (row["operator"] in seen, row["operator"] in timed))
        write_whole(carry / PROPOSALS, gzip.compress("".join(json.dumps(row) + "\n" for row in lines).encode(), mtime=0))
        about = {
            "revision": _revision(), "compiler": f"nvrtc {nvrtc.version()}", "date": time.strftime("%Y-%m-%d", time.gmtime()),
            "kernels": len(good), "proposals": len(lines),
            "operators": len({row["operator"] for row in lines}),
        }  # fmt: skip
        write_whole(carry / ABOUT, (json.dumps(about, indent=1) + "\n").encode())
        size = sum(path.stat().st_size for path in carry.iterdir())
        say(f"{len(good)} kernels of {about['operators']} operators in {size / 2**20:.1f} MiB: {carry}")
        return about


def _with_status(row: dict[str, Any], kernels: dict[Any, dict[str, Any]]) -> dict[str, Any]:
    found = kernels.get(row["digest"], {})
    return row if row["status"] or not found.get("status") else {**row, "status": found["status"], "error": found["error"]}


def _revision() -> str:
    """Return git's revision of the working tree, with a plus if it has changes."""
    command = ["git", "-C", str(ROOT), "describe", "--always", "--abbrev=40", "--dirty=+", "--exclude=*"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def study_jobs(study: Study) -> Iterator[tuple[str, Arm, int]]:
    """Yield (operator, arm, number of kernels) for each search of the study, in the order of timing.

    All arms of an operator come together, so that a run that ends early has whole operators.
    """
    for place, operator in enumerate(study.operators):
        for arm in study.arms:
            yield operator, arm, study.wanted(place)


def build(folder: Path = FOLDER, size: int | None = None, groups: tuple[str, ...] = GROUPS) -> None:
    """Draw and compile the programs that the archive lacks, in the given groups, and pack the archive.

    An arm whose checkpoint does not exist yet is left for the next call.
    """
    os.environ.setdefault("GENSOR_GYM_THREADS", "1")
    study, building = read_study(), Building(folder)
    try:
        if "never_run" in groups:
            _never_run(building, study.hardware)
        if "known" in groups:
            _known(building, study.hardware)
        if "study" in groups:
            _study(building, study)
        if "networks" in groups and not networks.is_of(make_folder(folder / "carry"), _revision()):
            networks.draw(study.hardware, folder / "carry", _revision())
        building.compile(size or len(os.sched_getaffinity(0)))
        building.pack()
    finally:
        building.close()


def _study(building: Building, study: Study) -> None:
    jobs = [job for job in study_jobs(study) if _key(*job[:2]) not in building.proposals.rows]
    for number, (operator, arm, count) in enumerate(jobs):
        checkpoint = arm.hyperparameters.get("checkpoint")
        if checkpoint and not (ROOT / str(checkpoint) / CARD).exists():
            continue
        found = proposed(operator, arm, study.hardware, count)
        for _, kernel in found:
            if kernel is not None:
                building.keep(kernel)
        building.proposals.add(*({"key": f"{_key(operator, arm)} {row['rank']}", **row} for row, _ in found))
        building.proposals.add({"key": _key(operator, arm)})
        if number % SAID == 0:
            say(f"{number} of {len(jobs)} searches")


def _key(operator: str, arm: Arm) -> str:
    """Return the key under which the proposals of an arm for an operator are recorded as complete."""
    return f"{operator} {arm.name}/{arm.seed}"


def _never_run(building: Building, machine: str) -> None:
    """Draw kernels of kinds that no device has run, for the stage that verifies them (`first_contact`)."""
    if "never_run" in building.proposals.rows:
        return
    for number, (operator, schedule, kernel) in enumerate(families.never_run(machine, 0), 1):
        _put(building, "never_run", operator, schedule, kernel, ("never_run", number))
    building.proposals.add({"key": "never_run"})


def _known(building: Building, machine: str) -> None:
    """Draw programs of operators that a device timed before: the fastest of earlier days, and the first candidates now.

    The first `CHOICES` of those with other kernels (`VARIANTS`) come again, each variant as an arm of its own.
    """
    hw = hardware.get(machine)
    for op in read_operators().values():
        if f"known {op}" not in building.proposals.rows:
            arms = {"known": fastest(op, hw, KNOWN), "candidates": candidates(op, hw, 0)[:CHOICES]}
            for arm, schedules in arms.items():
                for rank, schedule in enumerate(schedules, 1):
                    made = make_kernel(op, schedule, hw)
                    if isinstance(made, Kernel):
                        _put(building, "known", str(op), schedule, made, (arm, rank))
            for variant in VARIANTS:
                found = dict[str, tuple[Schedule, Kernel]]()
                for one in chain.from_iterable(arms.values()):
                    if (kernel := generate_variant(op, one, hw, variant)) is not None:
                        found.setdefault(kernel.digest, (one, kernel))
                for rank, (schedule, kernel) in enumerate(islice(found.values(), CHOICES), 1):
                    _put(building, "known", str(op), schedule, kernel, (variant, rank))
            building.proposals.add({"key": f"known {op}"})


def _put(building: Building, group: str, operator: str, schedule: Schedule, kernel: Kernel, place: tuple[str, int]) -> None:
    """Add a program that no strategy of the study proposed, with its kernel, to the archive.

    `place` is (name, rank). The name is kept in the field `arm`, which for other programs is the strategy.
    """
    building.keep(kernel)
    about = {"group": group, "operator": operator, "arm": place[0], "seed": 0, "rank": place[1], "schedule": str(schedule)}
    said = {"digest": kernel.digest, "status": "", "error": "", "construct_s": 0.0, "evaluations": 0}
    building.proposals.add({"key": f"{group} {operator} {place[0]} {place[1]}", **about, **said})
