/* A host entry on the fake driver, whose device memory is the host's. */
#include <dlfcn.h>
#include <stdlib.h>
#include "rgpu.h"

/* `first` is what this entry takes out of the contents ahead of time. */
struct state { const float *a, *b; float *y; int64_t n; float first; };

int rgpu_prepare(const rgpu_case *c, void **out) {
  struct state *s = calloc(1, sizeof *s);
  s->a = rgpu_arg(c, 0, 0)->data;
  s->b = rgpu_arg(c, 0, 1)->data;
  s->y = rgpu_arg(c, 0, 2)->data;
  s->n = *(const int32_t *)rgpu_arg(c, 0, 3)->data;
  *out = s;
  s->first = s->a[0];
  return s->n == rgpu_size(c, 0, 0) ? 0 : 4;
}
int rgpu_launch(void *state, cudaStream_t stream) {
  struct state *s = state;
  if (!stream) return 5;
  if (getenv("FAKE_ENTRY_FAIL")) return 77;
  if (getenv("FAKE_ENTRY_WAITS")) {
    /* As an entry that waits for its own kernel. */
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    unsigned (*wait)(void *) = (unsigned (*)(void *))dlsym(driver, "cuStreamSynchronize");
    unsigned code = wait(stream);
    if (code) return (int)code;
  }
  for (int64_t i = 0; i < s->n; ++i) s->y[i] = (i ? s->a[i] : s->first) + s->b[i];
  return 0;
}
void rgpu_finish(void *state) { free(state); }

#ifdef REFRESHES
/* 1: as it should; 0: what was taken out of the old contents stays. */
int rgpu_refresh(void *state) {
  struct state *s = state;
  if (REFRESHES) s->first = s->a[0];
  return 0;
}
#endif

/* References on the "GPU", whose memory is the host's here. */
int slow_vecadd(const rgpu_case *c, cudaStream_t stream) {
  (void)stream;
  for (int64_t i = 0; i < c->sizes[0]; i++) {
    ((float *)c->args[2].data)[i] =
        ((const float *)c->args[0].data)[i] + ((const float *)c->args[1].data)[i];
  }
  return 0;
}

int wrong_vecadd(const rgpu_case *c, cudaStream_t stream) {
  int status = slow_vecadd(c, stream);
  ((float *)c->args[2].data)[0] += 1.0f;
  return status;
}

int failing_vecadd(const rgpu_case *c, cudaStream_t stream) {
  (void)c, (void)stream;
  return 7;
}
