"""Wrap a module that TVM exported as a kernel that our workers can verify and time."""

from __future__ import annotations

import hashlib
import itertools
import json
import operator
from collections.abc import Sequence
from pathlib import Path

from gensor_gym.codegen.kernel import Kernel, Launch
from gensor_gym.codegen.runtime.threads import ARCH
from gensor_gym.operators.types import Operator

ENTRY = "gg_tvm"
FUNCTION = "main"
"""Name of the function in TVM's module."""


def tvm_kernel(op: Operator, module: Path, libraries: Sequence[Path]) -> Kernel:
    """Kernel whose entry calls TVM's function through its C interface (`tvm_call.c`), with TVM's own thread pool.

    `libraries` are loaded before the module in their order, libtvm_ffi first. The digest covers the module's content. ValueError
    for data types other than float32 and for a missing file.
    """
    tensors = (*op.inputs, op.output)
    if other := {tensor.dtype for tensor in tensors} - {"float32"}:
        raise ValueError(f"TVM's kernels are compared in float32, got {', '.join(sorted(other))} in {op}")
    if missing := [str(path) for path in (module, *libraries) if not path.exists()]:
        raise ValueError(f"there is no file {', '.join(missing)}")
    values = {
        "DIGEST": hashlib.sha256(module.read_bytes()).hexdigest(),
        "LIBRARIES": ", ".join(json.dumps(str(path.resolve())) for path in libraries),
        "MODULE": json.dumps(str(module.resolve())),
        "FUNCTION": json.dumps(FUNCTION),
        "SHAPES": "\n".join(_sizes(i, tensor.shape) for i, tensor in enumerate(tensors)),
        "TENSORS": ", ".join(
            f"{{NULL, CPU, 0, {len(tensor.shape)}, FLOAT, 32, 1, shape{i}, strides{i}, 0}}" for i, tensor in enumerate(tensors)
        ),
    }
    source = Path(__file__).with_name("tvm_call.c").read_text(encoding="utf-8")
    for name, value in values.items():
        source = source.replace(f"@{name}@", value)
    return Kernel(op, "c", ARCH, source, (Launch(ENTRY),), 0)


def _sizes(number: int, shape: tuple[int, ...]) -> str:
    """C definitions of the arrays of a tensor's extents and strides."""
    strides = list(itertools.accumulate(reversed(shape[1:]), operator.mul, initial=1))[::-1]
    return "\n".join(
        f"static int64_t {name}{number}[] = {{{', '.join(map(str, values))}}};"
        for name, values in (("shape", shape), ("strides", strides))
    )
