"""Rules that distribute trials over three networks (Ansor, figure 10): `python -m experiments.reproduce table=task_scheduler`.

Every search is a process (`experiments.benches.tuning.scheduled`) with `trials` trials in total (256 if null) and nothing known.
The networks that the searches of the first seed end with are then timed in turn. A second start resumes.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from omegaconf import DictConfig

from agents.runs.files import make_folder, write_text
from agents.runs.settings import code_digest
from experiments.benches.tuning.scheduled import BATCH, NETWORKS, RULES
from experiments.common import style
from experiments.comparison.summary import ratio
from experiments.studies.study import Stamp
from experiments.tables.table import Cell, Table
from gensor_gym.foreign import parse_object
from gensor_gym.hardware.cpuinfo import usable_cores
from gensor_gym.measure.devices.cpu import processor_name

TRIALS = 256
SHARES = (0.5, 1.0)
"""Shares of the trials after which the networks' times are told."""
LABELS = {
    "ours": "ours: a task's trials double", "gradient": f"Ansor, f1, {BATCH} trials a batch",
    "gradient_f3": f"Ansor, f3, {BATCH} trials a batch", "round_robin": f"in turn, {BATCH} trials a batch",
}  # fmt: skip
NOTES = (
    "Published (Ansor, figure 10): MobileNet-V2 and ResNet-50 together; without the task scheduler the search is slower at the "
    "same number of trials. The numbers are in an image and not at hand. Objectives are of Ansor's table 2: f1 is the sum of the "
    "networks' times, f3 the geometric mean of their speed-ups.",
    "A network's time during a search is the sum of its kernels' times alone, each the fastest so far.",
)


def make(config: DictConfig, folder: Path) -> list[Table]:
    """Run the missing searches and the race, and make the table with its figure."""
    trials, own = config.trials or TRIALS, folder / "task_scheduler"
    make_folder(own)
    found = {rule: [_search(rule, seed, trials, own) for seed in config.seeds] for rule in RULES}
    curves = {rule: [curve(row, trials) for row in some] for rule, some in found.items()}
    first = config.seeds[0]
    stores = [own / f"{rule}_{first}.sqlite" for rule in RULES]
    times = _kept(own / "race.json", [trials, first, config.rounds], ["race", config.rounds, *stores])
    rows = [_cells(rule, curves[rule], times, place) for place, rule in enumerate(RULES)]
    columns = (
        "rule", *(f"{name} ms after {round(share * trials)}" for share in SHARES for name in NETWORKS),
        "networks' geometric mean, ms", *(f"{name} called, over ours" for name in NETWORKS),
    )  # fmt: skip
    tasks = len(found["ours"][0]["counts"][0])
    seconds = float(np.median([row["trials"][-1][0] for some in found.values() for row in some]))
    notes = (
        f"{processor_name()}, {usable_cores()} threads; {trials} trials for {tasks} tasks, about {seconds:.0f} s; the mean of "
        f"{len(config.seeds)} seeds. Called: the time of a call of the whole network over that of `ours`, in turn, seed {first}, "
        f"{config.rounds} rounds; below 1 is faster.", *NOTES,
    )  # fmt: skip
    figures = (_draw(curves, folder),) if config.figures else ()
    title = "Ansor's task scheduler on three networks, measured"
    return [Table(title, Stamp.REPLICATED, columns, tuple(rows), notes, figures)]


def curve(row: dict[str, Any], trials: int) -> np.ndarray:
    """Return the seconds of each network after every trial of a search, [networks, trials]; infinite until all tasks have run."""
    counts = np.array(row["counts"], dtype=float)
    best, made = np.full(counts.shape[1], math.inf), np.empty((len(counts), trials))
    for place, (_, task, seconds) in enumerate(row["trials"][:trials]):
        best[task] = min(best[task], seconds)
        made[:, place] = [(of[of > 0] * best[of > 0]).sum() for of in counts]
    made[:, len(row["trials"]) :] = made[:, [min(len(row["trials"]), trials) - 1]]
    return made


def _search(rule: str, seed: int, trials: int, folder: Path) -> dict[str, Any]:
    store = folder / f"{rule}_{seed}.sqlite"
    return _kept(folder / f"{rule}_{seed}.json", [trials], ["search", rule, seed, trials, store], store)


def _kept(path: Path, about: Sequence[Any], arguments: Sequence[Any], store: Path | None = None) -> dict[str, Any]:
    """Return a process's line, from its file if it was made by the same code and settings; `store` is emptied before."""
    about = [code_digest(), *about]
    if path.exists() and (known := parse_object(path.read_text("utf-8")))["about"] == about:
        return known
    if store is not None:
        for old in store.parent.glob(f"{store.name}*"):
            old.unlink()
    command = [sys.executable, "-m", "experiments.benches.tuning.scheduled", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command[2:5])}: {' '.join(done.stderr.strip().splitlines()[-1:])}")
    line = parse_object(done.stdout.strip().splitlines()[-1])
    write_text(path, json.dumps({**line, "about": about}))
    return {**line, "about": about}


def _cells(rule: str, curves: Sequence[np.ndarray], times: dict[str, Any], place: int) -> tuple[Cell, ...]:
    ends = np.mean(curves, axis=0)
    at = [max(0, round(share * ends.shape[1]) - 1) for share in SHARES]
    told = [1e3 * float(value) if np.isfinite(value) else None for k in at for value in ends[:, k]]
    mean = 1e3 * float(np.exp(np.log(ends[:, -1]).mean()))
    called = [ratio(times[name][place], times[name][0]) for name in NETWORKS]
    over = [f"{one['median']:.3f} [{one['low']:.3f}, {one['high']:.3f}]" for one in called] if place else [None] * len(NETWORKS)
    return (LABELS[rule], *told, mean, *over)


def _draw(curves: dict[str, list[np.ndarray]], folder: Path) -> str:
    with plt.rc_context(style.RC):
        figure, every = plt.subplots(1, len(NETWORKS), figsize=(9.0, 3.4), layout="constrained")
        for number, (axes, name) in enumerate(zip(every, NETWORKS, strict=True)):
            for color, (rule, some) in zip(style.PALETTE, curves.items(), strict=False):
                for seed, found in enumerate(some):
                    axes.plot(1e3 * found[number], color=color, linewidth=1.2, label=LABELS[rule] if seed == 0 else None)
            axes.set_title(name)
            axes.set_xlabel("trials")
        every[0].set_ylabel("ms, kernels alone")
        figure.legend(*every[0].get_legend_handles_labels(), loc="outside lower center", ncols=len(RULES), fontsize=8)
        style.save(figure, folder / "task_scheduler.png")
    return "task_scheduler.png"
