// Matrices that a warp stores to shared memory (stmatrix), and stores of boxes from there by tensor maps (TMA), under the names
// that generated kernels give to the instructions.
//
// A store of a box reads shared memory as late as it may, at its thread's wait for its group. So whoever writes there before
// ends the process with a message, and so does a thread that ends without such a wait. When the store begins, all lanes of the
// warps whose matrices it reads must have come to a fence since: TMA does not see other writes.
#pragma once

#include "emulator_mma.h"
#include "emulator_tma.h"
#include "emulator_warp.h"

namespace emulator {

// What is known of 16 bytes of shared memory.
struct Unit {
  unsigned number, warp;  // of the stmatrix that wrote them last, counted from 1 in its warp
  int stores;             // under way that read them
};

constexpr unsigned MAX_UNITS = (1 << 18) / 16;  // of a block
static Unit units[MAX_CLUSTER * MAX_UNITS];
static unsigned long units_block;                            // that `units` are of, as counted by `blocks_begun`
static unsigned stored[MAX_CLUSTER * MAX_THREADS / 32];      // number of the last stmatrix of each warp
static unsigned fenced_stored[MAX_CLUSTER * MAX_THREADS];    // and what it was at each thread's last fence

static Unit &unit_at(unsigned address, int line) {
  if (units_block != blocks_begun) {
    memset(units, 0, sizeof units);
    memset(stored, 0, sizeof stored);
    memset(fenced_stored, 0, sizeof fenced_stored);
    units_block = blocks_begun;
  }
  shared_at(address, 16, "a store", line);
  return units[address / RANK * MAX_UNITS + (address % RANK - WINDOW) / 16];
}

struct StoredRow {
  unsigned to;
  const unsigned *words;
};

// Row r of matrix i has the address of lane 8 i + r; transposed, a row in memory is a column of the lanes' matrix.
template <bool TRANSPOSED>
static void store_matrices(int line, unsigned to, const unsigned (&words)[4]) {
  StoredRow mine{to, words};
  together(line, mine, [&](StoredRow **lanes) {
    const unsigned warp = current / 32;
    unit_at(lanes[0]->to, line);
    ++stored[warp];
    for (int l = 0; l < 32; ++l) {
      const unsigned row = l % 8, address = lanes[l]->to;
      check_own(address, "stmatrix", line);
      if (address % 16) fail("stmatrix: a row does not begin at a multiple of 16 bytes", line);
      unsigned short elements[8];
      for (unsigned e = 0; e < 8; ++e) {
        const unsigned held = TRANSPOSED ? e * 4 + row / 2 : row * 4 + e / 2;
        elements[e] = static_cast<unsigned short>(lanes[held]->words[l / 8] >> (TRANSPOSED ? row : e) % 2 * 16);
      }
      Unit &unit = unit_at(address, line);
      if (unit.stores) fail("stmatrix: a store that is under way still reads what is overwritten", line);
      unit.number = stored[warp];
      unit.warp = warp;
      memcpy(shared_at(address, 16, "stmatrix", line), elements, 16);
    }
  });
}

static void fence_async() { fenced_stored[current] = stored[current / 32]; }

struct BoxStore {
  TensorMap map;
  unsigned from;
  int at[5];  // of the box's first element, innermost dimension first
  int thread, line;
  long group;
};

constexpr int MAX_STORES = 1024;
static BoxStore stores[MAX_STORES];  // under way, oldest first
static int num_stores;
static long store_groups[MAX_CLUSTER * MAX_THREADS];  // that each thread has committed

static unsigned unit_of_box(const BoxStore &store, unsigned place) {
  return at_rank(swizzled(store.from % RANK + place, store.map.swizzle), store.from / RANK);
}

// TMA sees what every lane of a warp has stored and fenced.
static void check_fences(const Unit &unit, int line) {
  if (unit.number == 0) return;
  for (int l = 0; l < 32; ++l)
    if (fenced_stored[unit.warp * 32 + l] < unit.number)
      fail("a store begins before each lane has fenced what stmatrix has written there", line);
}

// One row of a box to where it belongs; what is outside of the tensor is left out.
static void write_row(const BoxStore &store, unsigned row, const unsigned char *bytes) {
  const TensorMap &map = store.map;
  unsigned char *to = const_cast<unsigned char *>(map.data);
  for (int d = 1; d < map.rank; ++d) {
    const int64_t index = store.at[d] + static_cast<int64_t>(row % map.box[d]) * map.steps[d];
    if (index < 0 || index >= map.shape[d]) return;
    to += index * static_cast<int64_t>(map.strides[d - 1]);
    row /= map.box[d];
  }
  for (unsigned i = 0; i < map.box[0]; ++i) {
    const int64_t index = store.at[0] + static_cast<int64_t>(i);
    if (index >= 0 && index < map.shape[0]) memcpy(to + index * map.item_bytes, bytes + i * map.item_bytes, map.item_bytes);
  }
}

static void carry_out(const BoxStore &store) {
  const unsigned row_bytes = store.map.box[0] * store.map.item_bytes, bytes = static_cast<unsigned>(box_bytes(store.map));
  unsigned char row[1024];
  for (unsigned place = 0; place < bytes; place += 16) {
    const unsigned address = unit_of_box(store, place);
    --unit_at(address, store.line).stores;
    memcpy(row + place % row_bytes, shared_at(address, 16, "a store", store.line), 16);
    if ((place + 16) % row_bytes == 0) write_row(store, place / row_bytes, row);
  }
}

template <typename... Coordinates>
static void store_box(int line, const TensorMap &map, unsigned from, Coordinates... at) {
  if (sizeof...(at) != map.rank) fail("a store with another number of coordinates than its map has", line);
  if (map.swizzle && map.box[0] * map.item_bytes != map.swizzle) fail("rows of a box shorter than the swizzle", line);
  if (from % 128) fail("a store from a shared address that is no multiple of 128", line);
  if (first_of(at...) * static_cast<int>(map.item_bytes) % 16) fail("a box that begins at no multiple of 16 bytes along a row", line);
  check_own(from, "a store", line);
  if (num_stores == MAX_STORES) fail("more stores under way than the emulator keeps", line);
  BoxStore &made = stores[num_stores++];
  made = {map, from, {at...}, current, line, store_groups[current]};
  ++fibers[current].stores;
  for (unsigned place = 0; place < box_bytes(map); place += 16) {
    Unit &unit = unit_at(unit_of_box(made, place), line);
    check_fences(unit, line);
    ++unit.stores;
  }
  pause();
}

static void commit_stores() { ++store_groups[current]; }

// All groups of the running thread but the newest `left` have read shared memory.
static void wait_for_stores(int left) {
  int kept = 0;
  for (int s = 0; s < num_stores; ++s) {
    const BoxStore store = stores[s];
    if (store.thread != current || store.group >= store_groups[current] - left) {
      stores[kept++] = store;
      continue;
    }
    carry_out(store);
    --fibers[current].stores;
  }
  num_stores = kept;
  pause();
}

}  // namespace emulator

