"""Track a run in W&B. An error is reported once, as a warning, and ends only the tracking of this run."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console

from agents.cli.tracking import Tracking
from gensor_gym.cache.folders import can_be_made, make_cache_dir


def check_login(options: Tracking) -> None:
    """Check that W&B accepts the user's key if runs are sent online. This never prompts.

    ValueError if the key is not accepted.
    """
    if options.mode != "online":
        return
    import wandb

    os.environ.setdefault("WANDB_SILENT", "true")
    help_text = "`wandb login` (or $WANDB_API_KEY) logs in, wandb.mode=offline keeps runs here"
    try:
        known = wandb.login(prompt=False, verify=True)
    except Exception as error:  # wandb and its libraries raise errors of many types
        raise ValueError(f"wandb.mode=online: {_first_line(error)}; {help_text}") from error
    if not known:
        raise ValueError(f"wandb.mode=online: no W&B key is known; {help_text}")


@dataclass
class WandbRun:
    """A run in W&B. After `begin`, every method can be called safely, even if the start failed."""

    options: Tracking
    id: str
    """Identifier of the run. A second run with the same id continues the first."""
    name: str
    group: str
    config: Mapping[str, Any]
    folder: Path
    job_type: str
    path: Path | None = field(default=None, init=False)
    """Folder of the run; None before it began, or if it could not begin."""
    steps: float = field(default=-1.0, init=False)
    """Last value of the metric `steps` that the server has from an earlier part of the run; -1 if there was none."""
    _run: Any = field(default=None, init=False)

    def begin(self) -> WandbRun:
        """Start the run if tracking is on; return the run itself."""
        if self.options.on:
            self._guarded(self._begin, started=False)
        return self

    def axis(self, name: str) -> None:
        """Use the metric `name` as the x axis of all metrics."""
        self._guarded(lambda run: run.define_metric("*", step_metric=name))

    def log(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Send rows of metrics to the run, in order."""
        self._guarded(lambda run: [run.log(dict(row)) for row in rows])

    def summary(self, values: Mapping[str, Any]) -> None:
        """Set summary values of the run."""
        self._guarded(lambda run: run.summary.update(dict(values)))

    def table(self, name: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
        """Send a table called `name` to the run."""

        def work(run: Any) -> None:
            import wandb

            run.log({name: wandb.Table(columns=list(columns), data=[list(row) for row in rows])})

        self._guarded(work)

    def pictures(self, found: Mapping[str, Any]) -> None:
        """Send pictures by name to the run: paths of files, or arrays uint8 [H, W, 3]."""

        def work(run: Any) -> None:
            import wandb

            run.log({name: wandb.Image(str(value) if isinstance(value, Path) else value) for name, value in found.items()})

        if found:
            self._guarded(work)

    def artifact(self, name: str, kind: str, files: Iterable[Path]) -> None:
        """Send those of `files` that exist as one artifact called `name`."""

        def work(run: Any) -> None:
            import wandb

            made = wandb.Artifact(name, kind)
            for path in files:
                if path.exists():
                    made.add_file(str(path))
            run.log_artifact(made)

        self._guarded(work)

    def end(self) -> Path | None:
        """Finish the run; return its folder, None if it did not begin."""
        self._guarded(lambda run: run.finish())
        return self.path

    def _begin(self, _: Any) -> None:
        os.environ.setdefault("WANDB_SILENT", "true")
        import wandb

        _away_from_home()
        options = self.options
        self._run = wandb.init(
            mode=options.mode, project=options.project, entity=options.entity, group=self.group, tags=options.tags,  # type: ignore[arg-type]
            id=self.id, name=self.name, job_type=self.job_type, resume="allow", dir=str(self.folder), config=dict(self.config),
            reinit="create_new",
            settings=wandb.Settings(console="off", disable_git=True, disable_code=True, x_disable_stats=True),
        )  # fmt: skip
        self.path = Path(self._run.dir).parent
        self.steps = float(self._run.summary.get("steps", -1.0))

    def _guarded(self, work: Callable[[Any], object], started: bool = True) -> None:
        """Call `work` with the run, unless the run never started or failed before. A failure ends the tracking with a warning."""
        if started and self._run is None:
            return
        try:
            work(self._run)
        except Exception as error:  # errors of the network, the server or a library
            self._run = None
            Console(stderr=True).print(
                f"W&B run {self.name}: {_first_line(error)}; it is not tracked any further, results are in {self.folder}",
                style="yellow", soft_wrap=True, markup=False, highlight=False,
            )  # fmt: skip


def _away_from_home() -> None:
    """Put W&B's files into the cache of gensor_gym if the usual folders are not writable."""
    from wandb import env

    for variable, folder in ((env.CACHE_DIR, env.get_cache_dir()), (env.DATA_DIR, env.get_data_dir())):
        if not can_be_made(Path(folder).absolute()):
            os.environ[variable] = str(make_cache_dir("wandb"))


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def hint(path: Path) -> str:
    """Return a message with a run's location or, for an offline run, with the command that uploads the folder's offline runs."""
    if not path.name.startswith("offline"):
        return f"W&B run: {path}"
    return f"W&B is offline; to upload: wandb sync {path.parent}/offline-run-*"
