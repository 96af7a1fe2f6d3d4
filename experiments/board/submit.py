"""Play the leaderboard's tasks: `python -m experiments.submit markov roller`, or `--policy MODULE:FUNCTION --name NAME`.

One replay file per task is written, results/leaderboard/NAME/TASK.jsonl, as soon as it is there. What has been played
already, by the same agent with the same settings on a task of the same fingerprint, is not played again: a run that was
ended goes on where it was.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from agents.optimize import run
from agents.strategy import Strategy, get_strategy
from experiments.board import entries
from experiments.board.replay_file import VERSION, Recorder, fingerprint_of, record
from experiments.board.submitted import check_name, load_function
from experiments.board.suite import SUITE, SuiteTask, read_suite
from experiments.commands.parser import Parser
from experiments.commands.refusal import exit_code
from experiments.common.folders import make_folder
from experiments.common.results import write_text
from experiments.common.settings import ROOT
from gensor_gym.env import CONSTRUCT
from gensor_gym.exact.paths import actions_to
from gensor_gym.foreign import parse_json, read_text
from gensor_gym.graph.actions import CACHE, NUM_ACTIONS, STOP, UNCACHE
from gensor_gym.measure.session import Budget, Session, Task

FOLDER = ROOT / "results" / "leaderboard"
SAME_PROGRAM = (STOP, CACHE, UNCACHE)
"""Actions that lead to no other program."""
Policy = Callable[[Any, np.ndarray, np.random.Generator], int]
"""(observation, legal actions bool [N], random numbers) -> action."""


@dataclass(frozen=True)
class Entrant:
    """Who plays: a registered strategy, or a policy given as MODULE:FUNCTION; `observation` is what a policy sees."""

    name: str
    strategy: str | None = None
    policy: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    observation: str = "flat"

    def __post_init__(self) -> None:
        """ValueError for a name that is no folder's, or for both or neither of strategy and policy."""
        check_name(self.name)
        if (self.strategy is None) == (self.policy is None):
            raise ValueError(f"{self.name}: expected a strategy or a policy, one of the two")

    def searcher(self, space: str) -> Strategy:
        """The strategy, in a task's space. ValueError for unknown settings."""
        return get_strategy(str(self.strategy), **{**self.settings, "space": space})

    def all_settings(self, space: str) -> dict[str, Any]:
        """Settings as JSON has them, of a strategy those at their default too, without the space."""
        if self.strategy is None:
            return dict(self.settings)
        chosen: Any = self.searcher(space)
        plain = json.loads(json.dumps(dataclasses.asdict(chosen)))
        return {name: value for name, value in plain.items() if name != "space"}

    def header(self, task: SuiteTask, seed: int, budget: Budget) -> dict[str, Any]:
        """The header of its replay file, but for what it will have spent."""
        seen = {} if self.observation == "flat" else {"observation": self.observation}
        agent = {"name": self.name, "strategy": self.strategy, "policy": self.policy, "settings": self.all_settings(task.space)}
        return {
            "replay": VERSION,
            "id": CONSTRUCT,
            "arguments": task.arguments | seen,
            "fingerprint": fingerprint_of(task.arguments),
            "seed": seed,
            "agent": agent,
            "budget": dataclasses.asdict(budget) if self.strategy is not None else None,
        }


def play(entrant: Entrant, task: SuiteTask, seed: int, budget: Budget) -> str:
    """The text of a replay file. RuntimeError where a search finds no program."""
    header = entrant.header(task, seed, budget)
    if entrant.strategy is not None:
        return _searched(header, task, entrant, seed, budget)
    assert entrant.policy is not None
    return played(header, load_function(entrant.policy), seed)


def _searched(header: dict[str, Any], task: SuiteTask, entrant: Entrant, seed: int, budget: Budget) -> str:
    """Search, then take the shortest way to the best program."""
    session = Session(Task.of(task.operator, task.hardware, task.backend, task.space), budget)
    run(entrant.searcher(task.space), session, seed)
    if session.best is None:
        statuses = sorted({row.status for row in session.trace})
        raise RuntimeError(f"{entrant.name} found no program of {task.operator} in {session.trials} trials: {statuses}")
    spent = {"evaluations": session.evaluations, "trials": session.trials}
    return record(header | spent, [*actions_to(session.graph, session.best[0]), STOP])


def played(header: Mapping[str, Any], policy: Policy, seed: int) -> str:
    """An episode of a policy.

    What it sees of the model counts: of every observation of a running episode the program itself, and where it shows
    successors, each that is another program.
    """
    recorder = Recorder({**header, "evaluations": 0, "trials": 1})
    rng = np.random.default_rng(seed)
    taken: list[int] = []
    ahead, evaluations = header["arguments"].get("observation") == "successors", 0
    while recorder.outcome is None:
        legal = recorder.info["action_mask"].astype(bool)
        evaluations += 1 + (int(np.delete(legal, SAME_PROGRAM).sum()) if ahead else 0)
        action = int(policy(recorder.observation, legal, rng))
        if not 0 <= action < NUM_ACTIONS:
            raise ValueError(f"policy gave action {action} in step {len(taken) + 1}: expected 0 to {NUM_ACTIONS - 1}")
        recorder.step(action)
        taken.append(action)
    return record({**header, "evaluations": evaluations, "trials": 1}, taken)


