/* Runs a network for inputs that are smaller than its own (after `network.c`). Inputs are copied to the start of larger arrays,
 * whose other elements are zeroed; results are copied from the start of larger arrays. */
#include <string.h>

/* How a smaller array lies in a larger one: extents of the axes from the outermost changing one, bytes of an element of these.
 * `room`: the larger array; 0 where both have one shape, so that the network reads or writes the caller's. */
struct gg_fit {
    long axes;
    const long *small, *big;
    size_t block;
    char *room;
};

struct gg_sized {
    struct gg_network *network, *lock; /* of the network that runs; of all that share its weights */
    const struct gg_fit *inputs, *outputs;
    const void *const *given; /* inputs that are the same at every call of this size; they come last */
    long count, more;
    char *workspace;
};

struct gg_sized_loaded {
    struct gg_runtime runtime;
    const struct gg_sized *sized;
};

static size_t bytes_of(const struct gg_fit *fit, const long *extents, long axis) {
    size_t bytes = fit->block;
    for (long d = axis; d < fit->axes; d++) bytes *= (size_t)extents[d];
    return bytes;
}

/* Copies the smaller array `from` into the larger one; returns what follows it. */
static const char *widen(const struct gg_fit *fit, long axis, char *to, const char *from) {
    if (axis == fit->axes) {
        memcpy(to, from, fit->block);
        return from + fit->block;
    }
    const size_t step = bytes_of(fit, fit->big, axis + 1);
    if (step == bytes_of(fit, fit->small, axis + 1)) {
        memcpy(to, from, step * (size_t)fit->small[axis]);
        from += step * (size_t)fit->small[axis];
    } else
        for (long i = 0; i < fit->small[axis]; i++) from = widen(fit, axis + 1, to + (size_t)i * step, from);
    memset(to + step * (size_t)fit->small[axis], 0, step * (size_t)(fit->big[axis] - fit->small[axis]));
    return from;
}

/* Copies the smaller array out of the larger one; returns what follows it. */
static char *narrow(const struct gg_fit *fit, long axis, char *to, const char *from) {
    const size_t step = bytes_of(fit, fit->big, axis + 1);
    if (axis == fit->axes || step == bytes_of(fit, fit->small, axis + 1)) {
        const size_t bytes = bytes_of(fit, fit->small, axis);
        memcpy(to, from, bytes);
        return to + bytes;
    }
    for (long i = 0; i < fit->small[axis]; i++) to = narrow(fit, axis + 1, to, from + (size_t)i * step);
    return to;
}

void gg_sized_entry(const void *const *inputs, void *output, void *workspace, const struct gg_runtime *runtime);
void gg_sized_entry(const void *const *inputs, void *output, void *workspace, const struct gg_runtime *runtime) {
    const struct gg_sized *const sized = ((const struct gg_sized_loaded *)runtime)->sized;
    struct gg_network *const network = sized->network;
    const void *read[sized->count + sized->more + 1];
    void *made[network->outputs], *own[network->outputs];
    (void)workspace;
    hold(sized->lock);
    for (long i = 0; i < sized->count; i++) {
        const struct gg_fit *const fit = sized->inputs + i;
        if (fit->room) widen(fit, 0, fit->room, inputs[i]);
        read[i] = fit->room ? fit->room : inputs[i];
    }
    for (long i = 0; i < sized->more; i++) read[sized->count + i] = sized->given[i];
    for (long i = 0; i < network->outputs; i++) {
        own[i] = network->outputs == 1 ? output : ((void *const *)output)[i];
        made[i] = sized->outputs[i].room ? sized->outputs[i].room : own[i];
    }
    const struct gg_given given = {network, read, network->outputs == 1 ? made[0] : (void *)made, sized->workspace};
    run_steps(&given, runtime);
    for (long i = 0; i < network->outputs; i++)
        if (sized->outputs[i].room) narrow(sized->outputs + i, 0, own[i], sized->outputs[i].room);
    pthread_mutex_unlock(&sized->lock->busy);
}
