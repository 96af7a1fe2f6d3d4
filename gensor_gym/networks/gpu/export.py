"""Export of a network on a GPU: a cubin per distinct kernel, weights, a C++ header on CUDA's driver API, a manifest.

The header's class keeps all arrays in one block of memory and captures the launches as a CUDA graph, as `LoadedNetwork` does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from gensor_gym.codegen.cuda import nvrtc
from gensor_gym.codegen.export import Exported, check_folder
from gensor_gym.codegen.export.cubins import written
from gensor_gym.codegen.export.cuda_texts import class_of, example_of, header_of, run_text
from gensor_gym.codegen.export.folder import check_exports, entry, write_manifest
from gensor_gym.codegen.export.names import Exports
from gensor_gym.codegen.kernel import Kernel
from gensor_gym.codegen.runtime.cuda_arrays import ALIGNMENT
from gensor_gym.networks.arena import rounded
from gensor_gym.networks.gpu.memory import Task, Tasks
from gensor_gym.networks.layout import Base, Place
from gensor_gym.networks.plan import Plan
from gensor_gym.operators.types import Tensor

WEIGHTS = "weights.bin"
_READ = """\
    CUresult read(const std::string &path) {
        std::vector<char> bytes(weights_bytes);
        std::FILE *file = std::fopen(path.c_str(), "rb");
        if (file == nullptr) return CUDA_ERROR_FILE_NOT_FOUND;
        const bool whole = std::fread(bytes.data(), 1, bytes.size(), file) == bytes.size();
        std::fclose(file);
        if (!whole) return CUDA_ERROR_INVALID_IMAGE;
        return bytes.empty() ? CUDA_SUCCESS : cuMemcpyHtoD(memory + WEIGHTS_AT, bytes.data(), bytes.size());
    }

