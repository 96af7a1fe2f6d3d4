/* Runs the kernels of a network one after another. Its entry has the arguments of a kernel, so that whoever calls kernels calls
 * networks; `runtime` is the first field of `struct gg_network`.
 *
 * Kernels that keep packed weights keep their scratch beside them: `busy` is held while such a network runs. */
#include <pthread.h>
#include <stddef.h>

typedef void gg_entry(const void *const *inputs, void *output, void *workspace, const struct gg_runtime *runtime);

enum gg_base { GG_INPUT, GG_OUTPUT, GG_WORKSPACE, GG_FIXED };
enum { GG_MOST = 64 }; /* arrays of one kernel; Python refuses more */

/* An array: the number of an input or output of the network, or bytes from the start of its workspace or of fixed memory. */
struct gg_place {
    long base;
    size_t at;
};

/* A kernel with its arrays: `inputs` places, then `outputs`, then the workspace's. */
struct gg_step {
    gg_entry *entry;
    const struct gg_place *places;
    long inputs, outputs;
};

struct gg_network {
    struct gg_runtime runtime;
    const struct gg_step *steps;
    long count;
    char *fixed;
    long outputs;
    long exclusive;
    pthread_mutex_t busy;
};

void gg_network_init(struct gg_network *network) { pthread_mutex_init(&network->busy, NULL); }

static void *address(const struct gg_network *network, const struct gg_place *place, const void *const *inputs, void *output,
                     char *workspace) {
    switch (place->base) {
    case GG_INPUT:
        return (void *)inputs[place->at];
    case GG_OUTPUT:
        return network->outputs == 1 ? output : ((void *const *)output)[place->at];
    case GG_WORKSPACE:
        return workspace + place->at;
    default:
        return network->fixed + place->at;
    }
}

static void run_steps(const struct gg_network *network, const void *const *inputs, void *output, char *workspace) {
    for (const struct gg_step *step = network->steps; step < network->steps + network->count; step++) {
        const void *given[GG_MOST];
        void *made[GG_MOST];
        const struct gg_place *place = step->places;
        for (long i = 0; i < step->inputs; i++) given[i] = address(network, place++, inputs, output, workspace);
        for (long i = 0; i < step->outputs; i++) made[i] = address(network, place++, inputs, output, workspace);
        void *const own = address(network, place, inputs, output, workspace);
        step->entry(given, step->outputs == 1 ? made[0] : (void *)made, own, &network->runtime);
    }
}

void gg_network_run(const void *const *inputs, void *output, void *workspace, const struct gg_runtime *runtime) {
    struct gg_network *const network = (struct gg_network *)runtime;
    if (network->exclusive) pthread_mutex_lock(&network->busy);
    run_steps(network, inputs, output, workspace);
    if (network->exclusive) pthread_mutex_unlock(&network->busy);
}
