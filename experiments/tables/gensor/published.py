"""Numbers printed in Gensor's paper (arXiv 2502.11407).

Values of figures were measured from the pictures, to about 0.01 for ratios and 5 % for times on a logarithmic axis. Tables V and
VI were copied. The authors measured on an RTX 4090 (24 GB, with an i7-13700K) or a Jetson Orin Nano (8 GB, 15 W). Warm-up,
repeats and the number of Ansor's trials are not stated in the sources available to us. The rates suggest float32, which is
assumed.
"""

from __future__ import annotations

import numpy as np

from gensor_gym import operators
from gensor_gym.operators.types import Operator

CLASSES = {"C": "conv2d", "M": "gemm", "V": "gemv", "P": "avg_pool2d"}
"""First letter of an operator's name in the paper -> its class in this project."""

FIGURE_6 = {
    "C1": (0.71, 0.49, 0.74), "C2": (0.88, 0.65, 0.76), "C3": (0.89, 0.10, 0.61), "C4": (1.52, 0.65, 0.85),
    "C5": (2.41, 1.80, 1.91), "C6": (0.32, 0.57, 0.82), "M1": (1.36, 0.86, 1.03), "M2": (0.90, 0.95, 1.00),
    "M3": (1.46, 0.96, 1.00), "M4": (1.11, 0.44, 0.67), "M5": (1.46, 0.98, 1.13), "M6": (0.91, 0.96, 1.00),
    "M7": (0.81, 0.97, 1.00), "M8": (1.61, 0.75, 0.80), "M9": (1.27, 0.79, 0.84), "V1": (0.98, 0.48, 0.99),
    "V2": (0.99, 0.49, 0.77), "V3": (0.56, 0.13, 0.45), "V4": (0.21, 0.48, 0.71), "V5": (0.85, 0.49, 0.51),
    "V6": (0.97, 0.49, 0.53), "P1": (1.50, 0.92, 1.20), "P2": (1.63, 0.64, 0.75), "P3": (1.41, 0.67, 0.78),
}  # fmt: skip
"""Published on an RTX 4090: FLOPS of (vendor library, Roller, Gensor) relative to Ansor's, by operator."""

FIGURE_7 = {
    "C1": (1.38, 0.55, 0.64), "C2": (0.94, 0.06, 0.08), "C3": (0.64, 0.50, 0.63), "M10": (1.68, 1.37, 1.62),
    "M11": (0.73, 0.89, 0.99), "M12": (1.53, 0.97, 1.12), "M13": (2.12, 0.92, 1.13), "V1": (0.78, 0.48, 0.54),
    "V2": (1.45, 0.91, 0.95), "V3": (2.14, 0.92, 0.99), "V4": (0.84, 0.47, 0.74), "V5": (1.17, 0.65, 0.87),
}  # fmt: skip
"""Published on an Orin Nano: FLOPS of (vendor library, Roller, Gensor) relative to Ansor's, by operator."""

TABLE_V = {
    "T1": ((18.9, 17.1), (50.9, 46.7), (99.6, 92.7), (0.287, 0.303)),
    "T2": ((83.9, 76.3), (64.1, 61.7), (66.5, 51.7), (0.369, 0.387)),
    "T3": ((69.2, 61.2), (82.1, 80.3), (99.2, 95.1), (0.083, 0.091)),
}
"""Published on an RTX 4090: pairs (Gensor, Ansor) of compute, memory busy and L2 hits in percent, and milliseconds."""

TABLE_VI = {
    "conv2d": ((22.76, 46.36, 21.42), (31.93, 51.92, 24.77), (34.54, 52.17, 25.48)),
    "gemm": ((37.6, 59.50, 42.80), (43.1, 63.81, 60.12), (45.2, 64.11, 64.06)),
    "gemv": ((0.23, 18.24, 3.67), (0.39, 22.13, 23.96), (0.47, 24.24, 24.80)),
    "avg_pool2d": ((0.07, 1.74, 26.98), (0.08, 3.08, 36.88), (0.08, 3.44, 42.90)),
}
"""Published on an RTX 4090, one operator of each class: (TFLOPS, occupancy %, memory busy %) of three strategies.

The strategies are Roller, Gensor without virtual threads, and Gensor.
"""

SIZES = tuple(2**power for power in range(7, 16))
FIGURE_8 = {
    "Ansor": (509.0, 606.0, 591.0, 653.0, 670.0, 1080.0, 4160.0, 12500.0, 43800.0),
    "AutoTVM": (279.0, 272.0, 217.0, 138.0, 161.0, 265.0, 722.0, 882.0, 798.0),
    "Roller": (0.28, 0.23, 0.20, 0.20, 0.19, 0.19, 0.19, 0.19, 0.19),
    "Gensor": (3.0, 2.2, 2.6, 2.1, 2.7, 2.9, 2.4, 2.9, 2.9),
}
"""Published on an RTX 4090: seconds to compile a GEMM of extents n x n x n, for each n of SIZES."""

