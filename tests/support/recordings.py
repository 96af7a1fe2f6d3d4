"""Made-up recordings: a backend without a machine, and episodes on a recorded table whose every number can be compared."""

from __future__ import annotations

import hashlib
import json
import sys
import zlib
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

import gensor_gym  # noqa: F401  registers the environment
from gensor_gym import hardware
from gensor_gym.codegen.kernel import Kernel
from gensor_gym.measure.measurement import Measurement, Status
from gensor_gym.measure.native import NativeBackend
from gensor_gym.measure.records.tables import file_name
from gensor_gym.measure.workers.process import WorkerLost
from gensor_gym.measure.workers.requests import Built, TrialRequest

FOLDER = Path(__file__).parents[1] / "golden" / "recorded"
OPERATOR = "gemv(m=16, k=64)"


class MadeUpWorker:
    """Times from the kernel's digest and the number of the trial. Some kernels are wrong; `moods` crash so many times."""

    def __init__(self, samples: int = 5, moods: dict[str, int] | None = None) -> None:
        self.samples, self.moods = samples, dict(moods or {})
        self.asked: list[str] = []

    def ask(self, request: TrialRequest) -> Measurement:
        digest = request.built.kernel.digest
        self.asked.append(digest)
        if self.moods.get(digest, 0) > 0:
            self.moods[digest] -= 1
            raise WorkerLost(Status.CRASHED, "made up")
        number = zlib.crc32(f"made up {digest}".encode())
        conditions: dict[str, object] = {"device": "made up", "threads": 1, "compile_seconds": request.built.compile_seconds}
        if number % 17 == 0:
            return Measurement(Status.WRONG_ANSWER, error="made up", digest=digest)
        rng = np.random.default_rng([number, len(self.asked)])
        seconds = 1e-7 * (1.0 + number % 1000 / 100) * (1.0 + 0.01 * rng.standard_normal(self.samples))
        return Measurement(Status.OK, tuple(seconds.tolist()), conditions, "", digest)

    def close(self) -> None:
        """Nothing to end."""


def made_up_backend(worker: MadeUpWorker) -> NativeBackend:
    """A `cpu` backend that compiles and runs nothing."""

    def build(kernel: Kernel) -> Built:
        return Built(kernel, "nowhere", "made up", 0.25)

    return NativeBackend("cpu", build, lambda hw: f"made up x{hw.units}", worker=worker)  # type: ignore[arg-type]


def episodes(seeds: int = 4) -> list[dict[str, Any]]:
    """Random episodes on the golden table, exact and resampled: every number as hexadecimal digits."""
    hw = hardware.from_json((FOLDER / "hardware.json").read_text(encoding="utf-8"))
    found = []
    for mode in ("", "?resample=3&seed=7"):
        backend = f"recorded:{FOLDER / file_name(gensor_gym.operators.parse(OPERATOR))}.parquet{mode}"
        env = gymnasium.make(
            "gensor_gym/Construct-v0", operator=OPERATOR, hardware=hw, space="compact", backend=backend, timing="fresh",
            shaping=False,
        )  # fmt: skip
        found += [_episode(env, seed) | {"mode": mode or "exact"} for seed in range(seeds)]
    return found


def _episode(env: gymnasium.Env, seed: int) -> dict[str, Any]:
    """One episode of random legal actions."""
    observation, info = env.reset(seed=seed)
    rng, rewards, seen, ended = np.random.default_rng(seed), [], hashlib.sha256(observation.tobytes()), False
    while not ended:
        action = int(rng.choice(np.flatnonzero(info["action_mask"])))
        observation, reward, ended, _, info = env.step(action)
        rewards.append(reward)
        seen.update(observation.tobytes() + info["action_mask"].tobytes())
    return {
        "steps": info["steps"],
        "status": info["status"],
        "runtime_s": info["runtime_s"].hex(),
        "regret": info["regret"].hex(),
        "return": float(sum(rewards)).hex(),
        "observations": seen.hexdigest()[:16],
    }


if __name__ == "__main__":
    json.dump(episodes(), sys.stdout, indent=1)
