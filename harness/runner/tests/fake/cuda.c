/* A libcuda that runs "kernels" on the CPU, for machines without a GPU.
 *
 * Device memory is malloc, a launch runs at once. A module is a text file: its first line is the
 * path of a shared library, the rest names kernels as PTX does (`.entry NAME`). A kernel is a C
 * function `void NAME(void **parameters, const unsigned *grid)`; `NAME_sizes`, ended by 0, holds
 * the sizes of its parameters.
 *
 * FAKE_CUDA_FAIL=call:code makes one call fail. FAKE_CUDA_LOG=FILE gets one line per launch.
 * FAKE_CUDA_NS=N gives events a clock of their own: a launch takes N ns and outside a graph 2000 more,
 * a memset or copy 1 ns for 1000 bytes. Built with -DOLD, it is a driver without graphs. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef unsigned CUresult;
typedef unsigned long long CUdeviceptr;
struct function { void (*run)(void **, const unsigned *); const size_t *sizes; char name[128]; };
struct event { double ns; };

static CUresult sticky;

/* Called by kernels: what an illegal access does to the context. */
void fake_fault(CUresult code) { sticky = code; }

static CUresult result_of(const char *call) {
  const char *fail = getenv("FAKE_CUDA_FAIL");
  size_t n = strlen(call);
  if (fail && strncmp(fail, call, n) == 0 && fail[n] == ':') return (CUresult)atoi(fail + n + 1);
  return sticky;
}
#define ENTER() \
  do { \
    CUresult r = result_of(__func__); \
    if (r) return r; \
  } while (0)

CUresult cuInit(unsigned flags) { ENTER(); return flags; }
CUresult cuDriverGetVersion(int *v) { ENTER(); *v = 12080; return 0; }
CUresult cuGetErrorName(CUresult e, const char **s) {
  if (e == 700) *s = "CUDA_ERROR_ILLEGAL_ADDRESS";
  else if (e == 100) *s = "CUDA_ERROR_NO_DEVICE";
  else if (e == 2) *s = "CUDA_ERROR_OUT_OF_MEMORY";
  else if (e == 209) *s = "CUDA_ERROR_NO_BINARY_FOR_GPU";
  else if (e == 500) *s = "CUDA_ERROR_NOT_FOUND";
  else return 1;
  return 0;
}
CUresult cuGetErrorString(CUresult e, const char **s) { *s = "in the driver's words"; return e == 9999; }
CUresult cuDeviceGetCount(int *n) { ENTER(); *n = 1; return 0; }
CUresult cuDeviceGet(int *d, int i) { ENTER(); *d = i; return 0; }
CUresult cuDeviceGetName(char *s, int n, int d) { ENTER(); snprintf(s, n, "Fake GPU %d", d); return 0; }
CUresult cuDeviceGetUuid_v2(unsigned char *u, int d) { ENTER(); memset(u, 0x11 + d, 16); return 0; }
CUresult cuDeviceGetAttribute(int *v, int which, int d) {
  ENTER();
  (void)d;
  *v = which == 75 ? 9 : which == 38 ? 1 << 20 : which == 97 ? 100000 : which == 16 ? 4 : 0;
  return 0;
}
CUresult cuDeviceTotalMem_v2(size_t *n, int d) { ENTER(); *n = (size_t)1 << 30; return d; }
CUresult cuDevicePrimaryCtxRetain(void **c, int d) { ENTER(); *c = c; return d; }
CUresult cuCtxSetCurrent(void *c) { ENTER(); return c == 0; }
CUresult cuStreamCreate(void **s, unsigned f) { ENTER(); *s = s; return f; }

/* What a stream captures: memsets, copies and launches in order. */
struct node { CUdeviceptr to, from; unsigned char byte; size_t size; struct function *f; unsigned grid[3]; unsigned long long values[16]; };
struct graph { struct node *nodes; size_t count; int broken; };
static struct graph *capturing;
static int in_graph;
/* For kernels: whether this launch is a node of a graph. */
int fake_in_graph(void) { return in_graph; }
static struct node *captured(void) {
  capturing->nodes = realloc(capturing->nodes, (capturing->count + 1) * sizeof(struct node));
  struct node *node = &capturing->nodes[capturing->count++];
  memset(node, 0, sizeof *node);
  return node;
}
/* Calls that cannot be captured end the capture. */
#define NOT_CAPTURED() \
  do { \
    if (capturing) { \
      capturing->broken = 1; \
      return 900; \
    } \
  } while (0)

CUresult cuStreamSynchronize(void *s) { NOT_CAPTURED(); ENTER(); return s == 0; }

