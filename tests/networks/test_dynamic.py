"""Networks for ranges of sizes: random modules beside float64, in dirty memory and under sanitizers; refusals; faults."""

from __future__ import annotations

import ctypes
import functools
import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.export import Dim

import gensor_gym
from agents.dynamic import DynamicNetwork, bounds
from agents.networks import CompiledNetwork
from gensor_gym.codegen import runtime as rooms
from gensor_gym.codegen.export import library
from gensor_gym.codegen.runtime.compile import compile_text
from gensor_gym.codegen.runtime.threads import ARCH
from gensor_gym.frontends.dynamic import DynamicProgram
from gensor_gym.frontends.unsupported import Unsupported
from gensor_gym.networks.dynamic import function as functions
from gensor_gym.networks.dynamic import opened as openings
from gensor_gym.networks.dynamic.axes import NotRestricted, extents
from gensor_gym.networks.dynamic.function import Bucket, SizedFunction
from gensor_gym.networks.dynamic.opened import Opened, opened
from gensor_gym.networks.dynamic.restriction import restriction
from gensor_gym.networks.dynamic.weights import SharedWeights
from gensor_gym.networks.export import export_network
from gensor_gym.networks.folding import folded
from gensor_gym.networks.fusion.rules import plan_of
from gensor_gym.networks.load import NetworkFunction
from gensor_gym.networks.plan import Plan
from tests.networks.test_networks_buckets import Attention, example
from tests.support.dynamic_modules import Cached, Sized
from tests.support.exports import sanitized
from tests.support.guarded import guarded
from tests.support.networks import in_float64, kernels_of
from tests.support.random_modules import Seen
from tests.support.sized_program import add_check

DEFAULT, ALL = 12, 200
SEEDS = [pytest.param(seed, marks=() if seed < DEFAULT else pytest.mark.thorough) for seed in range(ALL)]


class Served:
    """One bucket of a module for its largest sizes, with kernels of random schedules; `sized` is the function for other sizes."""

    def __init__(self, module: torch.nn.Module, example: Sequence[Tensor], shapes: Any, seed: int = 0) -> None:
        self.program = DynamicProgram(module, example, shapes)
        largest = [one.most for one in self.program.symbols]
        self.big = self.program.network(largest)
        probe = [max(one.least, one.most - 1 - number) for number, one in enumerate(self.program.symbols)]
        self.opened: Opened = opened(self.big, restriction(self.program.network(probe), self.big))
        plan = plan_of(folded(self.opened.network), ("cut_all", "fine")[seed % 2], gensor_gym.hardware.get("host"))
        self.kernels = kernels_of(plan, seed, 3)
        self.plan, self.bucket = plan, Bucket(NetworkFunction(plan, self.kernels, 2))

    def sized(self, sizes: Sequence[int]) -> SizedFunction:
        """The function for these sizes; memory of the bucket is full of NaN."""
        small = self.program.network(sizes)
        found = restriction(small, self.big)
        for memory in (self.bucket.room, self.bucket.workspace):
            memory[:] = 0xFF
        return SizedFunction(small.called, self.bucket, self.opened.arrays(found), found.returned)


def several(made: Any) -> list[Any]:
    return list(made.values()) if isinstance(made, dict) else list(made) if isinstance(made, list | tuple) else [made]


def compare(function: Callable[..., Any], module: torch.nn.Module, inputs: Sequence[Tensor]) -> None:
    """Outputs are those of torch in float64, for tensors and for arrays before and behind pages that nobody may touch."""
    wanted = [one.numpy() for one in several(in_float64(module, inputs))]
    arrays = [[guarded(one.numpy(), at_end) for one in inputs] for at_end in (False, True)]
    for given in (inputs, *arrays):
        for found, right in zip(several(function(*given)), wanted, strict=True):
            np.testing.assert_allclose(np.asarray(found), right, rtol=2e-4, atol=2e-5)


def drawn_case(seed: int) -> tuple[Sized, Served]:
    drawn = Sized(seed)
    return drawn, Served(drawn.module, drawn.given(drawn.example), drawn.shapes, seed)


def drawn_sizes(drawn: Sized, served: Served, rng: np.random.Generator) -> tuple[list[int], tuple[Tensor, ...]]:
    """Sizes in their ranges, and inputs of these."""
    sizes = [int(rng.integers(one.least, one.most + 1)) for one in served.program.symbols]
    return sizes, drawn.given(dict(zip(drawn.names(served.program.symbols), sizes, strict=True)))


@pytest.mark.parametrize("seed", SEEDS)
def test_random_modules_of_random_sizes(seed: int) -> None:
    drawn, served = drawn_case(seed)
    rng, alone = np.random.default_rng(seed), 0
    for _ in range(4):
        sizes, inputs = drawn_sizes(drawn, served, rng)
        try:
            function = served.sized(sizes)
        except NotRestricted:
            alone += 1
            assert 1 in sizes, "only an extent of 1 changes what is computed"
            continue
        compare(function, drawn.module, inputs)
    assert alone < 4


