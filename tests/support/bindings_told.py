"""What the bindings of CUDA that a process finds say: `python -m tests.support.bindings_told` prints it as JSON. Needs no
driver."""

from __future__ import annotations

import json
from types import ModuleType

from gensor_gym import operators
from gensor_gym.codegen.cuda import nvrtc, tensor_map
from gensor_gym.codegen.cuda.tensor_map import TensorMap
from gensor_gym.codegen.kernel import Kernel, Launch
from gensor_gym.operators.types import ITEM_BYTES

DTYPES = {"int8": 0, "int32": 3, "float16": 6, "float32": 7, "bfloat16": 9, "tf32": 11}
SWIZZLES = {0: 0, 32: 1, 64: 2, 128: 3}
"""Numbers of data types and of swizzles in `cuda.h`."""
EXPECTED = {f"{d} {s}": [n, 0, SWIZZLES[s], 3, 0] for d, n in DTYPES.items() for s in SWIZZLES if s == 0 or d == "float32"}
"""What `numbers_of` returns for a module that is right."""

COPY = 'extern "C" __global__ void copy(const float *x, float *y, float *w) { y[threadIdx.x] = x[threadIdx.x]; }'


def map_of(dtype: str, swizzle: int = 0) -> TensorMap:
    """A box of rows of 16 bytes."""
    columns = 16 // (ITEM_BYTES | {"tf32": 4})[dtype]
    return TensorMap(0, dtype, (8, columns), (16,), (8, columns), swizzle)


def numbers_of(driver: ModuleType) -> dict[str, list[int]]:
    """What a driver is told for every data type and for every swizzle: type, interleaving, swizzle, promotion, fill."""
    told = {}
    for made in [map_of(dtype) for dtype in DTYPES] + [map_of("float32", swizzle) for swizzle in SWIZZLES]:
        fields = tensor_map._fields(driver, made, 4096)
        told[f"{made.dtype} {made.swizzle}"] = [int(fields[at]) for at in (0, 7, 8, 9, 10)]
    return told


def kernel_of(source: str) -> Kernel:
    """A kernel with this text."""
    return Kernel(operators.elementwise("copy", 4), "cuda", "sm_90", source, (Launch("copy"),), 0)


def main() -> None:
    """Numbers, what NVRTC makes of a kernel and of what is none, and the words of a machine without a driver."""
    from cuda.bindings import driver

    told: dict[str, object] = {"file": driver.__file__, "numbers": numbers_of(driver), "version": nvrtc.version()}
    told["kind"] = type(driver.CUtensorMapDataType).__name__
    told["registers"] = nvrtc.compile_cubin(kernel_of(COPY), cache=False).registers
    try:
        nvrtc.compile_cubin(kernel_of("no CUDA"), cache=False)
    except nvrtc.NvrtcError as error:
        told["refused"] = str(error)
    try:
        tensor_map.encode(map_of("float32"), 8)
    except tensor_map.TensorMapError as error:
        told["map"] = str(error)
    print(json.dumps(told))


if __name__ == "__main__":
    main()
