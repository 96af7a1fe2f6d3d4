"""C texts that accompany exported kernels: the header, the functions that it declares, and an example."""

from __future__ import annotations

from collections.abc import Sequence

from gensor_gym.codegen.export import kinds
from gensor_gym.codegen.export.kinds import Kind, kinds_of
from gensor_gym.codegen.export.names import C_TYPES, Exports

FEATURES = {
    "__AVX512F__": ("7, ebx, 16", "0xe6"), "__AVX512BW__": ("7, ebx, 30", "0xe6"), "__AVX512VL__": ("7, ebx, 31", "0xe6"),
    "__AVX512VNNI__": ("7, ecx, 11", "0xe6"), "__AVX2__": ("7, ebx, 5", "0x6"), "__FMA__": ("1, ecx, 12", "0x6"),
}  # fmt: skip
"""Compiler macro of an x86 extension -> (leaf, register and bit of CPUID, mask of required bits of XCR0).

XCR0 says which registers the operating system saves (Intel's manual, volume 1, 13.3 and 14.3). `__builtin_cpu_supports` is not
used, because it does not link with zig.
"""


def header(exports: Sequence[Exports], library: str) -> str:
    """Return the C text of the header, which declares the functions of all kernels and kinds."""
    guard = f"{library.upper()}_H"
    functions = "\n".join([*map(kinds.declared, kinds_of(exports)), *map(_declared, exports)])
    return f"""/* Kernels that gensor_gym generated, verified and timed; manifest.json says on what and how fast. */
#ifndef {guard}
#define {guard}
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {{
#endif

/* Arrays are dense, in row-major order; the output overlaps no input. A function returns 0, ENOMEM where no workspace can
 * be had, or ENOTSUP on a processor that lacks what it was compiled for. Functions may be called from several threads at a
 * time; those whose workspace is the caller's with a workspace each. Functions that take sizes choose the kernel of that shape;
 * of a pair, such as a stride, 0 is along the height and 1 along the width. */

/* Threads that kernels run on, the caller's among them, in this process: at first as many as they were tuned for. Not to be
 * called while a kernel runs. */
void {library}_set_threads(int threads);

{functions}
#ifdef __cplusplus
}}
#endif
#endif
"""


def _declared(one: Exports) -> str:
    shapes = ", ".join(f"{name}{list(tensor.memory)}" for name, tensor in one.tensors)
    return f"""/* {one.kernel.operator}: {shapes} */
int {one.name}({one.parameters});
/* The same with a workspace of the caller's, {one.name.upper()}_WORKSPACE bytes at a multiple of 64. */
#define {one.name.upper()}_WORKSPACE ((size_t){one.kernel.workspace_bytes})
int {one.name}_with({one.parameters}, void *workspace);
"""


def kernel_file(one: Exports) -> str:
    """Return a kernel's source with its entry renamed.

    A further C function checks that the processor has all required features.
    """
    checks = "\n".join(
        f"#ifdef {macro}\n    if (!gg_has({bit}) || !gg_saves({state})) return 0;\n#endif"
        for macro, (bit, state) in FEATURES.items()
    )
    entry = one.kernel.launches[0].entry
    return f"""#define {entry} {one.name}_kernel
#define {entry}_runs_here {one.name}_runs_here
{one.kernel.source}
{_CPUID}
int {entry}_runs_here(void);
int {entry}_runs_here(void) {{
{checks}
    return 1;
}}
"""


_CPUID = """#if defined(__AVX2__) || defined(__FMA__)
#include <cpuid.h>
enum { eax, ebx, ecx, edx };

static int gg_has(unsigned leaf, int place, int bit) {
    unsigned found[4];
    return __get_cpuid_count(leaf, 0, &found[0], &found[1], &found[2], &found[3]) && found[place] >> bit & 1;
}

/* Whether the system saves these registers when it switches threads. */
static int gg_saves(unsigned state) {
    unsigned low, high;
    if (!gg_has(1, ecx, 27)) return 0;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (low & state) == state;
}
#endif
"""

_WORKSPACE = """/* The calling thread's workspace of at least so many bytes; a null pointer where there is no memory.
 * It holds zeros or what kernels of floats left: lanes that are computed and thrown away read it, and denormal numbers, which
 * integers look like, are slow. */
static void *workspace_of(size_t bytes, int floats) {
    static char none;
    pthread_once(&once, start);
    if (bytes == 0) return &none;
    if (bytes > kept_bytes) {
        free(kept);
        kept_bytes = (bytes + 63) / 64 * 64;
        kept = aligned_alloc(64, kept_bytes);
        pthread_setspecific(key, kept);
        has_integers = 1;
        if (kept == NULL) {
            kept_bytes = 0;
            return NULL;
        }
    }
    if (floats && has_integers) {
        memset(kept, 0, kept_bytes);
        has_integers = 0;
    }
    has_integers |= !floats;
    return kept;
}
"""


