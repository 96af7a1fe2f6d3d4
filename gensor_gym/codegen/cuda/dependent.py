"""Programmatic dependent launch (sm_90 and newer): a kernel's blocks start while the kernel before it on the stream still runs.

A kernel first waits until all earlier kernels are done and their memory is visible, then allows the next kernel to start
(`griddepcontrol`, PTX ISA). So only the launch overlaps, not the work, and order is kept along a chain of such kernels: the next
one waits for this one, which has waited for those before.
"""

from __future__ import annotations

import ctypes
import dataclasses
import re
from collections.abc import Sequence
from typing import Any

from gensor_gym.codegen.cuda.tensor_map import bindings
from gensor_gym.codegen.kernel import Kernel, Launch

_FIRST = 90
"""Compute capability 9.0, the first with the instructions."""
WAIT = "wait_for_grids"
_FUNCTIONS = f"""\
#ifndef EMULATOR  // which has its own
// Until all earlier kernels are done, and what they wrote is there.
__device__ __forceinline__ void {WAIT}() {{ asm volatile("griddepcontrol.wait;" ::: "memory"); }}
// Lets blocks of the next kernel start as soon as all blocks of this one have come here.
__device__ __forceinline__ void start_next_grid() {{ asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }}
#endif

"""


class LaunchError(RuntimeError):
    """The driver refused a launch."""


def dependent(kernel: Kernel) -> Kernel:
    """Return the kernel with entries that wait for earlier kernels, so that each may be launched before these are done.

    ValueError for other languages than CUDA, for a compiled kernel without source, and for machines before sm_90.
    """
    arch = kernel.in_language("cuda").arch
    if kernel.packed or int(arch.removeprefix("sm_").rstrip("a")) < _FIRST:
        raise ValueError(f"{kernel.operator} for {arch}: dependent launches take a source text, and sm_{_FIRST} or newer")
    source = kernel.source
    for entry in dict.fromkeys(launch.entry for launch in kernel.launches):
        begin = re.compile(rf"(__global__ [^{{;]*\b{entry}\([^{{;]*\) \{{\n)")
        source, count = begin.subn(rf"\1  {WAIT}();\n  start_next_grid();\n", source)
        assert count == 1, f"{entry} is defined once in\n{source}"
    return dataclasses.replace(kernel, source=_FUNCTIONS + source, dependent=True)


def launch_dependent(function: Any, launch: Launch, arguments: Sequence[Any], stream: int) -> None:
    """Launch an entry of a dependent kernel; it may start before earlier kernels of the stream are done.

    `function` is CuPy's, `arguments` are encoded tensor maps and arrays, `stream` is the stream's handle. LaunchError if the
    driver refuses it.
    """
    driver = bindings()
    kind, allowed = driver.CUlaunchAttribute(), driver.CUlaunchAttributeValue()
    kind.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
    allowed.programmaticStreamSerializationAllowed = 1
    kind.value = allowed
    config = driver.CUlaunchConfig()
    for axis, blocks, threads in zip("XYZ", launch.grid, launch.block, strict=True):
        setattr(config, f"gridDim{axis}", blocks)
        setattr(config, f"blockDim{axis}", threads)
    config.sharedMemBytes, config.hStream, config.attrs, config.numAttrs = launch.shared_bytes, stream, [kind], 1
    kept = [_value_of(one) for one in arguments]
    places = (ctypes.c_void_p * len(kept))(*(ctypes.addressof(one) for one in kept))
    (status,) = driver.cuLaunchKernelEx(config, function.kernel.ptr, ctypes.addressof(places), 0)
    if int(status):
        raise LaunchError(f"cuLaunchKernelEx of {launch.entry}: {status!r}")


def _value_of(argument: Any) -> Any:
    """Return the memory of an argument's value: a copy of an encoded tensor map, or the address of an array on the device."""
    if hasattr(argument, "tobytes") and argument.itemsize == 128:
        return ctypes.create_string_buffer(argument.tobytes(), 128)
    return ctypes.c_uint64(argument.data.ptr)
