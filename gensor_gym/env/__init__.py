"""The Gymnasium environments.

`register` registers `gensor_gym/Construct-v0`, `Write-v0`, `Gir-v0`, `Fuse-v0`, `Kernel-v0` and
`Recorded-v0`.
"""

from __future__ import annotations

import gymnasium

CONSTRUCT = "gensor_gym/Construct-v0"
RECORDED = "gensor_gym/Recorded-v0"
GIR = "gensor_gym/Gir-v0"
WRITE = "gensor_gym/Write-v0"
FUSE = "gensor_gym/Fuse-v0"
KERNEL = "gensor_gym/Kernel-v0"


def register() -> None:
    """Register the environments with Gymnasium, unless they are registered already."""
    if CONSTRUCT not in gymnasium.registry:
        gymnasium.register(
            id=CONSTRUCT,
            entry_point="gensor_gym.env.construct:ConstructEnv",
            vector_entry_point="gensor_gym.env.vector:ConstructVectorEnv",
        )
    if WRITE not in gymnasium.registry:
        gymnasium.register(
            id=WRITE,
            entry_point="gensor_gym.env.writing.env:WriteEnv",
            vector_entry_point="gensor_gym.env.writing.env:WriteVectorEnv",
        )
    if GIR not in gymnasium.registry:
        gymnasium.register(
            id=GIR,
            entry_point="gensor_gym.env.fused.env:GirEnv",
            vector_entry_point="gensor_gym.env.fused.env:GirVectorEnv",
        )
    if FUSE not in gymnasium.registry:
        gymnasium.register(
            id=FUSE,
            entry_point="gensor_gym.env.planning.env:FuseEnv",
            vector_entry_point="gensor_gym.env.planning.env:FuseVectorEnv",
        )
    if KERNEL not in gymnasium.registry:
        gymnasium.register(id=KERNEL, entry_point="gensor_gym.env.kernel.env:KernelEnv")
    if RECORDED not in gymnasium.registry:
        gymnasium.register(id=RECORDED, entry_point="gensor_gym.env.recorded:RecordedEnv")
