"""Write the layers of named networks: `python -m agents.recording.extract` (needs torchvision and timm).

Each vision network runs once on one image. A language model is described by a line of sizes. The networks that `docs/results`
compares with OpenVINO are left out. Larger networks of their families are not, and share some layers with them.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from agents.training.operators.layers import FILE, SIZE, TOKENS, Layer

TORCHVISION = (
    "alexnet", "vgg11", "resnet34", "resnet101", "resnext50_32x4d", "wide_resnet50_2", "googlenet", "inception_v3", "densenet169",
    "mnasnet1_0", "efficientnet_b2", "efficientnet_v2_s", "regnet_y_800mf", "regnet_x_3_2gf", "convnext_small", "swin_v2_s",
    "vit_b_32", "maxvit_t",
)  # fmt: skip
TIMM = ("poolformer_s12", "res2net50_26w_4s", "ghostnet_100", "resmlp_12_224")
LANGUAGE = {  # hidden size, width of the feed-forward part, heads, size of a head, heads of keys and values
    "bert_base": (768, 3072, 12, 64, 12), "roberta_large": (1024, 4096, 16, 64, 16), "electra_small": (256, 1024, 4, 64, 4),
    "opt_350m": (1024, 4096, 16, 64, 16), "gpt_neo_125m": (768, 3072, 12, 64, 12), "t5_small": (512, 2048, 8, 64, 8),
    "bart_large": (1024, 4096, 16, 64, 16), "pythia_70m": (512, 2048, 8, 64, 8), "qwen2_0_5b": (896, 4864, 14, 64, 2),
    "llama_3_2_1b": (2048, 8192, 32, 64, 8), "tinyllama": (2048, 5632, 32, 64, 4), "gemma_2b": (2048, 16384, 8, 256, 1),
}  # fmt: skip
"""Language model -> sizes of `language`, from the models' published configurations."""


def vision(name: str, network: nn.Module) -> Iterator[Layer]:
    """Run a vision network on one image and yield its layers: convolutions, poolings and matrix products."""
    found: list[Layer] = []

    def seen(module: nn.Module, given: tuple[torch.Tensor, ...], result: torch.Tensor) -> None:
        found.extend(_layers(name, module, given[0], result))

    hooks = [module.register_forward_hook(seen) for module in network.modules() if not list(module.children())]
    with torch.no_grad():
        network(torch.empty(1, 3, SIZE, SIZE))
    for hook in hooks:
        hook.remove()
    yield from found


def _layers(name: str, module: nn.Module, x: torch.Tensor, result: torch.Tensor) -> Iterator[Layer]:
    window = {"r": "kernel_size", "s": "kernel_size", "stride": "stride", "padding": "padding", "dilation": "dilation"}
    if isinstance(module, nn.Linear):
        yield Layer(name, "gemm", {"n": module.out_features, "k": module.in_features}, "image", x.numel() // x.shape[-1])
    if not isinstance(module, nn.Conv2d | nn.MaxPool2d | nn.AvgPool2d) or x.dim() != 4:
        return
    sizes: dict[str, int] = {"c": x.shape[1]}
    for key, attribute in window.items():
        value: Any = getattr(module, attribute, 1)
        sizes[key] = value[key == "s"] if isinstance(value, tuple) else int(value)
    if isinstance(module, nn.Conv2d):
        kind = "depthwise_conv2d" if module.groups == x.shape[1] == result.shape[1] > 1 else "conv2d"
        sizes |= {"k": result.shape[1], "groups": module.groups} if kind == "conv2d" else {}
    else:
        kind = "max_pool2d" if isinstance(module, nn.MaxPool2d) else "avg_pool2d"
    yield Layer(name, kind, sizes, "image", x.shape[-1])


def language(name: str, hidden: int, wide: int, heads: int, head: int, shared: int) -> Iterator[Layer]:
    """Yield the layers of a transformer on `TOKENS` tokens: matrix products and the reductions of its rows.

    `hidden` and `wide` are widths, `heads` and `shared` numbers of query and of key heads, and `head` is the width of a head.
    """
    widths = {(heads * head, hidden), (shared * head, hidden), (hidden, heads * head), (wide, hidden), (hidden, wide)}
    for n, k in sorted(widths):
        yield Layer(name, "gemm", {"n": n, "k": k}, "tokens", TOKENS)
    yield Layer(name, "batched_gemm", {"b": heads, "n": 0, "k": head}, "tokens", TOKENS)
    yield Layer(name, "batched_gemm", {"b": heads, "n": head, "k": 0}, "tokens", TOKENS)
    yield Layer(name, "reduce_sum", {"k": hidden}, "tokens", TOKENS)


def layers() -> Iterator[Layer]:
    """Yield the layers of all networks, without repetitions within a network."""
    import timm
    import torchvision

    for name in (*TORCHVISION, *TIMM):
        network = timm.create_model(name) if name in TIMM else getattr(torchvision.models, name)(weights=None)
        yield from dict.fromkeys(vision(name, network.eval()))
    for name, sizes in LANGUAGE.items():
        yield from language(name, *sizes)


if __name__ == "__main__":
    with FILE.open("w", encoding="utf-8", newline="") as file:
        lines = csv.writer(file, lineterminator="\n")
        lines.writerow(("network", "kind", "sizes", "scales", "extent"))
        lines.writerows(layer.row() for layer in layers())