@pytest.mark.parametrize("seed", [pytest.param(seed, marks=() if seed == 17 else pytest.mark.thorough) for seed in range(ALL)])
def test_random_sizes_under_sanitizers(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "_build", lambda *_: None)  # the sources are compiled once, with sanitizers
    drawn, served = drawn_case(seed)
    rng = np.random.default_rng(seed)
    sizes, inputs = drawn_sizes(drawn, served, rng)
    while 1 in sizes:
        sizes, inputs = drawn_sizes(drawn, served, rng)
    small = served.program.network(sizes)
    found = restriction(small, served.big)
    made = [one.numpy().astype(np.float32) for one in several(in_float64(drawn.module, inputs))]
    network = served.plan.network
    pairs = zip(small.inputs, network.inputs, strict=False)
    ends = [(list(zip(one.shape, big.shape, strict=True)), big.nbytes) for one, big in pairs]
    sizes_out = [big.nbytes for big in network.outputs]
    export_network(served.plan, served.kernels, served.bucket.function, tmp_path / "made", 2, [{}] * len(served.kernels), "made")
    add_check(
        tmp_path / "made", [(one.numpy(), *end) for one, end in zip(inputs, ends, strict=True)], served.opened.arrays(found),
        list(zip(made, found.returned, sizes_out, strict=True)),
        served.bucket.function.layout.workspace_bytes,
    )  # fmt: skip
    assert sanitized(tmp_path / "made", "threads.c", "-fsanitize=address,undefined", ["-O0"]) == ""


def padded(kind: str) -> tuple[torch.nn.Module, Served, tuple[Tensor, ...]]:
    """Attention without a mask, or a mean of those rows that count, and inputs of five rows."""
    torch.manual_seed(2)
    module = (Attention("bare") if kind == "bare" else Seen(40, 8, torch.nn.Linear(8, 8))).eval()
    inputs, rows = example(5), Dim("rows", min=1, max=16)
    inputs = inputs if kind == "bare" else (inputs[0], torch.tensor([[True, False, True, True, False]]))
    return module, Served(module, inputs, ({1: rows}, {1: rows}), 1), inputs


class Messages(torch.nn.Module):
    """Sums and maxima, for each node of a graph, of what its neighbours send."""

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        sent, to = x.index_select(0, edges[0]) + 1, edges[1]
        wide = to.view(-1, 1).expand_as(sent)
        most = torch.zeros_like(x).scatter_reduce(0, wide, sent, "amax", include_self=False)
        first = x.new_zeros(x.shape[0]).index_add(0, to, sent[:, 0])
        return torch.zeros_like(x).scatter_add(0, wide, sent) * most + first[:, None]


def test_graphs_may_have_fewer_nodes_and_edges() -> None:
    """Edges beyond the smaller graph's have any ends, so they send neutral numbers."""

    def given(nodes: int, edges: int) -> tuple[Tensor, Tensor]:
        return torch.randn(nodes, 5), torch.randint(0, nodes, (2, edges))

    torch.manual_seed(0)
    module = Messages().eval()
    served = Served(module, given(5, 9), ({0: Dim("nodes", min=2, max=12)}, {1: Dim("edges", min=2, max=20)}))
    for sizes in ((12, 20), (12, 7), (7, 20), (4, 9)):
        assert [one.most for one in served.program.symbols] == [12, 20]
        compare(served.sized(sizes), module, given(*sizes))


