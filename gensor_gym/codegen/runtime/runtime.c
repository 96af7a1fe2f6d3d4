/* Thread pool shared by all generated kernels of a process, and the timing loop.
 *
 * Workers spin for a short while after a job, then sleep, so that an idle pool disturbs nobody. A job is announced by one
 * word that holds its number and how many threads take part; a worker that takes part may read the job's fields until it
 * has reported back, because the caller waits for that before it changes them.
 *
 * The indices of a job are cut into batches, and every thread owns the same run of them in every call: what a call left
 * in a core's own caches is there for the next one (sums over 2 MiB on two cores of 1 MiB each: a fifth faster than
 * with batches handed out to whoever asks first). A thread that has finished its own run takes
 * batches from the far end of the others'. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <time.h>

enum { MAX_THREADS = 1024, LINE = 64, TEAM_BITS = 16 };
static const double SPIN_SECONDS = 100e-6;
static const double YIELD_SECONDS = 2e-3; /* a caller that slept may be woken on the CPU of the worker that woke it */

static struct {
    _Alignas(LINE) atomic_uint_fast64_t announced;  /* job number << TEAM_BITS | threads that take part */
    _Alignas(LINE) atomic_int pending;              /* workers that have not reported back */
    _Alignas(LINE) atomic_int sleeping;             /* workers that only a signal wakes */
    _Alignas(LINE) void (*task)(void *, long, int);
    void *context;
    long count, grain;
    atomic_int cpu[MAX_THREADS]; /* where each thread ran last */
    int workers; /* threads besides the caller */
    pthread_mutex_t mutex, caller;
    pthread_cond_t work, done;
} pool = {.mutex = PTHREAD_MUTEX_INITIALIZER,
          .caller = PTHREAD_MUTEX_INITIALIZER,
          .work = PTHREAD_COND_INITIALIZER,
          .done = PTHREAD_COND_INITIALIZER};

/* Batches of a thread's run that nobody has taken: first << 32 | end. */
static struct {
    _Alignas(LINE) atomic_uint_fast64_t left;
} runs[MAX_THREADS];

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

/* One batch of the run of thread `owner`, from its front or from its end; -1 when none is left. */
static long take_batch(int owner, int from_end) {
    uint_fast64_t left = atomic_load_explicit(&runs[owner].left, memory_order_relaxed);
    for (;;) {
        const uint_fast64_t first = left >> 32, end = left & 0xffffffffu;
        if (first >= end) return -1;
        const uint_fast64_t rest = from_end ? left - 1 : left + (UINT64_C(1) << 32);
        if (atomic_compare_exchange_weak_explicit(&runs[owner].left, &left, rest, memory_order_relaxed,
                                                  memory_order_relaxed))
            return (long)(from_end ? end - 1 : first);
    }
}

