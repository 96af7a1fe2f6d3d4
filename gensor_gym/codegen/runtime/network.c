/* Runs the kernels of a network one after another. Who calls kernels calls networks: both entries have a kernel's arguments.
 *
 * Kernels that keep packed weights keep their scratch beside them: `busy` is held while such a network runs. */
#include <pthread.h>
#include <stddef.h>

typedef void gg_entry(const void *const *inputs, void *output, void *workspace, const struct gg_runtime *runtime);

enum gg_base { GG_INPUT, GG_OUTPUT, GG_WORKSPACE, GG_FIXED };
enum { GG_MOST = 64 }; /* arrays of one kernel; Python refuses more */

/* An array: the number of an input or output of the network, or bytes from the start of its workspace or of fixed memory; and
 * bytes from there on. */
struct gg_place {
    long base;
    size_t at, before;
};

/* A kernel with its arrays: `inputs` places, then `outputs`, then the workspace's. */
struct gg_step {
    gg_entry *entry;
    const struct gg_place *places;
    long inputs, outputs;
};

struct gg_network {
    const struct gg_step *steps;
    long count;
    char *fixed;
    long outputs;
    long exclusive;
    unsigned long forks; /* with which `busy` was made; begins as 0, as `busy` does */
    pthread_mutex_t busy;
};

/* Of this process since its first network ran, from 1 on: a forked child has locks of its own, since who held its parent's
 * lives there alone. */
static unsigned long forks = 1;
static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void count_fork(void) {
    forks++;
    pthread_mutex_init(&guard, NULL);
}

static void watch_forks(void) { pthread_atfork(NULL, NULL, count_fork); }

static void hold(struct gg_network *network) {
    pthread_once(&once, watch_forks);
    pthread_mutex_lock(&guard);
    if (network->forks != forks) pthread_mutex_init(&network->busy, NULL);
    network->forks = forks;
    pthread_mutex_unlock(&guard);
    pthread_mutex_lock(&network->busy);
}

static void *address(const struct gg_network *network, const struct gg_place *place, const void *const *inputs, void *output,
                     char *workspace) {
    switch (place->base) {
    case GG_INPUT:
        return (char *)inputs[place->at] + place->before;
    case GG_OUTPUT:
        return (char *)(network->outputs == 1 ? output : ((void *const *)output)[place->at]) + place->before;
    case GG_WORKSPACE:
        return workspace + place->at + place->before;
    default:
        return network->fixed + place->at + place->before;
    }
}

static void run_steps(const struct gg_network *network, const void *const *inputs, void *output, char *workspace,
                      const struct gg_runtime *runtime) {
    for (const struct gg_step *step = network->steps; step < network->steps + network->count; step++) {
        const void *given[GG_MOST];
        void *made[GG_MOST];
        const struct gg_place *place = step->places;
        for (long i = 0; i < step->inputs; i++) given[i] = address(network, place++, inputs, output, workspace);
        for (long i = 0; i < step->outputs; i++) made[i] = address(network, place++, inputs, output, workspace);
        void *const own = address(network, place, inputs, output, workspace);
        step->entry(given, step->outputs == 1 ? made[0] : (void *)made, own, runtime);
    }
}

void gg_network_run(struct gg_network *network, const void *const *inputs, void *output, void *workspace,
                    const struct gg_runtime *runtime);
void gg_network_run(struct gg_network *network, const void *const *inputs, void *output, void *workspace,
                    const struct gg_runtime *runtime) {
    if (network->exclusive) hold(network);
    run_steps(network, inputs, output, workspace, runtime);
    if (network->exclusive) pthread_mutex_unlock(&network->busy);
}

/* A network that was loaded is found behind the runtime that its entry is given. */
struct gg_loaded {
    struct gg_runtime runtime;
    struct gg_network *network;
};

void gg_network_entry(const void *const *inputs, void *output, void *workspace, const struct gg_runtime *runtime);
void gg_network_entry(const void *const *inputs, void *output, void *workspace, const struct gg_runtime *runtime) {
    gg_network_run(((const struct gg_loaded *)runtime)->network, inputs, output, workspace, runtime);
}
