"""C++ texts for exported cubins: a header with a class for each kernel, which uses CUDA's driver API, and an example."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from gensor_gym.codegen.cuda.tensor_map import TensorMap, described
from gensor_gym.codegen.export.names import C_TYPES, Exports
from gensor_gym.codegen.kernel import Launch
from gensor_gym.codegen.runtime.cuda import OPT_IN_BYTES


def header(exports: Sequence[Exports], library: str) -> str:
    """Return the C++ text of the header, with one class per kernel in the namespace `library`."""
    return header_of(library, "\n".join(map(class_of, exports)))


def header_of(library: str, classes: str, includes: Sequence[str] = ("cstddef", "string")) -> str:
    """Return the C++ text of a header with the text `classes` in the namespace `library`."""
    guard = f"{library.upper()}_HPP"
    return f"""/* Kernels that gensor_gym generated; manifest.json says for what, and what is known of them. Link with -lcuda. */
#ifndef {guard}
#define {guard}
#include <cuda.h>

{chr(10).join(f"#include <{name}>" for name in includes)}

/* A kernel is loaded into the context that is current, on a device of its architecture. Arrays lie there, dense and in row-major
 * order, at multiples of 16 bytes; the output overlaps no input. The workspace is `workspace_bytes` long, and of one launch at a
 * time; its first `cleared_bytes` are zero before the first launch, and after each. 16-bit floating numbers are passed as their
 * bits. */
namespace {library} {{

{classes}
}}  // namespace {library}
#endif
"""


def class_of(one: Exports) -> str:
    """Return the C++ text of the class that loads, launches and unloads one kernel."""
    kernel, names = one.kernel, [name for name, _ in one.tensors]
    shapes = ", ".join(f"{name}{list(tensor.shape)} {tensor.dtype}" for name, tensor in one.tensors)
    arrays = [*names, "workspace"]
    pointers = ", ".join(f"CUdeviceptr {name}" for name in arrays)
    arguments = [*(f"map_{place}" for place in range(len(kernel.maps))), *arrays]
    loads = "\n".join(line for place, launch in enumerate(kernel.launches) for line in _loaded(place, launch))
    maps = "\n".join(line for place, a_map in enumerate(kernel.maps) for line in _encoded(place, a_map, arrays))
    launches = "\n".join(_launched(place, launch) for place, launch in enumerate(kernel.launches))
    return f"""/* {kernel.operator} for {kernel.arch}: {shapes} */
class {one.name} {{
  public:
    static constexpr std::size_t workspace_bytes = {kernel.workspace_bytes}, cleared_bytes = {kernel.cleared_bytes};

    CUresult load(const std::string &folder) {{
        CUresult status = cuModuleLoad(&module, (folder + "/{one.name}.cubin").c_str());
{loads}
        return status;
    }}

    CUresult unload() {{ return cuModuleUnload(module); }}

    /* Enqueues the kernel on a stream. */
    CUresult launch({pointers}, CUstream stream) const {{
        CUresult status = CUDA_SUCCESS;
{maps + chr(10) if maps else ""}        void *arguments[] = {{{", ".join(f"&{name}" for name in arguments)}}};
{launches}
        return status;
    }}

