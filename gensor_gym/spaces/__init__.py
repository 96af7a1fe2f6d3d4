"""Tuning spaces that other tuners recorded: reading and writing their files, moving through a space, and searching it.

A *tuning space* is a table: parameters, and the tried configurations with their results. The `recorded` backend is different:
it has timings of this project's schedules.
"""

from gensor_gym.spaces.compact import compacted
from gensor_gym.spaces.files import load_space, save_space
from gensor_gym.spaces.session import TuningSession
from gensor_gym.spaces.space import Parameter, TuningSpace

__all__ = ["Parameter", "TuningSession", "TuningSpace", "compacted", "load_space", "save_space"]
