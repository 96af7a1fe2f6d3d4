"""Table like Gensor's figure 11 (arXiv 2502.11407) for a whole network: a small BERT whose sequence length changes.

Our compiler compiles it once for several lengths, the buckets (`agents.buckets`), and in addition for each length alone. Torch's
compiler compiles it once for all lengths (`dynamic=True`).
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

import torch
from omegaconf import DictConfig

from agents.buckets import compile_buckets
from agents.modules import compile_module
from agents.runs.sheets.cells import factor, spread
from experiments.comparison.summary import interval, ratio
from experiments.networks.attention import bert_of_ids
from experiments.networks.suite import Ids, drawn
from experiments.studies.study import Stamp
from experiments.tables.gensor import published
from experiments.tables.rounds import Side, timed, use_one_thread
from experiments.tables.table import Cell, Table
from gensor_gym.measure.devices.cpu import processor_name

LAYERS, WIDTH, HEADS, WORDS = 4, 512, 8, 30522
"""Layers, width, heads and vocabulary of a small BERT (Turc et al., arXiv 1908.08962)."""
BUCKETS = (32, 64, 128, 256, 512)
TRIALS = 3
"""Number of programs that are measured for each distinct kernel, unless it is configured."""
COLUMNS = (
    "length", "bucket", "ours, in the bucket", "ours, for the length alone", "torch", "torch.compile", "bucket over torch",
    "bucket over torch.compile", "published: Gensor over PyTorch",
)  # fmt: skip


def make(config: DictConfig, folder: Path) -> list[Table]:
    """Make the table with at most `limit` lengths, which takes five minutes on one core. ValueError for more than one thread."""
    use_one_thread(config)
    module, lengths = bert_of_ids(LAYERS, WIDTH, HEADS, WORDS).eval(), published.LENGTHS[: config.limit]
    searched = {"trials": TRIALS if config.trials is None else config.trials, "seed": config.seeds[0]}
    buckets = BUCKETS[: 1 + next(place for place, size in enumerate(BUCKETS) if size >= lengths[-1])]
    begin = time.perf_counter()
    ours = compile_buckets(module, [inputs_of(size) for size in buckets], **searched)
    spent, alone, rows = time.perf_counter() - begin, 0.0, []
    torchs = torch.compile(module, dynamic=True)
    with torch.no_grad():
        for length in lengths:
            begin = time.perf_counter()
            exact = compile_module(module, inputs_of(length), **searched)
            alone += time.perf_counter() - begin
            sides: dict[str, Side] = {"buckets": ours, "alone": exact, "eager": module, "compile": torchs}
            seconds = timed(sides, inputs_of(length), config.rounds)
            rows.append(_row(length, min(size for size in buckets if size >= length), seconds))
    notes = (
        f"Ours: {processor_name()}, one thread, float32, batch 1, {searched['trials']} measured programs for each distinct "
        f"kernel; medians of {config.rounds} interleaved rounds in one process. Every result was compared with torch's.",
        f"Compiling took {spent:.0f} s for {len(buckets)} buckets, {alone:.0f} s for {len(lengths)} lengths alone, unless "
        "earlier searches were remembered. torch.compile has `dynamic=True`.",
        f"Published: an RTX 4090, a small BERT, unknown batch; {published.SOURCE}",
    )
    return [Table("A small BERT with a changing sequence length", Stamp.REPLICATED, COLUMNS, tuple(rows), notes)]


def inputs_of(length: int) -> tuple[torch.Tensor, ...]:
    """Draw the network's inputs of a sequence length: token ids, segments, and a mask of ones."""
    return drawn((Ids((length,), WORDS), Ids((length,), 2), Ids((length,), 2, 1)), seed=length)


def _row(length: int, bucket: int, seconds: Mapping[str, list[float]]) -> tuple[Cell, ...]:
    over = [factor(ratio(seconds[name], seconds["buckets"])).text for name in ("eager", "compile")]
    place = published.LENGTHS.index(length)
    claimed = published.FIGURE_11["Gensor"][place] / published.FIGURE_11["PyTorch"][place]
    return str(length), str(bucket), *(spread(interval(one)).text for one in seconds.values()), *over, claimed
