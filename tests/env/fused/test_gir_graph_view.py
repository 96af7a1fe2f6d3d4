"""The graph view of `Gir-v0`: values of the nest as nodes, who reads them as edges, placements and the model on them."""

from __future__ import annotations

import numpy as np
from gymnasium.utils.env_checker import check_env

from gensor_gym.env.fused.env import GirEnv, GirVectorEnv
from gensor_gym.env.fused.graph_view import KINDS
from gensor_gym.gir.placement import Level
from gensor_gym.gir.schedule import GirSchedule

ARGUMENTS = {"operator": "layernorm(m=40, n=77)", "hardware": "cascade_lake", "observation": "graph"}
AT = len(KINDS) + 5


def test_nodes_are_the_values_and_edges_who_reads_them() -> None:
    env = GirEnv(**ARGUMENTS)  # type: ignore[arg-type]
    view, _ = env.reset(seed=0)
    nest = env.graph.nest
    names = [cell.name for cell in nest.cells]
    assert env.observation_space.contains(view) and len(view.nodes) == len(names) + 1
    kinds = [KINDS[int(place)] for place in view.nodes[:, : len(KINDS)].argmax(axis=1)]
    assert kinds == [*("load" if c.is_load else "reduce" if c.is_reduction else "map" for c in nest.cells), "program"]
    read = {(names[a], names[b]) for a, b in view.edge_links if a < len(names)}
    assert read == {(source, cell.name) for cell in nest.cells for source in cell.sources}
    assert {int(b) for a, b in view.edge_links if a == len(names)} == set(range(len(names)))
    kept = {names[a] for (a, _), edge in zip(view.edge_links, view.edges, strict=True) if edge[1]}
    assert kept == set(nest.crossing)


def test_placements_and_the_model_are_on_it() -> None:
    env, flat = GirEnv(**ARGUMENTS), GirEnv(**{**ARGUMENTS, "observation": "dict"})  # type: ignore[arg-type]
    schedule = GirSchedule.parse("vector=8 place=sram,recompute")
    view, _ = env.reset(options={"schedule": schedule})
    groups, _ = flat.reset(options={"schedule": schedule})
    levels = view.nodes[:, AT : AT + len(Level)]
    crossing = [place for place, cell in enumerate(env.graph.nest.cells) if cell.name in env.graph.nest.crossing]
    assert sorted(Level(int(levels[place].argmax())) for place in crossing) == [Level.RECOMPUTE, Level.SRAM]
    assert levels.sum() == len(crossing)
    whole = np.concatenate([groups[name] for name in ("header", "speed", "terms", "remaining", "nest")])
    np.testing.assert_array_equal(view.nodes[-1, -len(whole) :], whole)


def test_the_checker_accepts_it_and_several_side_by_side_are_the_same() -> None:
    check_env(GirEnv(**ARGUMENTS), skip_render_check=True)  # type: ignore[arg-type]
    envs, env = GirVectorEnv(2, **ARGUMENTS), GirEnv(**ARGUMENTS)  # type: ignore[arg-type]
    views, info = envs.reset(seed=0)
    alone, _ = env.reset(seed=0)
    for _ in range(4):
        assert all(np.array_equal(getattr(views[1], name), getattr(alone, name)) for name in ("nodes", "edges", "edge_links"))
        action = int(np.flatnonzero(info["action_mask"][1])[-1])
        views, _, _, _, info = envs.step(np.array([action, action]))
        alone, *_ = env.step(action)
