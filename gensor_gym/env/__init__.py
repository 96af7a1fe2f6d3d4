"""The Gymnasium environments; `register` enters `gensor_gym/Construct-v0`, `gensor_gym/Gir-v0` and `gensor_gym/Recorded-v0`."""

from __future__ import annotations

import gymnasium

CONSTRUCT = "gensor_gym/Construct-v0"
RECORDED = "gensor_gym/Recorded-v0"
GIR = "gensor_gym/Gir-v0"


def register() -> None:
    """Enter the environments in Gymnasium's registry, once."""
    if CONSTRUCT not in gymnasium.registry:
        gymnasium.register(
            id=CONSTRUCT,
            entry_point="gensor_gym.env.construct:ConstructEnv",
            vector_entry_point="gensor_gym.env.vector:ConstructVectorEnv",
        )
    if GIR not in gymnasium.registry:
        gymnasium.register(
            id=GIR,
            entry_point="gensor_gym.env.fused.env:GirEnv",
            vector_entry_point="gensor_gym.env.fused.env:GirVectorEnv",
        )
    if RECORDED not in gymnasium.registry:
        gymnasium.register(id=RECORDED, entry_point="gensor_gym.env.recorded:RecordedEnv")
