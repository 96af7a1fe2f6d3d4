"""Golden files: recorded episodes pin the dynamics, recorded digests the generated kernels.

A change that is meant to alter dynamics, observations or rewards gets a new version of the environment's id; one that is
meant to alter kernels needs none. Either way `--update-golden` writes what there is now beside the inputs in the files:
operator, machine, space and actions of an episode; operator, machine and schedule of a kernel. To add one, add its inputs.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

import gensor_gym
from gensor_gym import codegen, operators
from gensor_gym.graph.schedule import Schedule

ID = "gensor_gym/Construct-v0"
FOLDER = Path(__file__).parent / "golden"
EPISODES, KERNELS = FOLDER / "episodes.json", FOLDER / "kernels.json"
STEP = 2.0**-12
"""Observations are compared in whole steps of this size."""


def read(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8"))


def names(path: Path) -> list[str]:
    return list(read(path)["entries"])


def write(path: Path, name: str, found: dict[str, Any]) -> None:
    """Replace what is recorded of one entry; its inputs stay."""
    golden = read(path)
    golden["entries"][name] |= found
    golden |= {"id": ID} if path == EPISODES else {}
    path.write_text(json.dumps(golden, indent=1) + "\n", encoding="utf-8")


def digest(observation: np.ndarray, mask: np.ndarray) -> str:
    """Twelve digits of an observation [F] in steps, and of the mask [N].

    Values are cut off-centre, at odd fractions of a step: logarithms of powers of two stand on whole and half steps, and
    would fall to either side with the last digit of a library's logarithm.
    """
    steps = np.floor(observation.astype(np.float64) / STEP + 0.37).astype("<i8")
    return hashlib.sha256(steps.tobytes() + mask.astype("<i1").tobytes()).hexdigest()[:12]


def play(entry: dict[str, Any]) -> dict[str, Any]:
    """What comes of an episode's actions. Rewards have twelve digits, since libraries differ in the last ones."""
    env = gymnasium.make(ID, **{key: entry[key] for key in ("operator", "hardware", "space")})
    observation, info = env.reset(seed=0)
    rewards, observations, ended = [], [digest(observation, info["action_mask"])], False
    for action in entry["actions"]:
        assert not ended, "the episode ended before its last action"
        observation, reward, ended, _, info = env.step(action)
        rewards.append(float(f"{reward:.12g}").hex())
        observations.append(digest(observation, info["action_mask"]))
    schedule = str(env.unwrapped.schedule)
    return {"rewards": rewards, "observations": observations, "schedule": schedule, "ended": ended}


def generated(entry: dict[str, Any]) -> dict[str, Any]:
    """Language and digest (source text and launches) of a kernel."""
    schedule = Schedule.parse(entry["schedule"])
    kernel = codegen.generate(operators.parse(entry["operator"]), schedule, entry["hardware"])
    return {"language": kernel.language, "digest": kernel.digest}


@pytest.mark.parametrize("name", names(EPISODES))
def test_dynamics_are_those_of_the_version(name: str, update_golden: bool) -> None:
    entry = read(EPISODES)["entries"][name]
    found = play(entry)
    if update_golden:
        write(EPISODES, name, found)
        pytest.skip("recorded")
    rule = f"dynamics of {ID} changed: if that was meant, raise its version and run with --update-golden"
    assert read(EPISODES)["id"] == ID, rule
    assert found["schedule"] == entry["schedule"] and found["ended"] == entry["ended"], rule
    rewards, recorded = ([float.fromhex(text) for text in part["rewards"]] for part in (found, entry))
    assert rewards == pytest.approx(recorded, rel=1e-9, abs=1e-12), rule
    pairs = zip(found["observations"], entry["observations"], strict=True)
    other = [at for at, (now, before) in enumerate(pairs) if now != before]
    assert other == [], f"observations or masks after these numbers of actions differ; {rule}"


@pytest.mark.parametrize("name", names(KERNELS))
def test_kernels_are_those_recorded(name: str, update_golden: bool) -> None:
    entry = read(KERNELS)["entries"][name]
    found = generated(entry)
    if update_golden:
        write(KERNELS, name, found)
        pytest.skip("recorded")
    recorded = {key: entry[key] for key in found}
    assert found == recorded, "the kernel's text changed: if that was meant, run with --update-golden"


@pytest.mark.parametrize("name", names(KERNELS))
def test_schedules_of_recorded_kernels_are_legal(name: str) -> None:
    entry = read(KERNELS)["entries"][name]
    graph = gensor_gym.ConstructionGraph(entry["operator"], entry["hardware"], "extended")
    assert graph.is_legal(Schedule.parse(entry["schedule"]))


def test_the_newest_version_is_the_one_recorded() -> None:
    ours = [spec for spec in gymnasium.registry.values() if spec.namespace == "gensor_gym"]
    versions = [spec.version for spec in ours if spec.name == "Construct"]
    assert ID == f"gensor_gym/Construct-v{max(versions)}"


def test_episodes_go_everywhere() -> None:
    """Between them the episodes take every kind of primitive, one that is illegal, and end by `stop`."""
    taken, illegal = set(), 0
    for entry in read(EPISODES)["entries"].values():
        env = gymnasium.make(ID, **{key: entry[key] for key in ("operator", "hardware", "space")})
        _, info = env.reset(seed=0)
        for action in entry["actions"]:
            legal = bool(info["action_mask"][action])
            illegal += not legal
            taken |= {gensor_gym.ConstructionGraph.actions[action].primitive} if legal else set()
            _, _, ended, _, info = env.step(action)
        assert ended and entry["ended"]
    assert illegal > 0
    assert taken == {action.primitive for action in gensor_gym.ConstructionGraph.actions}
