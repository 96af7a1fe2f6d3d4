// What operators should compute, in float64, with the sums that error bounds are made of; and what an output differs in.
//
// A text of its own: it shares nothing with generated kernels. An operator comes as tables (`reference_plan.py`): where a
// read finds its element is the sum of a part for the output element and a part for the step of the reduction.
// Each entry that looks for faults leaves one partial result for a block; the host adds up a few hundred of them.

#define THREADS 256
#define TILE 64   // rows and columns of outputs that a block computes
#define DEPTH 16  // steps of the reduction in shared memory at a time
#define STRIDE 65 // doubles from one step to the next: no two threads of a half warp meet in a bank

// Flat place of an element, and its indices along the (at most two) dimensions that are padded.
struct Place {
  long long flat;
  int u, v;
};

union Word {
  unsigned bits;
  float value;
};

extern __shared__ __align__(16) unsigned char shared_memory[];

static __device__ __forceinline__ double as_float(unsigned bits) {
  Word word;
  word.bits = bits;
  return word.value;
}

static __device__ __forceinline__ double half_value(unsigned bits) {
  const unsigned sign = (bits & 0x8000u) << 16, rest = bits & 0x7fffu;
  if (rest >= 0x7c00u) return as_float(sign | 0x7f800000u | (rest & 0x3ffu) << 13);  // infinity, NaN
  return as_float(sign | rest << 13) * 5192296858534827628530496329220096.0;         // 2^112: the biases' difference
}

static __device__ __forceinline__ double float8_value(unsigned bits) {
  const unsigned sign = (bits & 0x80u) << 24, rest = bits & 0x7fu;
  if (rest == 0x7fu) return as_float(sign | 0x7fffffffu);
  return as_float(sign | rest << 20) * 1329227995784915872903807060280344576.0;  // 2^120: the biases' difference
}

// Element of an array as `reference_plan.CODES` names its type.
static __device__ __forceinline__ double element(const void *array, long long place, int type) {
  switch (type) {
    case 0: return static_cast<const float *>(array)[place];
    case 1: return half_value(static_cast<const unsigned short *>(array)[place]);
    case 2: return as_float(static_cast<unsigned>(static_cast<const unsigned short *>(array)[place]) << 16);
    case 3: return static_cast<const signed char *>(array)[place];
    case 5: return float8_value(static_cast<const unsigned char *>(array)[place]);
    default: return static_cast<const int *>(array)[place];
  }
}

static __device__ __forceinline__ double gelu(double x) { return 0.5 * x * (1.0 + erf(x * 0.70710678118654752440)); }

// A function of one or two numbers, as `reference_plan.FUNCTIONS` orders them.
static __device__ double applied(int function, double a, double b) {
  switch (function) {
    case 0: return fmax(a, 0.0);
    case 1: return gelu(a);
    case 2: return 0.5 * (1.0 + tanh(0.5 * a));
    case 3: return tanh(a);
    case 4: return exp(a);
    case 5: return a;
    case 6: return a + b;
    case 8: return fmin(fmax(a, 0.0), 6.0);
    default: return a * b;
  }
}

static __device__ __forceinline__ bool inside(const Place &a, const Place &b, const Place &c, int limit_u, int limit_v) {
  const int u = a.u + b.u + c.u, v = a.v + b.v + c.v;
  return u >= 0 && u < limit_u && v >= 0 && v < limit_v;
}

// One operand of a product: its array, and the parts of its places.
struct Operand {
  const void *array;
  const Place *outer, *deep, *batch;
  int type, limit_u, limit_v, count;
};

static __device__ __forceinline__ double fetched(const Operand &x, const Place &outer, const Place &batch, int k, int depth) {
  if (k >= depth) return 0.0;
  const Place deep = x.deep[k];
  if (!inside(outer, deep, batch, x.limit_u, x.limit_v)) return 0.0;
  return element(x.array, outer.flat + deep.flat + batch.flat, x.type);
}

