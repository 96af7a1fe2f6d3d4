"""Training: repeated number for number, resumed from what is read as it was; sweeps."""

from __future__ import annotations

import io
import json
import math
import random
import sys
import zipfile
from collections import deque
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hydra import compose, initialize_config_dir
from hydra.core.override_parser.overrides_parser import OverridesParser
from rich.console import Console
from rich.progress import Progress

from agents import get_strategy
from agents.policies.training_tasks import is_current
from agents.runs.journal import read_rows
from agents.training import train
from agents.training import walk as train_walk
from agents.training.state.archive import read_state, write_state
from agents.training.state.tree import from_tree, to_tree
from agents.training.watch import Every, Watch, steps_in_all
from experiments.tuning.sweep_table import write_table
from gensor_gym.construction import ConstructionGraph
from gensor_gym.env.sb3 import make_sb3
from tests.support.policies_made import HELD_OUT, OPERATORS, configured, curves
from tests.support.thorough import thorough_but

pytest.importorskip("sb3_contrib")



ROOT = Path(__file__).resolve().parents[3]
CONF = ROOT / "conf"
SWEEPS = sorted(path.stem for path in (CONF / "sweep").glob("*.yaml") if path.stem != "base")
TINY = [
    "num_envs=8", "steps=1920", "curve_every=100", "checkpoint_every=640", "eval_every=640", "eval_episodes=2",
    "env.hardware=h200", "env.space=gensor", "wandb.mode=disabled", "tensorboard=false", "torch_threads=1",
]  # fmt: skip
SMALL = {
    "ppo": ["agent=ppo", "agent.n_steps=16", "agent.batch_size=64", "agent.net_arch=[16]"],
    "a2c": ["agent=a2c", "agent.net_arch=[16]"],
    "dqn": ["agent=dqn", "agent.net_arch=[16]", "agent.buffer_size=600", "agent.learning_starts=200", "agent.batch_size=32"],
    "qrdqn": ["agent=qrdqn", "agent.net_arch=[16]", "agent.buffer_size=600", "agent.learning_starts=200", "agent.batch_size=32"],
}


def configuration(*overrides: str) -> dict[str, Any]:
    return configured(*TINY, *overrides)


def learn(config: dict[str, Any], folder: Path) -> Any:
    folder.mkdir(exist_ok=True)
    return train_walk.learn(config, folder, Console(quiet=True))[0]


def weights(model: Any) -> np.ndarray:
    return np.concatenate([value.numpy().ravel() for value in model.policy.state_dict().values()])


class Stopped(Exception):
    """Stands for a signal."""


