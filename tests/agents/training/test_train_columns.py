"""Training of a policy that writes programs column by column, by the command that trains every policy."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("sb3_contrib")

from rich.console import Console  # noqa: E402

from agents import get_strategy  # noqa: E402
from agents.cli.parent import PARENT  # noqa: E402
from agents.cli.stopping import stoppable  # noqa: E402
from agents.columns.learner import ColumnLearner  # noqa: E402
from agents.hybrids import timed_columns as timed  # noqa: E402
from agents.training import columns as train_columns  # noqa: E402
from agents.training import train, trainings  # noqa: E402
from agents.training.curves import read_run  # noqa: E402
from agents.training.operators.chosen import Chosen  # noqa: E402
from agents.training.operators.drawn import drawn_for  # noqa: E402
from gensor_gym import hardware as machines  # noqa: E402
from gensor_gym import operators  # noqa: E402
from gensor_gym.construction import ConstructionGraph  # noqa: E402
from gensor_gym.measure.records import measured  # noqa: E402
from gensor_gym.operators.shapes.nearness import near  # noqa: E402
from tests.support.policies_made import configured, curves  # noqa: E402

TINY = [
    "agent=columns", "agent.width=8", "agent.tasks=2", "agent.programs=16", "steps=640", "curve_every=64", "checkpoint_every=160",
    "eval_every=320", "eval_episodes=4", "env.hardware=h200", "env.space=gensor", "wandb.mode=disabled", "tensorboard=false",
    "torch_threads=1",
]  # fmt: skip
QUIET = Console(quiet=True)


def configuration(*overrides: str) -> dict[str, Any]:
    return configured(*TINY, *overrides)


@pytest.mark.usefixtures("heard")
def test_a_signal_saves_in_the_middle_of_a_line_of_the_curve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config, advance = configuration("checkpoint_every=0"), ColumnLearner.advance
    for name in ("whole", "part"):
        (tmp_path / name).mkdir()
    train_columns.learn(config, tmp_path / "whole", QUIET)

    def interrupted(self: ColumnLearner) -> float:
        if self.num_timesteps == 256:
            os.kill(os.getpid(), signal.SIGINT)
        return advance(self)

    with monkeypatch.context() as patch, pytest.raises(SystemExit) as ended, stoppable("again"):
        patch.setattr(ColumnLearner, "advance", interrupted)
        train_columns.learn(config, tmp_path / "part", QUIET)
    assert ended.value.code == 130 and (tmp_path / "part" / "last.zip").exists()
    with stoppable("again"):
        _, _, resumed = train_columns.learn(config, tmp_path / "part", QUIET)
    assert resumed and curves(tmp_path / "part") == curves(tmp_path / "whole")
    with pytest.raises(ValueError, match="another seed"):
        train_columns.learn(config | {"seed": 1}, tmp_path / "part", QUIET)


def test_a_run_leaves_policy_card_and_curve(tmp_path: Path) -> None:
    config = configuration()
    scores = train.run(config, tmp_path, QUIET)
    card = json.loads((tmp_path / "card.json").read_text())
    assert card["agent"] == "columns" and card["training_steps"] == 640 and card["evaluation"] == scores
    assert not (tmp_path / "last.zip").exists() and train.finished(tmp_path, config)
    assert len(read_run(tmp_path).steps) == 10
    strategy: Any = get_strategy("columns", space="gensor", checkpoint=str(tmp_path), episodes=5)
    found = strategy.construct(ConstructionGraph("gemm(m=64, n=48, k=40)", "h200"), np.random.default_rng(0))
    assert len(found.schedules) == 5


@pytest.mark.thorough
def test_another_evaluation_is_made_without_training_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = configuration()
    train.run(config, tmp_path, QUIET)
    weights = (tmp_path / "policy.safetensors").read_bytes()
    other = config | {"eval_episodes": config["eval_episodes"] + 3}
    assert train.trained(tmp_path, other) and not train.finished(tmp_path, other)
    monkeypatch.setattr(ColumnLearner, "advance", lambda _self: pytest.fail("trained again"))
    train.run(other, tmp_path, QUIET)
    assert train.finished(tmp_path, other) and (tmp_path / "policy.safetensors").read_bytes() == weights


def test_a_policy_that_sees_something_else_is_trained_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = configuration()
    train.run(config, tmp_path, QUIET)
    monkeypatch.setitem(trainings.OTHERS, "columns", dataclasses.replace(trainings.training_of("columns"), sees=99))
    assert not train.trained(tmp_path, config)


@pytest.mark.thorough
def test_a_command_ends_with_the_process_that_started_it(tmp_path: Path) -> None:
    inner = "from agents.cli.parent import end_with_parent; end_with_parent(); import time; time.sleep(100)"
    outer = (
        "import os, subprocess, sys, time\n"
        f"child = subprocess.Popen([sys.executable, '-c', {inner!r}], env={{**os.environ, {PARENT!r}: str(os.getpid())}})\n"
        "print(child.pid, flush=True)\n"
        "time.sleep(100)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", outer], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    time.sleep(2.0)
    assert Path(f"/proc/{child}").exists()
    parent.kill()
    parent.wait()
    parent.stdout.close()
    for _ in range(100):
        if not Path(f"/proc/{child}").exists():
            break
        time.sleep(0.2)
    assert not Path(f"/proc/{child}").exists()


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ("eval_episodes=0", "eval_episodes is 0"),
        ("eval_operators=['elementwise(name=\"exp\", shape=(64, 64))']", "expected one at least that such a policy is for"),
    ],
)
def test_what_could_not_be_evaluated_is_refused_before_training(changed: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        configuration(changed)


def test_figures_of_the_host_are_part_of_what_is_trained() -> None:
    assert configuration("env.hardware=host")["machine"] == machines.get("host").digest
    assert "machine" not in configuration()


def test_a_teacher_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="clone is 'optimum'"):
        train_columns.learn(configuration("clone=optimum"), tmp_path, QUIET)


@pytest.mark.thorough
def test_training_on_another_part_is_said(tmp_path: Path) -> None:
    words = [*TINY, "steps=64", "eval_every=0", f"output={tmp_path}", 'eval_operators="gemm(m=64, n=48, k=40)"']
    command = [sys.executable, "-m", "experiments", "train", *words, 'operators="gemm(m=128, n=3072, k=768)"']
    done = subprocess.run(command, capture_output=True, text=True, timeout=250, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "operators of the part test: to this policy that part is not unseen" in done.stdout.replace("\n", " ")
    assert json.loads((tmp_path / "card.json").read_text())["split"] == "v1 test"


@pytest.mark.thorough
def test_drawn_operators_are_of_the_train_part_and_keep_apart() -> None:
    apart = "gemm(m=512, n=512, k=512)"
    config = configuration("drawn.count=120", "drawn.dtypes=[float32,float16]", f"drawn.apart.operators=['{apart}']")
    found = drawn_for(config, np.random.default_rng(0))
    assert len(set(found)) == 120 and found == drawn_for(config, np.random.default_rng(0))
    assert found != drawn_for(config, np.random.default_rng(1))
    assert {operators.part_of(op) for op in found} == {"train"} and {op.dtype for op in found} == {"float32", "float16"}
    away = [operators.parse(apart), *operators.resolve("split/v1/validation"), *operators.resolve("split/v1/test")]
    assert not any(near(op, other) for op in found for other in away)
    small = [op for op in found if op.name == "reduce_sum" and op.extents[0] < 1000]
    assert any(op.extents[-1] > 100_000 for op in small), "few outputs of long sums"


@pytest.mark.thorough
def test_drawn_operators_are_trained_on_with_demonstrations(tmp_path: Path) -> None:
    learner, _, _ = train_columns.learn(configuration("drawn.count=3", "steps=64"), tmp_path, QUIET)
    names = [str(choices.graph.operator) for choices in learner.choices]
    assert len(names) == 5 and set(names) == learner.shown
    for words, said in (
        (["drawn.count=-1"], "drawn.count is -1; expected a whole number, 0 or more"),
        (["drawn.count=1", "drawn.dtypes=[float63]"], "drawn.dtypes is .*float63.*; expected a list of some of float32"),
        (["drawn.count=1", "drawn.dtypes=float32"], "drawn.dtypes is 'float32'; expected a list"),
    ):
        with pytest.raises(ValueError, match=said):
            train_columns.learn(configuration(*words), tmp_path / "bad", QUIET)


def test_a_training_on_drawn_operators_does_not_go_on_without_them(tmp_path: Path) -> None:
    train_columns.learn(configuration("drawn.count=1", "steps=64", "checkpoint_every=32"), tmp_path, QUIET)
    with pytest.raises(ValueError, match="another .*drawn"):
        train_columns.learn(configuration("steps=64"), tmp_path, QUIET)


def test_tasks_of_a_recorded_machine_are_its_operators(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = measured.load("zen4_1c", "train")
    some = whole[whole.operator.isin(list(whole.operator.unique()[:4]))]
    monkeypatch.setattr(measured, "load", lambda machine, part: some)
    timed.recorded.cache_clear()
    config = configuration("+agent.measured=zen4_1c", "+agent.frozen=true", "env.space=extended")
    learner, _, _ = train_columns.learn(config, tmp_path, QUIET)
    timed.recorded.cache_clear()
    assert {str(choices.graph.operator) for choices in learner.choices} <= set(map(str, some.operator.unique()))
    assert {choices.graph.hardware.name for choices in learner.choices} == {"host"} and learner.num_timesteps == 640
    with pytest.raises(ValueError, match="corrections need agent.measured"):
        train_columns.learn(configuration("+agent.corrections=[x]"), tmp_path / "other", QUIET)
    with pytest.raises(ValueError, match="agent.unrecorded is -1; expected a whole number, 0 or more"):
        train_columns.learn(configuration("+agent.measured=zen4_1c", "+agent.unrecorded=-1"), tmp_path / "other", QUIET)


def test_tasks_may_have_operators_without_recordings(monkeypatch: pytest.MonkeyPatch) -> None:
    ops = [operators.batched_gemm(b=2, m=8, n=16, k=size) for size in (4, 8, 12)]
    listed = [*(Chosen("unrecorded", op) for op in ops), Chosen("unseen_2", ops[0])]
    monkeypatch.setattr(train_columns, "added", lambda: listed)
    monkeypatch.setattr(timed, "recorded", lambda machine, space: {})
    config = configuration("+agent.measured=zen4_1c", "+agent.unrecorded=2", "env.space=extended")
    graphs = train_columns._tasks([], config, np.random.default_rng(0))
    assert [graph.operator for graph in graphs] == ops[:2] and graphs[0].hardware == measured.here("zen4_1c")
