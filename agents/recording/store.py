"""Stores of trials: `python -m experiments store list|export|import|merge|prune STORE ...`.

A store is the SQLite file that searches and recordings write (`store=` of the other commands). Trials are kept by kernel,
device and timing protocol; of two trials with equal keys the newer is kept, and lists the conditions of the other. `tuned`
names the store that `optimize(.., reuse=True)` writes and `gensor_gym.tuned` reads. Imported records are schedules and times,
checked before any is added and marked as foreign: a search does not use their times, and a program is built and verified here
before its first use. `--own` declares that you measured them on this machine.
"""

from __future__ import annotations

import argparse
import datetime
import math
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from agents.cli.parser import Parser
from agents.cli.refusal import exit_code
from agents.runs.sheets.cells import Given, count, seconds
from agents.runs.sheets.sheet import Sheet
from gensor_gym.measure.records.imported import checked
from gensor_gym.measure.records.store import GROUPS, Added, Group, Selection, Store
from gensor_gym.measure.records.tables import read_table, write_table
from gensor_gym.measure.records.tuned import tuned_path

DAY = 86400.0
TUNED = "tuned"
"""Name of this user's store of searches with `reuse=True`, in place of a path."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status, which is 2 for a refused request."""
    args = _parser().parse_args(arguments)
    if args.store == TUNED:
        args.store = str(tuned_path())
    return exit_code(lambda: args.run(args))


def _list(args: argparse.Namespace) -> None:
    by = tuple(args.by.split(","))
    groups = _existing(args.store).summary(by, _selection(args))
    rows = map(_cells, groups)
    total = f"{sum(group.trials for group in groups)} trials"
    Sheet.of(f"{total} in {args.store}", (*by, "trials", "OK", "best", "from", "to"), rows).show(Console())


def _export(args: argparse.Namespace) -> None:
    written = write_table(args.file, _existing(args.store).records(_selection(args)))
    print(f"{written} trials written to {args.file}")


def _import(args: argparse.Namespace) -> None:
    # every file is read and checked before the first trial is added
    tables = [(path, checked(read_table(path).records, path, args.own)) for path in args.file]
    for path, records in tables:
        print(f"{path}: {_words(Store(args.store).add(records))}")


def _merge(args: argparse.Namespace) -> None:
    """Add the trials of other stores to a store, those of every timing protocol."""
    stores = [_existing(path) for path in args.other]
    taken = [(store, checked(store.records(Selection()), str(store.path), args.own)) for store in stores]
    for store, records in taken:
        print(f"{store.path}: {_words(Store(args.store).add(records))}")


def _prune(args: argparse.Namespace) -> None:
    selection = _selection(args)
    if selection == Selection():
        raise ValueError("prune deletes what is selected: give --operator, --device, --protocol, --status or --older-than")
    store = _existing(args.store)
    chosen = sum(group.trials for group in store.summary(GROUPS, selection))
    if args.apply:
        print(f"{store.prune(selection)} trials deleted, {len(store)} left in {args.store}")
    else:
        print(f"{chosen} of {len(store)} trials would be deleted; --apply deletes them")


def _existing(path: str) -> Store:
    if not Path(path).is_file() or not Path(path).stat().st_size:  # SQLite would turn an empty file into a store
        raise ValueError(f"no store at {path}")
    return Store(path)


def _selection(args: argparse.Namespace) -> Selection:
    days = args.older_than
    if days is not None and not 0 <= days < math.inf:
        raise ValueError(f"--older-than {days}: expected days, 0 or more")
    before = None if days is None else time.time() - days * DAY
    return Selection(args.operator, args.device, args.protocol, args.status, before)


def _cells(group: Group) -> tuple[Given, ...]:
    counts = (count(group.trials), count(group.ok))
    return (*map(str, group.values), *counts, seconds(group.best), _date(group.first), _date(group.last))


def _date(seconds: float) -> str:
    try:
        return datetime.datetime.fromtimestamp(seconds).strftime("%Y-%m-%d %H:%M") if seconds else "unknown"
    except (ValueError, OverflowError, OSError):
        return "unknown"


def _words(added: Added) -> str:
    return f"{added.new} new, {added.replaced} replaced older ones, {added.kept} left out: newer or own ones are there"


def _parser() -> Parser:
    parser = Parser(
        prog="python -m experiments store", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    chosen, whose = _options(), Parser(add_help=False)
    whose.add_argument("--own", action="store_true", help="this machine measured them, for you: searches may answer from them")
    listing = commands.add_parser("list", parents=[chosen], help="count trials, with the best median of each group")
    listing.set_defaults(run=_list)
    listing.add_argument("store", metavar="STORE")
    listing.add_argument("--by", default=",".join(GROUPS), help="columns to count by (default: %(default)s)")
    export = commands.add_parser("export", parents=[chosen], help="write trials to JSON lines (.jsonl) or Parquet (.parquet)")
    export.set_defaults(run=_export)
    export.add_argument("store", metavar="STORE")
    export.add_argument("file", metavar="FILE")
    importing = commands.add_parser("import", parents=[whose], help="add trials of files (.jsonl, .parquet, .sqlite); newer win")
    importing.set_defaults(run=_import)
    importing.add_argument("store", metavar="STORE", help="made if it is not there")
    importing.add_argument("file", metavar="FILE", nargs="+")
    merge = commands.add_parser("merge", parents=[whose], help="add all trials of other stores; newer ones win")
    merge.set_defaults(run=_merge)
    merge.add_argument("store", metavar="INTO", help="made if it is not there")
    merge.add_argument("other", metavar="STORE", nargs="+")
    prune = commands.add_parser("prune", parents=[chosen], help="delete the trials selected (says how many without --apply)")
    prune.set_defaults(run=_prune)
    prune.add_argument("store", metavar="STORE")
    prune.add_argument("--apply", action="store_true", help="delete; there is no way back")
    return parser


def _options() -> Parser:
    options = Parser(add_help=False)
    group = options.add_argument_group("which trials (all that fit every option given)")
    group.add_argument("--operator", help="text of an operator, as `list` shows it")
    group.add_argument("--device", help="name of a device, as `list` shows it")
    group.add_argument("--protocol", type=int, help="version of the timing protocol")
    group.add_argument("--status", help="OK, CRASHED, ...")
    group.add_argument("--older-than", type=float, metavar="DAYS")
    return options
