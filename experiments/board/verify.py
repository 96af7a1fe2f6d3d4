"""Compute replay files again: `python -m experiments.verify FILE_OR_FOLDER..`, by default all of the leaderboard.

This is the command; the check of a file is `replay_file.verify_file`. The first byte that differs is named with its step, what
was expected and what was found, and the exit status is 1. With `--search` the search of a registered strategy is made again as
well: actions and what it spent must come out the same.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from experiments.board.replay_file import Difference, Verified, compare_texts, verify_file
from experiments.board.submit import FOLDER, Entrant, play
from experiments.board.suite import PARTS, SuiteTask
from experiments.commands.parser import Parser
from experiments.commands.refusal import CODE, one_line
from gensor_gym.measure.session import Budget


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; returns the exit status: 1 where a file is not true, or there is none; 2 where one does not read."""
    parser = Parser(prog="python -m experiments.verify", description="Compute replay files again.")
    parser.add_argument("paths", nargs="*", type=Path, default=[FOLDER], help="files, or folders of files *.jsonl")
    parser.add_argument("--search", action="store_true", help="make the searches of strategies again, too")
    args = parser.parse_args(arguments)
    failed, unreadable = 0, False
    files = replay_files(args.paths)
    for path in files:
        try:
            verified = verify_file(path)
            if args.search:
                search_again(path, verified)
        except ValueError as error:
            print(one_line(error), file=sys.stderr, flush=True)
            failed, unreadable = failed + 1, unreadable or not isinstance(error, Difference)
            continue
        outcome = verified.outcome
        print(f"verified {path}: {outcome.steps} steps, {outcome.status}, {outcome.seconds * 1e6:.3f} us", flush=True)
    print(f"{len(files) - failed} of {len(files)} files verified")
    return CODE if unreadable else 1 if failed or not files else 0


def replay_files(paths: Iterable[Path]) -> list[Path]:
    """Files as they are, and those named *.jsonl below folders, in the order of their names."""
    return [file for path in paths for file in (sorted(path.rglob("*.jsonl")) if path.is_dir() else [path])]


def search_again(path: Path, verified: Verified) -> None:
    """Search anew as the header says; Difference where another file comes of it. A policy's file is left alone."""
    header = verified.header
    agent, arguments = header["agent"], header["arguments"]
    if agent["strategy"] is None:
        return
    task = SuiteTask(**{part: arguments[part] for part in PARTS})
    try:
        entrant = Entrant(agent["name"], agent["strategy"], None, agent["settings"], arguments.get("observation", "flat"))
        text = play(entrant, task, header["seed"], Budget(**header["budget"]))
        compare_texts(text, path.read_text(encoding="utf-8"))
    except (TypeError, RuntimeError) as error:
        raise ValueError(f"{path}, searched again: {error}") from error
    except Difference as error:
        raise Difference(f"{path}, searched again: {error}") from error
