"""The Gymnasium environments; `register` enters `gensor_gym/Construct-v0` and `gensor_gym/Recorded-v0`."""

from __future__ import annotations

import gymnasium

CONSTRUCT = "gensor_gym/Construct-v0"
RECORDED = "gensor_gym/Recorded-v0"


def register() -> None:
    """Enter the environments in Gymnasium's registry, once."""
    if CONSTRUCT not in gymnasium.registry:
        gymnasium.register(
            id=CONSTRUCT,
            entry_point="gensor_gym.env.construct:ConstructEnv",
            vector_entry_point="gensor_gym.env.vector:ConstructVectorEnv",
        )
    if RECORDED not in gymnasium.registry:
        gymnasium.register(id=RECORDED, entry_point="gensor_gym.env.recorded:RecordedEnv")
