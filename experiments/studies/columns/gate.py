"""Decide by the model whether a column policy may run on a GPU: `python -m experiments.studies.columns.gate FOLDER ..`.

A column policy writes a schedule value by value. On validation operators of every data type, the best of a policy's first ten
programs is compared with the best of the first ten of strategy `markov_ext`, and tensor-core programs are counted on operators
that tensor cores support. Each policy has a row in `results/columns/gate.jsonl`, from which the page is made.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from agents.columns.choices import is_joint
from agents.columns.policy import Columns
from agents.runs.files import write_text
from agents.runs.journal import read_rows
from agents.runs.settings import ROOT
from agents.runs.texts import page, table
from agents.strategy import get_strategy
from experiments.common.statistics import geometric_mean
from gensor_gym import operators
from gensor_gym.construction import ConstructionGraph
from gensor_gym.graph.coordinates import usable_values
from gensor_gym.graph.schedule import Schedule
from gensor_gym.graph.tables.layout import KNOB, TENSOR_CORE
from gensor_gym.operators.text import FACTORIES
from gensor_gym.operators.types import Operator

HARDWARE, SPACE, OPERATORS = "h100", "extended", "split/v1/validation"
HALVES = ("float16", "bfloat16")
DTYPES = ("float32", *HALVES, "int8")
CLASSES = ("gemm", "batched_gemm", "conv2d")
"""Operator classes that tensor cores can compute."""
FIRST = 10
"""Number of a search's first programs that count, which is as many as a comparison measures."""
DRAWN = 64
"""Number of programs that a policy writes before the model ranks them, which is one round of its search."""
ROWS, PAGE = ROOT / "results" / "columns" / "gate.jsonl", ROOT / "results" / "columns" / "gate.md"
MOST, LEAST = 1.1, 0.5
"""Conditions for a GPU run: largest ratio to `markov_ext`, and least share of tensor-core programs at 16 bits."""


@lru_cache(maxsize=len(DTYPES))
def validation(dtype: str) -> list[ConstructionGraph]:
    """Return the construction graphs of the validation operators in a data type.

    In float32 these are all operators with several axes longer than 1; in other types, those that tensor cores support.
    """
    given = operators.resolve(OPERATORS)
    if dtype == "float32":
        return [graph for op in given if is_joint(graph := ConstructionGraph(op, HARDWARE, SPACE))]
    typed = [_in_type(op, dtype) for op in given if op.name in CLASSES and op.dtype == "float32"]
    return [graph for op in typed if takes_tensor_cores(graph := ConstructionGraph(op, HARDWARE, SPACE))]


def _in_type(op: Operator, dtype: str) -> Operator:
    """Return the operator, with its epilogue, in another data type.

    The splits put operators that differ only in type into the same part.
    """
    return FACTORIES[op.name](**{**dict(op.arguments), "dtype": dtype}).with_epilogue(*(stage.name for stage in op.epilogue))


def takes_tensor_cores(graph: ConstructionGraph) -> bool:
    """Return whether an operator has schedules that use tensor cores."""
    return len(usable_values(graph.tables.ints, TENSOR_CORE - KNOB)) > 1


def of_policy(folder: str, graph: ConstructionGraph, drawn: int = DRAWN) -> tuple[list[Schedule], float]:
    """Let a policy write `drawn` programs for an operator; return (schedules, seconds).

    `schedules` are the first 10 (`FIRST`) by predicted time, and `seconds` is the least predicted time, or that of the
    unscheduled program if none was found.
    """
    found = Columns(space=SPACE, checkpoint=folder, episodes=drawn).construct(graph, np.random.default_rng(0))
    return list(found.schedules[:FIRST]), found.latencies[0] if found.latencies else graph.latency(graph.initial())


@lru_cache(maxsize=1024)
def of_traverser(graph: ConstructionGraph) -> tuple[list[Schedule], float]:
    """Let strategy `markov_ext` construct programs for an operator; return (schedules, seconds).

    `schedules` are the first 10 (`FIRST`) by predicted time, and `seconds` is the least predicted time.
    """
    strategy = get_strategy("markov_ext", space=SPACE)
    found = strategy.construct(graph, np.random.default_rng(0))  # type: ignore[attr-defined]
    return list(found.schedules[:FIRST]), found.latencies[0]


