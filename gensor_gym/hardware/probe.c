/* Measures one CPU: float32 multiply-adds from registers, and rates of reads, copies and stores past the caches for each level.
 *
 *   probe THREADS SECONDS NAME WHAT BYTES SHARED ...
 *
 * prints the clock, then the arithmetic rate, then one line for each (NAME, WHAT, BYTES, SHARED). The operation WHAT is repeated
 * on a buffer of BYTES per thread: `read` sums it, `copy` stores its first half into its second half, `stream` does so past the
 * caches, `past` stores a number into its second half past the caches. Bytes that are copied count once. Every figure comes from
 * many short windows in which all threads run, because the machine may be shared. A figure of a private level is the sum of the
 * best windows of all threads (a disturbed thread does not affect the other threads); a figure of a shared level is the best
 * common window.
 * The last line is the share of the cores that the threads had: they never sleep, so other programs had the rest, and the
 * figures are lower bounds if it is below 1.
 * LANES and REGISTERS are defined on the command line.
 */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#if defined(__SSE__)
#include <immintrin.h>
#endif

typedef float vec __attribute__((vector_size(LANES * 4)));

enum { MAX_THREADS = 1024 };

static int threads;
static double seconds;
static long repeats;
static size_t vectors;
static vec *buffers[MAX_THREADS];
static double started[MAX_THREADS], ended[MAX_THREADS];
static atomic_int arrived, generation, last;
static volatile float sink;
static volatile uint64_t integer_sink;

typedef void work_function(int thread, long count);

static double clock_of(clockid_t id) {
    struct timespec t;
    clock_gettime(id, &t);
    return t.tv_sec + 1e-9 * t.tv_nsec;
}

static double now(void) { return clock_of(CLOCK_MONOTONIC); }

static void wait_for_all(void) {
    int mine = atomic_load(&generation);
    if (atomic_fetch_add(&arrived, 1) == threads - 1) {
        atomic_store(&arrived, 0);
        atomic_fetch_add(&generation, 1);
    } else {
        while (atomic_load(&generation) == mine) sched_yield();
    }
}

/* 24 accumulators if there are 32 registers. With 16 registers there are 12: more would spill, and 8 hide a latency of 4 on
 * two ports. */
#if REGISTERS >= 32
#define EACH(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) \
    X(12) X(13) X(14) X(15) X(16) X(17) X(18) X(19) X(20) X(21) X(22) X(23)
#define ACCUMULATORS 24
#else
#define EACH(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11)
#define ACCUMULATORS 12
#endif

static void multiply_add(int thread, long count) {
    (void)thread;
    volatile float seed = 0.5f;
    vec x = (vec){0} + seed, y = (vec){0} + seed;
#define DECLARE(n) vec a##n = y + (float)n;
#define STEP(n) a##n = a##n * x + y;
#define GATHER(n) total += a##n;
    EACH(DECLARE)
    for (long i = 0; i < count; i++) { EACH(STEP) }
    vec total = {0};
    EACH(GATHER)
    sink = total[0];
}

static void read_all(int thread, long count) {
    const vec *data = buffers[thread];
    vec a = {0}, b = {0}, c = {0}, d = {0}, e = {0}, f = {0}, g = {0}, h = {0};
    for (long i = 0; i < count; i++) {
        for (size_t j = 0; j + 8 <= vectors; j += 8) {
            a += data[j], b += data[j + 1], c += data[j + 2], d += data[j + 3];
            e += data[j + 4], f += data[j + 5], g += data[j + 6], h += data[j + 7];
        }
        __asm__ volatile("" ::: "memory"); /* the next pass reads again */
    }
    a += b + c + d + e + f + g + h;
    sink = a[0];
}

static volatile float nothing;

static void copy_all(int thread, long count) {
    const vec *from = buffers[thread];
    vec *to = buffers[thread] + vectors / 2, zero = (vec){0} + nothing; /* a sum, so that this does not become a call of memcpy */
    for (long i = 0; i < count; i++) {
        for (size_t j = 0; j < vectors / 2; j++) to[j] = from[j] + zero;
        __asm__ volatile("" ::: "memory");
    }
}

static void store_past(vec *to, vec value) {
#if defined(__AVX512F__) && LANES == 16
    _mm512_stream_ps((float *)to, (__m512)value);
#elif defined(__AVX__) && LANES == 8
    _mm256_stream_ps((float *)to, (__m256)value);
#elif defined(__SSE__) && LANES == 4
    _mm_stream_ps((float *)to, (__m128)value);
#else
    *to = value; /* generated kernels do the same if there is no such instruction */
#endif
}

static void stream_all(int thread, long count) {
    const vec *from = buffers[thread];
    vec *to = buffers[thread] + vectors / 2;
    for (long i = 0; i < count; i++) {
        for (size_t j = 0; j < vectors / 2; j++) store_past(to + j, from[j]);
        __asm__ volatile("" ::: "memory");
    }
#if defined(__SSE__)
    _mm_sfence();
#endif
}

