"""What agents see: bounds, groups, views, the graph; and what people see: text and figure."""

from __future__ import annotations

import subprocess
import sys
import warnings
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec
from gymnasium.utils.env_checker import check_env

from gensor_gym.env.construct import ConstructEnv
from gensor_gym.env.graph_view import GraphObservation
from gensor_gym.env.observation import GROUPS, LIMIT, NUM_FEATURES
from gensor_gym.env.pictures.render import as_image, as_text
from gensor_gym.graph.actions import NUM_ACTIONS
from gensor_gym.graph.schedule import Schedule
from gensor_gym.graph.tables.layout import SPATIAL_SLOTS
from tests.support.graph_walks import MACHINES, OPERATORS, graph_of, walk
from tests.support.thorough import thorough_but

GEMM = "gemm(m=64, n=48, k=40)"
CONV = OPERATORS[5]


@pytest.mark.parametrize("operator", thorough_but(OPERATORS, *OPERATORS[::3]))
def test_observations_of_random_states_are_within_the_box(operator: str) -> None:
    """Flat and successors, on every hardware; finite, float32, another one for every schedule."""
    rng = np.random.default_rng(0)
    for machine in MACHINES:
        flat = ConstructEnv(operator, machine, space="extended")
        rows = ConstructEnv(operator, machine, space="extended", observation="successors")
        seen, schedules = [], list(walk(flat.graph, rng, 60))[::6]
        for schedule in schedules:
            for env in (flat, rows):
                observation, _ = env.reset(options={"schedule": schedule})
                assert observation.dtype == np.float32 and np.isfinite(observation).all()
                assert env.observation_space.contains(observation)
                observation, *_ = env.step(0)
                assert env.observation_space.contains(observation)
            seen.append(flat.reset(options={"schedule": schedule})[0])
        assert len(np.unique(np.stack(seen), axis=0)) == len(set(schedules))


def test_the_largest_operators_stay_within_the_box() -> None:
    for name in ("roller/C35", "roller/E0", "elementwise('copy', 2000000000)", "gemm(m=1, n=1, k=1)"):
        for machine in MACHINES:
            env = ConstructEnv(name, machine)
            assert env.observation_space.contains(env.reset()[0])


def test_dict_is_flat_by_groups() -> None:
    flat, grouped = ConstructEnv(GEMM, "h200"), ConstructEnv(GEMM, "h200", observation="dict")
    left, right = flat.reset(seed=0)[0], grouped.reset(seed=0)[0]
    for _ in range(10):
        assert list(right) == list(GROUPS) and {k: len(v) for k, v in right.items()} == GROUPS
        assert np.array_equal(np.concatenate(list(right.values())), left) and left.shape == (NUM_FEATURES,)
        action = int(np.flatnonzero(flat.action_masks())[-1])
        left, right = flat.step(action)[0], grouped.step(action)[0]


@pytest.mark.parametrize("groups", [["terms"], ["hardware", "tiles"], ["remaining", "level", "knobs"]])
def test_groups_can_be_switched_off(groups: list[str]) -> None:
    """What is left stands in the order of the whole, whatever order was asked for."""
    whole = ConstructEnv(CONV, "t4", observation="dict")
    flat = ConstructEnv(CONV, "t4", observation_groups=groups)
    grouped = ConstructEnv(CONV, "t4", observation="dict", observation_groups=groups)
    everything, part, by_name = (env.reset(seed=0)[0] for env in (whole, flat, grouped))
    kept = [name for name in GROUPS if name in groups]
    assert list(by_name) == kept and set(grouped.observation_space) == set(kept)
    assert all(np.array_equal(by_name[name], everything[name]) for name in kept)
    assert np.array_equal(part, np.concatenate([everything[name] for name in kept]))
    assert flat.observation_space.shape == (sum(GROUPS[name] for name in groups),)


def test_steps_left_are_observed_also_after_an_illegal_action() -> None:
    env = ConstructEnv(GEMM, "h200", observation_groups=["remaining"])
    observation, _ = env.reset()
    fractions = [observation[0]]
    for _ in range(5):
        fractions.append(env.step(NUM_ACTIONS - 1)[0][0])
    assert np.allclose(np.diff(fractions), -1.0 / env.graph.horizon, atol=1e-6) and fractions[0] == 1.0