static double spent_ns;
static void spend(double ns) { spent_ns += ns; }
static double launch_ns(void) { return atof(getenv("FAKE_CUDA_NS") ? getenv("FAKE_CUDA_NS") : "0"); }
static double now(void) {
  if (getenv("FAKE_CUDA_NS")) return 1 + spent_ns;
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1e9 + t.tv_nsec;
}
CUresult cuEventCreate(struct event **e, unsigned f) { ENTER(); *e = calloc(1, sizeof **e); return f; }
/* A real driver fails these calls then, and compute-sanitizer reports that. */
static void tell_if_lost(const char *call) { if (sticky) fprintf(stderr, "%s after the fault\n", call); }
CUresult cuEventDestroy_v2(struct event *e) { tell_if_lost(__func__); free(e); return 0; }
CUresult cuEventRecord(struct event *e, void *s) { ENTER(); e->ns = now(); return s == 0; }
CUresult cuEventSynchronize(struct event *e) { ENTER(); return e->ns == 0; }
CUresult cuEventElapsedTime(float *ms, struct event *a, struct event *b) {
  ENTER();
  *ms = (float)((b->ns - a->ns) / 1e6);
  return 0;
}

CUresult cuMemAlloc_v2(CUdeviceptr *p, size_t n) {
  NOT_CAPTURED();
  ENTER();
  void *q;
  if (posix_memalign(&q, 512, n)) return 2;
  *p = (CUdeviceptr)(uintptr_t)q;
  return 0;
}
CUresult cuMemFree_v2(CUdeviceptr p) { tell_if_lost(__func__); free((void *)(uintptr_t)p); return 0; }
CUresult cuMemcpyHtoD_v2(CUdeviceptr p, const void *q, size_t n) { ENTER(); memcpy((void *)(uintptr_t)p, q, n); return 0; }
CUresult cuMemcpyDtoH_v2(void *q, CUdeviceptr p, size_t n) { ENTER(); memcpy(q, (void *)(uintptr_t)p, n); return 0; }
CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr a, CUdeviceptr b, size_t n, void *s) {
  ENTER();
  if (capturing) {
    struct node *node = captured();
    node->to = a, node->from = b, node->size = n;
    return s == 0;
  }
  spend(n / 1000.0);
  memcpy((void *)(uintptr_t)a, (void *)(uintptr_t)b, n);
  return s == 0;
}
CUresult cuMemsetD8Async(CUdeviceptr p, unsigned char c, size_t n, void *s) {
  ENTER();
  if (capturing) {
    struct node *node = captured();
    node->to = p, node->byte = c, node->size = n;
    return s == 0;
  }
  spend(n / 1000.0);
  memset((void *)(uintptr_t)p, c, n);
  return s == 0;
}

/* The runner's own kernels, whose modules are real PTX. */
static void rgpu_differ(void **p, const unsigned *grid) {
  const unsigned char *a = *(unsigned char **)p[0], *b = *(unsigned char **)p[1];
  uint64_t bytes = *(uint64_t *)p[2], *count = *(uint64_t **)p[3];
  (void)grid;
  for (uint64_t i = 0; i < bytes; ++i) *count += a[i] != b[i];
}
static uint64_t drawn(uint64_t key, uint64_t i) {
  uint64_t z = key + (i + 1) * 0x9e3779b97f4a7c15;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
  z = (z ^ z >> 27) * 0x94d049bb133111eb;
  return z ^ z >> 31;
}
static void rgpu_draw(void **p, const unsigned *grid) {
  unsigned char *out = *(unsigned char **)p[0], *pool = *(unsigned char **)p[1];
  uint64_t count = *(uint64_t *)p[2], n = *(uint64_t *)p[3], key = *(uint64_t *)p[4], bytes = *(uint64_t *)p[5] / 8;
  (void)grid;
  for (uint64_t i = 0; i < n; ++i) {
    uint64_t at = (uint64_t)((unsigned __int128)drawn(key, i) * count >> 64);
    if (bytes) memcpy(out + i * bytes, pool + at * bytes, bytes);
    else if (i % 2) out[i / 2] |= (pool[at / 2] >> at % 2 * 4 & 15) << 4;
    else out[i / 2] = pool[at / 2] >> at % 2 * 4 & 15;
  }
}
/* Of f32 alone, which the tests have. */
static void rgpu_beyond(void **p, const unsigned *grid) {
  const float *a = *(float **)p[0], *b = *(float **)p[1];
  uint64_t n = *(uint64_t *)p[2], *count = *(uint64_t **)p[9];
  double abs = *(double *)p[5], rel = *(double *)p[6];
  (void)grid;
  for (uint64_t i = 0; i < n; ++i) {
    double away = a[i] > b[i] ? (double)a[i] - b[i] : (double)b[i] - a[i], size = b[i] < 0 ? -b[i] : b[i];
    *count += memcmp(a + i, b + i, 4) && !(away <= abs + rel * size);
  }
}
static const struct function own[] = {
    {rgpu_differ, (const size_t[]){8, 8, 8, 8, 0}, ""},
    {rgpu_draw, (const size_t[]){8, 8, 8, 8, 8, 8, 0}, ""},
    {rgpu_beyond, (const size_t[]){8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 0}, ""},
};
static char own_module;

