// What a generated CUDA kernel needs of the language and of the machine, for a C++ compiler.
//
// The threads of a block are fibers. A fiber runs until it has to wait: at __syncthreads, at a warp operation until
// every lane that the mask names has arrived, or for an event (a copy that is under way beside the threads). Between two
// waits the order of the fibers is random (seeded), and shared memory starts as NaN in every block, so that a missing
// barrier gives a wrong answer. Now and then one warp lags behind until no other can go on. Blocks run one after another,
// from any one on, forwards or backwards, those of a cluster at the same time: now one of them lags behind, now another. A
// block ends only after a barrier of the cluster that follows all that others do to its memory.
// Asynchronous copies arrive when the thread that started them waits for them, no earlier; what stood there is lost at
// once. Each thread waits for its own only, so others need a barrier after that.
// Whatever the language calls undefined here ends the process with a message: lanes missing from a mask, threads of a
// block at different barriers, a barrier after some thread has returned.
#pragma once

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <ucontext.h>

#if defined(__SANITIZE_ADDRESS__)
#define EMULATOR_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define EMULATOR_ASAN 1
#endif
#endif
#ifdef EMULATOR_ASAN
#include <sanitizer/common_interface_defs.h>
#endif

#ifndef EMULATOR_WARP
#define EMULATOR_WARP 32  // lanes of a warp; 64 in a wave of AMD's
#endif
#define EMULATOR 1  // generated text leaves its device functions of PTX out
#define __global__
#define __device__
#define __shared__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __cluster_dims__(...)
#define __align__(bytes) __attribute__((aligned(bytes)))

struct alignas(8) float2 { float x, y; };
struct alignas(16) float4 { float x, y, z, w; };
struct alignas(8) int2 { int x, y; };
struct alignas(16) int4 { int x, y, z, w; };
struct alignas(2) char2 { signed char x, y; };
struct alignas(4) char4 { signed char x, y, z, w; };
struct alignas(2) uchar2 { unsigned char x, y; };
struct alignas(4) uchar4 { unsigned char x, y, z, w; };
struct uint3 { unsigned x, y, z; };
struct dim3 { unsigned x = 1, y = 1, z = 1; };

static uint3 threadIdx, blockIdx;
static dim3 blockDim, gridDim;

