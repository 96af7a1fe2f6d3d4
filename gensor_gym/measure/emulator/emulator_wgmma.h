// The matrix multiply-adds of a warpgroup (wgmma of sm_90a), and its registers.
//
// A multiply-add reads its operands as late as it may, at the wait for its group; its accumulators hold NaN until then. So a
// missing wait, and a stage that is given back too early, give a wrong answer. A left operand in registers must not change until
// the wait.
#pragma once

#include <type_traits>

#include "emulator_half.h"
#include "emulator_mma.h"
#include "emulator_store.h"
#include "emulator_tma.h"
#include "emulator_warp.h"

struct alignas(8) uint2 { unsigned x, y; };
struct alignas(16) uint4 { unsigned x, y, z, w; };

namespace emulator {

constexpr int MAX_COLUMNS = 256;
constexpr int MAX_PRODUCTS = 64;   // under way in a thread
constexpr int MAX_FRAGMENTS = 16;  // accumulator arrays of a thread
constexpr unsigned DEPTH_BYTES = 32;  // of a row of k, what one multiply-add takes

struct Fragment;

struct Issued {
  int fragment, group, line;
  uint64_t a, b;
  bool add, transposed;
  void (*compute)(Fragment &, const Issued &);
  const unsigned *registers;  // of a left operand, null where `a` describes it in shared memory
  unsigned words[4][4];       // what the four lanes of this thread's rows have there
};

struct Fragment {
  void *registers;  // the kernel's array, NaN (of integers something else) while a product of it is under way
  float floats[MAX_COLUMNS / 2];
  int integers[MAX_COLUMNS / 2];
  int columns, under_way;
};

static float *sums_of(Fragment &fragment, float) { return fragment.floats; }
static int *sums_of(Fragment &fragment, int) { return fragment.integers; }

// What a thread has of the multiply-adds of its warpgroup.
struct Multiplier {
  unsigned long block;
  bool fenced;
  int num_products, num_fragments, groups;  // `groups` counts those committed
  unsigned long issued;
  Issued products[MAX_PRODUCTS];
  Fragment fragments[MAX_FRAGMENTS];
};

static Multiplier *multipliers;

struct Issue {
  unsigned long block, number;
  uint64_t a, b;
};

constexpr int MAX_APART = 1024;  // products that threads of a warpgroup may be apart
static Issue issues[MAX_THREADS * MAX_CLUSTER / 128][MAX_APART];

static Multiplier &multiplier() {
  if (multipliers == nullptr) multipliers = static_cast<Multiplier *>(calloc(MAX_THREADS * MAX_CLUSTER, sizeof(Multiplier)));
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

constexpr uint64_t RESERVED = 3ull << 14 | 3ull << 30 | 7ull << 46 | 0x3ffull << 52;  // bits of a descriptor
constexpr unsigned ATOM = 1024;  // bytes of a swizzle atom

// The fields of a matrix descriptor, in bytes. An address has 18 bits there: those of a block of rank r hold r above, and
// what is not cut off comes out in the leading offset, which is whole atoms, or 16 bytes where rows of k do not use it.
static Operand decode(uint64_t descriptor, bool transposed, int line) {
  if (descriptor >> 62 != 1) fail("a matrix descriptor whose layout is not the 128-byte swizzle", line);
  if (descriptor >> 49 & 7) fail("a matrix descriptor with a base offset", line);
  if (descriptor & RESERVED) fail("a matrix descriptor with reserved bits", line);
  const Operand operand = {static_cast<unsigned>(descriptor & 0x3fff) << 4, static_cast<unsigned>(descriptor >> 16 & 0x3fff) << 4,
                           static_cast<unsigned>(descriptor >> 32 & 0x3fff) << 4};
  if (transposed ? operand.leading % ATOM != 0 : operand.leading != 16)
    fail("a matrix descriptor whose leading offset is none of its layout: have bits of the address run into it?", line);
  if (operand.stride == 0 || operand.stride % ATOM) fail("a matrix descriptor whose stride is not whole atoms", line);
  if (operand.start & 0x380) fail("a matrix whose swizzle atoms do not begin at multiples of 1024 bytes", line);
  return operand;
}

// Element (row, k) of an operand. Rows of k one after the other, eight to an atom (`stride` from atom to atom); transposed:
// 64 rows of the matrix side by side, eight k to an atom, `leading` from 64 rows to the next.
template <typename Element>
static double matrix_element(const Operand &operand, bool transposed, unsigned row, unsigned k, int line) {
  constexpr unsigned item = Element::BITS / 8;
  unsigned at = operand.start;
  if (transposed)
    at += row / 64 * operand.leading + row % 64 * item + k / 8 * operand.stride + k % 8 * 128;
  else
    at += row / 8 * operand.stride + row % 8 * 128 + k * item;
  unsigned bits = 0;
  memcpy(&bits, shared_at(at_rank(swizzled(at, 128), own_rank()), item, "wgmma", line), item);
  return Element::value(bits);
}

// Element k of the thread's row l / 4 + 8 half of a left operand of 16-bit numbers in registers, laid out as for mma.sync.
template <typename Element>
static double word_element(const Issued &product, unsigned half, unsigned k) {
  return Element::value(product.words[k % 8 / 2][half + k / 8 * 2] >> k % 2 * 16 & 0xffff);
}

// This thread's part of one product: rows l / 4 and l / 4 + 8 of its warp's 16, columns 2 (l % 4) and the next of every 8.
template <typename Element, typename Sum>
static void compute(Fragment &fragment, const Issued &product) {
  constexpr unsigned depth = DEPTH_BYTES * 8 / Element::BITS;
  Sum *kept = sums_of(fragment, Sum());
  const bool given = product.registers != nullptr;
  const Operand a = given ? Operand{} : decode(product.a, false, product.line);
  const Operand b = decode(product.b, product.transposed, product.line);
  const unsigned thread = current % 128, row = thread / 32 * 16 + thread % 32 / 4, column = thread % 4 * 2;
  Sum left[2][depth];
  for (unsigned half = 0; half < 2; ++half)
    for (unsigned k = 0; k < depth; ++k)
      left[half][k] = static_cast<Sum>(given ? word_element<Element>(product, half, k)
                                             : matrix_element<Element>(a, false, row + 8 * half, k, product.line));
  for (int i = 0; i < fragment.columns / 2; i += 4)
    for (unsigned side = 0; side < 2; ++side) {
      Sum sums[2] = {product.add ? kept[i + side] : 0, product.add ? kept[i + 2 + side] : 0};
      double products[2][depth];
      for (unsigned k = 0; k < depth; ++k) {
        const unsigned at = i * 2 + column + side;
        const Sum right = static_cast<Sum>(matrix_element<Element>(b, product.transposed, at, k, product.line));
        for (unsigned half = 0; half < 2; ++half)
          if constexpr (is_float8<Element>)
            products[half][k] = static_cast<double>(left[half][k]) * right;
          else
            sums[half] += left[half][k] * right;
      }
      if constexpr (is_float8<Element>)
        for (unsigned half = 0; half < 2; ++half) sums[half] = added_float8(sums[half], products[half], depth);
      for (unsigned half = 0; half < 2; ++half) kept[i + 2 * half + side] = sums[half];
    }
}

static int fragment_of(Multiplier &self, void *registers, int columns, int line) {
  for (int f = 0; f < self.num_fragments; ++f)
    if (self.fragments[f].registers == registers) return f;
  if (self.num_fragments == MAX_FRAGMENTS) fail("more accumulators than the emulator keeps", line);
  Fragment &made = self.fragments[self.num_fragments];
  made.registers = registers;
  made.columns = columns;
  made.under_way = 0;
  return self.num_fragments++;
}

template <typename Element, typename Sum, int ELEMENTS>
static Issued &wgmma(int line, bool transposed, Sum (&registers)[ELEMENTS], uint64_t a, uint64_t b, int add) {
  constexpr int columns = ELEMENTS * 2;
  constexpr bool integers = std::is_same<Sum, int>::value;
  static_assert(columns % 8 == 0 && columns <= MAX_COLUMNS, "wgmma has 8 to 256 columns, in eights");
  static_assert(!integers || columns <= 32 || columns % 16 == 0, "wgmma of integers has more than 32 columns in sixteens");
  Multiplier &self = multiplier();
  if (!self.fenced) fail("wgmma without wgmma_fence since its accumulators were last in the threads' hands", line);
  compare_issue(self, a, b, line);
  if (self.num_products == MAX_PRODUCTS) fail("more wgmma under way than the emulator keeps", line);
  const int f = fragment_of(self, registers, columns, line);
  Fragment &fragment = self.fragments[f];
  if (fragment.under_way++ == 0) {
    memcpy(sums_of(fragment, registers[0]), registers, sizeof registers);
    memset(registers, integers ? 0x7f : 0xff, sizeof registers);
  }
  Issued &made = self.products[self.num_products++];
  made = {f, self.groups, line, a, b, add != 0, transposed, compute<Element, Sum>, nullptr, {}};
  return made;
}

struct Words {
  const unsigned *own;
  unsigned words[4][4];
};

// The same with a left operand in registers.
template <typename Element, int ELEMENTS>
static void wgmma_weights(int line, bool transposed, float (&registers)[ELEMENTS], const unsigned (&a)[4], uint64_t b, int add) {
  Words mine{a, {}};
  together(line, mine, [](Words **lanes) {
    for (int l = 0; l < 32; ++l)
      for (int i = 0; i < 16; ++i) lanes[l]->words[i / 4][i % 4] = lanes[l / 4 * 4 + i / 4]->own[i % 4];
  });
  Issued &made = wgmma<Element>(line, transposed, registers, 0, b, add);
  made.registers = a;
  memcpy(made.words, mine.words, sizeof mine.words);
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
    const Issued product = self.products[p];
    if (product.group >= self.groups - left) {
      self.products[kept++] = product;
      continue;
    }
    Fragment &fragment = self.fragments[product.fragment];
    if (product.registers != nullptr && memcmp(product.registers, product.words[lane_of(current) % 4], 16) != 0)
      fail("registers of a wgmma change while it is under way", product.line);
    product.compute(fragment, product);
    if (--fragment.under_way == 0) {
      const bool integers = product.compute == compute<Int8, int>;
      const void *sums = integers ? static_cast<const void *>(fragment.integers) : fragment.floats;
      memcpy(fragment.registers, sums, 4 * fragment.columns / 2);
      self.fenced = false;
    }
  }
  self.num_products = kept;
  ballot(line, 0xffffffffu, 0);
}

// 8 x 8 sums of a warp; lanes of a warp that are not all there cannot turn them.
template <typename Sum>
struct Pair {
  Sum *first, *second;
};

template <typename Sum>
static void turn(int line, Sum &first, Sum &second) {
  Pair<Sum> mine{&first, &second};
  together(line, mine, [](Pair<Sum> **lanes) {
    Sum tile[8][8];
    for (int l = 0; l < 32; ++l) {
      tile[l / 4][l % 4 * 2] = *lanes[l]->first;
      tile[l / 4][l % 4 * 2 + 1] = *lanes[l]->second;
    }
    for (int l = 0; l < 32; ++l) {
      *lanes[l]->first = tile[l % 4 * 2][l / 4];
      *lanes[l]->second = tile[l % 4 * 2 + 1][l / 4];
    }
  });
}

}  // namespace emulator

