"""Pieces of one parallel loop: which may be, by rules and by an oracle; what a task makes; the executor, and planted faults."""

from __future__ import annotations

import ctypes
import dataclasses
from collections.abc import Callable, Iterator
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import nn

from agents.optimizer import Asked
from agents.pieces import Piece
from gensor_gym import hardware
from gensor_gym.codegen.build import generate
from gensor_gym.codegen.families import graph_of
from gensor_gym.codegen.kernel import Kernel
from gensor_gym.codegen.runtime.c import entry_of, load_entry
from gensor_gym.codegen.runtime.memory import address_of, aligned, workspace_of
from gensor_gym.codegen.runtime.threads import GgRuntime, pointers, runtime
from gensor_gym.dataflow.evaluate import evaluate
from gensor_gym.dataflow.graph import Dataflow
from gensor_gym.frontends.torch_export import from_torch
from gensor_gym.graph.schedule import Schedule
from gensor_gym.hardware.types import Hardware
from gensor_gym.networks import layout, load
from gensor_gym.networks.folding import folded
from gensor_gym.networks.fusion import coarse
from gensor_gym.networks.fusion.decisions import decisions
from gensor_gym.networks.fusion.mergers import mergers
from gensor_gym.networks.load import NetworkFunction
from gensor_gym.networks.loops import loop_fault, loops, rows_of, tasks_together
from gensor_gym.networks.network import Network
from gensor_gym.networks.plan import Plan, cut_all
from gensor_gym.networks.steps import Step
from gensor_gym.networks.tasks import by_rows, first_by_rows, rows_of_product
from tests.support.networks import check, kernels_of
from tests.support.thorough import thorough_but


def machine(units: int = 2, gflops: float = 1e-3) -> Hardware:
    """This host as if it had so many cores, which multiply so slowly that reading constants is hidden."""
    return dataclasses.replace(hardware.get("host"), units=units, peak=(("float32", gflops * 1e9),))


def fine_coarse(network: Network) -> Plan:
    """The rule's plan, with loops."""
    return coarse.fine_coarse(network, machine())


class Rows(nn.Module):
    """Products with norms, a softmax and a residual: all of rows; a sum over rows and a product of two values: not."""

    def __init__(self, width: int, wide: int) -> None:
        super().__init__()
        self.one, self.two, self.three = nn.Linear(width, wide), nn.Linear(wide, wide), nn.Linear(wide, width)
        self.norm = nn.LayerNorm(wide)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        seen = torch.softmax(x @ x.T, -1)
        a = torch.relu(self.one(x))
        b = torch.softmax(self.two(a) + a, -1) * self.norm(a)
        c = self.three(b)
        return torch.tanh(seen @ c) + c.mean(0, keepdim=True)


def drawn(seed: int) -> tuple[nn.Module, torch.Tensor, Network]:
    """A module of random extents, an input, its network."""
    rng = np.random.default_rng(seed)
    rows, width, wide = (int(rng.choice(some)) for some in ((8, 17, 24), (5, 16), (8, 19, 33)))
    torch.manual_seed(seed)
    module, x = Rows(width, wide).eval(), torch.randn(rows, width)
    return module, x, folded(from_torch(module, [x]))


def chain(plan: Plan, rng: np.random.Generator, steps: int) -> Plan:
    """The plan after random decisions, half of them about loops."""
    for _ in range(steps):
        choices = [one for _, one in (decisions(plan) if rng.random() < 0.5 else mergers(plan)) if not one.fault]
        plan = choices[rng.integers(len(choices))] if choices else plan
    return plan


def outputs_of(step: Step, given: list[np.ndarray]) -> list[np.ndarray]:
    """What a step computes, in float64."""
    given = [one.reshape(tensor.shape) for one, tensor in zip(given, step.computation.inputs, strict=True)]
    if isinstance(step.computation, Dataflow):
        return [one.value for one in evaluate(step.computation, given)]
    return [step.computation.reference(*given)]


