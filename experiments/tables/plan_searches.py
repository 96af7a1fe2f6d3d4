"""Searches and a learned policy of plans, on random networks that no policy trained on, against the proved optimum.

`python -m experiments.reproduce table=plan_searches output=results/plans seeds=[0,1,2,3,4,5,6,7,8,9]` makes the page; nothing is
timed but the searches themselves. The plan, with hypotheses, is `results/plans/README.md`, which was committed before the run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from omegaconf import DictConfig

from agents.planning.graph_network import GraphPolicy
from agents.planning.local import descended
from agents.planning.ppo import by_policy, trained
from agents.planning.searches import SEARCHES, Search, Walker, walked
from agents.runs.texts import p_text
from experiments.common import statistics, style
from experiments.studies.study import Stamp
from experiments.tables.plans import LOCAL, MACHINE, above
from experiments.tables.table import Cell, Table
from gensor_gym import hardware
from gensor_gym.hardware.types import Hardware
from gensor_gym.networks.fusion.coarse import fine_coarse
from gensor_gym.networks.fusion.fine import fine
from gensor_gym.networks.network import Network
from gensor_gym.networks.plan import Plan, cut_all
from gensor_gym.networks.planning.drawn import drawn, names_of, network_of
from gensor_gym.networks.planning.graph import PlanGraph

BUDGETS = (32, 128, 512)
"""Decisions after which searches are compared; every search may take the last number."""
NETWORKS = 16
"""Networks of a part: its last ones."""
TRAINED, UPDATES = 24, 15
"""Networks of the part `train` that each policy trains on, and its updates of 1,024 decisions."""
PPO, REFERENCE = "ppo", "annealing"
RULES: Mapping[str, Callable[[Network, Hardware], Plan]] = {
    "cut_all": lambda network, _: cut_all(network), "fine": fine, "fine_coarse": fine_coarse,
    "local": lambda network, hw: descended(cut_all(network), PlanGraph(network, hw).prices.total, LOCAL)[0],
}  # fmt: skip
RESAMPLES = 1000
SHOWN = np.geomspace(4, BUDGETS[-1], 24), np.geomspace(1e-4, 1.0, 24)
"""Decisions, and processor seconds, at which the figure has points."""


@dataclass(frozen=True)
class Part:
    """Searches of the networks of one part: arm -> walkers [tasks][seeds]."""

    graphs: list[PlanGraph]
    walkers: dict[str, list[list[Walker]]]

    def regrets(self, arm: str, least: Callable[[Walker, float], float], places: Sequence[float]) -> np.ndarray:
        """Percent above the optimum, float64 [tasks, seeds, places], of `least(walker, place)`."""
        pairs = zip(self.graphs, self.walkers[arm], strict=True)
        return np.array([[[above(least(one, at), best_of(of)) for at in places] for one in some] for of, some in pairs])


def make(config: DictConfig, folder: Path) -> list[Table]:
    """The tables of the parts `test` and `unseen`, and the figure of both; `limit` caps the networks of every part."""
    hw = hardware.get(MACHINE)
    policies = [trained(names_of("train")[: min(TRAINED, config.limit or TRAINED)], hw, seed, UPDATES) for seed in config.seeds]
    parts = {name: _searched(name, hw, config, policies) for name in ("test", "unseen")}
    figure = _draw(parts, folder / "plan_searches.png")
    return [_table(name, part, config.seeds, (figure,) if name == "unseen" else ()) for name, part in parts.items()]


def _searched(name: str, hw: Hardware, config: DictConfig, policies: list[GraphPolicy]) -> Part:
    names = names_of(name)[-min(NETWORKS, config.limit or NETWORKS) :]
    graphs = [PlanGraph(network_of(made), hw) for one in names if (made := drawn(one)) is not None]
    for graph in graphs:
        best_of(graph)  # prices all pieces, which is no part of a search's seconds
    arms: dict[str, list[Search]] = {arm: [search] * len(policies) for arm, search in SEARCHES.items()}
    arms[PPO] = [by_policy(policy) for policy in policies]
    found = {
        arm: [[walked(some[at], graph, BUDGETS[-1], seed) for at, seed in enumerate(config.seeds)] for graph in graphs]
        for arm, some in arms.items()
    }
    return Part(graphs, found)


def _table(name: str, part: Part, seeds: Sequence[int], figures: tuple[str, ...]) -> Table:
    found = {arm: part.regrets(arm, Walker.least, BUDGETS) for arm in part.walkers}
    others = {arm: scores for arm, scores in found.items() if arm != REFERENCE}
    lines = statistics.against(others, found[REFERENCE], RESAMPLES, crossed=True)
    rows: list[tuple[Cell, ...]] = []
    for arm, scores in found.items():
        low, high = statistics.bootstrap(_mean, scores, resamples=RESAMPLES, crossed=arm == PPO)
        means = [f"{mean:.2f} [{low[at]:.2f}, {high[at]:.2f}]" for at, mean in enumerate(_mean(scores))]
        spent = float(np.median([walker.spent for some in part.walkers[arm] for walker in some]))
        rows.append((arm, *means, float(scores[..., -1].max()), _than(lines[arm][-1]) if arm in lines else None, spent))
    for rule, plan_of in RULES.items():
        prices = [(graph, graph.prices.total(plan_of(graph.operator, graph.hardware).pieces)) for graph in part.graphs]
        percent = [above(seconds, best_of(graph)) for graph, seconds in prices]
        rows.append((rule, *[f"{np.mean(percent):.2f}"] * len(BUDGETS), max(percent), None, None))
    columns = ("search", *(f"{budget} decisions" for budget in BUDGETS), "worst", f"minus {REFERENCE}", "processor s")
    notes = _notes(len(part.graphs), len(seeds))
    return Table(f"Searches of plans, {name}", Stamp.PREDICTED, columns, tuple(rows), notes, figures)


def _mean(scores: np.ndarray) -> np.ndarray:
    found: np.ndarray = scores.mean(axis=(0, 1))
    return found


def _than(line: Mapping[str, float]) -> str:
    return f"{line['mean']:+.2f} [{line['low']:+.2f}, {line['high']:+.2f}], p {p_text(line['p_holm'])}"


def _notes(networks: int, seeds: int) -> tuple[str, ...]:
    return (
        f"Percent above the optimum by the models of `{MACHINE}`, mean over {networks} networks and {seeds} seeds, "
        "with 95 % intervals of a bootstrap over both; `worst` is of all networks and seeds after the last budget.",
        f"minus {REFERENCE}: after the last budget, paired by network, p by Holm over the searches. Rules and `local` take no "
        "decisions; `fine_coarse` differs from `fine` by shared loops alone, which have no price.",
        f"{PPO}: a graph network that each seed trains on {TRAINED} networks of `train`, by {UPDATES} updates of 1,024 "
        "decisions, which are not in its decisions or seconds.",
        "processor s: median of a whole search where all pieces are priced already; a search ends early if it is done.",
    )


def best_of(graph: PlanGraph) -> float:
    """Seconds of the proved optimum."""
    assert graph.least is not None, "random networks are small"
    return graph.least


def _draw(parts: Mapping[str, Part], path: Path) -> str:
    looks = style.look([*SEARCHES, PPO])
    with plt.rc_context(style.RC):
        canvas, grid = plt.subplots(2, len(parts), figsize=(9.6, 7.2), sharey=True, layout="constrained")
        measures: tuple[Callable[[Walker, float], float], ...] = (Walker.least, lambda walker, at: walker.least(within=at))
        for row, places, measure, unit in zip(grid, SHOWN, measures, ("decisions", "processor seconds, priced"), strict=True):
            for axes, (name, part) in zip(row, parts.items(), strict=True):
                for arm in part.walkers:
                    _curve(axes, places, _mean(part.regrets(arm, measure, list(places))), looks[arm], arm)
                axes.set(title=name, xlabel=unit, xscale="log", yscale="log", ylim=(0.01, None))
            row[0].set_ylabel("mean percent above the optimum")
        handles, labels = grid[0][0].get_legend_handles_labels()
        canvas.legend(handles, labels, loc="outside lower center", ncols=len(labels))
        return style.save(canvas, path)


def _curve(axes: Axes, places: np.ndarray, means: np.ndarray, look: tuple[str, str], arm: str) -> None:
    shown = np.where(means > 0, means, math.nan)
    axes.plot(places, shown, color=look[0], marker=look[1], markevery=4, markersize=4, linewidth=1.4, label=arm)
