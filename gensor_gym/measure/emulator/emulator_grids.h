// Programmatic dependent launch: a kernel may start before earlier kernels are done (`codegen/cuda/dependent.py`).
//
// Until the first wait, inputs hold bytes of ones, and nothing may be written. Every thread has to wait.
#pragma once

#include <vector>

#include "emulator.h"

namespace emulator {

struct Withheld {
  unsigned char *at;
  std::vector<unsigned char> kept;
  bool arrives;
};
static std::vector<Withheld> withheld;
static long long waits = 0;

// Memory that an earlier kernel still writes, and that `arrives` at the first wait, or that it still reads.
static void withhold(void *at, size_t bytes, bool arrives) {
  unsigned char *const begin = static_cast<unsigned char *>(at);
  withheld.push_back({begin, std::vector<unsigned char>(begin, begin + bytes), arrives});
  if (arrives && bytes) memset(begin, 0xff, bytes);
}

static void wait_for_grids() {
  ++waits;
  for (const Withheld &one : withheld) {
    const size_t bytes = one.kept.size();
    if (one.arrives && bytes) memcpy(one.at, one.kept.data(), bytes);
    if (!one.arrives && bytes && memcmp(one.at, one.kept.data(), bytes)) {
      fprintf(stderr, "emulator: a kernel writes before it has waited for earlier kernels\n");
      exit(3);
    }
  }
  withheld.clear();
}

// After a launch of so many threads.
static void check_waits(long long threads) {
  if (waits != threads) {
    fprintf(stderr, "emulator: %lld of %lld threads waited for earlier kernels\n", waits, threads);
    exit(3);
  }
  waits = 0;
}

}  // namespace emulator

static inline void wait_for_grids() { emulator::wait_for_grids(); }
static inline void start_next_grid() {}
