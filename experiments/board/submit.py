"""Search the tasks of a frozen suite: `python -m experiments submit markov`, or `--agent FILE.py:FUNCTION --name NAME`.

An entry is a file for each track, results/suite/VERSION/NAME/TRACK.jsonl (`entries`). An interrupted run resumes.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agents.cli.parser import Parser
from agents.cli.refusal import exit_code
from agents.runs.files import make_folder
from experiments.board.entries import FOLDER, Entrant, submit
from gensor_gym.foreign import parse_json


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return the exit status, 2 for a bad argument or file."""
    args = _parser().parse_args(arguments)
    return exit_code(lambda: submit(args.frozen, _entrants(args), make_folder(args.output), args.track or [], args.seeds))


def _entrants(args: argparse.Namespace) -> list[Entrant]:
    """Return the agents that the command line names; raise ValueError if its options conflict."""
    settings = dict(_setting(text) for text in args.set)
    who = [*args.strategies, *([args.agent] if args.agent else [])]
    if not who or (len(who) > 1 and (settings or args.name)) or ((settings or args.agent) and not args.name):
        raise ValueError("expected strategies, or one strategy or --agent with --name (which --set and --agent need)")
    return [Entrant(args.name or strategy, strategy, settings) for strategy in who]


def _setting(text: str) -> tuple[str, Any]:
    """Split NAME=VALUE into (name, value); the value is read as JSON, or stays text if it is not JSON."""
    name, equals, value = text.partition("=")
    if not equals:
        raise ValueError(f"--set {text!r}: expected NAME=VALUE")
    try:
        return name, parse_json(value)
    except ValueError:
        return name, value


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog="python -m experiments submit", description="Search the tasks of a frozen suite.")
    parser.add_argument("strategies", nargs="*", help="registered strategies: markov, roller, ..")
    parser.add_argument("--agent", metavar="FILE.py:FUNCTION", help="(session, random numbers) -> nothing, which searches")
    parser.add_argument("--name", help="under which it is listed; default: the strategy's")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a setting of the strategy")
    parser.add_argument("--frozen", default="v1", metavar="VERSION", help="of the suite")
    parser.add_argument("--track", action="append", help="of the suite; default: all that are of searches")
    parser.add_argument("--seeds", type=int, help="the first so many of the suite alone")
    parser.add_argument("--output", type=Path, default=FOLDER)
    return parser
