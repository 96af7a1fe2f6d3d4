"""Programs found by earlier searches on this machine, fastest first, for the current timing protocol and compiler."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gensor_gym import hardware
from gensor_gym.cache.folders import make_cache_dir
from gensor_gym.codegen.build import BuiltKernel
from gensor_gym.codegen.remembered import remembered
from gensor_gym.codegen.targets import target_of
from gensor_gym.dataflow.graph import Dataflow
from gensor_gym.dataflow.resolve import resolve_computation
from gensor_gym.hardware.types import Hardware
from gensor_gym.measure.backend import Backend, get_backend
from gensor_gym.measure.legality import graph_of
from gensor_gym.measure.measurement import Measurement, Status
from gensor_gym.measure.records.imported import fault, fault_of_numbers
from gensor_gym.measure.records.store import FINAL, IMPORTED, SEARCHED, Selection, Store
from gensor_gym.measure.records.verified import verified
from gensor_gym.measure.stats.apart import protocol_of
from gensor_gym.measure.stats.floor import MARGIN, is_excused, warm_floor
from gensor_gym.operators.types import Operator


def tuned_path() -> Path:
    """Return the path of this user's store on this machine, to which `optimize(.., reuse=True)` writes."""
    return make_cache_dir("tuned") / "trials.sqlite"


def fastest(op: Operator | Dataflow, hw: Hardware, backend: Backend, store: Store | str | Path) -> tuple[Any, Measurement] | None:
    """Return the fastest stored program of an operator as (schedule, measurement); None if there is none.

    Programs measured on this machine come before imported ones.
    """
    return next((found for whose in (False, True) for found in programs(op, hw, backend, store, whose)), None)


def programs(
    op: Operator | Dataflow, hw: Hardware, backend: Backend, store: Store | str | Path, imported: bool = False,
    below: float = float("inf"),
) -> Iterator[tuple[Any, Measurement]]:  # fmt: skip
    """Yield (schedule, measurement) of an operator's stored programs that take less than `below` seconds.

    With `imported` they were measured elsewhere, otherwise here. Results of searches come first, because programs of nearly equal
    time were timed again in alternation with them; then all others. The fastest come first in both parts.

    Timings of another compiler, protocol or machine are skipped, and those of kernels that this version would generate
    differently. Also skipped are impossible times, programs that are no longer legal or whose kernel is wrong, and kernels that
    read packed weights if the weights are not constant.
    """
    kept = Store(store) if isinstance(store, (str, Path)) else store
    selection = Selection(str(op), backend.device(hw), protocol_of(op), Status.OK)
    compiler = target_of(hw).compiler()
    least = MARGIN * warm_floor(op, hw)
    timed = [record for record in kept.records(selection) if not fault_of_numbers(record)]
    for record in sorted(timed, key=lambda record: (not record.measurement.conditions.get(FINAL), record.measurement.seconds)):
        conditions, seconds = record.measurement.conditions, record.measurement.seconds
        if conditions.get("compiler") != compiler or not seconds < below:
            continue
        if seconds < least and (imported or not is_excused(op, hw, seconds)):  # as for a trial, if it was measured here
            continue
        if conditions.get("prepacked") and not _is_frozen(op):
            continue
        if bool(conditions.get(IMPORTED)) != imported or fault(record, False, op):
            continue
        schedule = graph_of(op, hw).parse(record.schedule)
        timed_kernel = "" if imported else record.measurement.digest
        if graph_of(op, hw).is_legal_once(schedule) and verified(op, schedule, hw, timed_kernel):
            yield schedule, record.measurement


def searched(op: Operator | Dataflow, hw: Hardware, backend: Backend, store: Store | str | Path) -> int:
    """Return how many trials earlier searches have spent on an operator on this machine with the current compiler.

    It is the number of stored trials or, if that is larger, the budget in trials of a finished search.
    """
    kept, compiler = Store(store) if isinstance(store, (str, Path)) else store, target_of(hw).compiler()
    selection = Selection(str(op), backend.device(hw), protocol_of(op))
    found = [record.measurement.conditions for record in kept.records(selection)]
    own = [conditions for conditions in found if conditions.get("compiler") == compiler and not conditions.get(IMPORTED)]
    asked = (conditions.get(SEARCHED) for conditions in own)
    return max([len(own), *(number for number in asked if isinstance(number, int))])


def _is_frozen(op: Operator | Dataflow) -> bool:
    return op.frozen if isinstance(op, Operator) else any(value.constant for value in op.inputs)


def tuned(op: Operator | Dataflow | str, hw: Hardware | str = "host", store: Store | str | Path | None = None) -> BuiltKernel:
    """Return the kernel of the fastest program that `optimize(op, .., reuse=True)` has found on this machine, without a search.

    LookupError if none was found with the current compiler; ValueError for an unknown operator or machine.
    """
    operator, machine = resolve_computation(op), hardware.get(hw)
    path = tuned_path() if store is None else store
    found = fastest(operator, machine, get_backend("auto", machine), path)
    if found is None:
        raise LookupError(
            f"no program of {operator} for {machine.name} was found by {target_of(machine).compiler()} before: "
            f"agents.optimize({str(operator)!r}, hardware={machine.name!r}, reuse=True) finds one"
        )
    return remembered(operator, found[0], machine)
