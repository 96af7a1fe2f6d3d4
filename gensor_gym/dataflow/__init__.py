"""Fused computations of several nodes, which one loop nest (`gensor_gym.operators`) cannot express.

`Dataflow` is the graph. `parse` and `text_of` read and write its text; `evaluate` computes its outputs in float64 with error
bounds; `make` makes fused operators by name. Nodes are the classes of `nodes`. A scalar function is an entry of `scalars`, with
its cost in `gensor_gym.gir.profile` and its text in `gensor_gym.codegen.c.micro.functions` and
`gensor_gym.codegen.gir.cuda.prelude`.
"""

from gensor_gym.dataflow.evaluate import evaluate
from gensor_gym.dataflow.graph import Dataflow
from gensor_gym.dataflow.suite import make
from gensor_gym.dataflow.text import parse, text_of

__all__ = ["Dataflow", "evaluate", "make", "parse", "text_of"]
