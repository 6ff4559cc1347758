/* A libcupti without a driver: the functions that the collector calls, and `fake_*`, by which a test
 * program does what a CUDA program would do. Records are laid out as CUPTI 13.0 does, whose headers
 * tests/nvidia/cupti.py compares with the collector's own table. */
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define RECORD __attribute__((packed, aligned(8)))

typedef struct RECORD {
  uint32_t kind;
  uint8_t cache, shared;
  uint16_t registers;
  uint32_t partitioned, partitioned_done;
  uint64_t start, end, completed;
  uint32_t device, context, stream;
  int32_t grid[3], block[3];
  int32_t static_shared, dynamic_shared;
  uint32_t local, local_total, correlation;
  int64_t grid_id;
  const char *name;
  void *reserved0;
  uint64_t queued, submitted;
  uint8_t launch_type, carveout_asked, carveout, padding;
  uint32_t shared_executed;
  uint64_t graph_node;
  uint8_t rest[216 - 152];
} Kernel; /* CUpti_ActivityKernel10 */

typedef struct RECORD {
  uint32_t kind;
  uint8_t copy, from, to, flags;
  uint64_t bytes, start, end;
  uint32_t device, context, stream, correlation, runtime_correlation;
  uint8_t rest[88 - 52];
} Copy; /* CUpti_ActivityMemcpy6 */

typedef struct RECORD {
  uint32_t kind, value;
  uint64_t bytes, start, end;
  uint32_t device, context, stream, correlation;
  uint8_t rest[72 - 48];
} Set; /* CUpti_ActivityMemset4 */

typedef struct RECORD {
  uint32_t kind, number;
  uint64_t start, end;
  uint32_t process, thread, correlation, result;
} Call; /* CUpti_ActivityAPI */

typedef void (*Request)(uint8_t **, size_t *, size_t *);
typedef void (*Complete)(void *, uint32_t, uint8_t *, size_t, size_t);
typedef uint64_t (*Clock)(void);

static pthread_mutex_t held = PTHREAD_MUTEX_INITIALIZER;
static Request request;
static Complete complete;
static Clock clock_given;
static uint64_t enabled;
static uint8_t *buffer;
static size_t size, filled;
static uint32_t last_correlation;

/* Half a year ahead, as a clock since 1970 is ahead of one since boot. */
static uint64_t now(void) {
  if (clock_given) return clock_given();
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec + 15000000000000000u;
}

static uint32_t asked(const char *variable, uint32_t otherwise) {
  const char *value = getenv(variable);
  return value ? (uint32_t)strtoul(value, NULL, 10) : otherwise;
}

uint32_t cuptiGetVersion(uint32_t *version) { return *version = asked("FAKE_CUPTI_VERSION", 130001), 0; }
uint32_t cuptiGetResultString(uint32_t status, const char **text) {
  *text = status == 35 ? "CUPTI_ERROR_INSUFFICIENT_PRIVILEGES" : "CUPTI_ERROR_UNKNOWN";
  return 0;
}
uint32_t cuptiActivityRegisterCallbacks(Request r, Complete c) { return request = r, complete = c, 0; }
uint32_t cuptiActivityEnable(uint32_t kind) {
  if (kind == asked("FAKE_CUPTI_REFUSES", 99)) return 35;
  enabled |= 1ull << kind;
  return 0;
}
uint32_t cuptiActivityDisable(uint32_t kind) { return enabled &= ~(1ull << kind), 0; }
uint32_t cuptiGetTimestamp(uint64_t *at) { return *at = now(), 0; }
uint32_t cuptiSetThreadIdType(uint32_t type) { return type == 1 ? 0 : 1; }
uint32_t cuptiActivitySetAttribute(uint32_t which, size_t *bytes, void *value) {
  return which == 5 && *bytes == 1 && *(uint8_t *)value == 1 ? 0 : 1;
}
uint32_t cuptiActivityGetNumDroppedRecords(void *context, uint32_t stream, size_t *dropped) {
  (void)context, (void)stream;
  return *dropped = asked("FAKE_CUPTI_DROPS", 0), 0;
}
#ifndef NO_CLOCK
uint32_t cuptiActivityRegisterTimestampCallback(Clock c) { return clock_given = c, 0; }
#endif
uint32_t cuptiGetCallbackName(uint32_t domain, uint32_t number, const char **name) {
  static const char *const runtime[] = {"", "cudaLaunchKernel_v7000", "cudaMemcpy_v3020", "cudaMemset_v3020",
                                        "cudaDeviceSynchronize_v3020", "cudaGetDevice_v3020"};
  if (domain == 1 && number == 7) return *name = "cuLaunchKernel", 0;
  if (domain != 2 || number >= sizeof runtime / sizeof *runtime) return 1;
  return *name = runtime[number], 0;
}