def without(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Plant a fault: the C text of sizes lacks this line."""
    folder = Path(rooms.__path__[0])
    parts = [folder.joinpath(name).read_text("utf-8") for name in ("runtime.h", "network.c", "sized.c")]
    assert text in parts[2]
    library = ctypes.CDLL(str(compile_text("".join(parts).replace(text, ""), ARCH)))
    monkeypatch.setattr(functions, "compiled", lambda *_: library)


def all_valid(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plant a fault: masks mark nothing."""
    monkeypatch.setattr(openings, "valid", lambda axis: np.ones(extents(axis)[1], bool))


CLEARED = "    memset(to + step * (size_t)fit->small[axis], 0, step * (size_t)(fit->big[axis] - fit->small[axis]));\n"
FAULTS: dict[str, tuple[str, Callable[[pytest.MonkeyPatch], None] | None]] = {
    "stale padding": ("counted", functools.partial(without, CLEARED)),
    "remainder unguarded": ("bare", all_valid),
    "none, counted": ("counted", None),
    "none, bare": ("bare", None),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_planted_faults_are_caught(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kind, plant = FAULTS[fault]
    module, served, inputs = padded(kind)
    if plant is not None:
        plant(monkeypatch)
    function = served.sized([5])
    if plant is None:
        compare(function, module, inputs)
        return
    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        compare(function, module, inputs)


@pytest.fixture(scope="module")
def cached() -> tuple[Cached, DynamicNetwork]:
    """A step of a decoder with 1 to 12 cached rows in two buckets."""
    torch.manual_seed(1)
    module, past = Cached(8, 2).eval(), Dim("past", min=1, max=12)
    made = gensor_gym.compile(module, steps(3), dynamic_shapes=({}, {2: past}, {2: past}), buckets=2, **QUICK)
    assert isinstance(made, DynamicNetwork) and made.limits == ([2, 12],)
    return module, made


QUICK: dict[str, Any] = {"trials": 1, "strategy": "markov", "reuse": False}


def steps(past: int) -> tuple[Tensor, Tensor, Tensor]:
    """A new row, and caches of keys and values."""
    drawn = torch.Generator().manual_seed(past)
    return tuple(torch.randn(1, *shape, generator=drawn) for shape in ((1, 8), (2, past, 4), (2, past, 4)))  # type: ignore[return-value]


def test_a_decoder_with_its_cache_as_input_and_output(cached: tuple[Cached, DynamicNetwork]) -> None:
    """Twelve steps, each on what the one before returned; also in torch.compile, whose sizes are symbols."""
    module, compiled = cached
    ours, theirs = steps(1)[1:], steps(1)[1:]
    operator = compiled.as_torch()
    for past in range(1, 13):
        x = steps(past)[0]
        with torch.no_grad():
            wanted, *theirs = module(x, *theirs)  # type: ignore[assignment]
        found, *ours = compiled(x, *ours)  # type: ignore[assignment]
        for one, right in zip((found, *ours), (wanted, *theirs), strict=True):
            torch.testing.assert_close(one, right, rtol=1e-4, atol=1e-5)
        assert torch.equal(operator(x, *(one[:, :, :-1] for one in ours))[1], ours[0])
    with torch.no_grad():
        given = steps(7)
        exported = torch.export.export(Called(compiled), given, dynamic_shapes=({}, {2: (p := Dim("p", min=1, max=12))}, {2: p}))
        assert exported.module()(*steps(9))[1].shape == (1, 2, 10, 4)


class Called(torch.nn.Module):
    """Calls a compiled network's operator."""

    def __init__(self, compiled: DynamicNetwork) -> None:
        super().__init__()
        self.operator = compiled.as_torch()

    def forward(self, x: Tensor, keys: Tensor, values: Tensor) -> Any:
        return self.operator(x, keys, values)


def test_sizes_outside_of_their_range_and_wrong_buckets(
    cached: tuple[Cached, DynamicNetwork], monkeypatch: pytest.MonkeyPatch
) -> None:
    module, compiled = cached
    for past in (0, 13):
        with pytest.raises(ValueError, match=f"axis 2 of keys has size {past}: expected 1 to 12"):
            compiled(*steps(past))
    with pytest.raises(ValueError, match=r"input values is float32\[1, 2, 5, 4\], expected float32\[1, 2, 4, 4\]"):
        compiled(*steps(4)[:2], steps(5)[2])
    planted = {"limits": ([8, 12],), "_buckets": {(8,): compiled._buckets[2,], (12,): compiled._buckets[12,]}, "_called": {}}
    for name, one in planted.items():  # sizes of 3 to 8 go to the bucket of 2
        monkeypatch.setattr(compiled, name, one)
    with pytest.warns(RuntimeWarning, match="axis 2 of keys of 6 gets kernels of its own, because"):
        torch.testing.assert_close(compiled(*steps(6)), tuple(module(*steps(6))), rtol=1e-4, atol=1e-5)


class Windows(torch.nn.Module):
    """A convolution along an axis that changes, which padding would change."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.nn.functional.conv1d(x, torch.ones(2, 2, 3), padding=1).relu()


def test_sizes_that_padding_would_change_get_kernels_of_their_own() -> None:
    n = Dim("n", min=4, max=6)
    with pytest.warns(RuntimeWarning, match="sizes get kernels of their own, because .*a window along an axis of changing size"):
        made = gensor_gym.compile(Windows().eval(), (torch.ones(1, 2, 5),), dynamic_shapes=({2: n},), buckets=1, **QUICK)
    for size in (4, 6):
        x = torch.randn(1, 2, size)
        torch.testing.assert_close(made(x), Windows()(x), rtol=1e-4, atol=1e-5)


def test_a_compilation_that_fails_leaves_no_trace() -> None:
    tries, failing = list[str](), [True]

    def compiled(network: Any) -> Any:
        tries.append(str(network))
        if failing[0]:
            raise KeyboardInterrupt
        return network

    program = DynamicProgram(Windows().eval(), (torch.ones(1, 2, 5),), ({2: Dim("n", min=1, max=40)},))
    with pytest.warns(RuntimeWarning, match="kernels of their own"):
        network = DynamicNetwork(program, 1, compiled)
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            network.at(5)
    failing[0] = False
    for size in range(1, 41):
        assert network.at(size).inputs[0].shape == (1, 2, size)  # type: ignore[attr-defined]


class Weights(torch.nn.Module):
    """Reads weights as they are, turned, in part and computed; one has two names."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = (torch.nn.Parameter(torch.rand(3, 3)) for _ in range(2))
        self.same = self.one

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.one + x @ self.other.T + x @ self.other.exp() + x @ self.same[:, 1:2]


def test_new_sizes_have_the_weights_of_the_others() -> None:
    module = Weights().eval()
    program = DynamicProgram(module, (torch.ones(4, 3),), ({0: Dim("n", min=1, max=40)},))
    before = program.network([5]).constants
    with torch.no_grad():
        for weight in module.parameters():
            weight.zero_()
    after = program.network([6]).constants
    assert before.keys() == after.keys() and len(before) > 2
    for name, array in before.items():
        np.testing.assert_array_equal(array, after[name])


def test_a_size_without_kernels_of_its_own_is_not_exported(tmp_path: Path) -> None:
    network = DynamicProgram(Weights().eval(), (torch.ones(4, 3),), ({0: Dim("n", min=1, max=8)},)).network([8])
    sized = CompiledNetwork(Plan(network, ()), gensor_gym.hardware.get("host"), (), (), SizedFunction.__new__(SizedFunction))
    with pytest.raises(ValueError, match="Weights runs kernels of a larger size"):
        sized.export(tmp_path)


def test_what_has_no_range_is_refused() -> None:
    module, x = torch.nn.Linear(3, 2).eval(), (torch.ones(2, 3),)
    with pytest.raises(ValueError, match="an axis of Dim.AUTO has no range: expected torch.export.Dim"):
        gensor_gym.compile(module, x, dynamic_shapes=({0: Dim.AUTO},))
    with pytest.raises(ValueError, match="axis 0 of input has no largest size"):
        gensor_gym.compile(module, x, dynamic_shapes=({0: Dim("b", min=1)},))
    with pytest.raises(ValueError, match="no axis of an input changes"):
        gensor_gym.compile(module, x, dynamic_shapes=({},))
    with pytest.raises(ValueError, match="buckets=0: expected a whole number above 0"):
        gensor_gym.compile(module, x, dynamic_shapes=({0: Dim("b", min=1, max=4)},), buckets=0)
    with pytest.raises(ValueError, match="buckets=2: expected dynamic_shapes with them"):
        gensor_gym.compile(module, x, buckets=2)
    with pytest.raises(Unsupported, match="torch.export: .*"):
        gensor_gym.compile(module, x, dynamic_shapes=({1: Dim("b", min=1, max=4)},))


def test_buckets_share_equal_weights() -> None:
    """A second network with the same weights adds none, another one does; calls one after another stay right."""
    drawn, served = drawn_case(1)
    shared = SharedWeights(3)
    two = [Bucket(NetworkFunction(served.plan, served.kernels, 2, "hot", shared.place))]
    once = shared.end
    two.append(Bucket(NetworkFunction(served.plan, served.kernels, 2, "hot", shared.place), two[0]))
    assert shared.end == once > 0
    for served.bucket in (*two, two[0]):
        compare(served.sized([3]), drawn.module, drawn.given({"batch": 3}))
    network = served.plan.network
    name, array = max(network.constants.items(), key=lambda item: item[1].size)
    changed = replace(network, constants={**network.constants, name: array + 1})
    NetworkFunction(Plan(changed, served.plan.pieces), served.kernels, 2, "hot", shared.place)
    assert shared.end > once
    compare(served.sized([2]), drawn.module, drawn.given({"batch": 2}))


def test_bounds_of_buckets() -> None:
    """They have the least padding on average, as trying all of them says. Small sizes may be buckets of their own."""
    assert bounds(16, 256, 10) == [16, 32, 48, 64, 80, 96, 128, 160, 208, 256]
    assert bounds(16, 256, 4) == [32, 64, 128, 256] and bounds(5, 5, 4) == [5] and bounds(3, 4, 8) == [3, 4]
    assert len(bounds(1, 100_000, 32)) == 32

    def padding(limits: Sequence[int]) -> float:
        return sum(next(most for most in limits if most >= size) / size / size for size in range(1, 17))

    for count in (1, 2, 3):
        every = [[*some, 16] for some in itertools.combinations(range(1, 16), count - 1)]
        assert padding(bounds(1, 16, count)) == pytest.approx(min(map(padding, every)))
