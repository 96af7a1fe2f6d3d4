"""Operations of ATen as nodes: name -> function of a builder and the operation's own arguments, values by name.

What an operation does is said by torch's documentation of it. ValueError names an argument that has no kernels here.
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
    quotients,
    ranks,
    recurrences,
    reductions,
    written,
)

__all__ = [
    "choices", "functions", "images", "maps", "moves", "norms", "places", "products", "quotients", "ranks", "recurrences",
    "reductions", "written",
]  # fmt: skip