static size_t length_of(const uint8_t *record) {
  switch (*(const uint32_t *)record) {
    case 10: return sizeof(Kernel);
    case 1: return sizeof(Copy);
    case 2: return sizeof(Set);
    default: return sizeof(Call);
  }
}

uint32_t cuptiActivityGetNextRecord(uint8_t *from, size_t valid, uint8_t **record) {
  uint8_t *next = *record ? *record + length_of(*record) : from;
  if (next >= from + valid) return 12;
  return *record = next, 0;
}

static void deliver(void) {
  if (buffer && filled) {
    uint8_t *full = buffer;
    size_t valid = filled, whole = size;
    buffer = NULL;
    filled = 0;
    complete(NULL, 0, full, whole, valid);
  }
}

uint32_t cuptiActivityFlushAll(uint32_t flag) {
  (void)flag;
  pthread_mutex_lock(&held);
  deliver();
  pthread_mutex_unlock(&held);
  return 0;
}

static void put(const void *record, size_t bytes) {
  if (!(enabled >> *(const uint32_t *)record & 1)) return;
  pthread_mutex_lock(&held);
  if (buffer && filled + bytes > size) deliver();
  if (!buffer) {
    size_t most;
    request(&buffer, &size, &most);
    for (size_t i = 0; i < size; i++)
      if (buffer[i]) abort(); /* we said that they are zeroed */
  }
  memcpy(buffer + filled, record, bytes);
  filled += bytes;
  pthread_mutex_unlock(&held);
}

static uint32_t call(uint32_t kind, uint32_t number, uint64_t begun) {
  uint32_t correlation = __atomic_add_fetch(&last_correlation, 1, __ATOMIC_RELAXED);
  Call c = {kind, number, begun, now(), (uint32_t)getpid(), (uint32_t)syscall(SYS_gettid), correlation, 0};
  put(&c, sizeof c);
  return correlation;
}

/* A launch of a kernel that runs for `ns`, after the call has come back. */
void fake_launch(const char *name, uint64_t ns) {
  uint64_t begun = now();
  uint32_t correlation = call(5, 1, begun);
  Kernel k;
  memset(&k, 0, sizeof k);
  k.kind = 10, k.registers = 40, k.start = now() + 1000, k.end = k.start + ns;
  k.device = 1, k.context = 2, k.stream = 7;
  for (int i = 0; i < 3; i++) k.grid[i] = 4 + i, k.block[i] = 32 >> i;
  k.static_shared = 1024, k.dynamic_shared = 512, k.local = 16, k.correlation = correlation, k.name = name;
  put(&k, sizeof k);
}

void fake_copy(uint64_t bytes) {
  uint64_t begun = now();
  Copy c = {.kind = 1, .copy = 1, .bytes = bytes, .start = begun + 10, .end = begun + 510, .stream = 7};
  c.correlation = call(5, 2, begun);
  put(&c, sizeof c);
  Set s = {.kind = 2, .value = 255, .bytes = bytes, .start = begun + 600, .end = begun + 700, .stream = 7};
  s.correlation = call(5, 3, begun);
  put(&s, sizeof s);
}

/* Calls that ask for no work. */
void fake_idle(void) {
  uint64_t begun = now();
  call(5, 5, begun);
  call(5, 4, begun);
  call(4, 7, begun);
}
