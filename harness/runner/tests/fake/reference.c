#include "rgpu.h"

int rgpu_reference(const rgpu_case *c) {
  const float *a = rgpu_arg(c, 0, 0)->data, *b = rgpu_arg(c, 0, 1)->data;
  float *y = rgpu_arg(c, 0, 2)->data;
  int adds = rgpu_arg(c, 0, 2)->rank == 2; /* the inout form, told by its rank */
  for (int64_t i = 0; i < rgpu_size(c, 0, 0); ++i) y[i] = (adds ? y[i] : 0) + a[i] + b[i];
  return 0;
}
