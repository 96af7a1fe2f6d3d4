"""Tables of AutoTVM and Ansor: made of studies that go on where they stopped, stamped, ours beside the published."""

from __future__ import annotations

from pathlib import Path

import hydra
import numpy as np
import pytest
from omegaconf import DictConfig, OmegaConf

from agents.ansor.sketches import derive_sketches
from agents.cli.arguments import CONF, compose
from experiments.common import style
from experiments.studies import scores as study_figures
from experiments.studies.search.scores import BestKnown
from experiments.studies.search.study import SearchStudy
from experiments.tables.ansor import classes_of, normalised
from experiments.tables.autotvm import fewer_trials
from experiments.tables.reproduce import reproduce
from experiments.tables.searchers import ansor_tasks, studies
from experiments.tables.searchers.ansor_tasks import verdicts
from experiments.tables.table import Stamp
from gensor_gym.construction import ConstructionGraph
from tests.support.coarse_figures import COARSE_FIGURES
from tests.support.in_process import search_here
from tests.support.thorough import thorough_but

pytestmark = COARSE_FIGURES
SMALL = "operators=['reduce_sum(m=16, k=65536)']"
STUDIES = (
    "autotvm_model", "autotvm_recorded", "autotvm_transfer", "ansor_operators", "ansor_operators_recorded", "ansor_ablation",
    "ansor_ablation_recorded",
)  # fmt: skip


def _config(table: str, folder: Path, *overrides: str) -> DictConfig:
    """As conf/reproduce.yaml, without its part for the command line."""
    config = compose([], "reproduce")
    given = {"table": table, "output": str(folder), "overrides": list(overrides)}
    return OmegaConf.merge(config, given)  # type: ignore[return-value]


@pytest.fixture
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Searches in this process, networks of few tasks, intervals of few resamples."""
    search_here(monkeypatch)
    for module in (studies, study_figures):
        monkeypatch.setattr(module, "RESAMPLES", 20)
    monkeypatch.setattr(studies, "RESAMPLES_DRAWN", 20)
    monkeypatch.setattr(ansor_tasks, "compose", _of_small_networks)


def _of_small_networks(overrides: list[str], name: str) -> DictConfig:
    """The configuration with three tasks in place of 21."""
    config = compose(overrides, name)
    config.tasks.networks = {"resnet18": {"C1": 1, "C6": 3}, "mobilenet": {"D1": 1}}
    return config


@pytest.mark.parametrize("name", thorough_but(STUDIES, "autotvm_transfer", "ansor_ablation", "ansor_operators_recorded"))
def test_every_study_has_its_hypotheses(name: str, tmp_path: Path) -> None:
    """Variants are of registered strategies, and each hypothesis is of a variant, beside one that is there."""
    study = SearchStudy(compose([f"experiment={name}", f"output={tmp_path}"], name="study"))
    names = {job.strategy for job in study.settings.jobs}
    for variant, said in study.hypotheses.items():
        assert variant in names and said.get("beside", study.said["reference"]) in names and said["because"]


def test_studies_begin_within_a_command() -> None:
    """A table is a command of Hydra's that composes the studies that it is made of, which Hydra alone refuses."""
    with hydra.initialize_config_dir(str(CONF), version_base="1.3"):
        outer = hydra.compose("reproduce")
        inner = compose(["experiment=ansor_ablation"], name="study")
        assert hydra.compose("reproduce") == outer, "the command goes on with its own configuration"
    assert list(inner.seed) == list(range(8))


