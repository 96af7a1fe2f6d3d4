"""Whether a policy of columns may go to a GPU: `python -m experiments.studies.columns.gate FOLDER ..` judges it by the model.

Its first ten programs stand beside the first ten of `markov_ext` on validation operators of every data type: the best of ten over
the best of ten, and how many of the ten are on tensor cores where these take the operator. A row for each policy is kept in
`results/columns/gate.jsonl`, of which the page is made.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from experiments.common.settings import ROOT
from experiments.common.texts import page, table
from experiments.statistics.statistics import geometric_mean
from experiments.studies.columns.tasks import DRAWN, DTYPES, FIRST, HALVES, of_policy, of_traverser, validation
from gensor_gym.construction import ConstructionGraph
from gensor_gym.files import whole
from gensor_gym.graph.tables.layout import TENSOR_CORE

ROWS, PAGE = ROOT / "results" / "columns" / "gate.jsonl", ROOT / "results" / "columns" / "gate.md"
MOST, LEAST = 1.1, 0.5
"""The largest ratio over all operators, and the least share of tensor-core programs on those of 16 bits, with which it may go."""


def ratios(folder: str, graphs: Sequence[ConstructionGraph], drawn: int = DRAWN) -> list[float]:
    """Of every task: the policy's best, of so many, over the traverser's, by the model."""
    return [of_policy(folder, graph, drawn)[1] / of_traverser(graph)[1] for graph in graphs]


def share(folder: str, graphs: Sequence[ConstructionGraph]) -> float:
    """Share of tensor-core programs among the first ten of the tasks."""
    found = [schedule.row[TENSOR_CORE] > 0 for graph in graphs for schedule in of_policy(folder, graph)[0]]
    return float(np.mean(found))


def judge(folder: str, name: str) -> dict[str, Any]:
    """The row of a policy."""
    known = {dtype: ratios(folder, validation(dtype)) for dtype in DTYPES}
    written = [ratio for dtype in DTYPES for ratio in ratios(folder, validation(dtype), FIRST)]
    tensor = [graph for dtype in HALVES for graph in validation(dtype)]
    return {
        "policy": name, "tasks": {dtype: len(values) for dtype, values in known.items()},
        "ratios": {dtype: geometric_mean(values) for dtype, values in known.items()},
        "ratio": geometric_mean([value for values in known.values() for value in values]),
        "written": geometric_mean(written), "share": share(folder, tensor),
    }  # fmt: skip


def markdown(rows: Sequence[dict[str, Any]]) -> str:
    """The page."""
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
    """Judge policies, `NAME=FOLDER` or a folder that gives its name; keep their rows; write the page."""
    rows = [json.loads(line) for line in ROWS.read_text(encoding="utf-8").splitlines()] if ROWS.exists() else []
    for given in folders:
        name, _, folder = given.rpartition("=")
        row = judge(folder, name or Path(folder).name)
        rows = [*(old for old in rows if old["policy"] != row["policy"]), row]
        print(json.dumps(row), flush=True)
        whole(ROWS, lambda path, kept=tuple(rows): path.write_text("".join(json.dumps(one) + "\n" for one in kept)))  # type: ignore[misc]
    whole(PAGE, lambda path: path.write_text(markdown(rows), encoding="utf-8"))


if __name__ == "__main__":
    main(sys.argv[1:])