template <int COUNT>
static inline void release_registers() {
  static_assert(COUNT % 8 == 0 && COUNT >= 24 && COUNT <= 256, "setmaxnreg takes 24 to 256 registers, in eights");
}
template <int COUNT>
static inline void request_registers() {
  release_registers<COUNT>();
}

// B in rows of n: transposed.
template <int ELEMENTS>
static inline void wgmma_bfloat16(float (&sums)[ELEMENTS], uint64_t a, uint64_t b, int add, int line = __builtin_LINE()) {
  emulator::wgmma<emulator::BFloat16>(line, true, sums, a, b, add);
}
template <int ELEMENTS>
static inline void wgmma_float16(float (&sums)[ELEMENTS], uint64_t a, uint64_t b, int add, int line = __builtin_LINE()) {
  emulator::wgmma<emulator::Float16>(line, true, sums, a, b, add);
}
// B in rows of k.
template <int ELEMENTS>
static inline void wgmma_rows_bfloat16(float (&sums)[ELEMENTS], uint64_t a, uint64_t b, int add, int line = __builtin_LINE()) {
  emulator::wgmma<emulator::BFloat16>(line, false, sums, a, b, add);
}
template <int ELEMENTS>
static inline void wgmma_rows_float16(float (&sums)[ELEMENTS], uint64_t a, uint64_t b, int add, int line = __builtin_LINE()) {
  emulator::wgmma<emulator::Float16>(line, false, sums, a, b, add);
}
template <int ELEMENTS>
static inline void wgmma_rows_tf32(float (&sums)[ELEMENTS], uint64_t a, uint64_t b, int add, int line = __builtin_LINE()) {
  emulator::wgmma<emulator::Tf32>(line, false, sums, a, b, add);
}
template <int ELEMENTS>
static inline void wgmma_rows_int8(int (&sums)[ELEMENTS], uint64_t a, uint64_t b, int add, int line = __builtin_LINE()) {
  emulator::wgmma<emulator::Int8>(line, false, sums, a, b, add);
}
template <int ELEMENTS>
static inline void wgmma_rows_float8_e4m3fn(
    float (&sums)[ELEMENTS], uint64_t a, uint64_t b, int add, int line = __builtin_LINE()) {
  emulator::wgmma<emulator::Float8>(line, false, sums, a, b, add);
}
// A in registers.
#define WGMMA_WEIGHTS(NAME, ELEMENT, TRANSPOSED)                                                                                \
  template <int ELEMENTS>                                                                                                       \
  static inline void NAME(float (&sums)[ELEMENTS], const unsigned (&a)[4], uint64_t b, int add, int line = __builtin_LINE()) {  \
    emulator::wgmma_weights<emulator::ELEMENT>(line, TRANSPOSED, sums, a, b, add);                                              \
  }
WGMMA_WEIGHTS(wgmma_weights_bfloat16, BFloat16, true)
WGMMA_WEIGHTS(wgmma_weights_float16, Float16, true)
WGMMA_WEIGHTS(wgmma_weights_rows_bfloat16, BFloat16, false)
WGMMA_WEIGHTS(wgmma_weights_rows_float16, Float16, false)
template <int COUNT>
static inline void settle(float (&)[COUNT]) {}
static inline void wgmma_fence() { emulator::wgmma_fence(); }
static inline void wgmma_commit() { emulator::wgmma_commit(); }
template <int LEFT>
static inline void wgmma_wait(int line = __builtin_LINE()) {
  emulator::wgmma_wait(line, LEFT);
}

template <typename Sum>
static inline void turn_tile(Sum &first, Sum &second, int line = __builtin_LINE()) {
  emulator::turn(line, first, second);
}