def is_by_rows(network: Network, plan: Plan, numbers: list[int], rows: int, count: int) -> bool:
    """By trying: no task's rows of any step change where what other tasks made of earlier steps of the loop does."""
    rng, values, made = np.random.default_rng(0), network.graph.values, list[str]()
    for number in numbers:
        step = plan.steps[number]
        given = {name: rng.uniform(0.5, 1.5, values[name].shape).astype(np.float32) for name in dict.fromkeys(step.reads)}
        wanted = outputs_of(step, [given[name] for name in step.reads])
        if any(one.size % count for one in wanted):
            return False
        inside = [name for name in given if set(network.made_by(name)) & set(made)]
        for first in range(0, count, rows):
            changed = {name: array.copy() for name, array in given.items()}
            for name in inside:
                if changed[name].size % count:
                    return False
                lines = changed[name].reshape(count, -1)
                lines[:first] += 1
                lines[first + rows :] += 1
            found = outputs_of(step, [changed[name] for name in step.reads])
            for one, other in zip(wanted, found, strict=True):
                mine = slice(first, first + rows)
                if not np.array_equal(one.reshape(count, -1)[mine], other.reshape(count, -1)[mine]):
                    return False
        made += step.writes
    return True


def candidates(plan: Plan) -> Iterator[Plan]:
    """Every pair of neighbours as one loop, and all three of a row, by 2 and by 4 rows."""
    for number in range(1, len(plan.pieces)):
        for several in (1, 2):
            for rows in (2, 4):
                pieces = list(plan.pieces)
                for place in range(number, min(number + several, len(pieces))):
                    pieces[place] = dataclasses.replace(pieces[place], follows=rows)
                yield Plan(plan.network, tuple(pieces))


@pytest.mark.parametrize("seed", thorough_but(range(12), 0))
def test_rules_and_an_oracle_agree(seed: int) -> None:
    """What rules let run in one loop does so by rows; what they refuse for what it reads does not."""
    network = drawn(seed)[2]
    let, refused = 0, 0
    for start in (cut_all(network), fine_coarse(network)):
        alone = Plan(network, tuple(dataclasses.replace(piece, follows=0) for piece in start.pieces))
        for plan in candidates(alone):
            (numbers,) = (some for some in loops(plan.pieces) if len(some) > 1)
            fault, rows = loop_fault(network, plan.pieces), plan.pieces[numbers[1]].follows
            count = network.graph.inputs[0].shape[0]
            by_trying = is_by_rows(network, alone, numbers, rows, count)
            assert by_trying or fault, plan
            assert not by_trying or "what other tasks of its loop make" not in fault, f"{plan}: {fault}"
            let, refused = let + (not fault), refused + ("what other tasks" in fault)
    assert let and refused


def with_tasks(network: Network, seed: int, sizes: tuple[int, ...]) -> list[tuple[Kernel, int, int]]:
    """(kernel of a piece that has rows, rows of its tasks, rows of the piece)."""
    rng, hw, found = np.random.default_rng(seed), hardware.get("host"), []
    for step in dict.fromkeys(cut_all(network).steps + fine_coarse(network).steps):
        for rows in sizes:
            try:
                count = rows_of(step).count
                schedule = first_by_rows(step.computation, graph_of(step.computation, hw).random_schedule(rng), rows, hw)
            except ValueError:
                continue
            found.append((generate(step.computation, schedule, hw), rows, count))
    return found


