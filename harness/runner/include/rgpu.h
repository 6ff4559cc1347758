/* rgpu.h: the host-entry ABI, version 1.
 *
 * Two kinds of code include this file, and both are plain C (C++ and CUDA compile it too):
 *
 *  1. A host entry: a .cu built to a shared library, for kernels that need their own set-up,
 *     several launches, or a library. It defines rgpu_prepare, rgpu_launch and rgpu_finish. Tensor
 *     data are device pointers. The device's primary context is current.
 *
 *  2. A reference: a .c built with `cc -O2 -shared -fPIC`. It defines
 *         int rgpu_reference(const rgpu_case *c);
 *     Tensor data are host pointers. It fills the `out` tensors and updates the `inout` ones.
 *
 * Every function returns 0 for success; any other value stops the run and is shown (a cudaError_t
 * is a good choice). No C++ exception may leave these functions.
 */
#ifndef RGPU_H
#define RGPU_H

#include <stddef.h>
#include <stdint.h>

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

/* One data set. The struct and all it points to (but tensor data) stay valid and unchanged until
 * rgpu_finish, or until rgpu_reference returns. */
typedef struct rgpu_case {
  uint32_t abi;            /* RGPU_ABI */
  uint32_t groups;         /* 1 unless the problem is grouped */
  uint32_t nvars;          /* size variables of each group */
  uint32_t nargs;          /* arguments of each group, scalars included */
  const int64_t *sizes;    /* groups x nvars, row-major */
  const rgpu_tensor *args; /* groups x nargs, row-major, in the order of kernel.toml */
} rgpu_case;

/* The same type that CUDA's own headers declare, so that C code needs none of them. */
typedef struct CUstream_st *cudaStream_t;

#define RGPU_EXPORT __attribute__((visibility("default")))

/* Host entry: set-up, once per data set. Timed and reported apart from the launch. *state is given
 * back to the other two functions and may stay NULL. */
RGPU_EXPORT int rgpu_prepare(const rgpu_case *c, void **state);

/* Host entry: what is measured. Enqueues work on the stream and need not wait for it. It is called
 * many times on the same buffers; `out` and `inout` tensors are filled again in between. */
RGPU_EXPORT int rgpu_launch(void *state, cudaStream_t stream);

/* Host entry: frees what rgpu_prepare made. */
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

#ifdef __cplusplus
}
#endif
#endif