def ratios(folder: str, graphs: Sequence[ConstructionGraph], drawn: int = DRAWN) -> list[float]:
    """Return, for every operator, the predicted time of the policy's fastest program over that of `markov_ext`."""
    return [of_policy(folder, graph, drawn)[1] / of_traverser(graph)[1] for graph in graphs]


def share(folder: str, graphs: Sequence[ConstructionGraph]) -> float:
    """Return the share of tensor-core programs among the policy's first programs for these operators."""
    found = [schedule.row[TENSOR_CORE] > 0 for graph in graphs for schedule in of_policy(folder, graph)[0]]
    return float(np.mean(found))


def judge(folder: str, name: str) -> dict[str, Any]:
    """Compare a policy with `markov_ext` in all data types; return a row with its ratios and its tensor-core share."""
    known = {dtype: ratios(folder, validation(dtype)) for dtype in DTYPES}
    written = [ratio for dtype in DTYPES for ratio in ratios(folder, validation(dtype), FIRST)]
    return {
        "policy": name, "tasks": {dtype: len(values) for dtype, values in known.items()},
        "ratios": {dtype: geometric_mean(values) for dtype, values in known.items()},
        "ratio": geometric_mean([value for values in known.values() for value in values]),
        "written": geometric_mean(written), "share": share(folder, [graph for dtype in HALVES for graph in validation(dtype)]),
    }  # fmt: skip


def markdown(rows: Sequence[dict[str, Any]]) -> str:
    """Return the results page as Markdown text."""
    tasks = ", ".join(f"{count} of {dtype}" for dtype, count in rows[0]["tasks"].items())
    lines = [
        "# Policies of columns before a GPU is asked", "",
        "By `python -m experiments.studies.columns.gate FOLDER ..`, on the model of an H100, space `extended`. Validation",
        f"operators of split v1 ({tasks}; of other types than float32 those that tensor cores take). Columns of types and",
        f"`ratio`: geometric mean of the best of a policy's first {FIRST} programs over the best of `markov_ext`'s. The",
        f"first {FIRST} are what is measured of a round of {DRAWN} programs, ranked by the model. `written`: the same of",
        f"the first {FIRST} that the policy writes, unranked. Share: tensor-core programs among the first {FIRST} on",
        f"operators of 16 bits. A policy may go with a ratio of at most {MOST} and a share above {LEAST}.",
        "`before`: `columns_extended_gpu` of 2026-11-26, by the code of its day (97eb427e). `study`: those that an H200 timed on",
        "2026-11-27 (af26f0cf), trained 100,096 programs long; rows were still taken in groups then. `tables alone`: 150,016",
        "programs of the train part and of variants, none of drawn sizes (2db51d4f).", "",
    ]  # fmt: skip
    head = ("policy", *DTYPES, "ratio", "written", "share", "may go")
    cells = [
        (f"`{row['policy']}`", *(f"{row['ratios'][dtype]:.3f}" for dtype in DTYPES), f"{row['ratio']:.3f}",
         f"{row['written']:.3f}", f"{row['share']:.2f}", "yes" if row["ratio"] <= MOST and row["share"] > LEAST else "no")
        for row in rows
    ]  # fmt: skip
    return page([*lines, *table(head, cells)], ())


def main(folders: Sequence[str]) -> None:
    """Judge policies, store their rows and write the page.

    Each is given as `NAME=FOLDER`, or as a folder whose name is the policy's.
    """
    rows = read_rows(ROWS)
    for given in folders:
        name, _, folder = given.rpartition("=")
        row = judge(folder, name or Path(folder).name)
        rows = [*(old for old in rows if old["policy"] != row["policy"]), row]
        print(json.dumps(row), flush=True)
        write_text(ROWS, "".join(json.dumps(one) + "\n" for one in rows))
    write_text(PAGE, markdown(rows))


if __name__ == "__main__":
    main(sys.argv[1:])
