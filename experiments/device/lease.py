"""A run on a GPU: `python3 -m experiments.gpu out=DIR deadline_s=575`.

`deadline_s` counts from the start of the command and covers everything. Stages work in a folder of this machine. All their
files are packed into DIR every half minute, so that a kill loses at most half a minute, and the same command resumes. Our own
code is compiled on some cores while precompiled kernels are timed.
"""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from agents.runs.files import make_folder
from agents.runs.journal import locked
from experiments.device.archive.packed import ABOUT, CARRY, PROPOSALS, add_file
from experiments.device.card import machine_card
from experiments.device.context import Context
from experiments.device.report import write_summary
from experiments.device.runner import DONE, Outcome, Stage, run_stages
from experiments.device.stages import STAGES, by_default
from experiments.device.work.progress import say
from gensor_gym.files import write_whole

EVERY = 30.0
"""Seconds between two packings of the results."""
PACKING = 6.0
"""Seconds kept at the end for the last packing."""
RESULTS, SUMMARIES, CARD = "results.tar.gz", ("summary.json", "summary.md"), "card.json"
_BEHIND = 5
"""Niceness (lower priority) of the processes that compile our own code."""
_CORES = 12
"""Number of cores on which our own code is compiled at first; the other cores are left to the timing."""


def run(out: Path, deadline_s: float, model: str, seed: int, names: Sequence[str] = ()) -> int:
    """Run the stages `names` within `deadline_s` seconds from now; return the exit status, 0 if every stage ended well.

    Without names, run all stages whose requirements are met (`stages.by_default`). Results are packed into the folder `out`.
    Raise ValueError if another process writes to `out`, or if `out` contains results of another GPU or archive.
    """
    with locked(make_folder(out)):
        return _run(out, deadline_s, model, seed, _chosen(names))


def _chosen(names: Sequence[str]) -> list[Stage]:
    """Return the stages with these names, which share the time evenly; without names, the default stages."""
    if names:
        return [replace(stage, weight=1.0, least=5.0) for stage in STAGES if stage.name in names]
    return [stage for stage in STAGES if stage.name in by_default((CARRY / ABOUT).exists())]


def _run(out: Path, deadline_s: float, model: str, seed: int, stages: Sequence[Stage]) -> int:
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="gensor-gym-lease-") as place:
        work, scratch = make_folder(Path(place) / "results"), make_folder(Path(place) / "scratch")
        card = {**machine_card(), **_about(), "model": model}
        before = restored(out / RESULTS, work, card)
        write_whole(work / CARD, (json.dumps(card, indent=1, default=str) + "\n").encode())
        say(f"{card['gpu']}, {card['cores']} cores; results go to {out.resolve()}")
        name = before.get("run") or time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        context = Context(str(work), str(scratch), name, deadline_s, model, seed)
        preparing = _prepare(work / "prepare.txt", model)
        packer = Packer(work, out)

        def ended(outcomes: list[Outcome]) -> None:
            write_summary(context, card, stages, outcomes, before.get("stages"))
            for last in outcomes[-1:]:
                now = time.monotonic() - begin
                say(f"== {now:.0f} s: {last.stage} {last.status} after {last.seconds:.1f} s {last.error[-300:]}")
            packer.now()

        try:
            ended([])
            outcomes = run_stages(stages, context, deadline_s - PACKING - (time.monotonic() - begin), ended)
        finally:
            preparing.kill()
            packer.stop()
        print((work / SUMMARIES[1]).read_text(encoding="utf-8"))
    say(f"{time.monotonic() - begin:.0f} s; take it home with: python -m experiments.evidence take FOLDER")
    return 0 if all(outcome.status == DONE for outcome in outcomes) else 1


def restored(file: Path, work: Path, card: Mapping[str, Any]) -> dict[str, Any]:
    """Unpack the results that an earlier call of this run packed into `file`; return that call's summary, {} for the first call.

    Raise ValueError if the earlier call used another GPU or another archive, because its rows would not be comparable.
    """
    if not file.exists():
        return {}
    found = read_results(file)
    then: dict[str, Any] = json.loads(found.pop(CARD))
    for what, first, now in (
        ("GPU", then["gpu"].get("name"), card["gpu"].get("name")),
        ("archive", then.get("archive", {}).get("revision"), card.get("archive", {}).get("revision")),
    ):  # fmt: skip
        if first != now:
            raise ValueError(f"{file} holds a run of {what} {first}, this one is of {now}: name another folder, out=FOLDER")
    for name, content in found.items():
        if Path(name).name == name and name != PROPOSALS:
            (work / name).write_bytes(content)
    return dict(json.loads(found.get(SUMMARIES[0], b"{}")))


def read_results(file: Path) -> dict[str, bytes]:
    """Read the results that a run packed into a file; return the contents of the files in it by name.

    Raise ValueError if the file cannot be read or was not packed by a run.
    """
    try:
        with tarfile.open(fileobj=io.BytesIO(file.read_bytes())) as tar:
            members = [(member.name, tar.extractfile(member)) for member in tar.getmembers()]
            found = {name: content.read() for name, content in members if content is not None}
    except (OSError, tarfile.TarError, EOFError) as error:
        raise ValueError(f"{file} does not read: {error}") from error
    if CARD not in found:
        raise ValueError(f"{file} has no {CARD}: expected what a run of `gensor gpu` packed")
    return found


def _about() -> dict[str, Any]:
    path = CARRY / ABOUT
    return {"archive": json.loads(path.read_text(encoding="utf-8"))} if path.exists() else {}


def _prepare(log: Path, model: str) -> subprocess.Popen[bytes]:
    """Start a process that compiles our own Python code with Numba on some cores, for the stages that need it; return it."""
    cores = sorted(os.sched_getaffinity(0))[-_CORES:]

    def step_back() -> None:
        os.sched_setaffinity(0, cores)
        os.nice(_BEHIND)

    command = [sys.executable, "-m", "experiments.device.prepare", "all", model]
    with log.open("wb") as words:
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=words, stderr=words, preexec_fn=step_back)


class Packer:
    """Thread that packs the results of a run into one file in another folder every `EVERY` seconds, each time as a whole."""

    def __init__(self, work: Path, out: Path) -> None:
        self._work, self._out = work, out
        self._packing, self._ending = threading.Lock(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="pack results", daemon=True)
        self._thread.start()

    def now(self) -> None:
        """Pack the results written so far into the file, and copy the summaries next to it."""
        with self._packing:
            write_whole(self._out / RESULTS, packed(self._work))
            for name in SUMMARIES:
                if (path := self._work / name).exists():
                    write_whole(self._out / name, path.read_bytes())

    def stop(self) -> None:
        """Stop the thread and pack for the last time."""
        self._ending.set()
        self._thread.join()
        self.now()

    def _run(self) -> None:
        """Pack every `EVERY` seconds; after an error, which is printed, packing goes on."""
        while not self._ending.wait(EVERY):
            try:
                self.now()
            except OSError as error:
                say(f"results are not packed: {error}")


def packed(work: Path) -> bytes:
    """Return a folder's files as a gzipped tar file, with the proposals of the archive, to which the result rows refer."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz", compresslevel=6) as tar:
        for path in sorted(path for path in work.rglob("*") if path.is_file() and not path.name.startswith(".")):
            add_file(tar, str(path.relative_to(work)), path.read_bytes())  # journals may grow meanwhile
        if (proposals := CARRY / PROPOSALS).exists():
            add_file(tar, PROPOSALS, proposals.read_bytes())
    return data.getvalue()
