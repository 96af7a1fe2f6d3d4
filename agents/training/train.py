"""Train a policy.

Example: `python -m experiments train agent=ppo env.hardware=cascade_lake output=agents/data/policies/ppo_cpu`.

On the analytic model, equal seeds and configurations have exactly the same learning curve, whether a run was stopped and resumed
or not.
"""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig, OmegaConf
from rich.console import Console
from safetensors import SafetensorError, safe_open

from agents.cli.arguments import CONF
from agents.cli.checks import check_kinds, check_list, check_truths, check_whole
from agents.cli.command import command_line, configured
from agents.cli.hydra_folder import keep_configuration, sweep_name
from agents.cli.parent import end_with_launcher, end_with_parent
from agents.cli.refusal import refusals
from agents.cli.tracking import tracking_of
from agents.learners.stored import POLICY
from agents.policies.card import CARD, read_card
from agents.policies.fused_parts import parts_of as fused_parts_of
from agents.policies.training_tasks import bound, is_current
from agents.runs.files import write_text
from agents.runs.journal import locked
from agents.runs.settings import short_hash
from agents.runs.sheets.cells import plain
from agents.runs.sheets.sheet import Sheet
from agents.training.tracking.tensorboard import TensorBoard
from agents.training.tracking.training import Board, followed
from agents.training.tracking.wandb_run import WandbRun, check_login, hint
from agents.training.trainings import evaluate, judged, training_of
from agents.training.watch import CURVE, LAST, VALIDATION, identity
from gensor_gym import hardware as machines
from gensor_gym import operators
from gensor_gym.foreign import meant
from gensor_gym.graph.tables.layout import LAYOUT_VERSION

LEAST = ("learning_starts", "gradient_steps")
"""Settings of an agent that are counts and may be less than 1.

With 0 `learning_starts`, learning starts at once; with -1 `gradient_steps`, an update takes as many steps as were played.
"""
EVALUATION = ("eval_operators", "eval_episodes")
"""Settings that affect the scores but not the policy."""


def write_card(
    config: dict[str, Any], folder: Path, seconds: float, steps: int, resumed: bool = False, **more: object
) -> None:
    """Write the card next to the policy, a JSON file with configuration, data, cost and evaluation."""
    parts = parts_of(config)
    card = {
        "agent": config["agent"]["name"], "config": config, "layout": LAYOUT_VERSION, **bound(config["operators"], config["env"]),
        "sees": training_of(config["agent"]["name"]).sees,
        "split": f"v1 {', '.join(parts)}", "operators": config["operators"],
        "training_seconds": round(seconds, 1), "training_steps": steps, "resumed": resumed,
        "date": datetime.date.today().isoformat(), "torch_threads": torch.get_num_threads(), **more,
    }  # fmt: skip
    write_text(folder / CARD, json.dumps(card, indent=1) + "\n")


def settings_of(cfg: DictConfig) -> dict[str, Any]:
    """Check a training's configuration and return it as plain values. ValueError names a bad setting."""
    config: Any = OmegaConf.to_container(cfg, resolve=True)
    check_whole(config, 0, "seed", "curve_every", "eval_every", "checkpoint_every", "variants")  # 0: never
    check_whole(config, 1, "steps", "eval_episodes", "torch_threads")
    check_truths(config, "resume", "tensorboard")
    known = agent_of(config["agent"]["name"])
    check_kinds(config["agent"], known, of="agent.")
    counts = [name for name, value in known.items() if type(value) is int and name in config["agent"] and name not in LEAST]
    check_whole(config["agent"], 1, *counts, of="agent.")
    if config["agent"].get("net_arch"):
        check_list(config["agent"], 1, "net_arch")
    if not judged(config):
        raise ValueError(f"eval_operators {config['eval_operators']!r}: expected one at least that such a policy is for")
    hardware = machines.get(config["env"]["hardware"])
    if hardware.name == "host":
        config["machine"] = hardware.digest  # a measured machine has another model when it is measured again
    tracking_of(config["wandb"])
    return config


def agent_of(name: str) -> dict[str, Any]:
    """Read the settings of an agent from conf/agent; empty if no file has that name."""
    found: Any = [OmegaConf.to_container(OmegaConf.load(path)) for path in (CONF / "agent").glob("*.yaml") if path.stem == name]
    return dict(found[0]) if found else {}


def parts_of(config: dict[str, Any]) -> list[str]:
    """Return the parts of split v1 to which a training's operators belong. Fused operators have their own parts."""
    if training_of(config["agent"]["name"]).fused:
        return fused_parts_of(config["operators"])
    return sorted({operators.part_of(op) for op in operators.resolve(config["operators"])})


