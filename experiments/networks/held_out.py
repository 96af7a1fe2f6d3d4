"""Networks of torchvision, timm and transformers for comparisons with other compilers; nothing here was tuned on them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

IMAGES = {
    "resnet18": "torchvision.models.resnet18",
    "efficientnet_b0": "torchvision.models.efficientnet_b0",
    "mobilenet_v3_large": "torchvision.models.mobilenet_v3_large",
    "convnext_tiny": "torchvision.models.convnext_tiny",
    "convnext_v2_tiny": "timm.models.convnext.convnextv2_tiny",
    "shufflenet": "torchvision.models.shufflenet_v2_x1_0",
    "densenet121": "torchvision.models.densenet121",
    "squeezenet": "torchvision.models.squeezenet1_1",
    "swin_t": "torchvision.models.swin_t",
    "swin_v2_t": "torchvision.models.swin_v2_t",
    "maxvit_t": "torchvision.models.maxvit_t",
    "regnet_y_800mf": "torchvision.models.regnet_y_800mf",
    "vit_tiny": "timm.models.vision_transformer.vit_tiny_patch16_224",
    "mixer": "timm.models.mlp_mixer.mixer_s32_224",
}
"""Networks of images 3 x 224 x 224: name -> path of the function that builds it with random weights."""
_SMALL = {"hidden_size": 512, "num_attention_heads": 8, "vocab_size": 8000}
_LANGUAGE: dict[str, tuple[str, dict[str, int]]] = {
    "distilbert": ("DistilBert", {"n_layers": 6}),
    "llama": ("Llama", {**_SMALL, "intermediate_size": 1376, "num_hidden_layers": 6, "num_key_value_heads": 4}),
    "qwen3": ("Qwen3", {**_SMALL, "intermediate_size": 1408, "num_hidden_layers": 4, "num_key_value_heads": 2, "head_dim": 64}),
}
"""Networks of token ids: name -> (its name in transformers, values of its configuration)."""
TOKENS = tuple(_LANGUAGE)
HELD_OUT = (*IMAGES, *TOKENS, "unet")
"""Names of all networks that nothing was tuned on."""


class LastHidden(nn.Module):
    """A model of transformers as a function from ids int64 [n, length] to its last hidden states."""

    def __init__(self, model: nn.Module, options: dict[str, bool]) -> None:
        super().__init__()
        self.model, self.options = model, options

    def forward(self, ids: Tensor) -> Tensor:
        """Return the last hidden states, float32 [n, length, hidden size]."""
        found: Tensor = self.model(input_ids=ids, **self.options).last_hidden_state
        return found


def language(name: str) -> Callable[[], nn.Module]:
    """Return the function that builds a network of `TOKENS` with random weights; a decoder keeps no cache of keys and values."""

    def build() -> nn.Module:
        family, values = _LANGUAGE[name]
        library: Any = library_module("transformers")
        model = getattr(library, f"{family}Model")(getattr(library, f"{family}Config")(**values))
        return LastHidden(model, {} if name == "distilbert" else {"use_cache": False})

    return build


def library_module(path: str) -> ModuleType:
    """Import a module of a library that may need torchvision. Raise ImportError if it is not installed.

    A wheel of torchvision that was built for CUDA does not load next to a CPU build of torch, which lacks its operators. Nothing
    here calls them, so they are declared.
    """
    _declare_operators()
    return import_module(path)


def _declare_operators() -> None:
    if "torchvision" in sys.modules or hasattr(torch.ops.torchvision, "nms"):
        return
    try:
        import_module("torchvision")
    except ModuleNotFoundError:
        return
    except RuntimeError:
        for name in [name for name in sys.modules if name.split(".")[0] == "torchvision"]:
            del sys.modules[name]
        for operator in ("nms", "qnms"):
            _TORCHVISION.define(f"{operator}(Tensor boxes, Tensor scores, float threshold) -> Tensor")


_TORCHVISION = torch.library.Library("torchvision", "FRAGMENT")
"""Library that holds the declared operators for as long as the process runs."""
