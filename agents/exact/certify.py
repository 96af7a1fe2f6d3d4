"""Certify optima of the analytic model: `python -m experiments certify [operators ..] [--space gensor]`.

Operators are texts, ids, tables or splits, by default all named shapes except elementwise maps. Every certificate is written at
once, as a line of gensor_gym/data/certificates/HARDWARE_SPACE.jsonl. Tasks with a certificate under the current fingerprint are
skipped, so that an interrupted run resumes.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from agents.cli.parser import Parser
from gensor_gym import operators
from gensor_gym.construction import ConstructionGraph
from gensor_gym.exact import Certificate, append_certificate, certify, read_certificates
from gensor_gym.exact.optimum import ENUMERATED, MOST_NODES
from gensor_gym.exact.shipped import folder
from gensor_gym.fingerprint import fingerprint
from gensor_gym.graph.enumeration import count_schedules
from gensor_gym.operators.types import Operator

TABLES = ("roller", "gensor_table5", "autotvm", "ansor", "common", "smoke")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return the exit status: 1 if an optimum was not proved."""
    parser = _parser()
    args = parser.parse_args(arguments)
    if args.seconds is not None and not args.seconds > 0:
        parser.error(f"--seconds {args.seconds}: expected more than 0")
    path = Path(args.output) if args.output else folder() / f"{args.hardware}_{args.space}.jsonl"
    space = args.space if args.knobs is None else f"{args.space}({', '.join(args.knobs)})"
    done = {(c.key, c.fingerprint) for c in read_certificates(path)}
    try:
        graphs = [ConstructionGraph(op, args.hardware, args.space) for op in chosen(args.operators, args.kind)]
    except ValueError as error:
        parser.error(str(error))
    left = [g for g in graphs if ((str(g.operator), g.hardware.name, space), fingerprint(g)) not in done]
    left.sort(key=lambda graph: count_schedules(graph.tables.ints, graph.tables.sizes))
    print(f"{len(graphs) - len(left)} of {len(graphs)} tasks are certified in {path}")
    begin, failed = time.monotonic(), 0
    for graph in left:
        if args.seconds is not None and time.monotonic() - begin > args.seconds:
            print(f"{args.seconds} seconds are over: the same command goes on")
            break
        try:
            found = certify(graph, enumerate_up_to=args.enumerate, most_nodes=args.nodes, knobs=args.knobs)
        except ValueError as error:
            failed += 1
            print(error, file=sys.stderr, flush=True)
            continue
        append_certificate(path, found)
        print(line(found), flush=True)
    return 1 if failed else 0


def chosen(specs: Iterable[str], kinds: Sequence[str] = ()) -> list[Operator]:
    """Return the distinct operators that texts, ids, tables or splits name; by default all named shapes except maps.

    `kinds` keeps only operators with these names (gemm, conv2d, ..).
    """
    wanted = list(specs)
    found = dict.fromkeys(op for spec in wanted or TABLES for op in operators.resolve(spec))
    return [op for op in found if (op.name in kinds if kinds else wanted or op.name != "elementwise")]


def line(found: Certificate) -> str:
    """Return a certificate as one line of text."""
    ties = "?" if found.optima is None else found.optima
    return (
        f"{found.seconds:8.2f} s  {found.optimum * 1e6:10.3f} us  {ties:>6} optima  {found.visited:>11} nodes  "
        f"{found.candidates:.1e} candidates  {found.operator}"
    )


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog="python -m experiments certify", description="Certify optima of the model.")
    parser.add_argument("operators", nargs="*", help="texts, ids, tables or splits; default: all named shapes")
    parser.add_argument("--kind", nargs="*", default=[], help="operators of these names alone: gemm, conv2d, ..")
    parser.add_argument("--hardware", default="h200")
    parser.add_argument("--space", default="gensor")
    parser.add_argument("--knobs", nargs="*", help="knobs that may move, of those of the space; default: all of them")
    parser.add_argument("--output", help="file of certificates; default gensor_gym/data/certificates/HARDWARE_SPACE.jsonl")
    parser.add_argument("--enumerate", type=int, default=ENUMERATED, help="candidates up to which a space is enumerated")
    parser.add_argument("--nodes", type=int, default=MOST_NODES, help="nodes after which a search gives up")
    parser.add_argument("--seconds", type=float, help="begin no further task after so long")
    return parser
