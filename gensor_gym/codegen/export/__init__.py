"""Taking kernels away: a shared library with a C header, or cubins with a C++ one; sources, and what is known of every kernel."""

from gensor_gym.codegen.export.folder import Exported, check_folder
from gensor_gym.codegen.export.write import export

__all__ = ["Exported", "check_folder", "export"]
