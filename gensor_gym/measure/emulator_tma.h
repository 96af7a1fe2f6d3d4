// What kernels of sm_90a need beyond `emulator.h`: barriers in shared memory, copies of boxes by tensor maps (TMA), and
// the matrix multiply-adds of a warpgroup (wgmma). Functions have the names that generated kernels give to the
// instructions; addresses are those of the shared window, 32 bits.
//
// A copy is under way until the scheduler lets it happen, at a random later moment; its destination holds NaN until then.
// A multiply-add reads its operands as late as it may, at the wait for its group; its accumulators hold NaN until then.
// So a missing or early wait gives a wrong answer, and a wait for what never comes ends the process with a message.
#pragma once

#include "emulator.h"

#define __grid_constant__

// A description where the driver's map is opaque; dimensions innermost first. See `codegen/tensor_map.py`.
struct alignas(64) TensorMap {
  const unsigned char *data;
  uint64_t strides[4];  // bytes, from the second dimension on
  uint32_t shape[5], box[5];
  uint16_t rank, item_bytes, swizzle;
};
static_assert(sizeof(TensorMap) == 128, "a kernel takes 128 bytes");

namespace emulator {

constexpr unsigned WINDOW = 0x410;  // where a block's shared memory begins; aligned to 16 bytes and no more

static unsigned char *shared_at(unsigned address, size_t bytes, const char *who, int line) {
  if (address < WINDOW || address - WINDOW + bytes > shared_bytes) {
    fprintf(stderr, "emulator: %s touches shared address %u, %zu bytes\n", who, address, bytes);
    fail("outside the shared memory of the block", line);
  }
  return shared_base + (address - WINDOW);
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

static Barrier read_barrier(unsigned address, int line) {
  uint64_t bits;
  if (address % 8) fail("a barrier at an address that is no multiple of 8", line);
  memcpy(&bits, shared_at(address, 8, "a barrier", line), 8);
  if (bits >> 63) fail("a barrier is used that was not initialised", line);
  return {static_cast<unsigned>(bits & 0xfffff), static_cast<unsigned>(bits >> 20 & 0xfffff),
          static_cast<int>(bits >> 40 & 0x1fffff) - BYTES_BIAS, static_cast<unsigned>(bits >> 61 & 1), (bits >> 62 & 1) != 0};
}

static void write_barrier(unsigned address, const Barrier &barrier, int line) {
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

static void barrier_arrive(int line, unsigned address) {
  change_barrier(address, 1, 0, 0, line);
  pause();
}

static void barrier_expect_bytes(int line, unsigned address, int bytes) {
  change_barrier(address, 1, bytes, 0, line);
  pause();
}

// What a fiber waits for: address and parity, and the line for a report.
static bool phase_ended(uint64_t what) {
  const unsigned parity = what & 1, address = static_cast<unsigned>(what >> 1 & 0xffffffff);
  const Barrier barrier = read_barrier(address, static_cast<int>(what >> 33));
  return barrier.phase != parity;
}

static void barrier_wait(int line, unsigned address, unsigned parity) {
  if (!read_barrier(address, line).fenced) fail("a barrier is used before a fence made its initialisation visible", line);
  await(line, phase_ended, static_cast<uint64_t>(line) << 33 | static_cast<uint64_t>(address) << 1 | (parity & 1));
  pause();
}

// --- copies of boxes

struct Copy {
  const TensorMap *map;
  unsigned to, barrier;
  int at[5];  // of the box's first element, innermost dimension first
  int line;
};

constexpr int MAX_COPIES = 256;
static Copy copies[MAX_COPIES];
static int num_copies;

static size_t box_bytes(const TensorMap &map) {
  size_t bytes = map.item_bytes;
  for (int d = 0; d < map.rank; ++d) bytes *= map.box[d];
  return bytes;
}

// One row of a box, zeros where it is outside the tensor.
static void read_row(const Copy &copy, unsigned row, unsigned char *bytes) {
  const TensorMap &map = *copy.map;
  memset(bytes, 0, map.box[0] * map.item_bytes);
  const unsigned char *from = map.data;
  for (int d = 1; d < map.rank; ++d) {
    const int64_t index = copy.at[d] + static_cast<int64_t>(row % map.box[d]);
    if (index < 0 || index >= map.shape[d]) return;
    from += index * static_cast<int64_t>(map.strides[d - 1]);
    row /= map.box[d];
  }
  const int64_t first = copy.at[0], last = first + map.box[0];
  const int64_t begin = first < 0 ? 0 : first, end = last > map.shape[0] ? map.shape[0] : last;
  if (begin < end)
    memcpy(bytes + (begin - first) * map.item_bytes, from + begin * map.item_bytes, (end - begin) * map.item_bytes);
}

static void carry_out(const Copy &copy) {
  const TensorMap &map = *copy.map;
  const unsigned row_bytes = map.box[0] * map.item_bytes;
  const unsigned rows = static_cast<unsigned>(box_bytes(map) / row_bytes);
  unsigned char bytes[1024];
  for (unsigned row = 0; row < rows; ++row) {
    read_row(copy, row, bytes);
    for (unsigned unit = 0; unit < row_bytes; unit += 16) {
      const unsigned to = swizzled(copy.to + row * row_bytes + unit, map.swizzle);
      memcpy(shared_at(to, 16, "a copy", copy.line), bytes + unit, 16);
    }
  }
  change_barrier(copy.barrier, 0, 0, static_cast<int>(rows * row_bytes), copy.line);
}

// The scheduler's: one of the copies under way happens.
static bool advance_copies() {
  if (num_copies == 0) return false;
  const unsigned pick = random_below(num_copies);
  const Copy copy = copies[pick];
  copies[pick] = copies[--num_copies];
  carry_out(copy);
  return true;
}

template <typename... Coordinates>
static void load_box(int line, unsigned to, const TensorMap &map, unsigned barrier, Coordinates... at) {
  advance = advance_copies;
  if (sizeof...(at) != map.rank) fail("a copy with another number of coordinates than its map has", line);
  if (map.swizzle && map.box[0] * map.item_bytes != map.swizzle) fail("rows of a box shorter than the swizzle", line);
  if (to % 128) fail("a copy to a shared address that is no multiple of 128", line);
  if (num_copies == MAX_COPIES) fail("more copies under way than the emulator keeps", line);
  memset(shared_at(to, box_bytes(map), "a copy", line), 0xff, box_bytes(map));
  copies[num_copies++] = {&map, to, barrier, {at...}, line};
  pause();
}

// --- multiply-adds of a warpgroup

static float float_of_bfloat16(uint16_t bits) {
  const uint32_t wide = static_cast<uint32_t>(bits) << 16;
  float value;
  memcpy(&value, &wide, sizeof value);
  return value;
}

static float float_of_float16(uint16_t bits) {
  const int exponent = bits >> 10 & 31, mantissa = bits & 1023;
  const float sign = bits >> 15 ? -1.0f : 1.0f;
  if (exponent == 31) return mantissa ? NAN : sign * INFINITY;
  return sign * (exponent ? ldexpf(static_cast<float>(1024 + mantissa), exponent - 25) : ldexpf(static_cast<float>(mantissa), -24));
}

constexpr int MAX_COLUMNS = 256;
constexpr int MAX_PRODUCTS = 64;   // under way in a thread
constexpr int MAX_FRAGMENTS = 16;  // accumulator arrays of a thread
constexpr int INSTRUCTION_K = 16;  // of 16-bit elements

struct Product {
  int fragment, group, line;
  uint64_t a, b;
  bool add, transposed;
  float (*value)(uint16_t);
};

struct Fragment {
  float *registers;  // the kernel's array, NaN while a product of it is under way
  float sums[MAX_COLUMNS / 2];
  int columns, under_way;
};

// What a thread has of the multiply-adds of its warpgroup.
struct Multiplier {
  unsigned long block;
  bool fenced;
  int num_products, num_fragments, groups;  // `groups` counts those committed
  unsigned long issued;
  Product products[MAX_PRODUCTS];
  Fragment fragments[MAX_FRAGMENTS];
};

static Multiplier *multipliers;

struct Issue {
  unsigned long block, number;
  uint64_t a, b;
};

constexpr int MAX_APART = 1024;  // products that threads of a warpgroup may be apart
static Issue issues[MAX_THREADS / 128][MAX_APART];

static Multiplier &multiplier() {
  if (multipliers == nullptr) multipliers = static_cast<Multiplier *>(calloc(MAX_THREADS, sizeof(Multiplier)));
  Multiplier &self = multipliers[current];
  if (self.block != blocks_begun) {
    self.block = blocks_begun;
    self.fenced = false;
    self.num_products = self.num_fragments = self.groups = 0;
    self.issued = 0;
  }
  return self;
}

// All threads of a warpgroup issue the same products: the first one to come keeps its operands for the others.
static void compare_issue(Multiplier &self, uint64_t a, uint64_t b, int line) {
  Issue &first = issues[current / 128][self.issued % MAX_APART];
  const unsigned long number = ++self.issued;
  if (first.block != self.block || first.number < number) first = {self.block, number, a, b};
  if (first.number != number || first.a != a || first.b != b) fail("threads of a warpgroup issue different wgmma", line);
}

struct Operand {
  unsigned start, leading, stride;
};

static Operand decode(uint64_t descriptor, int line) {
  if (descriptor >> 62 != 1) fail("a matrix descriptor whose layout is not the 128-byte swizzle", line);
  if (descriptor >> 49 & 7) fail("a matrix descriptor with a base offset", line);
  const Operand operand = {static_cast<unsigned>(descriptor & 0x3fff) << 4, static_cast<unsigned>(descriptor >> 16 & 0x3fff) << 4,
                           static_cast<unsigned>(descriptor >> 32 & 0x3fff) << 4};
  if (operand.start & 0x380) fail("a matrix whose swizzle atoms do not begin at multiples of 1024 bytes", line);
  return operand;
}

// Element (row, k) of an operand. Rows of k one after the other, eight to an atom (`stride` from atom to atom); transposed:
// 64 rows of the matrix side by side, eight k to an atom, `leading` from 64 rows to the next.
static uint16_t element(const Operand &operand, bool transposed, unsigned row, unsigned k, int line) {
  unsigned at = operand.start;
  if (transposed)
    at += row / 64 * operand.leading + row % 64 * 2 + k / 8 * operand.stride + k % 8 * 128;
  else
    at += row / 8 * operand.stride + row % 8 * 128 + k * 2;
  uint16_t bits;
  memcpy(&bits, shared_at(swizzled(at, 128), 2, "wgmma", line), 2);
  return bits;
}

// This thread's part of one product: rows l / 4 and l / 4 + 8 of its warp's 16, columns 2 (l % 4) and the next of every 8.
static void compute(Fragment &fragment, const Product &product) {
  const Operand a = decode(product.a, product.line), b = decode(product.b, product.line);
  const unsigned thread = current % 128, row = thread / 32 * 16 + thread % 32 / 4, column = thread % 4 * 2;
  float left[2][INSTRUCTION_K];
  for (unsigned half = 0; half < 2; ++half)
    for (unsigned k = 0; k < INSTRUCTION_K; ++k)
      left[half][k] = product.value(element(a, false, row + 8 * half, k, product.line));
  for (int i = 0; i < fragment.columns / 2; i += 4)
    for (unsigned side = 0; side < 2; ++side) {
      float sums[2] = {product.add ? fragment.sums[i + side] : 0, product.add ? fragment.sums[i + 2 + side] : 0};
      for (unsigned k = 0; k < INSTRUCTION_K; ++k) {
        const float right = product.value(element(b, product.transposed, i * 2 + column + side, k, product.line));
        for (unsigned half = 0; half < 2; ++half) sums[half] += left[half][k] * right;
      }
      for (unsigned half = 0; half < 2; ++half) fragment.sums[i + 2 * half + side] = sums[half];
    }
}

static int fragment_of(Multiplier &self, float *registers, int columns, int line) {
  for (int f = 0; f < self.num_fragments; ++f)
    if (self.fragments[f].registers == registers) return f;
  if (self.num_fragments == MAX_FRAGMENTS) fail("more accumulators than the emulator keeps", line);
  Fragment &made = self.fragments[self.num_fragments];
  made.registers = registers;
  made.columns = columns;
  made.under_way = 0;
  return self.num_fragments++;
}

template <int ELEMENTS>
static void wgmma(int line, float (*value)(uint16_t), bool transposed, float (&registers)[ELEMENTS], uint64_t a, uint64_t b,
                  int add) {
  constexpr int columns = ELEMENTS * 2;
  static_assert(columns % 8 == 0 && columns <= MAX_COLUMNS, "wgmma has 8 to 256 columns, in eights");
  Multiplier &self = multiplier();
  if (!self.fenced) fail("wgmma without wgmma_fence since its accumulators were last in the threads' hands", line);
  compare_issue(self, a, b, line);
  if (self.num_products == MAX_PRODUCTS) fail("more wgmma under way than the emulator keeps", line);
  const int f = fragment_of(self, registers, columns, line);
  Fragment &fragment = self.fragments[f];
  if (fragment.under_way++ == 0) {
    memcpy(fragment.sums, registers, sizeof registers);
    memset(registers, 0xff, sizeof registers);
  }
  self.products[self.num_products++] = {f, self.groups, line, a, b, add != 0, transposed, value};
}

static void wgmma_fence() { multiplier().fenced = true; }

static void wgmma_commit() {
  ++multiplier().groups;
  pause();
}

// All groups but the last `left` are done; accumulators that nothing is under way for are the thread's again.
static void wgmma_wait(int line, int left) {
  Multiplier &self = multiplier();
  int kept = 0;
  for (int p = 0; p < self.num_products; ++p) {
    const Product product = self.products[p];
    if (product.group >= self.groups - left) {
      self.products[kept++] = product;
      continue;
    }
    Fragment &fragment = self.fragments[product.fragment];
    compute(fragment, product);
    if (--fragment.under_way == 0) {
      memcpy(fragment.registers, fragment.sums, sizeof(float) * fragment.columns / 2);
      self.fenced = false;
    }
  }
  self.num_products = kept;
  ballot(line, 0xffffffffu, 0);
}

}  // namespace emulator

// --- the names that kernels use

static inline unsigned shared_address(const void *) { return emulator::WINDOW; }
static inline void prefetch_map(const TensorMap &) {}
template <int COUNT>
static inline void release_registers() {
  static_assert(COUNT % 8 == 0 && COUNT >= 24 && COUNT <= 256, "setmaxnreg takes 24 to 256 registers, in eights");
}
template <int COUNT>
static inline void request_registers() {
  release_registers<COUNT>();
}

#define barrier_init(...) emulator::barrier_init(__LINE__, __VA_ARGS__)
#define fence_barrier_init() emulator::fence_barrier_init(__LINE__)
#define barrier_arrive(...) emulator::barrier_arrive(__LINE__, __VA_ARGS__)
#define barrier_expect_bytes(...) emulator::barrier_expect_bytes(__LINE__, __VA_ARGS__)
#define barrier_wait(...) emulator::barrier_wait(__LINE__, __VA_ARGS__)
#define load_box(...) emulator::load_box(__LINE__, __VA_ARGS__)
#define wgmma_bfloat16(...) emulator::wgmma(__LINE__, emulator::float_of_bfloat16, true, __VA_ARGS__)
#define wgmma_float16(...) emulator::wgmma(__LINE__, emulator::float_of_float16, true, __VA_ARGS__)
#define wgmma_fence() emulator::wgmma_fence()
#define wgmma_commit() emulator::wgmma_commit()
#define wgmma_wait(left) emulator::wgmma_wait(__LINE__, left)
