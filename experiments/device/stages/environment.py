"""Stage that uses the environment on a GPU as the README does: episodes, `optimize`, and a stock agent that learns.

Rows of kind `episode` are random masked play in `Construct-v0`. Rows of kind `part` are the result of each part (in `user` a
kernel is found, called, captured and exported). Rows of kind `learned` are the episodes of MaskablePPO in `Write-v0`, whose
reward is a kernel's time, and rows of kind `program` are the kernels that were compiled and timed for that.
"""

from __future__ import annotations

import math
import os
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

import gensor_gym  # noqa: F401  # registers the environments
from agents import optimize
from agents.optimizer import Result
from experiments.device.context import Context, StageJournal
from experiments.device.work.prebuilt import facts, timed_or_error
from experiments.device.work.progress import Progress
from gensor_gym import operators
from gensor_gym.env.seeds import seed_of_run
from gensor_gym.hardware.types import Hardware
from gensor_gym.measure.device_trials import compilers, or_crashed
from gensor_gym.measure.devices.presence import device_name
from gensor_gym.measure.measurement import Measurement
from gensor_gym.measure.native import NativeBackend
from gensor_gym.measure.stats.timing import TimingRules
from gensor_gym.measure.workers.compile_pool import CompilePool
from gensor_gym.measure.workers.pool import LocalPool
from gensor_gym.measure.workers.process import WorkerProcess
from gensor_gym.measure.workers.requests import Built, Trial

FILE = "environment.jsonl"
OPERATOR = 'gemm(m=1024, n=1024, k=1024, dtype="float16")'
SPACE = "extended"
RULES = TimingRules(budget=0.03, sample=1e-3, warmup=5e-3, most=60)
"""Timing rules for rewards: thousands of short trials instead of a hundred long ones."""
COMPILE_SECONDS, TRIAL_SECONDS = 4.0, 5.0
"""Time limits in seconds: of compiling a program, and of each step of its trial.

A slower program counts as failed, because episodes that end together wait for it.
"""
EPISODES, TRIALS, REPLAYS = 6, 6, 100
ENVS, ROLLOUT, BATCH, RATE = 32, 21, 168, 3e-3
"""Settings of MaskablePPO: environments, steps of a rollout (an episode of each environment), batch size, learning rate."""


def run(context: Context) -> dict[str, object]:
    """Play episodes, make a user's calls, then train an agent in the remaining time; return the results."""
    with closing(context.journal(FILE)) as journal:
        for name, does in (("episodes", _episodes), ("user", _user), ("learned", _learned)):
            if context.left > 0:
                journal.once(name, _part, does, context, journal)
    return digest(context)


def _part(does: Callable[..., dict[str, Any]], *of: Any) -> dict[str, Any]:
    """Run one part and return its row with its seconds; after an error, the row has the error and the next part runs."""
    return {"kind": "part", **timed_or_error(does, *of, error="failed", seconds="seconds")}


class KeptPool(LocalPool):
    """Pool of workers in which an error of a worker fails one program, not the training, and is recorded in its row."""

    def time(self, worker: WorkerProcess, trial: Trial, built: Built | Measurement) -> Measurement:
        """Time like `LocalPool`; an error of the worker becomes the status CRASHED."""
        time = super().time
        return or_crashed(lambda: time(worker, trial, built), trial.kernel.digest)


class KeptBackend(NativeBackend):
    """Backend that writes a row for each program that it measures, and compiles on all cores but the worker's and the agent's."""

    def __init__(self, journal: StageJournal) -> None:
        """Start a worker with short time limits, because a kernel that hangs costs the time of a hundred other kernels."""
        limits = dict.fromkeys(("verify", "time", "check"), TRIAL_SECONDS)
        worker = WorkerProcess("cuda", restart_after=10**6, stage_seconds=limits)
        pool = CompilePool(compilers(), seconds=COMPILE_SECONDS)
        super().__init__("cuda", pool, device_name, RULES, worker=worker, pool=KeptPool(pool, [worker], overlap=True))
        self.journal = journal
        self.measuring, self.programs = 0.0, 0

    def together(
        self, asked: Sequence[tuple[Any, Any]], hw: Hardware, patience: float = math.inf
    ) -> Iterator[Measurement]:
        """Measure programs like `NativeBackend`, write a row for each, and add up the time that this takes."""
        begin = time.perf_counter()
        for (_, schedule), measurement in zip(asked, super().together(asked, hw, patience), strict=True):
            self.programs += 1
            row = {"kind": "program", "schedule": str(schedule), **facts(measurement)}
            self.journal.put(f"program {self.programs}", row)
            yield measurement
        self.measuring += time.perf_counter() - begin


def _episodes(context: Context, journal: StageJournal) -> dict[str, Any]:
    env = gymnasium.make("gensor_gym/Construct-v0", operator=OPERATOR, hardware=context.hardware, space=SPACE, backend="cuda")
    env.action_space.seed(context.seed)
    for number in range(EPISODES):
        _, info = env.reset(seed=context.seed + number)
        total, ended, begin = 0.0, False, time.perf_counter()
        while not ended:
            _, reward, ended, _, info = env.step(env.action_space.sample(mask=info["action_mask"]))
            total += float(reward)
        row = {"kind": "episode", "return": total, "wall_s": time.perf_counter() - begin}
        journal.put(f"episode {number}", {**row, **{name: info[name] for name in ("steps", "runtime_s", "status")}})
    return {"episodes": EPISODES}  # left open: the search that follows uses the same worker


