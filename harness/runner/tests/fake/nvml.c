/* An NVML with one GPU, whose answers come from the environment:
 * FAKE_NVML_MHZ, FAKE_NVML_THROTTLE (bits), FAKE_NVML_PID, FAKE_NVML_LIMIT (mW), FAKE_NVML_MARGINS (°C
 * below the slowdown temperature, one for each reading: `3,5,20`; the last stays),
 * FAKE_NVML_SLOWDOWN (°C; the GPU has 41). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int handle;
static unsigned number(const char *name, unsigned otherwise) {
  const char *text = getenv(name);
  return text ? (unsigned)strtoul(text, 0, 0) : otherwise;
}
struct process { unsigned pid; unsigned long long memory; unsigned gi, ci; };

unsigned nvmlInit_v2(void) { return 0; }
const char *nvmlErrorString(unsigned code) { return code == 6 ? "Not Found" : "Other"; }
unsigned nvmlDeviceGetHandleByUUID(const char *uuid, void **device) {
  *device = &handle;
  return strcmp(uuid, "GPU-11111111-1111-1111-1111-111111111111") ? 6 : 0;
}
unsigned nvmlDeviceGetClockInfo(void *d, unsigned which, unsigned *v) {
  (void)d;
  *v = which == 1 ? number("FAKE_NVML_MHZ", 1980) : 2619;
  return 0;
}
unsigned nvmlDeviceGetTemperature(void *d, unsigned which, unsigned *v) { (void)d; *v = 41; return which; }
struct margin { unsigned version; int celsius; };
unsigned nvmlDeviceGetMarginTemperature(void *d, struct margin *m) {
  static const char *next;
  const char *all = getenv("FAKE_NVML_MARGINS");
  (void)d;
  if (!all) return 3;
  if (m->version != (1u << 24 | sizeof *m)) return 25;
  if (!next) next = all;
  m->celsius = atoi(next);
  const char *comma = strchr(next, ',');
  if (comma) next = comma + 1;
  return 0;
}
unsigned nvmlDeviceGetTemperatureThreshold(void *d, unsigned which, unsigned *v) {
  (void)d;
  *v = number("FAKE_NVML_SLOWDOWN", 0);
  return *v && which == 1 ? 0 : 3;
}
unsigned nvmlDeviceGetPowerUsage(void *d, unsigned *v) { (void)d; *v = 123456; return 0; }
unsigned nvmlDeviceGetCurrentClocksThrottleReasons(void *d, unsigned long long *v) {
  (void)d;
  *v = number("FAKE_NVML_THROTTLE", 1);
  return 0;
}
unsigned nvmlDeviceGetEnforcedPowerLimit(void *d, unsigned *v) { (void)d; *v = number("FAKE_NVML_LIMIT", 700000); return 0; }
unsigned nvmlDeviceGetPowerManagementDefaultLimit(void *d, unsigned *v) { (void)d; *v = 700000; return 0; }
unsigned nvmlDeviceGetVirtualizationMode(void *d, unsigned *v) { (void)d; *v = 0; return 0; }
unsigned nvmlDeviceGetComputeRunningProcesses_v3(void *d, unsigned *n, struct process *p) {
  (void)d;
  *n = getenv("FAKE_NVML_PID") ? 1 : 0;
  if (*n) p[0].pid = number("FAKE_NVML_PID", 0);
  return 0;
}
unsigned nvmlSystemGetDriverVersion(char *text, unsigned n) { snprintf(text, n, "570.1"); return 0; }