def interface(exports: Sequence[Exports], library: str, threads: int) -> str:
    """Return the C definitions of the functions in the header.

    The functions run on `threads` threads unless the program has called `<library>_set_threads`.
    """
    functions = "\n".join([*(_defined(one) for one in exports), *map(kinds.defined, kinds_of(exports))])
    return f"""#include "{library}.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "runtime.h"

#define API __attribute__((visibility("default")))

void gg_runtime_init(struct gg_runtime *runtime, int threads);
typedef void gg_entry(const void *const *inputs, void *output, void *workspace, const struct gg_runtime *runtime);

static struct gg_runtime team;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t key; /* frees a thread's workspace when the thread ends */
static _Thread_local void *kept;
static _Thread_local size_t kept_bytes;
static _Thread_local int has_integers;

static void start(void) {{
    if (team.threads == 0) gg_runtime_init(&team, {threads});
    pthread_key_create(&key, free);
}}

API void {library}_set_threads(int threads) {{ gg_runtime_init(&team, threads); }}

{_WORKSPACE}
{functions}"""


def _defined(one: Exports) -> str:
    given, written = (", ".join(name for name, _ in part) for part in (one.inputs, one.outputs))
    several = len(one.outputs) > 1
    outputs = f"    void *const outputs[] = {{{written}}};\n" if several else ""
    return f"""gg_entry {one.name}_kernel;
int {one.name}_runs_here(void);

API int {one.name}_with({one.parameters}, void *workspace) {{
    if (!{one.name}_runs_here()) return ENOTSUP;
    pthread_once(&once, start);
    const void *const inputs[] = {{{given}}};
{outputs}    {one.name}_kernel(inputs, {"(void *)outputs" if several else written}, workspace, &team);
    return 0;
}}

API int {one.name}({one.parameters}) {{
    void *const workspace = workspace_of({one.name.upper()}_WORKSPACE, {int(one.kernel.operator.dtype != 'int8')});
    return workspace == NULL ? ENOMEM : {one.name}_with({one.arguments}, workspace);
}}
"""


def example(exports: Sequence[Exports], library: str) -> str:
    """Return the C text of a program that calls every kernel on small integers and prints checksums and times.

    The program's exit status is 0 if every call succeeded and calls with unknown sizes returned EINVAL.
    """
    kinds = kinds_of(exports)
    of_kind = {id(one): kind for kind in kinds for one in kind.exports}
    calls = "\n".join([*(_called(one, of_kind.get(id(one))) for one in exports), *map(_missed, kinds)])
    return f"""/* cc example.c -o example -L. -l{library} -Wl,-rpath,'$ORIGIN' && ./example */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "{library}.h"

static double now(void) {{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}}

int main(void) {{
{calls}    return 0;
}}
"""


def _missed(kind: Kind) -> str:
    return f'    if ({kind.missed()} != EINVAL) {{ fprintf(stderr, "{kind.name}: no EINVAL\\n"); return 1; }}\n'


def _called(one: Exports, kind: Kind | None) -> str:
    lines = []
    for name, tensor in one.tensors:
        element = C_TYPES[tensor.dtype]
        lines.append(f"{element} *{name} = malloc({tensor.size} * sizeof({element}));")
    for place, (name, tensor) in enumerate(one.inputs):
        one_as_bits = {"bfloat16": " + 0x3f80", "float16": " + 0x3c00"}
        value = f"({C_TYPES[tensor.dtype]})((i * {2 * place + 3}) % 7{one_as_bits.get(tensor.dtype, ' - 3')})"
        lines.append(f"for (long i = 0; i < {tensor.size}; i++) {name}[i] = {value};")
    lines += [
        f"int status = {kind.call(one) if kind else f'{one.name}({one.arguments})'};",
        f'if (status != 0) {{ fprintf(stderr, "{one.name}: status %d\\n", status); return 1; }}',
        "const double begin = now();",
        f"{one.name}({one.arguments});",
        "const double seconds = now() - begin;",
        "double sum = 0;",
        *(f"for (long i = 0; i < {t.size}; i++) sum += (double){name}[i] * (double)(i % 5 + 1);" for name, t in one.outputs),
        f'printf("{one.name} %.17g %.3e s\\n", sum, seconds);',
        *(f"free({name});" for name, _ in one.tensors),
    ]
    body = "\n".join(f"        {line}" for line in lines)
    return f"    {{\n{body}\n    }}\n"
