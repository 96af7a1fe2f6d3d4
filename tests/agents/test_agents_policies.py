"""Learned policies: what they see, how they are learned, and searches that they guide."""

from __future__ import annotations

import dataclasses
import json
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

from agents import get_strategy
from agents.cli.arguments import compose
from agents.learners.cloning import examples, imitate, of_task, optimum, way_to
from agents.learners.guide import Guide
from agents.learners.loading import load_model, save_policy
from agents.learners.networks import HIDEABLE, ActorCritic
from agents.learners.observed import ObservedVecEnv
from agents.learners.observer import NUM_LOOKAHEAD_FEATURES, LookaheadObserver, Observer, lookahead_actions
from agents.learners.registry import LEARNERS, get_learner
from agents.learners.stored import POLICY
from agents.policies.card import read_card
from agents.policies.learned import Learned, load_policy
from agents.policies.visited import Visited
from agents.training import train
from agents.training.operators.variants import with_variants
from agents.training.train import settings_of, write_card
from agents.training.walk import CONSTRUCTIONS
from gensor_gym import ConstructionGraph, operators
from gensor_gym.env.observation import NUM_FEATURES, OFFSETS
from gensor_gym.env.sb3 import make_sb3
from gensor_gym.env.tasks import TaskSet
from gensor_gym.env.vector import ConstructVectorEnv
from gensor_gym.env.views import successor_features
from gensor_gym.exact import append_certificate, certify
from gensor_gym.exact.paths import actions_to
from gensor_gym.graph.actions import ACTIONS, CACHE, STOP, UNCACHE
from gensor_gym.graph.schedule import Schedule
from gensor_gym.measure.session import Budget, BudgetSpent, Session, Task
from tests.support.thorough import thorough_but

SMALL = ["gemm(m=4, n=16, k=8)", "conv2d(n=1, c=4, h=8, w=8, k=8, r=3, s=3, padding=1)"]
AGENTS = ["ppo", "ppo_axes", "ppo_successors"]


