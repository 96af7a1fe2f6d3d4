"""Plans: what one decision may change, whatever is decided computes the same, and faults at anchors show."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from importlib import import_module

import numpy as np
import pytest
import torch
from torch import nn

from gensor_gym.chains import chain as chains
from gensor_gym.dataflow.evaluate import evaluate
from gensor_gym.dataflow.graph import Dataflow
from gensor_gym.frontends.torch_export import from_torch
from gensor_gym.networks.folding import folded
from gensor_gym.networks.fusion.decisions import decisions
from gensor_gym.networks.fusion.fine import fine
from gensor_gym.networks.fusion.rules import plan_of
from gensor_gym.networks.load import NetworkFunction
from gensor_gym.networks.network import Network
from gensor_gym.networks.plan import Plan, cut_all
from tests.support.network_steps import value_at
from tests.support.networks import check, kernels_of
from tests.support.random_modules import Draw
from tests.support.thorough import thorough_but


class Heads(nn.Module):
    """Attention of heads side by side, whose queries, keys and values one product makes; a norm after it."""

    def __init__(self, heads: int, size: int, causal: bool) -> None:
        super().__init__()
        self.heads, self.size, self.causal = heads, size, causal
        width = heads * size
        self.project, self.out, self.norm = nn.Linear(width, 3 * width), nn.Linear(width, width), nn.LayerNorm(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, rows, width = x.shape
        parts = self.project(x).view(batch, rows, 3, self.heads, self.size).permute(2, 0, 3, 1, 4)
        made = nn.functional.scaled_dot_product_attention(parts[0], parts[1], parts[2], is_causal=self.causal)
        return self.norm(x + self.out(made.transpose(1, 2).reshape(batch, rows, width)))


def attention(seed: int) -> tuple[nn.Module, torch.Tensor, Network]:
    """A module of random extents with an input, and its network."""
    rng = np.random.default_rng(seed)
    heads, size, batch, rows = (int(rng.choice(some)) for some in ((2, 3), (4, 5, 8), (1, 2), (33, 48, 70)))
    torch.manual_seed(seed)
    module, x = Heads(heads, size, causal=bool(seed % 2)).eval(), torch.randn(batch, rows, heads * size)
    return module, x, folded(from_torch(module, [x]))


@pytest.mark.parametrize("times", [0, 2])
def test_a_node_is_in_one_piece(times: int) -> None:
    _, _, network = attention(0)
    *others, last = cut_all(network).pieces
    wrong = Plan(network, (*others, *[last] * times))
    with pytest.raises(ValueError, match=rf"is in {times} pieces, expected 1"):
        _ = wrong.steps


def walked(plan: Plan, rng: np.random.Generator, steps: int) -> Plan:
    """The plan after so many random decisions."""
    for _ in range(steps):
        choices = [changed for _, changed in decisions(plan)]
        plan = choices[rng.integers(len(choices))] if choices else plan
    return plan


def oracle(plan: Plan, inputs: Sequence[torch.Tensor]) -> list[np.ndarray]:
    """The outputs by computing piece after piece of what was made before, with NumPy; KeyError where something is missing."""
    network = plan.network
    known = dict(network.constants) | {value.name: x.numpy() for value, x in zip(network.inputs, inputs, strict=True)}
    for step in plan.steps:
        read = [value_at(network, name, known) for name in step.reads]
        given = [one.reshape(t.shape) for one, t in zip(read, step.computation.inputs, strict=True)]
        is_graph = isinstance(step.computation, Dataflow)
        made = [one.value for one in evaluate(step.computation, given)] if is_graph else [step.computation.reference(*given)]
        assert not set(step.writes) & set(known)
        known |= dict(zip(step.writes, made, strict=True))
    found = [(name, value_at(network, network.root_of(name), known)) for name in network.graph.returns]
    return [value.reshape(network.graph.values[name].shape) for name, value in found]


@pytest.mark.parametrize("seed", thorough_but(range(12), 0, 1))
def test_attention_is_one_piece_and_right(seed: int) -> None:
    module, x, network = attention(seed)
    plan = fine(network)
    blocks = [piece for piece in plan.pieces if piece.anchor == "block"]
    assert len(blocks) == 1 and len(plan.pieces) < len(cut_all(network).pieces) - 6
    assert Plan.parse(network, str(plan)) == plan and str(plan).count("@block") == 1
    check(NetworkFunction(plan, kernels_of(plan, seed, 40), 2), module, [x])


class Masked(nn.Module):
    """Two layers of attention with one mask of whole numbers, as BERT has."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 24) for _ in range(2))

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        seen = mask.to(torch.bool)[:, None, None]
        for layer in self.layers:
            q, k, v = layer(x).view(1, 64, 3, 2, 4).permute(2, 0, 3, 1, 4).unbind(0)
            x = x + nn.functional.scaled_dot_product_attention(q, k, v, seen).transpose(1, 2).reshape(1, 64, 8)
        return x


@pytest.mark.thorough
def test_attention_of_several_layers_with_one_mask_is_one_piece_each() -> None:
    """What makes the mask is read by both, so neither takes it in."""
    torch.manual_seed(0)
    module, inputs = Masked().eval(), [torch.randn(1, 64, 8), (torch.arange(64) < 50).long()[None]]
    plan = fine(folded(from_torch(module, inputs)))
    assert sum(piece.anchor == "block" for piece in plan.pieces) == 2
    check(NetworkFunction(plan, kernels_of(plan, 0, 0), 2), module, inputs)


