"""Go on training a policy with measured rewards: `python -m experiments.fine_tune checkpoint=FOLDER output=FOLDER`.

PPO goes on from a policy that was trained on the model, on operators of the train part whose kernels run quickly, until so
many different kernels were measured (conf/fine_tune.yaml). Every measurement is kept in a store and in measured.jsonl, the policy
after every rollout: the same command goes on after a kill.
"""

from __future__ import annotations

import datetime
import json
import sys
import time
from pathlib import Path
from typing import Any

import hydra
from omegaconf import DictConfig, OmegaConf
from rich.console import Console
from stable_baselines3.common.callbacks import BaseCallback

from agents.learned import load_policy, read_card
from agents.seen import SeenVecEnv
from experiments.anytime import digest_of_policy
from experiments.commands import refusals
from experiments.folders import make_folder
from experiments.measured_reward import MeasuredVectorEnv, Timings
from experiments.results import write_text
from experiments.watch import LAST, read_rows
from gensor_gym import hardware as machines
from gensor_gym import operators
from gensor_gym.fingerprint import fingerprint
from gensor_gym.measure.backend import get_backend
from gensor_gym.measure.store import Store
from gensor_gym.operators.types import Operator

CURVE = "measured_curve.jsonl"


class Until(BaseCallback):
    """Ends learning when enough was measured, and saves the policy whenever a rollout has been learned from."""

    def __init__(self, timings: Timings, config: DictConfig, folder: Path, spent: float) -> None:
        """`spent`: seconds that earlier runs of the same command took."""
        super().__init__()
        self.timings, self.config, self.folder = timings, config, folder
        self._begin, self._first = time.perf_counter() - spent, 0

    @property
    def elapsed(self) -> float:
        """Seconds of all runs of the command."""
        return time.perf_counter() - self._begin

    def _on_training_start(self) -> None:
        """Nothing has been learned yet in this run."""
        self._first = self.model.num_timesteps

    def _on_rollout_start(self) -> None:
        """The rollout before, if there was one, has been learned from."""
        if self.model.num_timesteps > self._first:
            self._save()

    def _on_step(self) -> bool:
        """Whether to go on."""
        return bool(self.timings.spent < self.config.measurements and self.elapsed < self.config.seconds)

    def _save(self) -> None:
        """The policy, whole or not at all, and a point of the curve."""
        self.model.save(self.folder / "saving.zip")
        (self.folder / "saving.zip").replace(self.folder / LAST)
        episodes: Any = self.model.ep_info_buffer or []
        mean = sum(e["r"] for e in episodes) / len(episodes) if episodes else None
        point = {"measurements": self.timings.spent, "seconds": round(self.elapsed, 1), "mean_return": mean}
        with (self.folder / CURVE).open("a", encoding="utf-8") as file:
            file.write(json.dumps(point) + "\n")


def seconds_before(folder: Path) -> float:
    """Seconds that earlier runs of the command took until the last point of the curve; a torn last line is dropped."""
    points = read_rows(folder / CURVE)
    write_text(folder / CURVE, "".join(json.dumps(point) + "\n" for point in points))
    return float(points[-1]["seconds"]) if points else 0.0


def chosen(config: DictConfig) -> list[Operator]:
    """Operators to measure, of classes not left out, at most `most_points` loop points each.

    ValueError for one that is not of the train part.
    """
    given: Any = config.operators if isinstance(config.operators, str) else list(config.operators)
    kept = [op for op in operators.resolve(given) if op.name not in config.leave_out]
    found = [op for op in kept if op.points <= config.most_points]
    others = sorted({operators.part_of(op) for op in found} - {"train"})
    if others or not found:
        raise ValueError(f"operators {config.operators}: expected operators of the train part, found {others or 'none'} as well")
    return found