FIGURE_10 = {"Roller": (9.5, 3.52, 9.5), "Gensor": (18.0, 4.35, 42.0), "Ansor": (1040.0, 5.03, 1840.0)}
"""Published on an RTX 4090, ResNet-34 at batch 128: three numbers for each strategy.

They are the seconds to the first code, the final thousand frames per second, and the seconds until then. Roller was ready between
8 and 11 s; its entry is the middle.
"""
FIGURE_10_CURVES = {
    "Roller": ((9.5, 3.52),), "Gensor": ((23.0, 3.0), (26.0, 4.1), (42.0, 4.35)), "Ansor": ((1140.0, 4.4), (1840.0, 5.03)),
}  # fmt: skip
"""Points (seconds, thousand frames per second) of the published curves of figure 10."""

LENGTHS = (20, 50, 100, 200, 500)
FIGURE_11 = {
    "PyTorch": (0.57, 0.59, 0.56, 0.58, 0.59),
    "DietCode": (0.94, 1.02, 0.95, 0.95, 0.76),
    "Gensor": (1.07, 1.17, 1.09, 1.07, 1.16),
}
"""Published on an RTX 4090, a small BERT: rates relative to Roller's, for each sequence length of LENGTHS."""

FIGURE_12 = {"PyTorch": 1826.0, "Roller": 1495.0, "Gensor": 1419.0}
"""Published on an RTX 4090: seconds of 4 x 2000 inferences of MobileNetV2, whose channels change three times.

The network is optimised each time. Ansor was still optimising after 3000 s.
"""

SOURCE = "arXiv 2502.11407, measured by its authors; values of figures were read off their pictures."


def class_means(figure: dict[str, tuple[float, float, float]], of: str | None) -> tuple[float, float, float, float]:
    """Return geometric mean speeds over a class: (library, Roller, Gensor) relative to Ansor, and Gensor relative to Roller.

    `figure` has the published speeds of one figure. If `of` is None, all classes are included.
    """
    rows = [values for name, values in figure.items() if of is None or CLASSES[name[0]] == of]
    library, roller, gensor = np.exp(np.log(rows).mean(axis=0)).tolist()
    return library, roller, gensor, gensor / roller


# The stand-in set: operators that replace those of Gensor's Table IV, whose shapes are not public in our sources.
#
# Each class has as many operators as in the figures. Three matrix products are the paper's own (Table V; the order of their
# extents is uncertain). The other convolutions, products and pools are Roller's, in the order of its artifact, because Gensor
# is built on it. Matrix-vector products have common shapes. An operator of the stand-in set is never compared with an operator
# of the paper; only means over a class are.

NAMED = (
    "The operators are the stand-in set (see docs/tables.md): the shapes of the paper's Table IV are not public where we looked, "
    "so means over a class are set side by side, never single operators."
)

GEMV = tuple(f"common/gemv_{size}" for size in ("4096x4096", "11008x4096", "16384x1000", "16384x8192", "1000x2048", "1024x1024"))
RTX_4090 = (
    *(f"roller/C{i}" for i in range(6)), *(f"gensor_table5/T{i}" for i in range(1, 4)), *(f"roller/M{i}" for i in range(6)),
    *GEMV, *(f"roller/P{i}" for i in range(3)),
)  # fmt: skip
ORIN = (*(f"roller/C{i}" for i in range(3)), *(f"gensor_table5/T{i}" for i in range(1, 4)), "roller/M1", *GEMV[:5])
HOST = (
    "ansor/C2D1_b1", "ansor/C2D2_b1", "ansor/C2D3_b1", "ansor/GMM2_b1", "common/gemm_128x3072x768", "gensor_table5/T3",
    "common/gemv_4096x4096", "common/gemv_1000x2048", "common/avg_16x128x56_2s2p0", "common/avg_16x288x35_3s1p1",
)  # fmt: skip
"""Names of smaller operators for two cores, with batch 1 if there is a choice."""


def stand_in(names: tuple[str, ...], limit: int | None = None) -> dict[str, list[Operator]]:
    """Return the operators with these names by class, at most `limit` of each class."""
    found: dict[str, list[Operator]] = {}
    for op in operators.resolve(names):
        found.setdefault(op.name, []).append(op)
    return {name: ops[:limit] for name, ops in found.items()}