@pytest.mark.parametrize("machine", ["h200", "cascade_lake"])
def test_successors_are_the_models(machine: str) -> None:
    env = ConstructEnv(CONV, machine, space="extended", observation="successors")
    rng = np.random.default_rng(0)
    observation, _ = env.reset()
    for _ in range(15):
        graph, schedule, mask = env.graph, env.schedule, env.action_masks()
        assert np.array_equal(observation[:, 0] == 1.0, mask)
        assert (observation[~mask][:, :-9] == 0.0).all() and (observation[:, -9:].sum(axis=1) == 1.0).all()
        for action in np.flatnonzero(mask)[1:]:
            speedup = np.log(graph.latency(schedule) / graph.latency(graph.transition(schedule, int(action))))
            assert observation[action, 1] == pytest.approx(np.clip(speedup, -LIMIT, LIMIT), abs=1e-5)
        observation, *_ = env.step(int(rng.choice(np.flatnonzero(mask)[1:])))


@pytest.mark.parametrize("observation", ["flat", "dict"])
def test_the_graph_view(observation: str) -> None:
    """Its checker passes, its specification round-trips, its nodes and edges are the operator's."""
    env = GraphObservation(
        gymnasium.make("gensor_gym/Construct-v0", operator=[CONV, GEMM], hardware="h200", observation=observation)
    )
    again = gymnasium.make(EnvSpec.from_json(env.spec.to_json()))
    for seed in range(4):
        seen, other = env.reset(seed=seed)[0], again.reset(seed=seed)[0]
        op = env.unwrapped.graph.operator
        assert env.observation_space.contains(seen)
        assert np.array_equal(seen.nodes, other.nodes) and np.array_equal(seen.edge_links, other.edge_links)
        assert len(seen.nodes) == len(op.axes) + len(op.reads) + 2
        accesses = [c for access in (*op.reads, op.write) for row in access.coefficients for c in row if c]
        assert len(seen.edges) == len(seen.edge_links) == len(accesses) + len(seen.nodes) - 1
        assert (seen.nodes[:, :3].sum(axis=1) == 1.0).all()
        innermost = len(op.spatial) - 1
        assert env.unwrapped.action_masks()[1 + SPATIAL_SLOTS - 1]
        moved = env.step(1 + SPATIAL_SLOTS - 1)[0]
        different = np.flatnonzero((moved.nodes != seen.nodes).any(axis=1))
        assert different.tolist() == [innermost, len(seen.nodes) - 1]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", ".*different from the unwrapped version.*")
        check_env(env, skip_render_check=True)
    with pytest.raises(ValueError, match="'flat' or 'dict', not 'successors'"):
        GraphObservation(ConstructEnv(GEMM, "h200", observation="successors"))


def test_the_graph_is_an_observation_of_its_own_too() -> None:
    """As the wrapper gives it, in one environment and in the vector form, whose checker and specification work."""
    arguments = {"operator": [CONV, GEMM], "hardware": "h200"}
    env = gymnasium.make("gensor_gym/Construct-v0", observation="graph", **arguments)
    wrapped = GraphObservation(ConstructEnv(**arguments))
    envs = gymnasium.make_vec("gensor_gym/Construct-v0", num_envs=2, observation="graph", **arguments)
    many = envs.reset(seed=5)[0]
    assert envs.observation_space.contains(many)
    for seen in (env.reset(seed=5)[0], gymnasium.make(env.spec).reset(seed=5)[0], many[0]):
        other = wrapped.reset(seed=5)[0]
        assert env.observation_space.contains(seen) and env.observation_space == wrapped.observation_space
        assert all(np.array_equal(a, b) for a, b in zip(seen, other, strict=True))
    assert np.array_equal(env.step(5)[0].nodes, wrapped.step(5)[0].nodes)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(env.unwrapped, skip_render_check=True)


def test_the_graph_view_does_without_groups() -> None:
    env = GraphObservation(ConstructEnv(GEMM, "h200", observation_groups=["operator"]))
    seen, _ = env.reset()
    assert env.observation_space.contains(seen) and env.observation_space.contains(env.step(5)[0])


