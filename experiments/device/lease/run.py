"""One command of a lent GPU: `python3 -m experiments.gpu plan=lease out=DIR deadline_s=575`.

One clock counts from its start and everything is within it. Stages work in a folder of this machine; what they have written is
packed into DIR every half minute, as a whole, so that a kill at any second costs half a minute at most. Our own code is compiled
on some cores while kernels that were compiled beforehand are timed.
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
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from experiments.common.folders import make_folder
from experiments.device.card import machine_card
from experiments.device.context import Context
from experiments.device.lease.build import FOLDER
from experiments.device.lease.packed import ABOUT, PROPOSALS
from experiments.device.report import write_summary
from experiments.device.runner import DONE, Outcome, Stage, run_stages
from experiments.device.work.progress import say
from gensor_gym.files import write_whole

EVERY = 30.0
"""Seconds between two archives of the results."""
PACKING = 6.0
"""Seconds kept at the end for the last of them."""
RESULTS, SUMMARIES = "results.tar.gz", ("summary.json", "summary.md")
LARGEST = 16 << 20
"""Bytes of a file that comes home."""
_BEHIND = 5
"""Niceness of those who compile our own code."""
_CORES = 12
"""That compile our own code at first; the others belong to those who time."""


def _stage(name: str, weight: float, least: float = 5.0, folder: str = "lease.stages") -> Stage:
    """A stage by the name of its module; weights are seconds of a lease of 575."""
    return Stage(name, f"experiments.device.{folder}.{name}:run", weight, least)


STAGES = (
    _stage("first_contact", 12.0), _stage("study", 340.0), _stage("known", 40.0), _stage("environment", 80.0, 20.0),
    _stage("adaptive", 60.0, 20.0), _stage("fused", 30.0, 20.0, "stages"),
)  # fmt: skip


def some(names: Sequence[str]) -> tuple[Stage, ...]:
    """Stages of these names, each with an even share of the time: for a first look at a device."""
    return tuple(Stage(stage.name, stage.target, 1.0) for stage in STAGES if stage.name in names)


def run(out: Path, deadline_s: float, model: str, seed: int, names: Sequence[str] = (), all_of: Sequence[Stage] = STAGES) -> int:
    """All stages, or some by `names`, within so many seconds of now; the exit code, 0 where every stage ended well."""
    stages = some(names) if names else all_of
    begin = time.monotonic()
    make_folder(out)
    with tempfile.TemporaryDirectory(prefix="gensor-gym-lease-") as place:
        work, scratch = make_folder(Path(place) / "results"), make_folder(Path(place) / "scratch")
        card = {**machine_card(), **_about(), "model": model}
        write_whole(work / "card.json", (json.dumps(card, indent=1, default=str) + "\n").encode())
        say(f"{card['gpu']}, {card['cores']} cores; results go to {out.resolve()}")
        context = Context(str(work), str(scratch), time.strftime("%Y%m%dT%H%M%SZ", time.gmtime()), deadline_s, model, seed)
        preparing = _prepare(work / "prepare.txt", model)
        packer = Packer(work, out)

        def ended(outcomes: list[Outcome]) -> None:
            write_summary(context, card, stages, outcomes)
            for last in outcomes[-1:]:
                now = time.monotonic() - begin
                say(f"== {now:.0f} s: {last.stage} {last.status} after {last.seconds:.1f} s {last.error[-300:]}")
            packer.now()

        ended([])
        outcomes = run_stages(stages, context, deadline_s - PACKING - (time.monotonic() - begin), ended)
        preparing.kill()
        packer.stop()
        print((work / SUMMARIES[1]).read_text(encoding="utf-8"))
    say(f"{time.monotonic() - begin:.0f} s; take it home with: python -m experiments.evidence take FOLDER")
    return 0 if all(outcome.status == DONE for outcome in outcomes) else 1


def _about() -> dict[str, Any]:
    """What built the kernels: the revision does not travel otherwise. Empty without an archive."""
    path = FOLDER / "carry" / ABOUT
    return {"archive": json.loads(path.read_text(encoding="utf-8"))} if path.exists() else {}


def _prepare(log: Path, model: str) -> subprocess.Popen[bytes]:
    """Our own code is compiled in the background, on some cores, for the stages that need it."""
    cores = sorted(os.sched_getaffinity(0))[-_CORES:]

    def step_back() -> None:
        os.sched_setaffinity(0, cores)
        os.nice(_BEHIND)

    command = [sys.executable, "-m", "experiments.device.prepare", "lease", model]
    with log.open("wb") as words:
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=words, stderr=words, preexec_fn=step_back)


class Packer:
    """Packs a folder into one file of another, now and then, each time as a whole."""

    def __init__(self, work: Path, out: Path) -> None:
        """The thread begins."""
        self._work, self._out = work, out
        self._packing, self._ending = threading.Lock(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="pack results", daemon=True)
        self._thread.start()

    def now(self) -> None:
        """Pack what is there."""
        with self._packing:
            write_whole(self._out / RESULTS, packed(self._work))
            for name in SUMMARIES:
                if (path := self._work / name).exists():
                    write_whole(self._out / name, path.read_bytes())

    def stop(self) -> None:
        """Pack for the last time."""
        self._ending.set()
        self._thread.join()
        self.now()

    def _run(self) -> None:
        """In the thread: an error is said and the next turn tries again."""
        while not self._ending.wait(EVERY):
            try:
                self.now()
            except OSError as error:
                say(f"results are not packed: {error}")


def packed(work: Path) -> bytes:
    """A gzipped tar file of a folder's files, with the proposals that its rows are of."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz", compresslevel=6) as tar:
        for path in sorted(path for path in work.rglob("*") if path.is_file() and not path.name.startswith(".")):
            _add(tar, str(path.relative_to(work)), path.read_bytes())
        if (proposals := FOLDER / "carry" / PROPOSALS).exists():
            _add(tar, PROPOSALS, proposals.read_bytes())
    return data.getvalue()


def _add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    """A file as it is now: journals grow meanwhile."""
    info = tarfile.TarInfo(name)
    info.size = len(content)
    tar.addfile(info, io.BytesIO(content))
