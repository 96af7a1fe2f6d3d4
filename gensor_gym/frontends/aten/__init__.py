"""Operations of ATen as nodes: name -> function of a builder and the operation's own arguments, values by name.

Torch's documentation defines the operations. ValueError names an unsupported argument.
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