// Sums of a b, |a b| and, for SPREAD, (a b)^2 over the depth, for a tile of rows (of a) and columns (of b).
template <bool SPREAD>
static __device__ __forceinline__ void products(
    const Operand &a, const Operand &b, const long long *out_rows, const long long *out_columns, const long long *out_batch,
    int batches, int depth, double *reference, double *magnitude, double *spread) {
  double *left = reinterpret_cast<double *>(shared_memory), *right = left + DEPTH * STRIDE;
  const int t = threadIdx.x, tiles = (b.count + TILE - 1) / TILE;
  const int row = blockIdx.x / tiles * TILE, column = blockIdx.x % tiles * TILE;
  const Place none = {0, -(1 << 30), 0};  // outside every limit
  for (int z = blockIdx.y; z < batches; z += gridDim.y) {
    const Place batch_a = a.batch[z], batch_b = b.batch[z];
    Place mine[4];
    for (int i = 0; i < 4; ++i) {
      const int r = row + t / DEPTH + THREADS / DEPTH * i;
      mine[i] = r < a.count ? a.outer[r] : none;
    }
    const Place across = column + t % TILE < b.count ? b.outer[column + t % TILE] : none;
    double sum[4][4] = {}, size[4][4] = {}, square[4][4] = {};
    for (int from = 0; from < depth; from += DEPTH) {
      for (int i = 0; i < 4; ++i) {
        const int k = t % DEPTH, r = t / DEPTH + THREADS / DEPTH * i;
        left[k * STRIDE + r] = fetched(a, mine[i], batch_a, from + k, depth);
      }
      for (int i = 0; i < 4; ++i) {
        const int k = t / TILE + THREADS / TILE * i;
        right[k * STRIDE + t % TILE] = fetched(b, across, batch_b, from + k, depth);
      }
      __syncthreads();
#pragma unroll 4
      for (int k = 0; k < DEPTH; ++k) {
        double x[4], y[4];
        for (int i = 0; i < 4; ++i) x[i] = left[k * STRIDE + t / 16 + 16 * i];
        for (int j = 0; j < 4; ++j) y[j] = right[k * STRIDE + t % 16 + 16 * j];
        for (int i = 0; i < 4; ++i)
          for (int j = 0; j < 4; ++j) {
            sum[i][j] = fma(x[i], y[j], sum[i][j]);
            size[i][j] = fma(fabs(x[i]), fabs(y[j]), size[i][j]);
            if (SPREAD) square[i][j] = fma(x[i] * y[j], x[i] * y[j], square[i][j]);
          }
      }
      __syncthreads();
    }
    for (int i = 0; i < 4; ++i)
      for (int j = 0; j < 4; ++j) {
        const int r = row + t / 16 + 16 * i, c = column + t % 16 + 16 * j;
        if (r >= a.count || c >= b.count) continue;
        const long long place = out_batch[z] + out_rows[r] + out_columns[c];
        reference[place] = sum[i][j];
        magnitude[place] = size[i][j];
        if (SPREAD) spread[place] = square[i][j];
      }
  }
}

#define PRODUCT_PARAMETERS                                                                                              \
  const void *a, const Place *rows, const Place *deep_a, const Place *batch_a, int type_a, int limit_au, int limit_av,  \
      int row_count, const void *b, const Place *columns, const Place *deep_b, const Place *batch_b, int type_b,        \
      int limit_bu, int limit_bv, int column_count, const long long *out_rows, const long long *out_columns,            \
      const long long *out_batch, int batches, int depth, double *reference, double *magnitude, double *spread

#define PRODUCT_ARGUMENTS                                                                                               \
  Operand{a, rows, deep_a, batch_a, type_a, limit_au, limit_av, row_count},                                             \
      Operand{b, columns, deep_b, batch_b, type_b, limit_bu, limit_bv, column_count}, out_rows, out_columns, out_batch, \
      batches, depth, reference, magnitude, spread

