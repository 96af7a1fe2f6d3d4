/* Runs the kernels of a network one after another. Who calls kernels calls networks: both entries have a kernel's arguments.
 *
 * Kernels that keep packed weights keep their scratch beside them: `busy` is held while such a network runs. */
#include <pthread.h>
#include <stddef.h>

typedef void gg_entry(const void *const *inputs, void *output, void *workspace, const struct gg_runtime *runtime);

enum gg_base { GG_INPUT, GG_OUTPUT, GG_WORKSPACE, GG_FIXED };
enum { GG_MOST = 64, GG_TOGETHER = 16 }; /* arrays of one kernel, kernels of one loop; Python refuses more */

/* An array: the number of an input or output of the network, or bytes from the start of its workspace or of fixed memory; and
 * bytes from there on. */
struct gg_place {
    long base;
    size_t at, before;
};

/* A kernel with its arrays: `inputs` places, then `outputs`, then the workspace's. `tasks`: how many of its tasks, one after
 * another, are one of the loop that it shares. `goes_on`: these are done in the loop of the step before, by the thread that has
 * just done that step's of the same number. */
struct gg_step {
    gg_entry *entry;
    const struct gg_place *places;
    long inputs, outputs, tasks, goes_on;
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

/* Where a call's arrays are counted from. */
struct gg_given {
    const struct gg_network *network;
    const void *const *inputs;
    void *output;
    char *workspace;
};

static void run_step(const struct gg_given *given, const struct gg_step *step, const struct gg_runtime *runtime) {
    const void *read[GG_MOST];
    void *made[GG_MOST];
    const struct gg_place *place = step->places;
    for (long i = 0; i < step->inputs; i++) read[i] = address(given->network, place++, given->inputs, given->output, given->workspace);
    for (long i = 0; i < step->outputs; i++) made[i] = address(given->network, place++, given->inputs, given->output, given->workspace);
    void *const own = address(given->network, place, given->inputs, given->output, given->workspace);
    step->entry(read, step->outputs == 1 ? made[0] : (void *)made, own, runtime);
}

/* Steps whose loops are run as one. Every entry calls `parallel` once and does nothing afterwards: the call of one enters the
 * next, so that the tables of all stand when the last begins the loop. */
struct gg_together {
    const struct gg_given *given;
    const struct gg_step *next, *end;
    const struct gg_runtime *runtime;
    int threads;
    long loops;
    void (*tasks[GG_TOGETHER])(void *context, long index, int thread);
    void *contexts[GG_TOGETHER];
    long each[GG_TOGETHER], counts[GG_TOGETHER]; /* tasks of one of all, and of the whole loop */
};

static _Thread_local struct gg_together *together;

static void task_of_all(void *context, long index, int thread) {
    const struct gg_together *const all = context;
    for (long i = 0; i < all->loops; i++) {
        const long first = index * all->each[i], left = all->counts[i] - first;
        const long end = first + (left < all->each[i] ? left : all->each[i]);
        for (long task = first; task < end; task++) all->tasks[i](all->contexts[i], task, thread);
    }
}

static void join_loops(const struct gg_runtime *runtime, void (*task)(void *, long, int), void *context, long count) {
    struct gg_together *const all = together;
    const long each = all->next[-1].tasks;
    all->tasks[all->loops] = task;
    all->contexts[all->loops] = context;
    all->each[all->loops] = each;
    all->counts[all->loops++] = count;
    if (runtime->threads < all->threads) all->threads = runtime->threads;
    if (all->next < all->end) {
        run_step(all->given, all->next++, runtime);
        return;
    }
    const struct gg_runtime team = {all->threads, all->runtime->parallel};
    together = NULL; /* a task that calls `parallel` is no part of it */
    team.parallel(&team, task_of_all, all, (count + each - 1) / each);
}

static void run_together(const struct gg_given *given, const struct gg_step *step, const struct gg_step *end,
                         const struct gg_runtime *runtime) {
    struct gg_together all = {.given = given, .next = step + 1, .end = end, .runtime = runtime, .threads = runtime->threads};
    const struct gg_runtime joining = {runtime->threads, join_loops};
    together = &all;
    run_step(given, step, &joining);
}

static void run_steps(const struct gg_given *given, const struct gg_runtime *runtime) {
    const struct gg_step *const last = given->network->steps + given->network->count;
    for (const struct gg_step *step = given->network->steps, *end; step < last; step = end) {
        for (end = step + 1; end < last && end->goes_on;) end++;
        if (end == step + 1)
            run_step(given, step, runtime);
        else
            run_together(given, step, end, runtime);
    }
}

void gg_network_run(struct gg_network *network, const void *const *inputs, void *output, void *workspace,
                    const struct gg_runtime *runtime);
void gg_network_run(struct gg_network *network, const void *const *inputs, void *output, void *workspace,
                    const struct gg_runtime *runtime) {
    if (network->exclusive) hold(network);
    const struct gg_given given = {network, inputs, output, workspace};
    run_steps(&given, runtime);
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
