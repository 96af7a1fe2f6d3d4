"""Rules that turn operations of ATen, torch's operator library, into nodes of a network.

A rule is a function of a builder (`frontends.builder`) and the operation's arguments. It gets tensors as names of the builder's
values, adds nodes, and returns the names of its results. Torch's documentation defines the operations. A rule raises ValueError
for an unsupported argument.
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
    transforms,
    written,
)

__all__ = [
    "choices", "functions", "images", "maps", "moves", "norms", "places", "products", "quantized", "quotients", "ranks",
    "recurrences", "reductions", "transforms", "written",
]  # fmt: skip
