"""Bayesian optimisation by Optuna's tree-structured Parzen estimators (Bergstra et al., NeurIPS 2011)."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
import optuna
from optuna.distributions import IntDistribution

from agents.core.ledger import Ledger
from agents.core.programs import nearest
from gensor_gym.measure.session import Session

REPEATS = 6
"""Number of consecutive illegal or repeated proposals after which a random program is measured."""


@dataclass(frozen=True)
class Tpe:
    """Bayesian optimisation by TPE: Optuna proposes programs, one parameter for every number of a program that varies.

    A parameter is the rank of the number among its possible values. A proposal stands for the program whose tile sizes are
    nearest to the proposed numbers. Illegal proposals are reported as infinitely slow, and repeated proposals are drawn again.
    The analytic model is not used.
    """

    space: str = "extended"
    start: int = 10
    """Number of random programs before the first proposal."""
    candidates: int = 24
    """Number of candidates drawn from the density of good programs. The candidate least like bad programs is proposed."""
    multivariate: bool = True
    """Whether one density covers all parameters; otherwise each parameter has a density of its own."""

    def search(self, session: Session, rng: np.random.Generator) -> None:
        """Let TPE propose programs and measure them, until the budget is spent or every program is measured."""
        ledger = Ledger(session)
        study, space = self._study(int(rng.integers(2**31))), _distributions(ledger)
        initial = ledger.walked(rng, self.start)
        for schedule, found in zip(initial, ledger.measure(initial), strict=False):
            _tell(study, space, _numbers(ledger, ledger.programs.vector(schedule)), found.seconds)
        while True:
            vector = self._propose(ledger, study, space) if space else None
            if vector is None:
                schedules = ledger.fresh(rng)
                if not schedules:
                    return
                vector = ledger.programs.vector(schedules[0])
            else:
                schedules = [ledger.programs.schedule(vector)]
            _tell(study, space, _numbers(ledger, vector), ledger.seconds(schedules[0]))

    def _study(self, seed: int) -> optuna.Study:
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            sampler = optuna.samplers.TPESampler(
                n_startup_trials=0, n_ei_candidates=self.candidates, multivariate=self.multivariate, seed=seed
            )
        return optuna.create_study(sampler=sampler)

    def _propose(self, ledger: Ledger, study: optuna.Study, space: dict[str, IntDistribution]) -> np.ndarray | None:
        """Draw proposals until one is legal and not measured yet; return its vector, or None after six (`REPEATS`) proposals."""
        for _ in range(REPEATS):
            trial = study.ask({**space})
            vector = _vector(ledger, [trial.params[name] for name in space])
            if not ledger.programs.legal(vector[None])[0]:
                study.tell(trial, np.inf)
                continue
            study.tell(trial, state=optuna.trial.TrialState.FAIL)  # reported when it is measured
            if ledger.programs.schedule(vector) not in ledger:
                return vector
        return None


def _distributions(ledger: Ledger) -> dict[str, IntDistribution]:
    logs = ledger.programs.logs
    return {f"{c}.{p}": IntDistribution(0, len(np.unique(logs[c][:, p])) - 1) for c, p in ledger.programs.places}


def _vector(ledger: Ledger, ranks: list[int]) -> np.ndarray:
    """Return the vector of the program whose tile sizes and knobs are nearest to the numbers with the given ranks."""
    programs = ledger.programs
    wanted = [logs[0].copy() for logs in programs.logs]
    for (column, place), rank in zip(programs.places, ranks, strict=True):
        wanted[column][place] = np.unique(programs.logs[column][:, place])[rank]
    return np.array([nearest(logs, w) for logs, w in zip(programs.logs, wanted, strict=True)])


def _numbers(ledger: Ledger, vector: np.ndarray | None) -> list[int] | None:
    """Return the rank of each varying number of a program among its possible values; None if `vector` is None."""
    if vector is None:
        return None
    logs = ledger.programs.logs
    return [int(np.searchsorted(np.unique(logs[c][:, p]), logs[c][vector[c], p])) for c, p in ledger.programs.places]


def _tell(study: optuna.Study, space: dict[str, IntDistribution], numbers: list[int] | None, seconds: float) -> None:
    if numbers is not None:
        parameters = dict(zip(space, numbers, strict=True))
        study.add_trial(
            optuna.trial.create_trial(params=parameters, distributions=dict(space), value=float(np.log(seconds)))
        )
