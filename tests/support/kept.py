"""Where compilations of tests are kept: found once, before any test has a cache of its own."""

from __future__ import annotations

from gensor_gym.cache.folders import private_dir
from tests.support import kept_compiler

KEPT = private_dir(kept_compiler.NAME)
KEEPING = kept_compiler.wrapped(KEPT)
"""What stands before the command line of a compiler; sources are absolute paths in a folder that holds nothing else."""