@pytest.mark.parametrize("operator", thorough_but(OPERATORS, *OPERATORS[::3]))
@pytest.mark.parametrize("machine", ["h200", "cascade_lake"])
def test_text_names_the_task_its_loops_and_its_resources(operator: str, machine: str) -> None:
    graph = graph_of(operator, machine, "extended")
    for schedule in list(walk(graph, np.random.default_rng(1), 50))[::12]:
        text = as_text(graph, schedule)
        assert str(graph.operator) in text and machine in text
        assert ("multiprocessors" if machine == "h200" else "cores") in text
        assert "by the model" in text and "bound by" in text and "resources" in text
        loops = [line for line in text.splitlines() if line.strip().startswith("for ")]
        counts = [int(line.split(" in ")[1].split(":")[0]) for line in loops]
        extents = np.prod([float(n) for n in graph.operator.extents])
        assert all(count > 1 for count in counts) and np.prod([float(c) for c in counts]) >= extents


def test_loops_of_a_gemm_by_hand() -> None:
    graph = graph_of(GEMM, "h200", "extended")
    tiles = "1x1x1x4x2x1x1x1 1x1x1x32x16x8x1x1 1x1x1x32x16x8x1x1 1x1x1x32x16x8x1x1"
    schedule = Schedule.parse(f"tile[{tiles}] vthread[1x1x1x2x1x1x1x1] level=1 vector=4 unroll=4 shared_layout=1")
    assert graph.is_legal(schedule)
    loops = [line.split("#")[0].strip() for line in as_text(graph, schedule).splitlines()]
    wanted = [
        "for m.block in 2:", "for n.block in 3:", "for m.thread in 8:", "for n.thread in 8:", "C.registers[4, 2] = 0",
        "for k.step in 5:", "A.shared[32, 8] = A[..]", "B.shared[8, 16] = B[..]", "barrier", "for k.chunk in 8:",
        "for m.vthread in 2:", "for m.inner in 2:", "for n.inner in 2:", "C.registers += A * B", "C[..] = C.registers",
    ]  # fmt: skip
    first = loops.index(wanted[0])
    assert loops[first : first + len(wanted)] == wanted


def test_render_modes() -> None:
    made = {mode: ConstructEnv(GEMM, "h200", render_mode=mode) for mode in (None, "ansi", "rgb_array")}
    for env in made.values():
        env.reset(seed=0)
    assert made[None].render() is None
    assert "gemm(m=64, n=48, k=40) on h200" in made["ansi"].render()
    pytest.importorskip("matplotlib")
    frame = made["rgb_array"].render()
    assert frame.dtype == np.uint8 and frame.ndim == 3 and frame.shape[2] == 3
    assert len(np.unique(frame.reshape(-1, 3), axis=0)) > 50
    made["rgb_array"].step(5)
    assert (made["rgb_array"].render() != frame).any()


@pytest.mark.parametrize("operator", thorough_but(OPERATORS[::2], *OPERATORS[::12]))
@pytest.mark.parametrize("machine", thorough_but(["t4", "cascade_lake"], "t4"))
def test_every_operator_can_be_drawn(operator: str, machine: str) -> None:
    pytest.importorskip("matplotlib")
    graph = graph_of(operator, machine, "extended")
    shapes = {
        as_image(graph, graph.random_schedule(np.random.default_rng(2))).shape,
        as_image(graph, graph.initial()).shape,
    }
    assert len(shapes) == 1


def test_an_illegal_schedule_can_be_looked_at() -> None:
    graph = graph_of(GEMM, "h200", "extended")
    row = graph.initial().row.copy()
    row[:32] = np.tile([1, 1, 1, 64, 64, 1, 1, 1], 4)
    assert "not legal here" in as_text(graph, Schedule(row))
    pytest.importorskip("matplotlib")
    assert as_image(graph, Schedule(row)).ndim == 3


@pytest.mark.thorough
def test_drawing_needs_no_display_and_leaves_pyplot_alone() -> None:
    pytest.importorskip("matplotlib")
    text = (
        "import sys, gensor_gym\nfrom gensor_gym.env.pictures.render import as_image\n"
        "assert 'matplotlib' not in sys.modules\n"
        "graph = gensor_gym.ConstructionGraph('gemv(m=8, k=8)', 't4')\nprint(as_image(graph, graph.initial()).shape)\n"
        "assert 'matplotlib.pyplot' not in sys.modules\n"
    )
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run(
        [sys.executable, "-c", text], cwd=root, env={"PYTHONPATH": str(root)}, capture_output=True, text=True
    )
    assert done.returncode == 0 and done.stdout.startswith("("), done.stderr


def test_without_matplotlib_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    graph = graph_of(GEMM, "h200", "extended")
    with pytest.raises(ImportError, match="pip install matplotlib"):
        as_image(graph, graph.initial())
