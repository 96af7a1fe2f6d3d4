"""Export of kernels, sources and a manifest to a folder: a shared library and C header, or cubins and a C++ header."""

from gensor_gym.codegen.export.folder import Exported, check_folder
from gensor_gym.codegen.export.write import export

__all__ = ["Exported", "check_folder", "export"]