@pytest.mark.parametrize("agent", thorough_but(sorted(SMALL), "ppo"))
def test_a_run_is_repeated_number_for_number_stopped_or_not(
    agent: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = configuration(*SMALL[agent])
    whole = learn(config, tmp_path / "whole")
    validated = [row["steps"] for row in read_rows(tmp_path / "whole" / "validation.jsonl")]
    assert len(read_rows(tmp_path / "whole" / "curve.jsonl")) > 5 and len(validated) == 3 and validated[-1] == 1920
    go_on = Watch._on_step

    def stop(self: Watch) -> bool:
        if self.num_timesteps >= 1700:
            raise Stopped
        return go_on(self)

    monkeypatch.setattr(Watch, "_on_step", stop)
    with pytest.raises(Stopped):
        learn(config, tmp_path / "parts")
    assert read_rows(tmp_path / "parts" / "curve.jsonl")[-1]["steps"] > 1300, "lines that the checkpoint does not know"
    monkeypatch.setattr(Watch, "_on_step", go_on)
    parts = learn(config, tmp_path / "parts")
    assert curves(tmp_path / "parts") == curves(tmp_path / "whole")
    assert np.array_equal(weights(parts), weights(whole)) and parts.num_timesteps == whole.num_timesteps == 1920
    other = learn(config | {"seed": 1, "eval_every": 0}, tmp_path / "other")
    assert not np.array_equal(weights(other), weights(whole))


def test_a_training_ends_with_a_whole_rollout() -> None:
    assert steps_in_all(0, 512, 16384) == 16384 and steps_in_all(0, 32, 16) == 32
    assert [steps_in_all(done, 33, 16) for done in (0, 32, 48, 64)] == [48, 48, 48, 64]


@pytest.mark.thorough
@pytest.mark.parametrize("agent", ["ppo", "dqn", "columns"])
def test_the_bar_ends_where_the_training_does_and_evaluation_shows_one(
    agent: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bars, stop = list[Any](), Progress.stop
    monkeypatch.setattr(Progress, "stop", lambda self: bars.extend(self.tasks) or stop(self))
    small = {**SMALL, "columns": ["agent=columns", "agent.tasks=1", "agent.programs=24"]}[agent]
    config = configuration(*small, "steps=100", "eval_every=0", "checkpoint_every=0")
    said = io.StringIO()
    train.run(config, tmp_path, Console(file=said))
    card = json.loads((tmp_path / "card.json").read_text())
    learning, judging = bars
    assert learning.total == learning.completed == card["training_steps"] >= 100
    assert judging.total == judging.completed == 1 and "judged now, on eval_operators (1)" in said.getvalue()


@pytest.mark.thorough
def test_two_runs_from_the_beginning_are_the_same(tmp_path: Path) -> None:
    """Also with checkpoints and validation in one of them alone: they take nothing from the learner's streams."""
    config = configuration(*SMALL["ppo"])
    bare = config | {"eval_every": 0, "checkpoint_every": 0}
    assert np.array_equal(weights(learn(config, tmp_path / "a")), weights(learn(bare, tmp_path / "b")))
    assert curves(tmp_path / "a")[0] == curves(tmp_path / "b")[0]
    assert not (tmp_path / "b" / "last.zip").exists()


def test_the_environment_goes_on_from_its_state() -> None:
    def make() -> Any:
        return make_sb3(6, operator=OPERATORS, hardware="h200", observation="dict")

    def play(env: Any, steps: int, rng: np.random.Generator) -> list[Any]:
        found = []
        for _ in range(steps):
            masks = np.stack(env.env_method("action_masks"))
            seen, rewards, ended, infos = env.step(np.where(masks, rng.random(masks.shape), -1.0).argmax(axis=1))
            found.append((rewards, ended, [info.get("episode", {}).get("r") for info in infos], *seen.values()))
        return found

    env, rng = make(), np.random.default_rng(0)
    env.seed(3)
    env.reset()
    play(env, 40, rng)
    state, later = env.state(), np.random.default_rng(1)
    expected = play(env, 60, later)
    again = make()
    again.restore(state)
    for a, b in zip(play(again, 60, np.random.default_rng(1)), expected, strict=True):
        assert all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))
    assert sum(step[1].sum() for step in expected) > 5
    with pytest.raises(ValueError, match="these are 2 environments"):
        make_sb3(2, operator=OPERATORS, hardware="h200").restore(state)


@pytest.mark.thorough
def test_a_checkpoint_of_another_configuration_is_refused(tmp_path: Path) -> None:
    config = configuration(*SMALL["a2c"])
    learn(config, tmp_path)
    with pytest.raises(ValueError, match="another seed, steps; begin anew with resume=false"):
        learn(config | {"seed": 5, "steps": 4000}, tmp_path)
    with zipfile.ZipFile(tmp_path / "last.zip", "w") as file:
        file.writestr("data", "{}")
    with pytest.raises(ValueError, match="no checkpoint of this version"):
        learn(config, tmp_path)
    learn(config | {"resume": False}, tmp_path)


@pytest.mark.thorough
@pytest.mark.parametrize("agent", thorough_but(["a2c", "dqn"], "a2c"))
def test_a_run_leaves_policy_card_curves_and_tensorboard(agent: str, tmp_path: Path) -> None:
    config = configuration(*SMALL[agent], "tensorboard=true", "agent.groups=[tiles,knobs,level,terms,operator]")
    scores = train.run(config, tmp_path, Console(quiet=True))
    card = json.loads((tmp_path / "card.json").read_text())
    assert card["evaluation"] == scores and card["agent"] == agent and is_current(card)
    assert scores["tasks"] == 1 and 0.3 < scores["validation_latency_over_markov"] < 1000
    assert not (tmp_path / "last.zip").exists() and list((tmp_path / "tensorboard").glob("events*"))
    assert train.finished(tmp_path, config) and not train.finished(tmp_path, config | {"seed": 9})
    graph = ConstructionGraph(HELD_OUT[0], "h200", "gensor")
    strategy: Any = get_strategy(agent, checkpoint=str(tmp_path), space="gensor", episodes=4)
    found = strategy.construct(graph, np.random.default_rng(0))
    assert all(graph.is_legal(schedule) for schedule in found.schedules) and found.latencies[0] == min(found.latencies)
    with pytest.raises(FileNotFoundError, match="experiments train"):
        get_strategy(agent, checkpoint=str(tmp_path / "nowhere")).construct(graph, np.random.default_rng(0))


