"""Table of networks whose sizes change from call to call: BERT over sequence lengths, a decoder over the length of its cache.

Run it by `gensor reproduce table=dynamic_shapes` with GENSOR_GYM_THREADS=1.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig
from torch import Tensor, nn
from torch.export import Dim

from agents.modules import compile_module
from agents.runs.sheets.cells import factor, spread
from experiments.comparison.summary import interval, ratio
from experiments.networks.attention import bert_of_ids
from experiments.studies.study import Stamp
from experiments.tables.rounds import Side, timed, use_one_thread
from experiments.tables.table import Cell, Table
from gensor_gym.measure.devices.cpu import processor_name

LAYERS, WIDTH, HEADS, WORDS = 2, 768, 12, 30522
LEAST, MOST = 16, 256
LENGTHS = (16, 24, 48, 100, 160, 200, 256)
"""Sequence lengths that are timed; four of them are largest sizes of buckets."""
OTHERS = ("padded", "recompiled", "torch.compile", "eager")
COLUMNS = ("network", "length", "ours", *OTHERS, *(f"over {name}" for name in OTHERS))


class Decoder(nn.Module):
    """One step of a decoder: a token's row [1, 1, width], and a key and a value cache [1, heads, past, size] for each layer."""

    def __init__(self, layers: int, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.projects = nn.ModuleList(nn.Linear(width, 3 * width) for _ in range(layers))
        self.outs = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2 * layers))
        widths = width, 4 * width
        self.mlps = nn.ModuleList(nn.Sequential(nn.Linear(*widths), nn.GELU(), nn.Linear(*widths[::-1])) for _ in range(layers))

    def forward(self, x: Tensor, caches: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        """Return the token's new row, and the caches with one row more."""
        found: list[Tensor] = []
        for layer, (project, out, mlp) in enumerate(zip(self.projects, self.outs, self.mlps, strict=True)):
            parts = project(self.norms[2 * layer](x)).chunk(3, -1)
            q, k, v = (part.view(1, 1, self.heads, -1).transpose(1, 2) for part in parts)
            keys, values = (torch.cat([caches[2 * layer + place], new], 2) for place, new in enumerate((k, v)))
            made = nn.functional.scaled_dot_product_attention(q, keys, values)
            x = x + out(made.transpose(1, 2).reshape(x.shape))
            x = x + mlp(self.norms[2 * layer + 1](x))
            found += [keys, values]
        return x, found


def bert_inputs(length: int) -> tuple[Any, ...]:
    """Draw token ids, segments and a mask of ones."""
    drawn = torch.Generator().manual_seed(length)
    ids = torch.randint(0, WORDS, (1, length), generator=drawn)
    return ids, torch.zeros_like(ids), torch.ones_like(ids)


def decoder_inputs(length: int) -> tuple[Any, ...]:
    """Draw a token's row, and caches of a length."""
    drawn = torch.Generator().manual_seed(length)
    caches = [torch.randn(1, HEADS, length, WIDTH // HEADS, generator=drawn) for _ in range(2 * LAYERS)]
    return torch.randn(1, 1, WIDTH, generator=drawn), caches


def make(config: DictConfig, folder: Path) -> list[Table]:
    """Make the table with at most `limit` lengths, which takes some minutes. ValueError for more than one thread."""
    use_one_thread(config)
    searched = {"quality": "fast"} if config.trials is None else {"trials": config.trials}
    rows = Dim("rows", min=LEAST, max=MOST)
    axes, notes, found = {1: rows}, [], list[tuple[Cell, ...]]()
    cases: dict[str, tuple[nn.Module, Callable[[int], Any], Any]] = {
        "BERT, two layers": (bert_of_ids(LAYERS, WIDTH, HEADS, WORDS), bert_inputs, (axes, axes, axes)),
        "decoder with a cache": (Decoder(LAYERS, WIDTH, HEADS), decoder_inputs, ({}, [{2: rows}] * (2 * LAYERS))),
    }
    for name, (module, inputs, shapes) in cases.items():
        made, spent = _rows(name, module.eval(), inputs, shapes, config, searched)
        found += made
        notes.append(spent)
    how = f"{processor_name()}, one thread, float32, batch 1, medians of {config.rounds} interleaved rounds in one process"
    about = (
        f"Ours: {how}; `dynamic_shapes` of {LEAST} to {MOST}. Padded: our network of {MOST}, with inputs padded by torch in the "
        "call; a cache without a mask cannot be padded. Recompiled: our network of the length alone. torch.compile has "
        "`dynamic=True`. Every result was compared with torch's."
    )
    published = "Published: none; the table is ours."
    return [Table("Networks of changing sizes", Stamp.REPLICATED, COLUMNS, tuple(found), (about, *notes, published))]


def _rows(
    name: str, module: nn.Module, inputs: Callable[[int], Any], shapes: Any, config: DictConfig, searched: Mapping[str, Any]
) -> tuple[list[tuple[Cell, ...]], str]:
    """Return the rows of a network, and a sentence about what compiling took."""
    begin = time.perf_counter()
    ours: Any = compile_module(module, inputs(48), dynamic_shapes=shapes, **searched)
    spent, alone, rows, firsts = time.perf_counter() - begin, list[float](), list[tuple[Cell, ...]](), list[float]()
    compiled, whole = torch.compile(module, dynamic=True), compile_module(module, inputs(MOST), **searched)
    with torch.no_grad():
        for length in LENGTHS[: config.limit]:
            begin = time.perf_counter()
            ours(*inputs(length))
            firsts.append(time.perf_counter() - begin)
            begin = time.perf_counter()
            exact = compile_module(module, inputs(length), **searched)
            alone.append(time.perf_counter() - begin)
            sides: dict[str, Side] = {"ours": ours, "recompiled": exact, "torch.compile": compiled, "eager": module}
            if inputs is bert_inputs:
                sides["padded"] = lambda *given: _padded(whole, given)
            seconds = timed(sides, inputs(length), config.rounds)
            times = [spread(interval(seconds[side])).text if side in seconds else None for side in ("ours", *OTHERS)]
            over = [factor(ratio(seconds[side], seconds["ours"])).text if side in seconds else None for side in OTHERS]
            rows.append((name, str(length), *times, *over))
    said = (
        f"{name}: compiling took {spent:.0f} s for buckets of {', '.join(map(str, ours.limits[0]))}, and {sum(alone):.0f} s for "
        f"{len(alone)} lengths alone, unless kernels were known; the first call of a length took at most "
        f"{1e3 * max(firsts):.0f} ms."
    )
    return rows, said


def _padded(network: Side, given: Sequence[Tensor]) -> Any:
    """Call a network of the largest length with padded inputs, and cut its first output."""
    length = given[0].shape[1]
    states, pooled = network(*(nn.functional.pad(one, (0, MOST - length)) for one in given))
    return states[:, :length], pooled
