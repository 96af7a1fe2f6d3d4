"""Taking kernels away: a shared library with a C header, its sources, and what is known of every kernel in it."""

from gensor_gym.codegen.export.library import Exported, check_folder, export

__all__ = ["Exported", "check_folder", "export"]
