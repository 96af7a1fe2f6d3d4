"""Export of kernels to a folder: a shared library with a C header or cubins with a C++ header, sources, and a manifest."""

from gensor_gym.codegen.export.folder import Exported, check_folder
from gensor_gym.codegen.export.write import export

__all__ = ["Exported", "check_folder", "export"]
