// Instructions of whole warps on matrices, and 16-bit numbers, as generated kernels call them (see codegen/cuda_ptx.py).
//
// mma and ldmatrix are executed for the whole warp by the lane that arrives last, with the layouts of the PTX ISA. Sums
// are exact within one instruction and then rounded towards zero, which is the least accurate that has been seen of
// tensor cores (Fasi et al. 2021); of floats of 8 bits they are cut off much earlier.
#pragma once

#include <math.h>

#include "emulator.h"
#include "emulator_half.h"
#include "emulator_warp.h"

struct alignas(8) ushort4 { unsigned short x, y, z, w; };
struct alignas(4) ushort2 { unsigned short x, y; };

static inline int __float_as_int(float value) {
  int bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

static inline signed char opaque(signed char byte) { return byte; }

static inline unsigned __byte_perm(unsigned x, unsigned y, unsigned selector) {
  const uint64_t bytes = static_cast<uint64_t>(y) << 32 | x;
  unsigned result = 0;
  for (int i = 0; i < 4; ++i) result |= static_cast<unsigned>(bytes >> 8 * (selector >> 4 * i & 7) & 0xff) << 8 * i;
  return result;
}

static inline int4 shift_bytes(int4 low, int4 high, int bytes) {  // 16 bytes of 32, `bytes` from the first
  unsigned char all[32];
  memcpy(all, &low, 16);
  memcpy(all + 16, &high, 16);
  int4 out;
  memcpy(&out, all + bytes, 16);
  return out;
}

static inline unsigned round_tf32(float value) {  // to nearest, ties away from zero; the low bits mean nothing
  const unsigned bits = __float_as_int(value);
  if (isnan(value) || isinf(value)) return bits;
  return ((bits + 0x1000) & 0xffffe000u) | (emulator::random_below(0x2000));
}

static inline float larger(float a, float b) { return a > b || a != a ? a : b; }

static inline float power_of_two(float x) {  // as far off as it may be, at random, and flushed to zero
  const float value = exp2f(x) * (1.0f + (static_cast<int>(emulator::random_below(3)) - 1) * 0x1p-22f);
  return value < 0x1p-126f ? 0.0f : value;
}

namespace emulator {

// All 32 lanes of the warp meet; the last to come does the work, given what each brought.
template <typename Operands, typename Work>
static void together(int line, Operands &mine, Work work) {
  const int first = current - lane_of(current);
  if (lanes_from(first) < 32) fail("an instruction of a whole warp in a warp of fewer than 32 threads", line);
  if (!arrive(line, 0xffffffffu, reinterpret_cast<uintptr_t>(&mine))) return;
  Operands *lanes[32];
  for (int l = 0; l < 32; ++l) lanes[l] = reinterpret_cast<Operands *>(static_cast<uintptr_t>(fibers[first + l].value));
  work(lanes);
  for (int l = 0; l < 32; ++l) fibers[first + l].state = READY;
}

struct Row {
  const void *from;
  unsigned *to;
};

template <bool TRANSPOSED>
static void load_matrices(int line, int count, unsigned *to, const void *from) {
  Row mine{from, to};
  together(line, mine, [&](Row **lanes) {
    for (int i = 0; i < count; ++i) {
      unsigned short matrix[8][8];
      for (int r = 0; r < 8; ++r) {
        const void *row = lanes[8 * i + r]->from;
        if (reinterpret_cast<uintptr_t>(row) % 16) fail("ldmatrix: a row does not begin at a multiple of 16 bytes", line);
        memcpy(matrix[r], row, 16);
      }
      for (int l = 0; l < 32; ++l) {
        const int row = l / 4, pair = l % 4 * 2;
        const unsigned low = TRANSPOSED ? matrix[pair][row] : matrix[row][pair];
        const unsigned high = TRANSPOSED ? matrix[pair + 1][row] : matrix[row][pair + 1];
        lanes[l]->to[i] = low | high << 16;
      }
    }
  });
}

struct Float16 {
  static constexpr int BITS = 16;
  static double value(unsigned bits) { return from_float16(bits); }
};
struct BFloat16 {
  static constexpr int BITS = 16;
  static double value(unsigned bits) { return from_bfloat16(bits); }
};
struct Tf32 {  // the low 13 bits are ignored
  static constexpr int BITS = 32;
  static double value(unsigned bits) { return __int_as_float(bits & 0xffffe000u); }
};
struct Float8 {
  static constexpr int BITS = 8;
  static double value(unsigned bits) { return from_float8_e4m3fn(bits); }
};
struct Int8 {
  static constexpr int BITS = 8;
  static double value(unsigned bits) { return static_cast<signed char>(bits); }
};

// Element `k` of row (or column) `row` of an operand: a register holds 32 bits of a row, four lanes 16 bytes of it.
template <typename Element>
static double element(const unsigned *(*registers)(void *), void **lanes, int row, int k, int rows) {
  constexpr int EACH = 32 / Element::BITS;
  const int lane = row % 8 * 4 + k % (4 * EACH) / EACH;
  const unsigned word = registers(lanes[lane])[row / 8 + rows / 8 * (k / (4 * EACH))];
  return Element::value(EACH == 1 ? word : word >> Element::BITS * (k % EACH) & ((1u << Element::BITS % 32) - 1));
}

template <typename Element>
constexpr bool is_float8 = false;
template <>
constexpr bool is_float8<Float8> = true;
constexpr int FLOAT8_KEPT = 13;  // bits below the largest exponent

static double cut_off(double value, double largest) {
  const double unit = ldexp(1.0, ilogb(largest) - FLOAT8_KEPT);
  return trunc(value / unit) * unit;
}

// A sum and products of floats of 8 bits, as the tensor cores of Ada and Hopper add them: all aligned to the largest of them
// and cut off 13 bits below it, and so is the result (accumulators of 22 bits, arXiv 2411.10958; 2412.19437, section 3.3.2).
static float added_float8(float sum, const double *products, int count) {
  double largest = fabs(sum), plain = sum;
  for (int i = 0; i < count; ++i) {
    largest = fmax(largest, fabs(products[i]));
    plain += products[i];
  }
  if (largest == 0 || !isfinite(plain)) return static_cast<float>(plain);
  double total = cut_off(sum, largest);
  for (int i = 0; i < count; ++i) total += cut_off(products[i], largest);
  return static_cast<float>(total == 0 ? 0.0 : cut_off(total, total));
}

static float toward_zero(double exact) {
  const float near = static_cast<float>(exact);
  return isfinite(near) && fabs(static_cast<double>(near)) > fabs(exact) ? nextafterf(near, 0.0f) : near;
}

static inline void add(float &sum, double products) { sum = toward_zero(sum + products); }
static inline void add(int &sum, double products) {
  sum = static_cast<int>(static_cast<unsigned>(sum) + static_cast<unsigned>(static_cast<int>(products)));
}

template <typename Sum>
struct WarpProduct {
  Sum *sums;
  const unsigned *a, *b;
};

// sums[M, 8] += a[M, K] * b[K, 8]
template <typename Element, int M, int K, typename Sum>
static void multiply_add(int line, Sum *sums, const unsigned *a, const unsigned *b) {
  WarpProduct<Sum> mine{sums, a, b};
  together(line, mine, [&](WarpProduct<Sum> **lanes) {
    void **all = reinterpret_cast<void **>(lanes);
    for (int m = 0; m < M; ++m)
      for (int n = 0; n < 8; ++n) {
        double products[K], all_products = 0;
        for (int k = 0; k < K; ++k) {
          products[k] = element<Element>([](void *p) { return static_cast<WarpProduct<Sum> *>(p)->a; }, all, m, k, M) *
                        element<Element>([](void *p) { return static_cast<WarpProduct<Sum> *>(p)->b; }, all, n, k, 8);
          all_products += products[k];
        }
        Sum &sum = lanes[m % 8 * 4 + n / 2]->sums[m / 8 * 2 + n % 2];
        if constexpr (is_float8<Element>)
          sum = added_float8(sum, products, K);
        else
          add(sum, all_products);
      }
  });
}

}  // namespace emulator

#define LOAD_MATRICES(NAME, TRANSPOSED, COUNT)                                                    \
  static inline void NAME(unsigned *to, const void *from, int line = __builtin_LINE()) {         \
    emulator::load_matrices<TRANSPOSED>(line, COUNT, to, from);                                   \
  }
LOAD_MATRICES(load_matrices_x1, false, 1)
LOAD_MATRICES(load_matrices_x2, false, 2)
LOAD_MATRICES(load_matrices_x4, false, 4)
LOAD_MATRICES(load_transposed_x1, true, 1)
LOAD_MATRICES(load_transposed_x2, true, 2)
LOAD_MATRICES(load_transposed_x4, true, 4)

#define MULTIPLY_ADD(NAME, SUM, ELEMENT, M, K)                                                                 \
  static inline void NAME(SUM *sums, const unsigned *a, const unsigned *b, int line = __builtin_LINE()) {      \
    emulator::multiply_add<emulator::ELEMENT, M, K>(line, sums, a, b);                                         \
  }
MULTIPLY_ADD(mma_16x8x8_float16, float, Float16, 16, 8)
MULTIPLY_ADD(mma_16x8x16_float16, float, Float16, 16, 16)
MULTIPLY_ADD(mma_16x8x16_bfloat16, float, BFloat16, 16, 16)
MULTIPLY_ADD(mma_16x8x8_tf32, float, Tf32, 16, 8)
MULTIPLY_ADD(mma_16x8x32_int8, int, Int8, 16, 32)
MULTIPLY_ADD(mma_16x8x32_float8_e4m3fn, float, Float8, 16, 32)
MULTIPLY_ADD(mma_8x8x16_int8, int, Int8, 8, 16)
