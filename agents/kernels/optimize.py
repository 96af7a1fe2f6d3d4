"""Find a fast kernel: `gensor optimize 'gemm(m=512, n=512, k=512)' [trials=N] [export=FOLDER] [source=FILE]`.

Every trial is kept in the store of `gensor_gym.tuned`, which loads the best program without a search. With `reuse=true` a search
runs only if the store has no program yet.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
from omegaconf import DictConfig
from rich.console import Console

from agents.cli.checks import check_truths
from agents.cli.command import command
from agents.kernels.search import Search
from agents.optimizer import Result
from agents.runs.calls import placed, seconds
from agents.runs.files import make_folder, write_text
from agents.runs.sheets.cells import Given, count
from agents.runs.sheets.screen import width_of, words
from agents.runs.sheets.sheet import Sheet
from agents.runs.texts import seconds_text
from gensor_gym import operators
from gensor_gym.codegen.export import check_folder
from gensor_gym.cost.roofline import roofline_floor
from gensor_gym.dataflow.resolve import resolve_computation
from gensor_gym.graph.knobs import KNOBS
from gensor_gym.graph.schedule import Schedule
from gensor_gym.graph.tables.layout import KNOB, MAX_AXES, TILE, VTHREAD, slot_of
from gensor_gym.hardware.types import Hardware
from gensor_gym.measure.stats.intervals import LEVEL, median_interval
from gensor_gym.operators.computation import Computation
from gensor_gym.operators.inputs import ARRAY_OFFSET
from gensor_gym.operators.loops import Tensor
from gensor_gym.operators.types import Operator

NAME = 9
"""Width of the printed column of names, in characters."""
TURNS = 9
"""Number of timings of the kernel's call, each of tens of milliseconds."""
LEVELS = {"cpu": ("registers", "L1 tile", "task (L2)"), "gpu": ("registers", "block (shared memory)")}
"""Names of a schedule's levels by kind of hardware, from the innermost level outwards."""


def said(result: Result, search: Search) -> Iterator[tuple[str, str]]:
    """Yield the lines that describe a search's result, as pairs of a name and a text."""
    task, measurement = result.task, result.measurement
    op, hw = task.operator, task.hardware
    yield "operator", str(op)
    yield "machine", f"{hw.name}: {search.backend.device(hw)}"
    if result.trace:
        yield "strategy", f"{search.strategy}, seed {search.seed}"
        statuses = ", ".join(f"{count} {status}" for status, count in Counter(row.status for row in result.trace).items())
        yield "trials", f"{len(result.trace)}: {statuses}"
    else:
        yield "trials", "none: it was found before"
    checked = "; its output was compared with one computed in float64" if search.backend.stored else "; nothing was run"
    yield "status", f"{measurement.status}{checked}"
    yield "isolated", f"{_times(measurement.samples)} ({search.backend.name})"
    if search.backend.name == "cpu":
        samples = called(result, search.seed)
        yield "called", f"{_times(samples)} (from Python in this process, a fresh output each time)"
    floor = roofline_floor(op, hw)
    rate = f"{op.flops / result.seconds / 1e9:.4g} GFLOP/s, " if op.flops else ""
    yield "rate", f"{rate}{100 * floor / result.seconds:.2g} % of what the roofline allows ({seconds_text(floor)})"
    yield "schedule", str(result.schedule)


def show(console: Console, lines: Iterable[tuple[str, str]], width: int | None) -> None:
    """Print pairs of a name and a text as lines, wrapped at words to `width` columns; None does not wrap."""
    for what, which in lines:
        for number, line in enumerate(words(which, None if width is None else width - NAME - 1)):
            console.print(f"[bold]{'' if number else what:{NAME}}[/] ", end="")
            console.print(line, soft_wrap=True, markup=False, highlight=False)


def _times(samples: Sequence[float]) -> str:
    if len(samples) == 1:
        return seconds_text(samples[0])
    low, high = map(seconds_text, median_interval(list(samples)))
    return f"{seconds_text(float(np.median(samples)))}, {LEVEL} interval {low} to {high}, {len(samples)} samples"


