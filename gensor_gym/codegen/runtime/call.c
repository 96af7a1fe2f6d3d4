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

struct gg_pool { /* of one of a kernel's outputs */
    object *new_output; /* a function: an array that no array but its base refers to */
    /* From here on its own; begins as zeros. */
    struct gg_output outputs[KEPT];
    intptr_t kept;
};

/* `output` is where the output lies, or where the addresses of several stand. */
typedef void gg_entry(const void *const *inputs, void *output, void *workspace, const void *runtime);

struct gg_function {
    gg_entry *entry;
    const void *runtime;
    const void *ndarray;         /* the type */
    const struct gg_kind *kinds; /* of the inputs, then of the outputs */
    struct gg_pool *pools;       /* of the outputs */
    intptr_t inputs, outputs;
    object *new_workspace; /* a function: an address */
    /* From here on its own; begins as zeros. */
    void **idle_workspaces;
    intptr_t idle, workspaces;
};
_Static_assert(sizeof(struct gg_pool) == 14 * sizeof(void *) && sizeof(struct gg_function) == 11 * sizeof(void *),
               "function.py makes room for as much");

/* Where the elements of an array or tensor lie, or 0 where it is not dense, aligned and of this kind, or lacks one of `flags`. */
static char *data_of(const struct gg_function *f, object *given, const struct gg_kind *kind, int flags) {
    if (is_tensor(given)) return data_of_tensor(given, kind);
    const array *one = (const array *)given;
    const int plain = given->type == f->ndarray && one->dtype == kind->dtype && one->axes == kind->axes &&
                      (one->flags & flags) == flags && !memcmp(one->shape, kind->shape, (size_t)kind->axes * sizeof(intptr_t));
    return plain ? one->data : 0;
}

/* An array to which nothing else refers, or 0 with Python's error set. */
static object *take_output(struct gg_pool *pool, void **address) {
    for (intptr_t i = 0; i < pool->kept; i++) {
        const struct gg_output one = pool->outputs[i];
        if (one.owner->references != 1) continue;
        memmove(pool->outputs + 1, pool->outputs, (size_t)i * sizeof one); /* the one that was used last is the warmest */
        pool->outputs[0] = one;
        *address = one.address;
        py.hold(one.owner); /* what is collected meanwhile may run code that calls this kernel */
        py.hold(one.view);
        object *view = py.call(one.view);
        py.release(one.view);
        py.release(one.owner);
        return view;
    }
    object *made = py.call(pool->new_output);
    if (!made) return 0;
    struct gg_output one = {((array *)made)->base, py.attribute(made, "view"), ((array *)made)->data};
    py.release(made); /* its method holds it, it holds its base */
    object *view = one.view ? py.call(one.view) : 0;
    if (!view) {
        if (one.view) py.release(one.view);
        return 0;
    }
    object *last = pool->kept == KEPT ? pool->outputs[KEPT - 1].view : 0;
    if (!last) pool->kept++;
    memmove(pool->outputs + 1, pool->outputs, (size_t)(pool->kept - 1) * sizeof one);
    pool->outputs[0] = one;
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

static object *held(object *one) {
    py.hold(one);
    return one;
}

static int overlap(const char *one, intptr_t bytes, const char *other, intptr_t other_bytes) {
    return one < other + other_bytes && other < one + bytes;
}

/* Whether all inputs are as the kernel reads them; then where they lie. */
static int are_readable(const struct gg_function *f, object *const *given, const void **inputs) {
    for (intptr_t i = 0; i < f->inputs; i++)
        if (!(inputs[i] = data_of(f, given[i], f->kinds + i, C_CONTIGUOUS | ALIGNED))) return 0;
    return 1;
}

/* Whether the kernel may write the caller's outputs, apart from these inputs and from one another; then where they lie. */
static int are_writable(const struct gg_function *f, object *const *given, const void *const *inputs, void **outputs) {
    const struct gg_kind *kinds = f->kinds + f->inputs;
    for (intptr_t i = 0; i < f->outputs; i++) {
        char *data = outputs[i] = data_of(f, given[i], kinds + i, C_CONTIGUOUS | ALIGNED | WRITEABLE);
        if (!data) return 0;
        for (intptr_t j = 0; j < f->inputs; j++)
            if (overlap(data, kinds[i].bytes, inputs[j], f->kinds[j].bytes)) return 0;
        for (intptr_t j = 0; j < i; j++)
            if (overlap(data, kinds[i].bytes, outputs[j], kinds[j].bytes)) return 0;
    }
    return 1;
}

/* Computes, without the lock; 0 with Python's error set where there is no workspace. */
static int run(struct gg_function *f, const void *const *inputs, void **outputs) {
    void *workspace = take_workspace(f);
    if (!workspace) return 0;
    void *state = py.unlock();
    f->entry(inputs, f->outputs == 1 ? outputs[0] : outputs, workspace, f->runtime);
    py.lock(state);
    f->idle_workspaces[f->idle++] = workspace;
    return 1;
}

/* The output, or a tuple of several, as arrays or tensors, in the place of these arrays; 0 with Python's error set. */
static object *returned(const struct gg_function *f, object **made, int as_tensors) {
    int all_made = 1;
    for (intptr_t i = 0; as_tensors && i < f->outputs; i++)
        all_made &= (made[i] = tensor_of((array *)made[i], f->kinds + f->inputs + i)) != 0;
    if (f->outputs == 1) return made[0];
    object *all = all_made ? py.new_tuple(f->outputs) : 0;
    for (intptr_t i = 0; i < f->outputs; i++) {
        if (all) py.put(all, i, made[i]);
        else if (made[i]) py.release(made[i]);
    }
    return all;
}

/* The output for the inputs, of several a tuple, in the library of the first; None where Python is to look at them. `self` is the
 * address of a gg_function as a Python integer. */
object *gg_python_call(object *self, object *const *given, intptr_t count) {
    struct gg_function *f = py.pointer_of(self);
    const void *inputs[f->inputs + 1]; /* an operator may have none */
    if (count != f->inputs || !are_readable(f, given, inputs)) return held(py.none);
    object *made[f->outputs];
    void *outputs[f->outputs];
    intptr_t taken = 0;
    while (taken < f->outputs && (made[taken] = take_output(f->pools + taken, outputs + taken))) taken++;
    if (taken == f->outputs && run(f, inputs, outputs)) return returned(f, made, count > 0 && is_tensor(given[0]));
    while (taken > 0) py.release(made[--taken]);
    return 0;
}

/* Fills in the caller's own outputs, which follow the inputs: the first of them, or None where Python is to look at them. */
object *gg_python_fill(object *self, object *const *given, intptr_t count) {
    struct gg_function *f = py.pointer_of(self);
    const void *inputs[f->inputs + 1];
    void *outputs[f->outputs];
    object *const *own = given + f->inputs;
    if (count != f->inputs + f->outputs || !are_readable(f, given, inputs) || !are_writable(f, own, inputs, outputs))
        return held(py.none);
    return run(f, inputs, outputs) ? held(own[0]) : 0;
}

void gg_python_init(const struct gg_python *python) { py = *python; }

/* Lets go of what a function keeps; it is not called any more. */
void gg_python_forget(struct gg_function *f) {
    for (struct gg_pool *pool = f->pools; pool < f->pools + f->outputs; pool++)
        while (pool->kept > 0) py.release(pool->outputs[--pool->kept].view);
    free(f->idle_workspaces);
    f->idle_workspaces = 0;
}