def environments_of(config: DictConfig, card: dict[str, Any], folder: Path) -> MeasuredVectorEnv:
    """The environments that the policy goes on in: as it was trained, on this hardware, with measured rewards."""
    before = card["config"]["env"]
    hw = machines.get(config.env.hardware)
    kept = {name: before[name] for name in ("space", "discount", "step_cost") if name in before}
    backend = get_backend(config.env.backend, hw)
    store = Store(make_folder(Path(config.store).parent) / Path(config.store).name) if backend.stored else None
    timings = Timings(folder / "measured.jsonl", backend, store)
    return MeasuredVectorEnv(timings, config.num_envs, operator=chosen(config), hardware=hw, **kept)


def load(path: Path, envs: MeasuredVectorEnv, config: DictConfig) -> Any:
    """The model of a checkpoint with the settings of fine-tuning in place of those it was trained with.

    ValueError for a policy that PPO did not learn.
    """
    from gensor_gym.env.sb3 import ConstructVecEnv

    settings: dict[str, Any] = OmegaConf.to_container(config.ppo)  # type: ignore[assignment]
    learner, model = load_policy(str(config.checkpoint))
    if not hasattr(model, "clip_range"):
        raise ValueError(f"checkpoint {config.checkpoint} holds a {type(model).__name__}: expected a policy that PPO learned")
    env = SeenVecEnv(ConstructVecEnv(envs), learner.sight, measured=True)
    return type(model).load(path, env=env, device="cpu", custom_objects=settings)


def fine_tune(config: DictConfig, console: Console) -> dict[str, Any]:
    """Learn, write policy and card; returns the card. ValueError names a bad argument."""
    begun, source = make_folder(config.output), Path(config.checkpoint)
    card = read_card(source)
    if card["fingerprint"] != fingerprint():
        raise ValueError(f"checkpoint {source} is of fingerprint {card['fingerprint']}, this version has {fingerprint()}")
    envs = environments_of(config, card, begun)
    resumed = (begun / LAST).exists()
    spent = seconds_before(begun) if resumed else 0.0
    model = load(begun / LAST if resumed else source / "policy.zip", envs, config)
    model.set_random_seed(config.seed + envs.timings.spent)
    until = Until(envs.timings, config, begun, spent)
    with console.status(f"fine-tuning {source} on {envs.timings.backend.device(machines.get(config.env.hardware))}"):
        model.learn(sys.maxsize, callback=until, reset_num_timesteps=not resumed)
    model.save(begun / "policy.zip", exclude=["rollout_buffer", "ep_info_buffer", "ep_success_buffer"])
    envs.close()
    return _write_card(config, card, envs.timings, begun, until.elapsed, model.num_timesteps)


def _write_card(
    config: DictConfig, card: dict[str, Any], timings: Timings, folder: Path, seconds: float, steps: int
) -> dict[str, Any]:
    """The card: that of the policy it began with, and what was measured since."""
    found = {
        "from": str(config.checkpoint), "digest": digest_of_policy(Path(config.checkpoint)), "backend": timings.backend.name,
        "device": timings.backend.device(machines.get(config.env.hardware)), "reward": "measured", "split": "v1 train",
        "measurements": timings.spent, "failed": sum(row["seconds"] is None for row in timings.rows),
        "operators": sorted({row["operator"] for row in timings.rows}), "seconds": round(seconds, 1), "steps": steps,
        "trained_on_model_s": card["training_seconds"], "config": OmegaConf.to_container(config),
    }  # fmt: skip
    total = round(card["training_seconds"] + seconds, 1)
    date = datetime.datetime.now(datetime.UTC).date().isoformat()
    whole = {**card, "training_seconds": total, "date": date, "fine_tuned": found}
    write_text(folder / "card.json", json.dumps(whole, indent=1) + "\n")
    return whole


@hydra.main(version_base="1.3", config_path="../conf", config_name="fine_tune")
def main(config: DictConfig) -> None:
    """Command line."""
    console = Console()
    with refusals(console, ValueError, OSError):
        card = fine_tune(config, console)
    found = card["fine_tuned"]
    console.print(
        f"{found['measurements']} kernels measured ({found['failed']} failed) in {found['seconds']:.0f} s; policy and card in "
        f"{config.output}", highlight=False, soft_wrap=True,
    )  # fmt: skip


if __name__ == "__main__":
    main()
