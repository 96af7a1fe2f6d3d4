"""`gensor_gym.compile`, from a module to a call: for torch, exported, known the second time, within a budget, or refused."""

from __future__ import annotations

import gc
import io
import json
import sys
import time
import warnings
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import gensor_gym
from agents import modules, pieces
from agents.modules import FallenBack
from agents.networks import CompiledNetwork
from agents.optimizer import Asked
from gensor_gym import hardware
from gensor_gym.cache.folders import cache_dir
from gensor_gym.codegen import remembered
from gensor_gym.cycles import uncollected
from gensor_gym.frontends.cached import networks
from gensor_gym.frontends.torch_export import Unsupported, from_torch
from gensor_gym.measure.records import verified
from gensor_gym.measure.records.store import Store
from gensor_gym.measure.session import Session, TraceRow
from gensor_gym.networks.folding import folded
from gensor_gym.networks.fusion import rules
from gensor_gym.networks.fusion.remembered import FOLDER
from gensor_gym.networks.fusion.rules import plan_of
from gensor_gym.networks.plan import cut_all
from tests.support.own_cache import with_this_machine

X = torch.randn(8, 16, generator=torch.Generator().manual_seed(0))


def module_of(seed: int, *layers: nn.Module) -> nn.Module:
    """A module of random weights, by default of two pieces: a product, and a product that takes the rows after it."""
    torch.manual_seed(seed)
    return nn.Sequential(*(layers or (nn.Linear(16, 24), nn.ReLU(), nn.Linear(24, 16), nn.Softmax(-1)))).eval()


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """An empty cache for this file's searches."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("GENSOR_GYM_CACHE", with_this_machine(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="module")
def compiled(cache: None) -> CompiledNetwork:
    found = gensor_gym.compile(module_of(0), (X,), trials=1)
    assert all(result.trace for result in found.results)
    return found


def expected(seed: int, x: Tensor = X) -> Tensor:
    with torch.no_grad():
        made: Tensor = module_of(seed)(x)
    return made


@pytest.mark.thorough
def test_it_is_one_node_for_torch(compiled: CompiledNetwork) -> None:
    class Within(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = compiled.as_torch()

        def forward(self, x: Tensor) -> Tensor:
            return self.inner(x + 1) * 2

    torch.library.opcheck(compiled.as_torch(), (X,))
    fused = torch.compile(Within(), fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(fused(X), expected(0, X + 1) * 2, rtol=1e-4, atol=1e-5)
    program = torch.export.export(Within(), (X,))
    assert sum("gensor_gym" in str(node.target) for node in program.graph.nodes) == 1
    torch.testing.assert_close(program.module()(X), expected(0, X + 1) * 2, rtol=1e-4, atol=1e-5)


def test_a_second_time_nothing_is_searched_written_or_checked(compiled: CompiledNetwork, monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name in ((pieces, "run"), (remembered, "build"), (verified, "fault_of")):
        monkeypatch.setattr(module, name, None)
    again, other = (gensor_gym.compile(module_of(seed), (X,), trials=1) for seed in (0, 1))
    assert torch.equal(again(X), compiled(X)) and again.digest == compiled.digest
    torch.testing.assert_close(other(X), expected(1), rtol=1e-4, atol=1e-5)
    assert other.digest != again.digest and other.as_torch() is not compiled.as_torch() is again.as_torch()


def test_a_known_network_keeps_its_weights_when_the_module_changes(compiled: CompiledNetwork) -> None:
    module = module_of(0)
    again = gensor_gym.compile(module, (X,), trials=1)
    digest = again.digest
    with torch.no_grad():
        for weight in module.parameters():
            weight.zero_()
    assert torch.equal(again(X), compiled(X)) and again.digest == digest == compiled.digest
    changed = gensor_gym.compile(module, (X,), trials=1)
    torch.testing.assert_close(changed(X), torch.full((8, 16), 1 / 16))


def test_threads_take_turns_as_before(compiled: CompiledNetwork, monkeypatch: pytest.MonkeyPatch) -> None:
    interval, found = sys.getswitchinterval(), list[float]()
    monkeypatch.setattr(modules, "COMPILES", "tests.none")  # its import fails, of which the thread says nothing
    monkeypatch.setattr(networks, "program_digest", lambda *_: found.append(sys.getswitchinterval()))
    assert torch.equal(gensor_gym.compile(module_of(0), (X,), trials=1)(X), compiled(X))
    assert found == [pytest.approx(modules.TURN)] and sys.getswitchinterval() == interval


def test_constants_lie_in_the_functions_memory(compiled: CompiledNetwork) -> None:
    held, function = compiled.plan.network.constants, compiled.function
    assert function.constants and all(np.shares_memory(held[name], function.fixed) for name in function.constants)
    (found,) = compiled.plan.network.reference(X.numpy())
    np.testing.assert_allclose(found.value, expected(0).numpy(), rtol=1e-4)


def test_a_search_of_more_trials_goes_on(tmp_path: Path) -> None:
    def traces(trials: int) -> list[int]:
        made = gensor_gym.compile(module_of(0), (X,), hardware="host", trials=trials, store=tmp_path / "store.sqlite")
        return [len(result.trace) for result in made.results]

    assert [traces(trials) for trials in (1, 1, 4, 2, 4)] == [[1, 1], [0, 0], [4, 4], [0, 0], [0, 0]]


def test_what_is_exported_says_how_fast_it_was(compiled: CompiledNetwork, tmp_path: Path) -> None:
    made = compiled.export(tmp_path / "made")
    steps = json.loads(made.manifest.read_text())["steps"]
    assert len(steps) == 2 and all(step["measurement"]["seconds"] > 0 for step in steps)


def test_a_budget_is_kept_and_spent_on_what_takes_long(cache: None) -> None:
    """By the model, which answers at once: what is searched is what takes time."""
    told: list[tuple[int, int, str]] = []
    big, small = nn.Linear(512, 512), nn.Linear(512, 16)
    begin = time.monotonic()
    found = gensor_gym.compile(
        module_of(0, big, nn.ReLU(), small), (torch.randn(64, 512),), seconds=4.0, reuse=False, backend="analytic",
        on_task=lambda *one: told.append(one),
    )  # fmt: skip
    assert time.monotonic() - begin < 1.2 * 4.0 + 0.5
    trials = {str(result.task.operator): len(result.trace) for result in found.results}
    assert len(trials) == 2 and min(trials.values()) >= 1
    assert trials["frozen gemm(m=64, n=512, k=512)+bias+relu"] == max(trials.values()) > 2
    assert {one[2] for one in told} == set(trials) and [one[:2] for one in told[:2]] == [(0, 2), (1, 2)]


def test_a_budget_that_is_too_short_says_so(cache: None) -> None:
    with pytest.warns(RuntimeWarning, match="0.001 s were too short for [23] pieces: one trial of each took"):
        found = gensor_gym.compile(module_of(0), (X,), seconds=1e-6, reuse=False, backend="analytic")
    assert {len(result.trace) for result in found.results} == {1}
    for wrong in (0.0, -1.0, float("nan")):
        with pytest.raises(ValueError, match=f"seconds={wrong!r}: expected a number above 0"):
            gensor_gym.compile(module_of(0), (X,), seconds=wrong)
    for other in ({"trials": 1.5}, {"trials": 0}, {"arena": "cold"}):
        with pytest.raises(ValueError, match="expected a whole number, 1 or more|expected one of none, whole, hot"):
            gensor_gym.compile(module_of(0), (X,), **other)


@pytest.mark.thorough
def test_a_search_that_was_killed_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No trial is made twice, and a piece whose search did not end is searched on. Both pieces are searched at the same time."""
    measured: list[str] = []
    put = Session._put
    monkeypatch.setattr(Session, "_put", lambda self, s, m, took: (measured.append(m.digest), put(self, s, m, took))[1])
    monkeypatch.setenv("GENSOR_GYM_CACHE", with_this_machine(tmp_path))
    begun: list[TraceRow] = []

    def killed(row: TraceRow) -> None:
        begun.append(row)
        if len(begun) == 3:
            raise KeyboardInterrupt

    module = module_of(0, nn.Linear(16, 24), nn.ReLU(), nn.Linear(24, 16))
    with pytest.raises(KeyboardInterrupt):
        gensor_gym.compile(module, (X,), trials=2, on_trial=killed)
    assert len(measured) in (3, 4)
    found = gensor_gym.compile(module, (X,), trials=2)
    assert len(set(measured)) == len(measured) == 4
    assert {len(result.trace) for result in found.results} <= {0, 2}


