"""Fused computations of several nodes, where one loop nest (`gensor_gym.operators`) does not say enough.

`Dataflow` is the graph, `parse` and `text_of` its text, `evaluate` its outputs in float64 with error bounds, `make` the operators
that are there by name. A scalar function is an entry of `scalars`, with its cost in `gensor_gym.gir.profile` and its text in
`gensor_gym.codegen.c.micro.functions` and `gensor_gym.codegen.gir.cuda.prelude`; a node is a class of `nodes`.
"""

from gensor_gym.dataflow.evaluate import evaluate
from gensor_gym.dataflow.graph import Dataflow
from gensor_gym.dataflow.suite import make
from gensor_gym.dataflow.text import parse, text_of

__all__ = ["Dataflow", "evaluate", "make", "parse", "text_of"]
