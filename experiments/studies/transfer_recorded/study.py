"""Study of policies trained on recordings of real GPUs, tested on other GPUs: `python -m experiments transfer_recorded`.

Configuration: conf/transfer_recorded.yaml; results: docs/generalisation.md. The recordings are complete spaces of a kernel on
several GPUs, and regret is relative to the best configuration of the tested GPU. All searches have equal numbers of trials. They
are: policies trained on another GPU, on all other GPUs, or on the tested recording itself (which shows memorisation, not
transfer); trying configurations in the order of their times on the other GPUs; and plain searches.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.ticker import FuncFormatter
from rich.console import Console

from agents.runs.lines import with_bar
from agents.runs.pool import side_by_side
from agents.runs.sheets.sheet import Sheet
from agents.runs.texts import now, table
from agents.training.recorded_spaces import known_card, learn_at
from experiments.common import style
from experiments.studies.scores import difference, heat_map, interval, interval_sheet, intervals, mean, over
from experiments.studies.study import Row, Study, study_command
from experiments.studies.transfer_recorded.plan import (
    ANOTHER,
    BEST_OF,
    FROM_BEST,
    MEMORISED,
    OTHERS,
    POLICY_OF,
    RecordedPlan,
    Task,
    plan_of,
    regrets,
    search_recorded,
)
from gensor_gym.measure.stats.intervals import LEVEL
from gensor_gym.spaces import load_space

# Report on transfer between recorded GPUs: the page, its main table, matrices by kernel, and regret over trials.

LEAST = 0.1
"""Regret in per cent below which the figures do not distinguish values."""
SPACES = ("kernel", "device", "configurations", "ran well", "within 5 % of the best", "slowest over best")


def markdown(summary: dict[str, Any], figures: list[str]) -> str:
    """Return the results page as Markdown text."""
    head = ("search", *(f"{count} trials" for count in summary["checkpoints"]))
    sizes = [about["configurations"] for devices in summary["spaces"].values() for about in devices.values()]
    lines = [
        "# Policies between real GPUs", "",
        f"Complete recorded spaces of {len(summary['kernels'])} kernels, each measured on several GPUs; "
        f"{len(summary['seeds'])} training seeds, {summary['repeats']} searches with each. Replicated: measured by others, "
        f"read from files. {summary['date']}.", "",
        "Regret is log(T / T*) of the best configuration so far, T* being the best recorded for the tested GPU. A trial is a "
        "configuration that was not met before in the search, failed ones included. Means over tasks (a kernel on a GPU), seeds "
        f"and searches, in brackets {LEVEL} intervals of a bootstrap over tasks and training seeds. Tasks of one kernel, or one "
        "GPU, have much in common: they are fewer than they seem, and intervals and p values rather too sure.", "",
        f"The {MEMORISED} is a policy trained on the recording that it is tested on ({summary['training_steps']:,} steps on "
        f"{min(sizes):,} to {max(sizes):,} configurations): train on test. It says what this learner remembers, nothing of an "
        "unseen device; looking the fastest configuration up has regret 0. In the matrices it is bold.", "",
    ]  # fmt: skip
    for group, title in (("all", "all kernels"), *((kernel, kernel) for kernel in summary["kernels"])):
        rows = summary["regret"][group]
        tasks = sum(map(len, summary["kernels"].values())) if group == "all" else len(summary["kernels"][group])
        values = {name: rows[name] for name in summary["roles"]}
        lines += [f"## {title.capitalize()}, {tasks} tasks", "", *intervals(head, values), ""]
    others = (("over_reference", summary["reference"]), ("over_memorised", MEMORISED), ("over_order", BEST_OF + OTHERS))
    for key, other in others:
        lines += [
            f"## Less {other}", "",
            "Paired by task and seed; p of a sign-flip test on the tasks' means, adjusted by Holm within a column.", "",
            *intervals(head, summary[key], difference), "",
        ]  # fmt: skip
    for kernel in summary["kernels"]:
        lines += _matrix(summary, kernel)
    return "\n".join([*lines, *_spaces(summary), *(f"![{name}]({name})\n" for name in figures)])


def _spaces(summary: dict[str, Any]) -> list[str]:
    rows = [
        (kernel, about["device"], *(str(about[name]) for name in ("configurations", "ran", "within_5")),
         f"{about['slowest']:.1f}")
        for kernel, devices in summary["spaces"].items() for about in devices.values()
    ]  # fmt: skip
    seconds = summary["training_s"]
    return [
        "## Spaces", "", *table(SPACES, rows), "",
        f"{len(seconds)} policies, {summary['training_steps']:,} steps each: {statistics.mean(seconds):.0f} s in the mean on one "
        f"thread ({min(seconds):.0f} to {max(seconds):.0f} s).", "",
    ]  # fmt: skip


def _rows(summary: dict[str, Any], kernel: str) -> tuple[list[str], np.ndarray]:
    """Return (names of searches, regrets in per cent [searches, devices]) of a kernel, at the number of trials shown.

    NaN marks a search that does not exist on a device: for example, a policy trained on the tested device is not "another" one.
    """
    devices, place = summary["kernels"][kernel], summary["checkpoints"].index(summary["shown"])
    policies, orders = ([prefix + name for name in (*devices, OTHERS)] for prefix in (POLICY_OF, BEST_OF))
    rows = [*policies, FROM_BEST, *orders, *summary["strategies"]]
    found = [[summary["matrix"][kernel][on].get(name) for on in devices] for name in rows]
    return rows, 100 * np.array([[np.nan if one is None else one[place] for one in row] for row in found])


def _matrix(summary: dict[str, Any], kernel: str) -> list[str]:
    devices, (rows, values) = summary["kernels"][kernel], _rows(summary, kernel)

    def cell(i: int, j: int) -> str:
        text = "" if np.isnan(values[i, j]) else f"{values[i, j]:.1f} %"
        return f"**{text}**" if rows[i] == POLICY_OF + devices[j] else text

    cells = [(name, *(cell(i, j) for j in range(len(devices)))) for i, name in enumerate(rows)]
    title = f"## {kernel.capitalize()}: matrix after {summary['shown']} trials"
    return [title, "", *table(("search", *(f"tested on {name}" for name in devices)), cells), ""]


def sheet(summary: dict[str, Any]) -> Sheet:
    """Return the table of mean regrets over all tasks."""
    head = ("search", *(f"{count} trials" for count in summary["checkpoints"]))
    return interval_sheet("mean regret, all tasks", head, summary["regret"]["all"])


def draw(summary: dict[str, Any], folder: Path) -> list[str]:
    """Draw curves of regret and a matrix for each kernel; return the file names."""
    found = [_draw_matrix(summary, kernel, folder / f"matrix_{kernel}.png") for kernel in summary["kernels"]]
    return [_draw_curves(summary, folder / "curves.png"), *found]


def _draw_matrix(summary: dict[str, Any], kernel: str, path: Path) -> str:
    devices, (rows, values) = summary["kernels"][kernel], _rows(summary, kernel)
    return heat_map(
        values, [name.replace("_", " ") for name in rows], [name.replace("_", " ") for name in devices], path,
        title=f"{kernel}: mean regret after {summary['shown']} trials, %", below="tested on",
        bold=[(rows.index(POLICY_OF + device), j) for j, device in enumerate(devices)],
        gaps=[len(devices) + 2, 2 * len(devices) + 3], size=(2.6 + 0.8 * len(devices), 1.1 + 0.3 * len(rows)),
        least=LEAST, white_above=5.0,
    )  # fmt: skip


def _draw_curves(summary: dict[str, Any], path: Path) -> str:
    kernels, counts = list(summary["kernels"]), summary["checkpoints"]
    figure, all_axes = plt.subplots(1, len(kernels), figsize=(0.4 + 3.1 * len(kernels), 3.2), squeeze=False)
    figure.subplots_adjust(wspace=0.35)
    for axes, kernel in zip(all_axes[0], kernels, strict=True):
        for name, (colour, marker) in style.look(summary["roles"]).items():
            means = [max(LEAST, 100 * line["mean"]) for line in summary["regret"][kernel][name]]
            axes.plot(counts, means, color=colour, marker=marker, markersize=4, label=name.replace("_", " "))
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.set_xticks(counts, [str(count) for count in counts])
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g} %"))
        axes.set_title(kernel)
        axes.set_xlabel("trials")
    all_axes[0][0].set_ylabel(f"mean regret (below {LEAST:g} % drawn there)")
    handles, labels = all_axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="upper center", bbox_to_anchor=(0.5, 0.0), ncol=3)
    return style.save(figure, path)


BEST_OF_ANOTHER = BEST_OF + "another"


class Scores:
    """Regrets [seeds, K] of every search of every task, computed from the rows of all searches."""

    def __init__(self, plan: RecordedPlan, rows: Sequence[Row]) -> None:
        self.plan = plan
        self.found: dict[tuple[str, str, str], dict[int, np.ndarray]] = {}
        for row in rows:
            space = load_space(plan.file(row["kernel"], row["device"]))
            times = space.seconds(plan.config["timing"])
            values = regrets(row["curves"], list(plan.checkpoints), float(times.min()), float(times[space.ok].max()))
            self.found.setdefault((row["kernel"], row["device"], row["name"]), {})[row["seed"]] = values

    def of(self, task: Task, name: str) -> np.ndarray:
        """Return the regrets [seeds, K] of the search `name` on a task; those of a search that ran once are repeated."""
        by_seed = self.found[task.kernel, task.device, name]
        return np.stack([by_seed.get(seed, by_seed[min(by_seed)]) for seed in self.plan.seeds])

    def names(self, task: Task) -> list[str]:
        """Return the names of all searches of a task."""
        return [name for kernel, device, name in self.found if (kernel, device) == (task.kernel, task.device)]

    def role(self, task: Task, name: str) -> np.ndarray:
        """Return the regrets of a role on a task; a role about "another" device is the mean over all other devices.

        A role names the relation of a search to the tested device, such as a policy trained on another device.
        """
        if name == MEMORISED:
            return self.of(task, POLICY_OF + task.device)
        if name in (ANOTHER, BEST_OF_ANOTHER):
            prefix = POLICY_OF if name == ANOTHER else BEST_OF
            return np.mean([self.of(task, prefix + device) for device in self.plan.elsewhere(task)], axis=0)
        return self.of(task, name)

    def roles(self, tasks: Sequence[Task]) -> dict[str, np.ndarray]:
        """Return the regrets [tasks, seeds, K] of every role."""
        return {name: np.stack([self.role(task, name) for task in tasks]) for name in roles(self.plan)}


def roles(plan: RecordedPlan) -> list[str]:
    """Return the names of the roles, which every task has (see `Scores.role`)."""
    return [MEMORISED, ANOTHER, POLICY_OF + OTHERS, FROM_BEST, BEST_OF_ANOTHER, BEST_OF + OTHERS, *plan.strategies]


def _about(plan: RecordedPlan, kernel: str, device: str) -> dict[str, Any]:
    space = load_space(plan.file(kernel, device))
    times = space.seconds(plan.config["timing"])
    return {
        "device": space.device or device, "configurations": len(space), "ran": int(space.ok.sum()),
        "within_5": int((times <= 1.05 * times.min()).sum()), "slowest": float(times[space.ok].max() / times.min()),
    }  # fmt: skip


class RecordedTransfer(Study[RecordedPlan, tuple[list[Row], list[Row]]]):
    """Study of policies and searches on recordings; its results are (rows of all searches, cards of all policies)."""

    def run(self, console: Console) -> tuple[list[Row], list[Row]]:
        """Train missing policies, run missing searches, and return (rows, policies' cards)."""
        plan, trainings = self.plan, self.plan.trainings()
        missing = [training for training in trainings if known_card(*training) is None]
        list(with_bar(console, "policies", side_by_side(learn_at, missing, plan.processes), len(missing)))
        cards = [card for training in trainings if (card := known_card(*training)) is not None]
        return self.lines(plan.searches(), console, search_recorded), cards

    def summarise(self, found: tuple[list[Row], list[Row]]) -> dict[str, Any]:
        """Return mean regrets by role (see `Scores.role`) over all tasks and by kernel, differences, a matrix per kernel."""
        plan, (rows, cards) = self.plan, found
        scores = Scores(plan, rows)
        groups = {"all": plan.tasks} | {kernel: [t for t in plan.tasks if t.kernel == kernel] for kernel in plan.kernels}
        known = {group: scores.roles(tasks) for group, tasks in groups.items()}
        others = {"reference": plan.config["reference"], "memorised": MEMORISED, "order": BEST_OF + OTHERS}

        def cells(task: Task) -> dict[str, list[float]]:
            return {name: scores.of(task, name).mean(axis=0).tolist() for name in scores.names(task)}

        return {
            "date": now(), "kernels": plan.kernels,
            "spaces": {kernel: {name: _about(plan, kernel, name) for name in names} for kernel, names in plan.kernels.items()},
            "seeds": list(plan.seeds), "repeats": plan.config["repeats"], "checkpoints": list(plan.checkpoints),
            "shown": plan.config["shown"], "strategies": list(plan.strategies), "reference": plan.config["reference"],
            "roles": roles(plan),
            "regret": {
                group: {name: interval(mean, of, plan.resamples) for name, of in by.items()} for group, by in known.items()
            },
            **{f"over_{name}": over(known["all"], other, plan.resamples) for name, other in others.items()},
            "matrix": {kernel: {name: cells(Task(kernel, name)) for name in names} for kernel, names in plan.kernels.items()},
            "training_s": [card["training_seconds"] for card in cards], "training_steps": cards[0]["training_steps"],
        }  # fmt: skip

    def draw(self, found: tuple[list[Row], list[Row]], summary: dict[str, Any]) -> list[str]:
        """Draw the curves and matrices; return the file names."""
        return draw(summary, self.output)

    markdown, sheet = staticmethod(markdown), staticmethod(sheet)


main = study_command("transfer_recorded", lambda config: RecordedTransfer(plan_of(config)))
