"""Blocks of networks of vision and language as their authors write them, small: what a user's module may be made of."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import nn

from tests.support.blocks import images, rows

Shapes = Sequence[tuple[int, ...]]
_IMAGE = [(1, 8, 8, 10)]
_ROWS = [(1, 6, 8)]
BLOCKS: dict[str, tuple[Callable[[], nn.Module], Shapes]] = {
    "squeeze_excite": (images.squeeze_excite, [(1, 16, 7, 7)]), "shuffle_unit": (images.shuffle_unit, [(1, 16, 7, 7)]),
    "shuffle_down": (images.shuffle_down, _IMAGE), "dense": (images.Dense, _IMAGE), "unet": (images.Unet, [(1, 4, 8, 12)]),
    "inception": (images.inception, [(1, 12, 7, 7)]), "spatial_pyramid": (images.spatial_pyramid, _IMAGE),
    "pyramid_pooling": (images.pyramid_pooling, [(1, 8, 6, 6)]), "mb_conv": (images.mb_conv, _IMAGE),
    "mobilenet_v3": (images.mobilenet_v3, _IMAGE), "convnext": (images.convnext, _IMAGE),
    "convnext_v2": (images.convnext_v2, _IMAGE), "vit": (rows.Vit, [(1, 3, 12, 12)]), "swin": (rows.Swin, [(1, 8, 8, 8)]),
    "patch_merging": (rows.patch_merging, [(1, 6, 8, 4)]), "mixer": (rows.mixer, _ROWS), "t5": (rows.T5, [(1, 10, 16)]),
    "llama": (rows.Llama, [(1, 5, 16), (1, 2, 3, 4), (1, 2, 3, 4)]), "rope": (rows.Rope, [(1, 2, 5, 8)]),
    "gpt": (rows.Gpt, [(1, 7, 16)]), "conformer": (rows.conformer_convolution, _ROWS),
    "wavenet": (rows.wavenet, [(1, 6, 12)]), "attention_gate": (images.attention_gate, _IMAGE),
    "non_local": (rows.non_local, _IMAGE), "detr": (rows.detr_decoder, [(1, 8, 3, 4)]),
    "detection_head": (images.detection_head, _IMAGE), "upsampler": (images.upsampler, _IMAGE),
    "ghost": (images.ghost, _IMAGE), "fire": (images.fire, _IMAGE),
    "repeated_join": (images.repeated_join, [(1, 4, 6, 6)]), "gru": (rows.deep_gru_cell, [(2, 3, 4)]),
}  # fmt: skip
"""Name -> (what builds it, shapes of its inputs at batch 1)."""


def batched(shapes: Shapes) -> list[tuple[int, ...]]:
    """Of two elements at once."""
    return [(2 * shape[0], *shape[1:]) for shape in shapes]
