"""Published results of oneDNN Graph Compiler (Li et al., arXiv 2301.01333, charts of the RFC in oneDNN's repository), float32.

They are speed-ups over oneDNN's primitives with post-ops: of fine-grain fusion, and of coarse-grain fusion in addition. They were
measured from the pictures, to about 0.02. The authors used 32 cores of a CPU that the charts do not name, and benchdnn with one
thread per core.
"""

from __future__ import annotations

MLP = {
    "mlp_1": {32: (1.37, 1.58), 64: (1.27, 1.39), 128: (1.13, 1.36), 256: (1.17, 1.27), 512: (1.53, 1.85)},
    "mlp_2": {32: (0.96, 1.00), 64: (0.96, 1.06), 128: (0.91, 1.00), 256: (0.94, 1.01), 512: (1.01, 1.01)},
}
"""Network -> batch -> speed-ups (fine, fine and coarse)."""
MHA = {
    "mha_1": {32: (1.16, 1.30), 64: (1.03, 1.28), 128: (1.24, 1.62)},
    "mha_2": {32: (1.30, 1.60), 64: (1.11, 1.48), 128: (1.28, 1.86)},
    "mha_3": {32: (1.44, 1.82), 64: (1.32, 1.68), 128: (1.38, 1.76)},
    "mha_4": {32: (1.64, 2.55), 64: (1.82, 2.84), 128: (2.17, 3.34)},
}
SMALL = 8
"""Batch at which this project also times MHA_3 and MHA_4; no published value exists."""
