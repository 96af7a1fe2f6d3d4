"""Export of a network to a folder: a shared library with the weights inside, C header, sources, example, manifest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gensor_gym.codegen.export import Exported, check_folder, texts
from gensor_gym.codegen.export.folder import check_exports, entry, write_manifest
from gensor_gym.codegen.export.library import RUNTIME, Unit, write_library
from gensor_gym.codegen.export.names import Exports
from gensor_gym.codegen.kernel import Kernel, Launch
from gensor_gym.hardware.compiler import find_compiler
from gensor_gym.networks.layout import Layout
from gensor_gym.networks.load import NetworkFunction
from gensor_gym.networks.loops import tasks_together
from gensor_gym.networks.plan import Plan
from gensor_gym.networks.steps import Step

ENTRY = "gg_network_exported"
MOST_BYTES = (1 << 31) - (1 << 26)
"""Largest number of bytes of weights: 2 GB, the default reach of addresses in a library's code on x86, minus space for the code.
"""
_WEIGHTS = """/* Constants, packed weights and, beside those, scratch: pages that are written become the process's own. */
    .data
    .balign 64
    .globl gg_fixed
    .hidden gg_fixed
gg_fixed:
    .incbin "weights.bin"
    .section .note.GNU-stack,"",%progbits
"""


def export_network(
    plan: Plan, kernels: Sequence[Kernel], function: NetworkFunction, folder: str | Path, threads: int,
    known: Sequence[Mapping[str, Any]], library: str,
) -> Exported:  # fmt: skip
    """Write a loaded network with its packed weights into a folder, as a library that needs no Python.

    `known` has the manifest's facts about the kernel of each step.

    Raises:
        ValueError: for a folder with other content, a name that is not an identifier, or weights beyond `MOST_BYTES`.
        CompileError: with the compiler's message.
    """
    target, compiler = check_folder(folder), find_compiler()
    if function.layout.fixed_bytes > MOST_BYTES:
        raise ValueError(f"{plan.network}: weights of {function.layout.fixed_bytes} bytes, expected at most {MOST_BYTES}")
    numbers = {digest: number for number, digest in enumerate(dict.fromkeys(kernel.digest for kernel in kernels))}
    distinct = {kernel.digest: kernel for kernel in kernels}
    whole = _whole(plan, [numbers[kernel.digest] for kernel in kernels], kernels, function.layout)
    check_exports([one := Exports(whole)], library, "c")
    units = [Unit(f"piece_{number}", _piece(distinct[digest], number), whole.arch) for digest, number in numbers.items()]
    units.append(Unit("network", texts.kernel_file(one), whole.arch))
    others = {"weights.bin": function.fixed.tobytes(), "weights.S": _WEIGHTS.encode()}
    made = write_library([one], units, target, library, threads, compiler, others)
    steps = [
        {"source": f"piece_{numbers[kernel.digest]}.c", "operator": str(step.computation), "digest": kernel.digest,
         "packed_weights": kernel.prepacked, **more}
        for step, kernel, more in zip(plan.steps, kernels, known, strict=True)
    ]  # fmt: skip
    write_manifest(made, compiler.version, [entry(one)], threads=threads, plan=str(plan).splitlines(), steps=steps)
    return made


def _piece(kernel: Kernel, number: int) -> str:
    """Return the C text of a kernel, with `number` in the names of its functions so that they are unique in the library.

    Its packing function is never called, because weights are already packed.
    """
    packs = {kernel.prepares: f"pack_{number}", kernel.whole: f"whole_{number}"} if kernel.prepares else {}
    names = {kernel.launches[0].entry: f"piece_{number}"} | packs
    return "".join(f"#define {entry} {name}\n" for entry, name in names.items()) + kernel.source


def _whole(plan: Plan, numbers: Sequence[int], kernels: Sequence[Kernel], layout: Layout) -> Kernel:
    parts = ['#include "runtime.h"', (RUNTIME / "network.c").read_text("utf-8"), "extern char gg_fixed[];"]
    parts += [f"gg_entry piece_{number};" for number in dict.fromkeys(numbers)]
    steps = list(enumerate(zip(plan.steps, numbers, strict=True)))
    parts += [_places(place, step, layout) for place, (step, _) in steps]
    together = zip(tasks_together(plan.pieces, kernels), (int(piece.follows > 0) for piece in plan.pieces), strict=True)
    rows = [
        f"    {{piece_{number}, places_{place}, {len(step.reads)}, {len(step.writes)}, {tasks}, {goes_on}}},"
        for (place, (step, number)), (tasks, goes_on) in zip(steps, together, strict=True)
    ]
    exclusive = int(any(kernel.prepacked for kernel in kernels))
    parts += ["static const struct gg_step steps[] = {", *rows, "};"]
    parts.append(f"""static struct gg_network network = {{
    .steps = steps, .count = {len(rows)}, .fixed = gg_fixed, .outputs = {len(plan.network.outputs)}, .exclusive = {exclusive},
}};

gg_entry {ENTRY};
void {ENTRY}(const void *const *inputs, void *output, void *workspace, const struct gg_runtime *runtime) {{
    gg_network_run(&network, inputs, output, workspace, runtime);
}}
""")
    arch = kernels[0].arch
    return Kernel(plan.network.called, "c", arch, "\n".join(parts), (Launch(ENTRY),), layout.workspace_bytes)


def _places(number: int, step: Step, layout: Layout) -> str:
    found = [*(layout.values[name] for name in (*step.reads, *step.writes)), layout.workspaces[number]]
    places = ", ".join(f"{{GG_{place.base.name}, {place.at}, {place.before}}}" for place in found)
    return f"static const struct gg_place places_{number}[] = {{{places}}}; /* {step.computation} */"
