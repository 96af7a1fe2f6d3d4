"""Measured times of plans: right ones are timed as one function, a kernel that fails gives its status to the plan."""

from __future__ import annotations

import math
import pickle

import numpy as np
import pytest

from gensor_gym import hardware
from gensor_gym.dataflow.text import parse
from gensor_gym.env.planning.env import FuseEnv, FuseVectorEnv
from gensor_gym.measure.measurement import Measurement, Status
from gensor_gym.networks.load import NetworkFunction
from gensor_gym.networks.planning import timed
from gensor_gym.networks.planning.state import JOIN, STOP
from gensor_gym.networks.planning.timed import PlanBackend

GRAPH = parse(
    "def f(x: float32[16, 32], w: constant(float32[32, 16])):\n"
    "    y = contract(x, w, operator='gemm(m=16, n=16, k=32)')\n    z = maximum(y, 0.0)\n    u = z * 2.0\n    return u"
)


def played(env: FuseEnv) -> tuple[float, dict]:
    """(reward of the last step, its info) of the plan that joins whatever it may."""
    env.reset(seed=0)
    while env.action_masks()[JOIN]:
        assert not env.step(JOIN)[2]
    _, reward, ended, _, info = env.step(STOP)
    assert ended
    return reward, info


def test_a_measured_plan_pays_by_its_time() -> None:
    """R is of the measured seconds, by the process of all environments; an equal plan is not measured again."""
    env = FuseEnv(GRAPH, backend="cpu")
    reward, info = played(env)
    potential = math.log(env.graph.first.seconds / env.graph.state(env._row).seconds)
    assert info["status"] == "OK" and 0 < info["runtime_s"] < 1 and info["samples"] >= 1 and "regret" not in info
    assert reward == pytest.approx(math.log(1000 * env.graph.floor / info["runtime_s"]) - potential)
    assert played(env)[1]["runtime_s"] == info["runtime_s"]
    assert np.abs(env.graph.operator.constants["w"]).max() > 0
    again = pickle.loads(pickle.dumps(env))
    assert played(again)[1]["status"] == "OK" and not pickle.loads(pickle.dumps(again)).final.backend._drawn
    envs = FuseVectorEnv(2, GRAPH, backend="cpu")
    envs.reset(seed=0)
    info = envs.step(np.full(2, STOP))[4]
    assert info["status"].tolist() == ["OK"] * 2 and info["runtime_s"][0] == info["runtime_s"][1] > 0


def test_a_plan_that_fails_has_a_status_and_pays_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    env = FuseEnv(GRAPH, backend="cpu", seconds=1e-9)
    _, info = played(env)
    assert info["status"] == "TIMEOUT" and info["runtime_s"] == math.inf
    env = FuseEnv(GRAPH, backend="cpu")
    with monkeypatch.context() as patched:
        patched.setattr(NetworkFunction, "__call__", lambda self, *inputs, out=None: np.zeros((16, 16), np.float32))
        reward, info = played(env)
    assert info["status"] == "WRONG_ANSWER"
    assert reward == pytest.approx(-math.log(env.graph.first.seconds / env.graph.state(env._row).seconds))
    backend, plan = PlanBackend(), env.schedule
    hw = hardware.get("host")
    failed = Measurement(Status.COMPILE_ERROR, error="no such instruction")
    with monkeypatch.context() as patched:
        patched.setattr(timed.NativeBackend, "trial", lambda self, built, hw, timed=True: failed)
        (found,) = backend.measure(env.graph.operator, [plan], hw)
    assert found.status is Status.COMPILE_ERROR and "no such instruction" in found.error and found.digest


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"backend": "cuda"}, "expected 'analytic', or for a CPU 'cpu'"), ({"backend": "cpu", "hardware": "h100"}, "for a CPU"),
        ({"backend": "cpu", "seconds": 0}, "more than 0 seconds"),
    ],
)  # fmt: skip
def test_bad_arguments_are_named(arguments: dict, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        FuseEnv(GRAPH, **arguments)
