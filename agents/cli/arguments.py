"""Rewrite command-line arguments for Hydra, which would read an operator's text such as gemm(m=512) as a function call."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

from hydra.core.config_store import ConfigStore
from omegaconf import DictConfig, OmegaConf

from agents.strategy import CONSTRUCTIONS, get_strategy, strategies_for
from gensor_gym import operators
from gensor_gym.dataflow.suite import FACTORIES
from gensor_gym.registry import near, registered

CONF = Path(__file__).resolve().parents[2] / "conf"
_SWEEP = ("-m", "--multirun")
_CALL = re.compile(r"[A-Za-z_]\w*\(")
_EPILOGUE = re.compile(r"(\s*\+\s*[A-Za-z_]\w*)*")


def readable(arguments: list[str]) -> list[str]:
    """Rewrite a command's arguments in Hydra's syntax.

    `operator=X` is unchanged if X names options of group `operator`; otherwise it sets the value `operators`. Operator texts such
    as gemm(m=512, n=384, k=1000)+bias are quoted in every argument. The first argument may be the value of `operators`.
    ValueError for an unknown strategy, and for a later argument without a name.
    """
    store_strategies(registered("strategy"))  # adds strategies of plugins that were loaded since
    known = strategies_for(CONSTRUCTIONS)
    for names in [argument.removeprefix("strategy=") for argument in arguments if argument.startswith("strategy=")]:
        if unknown := sorted(set(re.findall(r"\w+", names)) - {*known, "null"}):
            hints = "".join(near(name, known) for name in unknown)
            raise ValueError(f"no strategies {unknown}; strategies are {sorted(known)}{hints}")
    for before, argument in pairwise(arguments):
        if not before.startswith("-") and not re.search(r"=|^[-+~]", argument.partition("(")[0]):
            raise ValueError(f"{argument!r}: expected a setting, as in NAME=VALUE; only the first word may stand without a name")
    read = [*map(_alone, arguments[:1]), *map(_one, arguments[1:])]
    return sorted(read, key=lambda argument: argument not in _SWEEP)  # Hydra's parser rejects a flag between settings


def compose(overrides: list[str], name: str = "config") -> DictConfig:
    """Compose the configuration that these command-line arguments describe, also within a command that Hydra runs."""
    import hydra
    from hydra.core.global_hydra import GlobalHydra

    outer = GlobalHydra.instance().hydra
    GlobalHydra.instance().clear()  # Hydra refuses to be initialised twice
    try:
        with hydra.initialize_config_dir(str(CONF), version_base="1.3"):
            return hydra.compose(name, overrides=readable(overrides))
    finally:
        GlobalHydra.instance().hydra = outer


def store_strategies(names: Iterable[str] | None = None) -> None:
    """Add strategies to Hydra's group `strategy`, with their fields and defaults at strategies.NAME.

    A strategy whose library is missing has no fields there; its search reports the missing library.
    """
    known = strategies_for(CONSTRUCTIONS)
    for name in known if names is None else [name for name in names if name in known]:
        try:
            fields = dataclasses.asdict(get_strategy(name))  # type: ignore[call-overload]
        except ImportError:
            fields = {}
        ConfigStore.instance().store(name, fields, group="strategy", package=f"strategies.{name}", provider="agents")


def store_options() -> None:
    """Add the options of conf/_NAME.yaml to Hydra's groups.

    A file _NAME.yaml holds many small options of one group: `group`, `package` (by default the group's name), and `options`,
    which maps a name to the content that a file of the group would have.
    """
    for path in sorted(CONF.glob("_*.yaml")):
        content: Any = OmegaConf.load(path)
        for name, option in content.get("options", {}).items():
            node = OmegaConf.to_container(option)
            ConfigStore.instance().store(name, node, group=content.group, package=content.get("package"), provider="conf")


store_strategies()
store_options()


def options(group: str) -> set[str]:
    """Return the names of all options of a Hydra group: its files and the stored options."""
    stored = ConfigStore.instance().repo.get(group, {})
    return {Path(name).stem for name in (*stored, *(CONF / group).glob("*.yaml"))}


def _alone(argument: str) -> str:
    """Rewrite the first argument of a command, if it is an operator, an id or a file, as a setting of `operators`.

    Names of options and arguments with `=` stay settings.
    """
    if _CALL.match(argument):
        return f"operators={quoted(argument)}"
    if argument.lstrip().startswith("def "):  # the text of a graph, which needs no single quotes
        return "operators='{}'".format(argument.replace("'", '"'))
    return _one(argument) if re.search(r"=|^[-+~]", argument) else f"operators='{argument}'"


def _one(argument: str) -> str:
    key, equals, value = argument.partition("=")
    if key not in ("operator", "operators") or not equals:
        named = re.search(rf"\b({'|'.join((*operators.names(), *FACTORIES))})\(", value)
        return f"{key}={quoted(value) if named else _spelled(value)}" if equals else argument
    if key == "operator" and set(map(str.strip, value.split(","))) <= options("operator"):
        return argument
    return f"operators={quoted(value)}"


def _spelled(value: str) -> str:
    """Quote a value with letters that Hydra's grammar lacks, for example in a folder's name."""
    return value if value.isascii() or re.search(r"['\"\[\](){},]", value) else f"'{value}'"


def quoted(value: str) -> str:
    """Put single quotes around every unquoted operator text in `value`; single quotes inside such a text become double quotes."""
    parts: list[str] = []
    at = 0
    while match := _CALL.search(value, at):
        mark = value[match.start() - 1 : match.start()]
        if mark in ("'", '"'):
            end = value.find(mark, _closing(value, match.end() - 1)) + 1 or len(value)
            parts, at = [*parts, value[at:end]], end
            continue
        closed = _closing(value, match.end() - 1) + 1
        epilogue = _EPILOGUE.match(value, closed)
        end = epilogue.end() if epilogue else closed
        text = value[match.start() : end].strip().replace("'", '"')
        parts += [value[at : match.start()], f"'{text}'"]
        at = end
    return "".join([*parts, value[at:]])


def _closing(value: str, start: int) -> int:
    depth = 0
    for position in range(start, len(value)):
        depth += (value[position] == "(") - (value[position] == ")")
        if depth == 0:
            return position
    raise ValueError(f"operator {value!r}: a bracket is not closed")
