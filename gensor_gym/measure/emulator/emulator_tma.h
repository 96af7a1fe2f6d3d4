// Barriers in shared memory and copies of boxes by tensor maps (TMA), under the names that generated kernels give to the
// instructions. Addresses are those of the shared window, 32 bits: what a block of a cluster calls its own has the block's
// rank in the bits from 24 on, as on an H100.
//
// A copy is under way until the scheduler lets it happen, at a random later moment; its destination holds NaN until then.
// So a missing or early wait gives a wrong answer, and a wait for what never comes ends the process with a message.
#pragma once

#include "emulator.h"
#include "emulator_mma.h"

#define __grid_constant__

// A description where the driver's map is opaque; dimensions innermost first. See `codegen/tensor_map.py`.
struct alignas(64) TensorMap {
  const unsigned char *data;
  uint64_t strides[4];  // bytes, from the second dimension on
  uint32_t shape[5], box[5];
  uint16_t rank, item_bytes, swizzle;
  uint16_t steps[5];  // elements of the array from one that a box takes to the next
  uint16_t rounds;    // whether elements are float32 that become tf32
};
static_assert(sizeof(TensorMap) == 128, "a kernel takes 128 bytes");

namespace emulator {

// Waits until `happened(what)`.
static void await(int line, bool (*happened)(uint64_t), uint64_t what) {
  Fiber &self = fibers[current];
  while (!happened(what)) {
    self.line = line;
    self.happened = happened;
    self.value = what;
    leave(AT_EVENT);
  }
}

// Lets others run first, now and then: the order of operations that do not wait is random as well.
static void pause() {
  if (random_below(4) == 0) leave(READY);
}

constexpr unsigned WINDOW = 0x410;  // where a block's shared memory begins; aligned to 16 bytes and no more

constexpr unsigned RANK = 1u << 24;    // addresses of a block of the cluster begin at its rank * RANK

// The place of an address in the memory of a block of the cluster.
static unsigned at_rank(unsigned address, unsigned rank) { return address % RANK + rank * RANK; }

static unsigned own_rank() { return static_cast<unsigned>(current / threads); }

// Where an instruction takes addresses of the running block alone.
static void check_own(unsigned address, const char *who, int line) {
  if (address / RANK == own_rank()) return;
  fprintf(stderr, "emulator: %s at shared address %#x in the block of rank %u\n", who, address, own_rank());
  fail("a shared address that is not the block's own", line);
}

static unsigned char *shared_at(unsigned address, size_t bytes, const char *who, int line) {
  const unsigned own = address % RANK, block = address / RANK;
  if (own < WINDOW || own - WINDOW + bytes > shared_bytes) {
    fprintf(stderr, "emulator: %s touches shared address %u, %zu bytes\n", who, own, bytes);
    fail("outside the shared memory of the block", line);
  }
  if (block >= static_cast<unsigned>(cluster)) fail("a block that the cluster does not have", line);
  if (living[block] == 0) fail("the shared memory of a block that has ended", line);
  return shared_base + block * ((shared_bytes + 15) / 16 * 16) + (own - WINDOW);
}

// The 16-byte units of rows of `swizzle` bytes change places, as the address says.
static unsigned swizzled(unsigned address, unsigned swizzle) {
  const unsigned units = swizzle == 128 ? 0x70 : swizzle == 64 ? 0x30 : swizzle == 32 ? 0x10 : 0;
  return address ^ (address >> 3 & units);
}

// --- barriers: 8 bytes of shared memory

struct Barrier {
  unsigned pending, expected;  // arrivals left in this phase, arrivals of every phase
  int bytes;                   // announced and not copied yet
  unsigned phase;              // parity of the phase under way
  bool fenced;                 // whether others may see that it was initialised
};

constexpr int BYTES_BIAS = 1 << 20;
constexpr unsigned MAX_ARRIVALS = (1 << 20) - 1;

static Barrier read_barrier(unsigned address, int line) {
  uint64_t bits;
  if (address % 8) fail("a barrier at an address that is no multiple of 8", line);
  memcpy(&bits, shared_at(address, 8, "a barrier", line), 8);
  if (bits >> 63) fail("a barrier is used that was not initialised", line);
  return {static_cast<unsigned>(bits & 0xfffff), static_cast<unsigned>(bits >> 20 & 0xfffff),
          static_cast<int>(bits >> 40 & 0x1fffff) - BYTES_BIAS, static_cast<unsigned>(bits >> 61 & 1), (bits >> 62 & 1) != 0};
}

static void write_barrier(unsigned address, const Barrier &barrier, int line) {
  if (address % 8) fail("a barrier at an address that is no multiple of 8", line);
  const uint64_t bits = barrier.pending | static_cast<uint64_t>(barrier.expected) << 20 |
                        static_cast<uint64_t>(barrier.bytes + BYTES_BIAS) << 40 |
                        static_cast<uint64_t>(barrier.phase) << 61 | static_cast<uint64_t>(barrier.fenced) << 62;
  memcpy(shared_at(address, 8, "a barrier", line), &bits, 8);
}

// Arrivals and bytes that come in; the phase ends when neither is missing.
static void change_barrier(unsigned address, unsigned arrivals, int announced, int copied, int line) {
  Barrier barrier = read_barrier(address, line);
  if (!barrier.fenced) fail("a barrier is used before a fence made its initialisation visible", line);
  if (arrivals > barrier.pending) fail("a barrier gets more arrivals than it expects", line);
  barrier.pending -= arrivals;
  barrier.bytes += announced - copied;
  if (barrier.bytes < -BYTES_BIAS || barrier.bytes >= BYTES_BIAS) fail("a barrier counts too many bytes", line);
  if (barrier.pending == 0 && barrier.bytes == 0) {
    barrier.phase ^= 1;
    barrier.pending = barrier.expected;
  }
  write_barrier(address, barrier, line);
}

constexpr int MAX_BARRIERS = 64;
static unsigned initialised[MAX_BARRIERS];
static int num_initialised;

static void barrier_init(int line, unsigned address, unsigned arrivals) {
  if (num_initialised == MAX_BARRIERS) fail("more barriers than the emulator keeps", line);
  if (arrivals == 0 || arrivals > MAX_ARRIVALS) fail("a barrier that expects no arrival, or more than 2^20 - 1", line);
  check_own(address, "a barrier", line);
  write_barrier(address, {arrivals, arrivals, 0, 0, false}, line);
  initialised[num_initialised++] = address;
}

static void fence_barrier_init(int line) {
  for (; num_initialised > 0; --num_initialised) {
    const unsigned address = initialised[num_initialised - 1];
    Barrier barrier = read_barrier(address, line);
    barrier.fenced = true;
    write_barrier(address, barrier, line);
  }
}

// The running block does something to the shared memory of a block of its cluster.
static void reach_into(int block, int line) {
  if (block == static_cast<int>(own_rank())) return;
  if (!met) fail("a block reaches into another before a barrier of the cluster says that it has begun", line);
  reached[block] = true;
}

static void cluster_arrive(int line, unsigned address, int rank) {
  reach_into(rank, line);
  check_own(address, "mapa", line);
  change_barrier(at_rank(address, rank), 1, 0, 0, line);
  pause();
}

static void barrier_arrive(int line, unsigned address) {
  check_own(address, "a barrier", line);
  change_barrier(address, 1, 0, 0, line);
  pause();
}

static void barrier_expect_bytes(int line, unsigned address, int bytes) {
  check_own(address, "a barrier", line);
  change_barrier(address, 1, bytes, 0, line);
  pause();
}

// What a fiber waits for: address in the cluster and parity, and the line for a report.
static bool phase_ended(uint64_t what) {
  const unsigned parity = what & 1, address = static_cast<unsigned>(what >> 1 & 0xffffffff);
  const Barrier barrier = read_barrier(address, static_cast<int>(what >> 33));
  return barrier.phase != parity;
}

static void barrier_wait(int line, unsigned address, unsigned parity) {
  check_own(address, "a barrier", line);
  if (!read_barrier(address, line).fenced) fail("a barrier is used before a fence made its initialisation visible", line);
  await(line, phase_ended, static_cast<uint64_t>(line) << 33 | static_cast<uint64_t>(address) << 1 | (parity & 1));
  pause();
}

// --- copies of boxes

struct BoxCopy {
  TensorMap map;  // the kernel's own may be gone by then
  unsigned to, barrier;  // in the cluster
  int at[5];  // of the box's first element, innermost dimension first
  int line;
};

constexpr int MAX_COPIES = 256;
static BoxCopy copies[MAX_COPIES];
static int num_copies;

static size_t box_bytes(const TensorMap &map) {
  size_t bytes = map.item_bytes;
  for (int d = 0; d < map.rank; ++d) bytes *= map.box[d];
  return bytes;
}

// One row of a box, zeros where it is outside the tensor.
static void read_row(const BoxCopy &copy, unsigned row, unsigned char *bytes) {
  const TensorMap &map = copy.map;
  memset(bytes, 0, map.box[0] * map.item_bytes);
  const unsigned char *from = map.data;
  for (int d = 1; d < map.rank; ++d) {
    const int64_t index = copy.at[d] + static_cast<int64_t>(row % map.box[d]) * map.steps[d];
    if (index < 0 || index >= map.shape[d]) return;
    from += index * static_cast<int64_t>(map.strides[d - 1]);
    row /= map.box[d];
  }
  const int64_t first = copy.at[0], last = first + map.box[0];
  const int64_t begin = first < 0 ? 0 : first, end = last > map.shape[0] ? map.shape[0] : last;
  if (begin < end)
    memcpy(bytes + (begin - first) * map.item_bytes, from + begin * map.item_bytes, (end - begin) * map.item_bytes);
  for (unsigned i = 0; map.rounds && i < map.box[0]; ++i) {
    float value;
    memcpy(&value, bytes + 4 * i, 4);
    const unsigned rounded = round_tf32(value);
    memcpy(bytes + 4 * i, &rounded, 4);
  }
}

static void carry_out(const BoxCopy &copy) {
  if (living[copy.to / RANK] == 0) fail("the block ends while a copy into its shared memory is under way", copy.line);
  const TensorMap &map = copy.map;
  const unsigned row_bytes = map.box[0] * map.item_bytes;
  const unsigned rows = static_cast<unsigned>(box_bytes(map) / row_bytes);
  unsigned char bytes[1024];
  for (unsigned row = 0; row < rows; ++row) {
    read_row(copy, row, bytes);
    for (unsigned unit = 0; unit < row_bytes; unit += 16) {
      const unsigned at = copy.to % RANK + row * row_bytes + unit, to = at_rank(swizzled(at, map.swizzle), copy.to / RANK);
      memcpy(shared_at(to, 16, "a copy", copy.line), bytes + unit, 16);
    }
  }
  change_barrier(copy.barrier, 0, 0, static_cast<int>(rows * row_bytes), copy.line);
}

// The scheduler's: one of the copies under way happens.
static bool advance_copies() {
  if (num_copies == 0) return false;
  const unsigned pick = random_below(num_copies);
  const BoxCopy copy = copies[pick];
  copies[pick] = copies[--num_copies];
  carry_out(copy);
  return true;
}

template <typename First, typename... Rest>
static First first_of(First first, Rest...) {
  return first;
}

// Bring a box to the same place in every block of the set `blocks`. An H200 ends a box that begins within 16 bytes of a row by an
// illegal instruction.
template <typename... Coordinates>
static void load_box(int line, unsigned to, const TensorMap &map, unsigned barrier, unsigned blocks, Coordinates... at) {
  advance = advance_copies;
  if (sizeof...(at) != map.rank) fail("a copy with another number of coordinates than its map has", line);
  if (map.swizzle && map.box[0] * map.item_bytes != map.swizzle) fail("rows of a box shorter than the swizzle", line);
  if (to % 128) fail("a copy to a shared address that is no multiple of 128", line);
  if (first_of(at...) * static_cast<int>(map.item_bytes) % 16) fail("a box that begins at no multiple of 16 bytes along a row", line);
  check_own(to, "a copy", line);
  check_own(barrier, "the barrier of a copy", line);
  if (blocks >> cluster) fail("a copy whose mask names a block that the cluster does not have", line);
  for (int block = 0; block < cluster; ++block) {
    if (!(blocks >> block & 1)) continue;
    reach_into(block, line);
    if (num_copies == MAX_COPIES) fail("more copies under way than the emulator keeps", line);
    memset(shared_at(at_rank(to, block), box_bytes(map), "a copy", line), 0xff, box_bytes(map));
    copies[num_copies++] = {map, at_rank(to, block), at_rank(barrier, block), {at...}, line};
  }
  pause();
}

static unsigned own_block() { return 1u << own_rank(); }

static unsigned shared_address(const void *pointer) {
  return at_rank(WINDOW + static_cast<unsigned>(static_cast<const unsigned char *>(pointer) - shared_base), own_rank());
}

}  // namespace emulator