static inline void store_matrices_x4(unsigned to, const unsigned (&words)[4], int line = __builtin_LINE()) {
  emulator::store_matrices<false>(line, to, words);
}
static inline void store_transposed_x4(unsigned to, const unsigned (&words)[4], int line = __builtin_LINE()) {
  emulator::store_matrices<true>(line, to, words);
}
static inline void fence_async() { emulator::fence_async(); }
static inline void commit_stores() { emulator::commit_stores(); }
template <int LEFT>
static inline void wait_for_stores() {
  emulator::wait_for_stores(LEFT);
}
#define STORE_BOX(RANK, PARAMETERS, PLACES)                                                                                     \
  static inline void store_box_##RANK##d(const TensorMap &map, unsigned from, PARAMETERS, int line = __builtin_LINE()) {        \
    emulator::store_box(line, map, from, PLACES);                                                                               \
  }
#define LIST(...) __VA_ARGS__
STORE_BOX(2, LIST(int x, int y), LIST(x, y))
STORE_BOX(3, LIST(int x, int y, int z), LIST(x, y, z))
STORE_BOX(4, LIST(int x, int y, int z, int w), LIST(x, y, z, w))
STORE_BOX(5, LIST(int x, int y, int z, int w, int v), LIST(x, y, z, w, v))
#undef LIST
