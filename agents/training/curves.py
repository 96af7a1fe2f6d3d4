"""Learning curves of training runs (gensor train). Runs that differ only in their seed form one line with an interval."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from agents.policies.card import CARD
from gensor_gym.foreign import read_json, read_objects

POINTS = 200
"""Number of steps at which the learning curves of a group of runs are sampled."""
PRIVATE = ("seed", "output", "resume", "checkpoint_every", "torch_threads")
"""Configuration entries in which the runs of one group may differ."""


@dataclass(frozen=True)
class Run:
    """A training run: its folder and card, and the curve of mean returns over steps, float64 [N] each."""

    folder: Path
    card: dict[str, Any]
    steps: np.ndarray
    returns: np.ndarray


def read_run(folder: Path) -> Run:
    """Read the training run in a folder. ValueError if card.json or curve.jsonl is not a file that gensor train writes."""
    try:
        card = read_json(folder / CARD, finite=False)
        points = read_objects(folder / "curve.jsonl", finite=False)
        steps, returns = (np.array([p[name] for p in points], dtype=np.float64) for name in ("steps", "mean_return"))
    except (ValueError, TypeError, KeyError) as error:
        raise ValueError(f"{folder}: card.json or curve.jsonl is not as gensor train writes it ({error!r})") from error
    if not len(steps):
        raise ValueError(f"{folder}/curve.jsonl: expected at least one point of a learning curve")
    return Run(folder, card, steps, returns)


def flat(config: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Flatten a nested configuration to entries with dotted names."""
    found: dict[str, Any] = {}
    for name, value in config.items():
        found |= flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {prefix + name: value}
    return found


def group(runs: Iterable[Run]) -> dict[str, list[Run]]:
    """Group training runs by their differing settings; the label is the agent, then `name=value` of every other difference.

    Runs with equal seeds and settings have the same curve; the longest run counts.
    """
    runs = list(runs)
    entries = (flat(run.card.get("config", {})) for run in runs)
    configs = [{name: str(value) for name, value in of.items() if name not in PRIVATE} for of in entries]
    every = sorted({name for config in configs for name in config})
    differ = [name for name in every if name != "agent" and len({config.get(name) for config in configs}) > 1]
    groups: dict[str, dict[Any, Run]] = {}
    for run, config in zip(runs, configs, strict=True):
        words = [str(run.card.get("agent", "policy")), *(f"{n.split('.')[-1]}={config.get(n, '-')}" for n in differ)]
        known, seed = groups.setdefault(", ".join(words), {}), run.card.get("config", {}).get("seed", id(run))
        if seed not in known or run.steps[-1] > known[seed].steps[-1]:
            known[seed] = run
    return {label: list(known.values()) for label, known in groups.items()}


def common(runs: Sequence[Run]) -> tuple[np.ndarray, np.ndarray]:
    """Return the curves of a group of runs as (steps [P], returns [seeds, P]), interpolated linearly to the same steps.

    The steps are within the range that all runs cover.
    """
    steps = np.linspace(max(run.steps[0] for run in runs), min(run.steps[-1] for run in runs), POINTS)
    return steps, np.stack([np.interp(steps, run.steps, run.returns) for run in runs])


def rows(groups: dict[str, list[Run]]) -> list[tuple[str, ...]]:
    """Return the rows of a table of runs: configuration, seeds, steps, last return, seconds of training, validation."""
    lines: list[tuple[str, ...]] = []
    for label, runs in groups.items():
        last = np.array([run.returns[-1] for run in runs])
        seconds = np.array([float(run.card.get("training_seconds", np.nan)) for run in runs])
        scores = [run.card.get("evaluation", {}) for run in runs]
        names = sorted({name for score in scores for name, value in score.items() if isinstance(value, float)})
        found = ", ".join(f"{n} {np.mean([s[n] for s in scores if n in s]):.3f}" for n in names)
        low, high = (f"{value:.3f}" for value in (last.min(), last.max()))
        spread = low if len(runs) == 1 else f"{last.mean():.3f} ({low} to {high})"
        lines.append((label, str(len(runs)), f"{runs[0].steps[-1]:,.0f}", spread, f"{seconds.mean():.0f} s", found or "-"))
    return lines
