"""Read and check the W&B settings of a configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gensor_gym.registry import check_known

WANDB_MODES = ("offline", "online", "disabled")


@dataclass(frozen=True)
class Tracking:
    """Destination and names of runs in W&B. By default `group` is the name of the multirun, or the folder of the runs."""

    mode: str = "offline"
    project: str = "gensor_gym"
    entity: str | None = None
    """User or team; None for the default of the login."""
    group: str | None = None
    tags: tuple[str, ...] = ()

    @property
    def on(self) -> bool:
        """Whether runs are tracked in W&B."""
        return self.mode != "disabled"


def tracking_of(given: Mapping[str, Any]) -> Tracking:
    """Check the entries of `wandb` and return them as settings. ValueError names a bad entry."""
    check_known("wandb.mode", given.get("mode"), WANDB_MODES)
    if unknown := set(given) - {"mode", "project", "entity", "group", "tags"}:
        raise ValueError(f"wandb has no {', '.join(sorted(unknown))}; it has mode, project, entity, group, tags")
    for name in ("project", "entity", "group"):
        if not isinstance(given.get(name) or "", str):
            raise ValueError(f"wandb.{name} {given[name]!r}: expected text")
    tags = given.get("tags") or []
    if not isinstance(tags, (list, tuple)) or not all(isinstance(tag, str) and 0 < len(tag) <= 64 for tag in tags):
        raise ValueError(f"wandb.tags {tags!r}: expected a list of words of at most 64 characters")
    return Tracking(**{**given, "tags": tuple(tags)})
