"""Draw the pictures of README and docs with the real code: `python -m docs.make_images [FOLDER]` (default docs/images).

Walks on an H200 are by the analytic model; times of the H100 and of processors are read from what ships. Nothing is timed here.
The pictures change when rules, model or those files change.
"""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from PIL import Image

from agents import get_strategy
from docs.pictures import answer, beside, concepts, growing, networks, result
from experiments.common import style
from gensor_gym import ConstructionGraph, Schedule, hardware
from gensor_gym.dataflow import make
from gensor_gym.env.fused import pictures
from gensor_gym.env.pictures.render import as_image
from gensor_gym.gir.graph import GirGraph
from gensor_gym.gir.schedule import GirSchedule

FOLDER = Path(__file__).resolve().parent / "images"
HARDWARE = "h200"
PROGRAM = "conv2d(n=16, c=64, h=56, w=56, k=64, r=3, s=3, padding=1)"
FUSED, FUSED_SCHEDULE = ("layernorm", 4096, 768), "vector=16 tile=2 rows=4 loop=16 streaming=1 place=dram,sram"
WALK = "gemm(m=512, n=384, k=1000)"
MARKS = {"tile": ("o", style.PALETTE[0]), "cache": ("s", style.PALETTE[1]), "set_vthread": ("^", style.PALETTE[3])}
CACHE = next(i for i, action in enumerate(ConstructionGraph.actions) if action.primitive == "cache")


def constructed(operator: str) -> tuple[ConstructionGraph, Schedule]:
    """The traverser's best program by the model, with its graph."""
    graph = ConstructionGraph(operator, HARDWARE, "gensor")
    return graph, get_strategy("markov").construct(graph, np.random.default_rng(0)).schedules[0]


def greedy_walk(graph: ConstructionGraph) -> list[tuple[str, Schedule]]:
    """(action, schedule) of every step of a walk to the best neighbour; where none is better, on to the next level."""
    path = [("", graph.initial())]
    while True:
        here = path[-1][1]
        after = graph.successors(here)
        best = min(after, key=lambda action: graph.latency(after[action]))
        if graph.latency(after[best]) >= graph.latency(here):
            best = CACHE
        if best not in after:
            return path
        path.append((graph.actions[best].primitive, after[best]))


def random_walk(graph: ConstructionGraph, steps: int, rng: np.random.Generator) -> list[Schedule]:
    """A walk over legal actions drawn uniformly, `stop` left out."""
    path = [graph.initial()]
    for _ in range(steps):
        after = list(graph.successors(path[-1]).values())
        path.append(after[int(rng.integers(len(after)))])
    return path


def draw_walks(path: Path) -> None:
    """Latency by the model along two walks, beside the traverser's program and the roofline floor."""
    graph, best = constructed(WALK)
    walk = greedy_walk(graph)
    wandering = random_walk(graph, len(walk) - 1, np.random.default_rng(1))
    seconds = [graph.latency(s) for _, s in walk]
    with plt.rc_context(style.RC):
        figure, axes = plt.subplots(figsize=(9.0, 4.2), layout="constrained")
        axes.plot([graph.latency(s) for s in wandering], color="#8C8C8C", linewidth=1.4, label="random walk")
        axes.plot(seconds, color=style.PALETTE[0], linewidth=1.7, label="always to the best neighbour")
        for name, (marker, colour) in MARKS.items():
            at = [i for i, (action, _) in enumerate(walk) if action == name]
            if at:
                dots = [seconds[i] for i in at]
                axes.plot(at, dots, marker, color=colour, markersize=6, markeredgecolor="white", label=name)
        axes.axhline(graph.latency(best), color=style.PALETTE[2], linewidth=1.5, label="traverser's program (markov)")
        axes.axhline(graph.floor, color=style.INK, linestyle=(0, (4, 3)), linewidth=1.1, label="roofline floor")
        axes.set_xlabel("steps from the unscheduled program")
        axes.set_ylabel("latency by the model")
        axes.set_title(f"Constructing {WALK} on {HARDWARE}: analytic model, nothing timed")
        style.time_axis(axes)
        axes.legend(loc="upper right", ncols=2)
        style.save(figure, path, "both")


def main(folder: Path) -> None:
    """Draw all pictures."""
    folder.mkdir(parents=True, exist_ok=True)
    style.small(Image.fromarray(as_image(*constructed(PROGRAM))), folder / "conv2d_h200.png")
    graph = GirGraph(make(*FUSED), hardware.get("cascade_lake"))
    (folder / "fused").mkdir(exist_ok=True)
    style.small(Image.fromarray(pictures.as_image(graph, GirSchedule.parse(FUSED_SCHEDULE))), folder / "fused" / "layernorm.png")
    draw_walks(folder / "walk_h200.png")
    concepts.draw(folder / "concepts")
    result.draw(folder / "result.png")
    answer.draw(folder / "results" / "answer.png")
    growing.save(folder)
    networks.draw(folder / "networks")
    beside.draw(folder / "networks" / "beside.png")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)
