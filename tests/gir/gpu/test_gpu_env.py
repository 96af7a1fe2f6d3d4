"""`Gir-v0` for a GPU, its model, and what is said where there is no device."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest

import gensor_gym
from agents import optimize
from gensor_gym import hardware
from gensor_gym.codegen.runtime.cuda import CudaUnavailableError
from gensor_gym.dataflow.suite import make
from gensor_gym.gir.schedule import GirSchedule
from gensor_gym.measure.backend import get_backend
from gensor_gym.measure.devices.presence import absence_of_cuda
from gensor_gym.measure.measurement import Status
from tests.support.gir_gpu_cases import graph_of

assert gensor_gym


@pytest.mark.parametrize("machine", ["h100", "h200", "rtx4090"])
def test_an_episode_ends_with_a_regret(machine: str) -> None:
    env = gymnasium.make("gensor_gym/Gir-v0", operator="softmax(m=64, n=300)", hardware=machine)
    _, info = env.reset(seed=0)
    rng, ended, total = np.random.default_rng(0), False, 0.0
    while not ended:
        legal = np.flatnonzero(info["action_mask"])
        _, reward, ended, truncated, info = env.step(int(rng.choice(legal[1:] if len(legal) > 1 else legal)))
        total += float(reward)
        assert not truncated
    assert info["regret"] >= 0.0 and np.isfinite(total)


def test_the_model_knows_what_a_gpu_waits_for() -> None:
    graph = graph_of(make("softmax", m=4096, n=1000))

    def seconds(text: str) -> float:
        return graph.latency(GirSchedule.parse(text))

    assert seconds("vector=4 tile=4 place=reg,reg") < seconds("vector=1 tile=1 place=reg,reg"), "few bytes under way"
    assert seconds("vector=4 tile=4 place=reg,reg") < seconds("vector=4 tile=4 loop=4096 place=reg,reg"), "one block does all"
    assert seconds("vector=4 tile=4 place=reg,reg") < seconds("vector=4 tile=4 place=dram,dram"), "a second launch"
    terms = graph.terms(GirSchedule.parse("vector=4 tile=4 place=dram,dram"))
    assert terms["launch"] == pytest.approx(2 * graph.hardware.launch_overhead)


def test_columns_that_lie_apart_cost_less_where_tiles_are_turned() -> None:
    graph = graph_of(make("transpose_last", a=64, b=512, c=512))
    turned, alone = (graph.latency(GirSchedule.parse(text)) for text in ("tile=8 rows=8", "tile=1 rows=1"))
    assert 2 * turned < alone
    best = graph.optimum()[0]
    assert graph.model.hardware.kind == "gpu" and graph.latency(best) <= turned


def test_every_shape_of_the_tables_is_slower_than_no_program_can_be() -> None:
    for text in ("softmax", "layernorm", "rmsnorm", "norm", "swiglu"):
        for machine in ("h100", "rtx4090"):
            graph = graph_of(make(text, m=512, n=4096), machine)
            assert graph.optimum()[1] >= graph.floor


@pytest.mark.skipif(not absence_of_cuda(), reason="there is a device")
def test_a_device_is_asked_for_by_name() -> None:
    with pytest.raises(ValueError, match="h100 cannot be timed here: no NVIDIA GPU was found"):
        optimize("softmax(m=64, n=300)", hardware="h100")
    found = optimize("softmax(m=64, n=300)", hardware="h100", backend="analytic")
    with pytest.raises(CudaUnavailableError, match="without one, use backend analytic, recorded or emulated"):
        found.kernel(np.zeros((64, 300), np.float32))


def test_the_emulated_backend_says_whether_kernels_are_right() -> None:
    machine, op = hardware.get("h100"), make("add_layernorm", m=3, n=40)
    schedules = [GirSchedule.parse(text) for text in ("vector=4 place=reg,reg", "vector=16")]
    right, illegal = get_backend("emulated", machine).measure(op, schedules, machine)
    assert right.status is Status.OK and right.conditions["timed"] is False and illegal.status is Status.ILLEGAL
    with pytest.raises(ValueError, match="expected at most"):
        get_backend("emulated", machine).measure(make("softmax", m=1 << 20, n=1 << 12), schedules[:1], machine)