@pytest.mark.thorough
def test_ansor(tmp_path: Path, quickly: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of it, tiny; made again it is the same, since nothing is searched again. Figures of studies are no part of a table."""
    config = _config(
        "ansor", tmp_path, SMALL, "figures=false", "seed=0", "budget.trials=12", "study.checkpoints=[4,12]", "study.resamples=20",
        "strategies.ansor.batch=4", "strategies.ansor.warmup=8", "strategies.ansor.population=8", "study.workers=1",
        "tasks.trials=20",
    )  # fmt: skip
    tables = reproduce(config)
    assert [table.stamp for table in tables] == [
        Stamp.PREDICTED, Stamp.REPLICATED, Stamp.PREDICTED, Stamp.REPLICATED, Stamp.PREDICTED,
    ]  # fmt: skip
    assert [row[0] for row in tables[0].rows] == ["NRM batch 16 (1)", "all: speed over the best known's"]
    assert [row[0] for row in tables[3].rows] == ["Ansor, full", "Beam search", "No fine-tuning", "Limited space"]
    assert any(note.startswith("Followed up") and "of 1 operators" in note for note in tables[0].notes)
    assert len(tables[4].rows) == 4 and any("expected worse" in note for note in tables[4].notes)
    for table in tables:
        assert any("Published" in note for note in table.notes) and any(note.startswith("Ours") for note in table.notes)
        assert all((tmp_path / name).read_bytes().startswith(b"\x89PNG") for name in table.figures)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("jobs/*.json")}
    before |= {path: path.stat().st_mtime_ns for path in tmp_path.rglob("ansor_tasks/*.json")}
    monkeypatch.setattr(style, "_write", lambda *_: None)  # which takes longer than all else now
    assert reproduce(config) == tables
    assert before == {path: path.stat().st_mtime_ns for path in before} and len(before) >= 8


@pytest.mark.thorough
def test_autotvm(tmp_path: Path, quickly: None) -> None:
    """Three tables; the history of other convolutions is written and learned from."""
    tables = reproduce(
        _config(
            "autotvm", tmp_path, "operators=['gemv(m=512, k=512)']", "figures=false", "seed=0", "budget.trials=16",
            "study.checkpoints=[8,16]", "study.resamples=20", "study.workers=1", "strategies.autotvm.batch=8",
            "strategies.autotvm.warm_up=8", "space=compact",
        )  # fmt: skip
    )
    assert [table.stamp for table in tables] == [Stamp.REPLICATED, Stamp.PREDICTED, Stamp.PREDICTED]
    names = [row[0] for row in tables[0].rows]
    assert names[0] == "autotvm" and {"random", "regression", "treegru", "ei", "diversity_4", "transfer"} <= set(names)
    assert any("transfer: ValueError" in note for note in tables[2].notes), "16 trials are too few to learn from"


def test_best_known_stands_for_a_table() -> None:
    rows = [{"schedule": name, "seconds": s} for name, s in (("a", 4.0), ("b", 2.0), ("c", None), ("d", 1.0))]
    known = BestKnown(rows)
    assert np.allclose(np.exp(known.curve(["a", "c", "b", "d"], 5)), [4, 4, 2, 1, 1])
    assert np.allclose(np.exp(known.curve(["c"], 2)), 4) and np.isnan(known.chance(3)).all()
    with pytest.raises(ValueError, match="no best"):
        BestKnown(rows[2:3])


def test_fewer_trials() -> None:
    """They have 1.0 after half of their four trials: we after the first, they after the second; then nobody better."""
    theirs, ours = np.array([[[3.0, 1.0, 0.5, 0.5]]]), np.array([[[1.0, 1.0, 1.0, 0.2]]])
    assert fewer_trials(ours, theirs) == 2.0 and fewer_trials(theirs, theirs) == 1.0
    assert fewer_trials(np.full((1, 1, 4), 2.0), theirs) == pytest.approx(2 / 5)


def test_classes_and_bars() -> None:
    assert classes_of(["reduce_sum(m=16, k=65536)"]) == ["NRM batch 16"]
    assert classes_of(["reduce_sum(m=16, k=65536)", "gemm(m=7, n=7, k=7)"]) == ["reduce_sum", "gemm"]
    found = normalised({"a": np.array([[0.5, 0.5], [0.5, 0.5]]), "b": np.array([[0.25, 0.25], [0.25, 0.25]])})
    assert found == ["1.00 +- 0.00", "0.50 +- 0.00"]


def test_what_a_sketch_holds() -> None:
    """All that it makes, and of innermost factors beyond its bound nothing."""
    graph = ConstructionGraph("gemm(m=256, n=256, k=64)", "cascade_lake", "extended")
    rng = np.random.default_rng(0)
    for sketch in derive_sketches(graph):
        rows = sketch.sample(rng, 20)
        assert all(sketch.vector_of(row) is not None for row in rows)
        for axis in sketch.axes:
            if len(axis.values) > 1:
                beyond = rows[0].copy()
                beyond[axis.places] = [128] * 4 + [1]
                assert sketch.vector_of(beyond) is None
        other, knob = rows[0].copy(), sketch.knobs[0]
        other[knob.first] = knob.values.max() + 1
        assert sketch.vector_of(other) is None


def test_verdicts_of_many_tasks() -> None:
    curves = {"full": np.full((1, 4, 3), 1.0), "less": np.full((1, 4, 3), 0.5)}
    said = {"less": {"direction": "worse", "because": "so"}}
    (line,) = verdicts(curves, {"reference": "full", "hypotheses": said})
    assert "as expected" in line and "0.500 times" in line
