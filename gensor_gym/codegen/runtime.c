/* Thread pool shared by all generated kernels of a process, and the timing loop.
 *
 * Workers spin for a short while after a job, then sleep, so that an idle pool disturbs nobody. A job is announced by one
 * word that holds its number and how many threads take part; a worker that takes part may read the job's fields until it
 * has reported back, because the caller waits for that before it changes them. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <time.h>

enum { MAX_THREADS = 1024, LINE = 64, TEAM_BITS = 16 };
static const double SPIN_SECONDS = 30e-6;

static struct {
    _Alignas(LINE) atomic_uint_fast64_t announced;  /* job number << TEAM_BITS | threads that take part */
    _Alignas(LINE) atomic_long next;                /* first index that nobody has taken */
    _Alignas(LINE) atomic_int pending;              /* workers that have not reported back */
    _Alignas(LINE) void (*task)(void *, long, int);
    void *context;
    long count, grain;
    int workers; /* threads besides the caller */
    int home;    /* processor that the caller announced the job on */
    pthread_mutex_t mutex, caller;
    pthread_cond_t work, done;
} pool = {.mutex = PTHREAD_MUTEX_INITIALIZER,
          .caller = PTHREAD_MUTEX_INITIALIZER,
          .work = PTHREAD_COND_INITIALIZER,
          .done = PTHREAD_COND_INITIALIZER};

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static void relax(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static void run_share(int thread) {
    for (;;) {
        const long begin = atomic_fetch_add_explicit(&pool.next, pool.grain, memory_order_relaxed);
        if (begin >= pool.count) return;
        const long end = begin + pool.grain < pool.count ? begin + pool.grain : pool.count;
        for (long index = begin; index < end; index++) pool.task(pool.context, index, thread);
    }
}

/* The next announcement after `seen`. */
static uint_fast64_t await_job(uint_fast64_t seen) {
    for (const double limit = now() + SPIN_SECONDS; now() < limit;)
        for (int i = 0; i < 16; i++) {
            const uint_fast64_t word = atomic_load_explicit(&pool.announced, memory_order_acquire);
            if (word != seen) return word;
            relax();
        }
    pthread_mutex_lock(&pool.mutex);
    while (atomic_load(&pool.announced) == seen) pthread_cond_wait(&pool.work, &pool.mutex);
    pthread_mutex_unlock(&pool.mutex);
    return atomic_load(&pool.announced);
}

/* Move off the caller's processor. A worker woken there would wait for the caller, who does all the work meanwhile; the
 * two sleep and wake so often that the scheduler may leave them together for long. */
static void leave_home(void) {
#ifdef __linux__
    cpu_set_t allowed, others;
    if (sched_getcpu() != pool.home || pthread_getaffinity_np(pthread_self(), sizeof allowed, &allowed) != 0) return;
    others = allowed;
    CPU_CLR(pool.home, &others);
    if (CPU_COUNT(&others) == 0) return;
    pthread_setaffinity_np(pthread_self(), sizeof others, &others);
    pthread_setaffinity_np(pthread_self(), sizeof allowed, &allowed);
#endif
}

static void *worker(void *argument) {
    const int thread = (int)(intptr_t)argument;
    uint_fast64_t seen = 0;
    for (;;) {
        seen = await_job(seen);
        if (thread >= (int)(seen & ((1u << TEAM_BITS) - 1))) continue;
        leave_home();
        run_share(thread);
        if (atomic_fetch_sub(&pool.pending, 1) == 1) {
            pthread_mutex_lock(&pool.mutex);
            pthread_cond_signal(&pool.done);
            pthread_mutex_unlock(&pool.mutex);
        }
    }
    return 0;
}

static void forget_threads(void) { /* in a forked child, which has only the forking thread */
    pool.workers = 0;
    atomic_store(&pool.announced, 0);
    pthread_mutex_init(&pool.mutex, 0);
    pthread_mutex_init(&pool.caller, 0);
    pthread_cond_init(&pool.work, 0);
    pthread_cond_init(&pool.done, 0);
}

/* Threads that can take part, started up to `wanted`. */
static int ensure_threads(int wanted) {
    static int registered = 0;
    if (!registered) registered = pthread_atfork(0, 0, forget_threads) == 0;
    if (wanted > MAX_THREADS) wanted = MAX_THREADS;
    while (pool.workers + 1 < wanted) {
        pthread_t thread;
        if (pthread_create(&thread, 0, worker, (void *)(intptr_t)(pool.workers + 1)) != 0) break;
        pthread_detach(thread);
        pool.workers++;
    }
    return pool.workers + 1 < wanted ? pool.workers + 1 : wanted;
}

static void await_workers(void) {
    for (const double limit = now() + SPIN_SECONDS; now() < limit;)
        for (int i = 0; i < 16; i++) {
            if (atomic_load_explicit(&pool.pending, memory_order_acquire) == 0) return;
            relax();
        }
    pthread_mutex_lock(&pool.mutex);
    while (atomic_load(&pool.pending) != 0) pthread_cond_wait(&pool.done, &pool.mutex);
    pthread_mutex_unlock(&pool.mutex);
}

static void run_team(int threads, void (*task)(void *, long, int), void *context, long count) {
    pool.task = task;
    pool.context = context;
#ifdef __linux__
    pool.home = sched_getcpu();
#endif
    pool.count = count;
    pool.grain = count / (16L * threads) > 1 ? count / (16L * threads) : 1;
    atomic_store(&pool.next, 0);
    atomic_store(&pool.pending, threads - 1);
    pthread_mutex_lock(&pool.mutex);
    const uint_fast64_t number = (atomic_load(&pool.announced) >> TEAM_BITS) + 1;
    atomic_store(&pool.announced, number << TEAM_BITS | (unsigned)threads);
    pthread_cond_broadcast(&pool.work);
    pthread_mutex_unlock(&pool.mutex);
    run_share(0);
    await_workers();
}

/* struct gg_runtime's `parallel`. A second caller at the same time, or a task that calls it again, runs alone. */
static void parallel(const struct gg_runtime *runtime, void (*task)(void *, long, int), void *context, long count) {
    const long wanted = count < runtime->threads ? count : runtime->threads;
    if (wanted > 1 && pthread_mutex_trylock(&pool.caller) == 0) {
        const int threads = ensure_threads((int)wanted);
        if (threads > 1) run_team(threads, task, context, count);
        pthread_mutex_unlock(&pool.caller);
        if (threads > 1) return;
    }
    for (long index = 0; index < count; index++) task(context, index, 0);
}

/* Fills in a runtime of `threads` threads, the caller's among them. */
void gg_runtime_init(struct gg_runtime *runtime, int threads) {
    runtime->threads = threads < 1 ? 1 : threads;
    runtime->parallel = parallel;
}

typedef void gg_entry(const void *const *inputs, void *output, void *workspace, const struct gg_runtime *runtime);

/* Seconds that `calls` calls of a kernel take together. */
double gg_time(gg_entry *entry, const void *const *inputs, void *output, void *workspace,
               const struct gg_runtime *runtime, long calls) {
    const double start = now();
    for (long i = 0; i < calls; i++) entry(inputs, output, workspace, runtime);
    return now() - start;
}
