"""AutoTVM's search: annealing on a learned cost model proposes a batch, the batch is measured, and the model is fitted again.

The search is Algorithm 1 of Chen et al., NeurIPS 2018, with the numbers of the authors' released tuner. The template is our space
(`agents.autotvm.template`), and the features are ours (`agents.autotvm.loop_features`). The analytic model of this repository is
not used.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from agents.autotvm.annealing_on_model import AnnealingOnModel
from agents.autotvm.diversity import diverse_pick
from agents.autotvm.program_features import FEATURES, program_features
from agents.autotvm.template import Template, keys_of
from agents.autotvm.transfer import GlobalModel, labels_of
from agents.autotvm.tree_gru import TreeGru
from agents.autotvm.tree_model import CostModel, Ensemble, TreeModel
from gensor_gym.measure.measurement import Status
from gensor_gym.measure.session import Session

MEMBERS = 6
"""Number of models in an ensemble, as in the paper."""
IDLE_BATCHES = 20
"""Number of consecutive batches without a new kernel after which the search ends."""


@dataclass(frozen=True)
class AutoTvm:
    """AutoTVM's search: annealing on a learned cost model proposes the programs to measure. The defaults are the paper's.

    `autotvm_small` is our variant for few trials.
    """

    space: str = "extended"
    batch: int = 64
    """Number of programs that are proposed per fit (the authors' plan size)."""
    warm_up: int = 64
    """Number of random programs that are measured before the first fit, rounded up to whole batches and at least one batch."""
    epsilon: float = 0.05
    """Share of random programs in every batch."""
    model: str = "trees"
    """Kind of cost model: `trees` (boosted) or `treegru` (a recurrent network)."""
    objective: str = "rank"
    """Training objective of the model: `rank` or `regression`."""
    features: str = "loops"
    """Representation of programs: `loops`, `curve` or `knobs` (from the paper's study of representations)."""
    acquisition: str = ""
    """Empty for a single model; `mean`, `ucb` or `ei` for an ensemble on random subsets, which needs objective `regression`."""
    diversity: int = 1
    """The paper's lambda: each batch is chosen for diversity among this many times as many candidates. 1 takes the best ones."""
    alpha: float = 1.0
    """Weight of a knob value that is new in the batch, relative to the model's score, when a batch is chosen for diversity.

    If it is infinite, scores do not count.
    """
    chains: int = 128
    """Number of chains of simulated annealing on the model."""
    steps: int = 500
    """Maximum number of steps of a chain."""
    patience: int = 50
    """Number of steps without a change among the best candidates after which the annealing ends."""
    history: str = ""
    """Store, table or folder of tables with trials of earlier tasks, to which a global model is fitted; empty for none."""

    def __post_init__(self) -> None:
        for name in ("batch", "diversity", "chains", "steps", "patience"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)}: expected 1 or more")
        if not 0.0 <= self.epsilon <= 1.0 or self.warm_up < 0:
            raise ValueError(f"epsilon={self.epsilon}, warm_up={self.warm_up}: expected a share, and 0 or more")
        if self.model not in ("trees", "treegru") or self.features not in FEATURES:
            raise ValueError(
                f"model {self.model!r}, features {self.features!r}: expected trees or treegru, and one of {FEATURES}"
            )
        if self.model == "treegru" and (self.features != "loops" or self.acquisition):
            raise ValueError("model 'treegru' takes features 'loops' and no acquisition")
        if self.acquisition and self.objective != "regression":
            raise ValueError(f"acquisition {self.acquisition!r} needs objective 'regression', got {self.objective!r}")
        if self.acquisition and self.history:
            raise ValueError(f"acquisition {self.acquisition!r} is for searches without history")

    @property
    def unguided(self) -> int:
        """Return the number of trials that are chosen before any measurement of this search can guide the choice.

        It is 0 with a `history`, which guides the first trial.
        """
        return 0 if self.history else max(self.batch, self.warm_up)

    def search(self, session: Session, rng: np.random.Generator) -> None:
        """Propose programs, measure them and fit the cost model, again and again.

        The search ends when the budget is spent or no new program is left.
        """
        tuner, idle = Tuner(self, session, rng), 0
        while idle < IDLE_BATCHES:
            before = session.trials
            if not tuner.propose_and_measure():
                return
            idle = 0 if session.trials > before else idle + 1