extern "C" __global__ void __launch_bounds__(THREADS) expected_products(PRODUCT_PARAMETERS) {
  products<false>(PRODUCT_ARGUMENTS);
}

extern "C" __global__ void __launch_bounds__(THREADS) expected_products_spread(PRODUCT_PARAMETERS) {
  products<true>(PRODUCT_ARGUMENTS);
}

// Sum (divided) or maximum of one read over the depth, and the same of absolute values. `start` is 0 or below all.
extern "C" __global__ void __launch_bounds__(THREADS) expected_reduction(
    const void *x, const Place *rows, const Place *columns, const Place *deep, int type, int limit_u, int limit_v,
    const long long *out_rows, const long long *out_columns, int row_count, int column_count, int depth, int is_max,
    double divisor, double start, double *reference, double *magnitude) {
  const long long i = static_cast<long long>(blockIdx.x) * THREADS + threadIdx.x;
  if (i >= static_cast<long long>(row_count) * column_count) return;
  const Place row = rows[i / column_count], column = columns[i % column_count];
  double value = start, size = start;
  for (int k = 0; k < depth; ++k) {
    const Place step = deep[k];
    if (!inside(row, column, step, limit_u, limit_v)) continue;
    const double read = element(x, row.flat + column.flat + step.flat, type);
    value = is_max ? fmax(value, read) : value + read;
    size = is_max ? fmax(size, fabs(read)) : size + fabs(read);
  }
  const long long place = out_rows[i / column_count] + out_columns[i % column_count];
  reference[place] = value / divisor;
  magnitude[place] = size / divisor;
}

// A function of each element, and of the absolute values.
extern "C" __global__ void __launch_bounds__(THREADS) expected_map(
    const void *a, const void *b, int type, int function, long long count, double *reference, double *magnitude) {
  const long long i = static_cast<long long>(blockIdx.x) * THREADS + threadIdx.x;
  if (i >= count) return;
  const double x = element(a, i, type), y = b == nullptr ? 0.0 : element(b, i, type);
  reference[i] = applied(function, x, y);
  magnitude[i] = applied(function, fabs(x), fabs(y));
}

// A stage of the epilogue in place. Its operand (if any) is indexed by (place / inner) % size; functions are not linear
// and leave the sums that bounds are made of alone.
extern "C" __global__ void __launch_bounds__(THREADS) expected_stage(
    int function, const void *operand, int type, long long inner, long long size, long long count, double *reference,
    double *magnitude, double *spread) {
  const long long i = static_cast<long long>(blockIdx.x) * THREADS + threadIdx.x;
  if (i >= count) return;
  const double b = operand == nullptr ? 0.0 : element(operand, i / inner % size, type);
  reference[i] = applied(function, reference[i], b);
  if (operand == nullptr) return;
  magnitude[i] = applied(function, magnitude[i], fabs(b));
  if (spread != nullptr) spread[i] = applied(function, spread[i], b * b);
}

// The largest accepted error in place of the magnitude; see `expectation.py`.
extern "C" __global__ void __launch_bounds__(THREADS) expected_bound(
    const double *reference, double *magnitude, const double *spread, double accumulated, double rounded, double steep,
    double stored, double smallest, long long count) {
  const long long i = static_cast<long long>(blockIdx.x) * THREADS + threadIdx.x;
  if (i >= count) return;
  double error = accumulated * magnitude[i];
  if (spread != nullptr) error += rounded * fmin(magnitude[i], 2.0 * sqrt(spread[i]));
  magnitude[i] = steep * error + stored * fabs(reference[i]) + smallest;
}