class Uncovered(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(16, 16), nn.Softshrink())

    def forward(self, x: Tensor) -> Tensor:
        return torch.frexp(self.inner(x)).mantissa


def test_what_is_not_covered_is_run_by_torch_where_that_is_asked_for() -> None:
    module = Uncovered().eval()
    with pytest.raises(Unsupported, match="has no kernels here"):
        gensor_gym.compile(module, (X,))
    with pytest.warns(RuntimeWarning, match=r"Uncovered is run by torch: .*has no kernels here"):
        found = gensor_gym.compile(module, (X,), fallback="torch")
    assert isinstance(found, FallenBack) and "aten." in found.reason
    assert torch.equal(found(X), module(X)) and not found(X).requires_grad
    with pytest.raises(ValueError, match="fallback='onnx': expected one of error, torch"):
        gensor_gym.compile(module, (X,), fallback="onnx")


def test_wrong_settings_are_refused_before_torch_exports(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.export, "export", None)
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"hardware": "hots"}, "unknown hardware 'hots'"), ({"trials": -1}, "trials=-1: expected a whole number, 1 or more"),
        ({"seconds": "4"}, "seconds='4': expected a number above 0"), ({"arena": "cold"}, "arena 'cold'"),
        ({"plan": 5}, "plan 5: expected one of cut_all, fine, fine_coarse, best, or a function from a network to its plan"),
        ({"plan": ["fine"]}, r"plan \['fine'\]: expected one of"),
    ]  # fmt: skip
    for options, said in wrong:
        with pytest.raises(ValueError, match=said):
            gensor_gym.compile(module_of(0), (X,), **options)