"""
"""C++ text of the function that reads the weights into the block at WEIGHTS_AT."""
_CAPTURE = """\
    CUresult capture() {
        CUstream own;
        CUgraph captured = nullptr;
        CUresult status = cuStreamCreate(&own, CU_STREAM_NON_BLOCKING);
        if (status != CUDA_SUCCESS) return status;
        status = cuStreamBeginCapture(own, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
        if (status == CUDA_SUCCESS) {
            const CUresult enqueued = enqueue(own);
            status = cuStreamEndCapture(own, &captured);
            if (enqueued != CUDA_SUCCESS) status = enqueued;
        }
        if (status == CUDA_SUCCESS) status = cuGraphInstantiateWithFlags(&graph, captured, 0);
        if (captured != nullptr) cuGraphDestroy(captured);
        cuStreamDestroy(own);
        return status;
    }

"""
"""C++ text of the function that captures all launches as a graph."""
INCLUDES = ("cstddef", "cstdio", "string", "vector")


def export_gpu_network(
    plan: Plan, kernels: Sequence[Kernel], tasks: Tasks, folder: str | Path, known: Sequence[Mapping[str, Any]], library: str
) -> Exported:
    """Write a GPU's network into a folder that needs no Python. NVRTC compiles the kernels; no GPU is needed.

    `known` has the manifest's facts about the kernel of each step. ValueError for a folder with other content, or a name that is
    not an identifier; NvrtcError with the compiler's message.
    """
    target = check_folder(folder)
    whole = Exports(Kernel(tasks.called, "cuda", kernels[0].arch if kernels else "", "", (), 0))
    check_exports([whole], library, "cuda")
    target.mkdir(parents=True, exist_ok=True)
    pieces = {kernel.digest: Exports(kernel, f"piece_{n}") for n, kernel in enumerate({k.digest: k for k in kernels}.values())}
    entries, binaries = [], []
    for one in pieces.values():
        binary, about = written(one, target)
        binaries.append(binary)
        entries.append(entry(one, **about))
    (target / WEIGHTS).write_bytes(tasks.fixed().tobytes())
    header = target / f"{library}.hpp"
    classes = [*map(class_of, pieces.values()), Whole(whole, pieces, tasks).text()]
    header.write_text(header_of(library, "\n".join(classes), INCLUDES), encoding="utf-8")
    run = run_text(whole, library, (), tasks.called.id_limits)
    (target / "example.cpp").write_text(example_of([whole], library, run), encoding="utf-8")
    made = Exported(target, tuple(binaries), header, target / "manifest.json")
    steps = [
        {"cubin": f"{pieces[kernel.digest].name}.cubin", "operator": str(step.computation), **more}
        for step, kernel, more in zip(plan.steps, kernels, known, strict=True)
    ]
    write_manifest(made, f"nvrtc {nvrtc.version()}", entries, network=entry(whole), plan=str(plan).splitlines(), steps=steps)
    return made


class Whole:
    """Generates the C++ class of a network: positions of its arrays in one block of memory, and launches of all kernels."""

    def __init__(self, one: Exports, pieces: Mapping[str, Exports], tasks: Tasks) -> None:
        """Lay out the block of memory for all arrays.

        It has inputs, outputs, workspace, weights, and copies of arrays that are not aligned to 16 bytes.
        """
        self.one, self.pieces, self.tasks = one, pieces, tasks
        self.arrays: list[int] = []
        end = 0
        for _, tensor in one.tensors:
            self.arrays.append(end)
            end += rounded(tensor.nbytes)
        self.workspace, self.weights = end, end + rounded(tasks.layout.workspace_bytes)
        self.copies = self.weights + rounded(tasks.layout.fixed_bytes)
        """Offset in the block of the memory for copies of unaligned arrays, which all kernels share."""
        self.launches = "\n".join(line for task in tasks.listed for line in self._step(task))
        self.nbytes = self.copies + max(map(self._copied, tasks.listed), default=0)

    def text(self) -> str:
        """Return the C++ text of the class, which loads, launches and unloads the network."""
        name, tensors = self.one.name, self.one.tensors
        shapes = ", ".join(f"{name}{list(tensor.shape)} {tensor.dtype}" for name, tensor in tensors)
        pointers = ", ".join(f"CUdeviceptr {name}" for name, _ in tensors)
        return f"""/* {self.one.kernel.operator} for {self.one.kernel.arch}: {shapes} */
class {name} {{
  public:
    static constexpr std::size_t memory_bytes = {max(1, self.nbytes)}, weights_bytes = {self.tasks.layout.fixed_bytes};

{self._load_text()}
    /* Enqueues the network on a stream. A launch on another stream has to wait for its end, because they share memory. */
    CUresult launch({pointers}, CUstream stream) const {{
        CUresult status = CUDA_SUCCESS;
{self._moves(True)}
        if (status == CUDA_SUCCESS) status = cuGraphLaunch(graph, stream);
{self._moves(False)}
        return status;
    }}

  private:
{_READ.replace('WEIGHTS_AT', str(self.weights))}{_CAPTURE}    CUresult enqueue(CUstream stream) const {{
        CUresult status = CUDA_SUCCESS;
{self.launches}
        return status;
    }}

    CUdeviceptr memory = 0;
    CUgraphExec graph = nullptr;
{chr(10).join(f"    {one.name} {one.name}_;" for one in self.pieces.values())}
}};
"""

    def _load_text(self) -> str:
        pieces = [one.name for one in self.pieces.values()]
        return f"""\
    /* Loads the kernels and weights of a folder into memory of its own, and captures all launches as a graph. */
    CUresult load(const std::string &folder) {{
        CUresult status = cuMemAlloc(&memory, memory_bytes);
        if (status == CUDA_SUCCESS) status = cuMemsetD8(memory, 0, memory_bytes);
        if (status == CUDA_SUCCESS) status = read(folder + "/{WEIGHTS}");
{chr(10).join(_checked(f"{name}_.load(folder)") for name in pieces)}
        if (status == CUDA_SUCCESS) status = capture();
        return status;
    }}

    CUresult unload() {{
        CUresult status = cuGraphExecDestroy(graph);
{chr(10).join(_checked(f"{name}_.unload()") for name in pieces)}
        if (status == CUDA_SUCCESS) status = cuMemFree(memory);
        return status;
    }}
"""

    def _at(self, place: Place) -> int:
        inputs = len(self.one.inputs)
        if place.base in (Base.INPUT, Base.OUTPUT):
            return self.arrays[place.at + (0 if place.base is Base.INPUT else inputs)] + place.before
        return (self.workspace if place.base is Base.WORKSPACE else self.weights) + place.at + place.before

    def _placed(self, task: Task) -> list[tuple[int, int, Tensor]]:
        """Return (offset in the block, offset that the kernel gets, tensor) for each array of a kernel.

        The two offsets differ if the array is not aligned and must be copied.
        """
        op, copy, found = task.kernel.operator, self.copies, []
        for place, tensor in zip((*task.reads, *task.writes), (*op.inputs, *op.outputs), strict=True):
            at = self._at(place)
            found.append((at, at if at % ALIGNMENT == 0 else copy, tensor))
            copy += 0 if at % ALIGNMENT == 0 else rounded(tensor.nbytes)
        return found

    def _copied(self, task: Task) -> int:
        return sum(rounded(tensor.nbytes) for at, given, tensor in self._placed(task) if at != given)

    def _step(self, task: Task) -> Iterator[str]:
        """Yield the statements that enqueue a kernel, with copies of arrays that it cannot use in place."""
        placed, inputs = self._placed(task), len(task.reads)
        yield f"        /* {task.kernel.operator} */"
        yield from (_copy(f"memory + {given}", f"memory + {at}", t.nbytes) for at, given, t in placed[:inputs] if at != given)
        arrays = ", ".join(f"memory + {offset}" for offset in [*(given for _, given, _ in placed), self._at(task.workspace)])
        yield _checked(f"{self.pieces[task.kernel.digest].name}_.launch({arrays}, stream)")
        yield from (_copy(f"memory + {at}", f"memory + {given}", t.nbytes) for at, given, t in placed[inputs:] if at != given)

    def _moves(self, given: bool) -> str:
        """Return the C++ statements that copy the inputs into the block (`given`), or the outputs out of it."""
        lines, inputs = [], len(self.one.inputs)
        for place, (at, (name, tensor)) in enumerate(zip(self.arrays, self.one.tensors, strict=True)):
            if (place < inputs) == given:
                to, of = (f"memory + {at}", name) if given else (name, f"memory + {at}")
                lines.append(_copy(to, of, tensor.nbytes))
        return "\n".join(lines)


def _checked(call: str) -> str:
    """Return a C++ statement that makes a call unless an earlier call failed."""
    return f"        if (status == CUDA_SUCCESS) status = {call};"


def _copy(to: str, of: str, nbytes: int) -> str:
    return _checked(f"cuMemcpyDtoDAsync({to}, {of}, {nbytes}, stream)")