def test_a_card_says_which_part_was_learned_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(train, "bound", lambda *_: {})  # fingerprints of hundreds of tasks
    for part in ("train", "test"):
        train.write_card(configuration() | {"operators": f"split/v1/{part}"}, tmp_path, 1.0, 1)
        assert json.loads((tmp_path / "card.json").read_text())["split"] == f"v1 {part}"


def test_bad_settings_are_named() -> None:
    with pytest.raises(ValueError, match="eval_every is -1"):
        configuration("eval_every=-1")
    with pytest.raises(ValueError, match="steps is 0; expected a whole number, 1 or more"):
        configuration("steps=0")
    with pytest.raises(ValueError, match="variants is -3"):
        configuration("variants=-3")
    with pytest.raises(ValueError, match="wandb.mode 'loud'"):
        configuration("wandb.mode=loud")
    with pytest.raises(ValueError, match="eval_episodes is 0"):
        train_walk.make_validation(configuration("eval_episodes=0"))


def test_every_so_many_steps() -> None:
    every, never = Every(10), Every(0)
    assert [every(n) for n in (0, 9, 10, 11, 35, 39, 40)] == [False, False, True, False, True, False, True]
    assert not any(never(n) for n in range(30))


@pytest.mark.thorough
@pytest.mark.parametrize("name", thorough_but(SWEEPS, *SWEEPS[::3]))
def test_sweeps_are_runs_with_folders_of_their_own(name: str) -> None:
    """Every combination composes, and no two write to one folder."""
    with initialize_config_dir(str(CONF), version_base="1.3"):
        cfg = compose("train", [f"sweep={name}"], return_hydra_config=True)
        parser = OverridesParser.create()
        params = cfg.hydra.sweeper.params
        choices = [list(parser.parse_override(f"{key}={value}").sweep_string_iterator()) for key, value in params.items()]
        keys = list(params)
        cases = [[f"{keys[0]}={a}", f"{keys[1]}={b}"] for a in choices[0] for b in choices[1]]
        assert len(choices) == 2 and len(cases) >= 6
        outputs = set()
        for i, case in enumerate(cases):
            one = compose("train", [f"sweep={name}", *case, f"hydra.job.num={i}"], return_hydra_config=True)
            outputs.add(str(one.output) if "${hydra:" not in str(one._get_node("output")._value()) else i)
            table = one.hydra.callbacks.table._target_
            assert one.wandb.mode == "disabled" and table == "experiments.tuning.sweep_table.SweepTable"
    assert len(outputs) == len(cases)


def test_the_table_of_a_sweep(tmp_path: Path) -> None:
    for shaping, seed, ratio in ((True, 0, 1.0), (True, 1, 1.5), (False, 0, 2.0)):
        folder = tmp_path / f"{shaping}_{seed}"
        folder.mkdir()
        config = configuration(f"env.shaping={shaping}", f"seed={seed}", f"output={folder}")
        card = {"config": config, "training_seconds": 3.0, "evaluation": {"validation_latency_over_markov_ext": ratio}}
        (folder / "card.json").write_text(json.dumps(card))
        (folder / "curve.jsonl").write_text('{"steps": 10, "mean_return": 5.0}\n')
    text = "\n".join(write_table(tmp_path).markdown()) + "\n"
    assert text == (tmp_path / "summary.md").read_text()
    assert text.splitlines()[0].startswith("| env.shaping | seeds |") and len(text.splitlines()) == 4
    assert "| False | 1 | 5.000 | 2.000 | 3 |" in text
    assert "| True | 2 | 5.000 [5.000, 5.000] | 1.250 [1.000, 1.500] | 3 |" in text
    with pytest.raises(ValueError, match="no finished run"):
        write_table(tmp_path / "nothing")


