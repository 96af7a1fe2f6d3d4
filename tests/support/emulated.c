/* Runs kernels one after the other: their inputs from standard input, their outputs to standard output.
 *
 * `program THREADS 1`: every tensor ends where a page begins that may not be touched, and the workspace begins behind such a
 * page. `program THREADS 0`: these pages may be read, for emulators that read what a mask leaves out. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "runtime.h"

typedef void entry(const void *const *inputs, void *output, void *workspace, const struct gg_runtime *runtime);
void gg_runtime_init(struct gg_runtime *runtime, int threads);

struct kernel {
    entry *run;
    size_t count, inputs[8], output, workspace; /* bytes, and how many inputs there are */
};

/* Declarations of the kernels, and `kernels`. */
#include "table.h"

static int guards;

static char *between_pages(size_t bytes, int at_end) {
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), inner = (bytes + page - 1) / page * page;
    char *const start = mmap(NULL, inner + 2 * page, guards ? PROT_NONE : PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (start == MAP_FAILED || (inner && mprotect(start + page, inner, PROT_READ | PROT_WRITE))) {
        perror("memory between pages");
        exit(3);
    }
    memset(start + page, 0xff, inner);
    return start + page + (at_end ? inner - bytes : 0);
}

int main(int count, char **arguments) {
    struct gg_runtime team;
    if (count != 3) return 2;
    gg_runtime_init(&team, atoi(arguments[1]));
    guards = atoi(arguments[2]);
    for (size_t k = 0; k < sizeof kernels / sizeof *kernels; k++) {
        const struct kernel *const kernel = &kernels[k];
        const void *inputs[8];
        fprintf(stderr, "kernel %zu\n", k); /* the last line says which one ended the program */
        for (size_t i = 0; i < kernel->count; i++) {
            char *const input = between_pages(kernel->inputs[i], 1);
            if (fread(input, 1, kernel->inputs[i], stdin) != kernel->inputs[i]) return 4;
            inputs[i] = input;
        }
        char *const output = between_pages(kernel->output, 1);
        kernel->run(inputs, output, between_pages(kernel->workspace, 0), &team);
        if (fwrite(output, 1, kernel->output, stdout) != kernel->output) return 5;
    }
    return 0;
}
