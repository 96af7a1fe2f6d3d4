"""Reduces a space to a small file: the median of each configuration's raw samples replaces the samples."""

from __future__ import annotations

from typing import Any

from gensor_gym.spaces import kernel_tuner, t4
from gensor_gym.spaces.convert import FAILURE
from gensor_gym.spaces.space import TuningSpace

DIGITS = 5
"""Number of significant digits of a time that are kept. Two timings of one kernel agree in far fewer."""


def compacted(space: TuningSpace) -> TuningSpace:
    """Return a space without raw samples, costs and other content of its file, so that it can be saved in few bytes.

    The reported time becomes the median. Failures keep only the kinds that a cache file distinguishes. Without samples only equal
    times are ties, and a trial costs one run. ValueError if two configurations have the same key.
    """
    names = [p.name for p in space.parameters]
    seconds = space.seconds("median")
    keys_tell = all("," not in str(value) for p in space.parameters for value in p.values)
    cache: dict[str, Any] = {}
    for i, status in enumerate(space.status):
        configuration = space.configuration(i)
        key = ",".join(map(str, configuration.values()))
        if key in cache:
            raise ValueError(f"{space.source}: two configurations have the key {key!r}, which a cache cannot hold")
        failure = FAILURE.get(t4.INVALIDITY.get(status, ""), "RuntimeFailedConfig")
        found = {"time": float(f"{seconds[i] * 1e3:.{DIGITS}g}")} if space.ok[i] else {"__error__": failure}
        cache[key] = found if keys_tell else {**configuration, **found}
    document = {
        "device_name": space.device, "kernel_name": space.kernel, "tune_params_keys": names,
        "tune_params": {p.name: list(p.values) for p in space.parameters}, "objective": "time", "cache": cache,
    }  # fmt: skip
    return kernel_tuner.space_of(document, space.source)