class Tuner:
    """State of one search: tried configurations with their measured times, the cost model, and the annealing chains."""

    def __init__(self, settings: AutoTvm, session: Session, rng: np.random.Generator) -> None:
        self.settings, self.session, self.rng = settings, session, rng
        self.template = Template(session.graph)
        self.annealing = AnnealingOnModel(self.template, settings.chains, settings.steps, patience=settings.patience)
        self.tried: set[bytes] = set()
        self.points: list[np.ndarray] = []
        self.seconds: list[float] = []
        seed = int(rng.integers(2**31))
        self.model = make_model(settings, seed)
        self.earlier: GlobalModel | None = None
        if settings.history:
            kind, objective = settings.features, settings.objective
            self.earlier = GlobalModel(settings.history, session.graph, kind, objective, settings.batch, seed)
        listed = self.template.enumerated
        self._listed_features = None if listed is None else self.features(listed)

    def propose_and_measure(self) -> bool:
        """Choose and measure one batch of configurations; return False if no untried configuration is left."""
        plan = self._plan()
        if not len(plan):
            return False
        measured = self.session.measure([self.session.graph.schedule(row) for row in self.template.rows(plan)])
        for point, result in zip(plan, measured, strict=False):  # a batch beyond the budget is cut
            self.points.append(point)
            self.seconds.append(result.seconds if result.status is Status.OK else np.inf)
        return True

    def _plan(self) -> np.ndarray:
        """Choose the configurations of the next batch, partly by the model and partly at random, and mark them as tried."""
        batch, chosen = self.settings.batch, np.empty((0, len(self.template.counts)), dtype=np.int64)
        learned = len(self.seconds) >= max(1, self.settings.warm_up) and np.isfinite(self.seconds).any()
        if learned or self.earlier:
            if at_model := batch - int(self.settings.epsilon * batch):
                chosen = self._by_model(at_model)
            self.tried.update(keys_of(chosen))
        return np.concatenate([chosen, self._random(batch - len(chosen))])

    def _by_model(self, count: int) -> np.ndarray:
        if np.isfinite(self.seconds).any():
            features = self.features(np.array(self.points))
            self.model.fit(features, labels_of(np.array(self.seconds)), self._margin(features))
        wide = count * self.settings.diversity
        found, scores = self.annealing.best(self._score(), wide, self.tried, self.rng)
        if self.settings.diversity == 1:
            return found
        return found[diverse_pick(found, scores, count, self.settings.alpha)]

    def _random(self, count: int) -> np.ndarray:
        """Draw at most `count` random untried configurations and mark them as tried."""
        listed = self.template.enumerated
        if listed is not None:
            new = [i for i, key in enumerate(keys_of(listed)) if key not in self.tried]
            found = listed[self.rng.permutation(new)[:count]] if new else listed[:0]
        else:
            drawn = self.template.random(2 * count, self.rng)
            fresh = [i for i, key in enumerate(keys_of(drawn)) if key not in self.tried]
            found = np.unique(drawn[fresh], axis=0)
            found = self.rng.permutation(found)[:count]
        self.tried.update(keys_of(found))
        return found

    def features(self, points: np.ndarray) -> np.ndarray:
        """Compute the cost model's input features float32 [B, F] of configurations `points` [B, K]."""
        return program_features(self.settings.features, self.session.graph, self.template.rows(points))

    def _score(self) -> Callable[[np.ndarray], np.ndarray]:
        listed = self.template.enumerated
        if listed is None or self._listed_features is None:
            return lambda points: self._predict(self.features(points))
        table = np.full(self.template.size, -np.inf)
        table[self.template.numbers(listed)] = self._predict(self._listed_features)
        return lambda points: table[self.template.numbers(points)]

    def _predict(self, features: np.ndarray) -> np.ndarray:
        return self.model.predict(features, self._margin(features))

    def _margin(self, features: np.ndarray) -> np.ndarray | None:
        """Return the scores that the model of earlier tasks predicts from `features`.

        None without earlier tasks, or after enough measurements of the current task.
        """
        return None if self.earlier is None else self.earlier.margin(features, len(self.seconds))


def make_model(settings: AutoTvm, seed: int) -> CostModel:
    """Make an unfitted cost model of the kind that the settings name: TreeGRU, trees, or an ensemble of trees."""
    if settings.model == "treegru":
        return TreeGru(settings.objective, seed=seed)
    trees = [TreeModel(settings.objective, settings.batch, seed=seed + i) for i in range(MEMBERS)]
    return Ensemble(trees, settings.acquisition, seed=seed) if settings.acquisition else trees[0]


@dataclass(frozen=True)
class AutoTvmSmall(AutoTvm):
    """Our variant of AutoTVM for few trials: it measures batches of 8 and fits its model after the first batch."""

    batch: int = 8
    warm_up: int = 0