@pytest.fixture(scope="module", params=AGENTS)
def trained(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a policy after one small rollout."""
    folder = tmp_path_factory.mktemp(request.param)
    words = [f"agent={request.param}", "env.hardware=h200", "env.space=gensor", f"output={folder}", "num_envs=4"]
    cfg = compose([*words, "agent.n_steps=16", "agent.batch_size=32", "agent.n_epochs=1"], "train")
    config = settings_of(cfg) | {"operators": SMALL}
    learner = get_learner(request.param)
    model = learner.make(config["agent"], ObservedVecEnv(CONSTRUCTIONS.training(config), learner.observer), 0)
    model.learn(64)
    save_policy(folder / POLICY, model)
    write_card(config, folder, 1.0, 64)
    return folder


def walked(envs: ConstructVectorEnv, steps: int) -> np.ndarray:
    """Random legal actions in all environments, none of them `stop`; the last flat observation."""
    rng = np.random.default_rng(0)
    flat, _ = envs.reset(seed=0)
    for _ in range(steps):
        masks = envs.action_masks()
        masks[:, STOP] = False
        flat, *_ = envs.step(np.array([rng.choice(np.flatnonzero(mask)) for mask in masks]))
    return flat


def test_an_unknown_agent_is_named() -> None:
    with pytest.raises(ValueError, match="'dreamer'.*ppo_successors"):
        get_learner("dreamer")
    assert set(AGENTS) <= set(LEARNERS)


@pytest.mark.thorough
@pytest.mark.parametrize("machine", ["h200", "cascade_lake"])
def test_successors_are_the_models_and_each_counts_once(machine: str) -> None:
    envs = ConstructVectorEnv(6, SMALL, machine, space="extended")
    flat = walked(envs, 6)
    asked: list[tuple[int, list]] = []
    observer = LookaheadObserver(envs, charge=lambda count, best: asked.append((count, best.tolist())))
    over = np.array([False] * 5 + [True])
    seen = observer.observe(flat, over)
    assert (seen[:, :NUM_FEATURES] == flat).all() and not seen[5, NUM_FEATURES:].any()
    actions, masks = lookahead_actions("extended"), envs.action_masks()
    assert not masks[:, np.setdiff1d(np.arange(len(ACTIONS)), actions)].any()
    shown = seen[:, NUM_FEATURES:].reshape(6, len(actions), NUM_LOOKAHEAD_FEATURES)
    for i, graph in enumerate(envs.graphs[:5]):
        expected = successor_features(graph, envs.rows[i], masks[i])[actions]
        np.testing.assert_allclose(shown[i, :, :2], expected[:, :2], atol=1e-6)
        latencies = [graph.latency(s) for s in [envs.schedules[i], *graph.successors(envs.schedules[i]).values()]]
        assert observer.seconds[i, 0] == min(latencies)
    masks[:, [STOP, CACHE, UNCACHE]] = False  # these lead to the same program
    count = int(masks[:5].sum() + 5)
    assert asked == [(count, [[count, observer.seconds[:5].min()]])]  # the best of them counts when all of them are there


def test_a_flat_sight_counts_the_programs_gone_through() -> None:
    envs = ConstructVectorEnv(3, SMALL, "h200")
    asked: list[tuple[int, list]] = []
    observer = Observer(envs, charge=lambda count, best: asked.append((count, best.tolist())))
    flat = walked(envs, 4)
    assert observer.observe(flat, np.array([False, True, False])) is flat
    latencies = [envs.graphs[i].latency(envs.schedules[i]) for i in (0, 2)]
    assert asked == [(2, [[2, min(latencies)]])]
    assert observer.programs()[1].tolist() == latencies
    observer.observe(flat, np.array([True, True, True]))
    assert len(asked) == 1  # nothing was asked, so nothing is charged


def test_returns_in_training_are_the_log_speed_up() -> None:
    env = ObservedVecEnv(make_sb3(num_envs=2, operator=SMALL, hardware="h200"), Observer)
    env.seed(0)
    env.reset()
    graphs = env.venv.envs.graphs
    before = [graph.latency(graph.initial()) for graph in graphs]
    total, rng = np.zeros(2), np.random.default_rng(0)
    for _ in range(5):
        masks = env.venv.envs.action_masks()
        masks[:, STOP] = False
        total += env.step(np.array([rng.choice(np.flatnonzero(mask)) for mask in masks]))[1]
    after = [graph.latency(schedule) for graph, schedule in zip(graphs, env.venv.envs.schedules, strict=True)]
    rewards, ended = env.step(np.array([STOP, STOP]))[1:3]
    assert ended.all()
    np.testing.assert_allclose(rewards, 0.0, atol=1e-5)
    np.testing.assert_allclose(total, np.log(np.array(before) / after) - 5 * 0.001, rtol=1e-5)


@pytest.mark.parametrize("successors", [False, True])
def test_exchanging_axes_exchanges_their_logits(successors: bool) -> None:
    torch.manual_seed(0)
    actions = lookahead_actions("extended").tolist() if successors else []
    network = ActorCritic(16, True, actions, NUM_LOOKAHEAD_FEATURES if successors else 0).eval()
    from agents.learners.networks import axis_places

    one, two = axis_places()[3], axis_places()[4]
    seen = torch.rand(5, NUM_FEATURES + len(actions) * NUM_LOOKAHEAD_FEATURES)
    other = seen.clone()
    other[:, one], other[:, two] = seen[:, two], seen[:, one]
    swap = {n: n for n in range(len(ACTIONS))}
    for n, action in enumerate(ACTIONS):
        if action.axis in (3, 4):
            twin = dataclasses.replace(action, axis=7 - action.axis)
            swap[n] = ACTIONS.index(twin)
    if successors:
        seen[:, NUM_FEATURES :: NUM_LOOKAHEAD_FEATURES] = 1.0  # all legal
        shown = seen[:, NUM_FEATURES:].view(5, len(actions), -1)
        other[:, NUM_FEATURES:] = shown[:, [actions.index(swap[n]) for n in actions]].flatten(1)
    with torch.no_grad():
        logits, exchanged = network.forward_actor(seen), network.forward_actor(other)
    torch.testing.assert_close(exchanged, logits[:, [swap[n] for n in range(len(ACTIONS))]])
    assert (logits[:, swap[1 + 3]] != logits[:, 1 + 3]).any()


def test_what_is_hidden_changes_no_answer() -> None:
    """Kind and hardware apart, everything else is looked at."""
    torch.manual_seed(0)
    actions = lookahead_actions("gensor").tolist()
    network = ActorCritic(16, True, actions, NUM_LOOKAHEAD_FEATURES, hidden=("kind", "hardware")).eval()
    seen = torch.rand(4, NUM_FEATURES + len(actions) * NUM_LOOKAHEAD_FEATURES)
    seen[:, NUM_FEATURES::NUM_LOOKAHEAD_FEATURES] = 1.0
    other, third = seen.clone(), seen.clone()
    for hidden in HIDEABLE.values():
        other[:, hidden] = torch.rand(4, hidden.stop - hidden.start)
    third[:, OFFSETS["operator"]] += 1.0  # an extent
    with torch.no_grad():
        for one, two, changed in zip(network(seen), network(other), network(third), strict=True):
            assert (one == two).all() and (one != changed).any()
    with pytest.raises(ValueError, match=r"agent.hidden \['tiles'\]: expected some of \['hardware', 'kind'\]"):
        ActorCritic(16, True, actions, NUM_LOOKAHEAD_FEATURES, hidden=("tiles",))


def test_a_saved_policy_answers_as_before_and_never_illegally(trained: Path) -> None:
    learner, model = load_policy(str(trained))
    graph = ConstructionGraph(SMALL[0], "h200")
    rows = np.stack([graph.random_schedule(np.random.default_rng(i)).row for i in range(6)])
    answer = Guide(learner, model, graph).ask(rows, 9)
    again = Guide(learner, load_model(trained, read_card(trained))[1], graph).ask(rows, 9)
    assert (answer.chances == again.chances).all() and (answer.values == again.values).all()
    assert (np.isfinite(answer.chances) == graph.action_masks(rows)).all()
    np.testing.assert_allclose(np.exp(answer.chances).sum(1), 1.0, rtol=1e-5)
    np.testing.assert_array_equal(answer.seconds, graph.latencies(rows))
    assert (answer.nearest <= answer.seconds).all()


SEARCHES = [
    ("ppo", {"episodes": 6}), ("policy_beam", {"width": 3}), ("policy_mcts", {"simulations": 12}),
    ("policy_annealing", {"episodes": 2, "chains": 3, "chain_steps": 6}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "settings"), thorough_but(SEARCHES, SEARCHES[0]))
def test_searches_give_what_they_charge_for(trained: Path, name: str, settings: dict[str, int]) -> None:
    graph = ConstructionGraph(SMALL[1], "h200")
    plain: Learned = get_strategy(name, space="gensor", checkpoint=str(trained), **settings)  # type: ignore[assignment]
    found = plain.construct(graph, np.random.default_rng(0))
    assert found.evaluations == graph.evaluations > 0
    assert list(found.latencies) == sorted(graph.latency(s) for s in found.schedules)
    assert found.latencies[0] < graph.latency(graph.initial())
    assert plain.construct(graph, np.random.default_rng(0)).schedules == found.schedules
    lower = dataclasses.replace(plain, descents=2).construct(graph, np.random.default_rng(0))
    assert lower.latencies[0] <= found.latencies[0] or "chains" in settings, "chains begin elsewhere then"
    session = Session(Task.of(SMALL[1], "h200", "analytic", "gensor"), Budget(evaluations=20))
    with pytest.raises(BudgetSpent):
        plain.search(session, np.random.default_rng(0))


def test_a_policy_of_another_version_is_told(trained: Path, tmp_path: Path) -> None:
    """Another layout is refused, tasks of other fingerprints warned of: the observation means the same, the rewards do not."""
    card = json.loads((trained / "card.json").read_text())
    for name, changed in (("layout", {"layout": -1}), ("tasks", {"fingerprints": dict.fromkeys(card["fingerprints"], "0")})):
        folder = tmp_path / name
        folder.mkdir()
        (folder / POLICY).write_bytes((trained / POLICY).read_bytes())
        (folder / "card.json").write_text(json.dumps(card | changed))
    with pytest.raises(ValueError, match="layout -1"):
        load_policy(str(tmp_path / "layout"))
    with pytest.warns(UserWarning, match="other rules or another model"):
        load_policy(str(tmp_path / "tasks"))
    elsewhere = {**card["config"], "env": {**card["config"]["env"], "hardware": "a machine of theirs"}}
    (tmp_path / "layout" / "card.json").write_text(json.dumps({**card, "config": elsewhere}))
    with pytest.warns(UserWarning, match="not known here: .*a machine of theirs"):
        load_policy(str(tmp_path / "layout"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        load_policy(str(trained))


def test_bad_beams_are_named() -> None:
    with pytest.raises(ValueError, match="width=0"):
        get_strategy("policy_beam", width=0)


def test_a_clone_goes_the_teachers_ways(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every way shown ends at the certified optimum, returns add up, and the loss falls until actions are the teacher's."""
    monkeypatch.setenv("GENSOR_GYM_CERTIFICATES", str(tmp_path))
    learner, tasks, rng = get_learner("ppo_successors"), TaskSet(SMALL[:1], "h200", "gensor"), np.random.default_rng(0)
    with pytest.raises(ValueError, match="experiments certify"):
        examples(learner, tasks, "optimum", 2, 0.001, rng)
    with pytest.raises(ValueError, match="'nobody'"):
        examples(learner, tasks, "nobody", 2, 0.001, rng)
    graph = tasks.graphs[0]
    found = certify(graph)
    append_certificate(tmp_path / "h200_gensor.jsonl", found)
    from gensor_gym.exact import shipped

    shipped._certificates.cache_clear()
    assert optimum(graph, rng) == found.best
    shown = examples(learner, tasks, "optimum", 4, 0.001, rng)
    np.testing.assert_allclose(shown.targets.sum(1), 1.0, rtol=1e-6)
    assert not (shown.targets[~shown.masks] > 0).any()
    speed_up = np.log(graph.latency(graph.initial()) / found.optimum)
    ends = shown.targets[:, STOP] == 1.0
    assert ends.sum() == 4 and abs(shown.returns[ends]).max() < 1e-5
    length = (len(shown.targets) - 4) // 4
    assert shown.returns[0] == pytest.approx(speed_up - 0.001 * length, rel=1e-5)
    cfg = compose(["agent=ppo_successors", "env.space=gensor"], "train")
    env = ObservedVecEnv(make_sb3(num_envs=2, operator=SMALL[:1], hardware="h200"), learner.observer)
    model = learner.make(cfg.agent, env, 0)
    losses = imitate(model, shown, 60, 32, 0.003, 0)
    assert losses[-1] < 0.5 * losses[0]
    chosen = learner.logits(model, shown.observations, shown.masks).argmax(1)
    assert (shown.targets[np.arange(len(chosen)), chosen] > 0).mean() > 0.9


def test_a_way_that_shuffling_blocks_ends_legally() -> None:
    graph, learner = ConstructionGraph(SMALL[0], "h200"), get_learner("ppo")
    shown = of_task(learner, graph, [CACHE, UNCACHE, 4], 2, 0.0, np.random.default_rng(0))
    assert not (shown.targets[~shown.masks] > 0).any()


def test_ways_longer_than_an_episode_are_left_out() -> None:
    graph = ConstructionGraph("reduce_sum(m=1, k=65536)", "h200")
    tiles = "tile[1x1x1x1x1x1024x1x1" + " 1x1x1x1x1x65536x1x1" * 3 + "]"
    goal = Schedule.parse(f"{tiles} vthread[1x1x1x1x1x1x1x1] level=1 vector=4 unroll=4")
    assert len(actions_to(graph, goal)) >= graph.horizon and way_to(graph, goal) is None
    assert way_to(graph, graph.initial()) == []


def test_variants_are_of_the_train_part() -> None:
    given = list(operators.resolve("split/v1/train"))
    found = with_variants(given, 40, np.random.default_rng(0))
    assert found[: len(given)] == given and len(set(found)) == len(found) == len(given) + 40
    assert {operators.part_of(op) for op in found} == {"train"}
    assert {op.name for op in found[len(given) :]} <= {op.name for op in given}
    other = next(op for op in operators.resolve("split/v1/validation"))
    assert with_variants([other], 0, np.random.default_rng(0)) == [other]
    with pytest.raises(ValueError, match="train part"):
        with_variants([other], 1, np.random.default_rng(0))


def test_training_by_command_leaves_a_policy_with_its_card(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["agent=ppo_successors", "agent.n_steps=16", "agent.batch_size=32", "env.hardware=h200", "env.space=compact"]
    words += ["num_envs=4", "steps=128", "operators=common/gemm_128x768x768", "variants=3", "eval_operators=smoke/gemv"]
    words += ["clone=markov", "cloning.ways=1", "cloning.epochs=1", "eval_episodes=3"]
    words += ["torch_threads=1", "wandb.mode=disabled", f"output={tmp_path}"]
    monkeypatch.setattr(sys, "argv", ["train", *words])
    train.main()
    card = json.loads((tmp_path / "card.json").read_text())
    assert card["agent"] == "ppo_successors" and card["training_steps"] == 128 and card["config"]["variants"] == 3
    assert card["evaluation"]["tasks"] == 1 and card["evaluation"]["validation_latency_over_markov"] > 0
    assert not (tmp_path / "last.zip").exists()
    assert len((tmp_path / "curve.jsonl").read_text().splitlines()) >= 1


def test_no_episode_goes_back_to_where_it_has_been() -> None:
    """Whatever the scores are: the most wanted moves undo each other, and an episode with nowhere new to go stops."""
    graph = ConstructionGraph(SMALL[0], "h200", "gensor")
    visited, rows = Visited(graph, 2), np.stack([graph.initial().row] * 2)
    legal = graph.action_masks(rows)[0]
    up = next(n for n in np.flatnonzero(legal) if ACTIONS[n].primitive == "tile")
    down = next(n for n, action in enumerate(ACTIONS) if action.primitive == "inverse_tile" and action.axis == ACTIONS[up].axis)
    wanted = np.zeros(len(ACTIONS))
    wanted[[down, up, STOP]] = [2.0, 1.0, -1.0]
    been = {rows[0].tobytes()}
    for _ in range(200):
        scores = np.where(graph.action_masks(rows), wanted, -np.inf)
        actions = visited.choose(np.arange(2), rows, scores)
        if (actions == STOP).all():
            break
        rows, allowed = graph.transitions(rows, actions)
        assert allowed.all() and rows[0].tobytes() not in been
        been.add(rows[0].tobytes())
    assert len(been) > 4
    here = graph.initial().row[None]
    alone, around = Visited(graph, 1), graph.transitions(np.repeat(here, legal.sum() - 1, 0), np.flatnonzero(legal)[1:])[0]
    alone.been[0] |= {row.tobytes() for row in around}
    scores = np.where(legal, wanted, -np.inf)[None]
    scores[0, STOP] = -np.inf
    assert alone.choose(np.zeros(1, dtype=int), here, scores).tolist() == [STOP]
