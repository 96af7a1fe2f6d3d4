/* A function of a module that TVM exported, as an entry that our workers load, verify and time like one of our own: the
 * same guarded buffers, the same loop in C around it. It goes through the C interface of tvm-ffi 0.1 (c_api.h, dlpack.h),
 * whose declarations it needs are below; the libraries are those of TVM's environment. Filled in by `tvm_kernel.py`. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

struct gg_runtime {
    int threads; /* what follows in runtime.h is not needed here */
};

typedef struct {
    int32_t type_index;
    uint32_t zero_padding;
    union {
        int64_t integer;
        void *pointer;
        const char *text;
    } value;
} Any;

typedef struct {
    const char *data;
    size_t size;
} Bytes;

typedef struct {
    void *data;
    int32_t device_type, device_id;
    int32_t ndim;
    uint8_t code, bits;
    uint16_t lanes;
    int64_t *shape, *strides;
    uint64_t byte_offset;
} Tensor;

enum { NONE = 0, BOOL = 2, TENSOR = 7, TEXT = 8, CPU = 1, FLOAT = 2 };

/* sha256 of the module: @DIGEST@ */
static const char *const libraries[] = {@LIBRARIES@};
static const char *const module_path = @MODULE@;
static const char *const function_name = @FUNCTION@;

static int (*call)(void *function, Any *arguments, int32_t count, Any *result);
static int (*get_global)(const Bytes *name, void **function);
static void *function;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static int threads;

@SHAPES@
static Tensor tensors[] = {@TENSORS@};
#define COUNT ((int)(sizeof tensors / sizeof *tensors))

/* The worker dies, and its last words are the trial's. */
static void fail(const char *what) {
    const char *why = dlerror();
    fprintf(stderr, "TVM's module %s: %s%s%s\n", module_path, what, why ? ": " : "", why ? why : "");
    abort();
}

static void *global(const char *name, size_t size) {
    const Bytes bytes = {name, size};
    void *found = NULL;
    if (get_global(&bytes, &found) != 0 || !found) fail(name);
    return found;
}
#define GLOBAL(name) global(name, sizeof name - 1)

static void load(void) {
    char text[16];
    snprintf(text, sizeof text, "%d", threads);
    setenv("TVM_NUM_THREADS", text, 1); /* read when its thread pool is made */
    void *last = NULL;
    for (size_t i = 0; i < sizeof libraries / sizeof *libraries; i++) {
        void *library = dlopen(libraries[i], RTLD_NOW | RTLD_GLOBAL);
        if (!library) fail("cannot load a library of TVM");
        if (!last) last = library;
    }
    call = (int (*)(void *, Any *, int32_t, Any *))dlsym(last, "TVMFFIFunctionCall");
    get_global = (int (*)(const Bytes *, void **))dlsym(last, "TVMFFIFunctionGetGlobal");
    if (!call || !get_global) fail("libtvm_ffi lacks a function");
    Any path = {TEXT, 0, {.text = module_path}}, module = {NONE, 0, {0}}, result = {NONE, 0, {0}};
    if (call(GLOBAL("ffi.ModuleLoadFromFile"), &path, 1, &module) != 0) fail("cannot be loaded");
    Any wanted[3] = {module, {TEXT, 0, {.text = function_name}}, {BOOL, 0, {.integer = 0}}};
    if (call(GLOBAL("ffi.ModuleGetFunction"), wanted, 3, &result) != 0 || result.type_index == NONE) fail("lacks its function");
    function = result.value.pointer;
}

void gg_tvm(const void *const *inputs, void *output, void *workspace, const struct gg_runtime *runtime) {
    (void)workspace;
    threads = runtime->threads;
    pthread_once(&once, load);
    Any arguments[COUNT], result = {NONE, 0, {0}};
    for (int i = 0; i < COUNT; i++) {
        tensors[i].data = i < COUNT - 1 ? (void *)inputs[i] : output;
        arguments[i] = (Any){TENSOR, 0, {.pointer = &tensors[i]}};
    }
    if (call(function, arguments, COUNT, &result) != 0) fail("its function failed");
}
