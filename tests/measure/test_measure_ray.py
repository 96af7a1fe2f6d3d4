"""The pool over Ray on one machine: the same results as without, and a lost worker costs a retry."""

from __future__ import annotations

import os
import signal

import numpy as np
import pytest

from gensor_gym import hardware, operators
from gensor_gym.construction import ConstructionGraph
from gensor_gym.measure.measurement import Status
from gensor_gym.measure.native import cpu_backend
from gensor_gym.measure.stats.timing import TimingRules
from gensor_gym.measure.workers.builders import build_c
from gensor_gym.measure.workers.pool import LocalPool
from gensor_gym.measure.workers.process import WorkerProcess
from gensor_gym.measure.workers.requests import Comparison, Trial
from tests.support.measure_kernels import kernel

ray = pytest.importorskip("ray")

QUICK = TimingRules(budget=2e-3, sample=1e-4, warmup=0.0, least=1, most=2)
NAMES = ["right", "invalid address", "right", "wrong value", "floods stderr", "modifies an input", "right", "aborts"]


@pytest.fixture(scope="module")
def cluster() -> None:
    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()


@pytest.fixture
def pool(cluster: None) -> object:
    from gensor_gym.measure.workers.ray_pool import RayPool

    made = RayPool("cpu", workers=2, ahead=5)
    yield made
    made.close()


def trials(names: list[str]) -> list[Trial]:
    return [Trial(kernel(name, tag=str(number)), 1, 0.0, rules=QUICK) for number, name in enumerate(names)]


def test_same_results_as_on_this_machine(pool: object) -> None:
    """Statuses and digests in order, and the words of what went wrong."""
    wanted = trials(NAMES)
    local = LocalPool(build_c, [WorkerProcess("cpu")])
    here = list(local.stream(wanted))
    local.close()
    there = list(pool.stream(wanted))
    assert [(m.status, m.digest) for m in there] == [(m.status, m.digest) for m in here]
    assert [m.error.split(":")[0] for m in there] == [m.error.split(":")[0] for m in here]
    assert pool.retries == 0 and len(set(pool.pids())) == 2


def test_a_killed_worker_costs_a_retry(pool: object) -> None:
    """Both stations are killed, one after the other, while trials are under way."""
    wanted, found = trials(["right"] * 16), []
    for measurement in pool.stream(iter(wanted)):
        found.append(measurement)
        if len(found) in (3, 9):
            os.kill(pool.pids()[0], signal.SIGKILL)
    assert [m.digest for m in found] == [trial.kernel.digest for trial in wanted]
    assert [m.status for m in found] == [Status.OK] * 16, [m.error for m in found]
    assert 1 <= pool.retries <= 4 and len(set(pool.pids())) == 2


def test_backend_over_ray(pool: object) -> None:
    """Generated kernels, a comparison, and its errors."""
    op, hw = operators.gemm(m=24, n=32, k=16), hardware.get("host")
    graph, rng = ConstructionGraph(op, hw, "extended"), np.random.default_rng(0)
    schedules = [graph.random_schedule(rng) for _ in range(4)]
    backend = cpu_backend(QUICK, pool=pool)
    there = backend.measure(op, schedules, hw)
    assert [m.status for m in there] == [Status.OK] * 4, [m.error for m in there]
    assert pool.device(hw) == backend.device(hw)
    kernels = (("a", kernel("right", tag="a")), ("b", kernel("right", tag="b")))
    assert {name: len(s) for name, s in pool.compare(Comparison(kernels, 1, 3, rules=QUICK)).items()} == {"a": 3, "b": 3}
    with pytest.raises(RuntimeError, match="1 of 1920 elements wrong"):
        pool.compare(Comparison((("bad", kernel("wrong value")),), 1, 3, rules=QUICK))
    backend.close()


def test_bad_arguments(cluster: None) -> None:
    from gensor_gym.measure.workers.ray_pool import RayPool

    with pytest.raises(ValueError, match="'tpu'"):
        RayPool("tpu")
    with pytest.raises(ValueError, match="0 workers"):
        RayPool("cuda")


def test_configuration_names_the_pool(cluster: None) -> None:
    from agents.cli.arguments import compose
    from agents.runs.settings import settings_of
    from gensor_gym.measure.workers.ray_pool import RayPool

    base = ["operator=gemm(m=24, n=32, k=16)", "strategy=[random_walk]", "measure.pool=ray", "measure.workers=2"]
    backend = settings_of(compose(base, "config")).backend
    assert isinstance(backend.pool, RayPool)
    backend.close()
    with pytest.raises(ValueError, match="measure.pool 'many': expected one of local, ray"):
        settings_of(compose([*base, "measure.pool=many"], "config"))
    with pytest.raises(ValueError, match="backend 'emulated' over Ray: expected auto or cpu"):
        settings_of(compose([*base, "backend=emulated"], "config"))
