/* rgpu.h: the host-entry ABI, version 1.
 *
 * Two kinds of code include this file, and both are plain C (C++ and CUDA compile it too):
 *
 *  1. A host entry: a .cu built to a shared library, for kernels that need their own set-up,
 *     several launches, or a library. It defines rgpu_prepare, rgpu_launch and rgpu_finish. Tensor
 *     data are device pointers. The device's primary context is current. rgpu_refresh is optional.
 *
 *  2. A reference: a .c built with `cc -O2 -shared -fPIC`. It defines
 *         int rgpu_reference(const rgpu_case *c);
 *     Tensor data are host pointers. It fills the `out` tensors and updates the `inout` ones.
 *     Beside a host entry, a function `int f(const rgpu_case *c, cudaStream_t stream)` of the same
 *     library may do so on the GPU at sizes where a CPU would take minutes; it is checked against
 *     rgpu_reference at small ones.
 *
 * Every function returns 0 for success; any other value stops the run and is shown (a cudaError_t
 * is a good choice). No C++ exception may leave these functions.
 */
#ifndef RGPU_H
#define RGPU_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define RGPU_ABI 1u

/* Element types. Sub-byte types are packed, low nibble first. */
enum {
  RGPU_F64 = 1,
  RGPU_F32 = 2,
  RGPU_F16 = 3,
  RGPU_BF16 = 4,
  RGPU_E4M3 = 5,
  RGPU_E5M2 = 6,
  RGPU_E2M1 = 7,
  RGPU_I64 = 8,
  RGPU_I32 = 9,
  RGPU_I16 = 10,
  RGPU_I8 = 11,
  RGPU_U64 = 12,
  RGPU_U32 = 13,
  RGPU_U16 = 14,
  RGPU_U8 = 15,
  RGPU_BOOL = 16
};