static inline int max(int a, int b) { return a > b ? a : b; }
static inline int min(int a, int b) { return a < b ? a : b; }
static inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
template <typename T>
static inline void __stcs(T *to, T value) {  // past the caches
  if (reinterpret_cast<uintptr_t>(to) % sizeof(T)) {
    fprintf(stderr, "emulator: a store is not aligned to its size\n");
    exit(3);
  }
  *to = value;
}
template <typename T>
static inline T __ldcg(const T *from) {  // past the first cache
  if (reinterpret_cast<uintptr_t>(from) % sizeof(T)) {
    fprintf(stderr, "emulator: a load is not aligned to its size\n");
    exit(3);
  }
  return *from;
}
static inline void __threadfence() {}  // one thread runs at a time
static inline unsigned atomicInc(unsigned *count, unsigned most) {
  const unsigned before = *count;
  *count = before >= most ? 0 : before + 1;
  return before;
}
static inline float __int_as_float(unsigned bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

namespace emulator {

struct Copy {
  void *to;
  const void *from;
  int bytes, read;  // of `bytes` bytes `read` come from memory, the others are zero
  long group;
};

// Asynchronous copies of a thread that have not arrived, oldest first.
struct Copies {
  Copy *list;
  int count, room;
  long group;  // that the next copy belongs to
};

enum State { READY, AT_BARRIER, AT_WARP, AT_EVENT, AT_CLUSTER, DONE };

struct Fiber {
  ucontext_t context;
  uint3 index, block;
  State state;
  int line;             // of the barrier or warp operation it waits at
  uint64_t mask;        // lanes it waits for
  uint64_t value;       // what it brought to the warp operation
  uint64_t received[EMULATOR_WARP];  // what every lane brought
  Copies copies;
  int stores;           // of boxes, that have not read shared memory yet
  bool (*happened)(uint64_t);  // whether the event that it waits for, named by `value`, has happened
};

constexpr size_t STACK_BYTES = 1 << 18;
constexpr int MAX_THREADS = 1024, MAX_CLUSTER = 4;

static Fiber fibers[MAX_THREADS * MAX_CLUSTER];  // blocks of a cluster one after the other
static char *stacks;
static ucontext_t scheduler;
static int current, threads;       // fiber that runs, threads of a block
static int cluster;                // blocks that run at the same time
static int living[MAX_CLUSTER];    // threads of a block that have not returned
static bool met;                   // whether the blocks of the cluster have met: before that one may not have begun
static bool reached[MAX_CLUSTER];  // whether others reached into a block's memory since the last barrier of the cluster
static void (*kernel)(void **);
static void **kernel_arguments;
static uint64_t random_state = 1;
static unsigned char *shared_base;  // of the first block of the cluster; each has `shared_bytes`
static size_t shared_bytes;
static unsigned long blocks_begun;
static bool (*advance)();  // lets one thing happen that is under way beside the threads; false where nothing is
#ifdef EMULATOR_ASAN
static const void *scheduler_stack;
static size_t scheduler_stack_bytes;
#endif

[[noreturn]] static void fail(const char *what, int line) {
  fprintf(stderr, "emulator: block %u, thread %d, line %d: %s\n", blockIdx.x, current % threads, line, what);
  exit(3);
}

static unsigned random_below(unsigned bound) {
  random_state ^= random_state << 13;
  random_state ^= random_state >> 7;
  random_state ^= random_state << 17;
  return static_cast<unsigned>((random_state >> 20) % bound);
}

// From the running fiber back to the scheduler; returns when the fiber is run again.
static void leave(State state) {
  Fiber &self = fibers[current];
  self.state = state;
#ifdef EMULATOR_ASAN
  void *fake = nullptr;
  __sanitizer_start_switch_fiber(state == DONE ? nullptr : &fake, scheduler_stack, scheduler_stack_bytes);
#endif
  swapcontext(&self.context, &scheduler);
#ifdef EMULATOR_ASAN
  __sanitizer_finish_switch_fiber(fake, &scheduler_stack, &scheduler_stack_bytes);
#endif
}

// Queue a copy; what it overwrites may be gone from now on.
static void start_copy(void *to, const void *from, int bytes, int read) {
  if (reinterpret_cast<uintptr_t>(to) % bytes || (read && reinterpret_cast<uintptr_t>(from) % bytes))
    fail("an asynchronous copy is not aligned to its size", 0);
  Copies &mine = fibers[current].copies;
  if (mine.count == mine.room) {
    mine.room = 2 * mine.room + 16;
    mine.list = static_cast<Copy *>(realloc(mine.list, mine.room * sizeof(Copy)));
  }
  memset(to, 0xff, bytes);
  mine.list[mine.count++] = {to, from, bytes, read, mine.group};
}

// All copies but those of the newest `left` groups arrive.
static void finish_copies(long left) {
  Copies &mine = fibers[current].copies;
  int done = 0;
  for (; done < mine.count && mine.list[done].group < mine.group - left; ++done) {
    const Copy &copy = mine.list[done];
    memset(copy.to, 0, copy.bytes);
    if (copy.read) memcpy(copy.to, copy.from, copy.read);
  }
  mine.count -= done;
  if (done) memmove(mine.list, mine.list + done, mine.count * sizeof(Copy));
}

static void start() {
#ifdef EMULATOR_ASAN
  __sanitizer_finish_switch_fiber(nullptr, &scheduler_stack, &scheduler_stack_bytes);
#endif
  kernel(kernel_arguments);
  if (fibers[current].copies.count) fail("a thread ends with asynchronous copies under way", 0);
  if (fibers[current].stores) fail("a thread ends while a store that it began reads the shared memory of its block", 0);
  const int block = current / threads;
  if (--living[block] == 0 && reached[block]) fail("the block ends, no barrier after others reached into its shared memory", 0);
  leave(DONE);
}

static void run(int thread) {
  current = thread;
  threadIdx = fibers[thread].index;
  blockIdx = fibers[thread].block;
#ifdef EMULATOR_ASAN
  void *fake = nullptr;
  __sanitizer_start_switch_fiber(&fake, stacks + thread * STACK_BYTES, STACK_BYTES);
#endif
  swapcontext(&scheduler, &fibers[thread].context);
#ifdef EMULATOR_ASAN
  __sanitizer_finish_switch_fiber(fake, nullptr, nullptr);
#endif
}

static void barrier(int line) {
  fibers[current].line = line;
  leave(AT_BARRIER);
}

static void cluster_barrier(int line) {
  fibers[current].line = line;
  leave(AT_CLUSTER);
}

// Lets the threads of a block pass the barrier that they are at; false where they are not all at one.
static bool pass_barrier(int first) {
  for (int t = first; t < first + threads; ++t)
    if (fibers[t].state != AT_BARRIER || fibers[t].line != fibers[first].line) return false;
  for (int t = first; t < first + threads; ++t) fibers[t].state = READY;
  return true;
}

// The same for the barrier of the cluster; threads that have returned do not count.
static bool pass_cluster_barrier(int fibers_in_use) {
  int line = 0;
  for (int t = 0; t < fibers_in_use; ++t) {
    if (fibers[t].state == DONE) continue;
    if (fibers[t].state != AT_CLUSTER || (line && fibers[t].line != line)) return false;
    line = fibers[t].line;
  }
  for (int t = 0; t < fibers_in_use; ++t)
    if (fibers[t].state == AT_CLUSTER) fibers[t].state = READY;
  for (int b = 0; b < cluster; ++b) reached[b] = false;
  met = true;
  return line != 0;
}

// Why nobody can go on.
[[noreturn]] static void explain(int fibers_in_use) {
  int at_cluster = -1;
  for (int t = 0; t < fibers_in_use; ++t) {
    const int line = fibers[t].line;
    current = t;
    blockIdx = fibers[t].block;
    if (fibers[t].state == AT_EVENT) fail("deadlock: every thread waits, this one for an event that never comes", line);
    if (fibers[t].state == AT_WARP) fail("deadlock: a lane named in the mask of a warp operation never arrives", line);
    if (fibers[t].state == AT_BARRIER && living[t / threads] < threads)
      fail("barrier divergence: some threads of the block have returned", line);
    if (fibers[t].state == AT_CLUSTER) at_cluster = t;
  }
  if (at_cluster >= 0) fail("barrier divergence: threads of the cluster wait at different barriers", fibers[at_cluster].line);
  fail("barrier divergence: threads of the block wait at different barriers", fibers[current].line);
}

// Nobody can run: let all pass the barrier, or say what is wrong. Returns false when the cluster is done.
static bool release() {
  const int fibers_in_use = threads * cluster;
  int left = 0;
  for (int b = 0; b < cluster; ++b) left += living[b];
  if (left == 0) {
    if (advance != nullptr && advance()) fail("the block ends while a copy into its shared memory is under way", 0);
    return false;
  }
  bool passed = false;
  for (int b = 0; b < cluster; ++b) passed = pass_barrier(b * threads) || passed;
  if (!passed && !pass_cluster_barrier(fibers_in_use)) explain(fibers_in_use);
  return true;
}

static bool can_run(const Fiber &fiber) {
  return fiber.state == READY || (fiber.state == AT_EVENT && fiber.happened(fiber.value));
}

static bool waits_for_event() {
  for (int t = 0; t < threads * cluster; ++t)
    if (fibers[t].state == AT_EVENT) return true;
  return false;
}

// Fibers that can run, without those of the block that lags behind, if there are others, and without those of the warp that does.
static int choose(int lagging, int slow, int *order) {
  static int behind[MAX_THREADS * MAX_CLUSTER];
  int ahead = 0, slower = 0, last = 0;
  const int from = lagging * threads, to = from + threads;
  for (int t = 0; t < threads * cluster; ++t) {
    if (!can_run(fibers[t])) continue;
    if (t >= from && t < to)
      behind[MAX_THREADS * MAX_CLUSTER - ++last] = t;
    else if (t / EMULATOR_WARP == slow)
      behind[slower++] = t;
    else
      order[ahead++] = t;
  }
  if (ahead) return ahead;
  const int count = slower ? slower : last;
  memcpy(order, slower ? behind : behind + MAX_THREADS * MAX_CLUSTER - last, count * sizeof(int));
  return count;
}

// The blocks of a cluster, the first of which is `first`.
static void run_blocks(uint3 first) {
  static int order[MAX_THREADS * MAX_CLUSTER];
  int lagging = cluster;
  const int warps = (threads * cluster + EMULATOR_WARP - 1) / EMULATOR_WARP;
  met = false;
  ++blocks_begun;
  for (int b = 0; b < cluster; ++b) {
    living[b] = threads;
    reached[b] = false;
  }
  for (int f = 0; f < threads * cluster; ++f) {
    Fiber &fiber = fibers[f];
    const unsigned t = f % threads;
    fiber.block = {first.x + f / threads, first.y, first.z};
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = stacks + f * STACK_BYTES;
    fiber.context.uc_stack.ss_size = STACK_BYTES;
    fiber.context.uc_link = nullptr;
    fiber.state = READY;
    fiber.copies.group = 0;
    fiber.index = {t % blockDim.x, t / blockDim.x % blockDim.y, t / (blockDim.x * blockDim.y)};
    makecontext(&fiber.context, start, 0);
  }
  do {
    const int slow = random_below(4) == 0 ? static_cast<int>(random_below(warps)) : -1;
    for (;;) {
      if (cluster > 1 && random_below(16) == 0) lagging = random_below(cluster + 1);
      const int ready = choose(lagging, slow, order);
      if (ready == 0) {
        if (!waits_for_event() || advance == nullptr || !advance()) break;
        continue;
      }
      for (int left = ready; left > 0; --left) {
        const unsigned pick = random_below(left);
        const int thread = order[pick];
        order[pick] = order[left - 1];
        run(thread);
        if (advance != nullptr && random_below(16) == 0) advance();
      }
    }
  } while (release());
}

static void launch(void (*body)(void **), void **arguments, dim3 grid, dim3 block, unsigned char *shared, size_t bytes,
                   int blocks_together = 1) {
  threads = static_cast<int>(block.x * block.y * block.z);
  if (threads < 1 || threads > MAX_THREADS) {
    fprintf(stderr, "emulator: a block of %d threads; 1 to %d are possible\n", threads, MAX_THREADS);
    exit(3);
  }
  cluster = blocks_together;
  if (cluster < 1 || cluster > MAX_CLUSTER || grid.x % cluster || (cluster > 1 && threads % EMULATOR_WARP)) {
    fprintf(stderr, "emulator: clusters of %d blocks; 1 to %d of whole warps that divide the grid are possible\n", cluster,
            MAX_CLUSTER);
    exit(3);
  }
  if (stacks == nullptr) {
    void *memory = mmap(nullptr, MAX_THREADS * MAX_CLUSTER * STACK_BYTES, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
      perror("emulator: stacks");
      exit(3);
    }
    stacks = static_cast<char *>(memory);
  }
  shared_base = shared;
  shared_bytes = bytes;
  kernel = body;
  kernel_arguments = arguments;
  gridDim = grid;
  blockDim = block;
  const unsigned clusters = grid.x / cluster, begin = (random_state >> 33) % clusters;
  const bool backwards = random_state >> 20 & 1;
  for (unsigned z = 0; z < grid.z; ++z)
    for (unsigned y = 0; y < grid.y; ++y)
      for (unsigned i = 0; i < clusters; ++i) {
        if (bytes) memset(shared, 0xff, bytes * cluster);
        run_blocks({(begin + (backwards ? clusters - i : i)) % clusters * cluster, y, z});
      }
}

// A call leaves zeros where the next one expects them.
static void check_cleared(const unsigned char *workspace, size_t bytes) {
  for (size_t i = 0; i < bytes; ++i)
    if (workspace[i]) {
      fprintf(stderr, "emulator: byte %zu of the workspace is not zero again\n", i);
      exit(3);
    }
}

static void *read_exactly(FILE *file, size_t bytes) {
  void *memory = malloc(bytes);
  if (memory == nullptr || fread(memory, 1, bytes, file) != bytes) {
    fprintf(stderr, "emulator: the inputs end early\n");
    exit(3);
  }
  return memory;
}

}  // namespace emulator

#define __syncthreads() emulator::barrier(__LINE__)

// The device functions of codegen/cuda/ptx.py, as the PTX documentation describes them.
template <int BYTES>
static inline void copy_async(void *to, const void *from, bool inside = true) {
  static_assert(BYTES == 4 || BYTES == 8 || BYTES == 16, "an asynchronous copy has 4, 8 or 16 bytes");
  emulator::start_copy(to, from, BYTES, inside ? BYTES : 0);
}
static inline void commit_copies() { ++emulator::fibers[emulator::current].copies.group; }
template <int LEFT>
static inline void wait_for_copies() {
  emulator::finish_copies(LEFT);
}
