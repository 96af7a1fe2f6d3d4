"""Code that `optimize` and `export` share: settings of a search, and a search with a progress bar."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from agents.cli.checks import check_whole, use_threads
from agents.cli.refusal import first_line
from agents.optimizer import Result, optimize
from agents.runs.files import make_folder
from agents.runs.texts import seconds_text
from agents.strategy import FUSED, STRATEGIES, default_for, searched_of
from gensor_gym import hardware as machines
from gensor_gym.dataflow.graph import Dataflow
from gensor_gym.hardware.types import Hardware
from gensor_gym.measure.backend import Backend, get_backend
from gensor_gym.measure.records.tuned import tuned_path
from gensor_gym.measure.session import TraceRow
from gensor_gym.operators.computation import Computation
from gensor_gym.operators.types import Operator


@dataclass(frozen=True)
class Search:
    """Settings of a search: machine, backend, strategy, budget, and the store that keeps the trials."""

    hardware: Hardware
    backend: Backend
    strategy: str
    hyperparameters: Mapping[str, object]
    trials: int | None
    seed: int
    store: Path

    @classmethod
    def of(cls, config: DictConfig) -> Search:
        """Read the settings of a search from a configuration, and set this process's `threads`.

        ValueError for an unknown or invalid value.
        """
        plain: Any = OmegaConf.to_container(config, resolve=True)
        check_whole(plain, 0, "seed")
        check_whole(plain, 1, "trials", null=("trials",))
        use_threads(plain)
        if len(plain["strategies"]) != 1:
            raise ValueError(f"strategies {', '.join(plain['strategies'])}: expected one, as in strategy=markov")
        ((strategy, hyperparameters),) = plain["strategies"].items()
        hw = machines.get(plain["hardware"])
        store = Path(plain["store"]) if plain["store"] else tuned_path()
        make_folder(store.parent)
        backend = get_backend(plain["backend"], hw)
        return cls(hw, backend, strategy, hyperparameters, plain["trials"], plain["seed"], store)

    def tuned(self, op: Computation) -> str:
        """Return the Python call that loads the best stored program of an operator."""
        which = "" if self.hardware.name == "host" else f", {self.hardware.name!r}"
        where = "" if self.store == tuned_path() else f", store={str(self.store)!r}"
        return f"gensor_gym.tuned({str(op)!r}{which}{where})"

    def run(self, op: Operator | Dataflow, reuse: bool, console: Console) -> Result:
        """Search for the best program of an operator with a progress bar; with `reuse` prefer a stored program.

        The process exits with status 1 if no program succeeded.
        """
        strategy, hyperparameters = self._strategy(op, console)
        columns = (
            TextColumn("{task.description}"), BarColumn(bar_width=24), MofNCompleteColumn(), TimeElapsedColumn(),
            TextColumn("{task.fields[best]}"),
        )  # fmt: skip
        with Progress(*columns, console=console, transient=True) as progress:
            bar = progress.add_task(f"{strategy} on {op}", total=self.trials, best="")
            best = float("inf")

            def on_trial(row: TraceRow) -> None:
                nonlocal best
                best = min(best, row.seconds)
                progress.update(bar, advance=1, best=seconds_text(best) if best < float("inf") else row.status)

            try:
                return optimize(
                    op, self.hardware, strategy, self.trials or 0, self.seed, self.backend, str(self.store), reuse, on_trial,
                    **hyperparameters,
                )  # fmt: skip
            except RuntimeError as error:
                progress.stop()
                console.print(first_line(error), style="red", soft_wrap=True, markup=False)
                sys.exit(1)

    def _strategy(self, op: Operator | Dataflow, console: Console) -> tuple[str, Mapping[str, object]]:
        """Choose (strategy, hyperparameters) for an operator: the default ones if the strategy cannot search fused operators."""
        if searched_of(op) == FUSED and FUSED not in STRATEGIES[self.strategy].searches:
            chosen = default_for(op, self.hardware)
            note = f"{self.strategy} does not search fused operators: {chosen} does"
            console.print(note, style="dim", highlight=False)
            return chosen, {}
        return self.strategy, self.hyperparameters
