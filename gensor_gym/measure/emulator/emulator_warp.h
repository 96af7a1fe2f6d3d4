// Operations of a warp: the lanes that a mask names meet, and give each other what they brought.
#pragma once

#include "emulator.h"

namespace emulator {

// A fiber's lane, and how many lanes the warp has that begins with a fiber. Warps of a block begin anew: those of a cluster
// are whole.
static int lane_of(int fiber) { return fiber % threads % EMULATOR_WARP; }
static int lanes_from(int first) {
  const int left = threads - first % threads;
  return left < EMULATOR_WARP ? left : EMULATOR_WARP;
}

// A lane of the mask has come to a warp operation. Returns true for the last one; the others sleep until it wakes them.
static bool arrive(int line, uint64_t mask, uint64_t value) {
  const int lane = lane_of(current), first = current - lane, lanes = lanes_from(first);
  if (!(mask >> lane & 1)) fail("a thread calls a warp operation whose mask does not name it", line);
  if (lanes < EMULATOR_WARP && mask >> lanes) fail("the mask of a warp operation names lanes that the block does not have", line);
  Fiber &self = fibers[current];
  self.line = line;
  self.mask = mask;
  self.value = value;
  bool complete = true;
  for (int l = 0; l < lanes; ++l) {
    const Fiber &other = fibers[first + l];
    if (!(mask >> l & 1) || l == lane) continue;
    complete = complete && other.state == AT_WARP && other.mask == mask && other.line == line;
  }
  if (!complete) leave(AT_WARP);
  return complete;
}

// All lanes of the mask meet; afterwards fibers[current].received holds what each brought.
static void meet(int line, uint64_t mask, uint64_t value) {
  if (!arrive(line, mask, value)) return;
  const int first = current - lane_of(current), lanes = lanes_from(first);
  for (int to = 0; to < lanes; ++to) {
    if (!(mask >> to & 1)) continue;
    for (int from = 0; from < lanes; ++from) fibers[first + to].received[from] = fibers[first + from].value;
    fibers[first + to].state = READY;
  }
}

template <typename T>
static T shuffle(int line, uint64_t mask, T value, int source, bool inside) {
  static_assert(sizeof(T) <= 8, "a shuffle moves at most 8 bytes");
  uint64_t bits = 0;
  memcpy(&bits, &value, sizeof value);
  meet(line, mask, bits);
  if (!inside) return value;
  if (!(mask >> source & 1)) fail("a shuffle reads a lane that the mask does not name", line);
  T result;
  memcpy(&result, &fibers[current].received[source], sizeof result);
  return result;
}

template <typename T>
static T shuffle_from(int line, uint64_t mask, T value, int source, int width = EMULATOR_WARP) {
  const int lane = lane_of(current);
  return shuffle(line, mask, value, lane / width * width + (source & (width - 1)), true);
}

template <typename T>
static T shuffle_down(int line, uint64_t mask, T value, unsigned delta, int width = EMULATOR_WARP) {
  const int lane = lane_of(current), source = lane + static_cast<int>(delta);
  return shuffle(line, mask, value, source, source < lane / width * width + width);
}

template <typename T>
static T shuffle_up(int line, uint64_t mask, T value, unsigned delta, int width = EMULATOR_WARP) {
  const int lane = lane_of(current), source = lane - static_cast<int>(delta);
  return shuffle(line, mask, value, source, source >= lane / width * width);
}

template <typename T>
static T shuffle_xor(int line, uint64_t mask, T value, int bits, int width = EMULATOR_WARP) {
  const int lane = lane_of(current), source = lane ^ bits;
  return shuffle(line, mask, value, source, source < lane / width * width + width);
}

static inline uint64_t ballot(int line, uint64_t mask, int predicate) {
  meet(line, mask, predicate != 0);
  uint64_t votes = 0;
  for (int l = 0; l < EMULATOR_WARP; ++l)
    if (mask >> l & 1) votes |= (fibers[current].received[l] & 1) << l;
  return votes;
}

// All lanes that the warp of this thread has: HIP names none.
static uint64_t all_lanes() {
  const int lanes = lanes_from(current - lane_of(current));
  return lanes == 64 ? ~uint64_t{0} : (uint64_t{1} << lanes) - 1;
}

}  // namespace emulator

#define __shfl_down(...) emulator::shuffle_down(__LINE__, emulator::all_lanes(), __VA_ARGS__)
#define __syncwarp(mask) emulator::ballot(__LINE__, mask, 0)
#define __shfl_sync(...) emulator::shuffle_from(__LINE__, __VA_ARGS__)
#define __shfl_down_sync(...) emulator::shuffle_down(__LINE__, __VA_ARGS__)
#define __shfl_up_sync(...) emulator::shuffle_up(__LINE__, __VA_ARGS__)
#define __shfl_xor_sync(...) emulator::shuffle_xor(__LINE__, __VA_ARGS__)
#define __ballot_sync(mask, predicate) static_cast<unsigned>(emulator::ballot(__LINE__, mask, predicate))
#define __any_sync(mask, predicate) (emulator::ballot(__LINE__, mask, predicate) != 0)
#define __all_sync(mask, predicate) (emulator::ballot(__LINE__, mask, predicate) == (mask))
