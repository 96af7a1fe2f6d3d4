"""Table of a sweep of trainings: a row for every setting, with means over its seeds.

Run it by `python -m experiments sweep_table outputs/sweeps/agents`; a sweep of `conf/_sweeps.yaml` prints it at its end.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
from hydra.experimental.callback import Callback
from omegaconf import DictConfig, OmegaConf
from rich.console import Console

from agents.runs.files import write_text
from agents.runs.journal import read_rows
from agents.runs.sheets.cells import Cell, Given, count
from agents.runs.sheets.sheet import Sheet
from agents.training.curves import flat
from agents.training.watch import CURVE
from experiments.common.statistics import bootstrap
from gensor_gym.foreign import meant, read_json

_NOT_SETTINGS = ("output", "seed", "resume", "torch_threads", "tensorboard", "wandb")


class SweepTable(Callback):
    """Hydra callback that prints the sweep's folder and table when all runs of a sweep have ended."""

    def on_multirun_end(self, config: DictConfig, **_: Any) -> None:
        """Print the table of the sweep, whose folder is the parent of its runs' folders."""
        output: Any = OmegaConf.to_container(config, resolve=False)
        folder = Path(output["output"]).parent
        print(f"results in {folder}")
        if any(folder.glob("*/card.json")):
            write_table(folder).show(Console())


def write_table(folder: Path) -> Sheet:
    """Make the table of a sweep, write it to summary.md and summary.csv in its folder, and return it.

    Raise ValueError if no run has finished.
    """
    runs = [run for path in sorted(folder.glob("*/card.json")) if (run := _run(path))["ratio"] is not None]
    if not runs:
        raise ValueError(f"no finished run below {folder}; expected folders with a card.json")
    varying = [name for name in runs[0]["settings"] if len({str(run["settings"].get(name)) for run in runs}) > 1]
    groups: dict[tuple[str, ...], list[dict[str, Any]]] = defaultdict(list)
    for run in runs:
        groups[tuple(str(run["settings"].get(name)) for name in varying)].append(run)
    head = [*varying, "seeds", "return of the last episodes", "latency over the traverser's, validation", "training s"]
    rows: list[list[Given]] = []
    for names, members in groups.items():
        returns, ratios, seconds = ([member[name] for member in members] for name in ("return", "ratio", "seconds"))
        rows.append([*names, str(len(members)), _interval(returns), _interval(ratios), count(float(np.mean(seconds)))])
    sheet = Sheet.of("trainings of the sweep", head, rows)
    write_text(folder / "summary.md", "\n".join(sheet.markdown()) + "\n")
    sheet.write_csv(folder / "summary.csv")
    return sheet


def _run(card: Path) -> dict[str, Any]:
    """Return the settings and results of one training.

    `ratio` is the policy's latency over that of the traverser of its space on validation operators, or None.
    """
    facts = read_json(card, finite=False)
    curve = read_rows(card.parent / CURVE)
    with meant(card, "card of a training"):
        config = {**facts["config"], "agent": facts["config"]["agent"]["name"]}
        settings = flat({name: value for name, value in config.items() if name not in _NOT_SETTINGS})
        last = curve[-1]["mean_return"] if curve else float("nan")
        scores = facts.get("evaluation", {}).items()
        ratio = next((value for name, value in scores if name.startswith("validation_latency_over_")), None)
        return {"settings": settings, "seconds": facts["training_seconds"], "return": last, "ratio": ratio}


def _interval(values: list[float]) -> Cell:
    """Return the cell of the mean over seeds, with its 95 percent bootstrap interval if there are several."""
    mean = float(np.mean(values))
    if len(values) < 2:
        return Cell(f"{mean:.3f}", (mean,))
    low, high = map(float, bootstrap(np.mean, np.array([values])))
    return Cell(f"{mean:.3f} [{low:.3f}, {high:.3f}]", (mean, low, high), f"{mean:.3f}")


def main() -> None:
    """Write and print the table of the folder that the command line names."""
    if len(sys.argv) < 2:
        raise ValueError("name the folder of a sweep")
    write_table(Path(sys.argv[1])).show(Console())