@pytest.mark.thorough
@pytest.mark.parametrize("seed", thorough_but(range(8), 0))
def test_a_task_makes_its_rows_and_no_others(seed: int) -> None:
    """Those of one block alone, by a runtime that runs no others: what they leave is what all of them make of these rows."""
    kernels = with_tasks(drawn(seed)[2], seed, (2, 4))
    assert len(kernels) > 5
    for kernel, rows, count in kernels:
        each = kernel.tasks_of(rows)
        assert each and kernel.tasks_of(rows * 3) == each * 3
        rng = np.random.default_rng(1)
        inputs = [rng.uniform(0.5, 1.5, tensor.shape).astype(np.float32) for tensor in kernel.operator.inputs]
        wanted, counts = run_tasks(kernel, inputs, None)
        assert counts == [-(-count // kernel.task_rows) * kernel.tasks_of_block]
        for index in range(-(-count // rows)):
            found, _ = run_tasks(kernel, inputs, range(index * each, min((index + 1) * each, counts[0])))
            for one, other in zip(found, wanted, strict=True):
                lines, all_lines = (array.reshape(count, -1) for array in (one, other))
                mine = np.arange(index * rows, min((index + 1) * rows, count))
                np.testing.assert_array_equal(lines[mine], all_lines[mine])
                assert np.isnan(np.delete(lines, mine, axis=0)).all()


TASK = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_long, ctypes.c_int)
PARALLEL = ctypes.CFUNCTYPE(None, ctypes.c_void_p, TASK, ctypes.c_void_p, ctypes.c_long)


def run_tasks(kernel: Kernel, inputs: list[np.ndarray], only: range | None) -> tuple[list[np.ndarray], list[int]]:
    """(outputs, how many tasks each loop had), where the tasks of these numbers run, or all; other rows are no numbers."""
    counts = []

    def parallel(_: int, task: Callable[..., None], context: int, count: int) -> None:
        counts.append(count)
        for index in range(count) if only is None else only:
            task(context, index, 0)

    outputs = [aligned(tensor.shape, np.dtype(np.float32)) for tensor in kernel.operator.outputs]
    for output in outputs:
        output.fill(np.nan)
    kept = PARALLEL(parallel)
    team = GgRuntime(1, ctypes.cast(kept, ctypes.c_void_p))
    written, workspace = pointers(outputs), workspace_of(kernel.workspace_bytes)
    arguments = pointers(inputs), written[0] if len(outputs) == 1 else ctypes.addressof(written), address_of(workspace)
    if kernel.prepares:
        entry_of(kernel, kernel.prepares)(*arguments, ctypes.byref(runtime(1)))
        entry_of(kernel, kernel.launches[0].entry)(*arguments, ctypes.byref(team))
    else:
        load_entry(kernel)(*arguments, ctypes.byref(team))
    return outputs, counts


@pytest.mark.parametrize("seed", thorough_but(range(40), 0))
def test_random_plans_with_loops_are_right(seed: int) -> None:
    module, x, network = drawn(seed)
    plan = chain(fine_coarse(network), np.random.default_rng(seed), 4)
    assert Plan.parse(network, str(plan)) == plan
    try:
        kernels = kernels_of(plan, seed)
    except ValueError as error:
        assert "has tasks of" in str(error)
        pytest.skip(str(error))  # such as a panel whose tasks would be fewer than the cores
    check(NetworkFunction(plan, kernels, 2, ("hot", "whole", "none")[seed % 3]), module, [x])


def test_the_rule_and_decisions() -> None:
    network = drawn(11)[2]
    plan = fine_coarse(network)
    together = [some for some in loops(plan.pieces) if len(some) > 1]
    assert together and "\n+" in str(plan) and not plan.fault
    parted = [one for decision, one in mergers(plan) if decision.startswith("part")]
    assert len(parted) == sum(piece.follows > 0 for piece in plan.pieces)
    assert all(plan in [one for _, one in mergers(changed)] for changed in parted if not changed.fault)
    for before, piece in pairwise(plan.pieces):
        assert not piece.follows or before.step(network).writes


def test_what_is_no_loop_is_refused() -> None:
    network = drawn(0)[2]
    text = str(cut_all(network))
    for changed, said in (
        (f"+4 {text}", "follows nothing"),
        (text.replace("\n", "\n+4 "), "expected|what other tasks"),
        (text.replace("\n", "\n+999 ", 1), "by 999, expected"),
    ):
        with pytest.raises(ValueError, match=said):
            _ = Plan.parse(network, changed).steps
    for word in ("+", "+0", "+-1", "+x"):
        with pytest.raises(ValueError, match="expected [+] and a number of rows"):
            Plan.parse(network, f"{word} {text}")
    plan = fine_coarse(network)
    alone = Plan(network, tuple(dataclasses.replace(piece, follows=0) for piece in plan.pieces))
    with pytest.raises(ValueError, match="has tasks of .* rows, expected"):
        NetworkFunction(plan, kernels_of(alone, 0, 0), 2)


class Products(nn.Module):
    """Two products and what is done with rows of the second: of square weights, so that flops and bytes are easily said."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.two(torch.relu(self.one(x)))  # type: ignore[no-any-return]


def products(rows: int, width: int) -> tuple[nn.Module, torch.Tensor, Network]:
    torch.manual_seed(0)
    module, x = Products(width).eval(), torch.randn(rows, width)
    return module, x, folded(from_torch(module, [x]))


@pytest.mark.parametrize(
    ("rows", "units", "share", "follows"),
    [
        (256, 2, 1 / 16, 128),  # a thread's share: in half of that reading would be more than small
        (256, 2, 1 / 32, 64),
        (256, 2, 1 / 1000, 32),  # eight tasks; in a quarter of the second cache all rows stay
        (256, 2, 1 / 2, 0),  # reading is not hidden
        (256, 4, 1 / 1000, 16),
        (24, 2, 1 / 1000, 12),  # in three tasks of eight a thread would have two, the other one
        (17, 2, 1 / 1000, 0),  # twelve and five
        (4, 2, 1 / 1000, 0),  # of four rows one thread has all
        (256, 1, 1 / 1000, 64),
    ],
)
def test_rows_of_a_loop_follow_from_what_it_reads(rows: int, units: int, share: float, follows: int) -> None:
    """`share`: of the seconds that a thread's share of the rows takes, how many its weights take to be read."""
    width = 16
    network = products(rows, width)[2]
    hw = machine(units)
    weights = 2 * width * width * 4
    near = next(level for level in hw.memory[1:] if weights <= level.capacity / 2)
    arithmetic = 4 * width * width * rows / units / (weights / near.bandwidth / share)
    plan = coarse.fine_coarse(network, dataclasses.replace(hw, peak=(("float32", arithmetic),)))
    assert [piece.follows for piece in plan.pieces] == [0, follows]


def test_parts_of_a_block_are_one_task(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels that cut columns, and rows into less than the loop does; planted: a loop that runs one task of each."""
    module, x, network = products(24, 32)
    pieces = cut_all(network).pieces
    plan = Plan(network, (pieces[0], dataclasses.replace(pieces[1], follows=8)))
    hw, kernels = machine(), []
    for step in plan.steps:
        near = by_rows(step.computation, graph_of(step.computation, hw).initial(), 8, hw)
        made = (generate(step.computation, schedule, hw) for schedule in near)
        kernels.append(next(one for one in made if one.task_rows == 4 and one.tasks_of_block > 1))
    assert tasks_together(plan.pieces, kernels) == [2 * one.tasks_of_block for one in kernels]
    check(NetworkFunction(plan, kernels, 2), module, [x])
    monkeypatch.setattr(load, "tasks_together", lambda pieces, kernels: [1] * len(pieces))
    with pytest.raises(AssertionError):
        check(NetworkFunction(plan, kernels, 2), module, [x])


@pytest.mark.thorough
def test_the_last_trial_of_a_product_is_a_plain_block_of_rows() -> None:
    op = products(64, 96)[2]
    (first, _) = cut_all(op).steps
    piece = Piece.of(Asked.of(first.computation, backend="analytic"), 1, 0)
    piece.advance(3)
    texts = [row.schedule for row in piece.session.trace]
    rows, best = rows_of_product(first.computation), min(piece.session.trace[:2], key=lambda row: row.seconds)
    near = by_rows(first.computation, Schedule.parse(best.schedule), rows, hardware.get("host"))
    assert len(texts) == 3 and rows == 64 and texts[2] == next(str(one) for one in near if str(one) not in texts[:2])


def test_values_of_a_loop_that_lie_on_one_another_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: lives as if steps of a loop ran one after another, and workspaces as if no two kernels computed at a time."""
    module, x, network = drawn(14)
    plan = fine_coarse(network)
    right = NetworkFunction(plan, kernels_of(plan, 0), 2, "whole")
    check(right, module, [x])
    monkeypatch.setattr(layout, "loops", lambda pieces: [[number] for number in range(len(pieces))])
    wrong = layout.layout_of(plan, kernels_of(plan, 0), "whole")
    assert wrong.arena.bytes < right.layout.arena.bytes
    with pytest.raises(AssertionError):
        check(NetworkFunction(plan, kernels_of(plan, 0), 2, "whole"), module, [x])