CUresult cuModuleLoadDataEx(void **m, const char *image, unsigned n, int *options, void **values) {
  if (result_of(__func__) && n == 2 && options[0] == 5) strcpy(values[0], "ptxas: line 7: no such word");
  ENTER();
  if (strstr(image, ".version") && strstr(image, ".entry rgpu_")) {
    *m = &own_module;
    return 0;
  }
  char path[4096];
  snprintf(path, sizeof path, "%.*s", (int)strcspn(image, "\n"), image);
  *m = dlopen(path, RTLD_NOW);
  return *m ? 0 : 200;
}
CUresult cuModuleGetFunction(struct function **f, void *m, const char *name) {
  ENTER();
  if (m == &own_module) {
    *f = calloc(1, sizeof **f);
    **f = own[!strcmp(name, "rgpu_draw") + 2 * !strcmp(name, "rgpu_beyond")];
    return 0;
  }
  void *run = dlsym(m, name);
  if (!run) return 500;
  *f = calloc(1, sizeof **f);
  memcpy(&(*f)->run, &run, sizeof run);
  snprintf((*f)->name, sizeof (*f)->name, "%s", name);
  char sizes[160];
  snprintf(sizes, sizeof sizes, "%s_sizes", name);
  (*f)->sizes = dlsym(m, sizes);
  return 0;
}
CUresult cuFuncGetAttribute(int *v, int which, struct function *f) {
  ENTER();
  *v = which == 0 ? 1024 : 0;
  return f == 0;
}
CUresult cuFuncSetAttribute(struct function *f, int which, int v) { ENTER(); return !f || !which || !v; }
CUresult cuFuncGetParamInfo(struct function *f, size_t i, size_t *offset, size_t *size) {
  size_t n = 0;
  while (f->sizes && f->sizes[n]) ++n;
  if (i >= n) return 1;
  *offset = 8 * i;
  *size = f->sizes[i];
  return 0;
}
static CUresult launch(struct function *f, const unsigned *grid, unsigned cluster, void **parameters) {
  if (capturing) {
    struct node *node = captured();
    node->f = f;
    memcpy(node->grid, grid, sizeof node->grid);
    for (size_t i = 0; f->sizes[i]; ++i) memcpy(&node->values[i], parameters[i], f->sizes[i]);
    return 0;
  }
  spend(launch_ns() + (in_graph ? 0 : 2000));
  const char *log = getenv("FAKE_CUDA_LOG");
  FILE *out = log ? fopen(log, "a") : 0;
  if (out && f->name[0]) fprintf(out, "%s grid %u cluster %u\n", f->name, grid[0], cluster);
  if (out) fclose(out);
  f->run(parameters, grid);
  return 0;
}
CUresult cuLaunchKernel(struct function *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                        unsigned by, unsigned bz, unsigned shared, void *s, void **p, void **extra) {
  ENTER();
  unsigned grid[3] = {gx, gy, gz};
  (void)bx, (void)by, (void)bz, (void)shared, (void)extra;
  return s ? launch(f, grid, 0, p) : 1;
}
struct attribute { int id; char pad[4]; unsigned cluster[16]; };
struct config { unsigned grid[3], block[3], shared; void *stream; struct attribute *attributes; unsigned count; };
CUresult cuLaunchKernelEx(const struct config *c, struct function *f, void **p, void **extra) {
  ENTER();
  (void)extra;
  if (c->count != 1 || c->attributes->id != 4) return 1;
  return launch(f, c->grid, c->attributes->cluster[0], p);
}

#ifndef OLD
CUresult cuStreamBeginCapture_v2(void *s, unsigned mode) {
  ENTER();
  capturing = calloc(1, sizeof *capturing);
  return !s || mode > 2;
}
CUresult cuStreamEndCapture(void *s, struct graph **g) {
  struct graph *made = capturing;
  capturing = 0;
  *g = 0;
  ENTER();
  if (made->broken) return 901;
  *g = made;
  return s == 0;
}
CUresult cuGraphGetNodes(struct graph *g, void **nodes, size_t *n) { ENTER(); *n = g->count; return nodes != 0; }
CUresult cuGraphInstantiateWithFlags(struct graph **exec, struct graph *g, unsigned long long flags) {
  ENTER();
  *exec = g;
  return flags > 1;
}
CUresult cuGraphLaunch(struct graph *exec, void *s) {
  ENTER();
  in_graph = 1;
  for (size_t i = 0; i < exec->count; ++i) {
    struct node *node = &exec->nodes[i];
    void *parameters[16];
    for (int j = 0; j < 16; ++j) parameters[j] = &node->values[j];
    if (node->f) launch(node->f, node->grid, 0, parameters);
    else if (node->from) cuMemcpyDtoDAsync_v2(node->to, node->from, node->size, s);
    else cuMemsetD8Async(node->to, node->byte, node->size, s);
  }
  in_graph = 0;
  return s == 0;
}
/* The executable graph is the graph itself here, so it must outlive it. */
CUresult cuGraphDestroy(struct graph *g) { tell_if_lost(__func__); return g == 0; }
CUresult cuGraphExecDestroy(struct graph *exec) { tell_if_lost(__func__); free(exec->nodes); free(exec); return 0; }
#endif
