"""Export of compiled kernels, their sources and a manifest to a folder.

C kernels become a shared library with a C header, CUDA kernels cubins with a C++ header.
"""

from gensor_gym.codegen.export.folder import Exported, check_folder
from gensor_gym.codegen.export.write import export

__all__ = ["Exported", "check_folder", "export"]