  private:
    CUmodule module = nullptr;
    CUfunction functions[{len(kernel.launches)}] = {{}};
}};
"""


def _loaded(place: int, launch: Launch) -> Iterator[str]:
    ok = "        if (status == CUDA_SUCCESS)"
    yield f'{ok} status = cuModuleGetFunction(&functions[{place}], module, "{launch.entry}");'
    if launch.shared_bytes > OPT_IN_BYTES:
        yield f"{ok}"
        attribute = "CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES"
        yield f"            status = cuFuncSetAttribute(functions[{place}], {attribute}, {launch.shared_bytes});"


def _encoded(place: int, tensor_map: TensorMap, names: Sequence[str]) -> Iterator[str]:
    """Yield lines of C++ that encode tensor map number `place` of a kernel; `names` are the variables of the arrays."""
    plain = described(tensor_map)
    lists = {name: ", ".join(map(str, plain[name])) for name in ("globalDim", "globalStrides", "boxDim", "elementStrides")}
    yield f"        CUtensorMap map_{place};"
    yield f"        const cuuint64_t sizes_{place}[] = {{{lists['globalDim']}}};"
    yield f"        const cuuint64_t strides_{place}[] = {{{lists['globalStrides'] or 0}}};"
    yield f"        const cuuint32_t box_{place}[] = {{{lists['boxDim']}}}, steps_{place}[] = {{{lists['elementStrides']}}};"
    address = f"reinterpret_cast<void *>({names[tensor_map.argument]} + {tensor_map.offset})"
    yield "        status = cuTensorMapEncodeTiled("
    kind = f"static_cast<CUtensorMapDataType>({plain['tensorDataType']})"
    yield f"            &map_{place}, {kind}, {plain['tensorRank']}, {address},"
    yield f"            sizes_{place}, strides_{place}, box_{place}, steps_{place},"
    kinds = ("CUtensorMapInterleave", "interleave"), ("CUtensorMapSwizzle", "swizzle"), ("CUtensorMapL2promotion", "l2Promotion")
    rest = [f"static_cast<{kind}>({plain[name]})" for kind, name in (*kinds, ("CUtensorMapFloatOOBfill", "oobFill"))]
    yield f"            {', '.join(rest)});"
    yield "        if (status != CUDA_SUCCESS) return status;"


def _launched(place: int, launch: Launch) -> str:
    shape = ", ".join(map(str, (*launch.grid, *launch.block, launch.shared_bytes)))
    return f"""        if (status == CUDA_SUCCESS)
            status = cuLaunchKernel(functions[{place}], {shape}, stream, arguments, nullptr);"""


_HELPERS = """\
#define CHECK(call)                                                        \\
    do {                                                                   \\
        const CUresult status = (call);                                    \\
        if (status != CUDA_SUCCESS) {                                      \\
            const char *name = "?";                                        \\
            cuGetErrorName(status, &name);                                 \\
            std::fprintf(stderr, "%s: %s\\n", #call, name);                 \\
            return 1;                                                      \\
        }                                                                  \\
    } while (0)

/* A whole number of -3 to 3 as an element, and an element as a number. */
template <class T> struct plain {
    static T made(int n) { return static_cast<T>(n); }
    static double value(T x) { return static_cast<double>(x); }
};
struct float16 {
    static std::uint16_t made(int n) {
        static const std::uint16_t bits[] = {0, 0x3c00, 0x4000, 0x4200};
        return static_cast<std::uint16_t>(bits[std::abs(n)] | (n < 0 ? 0x8000 : 0));
    }
    static double value(std::uint16_t x) {
        const int exponent = x >> 10 & 31, mantissa = x & 1023;
        const double size = exponent == 31  ? (mantissa ? NAN : INFINITY)
                            : exponent == 0 ? std::ldexp(mantissa, -24)
                                            : std::ldexp(1024 + mantissa, exponent - 25);
        return x >> 15 ? -size : size;
    }
};
struct bfloat16 {
    static std::uint16_t made(int n) {
        const float x = static_cast<float>(n);
        std::uint32_t bits;
        std::memcpy(&bits, &x, sizeof bits);
        return static_cast<std::uint16_t>(bits >> 16);
    }
    static double value(std::uint16_t x) {
        const std::uint32_t bits = static_cast<std::uint32_t>(x) << 16;
        float found;
        std::memcpy(&found, &bits, sizeof found);
        return found;
    }
};
"""


_FLOAT8 = """\
struct float8_e4m3fn {
    static std::uint8_t made(int n) {
        static const std::uint8_t bits[] = {0, 0x38, 0x40, 0x44};
        return static_cast<std::uint8_t>(bits[std::abs(n)] | (n < 0 ? 0x80 : 0));
    }
};
"""
"""C++ helper for float8 inputs in the example. No kernel writes float8, so it has no function `value`."""


def example(exports: Sequence[Exports], library: str) -> str:
    """Return the C++ text of a program that launches every kernel on small integers and prints checksums and times.

    The program's exit status is 0 if every call succeeded.
    """
    return example_of(exports, library, "\n".join(run_text(one, library, _FILLED) for one in exports))


def example_of(exports: Sequence[Exports], library: str, functions: str) -> str:
    """Return the C++ text of a program that calls `run_NAME(folder)` for every export.

    `functions` is the text that defines these functions.
    """
    calls = "\n".join(f"    if (run_{one.name}(folder) != 0) return 1;" for one in exports)
    return f"""/* g++ -std=c++17 example.cpp -o example -I$CUDA_HOME/include -lcuda && ./example [folder of the cubins] */
#include "{library}.hpp"

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

{_HELPERS}{_FLOAT8 if any(tensor.dtype == "float8_e4m3fn" for one in exports for _, tensor in one.inputs) else ""}
{functions}
int main(int count, char **words) {{
    const std::string folder = count > 1 ? words[1] : ".";
    CUdevice device;
    CUcontext context;
    CHECK(cuInit(0));
    CHECK(cuDeviceGet(&device, 0));
    CHECK(cuDevicePrimaryCtxRetain(&context, device));
    CHECK(cuCtxSetCurrent(context));
{calls}
    return 0;
}}
"""


_FILLED = (
    "CUdeviceptr workspace = 0;",
    "if (kernel.workspace_bytes > 0) CHECK(cuMemAlloc(&workspace, kernel.workspace_bytes));",
    "if (kernel.cleared_bytes > 0) CHECK(cuMemsetD8(workspace, 0, kernel.cleared_bytes));",
)
"""Lines of the C++ example that allocate the workspace of a kernel."""


def run_text(one: Exports, library: str, workspace: Sequence[str], ids: Mapping[str, int] | None = None) -> str:
    """Return the C++ text of the example's function that launches one kernel or network and prints a checksum and a time.

    `workspace` holds the lines that allocate the workspace, if any is needed. `ids` maps each input that holds row ids to the
    number of rows of its table.
    """
    lines = [f"{library}::{one.name} kernel;", "CHECK(kernel.load(folder));", *_allocated(one, ids or {})]
    launch = f"CHECK(kernel.launch({one.arguments}, {'workspace, ' if workspace else ''}nullptr));"
    lines += [
        *workspace,
        "CUevent begin, end;",
        "CHECK(cuEventCreate(&begin, CU_EVENT_DEFAULT));",
        "CHECK(cuEventCreate(&end, CU_EVENT_DEFAULT));",
        launch,
        "CHECK(cuEventRecord(begin, nullptr));",
        launch,
        "CHECK(cuEventRecord(end, nullptr));",
        "CHECK(cuEventSynchronize(end));",
        "float milliseconds = 0;",
        "CHECK(cuEventElapsedTime(&milliseconds, begin, end));",
        "double sum = 0;",
    ]
    for output, written in one.outputs:
        lines += [
            f"CHECK(cuMemcpyDtoH(host_{output}.data(), {output}, {written.nbytes}));",
            f"for (std::size_t i = 0; i < {written.size}; i++)",
            f"    sum += {_elements(written.dtype)}::value(host_{output}[i]) * static_cast<double>(i % 5 + 1);",
        ]
    lines += [
        f'std::printf("{one.name} %.17g %.3e s\\n", sum, 1e-3 * milliseconds);',
        *(f"CHECK(cuMemFree({name}));" for name, _ in one.tensors),
        *(["if (workspace != 0) CHECK(cuMemFree(workspace));"] if workspace else []),
        "CHECK(kernel.unload());",
        "return 0;",
    ]
    body = "\n".join(f"    {line}" for line in lines)
    return f"static int run_{one.name}(const std::string &folder) {{\n{body}\n}}\n"


def _allocated(one: Exports, ids: Mapping[str, int]) -> Iterator[str]:
    """Yield lines of C++ that allocate all arrays and fill the inputs with small integers.

    `ids` maps each input that holds row ids to the number of rows of its table.
    """
    for place, (name, tensor) in enumerate(one.tensors):
        given = place < len(one.inputs)
        yield f"std::vector<{C_TYPES[tensor.dtype]}> host_{name}({tensor.size});"
        if given:
            rows = ids.get(one.kernel.operator.inputs[place].name)
            number = f"i * {2 * place + 3} % {7 if rows is None else min(7, rows)}"
            filled = f"{_elements(tensor.dtype)}::made(static_cast<int>({number}){' - 3' if rows is None else ''})"
            yield f"for (std::size_t i = 0; i < {tensor.size}; i++) host_{name}[i] = {filled};"
        yield f"CUdeviceptr {name};"
        yield f"CHECK(cuMemAlloc(&{name}, {tensor.nbytes}));"
        if given:
            yield f"CHECK(cuMemcpyHtoD({name}, host_{name}.data(), {tensor.nbytes}));"


def _elements(dtype: str) -> str:
    """Return the C++ type of the example's helper that makes and reads elements of a data type."""
    return dtype if C_TYPES[dtype] == "uint16_t" or dtype == "float8_e4m3fn" else f"plain<{C_TYPES[dtype]}>"
