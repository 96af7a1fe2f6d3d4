#ifndef GG_RUNTIME_H
#define GG_RUNTIME_H
/* What a generated kernel is given to run its parallel loop with. `parallel` calls task(context, index, thread) for every
 * index below count, thread being 0..threads-1 and never the same for two calls at the same time, and returns when all
 * are done. */
struct gg_runtime {
    int threads;
    void (*parallel)(const struct gg_runtime *runtime, void (*task)(void *context, long index, int thread), void *context,
                     long count);
};
#endif
