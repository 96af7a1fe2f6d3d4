"""A process of its own, started with a changed copy of `gensor_gym` on its path: fingerprints, and certificates anew.

Reads from standard input a JSON list of [operator, hardware, space, knobs or null] and writes a JSON line for each: its
fingerprint and, with the argument `certify`, what its certificate says (null where there is none any more).
"""

from __future__ import annotations

import json
import sys

from gensor_gym.construction import ConstructionGraph
from gensor_gym.exact import certify
from gensor_gym.fingerprint import fingerprint

SAID = ("method", "latency", "schedule", "optima", "candidates")


def main() -> None:
    """All tasks, in order."""
    with_certificates = sys.argv[1:] == ["certify"]
    for operator, hardware, space, knobs in json.load(sys.stdin):
        graph = ConstructionGraph(operator, hardware, space)
        found: dict[str, object] = {"fingerprint": fingerprint(graph)}
        if with_certificates:
            try:
                certificate = certify(graph, knobs=knobs)
                found["certificate"] = [getattr(certificate, name) for name in SAID]
            except ValueError:
                found["certificate"] = None
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
