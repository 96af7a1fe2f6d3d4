"""Plant changes and see fingerprints follow: `python -m experiments.planted [--seconds 0.2] [--only NAME ..]`.

Each change is made in a copy of `gensor_gym`, where the shipped certificates that took at most `--seconds` are found
anew. A fingerprint must change with every certificate that does, in its method, schedule, number of optima or candidates, or
in its latency to six digits, which is all that a fingerprint sees of one. None may change where nothing of a task did.
Numba compiles every copy, about two minutes each; what is done stands in results/fingerprints/planted.jsonl and is not
done again. The table is results/fingerprints/planted.md.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from experiments.certification.check_certificates import parts_of
from experiments.commands.parser import Parser
from experiments.common.journal import Journal
from experiments.common.pool import ONE_THREAD
from experiments.common.results import write_text
from experiments.planted import worker
from experiments.planted.changes import BEHAVIOUR, NOTHING, Change
from gensor_gym.construction import ConstructionGraph
from gensor_gym.exact import Certificate, read_certificates
from gensor_gym.exact.shipped import folder
from gensor_gym.fingerprint import fingerprint
from gensor_gym.registry import near

PACKAGE = Path(__file__).resolve().parents[2] / "gensor_gym"
OUTPUT = PACKAGE.parent / "results" / "fingerprints"


@dataclass(frozen=True)
class Outcome:
    """What came of a change, in numbers of tasks."""

    change: str
    behaviour: bool
    """Whether it is one of rules or model."""
    tasks: int
    certificates: int
    """Those whose certificate changed."""
    fingerprints: int
    """Those whose fingerprint changed."""
    missed: tuple[str, ...]
    """Operators whose certificate changed and whose fingerprint did not."""

    @property
    def right(self) -> bool:
        """Whether fingerprints followed."""
        return not self.missed and (self.behaviour or self.fingerprints == 0)


def outcome_of(change: Change, behaviour: bool, certificates: Sequence[Certificate], before: Sequence[str]) -> Outcome:
    """Plant one change; `before` holds the fingerprints of the tasks without it."""
    found = asked(change, certificates, behaviour)
    new = [row["fingerprint"] != old for row, old in zip(found, before, strict=True)]
    said = [[getattr(certificate, name) for name in worker.SAID] for certificate in certificates]
    moved = [behaviour and _seen(row["certificate"]) != _seen(old) for row, old in zip(found, said, strict=True)]
    missed = [c.operator for c, changed, seen in zip(certificates, moved, new, strict=True) if changed and not seen]
    return Outcome(change.name, behaviour, len(found), sum(moved), sum(new), tuple(missed))


def _seen(said: Sequence[Any] | None) -> list[Any] | None:
    """What a certificate says, its latency to six digits; None where there is no certificate."""
    if said is None:
        return None
    values = dict(zip(worker.SAID, said, strict=True))
    return [*{**values, "latency": f"{float.fromhex(values['latency']):.5e}"}.values()]


def asked(change: Change, certificates: Sequence[Certificate], certify: bool) -> list[dict[str, Any]]:
    """What a changed copy of the package says of every certificate's task; RuntimeError where it fails."""
    tasks = [[c.operator, c.hardware, *parts_of(c.space)] for c in certificates]
    with tempfile.TemporaryDirectory(prefix="planted-") as scratch:
        copy = Path(scratch) / "gensor_gym"
        shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__", "recordings"))
        change.plant(copy)
        environment = {
            **os.environ, **dict.fromkeys(ONE_THREAD, "1"), "PYTHONPATH": scratch, "NUMBA_CACHE_DIR": f"{scratch}/numba",
        }  # fmt: skip
        done = subprocess.run(
            [sys.executable, worker.__file__, *(["certify"] if certify else [])],
            input=json.dumps(tasks), capture_output=True, text=True, env=environment, check=False, cwd=scratch,
        )  # fmt: skip
    if done.returncode != 0:
        raise RuntimeError(f"change {change.name!r}, exit status {done.returncode}: {done.stderr.strip()[-2000:]}")
    return [json.loads(line) for line in done.stdout.splitlines()]


def page(outcomes: Sequence[Outcome]) -> str:
    """The table in Markdown."""
    lines = [
        "# Planted changes", "",
        "Each change is made in a copy of the package; `python -m experiments.planted`. Of the tasks of shipped certificates, "
        "those found in at most `--seconds`, all of space `gensor` on the model of an H200: "
        "how many certificates change (latencies to six digits), how many fingerprints do, how many of the former these miss.",
        "",
        "| change | tasks | certificates changed | fingerprints changed | missed |", "|---|---:|---:|---:|---:|",
    ]  # fmt: skip
    for behaviour, title in ((True, "of rules and model"), (False, "of nothing that a task does")):
        rows = [outcome for outcome in outcomes if outcome.behaviour is behaviour]
        lines.append(f"| **{len(rows)} {title}** | | | | |")
        for row in rows:
            certificates = str(row.certificates) if behaviour else "not asked"
            lines.append(f"| {row.change} | {row.tasks} | {certificates} | {row.fingerprints} | {len(row.missed)} |")
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; returns the exit status: 1 where a fingerprint did not follow."""
    parser = Parser(prog="python -m experiments.planted", description="See fingerprints follow changes.")
    parser.add_argument("--seconds", type=float, default=0.2, help="certificates that took at most so long")
    parser.add_argument("--only", nargs="*", help="names of changes; default: all")
    parser.add_argument("--output", type=Path, default=OUTPUT)
    args = parser.parse_args(arguments)
    named = {change.name for change in (*BEHAVIOUR, *NOTHING)}
    if unknown := set(args.only or ()) - named:
        parser.error(f"no changes {sorted(unknown)}; there are {sorted(named)}{near(unknown, named)}")
    certificates = [c for path in sorted(folder().glob("*.jsonl")) for c in read_certificates(path) if c.seconds <= args.seconds]
    if not certificates:
        parser.error(f"--seconds {args.seconds}: no certificate took at most so long; expected more")
    before = [fingerprint(ConstructionGraph(c.operator, c.hardware, parts_of(c.space)[0])) for c in certificates]
    journal, console = Journal(args.output / "planted.jsonl", ("change", "tasks")), Console()
    same = [row for row in journal if row["tasks"] == len(certificates)]  # others were made with other --seconds
    known = {row["change"]: Outcome(**row | {"missed": tuple(row["missed"])}) for row in same}
    for behaviour, changes in ((True, BEHAVIOUR), (False, NOTHING)):
        for change in changes:
            if change.name in known or (args.only and change.name not in args.only):
                continue
            with console.status(change.name):
                known[change.name] = outcome_of(change, behaviour, certificates, before)
            journal.add(asdict(known[change.name]))
            console.print(known[change.name], soft_wrap=True)
    write_text(args.output / "planted.md", page([known[c.name] for c in (*BEHAVIOUR, *NOTHING) if c.name in known]))
    console.print(f"The table is in {args.output / 'planted.md'}", soft_wrap=True)
    return 0 if all(outcome.right for outcome in known.values()) else 1


if __name__ == "__main__":
    raise SystemExit(main())