@pytest.mark.thorough
def test_a_sweep_from_the_command_line_goes_on_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    overrides = [
        *TINY, *SMALL["a2c"], "steps=64", "seed=0", f"output={tmp_path}/${{env.shaping}}", f"hydra.sweep.dir={tmp_path}",
        'operators="gemm(m=96, n=80, k=64)"', 'eval_operators="gemm(m=64, n=48, k=40)"', "hydra/launcher=basic", "eval_every=0",
        "wandb.mode=offline",
    ]  # fmt: skip
    monkeypatch.setattr(sys, "argv", ["train", "-m", "sweep=shaping", *overrides])
    train.main()
    assert "env.shaping" in capsys.readouterr().out and "| env.shaping | seeds |" in (tmp_path / "summary.md").read_text()
    assert list(tmp_path.glob("True/wandb/offline-run-*"))
    train.main()
    assert capsys.readouterr().out.replace("\n", "").count("holds this very policy") == 2


torch = pytest.importorskip("torch")



def same(one: Any, other: Any) -> bool:
    """Equal values of equal types, arrays and tensors by their bits."""
    if isinstance(one, np.ndarray | torch.Tensor):
        return type(one) is type(other) and one.dtype == other.dtype and one.shape == other.shape and bool((one == other).all())
    if isinstance(one, dict):
        return isinstance(other, dict) and list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return type(one) is type(other) and len(one) == len(other) and all(map(same, one, other))
    return type(one) is type(other) and (one == other or one != one and other != other)


def test_states_are_read_as_they_were(tmp_path: Path) -> None:
    network = torch.nn.Linear(3, 2)
    optimizer = torch.optim.Adam(network.parameters())
    network(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    state = {
        "optimizer": optimizer.state_dict(), "network": dict(network.state_dict()), "python": random.getstate(),
        "numpy": np.random.get_state(), "streams": np.random.default_rng(1).bit_generator.state,
        3: [math.inf, -math.inf, math.nan],
        "scalars": [np.float32(0.1), np.int64(-7), np.bool_(True), np.float64(math.inf)],
        "none": (None, True, "text", 1 << 127),
        "empty": [np.zeros((0, 4), np.int8), np.array(2.5), np.zeros((2, 3), np.bool_), {}, (), ""],
    }  # fmt: skip
    write_state(tmp_path / "last.zip", {"seed": 1}, state)
    again = read_state(tmp_path / "last.zip", lambda begun: None)
    assert same(state, again)
    again["empty"][2][0, 0] = True  # arrays may be written to
    assert [path.name for path in tmp_path.iterdir()] == ["last.zip"]


def test_a_queue_becomes_a_list_and_what_is_no_data_is_refused() -> None:
    assert to_tree(deque([1, 2]), {}) == [1, 2]
    with pytest.raises(TypeError, match="a state holds function; expected numbers"):
        to_tree({"f": same}, {})


@pytest.mark.parametrize(
    ("tree", "said"),
    [
        ({"code": "print()"}, "'code'; expected one of"), ({"map": [], "tuple": []}, "'map', 'tuple'"), ({}, "keys"),
        ({"array": "9"}, "array does not read"), ({"tensor": None}, "tensor does not read"), ({"number": "1"}, "number does"),
        ({"map": [1]}, "map does not read"), ({"map": [[[], 1]]}, "map does not read"), ({"tuple": 3}, "tuple does not read"),
        ({"scalar": ["O", 1]}, "scalar does not read"), ({"scalar": [[], 1]}, "scalar does not read"),
    ],
)  # fmt: skip
def test_trees_of_others_are_refused(tree: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        from_tree(json.loads(json.dumps(tree)), {})


def test_arrays_of_another_shape_or_type_are_refused() -> None:
    pytest.importorskip("sb3_contrib")
    from agents.learners.blank import Blank
    from agents.learners.registry import get_learner
    from agents.training.state.model import restore_model, state_of_model

    settings = {"net_arch": [4], "learning_rate": 1e-3, "buffer_size": 8, "n_steps": 2, "batch_size": 2}
    model = get_learner("a2c").make({**settings, "net_arch": [4]}, Blank(5, 3, "gensor"), 0)
    wider = get_learner("a2c").make({**settings, "net_arch": [6]}, Blank(5, 3, "gensor"), 0)
    with pytest.raises(ValueError, match="not one of such a model: .*size mismatch"):
        restore_model(model, state_of_model(wider))
    state = state_of_model(model)
    restore_model(model, state)
    with pytest.raises(ValueError, match="counter 'policy'"):
        restore_model(model, {**state, "counters": {"policy": 1}})
    with pytest.raises(ValueError, match="not one of such a model"):
        restore_model(model, {"network": state["network"]})
