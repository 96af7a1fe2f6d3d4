"""Optuna tunes a strategy's settings: each trial is a comparison, whose `score` is minimised.

The score is the geometric mean, over operators and seeds, of the winner's time divided by the operator's roofline floor.
`experiments.compare` returns it to any sweeper of Hydra too. Trials are kept in a file, so that the same command resumes.
"""

import sys

import optuna
from rich.console import Console

from agents.cli.arguments import compose
from agents.runs.jobs import Jobs
from agents.runs.settings import settings_of
from experiments.comparison.compare import compare
from experiments.comparison.summary import score


def objective(trial: optuna.Trial) -> float:
    """Run a comparison with this trial's settings and return its score."""
    batch = trial.suggest_int("batch", 1, 8)
    config = compose([
        "operator=gemm(m=24, n=20, k=28)", "strategy=random_walk", f"strategies.random_walk.batch={batch}",
        "seed=[0,1]",
        "backend=analytic", "hardware=h200", "budget.trials=8", "figures=false", "wandb.mode=disabled",
        f"output={folder}/{batch}",
    ])  # fmt: skip
    settings = settings_of(config)
    jobs = Jobs(settings.backend, settings.store, settings.output)
    try:
        return score(compare(settings, jobs, Console(quiet=True)))
    finally:
        jobs.close()


if __name__ == "__main__":
    folder, trials = sys.argv[1], int(sys.argv[2])
    storage = f"sqlite:///{folder}/optuna.sqlite"
    sampler = optuna.samplers.TPESampler(seed=0)
    study = optuna.create_study(storage=storage, study_name="batch", load_if_exists=True, sampler=sampler)
    study.optimize(objective, n_trials=trials)
    print(f"best of {len(study.trials)} trials: batch={study.best_params['batch']}, score {study.best_value:.3f}")