static void run_share(int thread, int threads) {
    for (int turn = 0; turn < threads; turn++) {
        const int owner = thread + turn < threads ? thread + turn : thread + turn - threads;
        for (long batch; (batch = take_batch(owner, turn > 0)) >= 0;) {
            const long begin = batch * pool.grain;
            const long end = begin + pool.grain < pool.count ? begin + pool.grain : pool.count;
            for (long index = begin; index < end; index++) pool.task(pool.context, index, thread);
        }
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
    atomic_fetch_add(&pool.sleeping, 1);
    while (atomic_load(&pool.announced) == seen) pthread_cond_wait(&pool.work, &pool.mutex);
    atomic_fetch_sub(&pool.sleeping, 1);
    pthread_mutex_unlock(&pool.mutex);
    return atomic_load(&pool.announced);
}

#ifdef __linux__
/* Of the thread that loads this library: a caller may be kept on one CPU by the time it starts the pool. */
static cpu_set_t allowed;
static int allowed_known;

__attribute__((constructor)) static void ask_allowed(void) {
    allowed_known = pthread_getaffinity_np(pthread_self(), sizeof allowed, &allowed) == 0;
}

static void note_cpu(int thread) { atomic_store_explicit(&pool.cpu[thread], sched_getcpu(), memory_order_relaxed); }

/* Leaves a CPU on which a thread of a lower number was last seen, if there is another one, and keeps off it: schedulers
 * (Linux in a virtual machine, where a halted processor does not count as idle) were seen to wake a worker on its caller's
 * CPU call after call, and the team then took longer than one thread. */
static void spread(int thread) {
    note_cpu(thread);
    const int here = atomic_load_explicit(&pool.cpu[thread], memory_order_relaxed);
    cpu_set_t others = allowed;
    int crowded = 0;
    for (int lower = 0; lower < thread; lower++) {
        const int there = atomic_load_explicit(&pool.cpu[lower], memory_order_relaxed);
        crowded |= there == here;
        if (there >= 0 && there < CPU_SETSIZE) CPU_CLR(there, &others);
    }
    if (!allowed_known || !crowded || CPU_COUNT(&others) == 0) return;
    if (pthread_setaffinity_np(pthread_self(), sizeof others, &others) == 0) note_cpu(thread);
}
#else
static void note_cpu(int thread) { (void)thread; }
static void spread(int thread) { (void)thread; }
#endif

static void *worker(void *argument) {
    const int thread = (int)(intptr_t)argument;
    uint_fast64_t seen = 0;
    for (;;) {
        seen = await_job(seen);
        const int threads = (int)(seen & ((1u << TEAM_BITS) - 1));
        if (thread >= threads) continue;
        spread(thread);
        run_share(thread, threads);
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
    atomic_store(&pool.sleeping, 0);
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
    const double start = now();
    for (double spent = 0; spent < YIELD_SECONDS; spent = now() - start) {
        for (int i = 0; i < 16; i++) {
            if (atomic_load_explicit(&pool.pending, memory_order_acquire) == 0) return;
            relax();
        }
        if (spent > SPIN_SECONDS) sched_yield(); /* a worker may wait for this CPU */
    }
    pthread_mutex_lock(&pool.mutex);
    while (atomic_load(&pool.pending) != 0) pthread_cond_wait(&pool.done, &pool.mutex);
    pthread_mutex_unlock(&pool.mutex);
}

static void run_team(int threads, void (*task)(void *, long, int), void *context, long count) {
    pool.task = task;
    pool.context = context;
    pool.count = count;
    pool.grain = count / (16L * threads) > 1 ? count / (16L * threads) : 1;
    const uint_fast64_t batches = (uint_fast64_t)((count - 1) / pool.grain + 1);
    for (int t = 0; t < threads; t++) {
        const uint_fast64_t first = batches * (uint_fast64_t)t / (uint_fast64_t)threads;
        const uint_fast64_t end = batches * ((uint_fast64_t)t + 1) / (uint_fast64_t)threads;
        atomic_store_explicit(&runs[t].left, first << 32 | end, memory_order_relaxed);
    }
    note_cpu(0);
    atomic_store_explicit(&pool.pending, threads - 1, memory_order_relaxed);
    const uint_fast64_t number = (atomic_load_explicit(&pool.announced, memory_order_relaxed) >> TEAM_BITS) + 1;
    atomic_store(&pool.announced, number << TEAM_BITS | (unsigned)threads);
    /* A worker counts itself asleep before it looks at the announcement for the last time: one of the two sees the other. */
    if (atomic_load(&pool.sleeping) > 0) {
        pthread_mutex_lock(&pool.mutex);
        pthread_cond_broadcast(&pool.work);
        pthread_mutex_unlock(&pool.mutex);
    }
    run_share(0, threads);
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

/* A call with its arguments in place: another language converts one pointer sooner than four. */
struct gg_call {
    gg_entry *entry;
    const void *const *inputs;
    void *output, *workspace;
    const struct gg_runtime *runtime;
};

void gg_call(const struct gg_call *call) { call->entry(call->inputs, call->output, call->workspace, call->runtime); }

void gg_calls(const struct gg_call *calls, long count) {
    for (long i = 0; i < count; i++) gg_call(calls + i);
}

/* Seconds that `count` calls take together: those of `calls`, `kinds` of them, in turn, from number `first` on. */
double gg_time(const struct gg_call *calls, long kinds, long first, long count) {
    const double start = now();
    for (long i = 0, at = first; i < count; i++, at = at + 1 < kinds ? at + 1 : 0) gg_call(calls + at);
    return now() - start;
}
