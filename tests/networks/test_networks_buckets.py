"""Networks for inputs of changing sizes: the chosen bucket, padding, cut results, and what cannot be padded."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import gensor_gym
from agents.buckets import CompiledBuckets
from tests.support.thorough import thorough_but

LENGTHS = (1, 5, 8, 9, 16)
Pair = tuple[torch.Tensor, torch.Tensor]


class Attention(torch.nn.Module):
    """One head over embedded ids, with a mask of keys, causal or without any; results in a dict."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.kind = kind
        self.table, self.heads, self.last = torch.nn.Embedding(40, 16), torch.nn.Linear(16, 48), torch.nn.Linear(16, 5)

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> dict[str, torch.Tensor]:
        x = self.table(ids)
        q, k, v = self.heads(x).chunk(3, -1)
        scores = q @ k.transpose(-1, -2) / 4
        if self.kind == "masked":
            scores = scores.masked_fill(mask[:, None, :] == 0, -1e4)
        elif self.kind == "causal":
            scores = scores + torch.full(scores.shape[-2:], -1e4).triu(1)
        made = scores.softmax(-1) @ v
        return {"every": self.last(made + x), "first": made[:, 0]}


def example(length: int, batch: int = 1) -> Pair:
    """Ids and a mask of ones."""
    ids = torch.randint(0, 40, (batch, length), generator=torch.Generator().manual_seed(length))
    return ids, torch.ones(batch, length, dtype=torch.long)


def compiled(kind: str, **named: Any) -> CompiledBuckets:
    """Two buckets, given largest first."""
    options = {"trials": 1, "strategy": "markov", "reuse": False} | named
    return gensor_gym.compile_buckets(Attention(kind).eval(), [example(16), example(8)], **options)


@pytest.fixture(scope="module")
def masked() -> CompiledBuckets:
    return compiled("masked")


@pytest.mark.parametrize("length", LENGTHS)
def test_results_are_those_of_the_module(masked: CompiledBuckets, length: int) -> None:
    """In the form, the sizes and the library of the module's; in the smallest bucket that holds the inputs."""
    inputs, module = example(length), Attention("masked").eval()
    with torch.no_grad():
        wanted = module(*inputs)
    assert masked.bucket([tuple(one.shape) for one in inputs]) == (length > 8)
    for found in (masked(*inputs), masked(ids=inputs[0], mask=inputs[1])):
        assert {name: made.shape for name, made in found.items()} == {name: made.shape for name, made in wanted.items()}
        for name, made in found.items():
            torch.testing.assert_close(made, wanted[name], rtol=1e-4, atol=1e-5)
    of_numpy = masked(*(one.numpy() for one in inputs))["every"]
    assert isinstance(of_numpy, np.ndarray) and np.allclose(of_numpy, wanted["every"], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("hardware", "backend"), thorough_but([("host", "auto"), ("h100", "emulated")], ("host", "auto")))
def test_a_causal_module_needs_no_mask(hardware: str, backend: str) -> None:
    made, inputs = compiled("causal", hardware=hardware, backend=backend), example(5)
    given = [one.numpy() for one in inputs] if hardware != "host" else inputs
    with torch.no_grad():
        wanted = Attention("causal").eval()(*inputs)["every"]
    assert np.allclose(np.asarray(made(*given)["every"]), wanted, rtol=1e-4, atol=1e-5)


def test_what_cannot_be_padded_is_refused(masked: CompiledBuckets) -> None:
    """Before anything is searched, with the value and what is expected."""
    with pytest.raises(ValueError, match="output 0 depends on padding: it changes by .* expected a causal module, or a mask"):
        compiled("bare")
    with pytest.raises(ValueError, match="output 0 depends on padding"):
        compiled("masked", padding={"mask": 1})
    with pytest.raises(ValueError, match="padding of 'masc': expected one of ids, mask"):
        compiled("masked", padding={"masc": 0})
    module = Attention("masked").eval()
    with pytest.raises(ValueError, match="1 examples: expected a list of two or more"):
        gensor_gym.compile_buckets(module, [example(8)])
    with pytest.raises(ValueError, match="buckets of 1x8, 1x8 and 2x5, 2x5: expected the larger one to hold"):
        gensor_gym.compile_buckets(module, [example(8), example(5, batch=2)])
    with pytest.raises(ValueError, match="buckets have no fallback"):
        compiled("masked", fallback="torch")
    with pytest.raises(ValueError, match="inputs of 1x17, 1x17: expected no more than a bucket: 1x8, 1x8; 1x16, 1x16"):
        masked(*example(17))
    with pytest.raises(ValueError, match="axis 0 of input 0 has size 2: expected 1, its size in every bucket"):
        masked(*example(8, batch=2))
    with pytest.raises(ValueError, match="axis 1 of input 1 has size 6, axis 1 of input 0 has size 5: expected one size"):
        masked(example(5)[0], example(6)[1])
    with pytest.raises(TypeError, match="expected ids, mask"):
        masked(example(8)[0])


def test_an_output_of_another_size_is_refused() -> None:
    """Twice as long as its input: a cut needs the size of an axis."""

    class Doubled(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.cat([x, x]).relu()

    with pytest.raises(ValueError, match="axis 0 of output 0 has sizes 6, 10: expected those of an axis of an input"):
        gensor_gym.compile_buckets(Doubled().eval(), [(torch.ones(3),), (torch.ones(5),)])