// One block's (count, first place) of what its threads found, to partial[2 block].
static __device__ void report(unsigned long long count, long long first, long long *partial) {
  unsigned long long *counts = reinterpret_cast<unsigned long long *>(shared_memory);
  long long *firsts = reinterpret_cast<long long *>(counts + THREADS);
  counts[threadIdx.x] = count;
  firsts[threadIdx.x] = first;
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (int t = 1; t < THREADS; ++t) {
    count += counts[t];
    if (firsts[t] < first) first = firsts[t];
  }
  partial[2 * blockIdx.x] = static_cast<long long>(count);
  partial[2 * blockIdx.x + 1] = first;
}

// Elements of an output that are further than the bound from the reference; without a reference those that are NaN.
// With an index reference[i] is of the output's element index[i].
extern "C" __global__ void __launch_bounds__(THREADS) count_wrong(
    const void *output, int type, const double *reference, const double *bound, const long long *index, long long count,
    long long *partial) {
  unsigned long long wrong = 0;
  long long first = count;
  for (long long i = static_cast<long long>(blockIdx.x) * THREADS + threadIdx.x; i < count; i += gridDim.x * THREADS) {
    const double value = element(output, index == nullptr ? i : index[i], type);
    const bool right = reference == nullptr ? value == value : fabs(value - reference[i]) <= bound[i];
    if (right) continue;
    ++wrong;
    if (i < first) first = i;
  }
  report(wrong, first, partial);
}

// Bytes in which two arrays differ.
extern "C" __global__ void __launch_bounds__(THREADS) count_changed(
    const unsigned char *a, const unsigned char *b, long long bytes, long long *partial) {
  const unsigned *words_a = reinterpret_cast<const unsigned *>(a), *words_b = reinterpret_cast<const unsigned *>(b);
  const long long words = bytes / 4, me = static_cast<long long>(blockIdx.x) * THREADS + threadIdx.x;
  unsigned long long changed = 0;
  long long first = bytes;
  for (long long i = me; i < words; i += gridDim.x * THREADS) {
    if (words_a[i] == words_b[i]) continue;
    ++changed;
    if (4 * i < first) first = 4 * i;
  }
  if (me < bytes % 4 && a[4 * words + me] != b[4 * words + me]) {
    ++changed;
    if (4 * words + me < first) first = 4 * words + me;
  }
  report(changed, first, partial);
}

// A sum of the words of an array, each weighed by its place: what it changes by shows that something was written.
extern "C" __global__ void __launch_bounds__(THREADS) sum_words(const unsigned char *a, long long bytes, long long *partial) {
  const unsigned *words = reinterpret_cast<const unsigned *>(a);
  const long long count = bytes / 4, me = static_cast<long long>(blockIdx.x) * THREADS + threadIdx.x;
  unsigned long long sum = 0;
  for (long long i = me; i < count; i += gridDim.x * THREADS) sum += (words[i] + 1ull) * (2ull * i + 1ull);
  if (me < bytes % 4) sum += (a[4 * count + me] + 1ull) * (2ull * (count + me) + 1ull);
  report(sum, 0, partial);
}

// Sums of (output - reference)^2 and of reference^2, as doubles to partial[2 block].
extern "C" __global__ void __launch_bounds__(THREADS) sum_distance(
    const void *output, int type, const double *reference, const long long *index, long long count, double *partial) {
  double *errors = reinterpret_cast<double *>(shared_memory), *sizes = errors + THREADS;
  double error = 0.0, size = 0.0;
  for (long long i = static_cast<long long>(blockIdx.x) * THREADS + threadIdx.x; i < count; i += gridDim.x * THREADS) {
    const double off = element(output, index == nullptr ? i : index[i], type) - reference[i];
    error += off * off;
    size += reference[i] * reference[i];
  }
  errors[threadIdx.x] = error;
  sizes[threadIdx.x] = size;
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (int t = 1; t < THREADS; ++t) {
    error += errors[t];
    size += sizes[t];
  }
  partial[2 * blockIdx.x] = error;
  partial[2 * blockIdx.x + 1] = size;
}