def trained(folder: Path, config: dict[str, Any]) -> bool:
    """Return whether the folder has the policy of exactly this configuration under the current rules and model.

    The policy need not be evaluated.
    """
    if not (folder / CARD).exists() or not (folder / POLICY).exists():
        return False
    card = read_card(folder)
    sees = training_of(config["agent"]["name"]).sees
    with meant(folder / CARD, "card of a training"):
        same = identity(card["config"]) == identity(config) and card.get("sees") == sees
    return same and is_current(card) and _is_whole(folder / POLICY)


def _is_whole(policy: Path) -> bool:
    """Return whether a policy's file is complete. A full disk or an interrupted copy leaves an incomplete file."""
    try:
        with safe_open(policy, "np"):
            return True
    except SafetensorError:
        return False


def finished(folder: Path, config: dict[str, Any]) -> bool:
    """Return whether the folder has the policy of this configuration with the requested evaluation."""
    if not trained(folder, config):
        return False
    card = read_card(folder)
    return "evaluation" in card and all(card["config"].get(name) == config[name] for name in EVALUATION)


def run(config: dict[str, Any], folder: Path, console: Console) -> dict[str, Any]:
    """Train a policy, save it with its card, and evaluate it on the validation split; return the scores.

    Finished parts are not repeated.
    """
    if config["resume"] and trained(folder, config):
        card = read_card(folder)
        cost = card["training_seconds"], card["training_steps"], card["resumed"]
    else:
        (folder / CARD).unlink(missing_ok=True)  # the card of the policy that is replaced
        model, seconds, resumed = training_of(config["agent"]["name"]).learn(config, folder, console)
        cost = seconds, model.num_timesteps, resumed
        write_card(config, folder, *cost)
    scores = evaluate(config, folder, console)
    write_card(config, folder, *cost, evaluation=scores)
    (folder / LAST).unlink(missing_ok=True)
    return scores


@configured("train")
def one_run(cfg: DictConfig) -> float | None:
    """Run or resume one training; return its first score, a latency ratio, which a sweeper (optuna) minimises."""
    end_with_parent()
    end_with_launcher()
    console = Console()
    with refusals():
        config = settings_of(cfg)
        torch.set_num_threads(config["torch_threads"])
        folder = Path(config["output"])
        lock = locked(folder)
        keep_configuration(folder, cfg)
        if config["resume"] and finished(folder, config):
            scores = read_card(folder)["evaluation"]
            console.print(f"{folder} holds this very policy: {scores}", markup=False)
            return score(scores)
        if others := [part for part in parts_of(config) if part != "train"]:
            console.print(f"training on operators of the part {' and '.join(others)}: to this policy that part is not unseen")
        check_login(tracking_of(config["wandb"]))
        scores, tracked = tracked_run(config, folder, console)
        lock.close()
    Sheet.of("evaluation", ("score", "value"), [(name, plain(value)) for name, value in scores.items()]).show(console)
    console.print(f"Policy and card are in {folder}", soft_wrap=True, markup=False)
    if tracked is not None:
        console.print(hint(tracked), soft_wrap=True, markup=False)
    return score(scores)


def tracked_run(config: dict[str, Any], folder: Path, console: Console) -> tuple[dict[str, Any], Path | None]:
    """Call `run` and track its curves while they grow; return (scores, folder of W&B's run)."""
    options, key = tracking_of(config["wandb"]), short_hash(identity(config))
    group = options.group or sweep_name() or folder.parent.name
    board = WandbRun(options, key, folder.name, group, config, folder, "training").begin()
    board.axis("steps")
    boards: list[tuple[Board, float]] = [(board, board.steps)]
    if config["tensorboard"] and not training_of(config["agent"]["name"]).shows_itself:
        boards.append((TensorBoard(folder / "tensorboard"), -1.0))
    try:
        with followed([folder / CURVE, folder / VALIDATION], boards):
            scores = run(config, folder, console)
        board.summary(scores)
        board.artifact(f"policy-{key}", "policy", [folder / name for name in (POLICY, CARD, CURVE, VALIDATION)])
    finally:
        path = board.end()
    return scores, path


def score(scores: dict[str, Any]) -> float | None:
    """Return the policy's latency relative to the traverser's (or to the optimum) from the results of `evaluate`."""
    return next((value for name, value in scores.items() if name.startswith("validation_latency_over_")), None)


def main() -> None:
    """Train with the settings of the command line."""
    command_line(one_run)