@pytest.mark.parametrize("seed", thorough_but(range(200), 42))
def test_random_legal_plans_are_right(seed: int) -> None:
    rng = np.random.default_rng(seed)
    if seed % 2:
        module, x, network = attention(seed)
        inputs: Sequence[torch.Tensor] = [x]
    else:
        drawn = Draw(seed)
        module, inputs = drawn.module, drawn.inputs
        network = folded(from_torch(module, inputs))
    plan = walked(cut_all(network), rng, int(rng.integers(1, 6)))
    check(NetworkFunction(plan, kernels_of(plan, seed), 2), module, inputs)


@pytest.mark.parametrize("seed", thorough_but(range(8), 1))
def test_every_decision_leaves_a_plan_that_computes_the_same(seed: int) -> None:
    if seed % 2:
        _, x, network = attention(seed)
        inputs: Sequence[torch.Tensor] = [x]
    else:
        drawn = Draw(seed)
        inputs, network = drawn.inputs, folded(from_torch(drawn.module, drawn.inputs))
    plan = cut_all(network)
    wanted, seen = oracle(plan, inputs), set()
    for decision, changed in decisions(plan):
        assert changed != plan and str(changed) not in seen and Plan.parse(network, str(changed)) == changed
        seen.add(str(changed))
        for one, other in zip(oracle(changed, inputs), wanted, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12, err_msg=decision)
    assert len(seen) > 1


class Before(nn.Module):
    """A residual product whose sum is read by a norm and by what comes after: a panel of two outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two, self.norm = nn.Linear(20, 33), nn.Linear(33, 33), nn.LayerNorm(33)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        total = y + self.one(x)
        return total + self.two(self.norm(total))


@pytest.mark.parametrize("rows", [9, 4])
def test_a_product_takes_the_norm_after_it(rows: int) -> None:
    """Where there are rows for threads."""
    torch.manual_seed(0)
    module, inputs = Before().eval(), [torch.randn(2, rows, 20), torch.randn(2, rows, 33)]
    if rows == 4:
        inputs = [one[:1] for one in inputs]
    network = folded(from_torch(module, inputs))
    plan = fine(network)
    panels = [step for piece, step in zip(plan.pieces, plan.steps, strict=True) if piece.anchor == "panel"]
    assert [len(step.writes) for step in panels] == ([2] if rows == 9 else [])
    assert Plan.parse(network, str(plan)) == plan and len(plan.pieces) == (2 if rows == 9 else 3)
    assert len(cut_all(network).pieces) == 3
    check(NetworkFunction(plan, kernels_of(plan, rows, 40), 2), module, inputs)


def test_decisions_come_back() -> None:
    """What is taken into a block can be cut again, and what is joined."""
    network = attention(1)[2]
    plan = cut_all(network)
    ((_, fused),) = [one for one in decisions(plan) if one[0].endswith("into a block")]
    (taken,) = [changed for decision, changed in decisions(fused) if decision.startswith("take rows")]
    assert taken == fine(network) and fused in [changed for _, changed in decisions(taken)]
    assert sorted(map(str, plan.pieces)) in [sorted(map(str, changed.pieces)) for _, changed in decisions(fused)]


def test_what_a_plan_says_of_anchors_is_checked() -> None:
    network = attention(0)[2]
    text = str(fine(network))
    for changed, said in (
        (text.replace("@block", "@tile"), "2 products, of which block has two and"),
        (text.replace("gemm add", "@row gemm add", 1), "at anchor 'row'"),
        (text.replace("gemm add", "@block gemm add", 1), "1 products"),
        (text.replace("gemm add", "@panel gemm add", 1), "nothing is made of rows"),
    ):
        with pytest.raises(ValueError, match=said):
            _ = Plan.parse(network, changed).steps
    with pytest.raises(ValueError, match="anchor 'pane': expected one of tile, row, panel, block"):
        Plan.parse(network, text.replace("@block", "@pane"))
    with pytest.raises(ValueError, match="plan 'fin': expected one of cut_all, fine, fine_coarse"):
        plan_of(network, "fin")


@pytest.mark.parametrize(
    "fault", thorough_but(["keys of another head", "scores of another pitch", "values a row on"], "values a row on")
)
def test_planted_faults_of_a_block_are_seen(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module, x, network = attention(2)
    right = chains.chain_of

    def wrong(graph: Dataflow) -> chains.Chain:
        chain = right(graph)
        if fault == "keys of another head":
            steps = (*chain.first.batch[:-1], 0)
            return dataclasses.replace(chain, first=dataclasses.replace(chain.first, batch=steps))
        if fault == "values a row on":
            second = dataclasses.replace(chain.second, offset=chain.second.offset - chain.second.row)
            return dataclasses.replace(chain, second=second)
        return chain

    plan = fine(network)
    check(NetworkFunction(plan, kernels_of(plan, 2, 40), 2), module, [x])
    monkeypatch.setattr(import_module("gensor_gym.codegen.families"), "chain_of", wrong)
    if fault == "scores of another pitch":
        monkeypatch.setattr("gensor_gym.codegen.chains.generate.pitch_of", lambda chain: 16)
    with pytest.raises(AssertionError):
        check(NetworkFunction(plan, kernels_of(plan, 2, 40), 2), module, [x])
