"""Make a table of Measured v1 from the trials of a run on a GPU.

The shipped table: python -m experiments.evidence.measured results/h200/raw/2026-11-27 h200
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from agents.cli.parser import Parser
from agents.recording.pack import write
from agents.runs.journal import Row, read_rows
from gensor_gym import hardware, operators
from gensor_gym.hardware.described import FILE, to_json
from gensor_gym.measure.records.measured import FOLDER

FIRST_ARM = "markov_ext"
"""Arm (strategy) to which a program is attributed if several arms proposed it."""


def rows_of(folder: Path) -> Iterator[Row]:
    """Yield the study's trials of a GPU run as rows of `gensor collect`, with ranks from 0.

    `folder` has the raw rows. A program's second timing comes from the interleaved rounds, which timed only an operator's
    winners.
    """
    origins: dict[tuple[str, str], tuple[bool, int, str]] = {}
    for row in read_rows(folder / "proposals.jsonl.gz"):
        key, own = (row["operator"], row["digest"]), (row["arm"] != FIRST_ARM, row["rank"], row["arm"])
        origins[key] = min(own, origins.get(key, own))
    trials = [row for row in read_rows(folder / "trials.jsonl.gz") if row["group"] == "study"]
    for row in trials:
        _, rank, arm = origins[row["operator"], row["digest"]]
        yield _line(row, row["status"], row["samples"], {"origin": arm, "rank": rank - 1, "pass": 0})
    timed = {(row["operator"], row["digest"]): row for row in trials}
    for again in read_rows(folder / "together.jsonl.gz"):
        for digest, samples in (again.get("samples") or {}).items():
            if (first := timed.get((again["operator"], digest))) is not None:
                yield _line(first, first["status"], samples, {"pass": 1})


def _line(row: Row, status: str, samples: Sequence[float], more: Row) -> Row:
    return {
        "part": operators.part_of(operators.parse(row["operator"])), "operator": row["operator"], "schedule": row["schedule"],
        "digest": row["digest"], "status": status, "samples": samples, "others": 0.0,
        "compile_s": row["conditions"].get("compile_seconds", 0.0), **more,
    }  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the table of Measured v1, the machine's description and the data card; return the exit status."""
    parser = Parser(prog="python -m experiments.evidence.measured", description="Make a table of Measured v1 from a lease.")
    parser.add_argument("folder", type=Path, help="folder of a lease's raw rows")
    parser.add_argument("machine", choices=hardware.names(), help="the card's name in gensor_gym.hardware")
    parser.add_argument("--output", type=Path, default=FOLDER)
    args = parser.parse_args(arguments)
    (args.output / FILE).write_text(to_json(hardware.get(args.machine)), encoding="utf-8")
    day = args.folder.name
    how = (
        f"timed on {day} in a lease (`python3 -m experiments.gpu plan=lease`). Every program was verified against a reference "
        "that the device computed, and timed by CUDA events"
    )
    found = write(list(rows_of(args.folder)), args.output, args.machine, how)
    (args.output / FILE).unlink()
    print(f"{len(found):,} programs of {found.operator.nunique()} operators in {args.output / args.machine}.parquet")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
