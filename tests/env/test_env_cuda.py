"""Environments whose reward is a kernel's time on a GPU, on a device that stands in: all but the device is real."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from sb3_contrib import MaskablePPO
from stable_baselines3.common.env_checker import check_env as check_env_of_sb3

import gensor_gym  # noqa: F401  # registers the environments
from gensor_gym import hardware
from gensor_gym.codegen.cuda import nvrtc
from gensor_gym.codegen.deadlines import COMPILE_SECONDS
from gensor_gym.codegen.kernel import Kernel
from gensor_gym.env.construct import ConstructEnv
from gensor_gym.env.sb3 import make_sb3, make_writing_sb3
from gensor_gym.graph.schedule import Schedule
from gensor_gym.measure.backend import get_backend
from gensor_gym.measure.devices.presence import device_name
from gensor_gym.measure.measurement import Measurement, Status
from gensor_gym.measure.native import NativeBackend
from gensor_gym.measure.stats.timing import TimingRules
from gensor_gym.measure.workers import pool as pools
from gensor_gym.measure.workers.builders import CompileFailed
from gensor_gym.measure.workers.compile_pool import CompilePool
from gensor_gym.measure.workers.process import WorkerProcess
from gensor_gym.measure.workers.requests import Built, TrialRequest
from tests.support import cuda_stand_in
from tests.support.thorough import thorough_but

pytestmark = pytest.mark.skipif(not nvrtc.is_available(), reason="NVRTC is not installed")
NAMES = ("gensor_gym/Construct-v0", "gensor_gym/Write-v0")
TASK: dict[str, Any] = {"operator": "gemm(m=128, n=96, k=64)", "hardware": "h100"}
QUICK = TimingRules(budget=2e-3, sample=1e-4, warmup=0.0, least=1, most=2)
STATUSES = {
    "wrong": "WRONG_ANSWER", "refuse": "LAUNCH_ERROR", "lost": "CRASHED", "crash": "CRASHED", "hang": "TIMEOUT",
    "refused by the compiler": "COMPILE_ERROR",
}  # fmt: skip


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """This machine has a GPU; the file says what goes wrong on it."""
    patch, file = pytest.MonkeyPatch(), tmp_path_factory.mktemp("device") / "words"
    cuda_stand_in.enter(patch, file)
    yield file
    cuda_stand_in.leave()
    patch.undo()


class Compiler(CompilePool):
    """NVRTC, until it is told to refuse."""

    refusing = False

    def __call__(self, kernel: Kernel) -> Built:
        """A cubin."""
        if self.refusing:
            raise CompileFailed("refused")
        return super().__call__(kernel)


@pytest.fixture(scope="module")
def backend(words: Path) -> Iterator[NativeBackend]:
    """Short trials, by a worker that is given up soon."""
    compiler = Compiler(1, COMPILE_SECONDS["cuda"])
    worker = WorkerProcess("cuda", stage_seconds={"verify": 3.0})
    made = NativeBackend("cuda", compiler, device_name, QUICK, worker=worker, overlap=True)
    made.compiler = compiler  # type: ignore[attr-defined]
    yield made
    made.close()


def played(env: gymnasium.Env, seed: int, most: int = 60) -> tuple[float, dict[str, Any], Schedule]:
    """Random masked play: the last reward with what was paid for shaping, the last info, the program."""
    _, info = env.reset(seed=seed)
    rng, total, primitives = np.random.default_rng(seed), 0.0, isinstance(env.unwrapped, ConstructEnv)
    for step in range(10_000):
        mask = info["action_mask"]
        assert mask.dtype == np.int8 and (mask == env.unwrapped.action_masks()).all() and mask.any()
        action = 0 if step >= most and primitives else int(rng.choice(np.flatnonzero(mask)))
        schedule = env.unwrapped.schedule
        _, reward, ended, truncated, info = env.step(action)
        total += float(reward)
        if ended:
            assert not truncated
            return total, info, schedule if primitives else env.unwrapped.schedule
    raise AssertionError("an episode without end")


def worth(env: gymnasium.Env, seconds: float) -> float:
    """R as in docs/design.md."""
    return max(0.0, math.log(1000 * env.unwrapped.graph.floor / seconds))


@pytest.mark.parametrize("name", thorough_but(NAMES, "gensor_gym/Construct-v0"))
def test_the_reward_is_that_of_the_samples(words: Path, name: str) -> None:
    """By the backend's name: every episode's return is R of the median, and the backend times the program the same."""
    env = gymnasium.make(name, backend="cuda", **TASK)
    hw, returns = hardware.get("h100"), set()
    for seed in range(4):
        total, info, schedule = played(env, seed)
        assert info["status"] == "OK"
        cost = 0.001 * info["steps"] if "Construct" in name else 0.0
        assert total == pytest.approx(worth(env, info["runtime_s"]) - cost, abs=1e-6)
        (again,) = get_backend("cuda", hw).measure(env.unwrapped.graph.operator, [schedule], hw)
        assert again.conditions["device"] == "Fake GPU" and len(again.samples) >= 5
        assert float(np.median(again.samples)) == pytest.approx(info["runtime_s"], rel=1e-6)
        returns.add(round(total, 6))
    assert len(returns) > 1
    env.close()


@pytest.mark.parametrize(
    ("name", "fault"), thorough_but(product(NAMES, STATUSES), *product(NAMES[:1], ("wrong", "lost")))
)
def test_a_failure_is_a_status_and_the_environment_goes_on(words: Path, backend: NativeBackend, fault: str, name: str) -> None:
    free = {"shaping": False, "step_cost": 0.0} if "Construct" in name else {}
    env = gymnasium.make(name, backend=backend, timing="fresh", **free, **TASK)
    words.write_text("" if fault.startswith("refused") else fault, encoding="utf-8")
    backend.compiler.refusing = fault.startswith("refused")  # type: ignore[attr-defined]
    try:
        total, info, _ = played(env, 1)
    finally:
        words.write_text("", encoding="utf-8")
        backend.compiler.refusing = False  # type: ignore[attr-defined]
    assert (info["status"], total) == (STATUSES[fault], 0.0)
    assert info["runtime_s"] == math.inf
    total, info, _ = played(env, 1)
    assert info["status"] == "OK" and total == pytest.approx(worth(env, info["runtime_s"]), abs=1e-6)


@pytest.mark.parametrize("name", thorough_but(NAMES, "gensor_gym/Construct-v0"))
def test_several_are_as_one(words: Path, backend: NativeBackend, name: str) -> None:
    """Rewards, times and statuses of episodes side by side are those of a single environment."""
    operators = ["gemm(m=128, n=96, k=64)", "gemm(m=64, n=64, k=96)"]
    made = {"operator": operators, "hardware": "h100", "backend": backend}
    envs = gymnasium.make_vec(name, num_envs=4, autoreset_mode="SameStep", **made)
    _, info = envs.reset(seed=5)
    rng, asked = np.random.default_rng(0), []
    together = backend.together
    backend.together = lambda pairs, *more: asked.append(len(pairs)) or together(pairs, *more)  # type: ignore[method-assign]
    totals, facts = np.zeros(4), {}
    for step in range(200):
        graphs = envs.unwrapped.graphs
        masks = envs.unwrapped.action_masks()
        actions = [0 if step >= 8 and "Construct" in name else int(rng.choice(np.flatnonzero(mask))) for mask in masks]
        _, rewards, ended, _, info = envs.step(np.array(actions))
        for i in np.flatnonzero(ended):
            if i not in facts:
                facts[i] = {key: info["final_info"][key][i] for key in ("runtime_s", "status", "steps")}
                totals[i] += rewards[i]
                cost = 0.001 * facts[i]["steps"] if "Construct" in name else 0.0
                known = max(0.0, math.log(1000 * graphs[i].floor / facts[i]["runtime_s"])) if facts[i]["status"] == "OK" else 0.0
                assert totals[i] == pytest.approx(known - cost, abs=1e-6)
        totals += np.where([i in facts for i in range(4)], 0.0, rewards)
        if len(facts) == 4:
            break
    assert len(facts) == 4 and all(one["status"] in ("OK", "ILLEGAL") for one in facts.values())
    assert any(one["status"] == "OK" for one in facts.values()) and sum(asked) >= 1
    del backend.together
    envs.close()


@pytest.mark.parametrize("name", NAMES)
def test_checkers_find_nothing(words: Path, name: str, recwarn: pytest.WarningsRecorder) -> None:
    env = gymnasium.make(name, backend="cuda", **TASK)
    check_env(env.unwrapped, skip_render_check=True)
    check_env_of_sb3(env.unwrapped, skip_render_check=True)
    env.close()
    assert [str(one.message) for one in recwarn if "gym" in str(one.filename) or "stable" in str(one.filename)] == []


@pytest.mark.thorough
@pytest.mark.parametrize("make", [make_sb3, make_writing_sb3])
def test_maskable_ppo_learns_from_times(words: Path, backend: NativeBackend, make: Any) -> None:
    envs = make(8, backend=backend, threads=1, **TASK)
    model = MaskablePPO("MlpPolicy", envs, n_steps=16, batch_size=64, gamma=envs.discount, seed=0, device="cpu")
    before = [value.clone() for value in model.policy.state_dict().values()]
    model.learn(256)
    assert any((old != new).any() for old, new in zip(before, model.policy.state_dict().values(), strict=True))
    assert model.ep_info_buffer
    envs.close()


def test_auto_is_the_gpu_of_this_machine(words: Path) -> None:
    """`auto` takes the device where it is the one that was named; `host` stays the processor."""
    assert get_backend("auto", hardware.get("h100")).name == "cuda"
    with pytest.raises(ValueError, match="a100 cannot be timed here: the GPU of this machine is a NVIDIA H100"):
        gymnasium.make(NAMES[1], backend="auto", operator=TASK["operator"], hardware="a100")
    with pytest.raises(ValueError, match="backend 'cuda' cannot run host"):
        gymnasium.make(NAMES[1], backend="cuda", operator=TASK["operator"])


class Delayed(WorkerProcess):
    """A device that takes 60 ms a trial."""

    def ask(self, request: TrialRequest) -> Measurement:
        """See `WorkerProcess`."""
        time.sleep(0.06)
        return Measurement(Status.OK, (1e-5,), digest=request.built.kernel.digest)


@pytest.mark.thorough
def test_ten_rewards_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """Delays as recorded on a GPU: 0.46 s a kernel on 14 compilers, one of which takes 2 s, and 60 ms a trial."""
    monkeypatch.setattr(pools.os, "cpu_count", lambda: 14)
    begun: list[Kernel] = []

    def compile_kernel(kernel: Kernel) -> Built:
        begun.append(kernel)
        time.sleep(2.0 if len(begun) == 1 else 0.46)
        return Built(kernel, "none")

    backend = NativeBackend("cuda", compile_kernel, device_name, QUICK, worker=Delayed("cuda"), overlap=True)
    given = {"operator": 'gemm(m=1024, n=1024, k=1024, dtype="float16")', "hardware": "h100", "backend": backend}
    envs = gymnasium.make_vec(NAMES[1], num_envs=48, **given)
    envs.reset(seed=0)
    rng, ended = np.random.default_rng(0), np.zeros(48, dtype=bool)
    while not ended.any():
        masks = envs.unwrapped.action_masks()
        begin = time.perf_counter()
        _, _, ended, _, _ = envs.step(np.array([rng.choice(np.flatnonzero(mask)) for mask in masks]))
    spent = time.perf_counter() - begin
    print(f"{len(begun)} kernels in {spent:.2f} s: {len(begun) / spent:.1f} a second")
    assert ended.all() and len(begun) > 40
    assert len(begun) / spent > 10
