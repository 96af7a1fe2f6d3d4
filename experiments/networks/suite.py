"""Benchmark networks by name, with the shapes of their inputs."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from experiments.networks import attention, convolutional
from experiments.networks.held_out import HELD_OUT, IMAGES, TOKENS, language, library_module
from gensor_gym.registry import near

VIEWS = ("view", "reshape", "permute", "transpose", "expand", "slice", "unsqueeze", "squeeze", "flatten", "unflatten", "split",
         "chunk", "select", "alias", "detach", "contiguous", "dropout", "getitem", "t")  # fmt: skip
"""Operations of an exported program for which eager torch launches no kernel, such as views."""
_IMAGE, _TOKENS = ((3, 224, 224),), ((128, 768),)


@dataclass(frozen=True)
class Ids:
    """Description of an input of random integer ids, int64: `least` <= id < `below`."""

    shape: tuple[int, ...]
    below: int
    least: int = 0


@dataclass(frozen=True)
class Workload:
    """A benchmark network: its builder, and its inputs per sample, which are shapes of float32 tensors or `Ids`."""

    build: Callable[[], nn.Module]
    inputs: tuple[tuple[int, ...] | Ids, ...]


def _heads(rows: int, hidden: int, heads: int) -> Workload:
    return Workload(lambda: attention.Heads(heads), (*[(rows, hidden)] * 3, (1, 1, rows)))


def _mlp(*widths: int) -> Workload:
    return Workload(lambda: attention.mlp(widths), ((widths[0],),))


SUITE = {
    "resnet34": Workload(lambda: convolutional.resnet((3, 4, 6, 3), deep=False), _IMAGE),
    "resnet50": Workload(lambda: convolutional.resnet((3, 4, 6, 3), deep=True), _IMAGE),
    "mobilenet_v2": Workload(convolutional.mobilenet_v2, _IMAGE),
    "bert": Workload(attention.bert, _TOKENS),
    "gpt2": Workload(attention.gpt2, _TOKENS),
    "bert_of_ids": Workload(attention.bert_of_ids, (Ids((128,), 30522), Ids((128,), 2), Ids((128,), 2, 1))),
    "gpt2_of_ids": Workload(attention.gpt2_of_ids, (Ids((128,), 50257),)),
    "mlp_1": _mlp(13, 512, 256, 128),
    "mlp_2": _mlp(479, 1024, 1024, 512, 256, 1),
    "mha_1": _heads(128, 768, 8),
    "mha_2": _heads(128, 768, 12),
    "mha_3": _heads(384, 1024, 8),
    "mha_4": _heads(512, 1024, 16),
    "patches": Workload(lambda: convolutional.Merging(96, goes_on=False), ((56, 56, 96),)),
    "patch_merging": Workload(lambda: convolutional.Merging(96, goes_on=True), ((56, 56, 96),)),
    "channels_64_64": Workload(convolutional.Channels, ((64, 56, 56), (64, 56, 56))),
    "channels_96_32": Workload(convolutional.Channels, ((96, 56, 56), (32, 56, 56))),
    "unet": Workload(convolutional.UNet, ((3, 256, 256),)),
    **{name: Workload(language(name), (Ids((128,), 1000),)) for name in TOKENS},
}
"""Benchmark networks by name. `bert` and `gpt2` are only the blocks; `bert_of_ids` and `gpt2_of_ids` are whole networks.

The MLPs and MHAs are oneDNN Graph Compiler's (Li et al., arXiv 2301.01333, table 1).
"""


_PATH = re.compile(r"((?:\w+\.)+)(\w+)(?:\(([\d, ]+)\))?")


def every(names: Sequence[str]) -> list[str]:
    """Return names of networks, with `HELD_OUT` in place of the name `held_out`."""
    return [one for name in names for one in (HELD_OUT if name == "held_out" else (name,))]


def workload_of(name: str) -> Workload:
    """Return the network `name` of `SUITE` or `IMAGES`, or the one that a function builds, as `torchvision.models.swin_t`.

    The function takes no arguments. The shape of its image may follow, as in `torchvision.models.swin_t(3, 224, 224)`, which is
    the default. Raise ValueError for an unknown name.
    """
    if name in SUITE:
        return SUITE[name]
    if (found := _PATH.fullmatch(IMAGES.get(name, name))) is None:
        expected = f"one of {', '.join((*SUITE, *IMAGES))}, or a path such as torchvision.models.swin_t(3, 224, 224)"
        raise ValueError(f"network {name!r}: expected {expected}{near(name, (*SUITE, *IMAGES))}")
    module, function, extents = found[1].rstrip("."), found[2], found[3]
    try:
        build = getattr(library_module(module), function)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"network {name!r}: {error}") from error
    return Workload(build, (tuple(map(int, extents.split(","))),) if extents else _IMAGE)


def module_of(name: str, seed: int = 0) -> nn.Module:
    """Build the network `name` of `workload_of` with random weights, in evaluation mode."""
    torch.manual_seed(seed)
    return as_used(workload_of(name).build())


def as_used(module: nn.Module) -> nn.Module:
    """Put a module into evaluation mode, draw statistics of its batch normalisations and weights that are zero, and return it.

    A new module's mean of 0 and variance of 1 would hide errors in folding them into weights, and zero weights all errors before.
    """
    for part in module.modules():
        if isinstance(part, nn.BatchNorm2d):
            nn.init.normal_(part.running_mean, std=0.1)  # type: ignore[arg-type]
            nn.init.uniform_(part.running_var, 0.8, 1.25)  # type: ignore[arg-type]
        weight = getattr(part, "weight", None)
        if isinstance(weight, nn.Parameter) and weight.numel() and not weight.any():
            nn.init.normal_(weight, std=(len(weight) / weight.numel()) ** 0.5 if weight.ndim else 1.0)
    return module.eval()


def inputs_of(name: str, batch: int = 1, seed: int = 0) -> tuple[torch.Tensor, ...]:
    """Draw random inputs of the network `name`: normal for float32 tensors, uniform for ids."""
    return drawn(workload_of(name).inputs, batch, seed)


def in_type(name: str, dtype: str, batch: int = 1, seed: int = 0) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """Return (network, its inputs), with weights and floating-point inputs rounded to a data type such as `bfloat16`."""
    kind: torch.dtype = getattr(torch, dtype)
    given = (one.to(kind) if one.is_floating_point() else one for one in inputs_of(name, batch, seed))
    return module_of(name, seed).to(kind), tuple(given)


def drawn(wanted: Sequence[tuple[int, ...] | Ids], batch: int = 1, seed: int = 0) -> tuple[torch.Tensor, ...]:
    """Draw random inputs of the given shapes and ids, with `batch` samples each."""
    generator = torch.Generator().manual_seed(seed)
    return tuple(
        torch.randint(one.least, one.below, (batch, *one.shape), generator=generator)
        if isinstance(one, Ids)
        else torch.randn(batch, *one, generator=generator)
        for one in wanted
    )


def operations(module: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> int:
    """Return a lower bound on the number of kernels that eager torch launches for a module.

    It counts the operations of the exported program, without those that launch no kernel.
    """
    calls: list[Any] = [node.target for node in torch.export.export(module, inputs).graph.nodes if node.op == "call_function"]
    names = (str(getattr(target, "__name__", target)).split(".")[0].strip("_") for target in calls)
    return sum(name not in VIEWS for name in names)
