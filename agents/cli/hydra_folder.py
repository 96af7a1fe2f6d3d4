"""Keep the inputs of a run next to its results in the folder `.hydra`, as Hydra writes it.

`overrides.yaml` suffices to repeat the run.
"""

from __future__ import annotations

from pathlib import Path

from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from gensor_gym.files import write_whole
from gensor_gym.plugins import loaded


def keep_configuration(folder: Path, config: DictConfig) -> None:
    """Write config.yaml with every value resolved, overrides.yaml and hydra.yaml to the subfolder `.hydra` of `folder`.

    Nothing is written outside Hydra.
    """
    if not HydraConfig.initialized():
        return
    hydra = HydraConfig.get()
    plugins = [f"plugins=[{','.join(loaded())}]"] if loaded() else []
    texts = {
        "config": OmegaConf.to_yaml(config, resolve=True),
        "overrides": OmegaConf.to_yaml([*hydra.overrides.task, *plugins]),
        "hydra": OmegaConf.to_yaml({"hydra": hydra}),
    }
    for name, text in texts.items():
        write_whole(folder / ".hydra" / f"{name}.yaml", text.encode())


def task_folder() -> Path | None:
    """Return the folder that Hydra gives this task of a multirun; None outside a multirun."""
    if not HydraConfig.initialized() or HydraConfig.get().mode != RunMode.MULTIRUN:
        return None
    return Path(HydraConfig.get().runtime.output_dir)


def sweep_name() -> str | None:
    """Return the name of the multirun that this task belongs to; None outside a multirun.

    The name is the last two parts of the multirun's folder, by default day and time.
    """
    return "/".join(Path(HydraConfig.get().sweep.dir).absolute().parts[-2:]) if task_folder() is not None else None


def task_number() -> int:
    """Return the number of this task in its multirun."""
    return int(HydraConfig.get().job.num)
