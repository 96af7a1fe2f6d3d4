"""One library's side of the comparison, in its own process: `python -m experiments.benches.fused.process SIDE`.

Requests are lines of JSON on standard input, answered by lines on standard output. The first request describes the computation;
every later request names a way to call it, which is then timed. Between requests the process waits in a read.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, TextIO

import numpy as np

from agents.runs.calls import placed, seconds
from gensor_gym.dataflow.evaluate import evaluate
from gensor_gym.dataflow.graph import Dataflow
from gensor_gym.dataflow.table import fused_operator
from gensor_gym.foreign import parse_object
from gensor_gym.measure.answers.fused import FusedDraw
from gensor_gym.operators.inputs import random_inputs

OURS = "ours"
SIDES = {
    OURS: "experiments.benches.fused.ours", "eager": "experiments.benches.fused.eager",
    "inductor": "experiments.benches.fused.inductor", "onnxruntime": "experiments.benches.fused.onnx_runtime",
}  # fmt: skip
"""Side -> module with its `prepare`."""


@dataclass(frozen=True)
class Ways:
    """Ways to call a library on given inputs.

    `called` returns a new output and `into` fills an existing one. `called_inner` and `into_inner` leave out the overhead of
    torch.compile at every call.
    """

    calls: dict[str, Callable[[], Any]]
    """Way -> call that returns the output, or a sequence of outputs."""
    facts: dict[str, Any] = field(default_factory=dict)


def main(name: str) -> None:
    """Answer requests about fused operators until standard input ends."""
    module = import_module(SIDES[name])

    def prepare(asked: dict[str, Any]) -> tuple[Ways, dict[str, str]]:
        graph = fused_operator(asked["operator"])
        drawn = random_inputs(graph, np.random.default_rng(asked["seed"]))
        ways: Ways = module.prepare(graph, [placed(array, 0) for array in drawn], asked)
        return ways, wrong(graph, drawn, ways)

    serve(name, prepare)


def serve(name: str, prepare: Callable[[dict[str, Any]], tuple[Ways, dict[str, str]]]) -> None:
    """Answer the first request with the ways that `prepare` returns and their faults, every later request with a way's seconds.

    Output printed by libraries goes to standard error, because standard output carries the answers.
    """
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    _answer(answers, {"ready": name})
    if not (first := sys.stdin.readline()):
        return
    try:
        ways, faults = prepare(parse_object(first))
        _answer(answers, {"ways": list(ways.calls), "wrong": faults, **ways.facts})
    except Exception as error:
        _answer(answers, {"error": f"{type(error).__name__}: {error}"[:500]})
        raise
    for line in sys.stdin:
        _answer(answers, {"seconds": seconds(ways.calls[parse_object(line)["way"]])})


def wrong(graph: Dataflow, drawn: Sequence[np.ndarray], ways: Ways) -> dict[str, str]:
    """Way -> fault of its outputs by the bounds of the float64 evaluator; ways with correct outputs are left out."""
    draw = FusedDraw(tuple(drawn), evaluate(graph, drawn))
    found = {}
    for way, call in ways.calls.items():
        outputs = arrays_of(call())
        shapes = [one.shape for one in outputs]
        if shapes != [value.shape for value in graph.outputs]:
            found[way] = f"outputs of shapes {shapes}, expected {[value.shape for value in graph.outputs]}"
        elif fault := draw.fault(outputs[0] if len(outputs) == 1 else outputs):
            found[way] = fault
    return found


def arrays_of(given: Any) -> list[np.ndarray]:
    """Outputs of a call to any library, as NumPy arrays."""
    several = given if isinstance(given, tuple | list) else (given,)
    return [np.asarray(one.float() if str(one.dtype) == "torch.bfloat16" else one) for one in several]


def _answer(answers: TextIO, row: dict[str, Any]) -> None:
    answers.write(json.dumps(row) + "\n")
    answers.flush()


if __name__ == "__main__":
    main(sys.argv[1])