static void past_all(int thread, long count) {
    vec *to = buffers[thread] + vectors / 2, value = (vec){0} + nothing;
    for (long i = 0; i < count; i++) {
        for (size_t j = 0; j < vectors / 2; j++) store_past(to + j, value);
        __asm__ volatile("" ::: "memory");
    }
#if defined(__SSE__)
    _mm_sfence();
#endif
}

static work_function *function_of(const char *what) {
    if (strcmp(what, "read") == 0) return read_all;
    if (strcmp(what, "copy") == 0) return copy_all;
    return strcmp(what, "past") == 0 ? past_all : stream_all;
}

/* A chain of dependent additions takes one clock each. */
static void add_chain(int thread, long count) {
    uint64_t x = (uint64_t)thread, y = integer_sink | 1;
    for (long i = 0; i < count; i++) {
#define ADD x += y; __asm__ volatile("" : "+r"(x));
#define ADD8 ADD ADD ADD ADD ADD ADD ADD ADD
        ADD8 ADD8 ADD8 ADD8 ADD8 ADD8 ADD8 ADD8
    }
    integer_sink = x;
}

static work_function *work;
static double best_each[MAX_THREADS], best_common;
static double used[MAX_THREADS], passed[MAX_THREADS]; /* seconds of processor time and of clock time, for all figures together */

static void *windows(void *argument) {
    int thread = (int)(intptr_t)argument;
    double begin = now(), begin_used = clock_of(CLOCK_THREAD_CPUTIME_ID), stop = begin + seconds;
    for (int sample = 0;; sample++) {
        wait_for_all();
        started[thread] = now();
        work(thread, repeats);
        ended[thread] = now();
        double own = ended[thread] - started[thread];
        if (own < best_each[thread]) best_each[thread] = own;
        wait_for_all();
        if (thread == 0) {
            double first = started[0], final = ended[0];
            for (int t = 1; t < threads; t++) {
                if (started[t] < first) first = started[t];
                if (ended[t] > final) final = ended[t];
            }
            if (final - first < best_common) best_common = final - first;
            atomic_store(&last, sample >= 2 && now() > stop);
        }
        wait_for_all();
        if (atomic_load(&last)) break;
    }
    used[thread] += clock_of(CLOCK_THREAD_CPUTIME_ID) - begin_used;
    passed[thread] += now() - begin;
    return NULL;
}

static double share_had(void) {
    double cpu = 0, wall = 0;
    for (int t = 0; t < threads; t++) cpu += used[t], wall += passed[t];
    return cpu / wall;
}

/* Work per second of `unit` per repetition and thread; `shared` says which of the two figures. */
static double rate(work_function *function, double unit, int shared) {
    pthread_t handles[MAX_THREADS];
    work = function;
    for (repeats = 1;; repeats *= 2) {
        double start = now();
        function(0, repeats);
        if (now() - start > 1e-3) break;
    }
    best_common = 1e30;
    for (int t = 0; t < threads; t++) best_each[t] = 1e30;
    for (int t = 1; t < threads; t++)
        if (pthread_create(&handles[t], NULL, windows, (void *)(intptr_t)t) != 0) exit(3);
    windows(NULL);
    double sum = 0;
    for (int t = 0; t < threads; t++) {
        if (t > 0) pthread_join(handles[t], NULL);
        sum += unit * repeats / best_each[t];
    }
    return shared ? unit * repeats * threads / best_common : sum;
}

int main(int count, char **words) {
    if (count < 3 || (count - 3) % 4 != 0) return 2;
    threads = atoi(words[1]);
    seconds = atof(words[2]);
    if (threads < 1 || threads > MAX_THREADS) return 2;
    printf("clock %.6e\n", rate(add_chain, 64.0, 0) / threads);
    printf("float32 %.6e\n", rate(multiply_add, 2.0 * LANES * ACCUMULATORS, 0));
    for (int i = 3; i < count; i += 4) {
        size_t bytes = strtoull(words[i + 2], NULL, 10) / (8 * sizeof(vec)) * (8 * sizeof(vec));
        work_function *function = function_of(words[i + 1]);
        vectors = bytes / sizeof(vec);
        for (int t = 0; t < threads; t++) {
            buffers[t] = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
            if (vectors == 0 || buffers[t] == NULL) return 3;
            memset(buffers[t], 0, bytes);
        }
        printf("%s %.6e\n", words[i], rate(function, function == read_all ? (double)bytes : bytes / 2.0, atoi(words[i + 3])));
        for (int t = 0; t < threads; t++) free(buffers[t]);
    }
    printf("share %.6e\n", share_had());
    return 0;
}
