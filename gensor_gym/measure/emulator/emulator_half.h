// Elements of 8 and 16 bits as floats, and pairs of floats rounded to those of 16 (to the nearest, ties to even).
#pragma once

#include <math.h>
#include <stdint.h>
#include <string.h>

static inline float from_bfloat16(uint16_t bits) {
  const uint32_t wide = static_cast<uint32_t>(bits) << 16;
  float value;
  memcpy(&value, &wide, sizeof value);
  return value;
}

static inline float from_float16(uint16_t bits) {
  const int exponent = bits >> 10 & 31, mantissa = bits & 1023;
  const float sign = bits >> 15 ? -1.0f : 1.0f;
  if (exponent == 31) return mantissa ? NAN : sign * INFINITY;
  return sign * (exponent ? ldexpf(1024.0f + mantissa, exponent - 25) : ldexpf(static_cast<float>(mantissa), -24));
}

static inline float from_float8_e4m3fn(uint8_t bits) {
  const int exponent = bits >> 3 & 15, mantissa = bits & 7;
  const float sign = bits >> 7 ? -1.0f : 1.0f;
  if ((bits & 127) == 127) return NAN;
  return sign * (exponent ? ldexpf(8.0f + mantissa, exponent - 10) : ldexpf(static_cast<float>(mantissa), -9));
}

static inline uint32_t bits_of_float(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

static inline uint16_t to_bfloat16(float value) {
  const uint32_t bits = bits_of_float(value);
  if (value != value) return 0x7fff;
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static inline uint16_t to_float16(float value) {
  const uint16_t sign = static_cast<uint16_t>(bits_of_float(value) >> 16 & 0x8000);
  const float size = fabsf(value);
  if (value != value) return 0x7fff;
  if (size >= 65520.0f) return sign | 0x7c00;  // rounds to more than the largest
  if (size < ldexpf(1.0f, -14)) return sign | static_cast<uint16_t>(nearbyintf(ldexpf(size, 24)));
  const uint32_t bits = bits_of_float(size);
  return sign | static_cast<uint16_t>((bits + 0xfff + (bits >> 13 & 1) - (112u << 23)) >> 13);
}

// The first value in the lower half.
static inline unsigned pack_bfloat16(float first, float second) {
  return to_bfloat16(first) | static_cast<unsigned>(to_bfloat16(second)) << 16;
}
static inline unsigned pack_float16(float first, float second) {
  return to_float16(first) | static_cast<unsigned>(to_float16(second)) << 16;
}
