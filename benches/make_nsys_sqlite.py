#!/usr/bin/env python3
"""Makes a large nsys export from a small real one. The schema and small tables stay. The other rows are
replaced by kernels, calls and nested ranges in the shape of a training loop.
The data are synthetic: use them to time readers, never to test values.

    benches/make_nsys_sqlite.py OUT.sqlite [SIZE]        SIZE: 400M, 1G (default)
"""
import pathlib
import shutil
import sqlite3
import sys

REAL = pathlib.Path(__file__).parent.parent / "tests/fixtures/nsys/2025.3.1/regions/report.sqlite"
NAMES, FIRST_NAME = 200, 1000
COLLECTIVE = FIRST_NAME - 3
STEP_NS, LAYERS, KERNELS = 10_000_000, 12, 20  # per step of the loop: its length, its ranges, kernels per range
BATCH = 1000  # steps between two checks of the size
# c: one row per kernel, from {0} to {1} - 1, with its name and its start time.
COUNT = """WITH RECURSIVE n(c) AS (SELECT {0} UNION ALL SELECT c + 1 FROM n WHERE c + 1 < {1}),
 k(c, name, at) AS (SELECT c, %d + c %% %d, c / %d * %d + c / %d %% %d * %d + c %% %d * 30000 FROM n) """ % (
    FIRST_NAME, NAMES, LAYERS * KERNELS, STEP_NS, KERNELS, LAYERS, STEP_NS // LAYERS, KERNELS)


def size_of(text):
    """Bytes of `400M` or `1G`."""
    units = {"M": 2**20, "G": 2**30}
    return int(float(text[:-1]) * units[text[-1].upper()])


def insert(db, table, values, source):
    """Inserts rows of `source` with the given columns. Other columns that must not be empty get 0."""
    columns = [(name, needed) for _, name, _, needed, _, _ in db.execute(f"PRAGMA table_info({table})")]
    chosen = [(name, values.get(name, "0")) for name, needed in columns if name in values or needed]
    db.execute(f"INSERT INTO {table} ({', '.join(n for n, _ in chosen)}) "
               + source.replace("SELECT *", f"SELECT {', '.join(v for _, v in chosen)}"))


def add(db, first, last, pid, tid, rank):
    """Adds the rows of steps `first` to `last` - 1. With a `rank`, the last kernel of each range is a collective on a stream of
    its own, which this rank begins up to 2 µs later than others, and its call is in a range with NCCL's payload."""
    each = LAYERS * KERNELS
    kernels = COUNT.format(first * each, last * each) + "SELECT * FROM k"
    is_collective = f"c % {KERNELS} = {KERNELS - 1}" if rank is not None else "0"
    late = f"iif({is_collective}, (c / {KERNELS} + {rank}) % 5 * 500, 0)" if rank is not None else "0"
    name = {name: f"iif({is_collective}, {COLLECTIVE}, name)" for name in ("demangledName", "shortName", "mangledName")}
    insert(db, "CUPTI_ACTIVITY_KIND_KERNEL", {
        **name, "start": f"at + 9000 + {late}", "end": f"at + 29000 + c % {KERNELS}", "contextId": "1",
        "streamId": f"iif({is_collective}, 13, 7)", "correlationId": "c + 1", "globalPid": str(pid),
        "launchType": "1", "registersPerThread": "64",
        "gridX": "132", "gridY": "1", "gridZ": "1", "blockX": "256", "blockY": "1", "blockZ": "1",
        "dynamicSharedMemory": "49152", "gridId": "c + 1", "sharedMemoryExecuted": "49152"}, kernels)
    insert(db, "CUPTI_ACTIVITY_KIND_RUNTIME", {
        "start": "at", "end": "at + 4000", "globalTid": str(tid), "correlationId": "c + 1",
        "nameId": str(FIRST_NAME - 1)}, kernels)
    steps = f"WITH RECURSIVE n(c) AS (SELECT {first} UNION ALL SELECT c + 1 FROM n WHERE c + 1 < {last}) SELECT * FROM n"
    ranges = {"eventType": "59", "globalTid": str(tid), "domainId": "0"}
    insert(db, "NVTX_EVENTS", {**ranges, "start": f"c * {STEP_NS}", "end": f"(c + 1) * {STEP_NS} - 10",
                               "textId": str(FIRST_NAME - 2)}, steps)
    if rank is not None:
        payload = '{"NCCL communicator ID":"0x1f","Message size [bytes]":4194304}'
        insert(db, "NVTX_EVENTS", {**ranges, "start": "at - 500", "end": "at + 4500", "text": "'ncclAllReduce'",
                                   "jsonText": f"'{payload}'"}, f"{kernels} WHERE {is_collective}")
    layers = f"WITH RECURSIVE n(c) AS (SELECT {first * LAYERS} UNION ALL SELECT c + 1 FROM n WHERE c + 1 < {last * LAYERS}), " \
             f"l(c, at) AS (SELECT c % {LAYERS}, c / {LAYERS} * {STEP_NS} + c % {LAYERS} * {STEP_NS // LAYERS} FROM n) SELECT * FROM l"
    insert(db, "NVTX_EVENTS", {**ranges, "start": "at", "end": f"at + {STEP_NS // LAYERS - 20}",
                               "text": "'layer ' || c"}, layers)


def make(path, size, rank=None):
    """Writes an export of about `size` bytes to `path`: of this rank of several, if one is given."""
    shutil.copyfile(REAL, path)
    db = sqlite3.connect(path)
    db.executescript("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA locking_mode = EXCLUSIVE;")
    (pid,) = db.execute("SELECT globalPid FROM CUPTI_ACTIVITY_KIND_KERNEL").fetchone()
    (tid,) = db.execute("SELECT globalTid FROM NVTX_EVENTS").fetchone()
    for table in ("KIND_KERNEL", "KIND_RUNTIME", "KIND_MEMCPY", "KIND_SYNCHRONIZATION"):
        db.execute(f"DELETE FROM CUPTI_ACTIVITY_{table}")
    db.execute("DELETE FROM NVTX_EVENTS")
    names = [(COLLECTIVE, "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)")]
    names += [(FIRST_NAME - 2, "step"), (FIRST_NAME - 1, "cudaLaunchKernel_v7000")]
    names += [(FIRST_NAME + n, f"void kernel_{n}<float, 128, 4>(float *, const float *, int)") for n in range(NAMES)]
    db.executemany("INSERT INTO StringIds VALUES (?, ?)", names)
    step = 0
    while True:
        (pages,), (page,) = db.execute("PRAGMA page_count").fetchone(), db.execute("PRAGMA page_size").fetchone()
        if pages * page >= size:
            break
        add(db, step, step + BATCH, pid, tid, rank)
        step += BATCH
    db.commit()
    db.close()


if __name__ == "__main__":
    make(sys.argv[1], size_of(sys.argv[2] if len(sys.argv) > 2 else "1G"))