def _user(context: Context, journal: StageJournal) -> dict[str, Any]:
    """Call `optimize` and use its kernel in several ways; return each way's largest difference from torch's float32 result."""
    import torch

    op = operators.parse(OPERATOR)
    found = optimize(op, hardware=context.hardware, backend="cuda", strategy="markov_ext", trials=TRIALS, seed=0)
    a, b = (torch.randn(tensor.shape, device="cuda", dtype=torch.float16) for tensor in op.inputs)
    wanted = a.float() @ b.float()

    def error(array: Any) -> float:
        return float((torch.from_dlpack(array).float() - wanted).abs().max())

    def of_cupy() -> list[Any]:
        import cupy

        return [cupy.from_dlpack(tensor) for tensor in (a, b)]

    uses: dict[str, Callable[[], dict[str, Any]]] = {
        "torch": lambda: {"error": error(a @ b)},
        "called with torch": lambda: {"error": error(found.kernel(a, b))},
        "called with CuPy": lambda: {"error": error(found.kernel(*of_cupy()))},
        "bound to torch": lambda: {"error": error(found.kernel.bind(a, b)())},
        "captured": lambda: _captured(found, of_cupy(), error),
        "exported": lambda: _exported(found),
    }
    said = {name: timed_or_error(use, error="failed", seconds="seconds") for name, use in uses.items()}
    return {"measured_s": found.seconds, "schedule": str(found.schedule), "trials": len(found.trace), **said}


def _captured(found: Result, given: list[Any], error: Callable[[Any], float]) -> dict[str, Any]:
    """Capture many launches of a kernel in a CUDA graph and replay it; return the error and the seconds of a launch."""
    import cupy

    cupy.cuda.Device().synchronize()
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        bound = found.kernel.bind(*given)
        bound()
        stream.synchronize()
        stream.begin_capture()
        for _ in range(REPLAYS):
            bound()
        graph = stream.end_capture()
        graph.launch(stream)
        start, end = cupy.cuda.Event(), cupy.cuda.Event()
        start.record(stream)
        graph.launch(stream)
        end.record(stream)
        end.synchronize()
    return {"error": error(bound.out), "replay_s": cupy.cuda.get_elapsed_time(start, end) * 1e-3 / REPLAYS}


def _exported(found: Result) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        return {"files": sorted(path.name for path in Path(found.export(Path(folder) / "kernel").folder).iterdir())}


def _learned(context: Context, journal: StageJournal) -> dict[str, Any]:
    import torch
    from sb3_contrib import MaskablePPO
    from stable_baselines3.common.callbacks import BaseCallback

    from gensor_gym.env.sb3 import make_writing_sb3

    torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // 8))
    progress, begin = Progress("terminal rewards"), time.perf_counter()
    backend = KeptBackend(journal)

    class Kept(BaseCallback):
        """Callback that writes a row for each episode, and ends the training if the time is too short for another round."""

        count, round_s, ended = 0, 0.0, begin

        def _on_step(self) -> bool:
            if any("runtime_s" in info for info in self.locals["infos"]):
                self.round_s, self.ended = time.perf_counter() - self.ended, time.perf_counter()
            for info in self.locals["infos"]:
                if "runtime_s" in info:
                    row = {"return": info["episode"]["r"], "runtime_s": info["runtime_s"], "status": info["status"]}
                    journal.put(f"learned {self.count}", {"kind": "learned", **row, "wall_s": time.perf_counter() - begin})
                    self.count += 1
                    progress.count(f"{info['runtime_s'] * 1e6:.1f} us")
            return context.left > self.round_s

    envs = make_writing_sb3(ENVS, operator=OPERATOR, hardware=context.hardware, space=SPACE, backend=backend, threads=1)
    with closing(envs):
        envs.seed(seed_of_run(context.seed))
        model = MaskablePPO(
            "MlpPolicy", envs, n_steps=ROLLOUT, batch_size=BATCH, gamma=1.0, learning_rate=RATE, seed=seed_of_run(context.seed),
            device="cpu",
        )  # fmt: skip
        kept = Kept()
        model.learn(10**9, callback=kept)
    spent = time.perf_counter() - begin
    shares = {"measuring": backend.measuring / spent, "programs_per_second": backend.programs / max(backend.measuring, 1e-9)}
    return {"episodes": kept.count, "programs": backend.programs, **shares, "compilers": compilers()}


def digest(context: Context) -> dict[str, object]:
    """Return the results of all parts from the rows; those of the agent are by quarter of its training."""
    rows = context.rows(FILE)
    learned = [row for row in rows if row["kind"] == "learned"]
    quarter = max(1, len(learned) // 4)
    quarters = [learned[at : at + quarter] for at in range(0, 4 * quarter, quarter)] if len(learned) >= 4 else []
    ran = [row["runtime_s"] for row in learned if row["status"] == "OK"]
    programs = [row for row in rows if row["kind"] == "program"]
    return {
        "parts": {row["key"]: {k: v for k, v in row.items() if k not in ("key", "run", "kind", "trace")}
                  for row in rows if row["kind"] == "part"},
        "episodes": [f"{row['runtime_s'] * 1e6:.1f} us {row['status']}" for row in rows if row["kind"] == "episode"],
        "terminal_rewards": len(learned),
        "rewards_per_second": len(learned) / learned[-1]["wall_s"] if learned else 0.0,
        "quarters_ok": [float(np.mean([row["status"] == "OK" for row in part])) for part in quarters],
        "quarters_median_us": [_median_us(part) for part in quarters],
        "quarters_mean_return": [float(np.mean([row["return"] for row in part])) for part in quarters],
        "statuses": dict(Counter(row["status"] for row in programs)),
        "best_us": 1e6 * min(ran) if ran else None,
    }  # fmt: skip


def _median_us(rows: list[dict[str, Any]]) -> float | None:
    ran = [row["runtime_s"] for row in rows if row["status"] == "OK"]
    return 1e6 * float(np.median(ran)) if ran else None