#ifdef __cplusplus
extern "C" {
#endif

/* One argument. A scalar has rank 0, and its data is always a HOST pointer to one element. */
typedef struct rgpu_tensor {
  void *data;           /* aligned to at least 256 bytes for tensors, to 8 for scalars */
  uint64_t bytes;       /* packed size of the data */
  uint32_t dtype;       /* RGPU_F32 ... */
  uint32_t rank;        /* number of dims */
  const uint64_t *dims; /* row-major extents, outermost first; host memory; NULL when rank is 0 */
} rgpu_tensor;

/* One case. The struct and all it points to (except tensor data) stay valid and unchanged until
 * rgpu_finish, or until rgpu_reference returns. */
typedef struct rgpu_case {
  uint32_t abi;            /* RGPU_ABI */
  uint32_t groups;         /* 1 unless the problem is grouped */
  uint32_t nvars;          /* size variables of each group */
  uint32_t nargs;          /* arguments of each group, scalars included */
  const int64_t *sizes;    /* groups x nvars, row-major */
  const rgpu_tensor *args; /* groups x nargs, row-major, in the order of kernel.toml */
} rgpu_case;

/* The same declaration as in CUDA's headers, so that C code need not include them. */
typedef struct CUstream_st *cudaStream_t;

#define RGPU_EXPORT __attribute__((visibility("default")))

/* Host entry: set-up, called once per case and, without rgpu_refresh, again after every change of
 * contents. Timed and reported separately from the launch. *state is passed to the other two functions
 * and may stay NULL. */
RGPU_EXPORT int rgpu_prepare(const rgpu_case *c, void **state);

/* Host entry: the measured function. Enqueues work on the stream and need not wait for it. It is called
 * many times on the same buffers; `out` and `inout` tensors are filled again in between. */
RGPU_EXPORT int rgpu_launch(void *state, cudaStream_t stream);

/* Host entry, optional: the tensors have new contents at the same addresses. State that rgpu_prepare
 * computed from the old contents must be computed again, outside the measured time; an entry that uses
 * only sizes and addresses returns 0. Without this function rgpu_finish and rgpu_prepare are called
 * instead: before every timed call, if a reference on the GPU lets each call have its own data. */
RGPU_EXPORT int rgpu_refresh(void *state);

/* Host entry: frees the state of rgpu_prepare. */
RGPU_EXPORT void rgpu_finish(void *state);

/* Reference. Its name can be changed in kernel.toml. */
RGPU_EXPORT int rgpu_reference(const rgpu_case *c);

/* Value of size variable `var` of group `group`. */
static inline int64_t rgpu_size(const rgpu_case *c, uint32_t group, uint32_t var) {
  return c->sizes[(size_t)group * c->nvars + var];
}

/* Argument `arg` of group `group`. */
static inline const rgpu_tensor *rgpu_arg(const rgpu_case *c, uint32_t group, uint32_t arg) {
  return &c->args[(size_t)group * c->nargs + arg];
}

/* Number of elements of a tensor. */
static inline uint64_t rgpu_count(const rgpu_tensor *t) {
  uint64_t n = 1;
  for (uint32_t i = 0; i < t->rank; ++i) n *= t->dims[i];
  return n;
}

/* The rest is for references: reads and writes elements of any type as double, on host pointers. Integers beyond
 * 2^53 lose their last bits. Storing rounds to nearest, ties to even; finite values beyond the
 * range become the largest finite value; integers truncate towards zero. No libm is needed. */

/* A float narrower than f32: widths of exponent and mantissa, the code of the largest finite value,
 * the codes of infinity and NaN (0: the format has none). */
typedef struct rgpu_format_ {
  int exponent, mantissa;
  uint64_t max_finite, infinity, nan;
} rgpu_format_;

static inline rgpu_format_ rgpu_format_of_(uint32_t dtype) {
  rgpu_format_ f = {0, 0, 0, 0, 0};
  switch (dtype) {
    case RGPU_F16: f.exponent = 5, f.mantissa = 10, f.max_finite = 0x7bff, f.infinity = 0x7c00, f.nan = 0x7e00; break;
    case RGPU_BF16: f.exponent = 8, f.mantissa = 7, f.max_finite = 0x7f7f, f.infinity = 0x7f80, f.nan = 0x7fc0; break;
    case RGPU_E4M3: f.exponent = 4, f.mantissa = 3, f.max_finite = 0x7e, f.nan = 0x7f; break;
    case RGPU_E5M2: f.exponent = 5, f.mantissa = 2, f.max_finite = 0x7b, f.infinity = 0x7c, f.nan = 0x7e; break;
    case RGPU_E2M1: f.exponent = 2, f.mantissa = 1, f.max_finite = 0x7; break;
    default: break;
  }
  return f;
}

static inline double rgpu_double_(uint64_t bits) {
  double value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

/* 2^e for normal doubles. */
static inline double rgpu_pow2_(int e) { return rgpu_double_((uint64_t)(1023 + e) << 52); }

static inline double rgpu_narrow_get_(rgpu_format_ f, uint64_t bits) {
  uint64_t sign = (uint64_t)1 << (f.exponent + f.mantissa), code = bits & (sign - 1);
  uint64_t mantissa = code & (((uint64_t)1 << f.mantissa) - 1);
  int bias = (1 << (f.exponent - 1)) - 1, field = (int)(code >> f.mantissa);
  double value;
  if (code > f.max_finite)
    value = rgpu_double_(code == f.infinity ? 0x7ff0000000000000u : 0x7ff8000000000000u);
  else if (field == 0)
    value = (double)mantissa * rgpu_pow2_(1 - bias - f.mantissa);
  else
    value = (double)(mantissa | (uint64_t)1 << f.mantissa) * rgpu_pow2_(field - bias - f.mantissa);
  return bits & sign ? -value : value;
}

static inline uint64_t rgpu_narrow_set_(rgpu_format_ f, double value) {
  uint64_t bits, sign, significand, kept, rest, half, code;
  int exponent, smallest, shift;
  memcpy(&bits, &value, sizeof bits);
  sign = bits >> 63 << (f.exponent + f.mantissa);
  bits &= 0x7fffffffffffffffu;
  if (bits > 0x7ff0000000000000u) return f.nan ? f.nan : f.max_finite;
  if (bits == 0x7ff0000000000000u) return sign | (f.infinity ? f.infinity : f.max_finite);
  exponent = (int)(bits >> 52) - 1023;
  smallest = 2 - (1 << (f.exponent - 1));
  shift = 52 - f.mantissa + (exponent < smallest ? smallest - exponent : 0);
  if (shift > 53) return sign;
  significand = (bits & 0xfffffffffffffu) | 0x10000000000000u;
  kept = significand >> shift;
  rest = significand & (((uint64_t)1 << shift) - 1);
  half = (uint64_t)1 << (shift - 1);
  code = exponent > smallest ? (uint64_t)(exponent - smallest) << f.mantissa : 0;
  code += kept + (rest > half || (rest == half && (kept & 1)));
  return sign | (code < f.max_finite ? code : f.max_finite);
}

/* Element i, in row-major order. An unknown dtype gives 0. */
static inline double rgpu_get(const rgpu_tensor *t, uint64_t i) {
  const void *d = t->data;
  switch (t->dtype) {
    case RGPU_F64: return ((const double *)d)[i];
    case RGPU_F32: return ((const float *)d)[i];
    case RGPU_I64: return (double)((const int64_t *)d)[i];
    case RGPU_I32: return ((const int32_t *)d)[i];
    case RGPU_I16: return ((const int16_t *)d)[i];
    case RGPU_I8: return ((const int8_t *)d)[i];
    case RGPU_U64: return (double)((const uint64_t *)d)[i];
    case RGPU_U32: return ((const uint32_t *)d)[i];
    case RGPU_U16: return ((const uint16_t *)d)[i];
    case RGPU_U8:
    case RGPU_BOOL: return ((const uint8_t *)d)[i];
    case RGPU_F16:
    case RGPU_BF16: return rgpu_narrow_get_(rgpu_format_of_(t->dtype), ((const uint16_t *)d)[i]);
    case RGPU_E4M3:
    case RGPU_E5M2: return rgpu_narrow_get_(rgpu_format_of_(t->dtype), ((const uint8_t *)d)[i]);
    case RGPU_E2M1:
      return rgpu_narrow_get_(rgpu_format_of_(t->dtype),
                              ((const uint8_t *)d)[i / 2] >> (i % 2 * 4) & 0xf);
    default: return 0;
  }
}

static inline double rgpu_clamp_(double v, double lo, double hi) {
  return v != v ? 0 : v < lo ? lo : v > hi ? hi : v;
}

/* Stores element i. An unknown dtype stores nothing. */
static inline void rgpu_set(const rgpu_tensor *t, uint64_t i, double v) {
  void *d = t->data;
  switch (t->dtype) {
    case RGPU_F64: ((double *)d)[i] = v; break;
    case RGPU_F32: {
      float f = (float)v;
      if (f - f != 0 && v - v == 0) f = v < 0 ? -3.40282346638528859812e38f : 3.40282346638528859812e38f;
      ((float *)d)[i] = f;
      break;
    }
    case RGPU_I64: /* 2^63 itself does not fit */
      ((int64_t *)d)[i] = v >= 9223372036854775808.0 ? INT64_MAX
                          : (int64_t)rgpu_clamp_(v, -9223372036854775808.0, 9223372036854774784.0);
      break;
    case RGPU_I32: ((int32_t *)d)[i] = (int32_t)rgpu_clamp_(v, -2147483648.0, 2147483647.0); break;
    case RGPU_I16: ((int16_t *)d)[i] = (int16_t)rgpu_clamp_(v, -32768.0, 32767.0); break;
    case RGPU_I8: ((int8_t *)d)[i] = (int8_t)rgpu_clamp_(v, -128.0, 127.0); break;
    case RGPU_U64:
      ((uint64_t *)d)[i] = v >= 18446744073709551616.0 ? UINT64_MAX
                           : (uint64_t)rgpu_clamp_(v, 0.0, 18446744073709549568.0);
      break;
    case RGPU_U32: ((uint32_t *)d)[i] = (uint32_t)rgpu_clamp_(v, 0.0, 4294967295.0); break;
    case RGPU_U16: ((uint16_t *)d)[i] = (uint16_t)rgpu_clamp_(v, 0.0, 65535.0); break;
    case RGPU_U8: ((uint8_t *)d)[i] = (uint8_t)rgpu_clamp_(v, 0.0, 255.0); break;
    case RGPU_BOOL: ((uint8_t *)d)[i] = v >= 1 || v <= -1; break;
    case RGPU_F16:
    case RGPU_BF16: ((uint16_t *)d)[i] = (uint16_t)rgpu_narrow_set_(rgpu_format_of_(t->dtype), v); break;
    case RGPU_E4M3:
    case RGPU_E5M2: ((uint8_t *)d)[i] = (uint8_t)rgpu_narrow_set_(rgpu_format_of_(t->dtype), v); break;
    case RGPU_E2M1: {
      uint8_t *byte = &((uint8_t *)d)[i / 2];
      unsigned shift = (unsigned)(i % 2 * 4);
      unsigned code = (unsigned)rgpu_narrow_set_(rgpu_format_of_(t->dtype), v);
      *byte = (uint8_t)((*byte & ~(0xfu << shift)) | code << shift);
      break;
    }
    default: break;
  }
}

#ifdef __cplusplus
}
#endif
#endif
