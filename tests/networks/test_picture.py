"""The picture of a plan: every kernel and value is there, boxes do not lie on one another, links pass boxes of other layers."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import nn

from gensor_gym.frontends.torch_export import from_torch
from gensor_gym.networks.drawing.boxes import Box, Link, layered
from gensor_gym.networks.drawing.picture import boxes_of, bytes_text, figure_of
from gensor_gym.networks.folding import folded
from gensor_gym.networks.plan import Plan, cut_all
from tests.support.random_modules import Draw


def plan_of(module: nn.Module, *inputs: torch.Tensor) -> Plan:
    return cut_all(folded(from_torch(module.eval(), inputs)))


def test_kernels_constants_and_sizes_are_named() -> None:
    plan = plan_of(nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Softmax(-1)), torch.randn(8, 16))
    boxes, links = boxes_of(plan)
    given, product, softmax, output = boxes
    assert given.sizes == ["8x16  512 B"] and product.sizes == ["8x32  1.02 kB"] and output.sizes == []
    assert product.lines[0] == "kernel 0" and "gemm(m=8, n=32, k=16)" in product.lines[1]
    assert "relu = maximum(add, 0.0)" in product.lines and sum(line.startswith("constant ") for line in product.lines) == 2
    assert softmax.lines[1].endswith("max(relu, axes=[1])") and output.lines[0].startswith("output ")
    assert [(link.start, link.end) for link in links] == [(0, 1), (1, 2), (2, 3)]
    figure = figure_of(plan)
    texts = [text.get_text() for text in figure.axes[0].texts]
    assert all(line in texts for box in boxes for line in (*box.lines, *box.sizes))


@pytest.mark.parametrize("seed", range(4))
def test_random_plans_are_drawn_without_overlap(seed: int) -> None:
    drawn = Draw(seed)
    boxes, links = boxes_of(plan_of(drawn.module, *drawn.inputs))
    width, height = layered(boxes, links)
    slack = 1e-9
    for place, box in enumerate(boxes):
        assert abs(box.x) + box.width / 2 <= width / 2 + slack and box.top + box.height <= height + slack
        for other in boxes[:place]:
            beside = box.left >= other.left + other.width or other.left >= box.left + box.width
            assert beside or box.top >= other.top + other.height or other.top >= box.top + box.height
    for link in links:
        assert boxes[link.start].top < boxes[link.end].top
        for start, end in pairwise(link.points):
            x, y = (np.linspace(one, other, 9)[1:-1] for one, other in zip(start, end, strict=True))
            for box in boxes:
                across, down = (box.left < x) & (x < box.left + box.width), (box.top < y) & (y < box.top + box.height)
                assert not (across & down).any()


def test_a_link_that_passes_a_layer_has_room_there() -> None:
    boxes = [Box([], [], 1.0, 0.5) for _ in range(3)]
    links = [Link(0, 1), Link(1, 2), Link(0, 2)]
    layered(boxes, links)
    (x, top), (_, bottom) = links[2].points[2:4]
    assert not boxes[1].left <= x <= boxes[1].left + boxes[1].width and top <= boxes[1].top < boxes[1].top + 0.5 <= bottom
    assert links[2].points[-1][1] == boxes[2].top
    assert layered([], []) == (0.0, 0.0) and bytes_text(999) == "999 B" and bytes_text(2.5e9) == "2.5 GB"
