"""Rules that turn operations of ATen into nodes. A rule is a function of a builder and the operation's arguments.

Tensors are names of the builder's values, and a rule returns the names of its results. Torch's documentation defines the
operations. A rule raises ValueError for an unsupported argument.
"""

from gensor_gym.frontends.aten import (
    choices,
    functions,
    images,
    maps,
    moves,
    norms,
    places,
    products,
    quantized,
    quotients,
    ranks,
    recurrences,
    reductions,
    written,
)

__all__ = [
    "choices", "functions", "images", "maps", "moves", "norms", "places", "products", "quantized", "quotients", "ranks",
    "recurrences", "reductions", "written",
]  # fmt: skip
