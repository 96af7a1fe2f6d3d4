"""Measure this machine and learn its times, for the strategies `in_turn` and `adapted`: `gensor adapt [minutes=10] [cpu=N]`.

Programs of operators of Measured v1's part `train` are timed here for some minutes. A correction of the analytic model is learned
from them and from the machines of Measured v1, and kept in the user's cache. The same command measures more operators each time.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from omegaconf import DictConfig
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from agents.cli.checks import check_positive, check_whole
from agents.cli.command import command
from agents.hybrids.here import adapted_folder
from agents.recording import pack
from agents.recording.ahead import alone_on
from agents.recording.collect import FIELDS, NAME, RULES, Collection, machine
from agents.recording.programs import SPACE
from agents.runs.files import make_folder
from agents.runs.journal import Journal, Row
from agents.training.learn_correction import Observed, learn, observations, regrets
from agents.training.operators.chosen import Chosen, chosen
from gensor_gym.hardware.types import Hardware
from gensor_gym.measure.native import cpu_backend
from gensor_gym.measure.records import measured

NAME_OF_TABLE = "adapted"
"""Name of the Parquet file with all rows recorded so far, in the format of Measured v1."""
HERE = 4.0
"""Training weight of a program timed on this machine; programs timed elsewhere weigh 1.

Cross-validation on 80 operators chose it.
"""


def record(hw: Hardware, journal: Journal, minutes: float, compilers: set[int], console: Console, seed: int) -> None:
    """Time programs for `minutes`, of operators that the journal does not have yet.

    `compilers` are the CPUs that compile meanwhile.
    """
    count = TextColumn("{task.fields[operators]} operators")
    bars = TextColumn("{task.description}"), BarColumn(24), count, TimeRemainingColumn()
    listed, begin = operators_to_learn_from(), time.monotonic()
    with closing(cpu_backend(RULES)) as backend, Progress(*bars, console=console) as progress:
        collection = Collection(hw, journal, backend, seed)
        done = len(listed) - len(collection.missing(listed))
        bar = progress.add_task("measuring", total=60.0 * minutes, operators=done)
        for _ in collection.run(listed, compilers):
            done += 1
            progress.update(bar, completed=time.monotonic() - begin, operators=done)
            if time.monotonic() - begin > 60.0 * minutes:
                break


def operators_to_learn_from() -> list[Chosen]:
    """Return the operators of Measured v1's part `train`, in their random order."""
    return [one for one in chosen() if one.part == "train"]


def learned(rows: Sequence[Row], hw: Hardware, seed: int = 0) -> tuple[Any, dict[str, Any]]:
    """Learn a correction from the rows of a journal of `hw` and from the machines of Measured v1; return (correction, card)."""
    others = [observations(name, hw, SPACE) for name in measured.names("cpu")]
    here = Observed.of_table(pack.packed(rows), hw, SPACE)
    return learn([*others, here], SPACE, seed, last=HERE)


@command("adapt")
def run(config: DictConfig, console: Console) -> Path:
    """Measure programs, learn the correction and keep it; return the folder with it."""
    check_positive(config, "minutes")
    check_whole(config, 0, "cpu", "seed", null=("cpu",))
    compilers = alone_on(config.cpu) if config.cpu is not None else set[int]()
    folder = make_folder(Path(config.output) if config.output else adapted_folder())
    hw = machine("host", folder)
    with Journal(folder / NAME, FIELDS) as journal:
        record(hw, journal, config.minutes, compilers, console, config.seed)
        rows = list(journal)
    pack.write(rows, folder, NAME_OF_TABLE)
    with console.status("learning"):
        correction, card = learned(rows, hw, config.seed)
        correction.save(folder, card)
    console.print("\n".join(regrets(card)), highlight=False, markup=False)
    return folder


main = run
