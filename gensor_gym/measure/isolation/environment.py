"""Environment variables of a worker process: settings of its libraries, and no secrets."""

from __future__ import annotations

from collections.abc import Mapping

NAMES = frozenset(
    {"PATH", "LANG", "LANGUAGE", "TZ", "TMPDIR", "LD_LIBRARY_PATH", "LD_PRELOAD", "GLIBC_TUNABLES", "VIRTUAL_ENV", "CONDA_PREFIX"}
)
PREFIXES = (
    "LC_", "PYTHON", "GENSOR_GYM_", "COV_CORE_", "COVERAGE_", "OMP_", "GOMP_", "KMP_", "MKL_", "OPENBLAS_", "BLIS_",
    "VECLIB_", "NUMEXPR_", "NPY_", "NUMBA_", "MALLOC_", "DNNL_", "ONEDNN_", "ATEN_", "TORCH_", "PYTORCH_", "TRITON_", "CUDA_",
    "CUPY_", "NVIDIA_", "NVRTC_", "HIP_", "ROCR_", "ROCM_",
)  # fmt: skip
OF_USER = frozenset({"HOME", "USER", "LOGNAME", "XDG_CACHE_HOME"})
"""Variables that name the user's folders. Only workers without isolation get them."""
_SECRETS = ("TOKEN", "SECRET", "PASSWORD", "PASSWD", "CREDENTIAL", "API_KEY")
"""Words that mark secrets: a variable whose name contains one of them is never passed on."""


def passed_on(variables: Mapping[str, str], extra: frozenset[str] = frozenset()) -> dict[str, str]:
    """Select the environment variables that a worker gets, with their values. `extra` names further variables to pass on."""
    return {
        name: value
        for name, value in variables.items()
        if (name in NAMES or name in extra or name.startswith(PREFIXES)) and not any(part in name.upper() for part in _SECRETS)
    }
