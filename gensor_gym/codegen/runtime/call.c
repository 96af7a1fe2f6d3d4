/* A kernel as a builtin function of CPython: the way from arrays of NumPy, or tensors of torch, to the loop and back, without
 * interpreted code.
 *
 * Arguments that are not dense arrays with the right shape and type are left to Python: the answer is then None. The
 * lock of the interpreter guards all that is kept here, and is given away while the kernel runs. Nothing is linked: what is
 * needed of Python comes as pointers, and the heads of its objects and of NumPy's arrays are those that extensions compiled
 * against them rely on (`function.py` holds them to it).
 *
 * Outputs keep their pages. Fresh memory costs a page fault for every 4 KiB at its first touch, which for a matrix of some
 * megabytes takes as long as a third of its product. NumPy makes the array that owns memory the end of every chain of bases,
 * and views, memoryviews, DLPack capsules and tensors hold their array; so the owner's reference count says whether anything
 * of it lives, and where nothing does the memory is handed out again. */
enum { KEPT = 4 /* outputs whose memory is kept; more that live at a time are the caller's alone */ };
enum { C_CONTIGUOUS = 0x1, ALIGNED = 0x100, WRITEABLE = 0x400 }; /* flags of NumPy's C interface */

struct gg_output {
    object *owner, *view; /* the array that owns the memory; the method that makes one more array on it */
    void *address;
};

typedef void gg_entry(const void *const *inputs, void *output, void *workspace, const void *runtime);

struct gg_function {
    gg_entry *entry;
    const void *runtime;
    const void *ndarray;         /* the type */
    const struct gg_kind *kinds; /* of the inputs, then of the output */
    intptr_t inputs;
    object *new_output, *new_workspace; /* functions: an array that no array but its base refers to; an address */
    /* From here on its own; begins as zeros. */
    struct gg_output outputs[KEPT];
    void **idle_workspaces;
    intptr_t kept, idle, workspaces;
};

/* Where the elements of an array or tensor lie, or 0 where it is not dense, aligned and of this kind, or lacks one of `flags`. */
static char *data_of(const struct gg_function *f, object *given, const struct gg_kind *kind, int flags) {
    if (is_tensor(given)) return data_of_tensor(given, kind);
    const array *one = (const array *)given;
    const int plain = given->type == f->ndarray && one->dtype == kind->dtype && one->axes == kind->axes &&
                      (one->flags & flags) == flags && !memcmp(one->shape, kind->shape, (size_t)kind->axes * sizeof(intptr_t));
    return plain ? one->data : 0;
}

/* An array to which nothing else refers, or 0 with Python's error set. */
static object *take_output(struct gg_function *f, void **address) {
    for (intptr_t i = 0; i < f->kept; i++) {
        const struct gg_output one = f->outputs[i];
        if (one.owner->references != 1) continue;
        memmove(f->outputs + 1, f->outputs, (size_t)i * sizeof one); /* the one that was used last is the warmest */
        f->outputs[0] = one;
        *address = one.address;
        py.hold(one.owner); /* what is collected meanwhile may run code that calls this kernel */
        py.hold(one.view);
        object *view = py.call(one.view);
        py.release(one.view);
        py.release(one.owner);
        return view;
    }
    object *made = py.call(f->new_output);
    if (!made) return 0;
    struct gg_output one = {((array *)made)->base, py.attribute(made, "view"), ((array *)made)->data};
    py.release(made); /* its method holds it, it holds its base */
    object *view = one.view ? py.call(one.view) : 0;
    if (!view) {
        if (one.view) py.release(one.view);
        return 0;
    }
    object *last = f->kept == KEPT ? f->outputs[KEPT - 1].view : 0;
    if (!last) f->kept++;
    memmove(f->outputs + 1, f->outputs, (size_t)(f->kept - 1) * sizeof one);
    f->outputs[0] = one;
    if (last) py.release(last); /* its memory goes when the caller lets go of it */
    *address = one.address;
    return view;
}

/* A workspace that no other call uses, or 0 with Python's error set. */
static void *take_workspace(struct gg_function *f) {
    if (f->idle > 0) return f->idle_workspaces[--f->idle];
    object *made = py.call(f->new_workspace);
    if (!made) return 0;
    void *address = py.pointer_of(made);
    py.release(made);
    void **places = realloc(f->idle_workspaces, (size_t)(f->workspaces + 1) * sizeof *places);
    if (!places) abort(); /* of a few pointers */
    f->idle_workspaces = places; /* room for all there are: to give one back never fails */
    f->workspaces++;
    return address;
}

static int overlap(const char *one, intptr_t bytes, const char *other, intptr_t other_bytes) {
    return one < other + other_bytes && other < one + bytes;
}

/* Where the caller's output lies, or 0 where the kernel may not write it beside these inputs. */
static char *data_apart(const struct gg_function *f, object *output, const void *const *inputs) {
    const struct gg_kind *kind = f->kinds + f->inputs;
    char *data = data_of(f, output, kind, C_CONTIGUOUS | ALIGNED | WRITEABLE);
    for (intptr_t i = 0; data && i < f->inputs; i++)
        if (overlap(data, kind->bytes, inputs[i], f->kinds[i].bytes)) return 0;
    return data;
}

/* The output for the inputs, in the library of the first, and for the caller's own output where one array more is given; None
 * where Python is to look at them. `self` is the address of a gg_function as a Python integer. */
object *gg_python_call(object *self, object *const *given, intptr_t count) {
    struct gg_function *f = py.pointer_of(self);
    const void *inputs[f->inputs + 1]; /* an operator may have none */
    object *output = py.none;
    void *address = 0, *workspace = 0;
    int ours = count == f->inputs || count == f->inputs + 1;
    for (intptr_t i = 0; ours && i < f->inputs; i++)
        ours = (inputs[i] = data_of(f, given[i], f->kinds + i, C_CONTIGUOUS | ALIGNED)) != 0;
    if (ours && count > f->inputs) {
        ours = (address = data_apart(f, given[f->inputs], inputs)) != 0;
        if (ours) output = given[f->inputs];
    }
    if (!ours || address) py.hold(output);
    if (!ours) return output;
    const int makes_tensor = !address && count > 0 && is_tensor(given[0]);
    if (!address && !(output = take_output(f, &address))) return 0;
    if (!(workspace = take_workspace(f))) {
        py.release(output);
        return 0;
    }
    void *state = py.unlock();
    f->entry(inputs, address, workspace, f->runtime);
    py.lock(state);
    f->idle_workspaces[f->idle++] = workspace;
    return makes_tensor ? tensor_of((array *)output, f->kinds + f->inputs) : output;
}

void gg_python_init(const struct gg_python *python) { py = *python; }

/* Lets go of what a function keeps; it is not called any more. */
void gg_python_forget(struct gg_function *f) {
    while (f->kept > 0) py.release(f->outputs[--f->kept].view);
    free(f->idle_workspaces);
    f->idle_workspaces = 0;
}
