"""Trials of kernels with constant weights read several copies in turn, and stores keep their times apart from others."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from agents.core import playoff as playoffs
from agents.optimizer import optimize
from gensor_gym import hardware, operators
from gensor_gym.codegen.c.codegen import generate_c
from gensor_gym.measure.answers.draw import Expected
from gensor_gym.measure.answers.expectation import make_draws
from gensor_gym.measure.devices.cpu import _MOST_COPIES, CpuDevice, LoadedC
from gensor_gym.measure.native import cpu_backend
from gensor_gym.measure.records.backend import RecordedBackend
from gensor_gym.measure.records.store import Selection, Store
from gensor_gym.measure.records.tables import read_table
from gensor_gym.measure.records.tuned import fastest
from gensor_gym.measure.stats.apart import BEYOND, MOST_BYTES, WEIGHTS_APART, bytes_apart, protocol_of
from gensor_gym.measure.stats.timing import PROTOCOL
from gensor_gym.measure.workers.builders import build_c
from gensor_gym.measure.workers.requests import Built
from gensor_gym.measure.workers.trial import check
from gensor_gym.operators.traits import WEIGHTS
from tests.support.c_cases import program

GEMM = operators.gemm(m=40, n=112, k=43)
TILES = (3, 48, 1), (6, 48, 6), (12, 96, 12)


def opened(pack_b: int) -> tuple[LoadedC, Expected, int]:
    """Load a kernel that packs its weights or reads them in place; return it with its inputs and the size of one copy."""
    kernel = generate_c(program(GEMM.freeze(), *TILES, pack_b=pack_b))
    loaded, draw = CpuDevice().load(Built(kernel, build_c(kernel).path), 1), make_draws(GEMM.freeze(), 0)[0]
    loaded.write(draw)
    return loaded, draw, kernel.workspace_bytes if pack_b else draw.inputs[WEIGHTS].nbytes


@pytest.mark.parametrize("pack_b", [0, 1])
def test_calls_read_the_copies_in_turn(pack_b: int) -> None:
    loaded, draw, size = opened(pack_b)
    loaded.copy_weights(2 * size + 1)
    first = loaded._workspace.array if pack_b else loaded._inputs[WEIGHTS].array
    first[...] = 0  # of three copies the first is spoiled
    faults = []
    for calls in (1, 1, 1, 1, 3, 2, 1, 6):  # the last of these is call number 1, 2, 3, 4, 7, 9, 10, 16
        loaded.poison()
        loaded.time(calls)
        faults.append(draw.fault(loaded.read()) != "")
    assert faults == [True, False, False, True, True, False, True, True]
    loaded.write(draw)
    for _ in range(3):
        loaded.time(1)
        assert check(loaded, draw) == "", "after new inputs there is one copy"
    loaded.close()


@pytest.mark.parametrize(("nbytes", "copies"), [(0, 1), (1, 1), (1 << 40, _MOST_COPIES)])
def test_the_number_of_copies(nbytes: int, copies: int) -> None:
    loaded, draw, _ = opened(1)
    loaded.copy_weights(nbytes)
    assert len(loaded._calls) == copies
    for _ in range(copies):
        loaded.poison()
        loaded.time(1)
        assert check(loaded, draw) == ""
    loaded.close()


def test_which_trials_have_copies() -> None:
    host, frozen = hardware.get("host"), GEMM.freeze()
    assert bytes_apart(frozen, host) == min(MOST_BYTES, BEYOND * host.units * host.level("l2").capacity)
    assert [bytes_apart(GEMM, host), bytes_apart(frozen, hardware.get("h200"))] == [0, 0]
    assert [protocol_of(op) for op in (GEMM, frozen, str(frozen))] == [PROTOCOL, WEIGHTS_APART, WEIGHTS_APART]


def test_stores_keep_both_protocols_apart(tmp_path: Path) -> None:
    host, path, frozen = hardware.get("host"), tmp_path / "trials.sqlite", GEMM.freeze()
    backend = cpu_backend()
    try:
        for op in (GEMM, frozen):
            optimize(op, host, "random", trials=2, backend=backend, store=str(path))
            assert fastest(op, host, backend, path) is not None
    finally:
        backend.close()
    store = Store(path)
    assert {(r.operator, r.protocol) for r in store.records()} == {(str(GEMM), PROTOCOL), (str(frozen), WEIGHTS_APART)}
    told = {r.measurement.conditions["cache"] for r in store.records(Selection(protocol=WEIGHTS_APART))}
    assert told == {"warm but for weights"}
    records = read_table(path).records
    RecordedBackend(records)
    mixed = [dataclasses.replace(one, protocol=PROTOCOL + place % 2) for place, one in enumerate(records)]
    with pytest.raises(ValueError, match="mixes timing protocols"):
        RecordedBackend(mixed)
    store.add([dataclasses.replace(one, protocol=PROTOCOL) for one in records if one.protocol == WEIGHTS_APART])
    assert len(list(store.records(Selection()))) > len(records) == len(read_table(path).records)
    RecordedBackend(store)  # without the times of an older version, of weights in near caches
    kept = fastest(frozen, host, cpu_backend(), path)
    assert kept is not None and kept[1].conditions["protocol"] == WEIGHTS_APART


def test_playoffs_read_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, backend = list[bool](), cpu_backend()

    def compare(*_: Any, apart: bool = False, **__: Any) -> None:
        asked.append(apart)
        raise RuntimeError("the search's best is kept")

    monkeypatch.setattr(playoffs, "WITHIN", 1e9)
    monkeypatch.setattr(backend, "compare", compare)
    try:
        optimize(GEMM.freeze(), "host", "random", trials=3, backend=backend)
    finally:
        backend.close()
    assert asked == [True]


def test_comparisons_read_copies_if_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    host, sizes = hardware.get("host"), list[int]()
    backend = cpu_backend()
    kernel = generate_c(program(GEMM.freeze(), *TILES, hw=host, pack_b=1))
    monkeypatch.setattr(backend.pool, "compare", lambda comparison: sizes.append(comparison.apart) or {"a": [1.0]})
    for apart in (False, True):
        backend.compare({"a": kernel}, host, apart=apart)
    assert sizes == [0, bytes_apart(GEMM.freeze(), host)]