def is_played(path: Path, header: Mapping[str, Any]) -> bool:
    """Whether a file of this header is there. Files are written at once, so what is there is whole."""
    if not path.exists():
        return False
    try:
        found = parse_json(read_text(path).partition("\n")[0])
    except ValueError:
        return False
    return isinstance(found, dict) and all(found.get(name) == value for name, value in header.items())


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; returns the exit status: 1 where a task was not played, 2 for what is not as expected."""
    args = _parser().parse_args(arguments)
    return exit_code(lambda: _submit(args))


def _submit(args: argparse.Namespace) -> int:
    """Play all tasks; 1 where one was not played."""
    if args.seed < 0:
        raise ValueError(f"--seed {args.seed}: expected a whole number, 0 or more")
    if args.frozen:
        output = args.output if args.output != FOLDER else entries.FOLDER
        return entries.submit(args.frozen, _frozen_entrants(args), make_folder(output), args.track or [], args.seeds)
    suite, entrants = read_suite(args.suite), _entrants(args)
    make_folder(args.output)
    played = [_put(args, entrant, task, suite.budget) for entrant in entrants for task in suite.tasks]
    return 0 if all(played) else 1


def _put(args: argparse.Namespace, entrant: Entrant, task: SuiteTask, budget: Budget) -> bool:
    """Play one task and write its file; whether it is there."""
    path = args.output / entrant.name / f"{task.name}.jsonl"
    if not args.again and is_played(path, entrant.header(task, args.seed, budget)):
        print(f"there: {path}")
        return True
    try:
        write_text(path, play(entrant, task, args.seed, budget))
    except RuntimeError as error:
        print(error, file=sys.stderr, flush=True)
        return False
    print(f"wrote {path}", flush=True)
    return True


def _entrants(args: argparse.Namespace) -> list[Entrant]:
    """Those of the command line; ValueError where they do not fit together."""
    settings = dict(_setting(text) for text in args.set)
    if args.policy is not None:
        if args.strategies or args.name is None or settings:
            raise ValueError("--policy takes a --name, and neither strategies nor --set beside it")
        return [Entrant(args.name, policy=args.policy, observation=args.observation)]
    if not args.strategies or (len(args.strategies) > 1 and (settings or args.name)) or (settings and not args.name):
        raise ValueError("expected strategies, or one strategy with --name (which --set needs), or --policy with --name")
    return [Entrant(args.name or strategy, strategy=strategy, settings=settings) for strategy in args.strategies]


def _frozen_entrants(args: argparse.Namespace) -> list[entries.Entrant]:
    """Those of the command line for a frozen suite; ValueError where they do not fit together."""
    settings = dict(_setting(text) for text in args.set)
    who = [*args.strategies, *([args.agent] if args.agent else [])]
    if args.policy or not who or (len(who) > 1 and (settings or args.name)) or ((settings or args.agent) and not args.name):
        raise ValueError("expected strategies, or one strategy or --agent with --name (which --set and --agent need)")
    return [entries.Entrant(args.name or strategy, strategy, settings) for strategy in who]


def _setting(text: str) -> tuple[str, Any]:
    """NAME=VALUE, the value as JSON or else as text."""
    name, equals, value = text.partition("=")
    if not equals:
        raise ValueError(f"--set {text!r}: expected NAME=VALUE")
    try:
        return name, parse_json(value)
    except ValueError:
        return name, value


def _parser() -> argparse.ArgumentParser:
    """Arguments of the command."""
    parser = Parser(prog="python -m experiments.submit", description="Play the tasks of the leaderboard.")
    parser.add_argument("strategies", nargs="*", help="registered strategies: markov, roller, ..")
    parser.add_argument("--policy", metavar="MODULE:FUNCTION", help="(observation, legal actions, random numbers) -> action")
    parser.add_argument("--observation", default="flat", help="what a policy sees: flat, dict or successors")
    parser.add_argument("--name", help="under which it is listed; default: the strategy's")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a setting of the strategy")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--suite", type=Path, default=SUITE)
    parser.add_argument("--frozen", metavar="VERSION", help="search the tracks of a frozen suite, such as v1, instead")
    parser.add_argument("--track", action="append", help="of the frozen suite; default: all that are of searches")
    parser.add_argument("--seeds", type=int, help="the first so many of the frozen suite alone")
    parser.add_argument(
        "--agent", metavar="FILE.py:FUNCTION", help="(session, random numbers) -> nothing, which searches the frozen suite"
    )
    parser.add_argument("--output", type=Path, default=FOLDER)
    parser.add_argument("--again", action="store_true", help="play what is there, too")
    return parser
