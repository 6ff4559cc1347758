#!/usr/bin/env python3
"""Make a large export of nsys: schema 3.20, kernels, calls and nested ranges in the shape that a
training loop has. Synthetic: for measuring readers, never for tests of values.

    benches/make_nsys_sqlite.py OUT.sqlite [GIB]
"""
import sqlite3
import sys

SCHEMA = """
PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;
CREATE TABLE META_DATA_EXPORT (name TEXT, value TEXT);
CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, deviceId INTEGER,
  contextId INTEGER, greenContextId INTEGER, streamId INTEGER, correlationId INTEGER,
  globalPid INTEGER, demangledName INTEGER, shortName INTEGER, mangledName INTEGER,
  launchType INTEGER, cacheConfig INTEGER, registersPerThread INTEGER, gridX INTEGER,
  gridY INTEGER, gridZ INTEGER, blockX INTEGER, blockY INTEGER, blockZ INTEGER,
  staticSharedMemory INTEGER, dynamicSharedMemory INTEGER, localMemoryPerThread INTEGER,
  localMemoryTotal INTEGER, gridId INTEGER, sharedMemoryExecuted INTEGER, graphNodeId INTEGER,
  sharedMemoryLimitConfig INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER, end INTEGER, eventClass INTEGER,
  globalTid INTEGER, correlationId INTEGER, nameId INTEGER, returnValue INTEGER,
  callchainId INTEGER);
CREATE TABLE NVTX_EVENTS (start INTEGER, end INTEGER, eventType INTEGER, rangeId INTEGER,
  category INTEGER, color INTEGER, text TEXT, globalTid INTEGER, endGlobalTid INTEGER,
  textId INTEGER, domainId INTEGER);
"""
NAMES, PID, TID = 200, 7 << 24, (7 << 24) | 9
STEP, LAYERS, KERNELS = 10_000_000, 12, 20


def step(number):
    """The rows of one step of the loop: kernels, calls, ranges."""
    kernels, calls, ranges = [], [], []
    base = number * STEP
    ranges.append((base, base + STEP - 10, 59, None, None, None, None, TID, None, 3, None))
    for layer in range(LAYERS):
        at = base + layer * (STEP // LAYERS)
        ranges.append((at, at + STEP // LAYERS - 20, 59, None, None, None, f"layer {layer}", TID, None, None, None))
        for index in range(KERNELS):
            correlation = (number * LAYERS + layer) * KERNELS + index + 1
            call = at + index * 30_000
            name = 10 + (layer * KERNELS + index) % NAMES
            calls.append((call, call + 4_000, 0, TID, correlation, 2, 0, None))
            start = call + 9_000
            kernels.append((start, start + 20_000 + index, 0, 1, None, 7, correlation, PID, name, name, name, 1,
                            0, 64, 132, 1, 1, 256, 1, 1, 0, 49152, 0, 0, correlation, 49152, None, 0))
    return kernels, calls, ranges


def main():
    path, gib = sys.argv[1], float(sys.argv[2]) if len(sys.argv) > 2 else 1.0
    db = sqlite3.connect(path)
    db.executescript(SCHEMA)
    db.execute("INSERT INTO META_DATA_EXPORT VALUES ('EXPORT_SCHEMA_VERSION', '3.20.3')")
    db.executemany("INSERT INTO StringIds VALUES (?, ?)", [(2, "cudaLaunchKernel_v7000"), (3, "step")])
    db.executemany("INSERT INTO StringIds VALUES (?, ?)",
                   [(10 + n, f"void kernel_{n}<float, 128, 4>(float *, const float *, int)") for n in range(NAMES)])
    number, per_step = 0, LAYERS * KERNELS * 107
    while number * per_step < gib * 2**30:
        kernels, calls, ranges = step(number)
        db.executemany(f"INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES ({','.join('?' * 28)})", kernels)
        db.executemany("INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?,?,?,?,?,?,?,?)", calls)
        db.executemany(f"INSERT INTO NVTX_EVENTS VALUES ({','.join('?' * 11)})", ranges)
        number += 1
    db.commit()
    db.close()


if __name__ == "__main__":
    main()
