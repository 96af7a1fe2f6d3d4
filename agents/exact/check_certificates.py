"""Check certificates: `python -m experiments check_certificates FILE.. [--samples 1000000] [--again 1]`.

Every certificate is checked by code that shares only rules and model with the search:
- the schedule is legal and the model predicts the certified seconds, to the last bit;
- a space of up to `--enumerate` candidates is enumerated, which is a proof;
- in a larger space, no program is faster among `--samples` random programs (half drawn evenly from all combinations, half by
  random walks) and coordinate descents from the best of them. That is evidence, not proof.

With `--again SLACK` the search runs again, from the largest sizes down and with its lower bounds multiplied by SLACK. With 0.9,
for example, the search prunes less, so an error of the bound up to a tenth would show. The second search proves the optimum
unless search and bound err together.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from agents.cli.parser import Parser
from agents.core.programs import Programs
from gensor_gym.construction import ConstructionGraph
from gensor_gym.exact import Certificate, certify, read_certificates
from gensor_gym.exact.sampling import sample_evenly
from gensor_gym.fingerprint import fingerprint
from gensor_gym.locate import located

DESCENTS = 8
"""Number of random programs, the fastest by the model, from which coordinate descents start."""


@dataclass
class Findings:
    """Results of checking a certificate, in words: `holds` are confirmed properties, `wrong` are faults."""

    holds: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def say(self, right: bool, holds: str, wrong: str) -> None:
        """Record the result of one check: `holds` as a confirmed property if `right`, otherwise `wrong` as a fault."""
        (self.holds if right else self.wrong).append(holds if right else wrong)


def check(certificate: Certificate, samples: int, enumerate_up_to: int, again: float | None, seed: int = 0) -> Findings:
    """Check one certificate as the module describes, and return the findings."""
    findings = Findings()
    space, knobs = parts_of(certificate.space)
    graph = ConstructionGraph(certificate.operator, certificate.hardware, space)
    if certificate.fingerprint != (now := fingerprint(graph)):
        findings.wrong.append(f"of fingerprint {certificate.fingerprint}, the task has {now} here")
        return findings
    legal, seconds = graph.is_legal(certificate.best), graph.latency(certificate.best)
    findings.say(legal, "legal", "the schedule is not legal")
    findings.say(seconds == certificate.optimum, "same latency", f"the schedule takes {seconds.hex()}")
    findings.say(certificate.bound == certificate.latency, "bound closed", f"the bound is {certificate.bound}")
    if knobs is not None:
        findings.holds.append("a part of the knobs: no samples")
    elif certificate.candidates <= enumerate_up_to:
        _enumerate(graph, certificate, findings)
    elif samples > 0:
        least = _sampled(graph, samples, np.random.default_rng(seed))
        findings.say(least >= certificate.optimum, f"none of {samples} samples is faster", f"a program takes {least.hex()}")
    if again is not None:
        second = certify(graph, enumerate_up_to=0, slack=again, backwards=True, knobs=knobs)
        same = second.latency == certificate.latency and second.optima == certificate.optima
        findings.say(same, f"proved again with floors x {again}", f"another search: {second.latency}, {second.optima} optima")
    return findings


def parts_of(space: str) -> tuple[str, list[str] | None]:
    """Split a certificate's space such as `extended(unroll, stages)` into its name and the knobs that vary.

    The knobs are None if all vary.
    """
    name, _, knobs = space.removesuffix(")").partition("(")
    return (name, [word.strip() for word in knobs.split(",")]) if knobs else (name, None)


def _enumerate(graph: ConstructionGraph, certificate: Certificate, findings: Findings) -> None:
    batches = [graph.latencies(rows) for rows in graph.enumerate()]
    latencies = np.concatenate(batches)
    best, count = float(latencies.min()), int((latencies == latencies.min()).sum())
    right = best == certificate.optimum and certificate.optima in (count, None)
    findings.say(right, f"best of all {len(latencies)} programs", f"of all programs {count} take {best.hex()}")


def _sampled(graph: ConstructionGraph, samples: int, rng: np.random.Generator) -> float:
    even = sample_evenly(graph, rng, samples // 2)
    walked = np.stack([graph.random_schedule(rng).row for _ in range(samples - samples // 2)])
    rows = np.concatenate([even, walked])
    seconds = graph.latencies(rows)
    programs = Programs(graph)
    ends = [programs.descend(rows[at])[1] for at in np.argsort(seconds, kind="stable")[:DESCENTS]]
    return min(float(seconds.min()), *ends)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return the exit status: 1 if a certificate is wrong."""
    parser = Parser(prog="python -m experiments check_certificates", description="Check certificates.")
    parser.add_argument("file", nargs="+", type=Path)
    parser.add_argument("--samples", type=int, default=1_000_000, help="random programs of large spaces; 0 for none")
    parser.add_argument("--enumerate", type=int, default=20_000_000, help="candidates up to which a space is enumerated")
    parser.add_argument("--again", type=float, help="search again with floors multiplied by this number")
    parser.add_argument("--match", default="", help="only operators whose text has this in it")
    args = parser.parse_args(arguments)
    if nowhere := [str(path) for path in args.file if not located(path).is_file()]:
        parser.error(f"no file {', '.join(nowhere)}")
    wrong, found = 0, [c for path in args.file for c in read_certificates(located(path)) if args.match in c.operator]
    if not found:
        files = ", ".join(map(str, args.file))
        parser.error(f"no certificate with {args.match!r} in its operator in {files}: expected files of gensor certify")
    for certificate in found:
        findings = check(certificate, args.samples, args.enumerate, args.again)
        wrong += bool(findings.wrong)
        print(f"{'WRONG' if findings.wrong else 'right'}  {certificate.operator}: {'; '.join(findings.wrong or findings.holds)}")
        sys.stdout.flush()
    print(f"{len(found) - wrong} of {len(found)} right")
    return 1 if wrong else 0
