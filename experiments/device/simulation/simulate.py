"""What a run would get done on a machine with a GPU, without one: `python -m experiments.simulate [key=value]`.

    budget_s=540        seconds of the stages together
    rows=FILE           recorded rows that the delays are drawn from; results/h100/raw/recorded.jsonl.gz
    device=0.2          checks of answers on the device: how long they take, over those on the host
    references=0.03     references on the device: how long they take, over those of NumPy on one thread
    seed=0

The schedulers are those of the stages. The last two numbers are assumptions until a device has said them.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from experiments.commands.refusal import exit_code
from experiments.common.journal import read_rows
from experiments.device import gpu
from experiments.device.arguments import read_words
from experiments.device.runner import GRACE, RESERVE
from experiments.device.simulation import before as simulation_before
from experiments.device.simulation import simulation
from experiments.device.simulation.delays import Delays
from experiments.device.table import read_experiment, read_table

ROWS = Path(__file__).resolve().parents[3] / "results" / "h100" / "raw" / "recorded.jsonl.gz"
BEFORE = {"correctness": 52.0, "operators": 170.0 - GRACE, "operators, warm": 403.0}
"""Seconds of the stages in the first run of commit 4394c3f, and of `operators` in the second."""


@dataclass(frozen=True)
class Settings:
    """The arguments."""

    budget_s: float = 540.0
    rows: str = str(ROWS)
    device: float = 0.2
    references: float = 0.03
    seed: int = 0


def shares(budget: float) -> dict[str, float]:
    """Seconds after which each stage starts nothing new, if every one before it took as long."""
    left, found = budget - RESERVE, {}
    usual = [stage for stage in gpu.STAGES if stage.name not in gpu.ASKED_FOR]
    for number, stage in enumerate(usual):
        share = left * stage.weight / sum(later.weight for later in usual[number:])
        found[stage.name] = share - min(GRACE, 0.25 * share)
        left -= found[stage.name]
    return found


def before(delays: Delays, seed: int) -> dict[str, object]:
    """What commit 4394c3f got done."""
    machine, table = simulation.on(delays, seed), read_table()
    first, second = BEFORE["operators"], BEFORE["operators, warm"]
    return {
        "correctness": {"verified": simulation_before.correct(machine(), BEFORE["correctness"])},
        "operators, first run": {"compared": simulation_before.compete(machine(), first, table, True)},
        "operators, second run": {"compared": simulation_before.compete(machine(), second, table, False)},
    }


def now(delays: Delays, seed: int, budget: float) -> dict[str, Mapping[str, int]]:
    """What the stages would get done."""
    machine, table, seconds = simulation.on(delays, seed), read_table(), shares(budget)
    with tempfile.TemporaryDirectory() as folder:
        return {
            "correctness": simulation.correct(machine(), seconds["correctness"], Path(folder)),
            "operators": simulation.compete(machine(), seconds["operators"], table),
            "tables": simulation.record(machine(), seconds["tables"], table, Path(folder)),
            "compare": simulation.contest(machine(), seconds["compare"], table.compare),
            "policies": simulation.contest(machine(), seconds["policies"], read_experiment()),
        }


def main(arguments: list[str] | None = None) -> int:
    """Command line; the exit code."""
    return exit_code(lambda: _show(read_words(Settings, sys.argv[1:] if arguments is None else arguments)))


def _show(given: Settings) -> None:
    """Print both; ValueError for rows that say no delays, and for a budget that is none."""
    if not given.budget_s > 0:
        raise ValueError(f"budget_s={given.budget_s}: expected seconds above 0")
    delays = Delays.of(read_rows(Path(given.rows)))
    faster = replace(delays, per_byte=given.device * delays.per_byte, reference_scale=given.references)
    print("as it was at commit 4394c3f (said by its runs: 0 verified, 3 and 18 operators compared)")
    for name, found in before(delays, given.seed).items():
        print(f"  {name}: {found}")
    for words, of in (("now, answers checked on the host", delays), ("now, answers checked on the device", faster)):
        print(f"{words}, {given.budget_s:.0f} s")
        for name, counts in now(of, given.seed, given.budget_s).items():
            print(f"  {name}: {dict(counts)}")
