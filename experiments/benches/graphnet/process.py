"""One graph in one compiler, in a new process: `python -m experiments.benches.graphnet.process REQUEST.json ANSWER.json`.

The request has `graph`, `side`, `turn` (the file of `alone`) and the fields of `suite.Settings`. The answer has a `status`, what
was `said`, and times in seconds.
"""

from __future__ import annotations

import json
import math
import resource
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from experiments.benches.graphnet.alone import alone, end_with_parent
from experiments.benches.graphnet.graphs import Built, NotBuilt, built, read
from experiments.benches.graphnet.scores import closest
from experiments.conformance.cases import differences, tensors_of
from gensor_gym.foreign import read_json
from gensor_gym.frontends.unsupported import Unsupported

MARGIN = 4.0
"""A result that differs from torch's is right if it is at most this many times as far from float64 (as for models by name)."""
LEAST_S = 2e-3
"""Seconds that the calls of one sample take at least."""
ENOUGH_S, FEWEST = 4.0, 3
"""Seconds after which no round of timed calls begins, except the first few."""
BEYOND = "of which kernels compute all exactly"
"""Part of the message about integers that a call refuses."""
Call = Callable[..., Any]


@torch.no_grad()
def answer(asked: dict[str, Any]) -> dict[str, Any]:
    """Compile, verify and time a graph and return the answer."""
    torch.set_num_threads(asked["threads"])
    try:
        graph = read(Path(asked["repository"]), asked["graph"])
        given = built(graph, asked["seed"])
    except NotBuilt as error:
        return {"status": "left out", "said": f"torch: {error}"}
    row: dict[str, Any] = {"weights": graph.weights, "exact": given.exact is not None, "depends": given.depends}
    row["eager_s"] = _seconds(given.module, given.inputs)
    if row["eager_s"] > asked["torch_s"]:
        return {**row, "status": "left out", "said": f"a call of torch takes {row['eager_s']:.1f} s"}
    begin = time.perf_counter()
    try:
        call, facts = SIDES[asked["side"]](given, asked)
        found = tensors_of(call(*given.inputs))
    except Exception as error:  # of many classes: compilers of others, and faults of ours
        said = f"{type(error).__name__}: {error}"
        refused = isinstance(error, Unsupported) or BEYOND in said
        return {**row, "status": "refused" if refused else "error", "said": said[:400]}
    row |= {"compiled_s": time.perf_counter() - begin, **facts}
    said = differences(given.expected, found, MARGIN, lambda: given.exact)
    row |= {"status": "wrong" if said else "right", "said": said, "closest": closest(given.expected, found)}
    if not asked["rounds"]:
        return row
    with alone(Path(asked["turn"])):
        return row | _timed(given.module, call, given.inputs, asked["rounds"])


def _ours(given: Built, asked: dict[str, Any]) -> tuple[Call, dict[str, Any]]:
    import gensor_gym

    compiled = gensor_gym.compile(given.module, given.inputs, quality=asked["quality"])
    return compiled, {"kernels": len(compiled.kernels)}


def _inductor(given: Built, asked: dict[str, Any]) -> tuple[Call, dict[str, Any]]:
    """Compile by Inductor with frozen weights, as in the comparison of networks."""
    from torch._inductor import config

    config.freezing = True
    return torch.compile(given.module), {}


SIDES: dict[str, Callable[[Built, dict[str, Any]], tuple[Call, dict[str, Any]]]] = {"ours": _ours, "inductor": _inductor}
"""Compiler -> function that compiles a graph and returns (way to call it, facts about it)."""


def _seconds(call: Call, inputs: Sequence[Tensor], calls: int = 1) -> float:
    """Return the mean seconds of some calls in a row."""
    begin = time.perf_counter()
    for _ in range(calls):
        call(*inputs)
    return (time.perf_counter() - begin) / calls


def _timed(eager: Call, compiled: Call, inputs: Sequence[Tensor], rounds: int) -> dict[str, float]:
    """Time eager torch and the compiled graph in turn; return the median seconds of a call of each."""
    calls = {call: math.ceil(LEAST_S / max(_seconds(call, inputs), 1e-7)) for call in (eager, compiled)}
    samples: dict[Call, list[float]] = {call: [] for call in calls}
    begin = time.perf_counter()
    for number in range(rounds):
        if number >= FEWEST and time.perf_counter() - begin > ENOUGH_S:
            break
        for call, count in calls.items():
            samples[call].append(_seconds(call, inputs, count))
    return {"eager_s": statistics.median(samples[eager]), "call_s": statistics.median(samples[compiled])}


def main(request: Path, found: Path) -> None:
    """Read the request, keep to its memory, and write the answer."""
    end_with_parent()
    asked = read_json(request, finite=False)
    resource.setrlimit(resource.RLIMIT_DATA, (int(asked["memory_gb"] * 1e9),) * 2)
    warnings.simplefilter("ignore")
    found.write_text(json.dumps(answer(asked)), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