// --- the names that kernels use

static inline unsigned shared_address(const void *pointer) { return emulator::shared_address(pointer); }
static inline unsigned char *shared_pointer(unsigned address, int line = __builtin_LINE()) {
  emulator::check_own(address, "a pointer", line);
  return emulator::shared_at(address, 1, "a pointer", line);
}
static inline void prefetch_map(const TensorMap &) {}

static inline void barrier_init(unsigned barrier, unsigned arrivals, int line = __builtin_LINE()) {
  emulator::barrier_init(line, barrier, arrivals);
}
static inline void fence_barrier_init(int line = __builtin_LINE()) { emulator::fence_barrier_init(line); }
static inline void barrier_arrive(unsigned barrier, int line = __builtin_LINE()) { emulator::barrier_arrive(line, barrier); }
static inline void barrier_expect_bytes(unsigned barrier, int bytes, int line = __builtin_LINE()) {
  emulator::barrier_expect_bytes(line, barrier, bytes);
}
static inline void barrier_wait(unsigned barrier, unsigned parity, int line = __builtin_LINE()) {
  emulator::barrier_wait(line, barrier, parity);
}
static inline void load_box_2d(unsigned to, const TensorMap &map, unsigned barrier, int x, int y, int line = __builtin_LINE()) {
  emulator::load_box(line, to, map, barrier, emulator::own_block(), x, y);
}
static inline void load_box_3d(unsigned to, const TensorMap &map, unsigned barrier, int x, int y, int z,
                               int line = __builtin_LINE()) {
  emulator::load_box(line, to, map, barrier, emulator::own_block(), x, y, z);
}
static inline void load_box_4d(unsigned to, const TensorMap &map, unsigned barrier, int x, int y, int z, int w,
                               int line = __builtin_LINE()) {
  emulator::load_box(line, to, map, barrier, emulator::own_block(), x, y, z, w);
}
static inline void load_box_5d(unsigned to, const TensorMap &map, unsigned barrier, int x, int y, int z, int w, int v,
                               int line = __builtin_LINE()) {
  emulator::load_box(line, to, map, barrier, emulator::own_block(), x, y, z, w, v);
}
static inline void multicast_box_2d(unsigned to, const TensorMap &map, unsigned barrier, unsigned blocks, int x, int y,
                                    int line = __builtin_LINE()) {
  emulator::load_box(line, to, map, barrier, blocks, x, y);
}
static inline void multicast_box_3d(unsigned to, const TensorMap &map, unsigned barrier, unsigned blocks, int x, int y, int z,
                                    int line = __builtin_LINE()) {
  emulator::load_box(line, to, map, barrier, blocks, x, y, z);
}
static inline void multicast_box_4d(unsigned to, const TensorMap &map, unsigned barrier, unsigned blocks, int x, int y, int z,
                                    int w, int line = __builtin_LINE()) {
  emulator::load_box(line, to, map, barrier, blocks, x, y, z, w);
}
static inline void cluster_arrive(unsigned barrier, int rank, int line = __builtin_LINE()) {
  emulator::cluster_arrive(line, barrier, rank);
}
static inline void cluster_sync(int line = __builtin_LINE()) { emulator::cluster_barrier(line); }