def called(result: Result, seed: int) -> list[float]:
    """Time calls of a result's kernel on this processor, with a fresh output at every call.

    Return the seconds per call of each of nine (`TURNS`) timings.
    """
    drawn = operators.random_inputs(result.task.operator, np.random.default_rng(seed))
    inputs, kernel = [placed(array, ARRAY_OFFSET) for array in drawn], result.kernel
    return [seconds(lambda: kernel(*inputs)) for _ in range(TURNS)]


def call_of(op: Computation) -> str:
    """Return the line of Python that calls `kernel` with its inputs by name, and a comment with their shapes."""
    names = ", ".join(tensor.name for tensor in op.inputs)
    shapes = ", ".join(f"{tensor.name} {_shape(tensor)}" for tensor in op.inputs)
    given = ", ".join(tensor.name for tensor in op.outputs)
    return f"{given} = kernel({names})  # {shapes} -> {', '.join(map(_shape, op.outputs))}"


def _shape(tensor: Tensor) -> str:
    return f"{tensor.dtype}[{', '.join(map(str, tensor.shape))}]"


def tiles(op: Operator, hw: Hardware, schedule: Schedule) -> Sheet:
    """Return a schedule as a table with a column for each axis and a row for each level.

    A note names the knobs that do not have their default.
    """
    slots = [slot_of(number, len(op.spatial)) for number in range(len(op.axes))]
    rows: list[list[Given]] = []
    if any(schedule.row[VTHREAD + slot] > 1 for slot in slots):
        rows.append(["virtual threads", *(count(int(schedule.row[VTHREAD + slot])) for slot in slots)])
    for level, name in enumerate(LEVELS[hw.kind]):
        rows.append([name, *(count(int(schedule.row[TILE + level * MAX_AXES + slot])) for slot in slots)])
    rows.append(["whole", *(count(axis.extent) for axis in op.axes)])
    values = ((knob, knob.values[int(schedule.row[KNOB + number])]) for number, knob in enumerate(KNOBS))
    knobs = ", ".join(f"{knob.name} {value}" for knob, value in values if value != knob.default)
    note = f"knobs: {knobs}" if knobs else "all knobs at their usual values"
    return Sheet.of("tile of each level, along each axis", ("level", *(axis.name for axis in op.axes)), rows, [note])


def taken(result: Result, config: DictConfig) -> Iterator[tuple[str, str]]:
    """Write the files that the configuration requests; yield (kind, path) of each."""
    if config.source is not None:
        write_text(Path(config.source), result.kernel.source)
        yield "source", str(config.source)
    if config.export is not None:
        made = result.export(config.export)
        yield "exported", f"{made.folder}: {', '.join(sorted(path.name for path in made.folder.iterdir()))}"


def _check_file(path: Path) -> None:
    make_folder(path.parent)
    if path.is_dir():
        raise ValueError(f"source {path} is a folder: expected a file")


@command("optimize")
def main(config: DictConfig, console: Console) -> None:
    """Search for a kernel, print the result, and write the requested files."""
    if config.operators is None:
        raise ValueError("no operator: name one, as in gensor optimize 'gemm(m=512, n=512, k=512)'")
    op, search = resolve_computation(config.operators), Search.of(config)
    if search.trials is None:
        raise ValueError("trials is None: a search takes a positive number of trials")
    check_truths(config, "reuse")
    if config.source is not None:
        _check_file(Path(config.source))
    if config.export is not None:
        make_folder(check_folder(config.export))
    result = search.run(op, bool(config.reuse), console)
    with console.status("calling the kernel"):
        lines = [*said(result, search), *taken(result, config)]
    if search.backend.stored:
        lines.append(("kept", f"{search.store}: reuse=true and {search.tuned(op)} answer from it"))
    show(console, lines, width_of(console))
    if search.backend.stored:  # for copying: lines of code are not wrapped
        show(console, [("call it", "import gensor_gym"), ("", f"kernel = {search.tuned(op)}"), ("", call_of(op))], None)
    console.print()
    if isinstance(op, Operator) and isinstance(result.schedule, Schedule):
        tiles(op, result.task.hardware, result.schedule).show(console)
