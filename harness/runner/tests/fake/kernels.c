/* "Kernels" for the fake driver: y = a + b over n elements, right and wrong in many ways. */
#include <stddef.h>
#include <stdint.h>

extern void fake_fault(unsigned code);
extern int fake_in_graph(void);

#define KERNEL(name) \
  const size_t name##_sizes[] = {8, 8, 8, 4, 0}; \
  void name(void **parameters, const unsigned *grid)
#define ARGS() \
  float *a = *(float **)parameters[0], *b = *(float **)parameters[1], *y = *(float **)parameters[2]; \
  int n = *(int *)parameters[3]; \
  (void)grid, (void)a, (void)b, (void)y, (void)n

/* The mangled name of vecadd(const float *, const float *, float *, int). */
KERNEL(_Z6vecaddPKfS0_Pfi) { ARGS(); for (int i = 0; i < n; ++i) y[i] = a[i] + b[i]; }
KERNEL(wrong) { ARGS(); for (int i = 0; i < n; ++i) y[i] = a[i] + b[i] + (i == 2); }
KERNEL(short_by_one) { ARGS(); for (int i = 0; i < n - 1; ++i) y[i] = a[i] + b[i]; }
KERNEL(spoils_input) { ARGS(); for (int i = 0; i < n; ++i) y[i] = a[i] + b[i]; a[0] += 1; }
KERNEL(writes_beyond) { ARGS(); for (int i = 0; i < n; ++i) y[i] = a[i] + b[i]; y[n] = 1; }
KERNEL(reads_beyond) { ARGS(); for (int i = 0; i < n; ++i) y[i] = a[i + 1] == 12345 ? 0 : a[i + 1] + b[i]; }
KERNEL(crashes) { ARGS(); fake_fault(700); }
KERNEL(adds_to_output) { ARGS(); for (int i = 0; i < n; ++i) y[i] = y[i] + a[i] + b[i]; }
static int calls;
KERNEL(never_the_same) { ARGS(); ++calls; for (int i = 0; i < n; ++i) y[i] = a[i] + b[i] + (i ? 0 : calls); }
KERNEL(works_once) { ARGS(); static int last; if (last != n) for (int i = 0; i < n; ++i) y[i] = a[i] + b[i]; last = n; }
KERNEL(sums_in_another_order) { ARGS(); ++calls; for (int i = 0; i < n; ++i) y[i] = (a[i] + b[i]) * (i ? 1 : 1 + 1e-7f * (calls % 3)); }
KERNEL(wrong_in_a_graph) { ARGS(); for (int i = 0; i < n; ++i) y[i] = a[i] + b[i] + fake_in_graph(); }
/* Faults unless each launch finds in y what the case filled in. */
KERNEL(wants_fresh_output) { ARGS(); for (int i = 0; i < n; ++i) { if (y[i] != 1) fake_fault(710); y[i] = 5; } }

/* Takes its arrays in a structure: adds<<<>>>({a, 7, b, n}, y). */
struct members { float *a; int16_t seven; float *b; int32_t n; };
const size_t takes_structure_sizes[] = {sizeof(struct members), 8, 0};
void takes_structure(void **parameters, const unsigned *grid) {
  struct members *in = parameters[0];
  float *y = *(float **)parameters[1];
  (void)grid;
  if (in->seven != -7) fake_fault(710);
  for (int i = 0; i < in->n; ++i) y[i] = in->a[i] + in->b[i];
}