def test_a_rule_that_gives_no_plan_of_the_network_is_named(compiled: CompiledNetwork) -> None:
    def rule(network: Any) -> Any:
        return "fine"

    with pytest.raises(ValueError, match="the rule rule gave 'fine': expected a Plan of Sequential"):
        gensor_gym.compile(module_of(0), (X,), plan=rule)
    with pytest.raises(ValueError, match="gave a plan of another network, Sequential: expected a Plan of Sequential"):
        gensor_gym.compile(module_of(0), (X,), plan=lambda network: compiled.plan)


def test_plans_are_looked_up_and_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GENSOR_GYM_CACHE", with_this_machine(tmp_path))
    network = folded(from_torch(module_of(0), (X,)))
    machine, other = hardware.get("zen5_1c"), hardware.get("cascade_lake")
    plan = plan_of(network, "fine", machine)
    monkeypatch.setitem(rules.PLANS, "fine", lambda network, _: cut_all(network))
    assert str(plan_of(network, "fine", machine)) == str(plan) != str(cut_all(network))
    assert str(plan_of(network, "fine", other)) == str(cut_all(network))  # a rule may ask the machine
    for path in (cache_dir() / FOLDER).iterdir():
        path.write_text(str(plan).splitlines()[0])  # not all of it
    assert str(plan_of(network, "fine", machine)) == str(cut_all(network)) == str(plan_of(network, "fine", machine))


@pytest.mark.thorough
def test_memory_goes_with_the_last_who_holds_the_network(compiled: CompiledNetwork) -> None:
    with uncollected():
        found = gensor_gym.compile(module_of(0), (X,))
        found(X)
        memory = weakref.ref(found.function.fixed)
        del found
        assert memory() is None and not gc.isenabled()
    assert gc.isenabled()


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("stream", [Terminal, io.StringIO])
def test_a_terminal_shows_what_is_searched(stream: type[io.StringIO], cache: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", said := stream())
    monkeypatch.setenv("TERM", "xterm")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        gensor_gym.compile(module_of(0), (X,), trials=1, reuse=False, backend="analytic")
    shown = said.getvalue()
    assert ("gemm(m=8" in shown and "0/2" in shown) if stream is Terminal else shown == ""


def test_an_empty_store_is_the_one_that_was_asked_for(tmp_path: Path) -> None:
    """Not this user's own, which may know everything."""
    store = Store(tmp_path / "trials")
    assert not len(store)
    assert Asked.of("softmax(m=2, n=8)", store=store, reuse=True).store is store
