"""Times NCCL's collectives on the GPUs of this host: `collectives.py RANKS RESULT [--nvls]`.

Starts a process for each GPU, as launchers do. It needs libcuda and libnccl alone: no launcher, no compiler, no
torch. The result is JSON. A failure of NCCL or of the host is a result too, `trouble`, and the exit status is 0.

NVLink multicast of one user can disturb the GPUs of others on a shared host, so NVLS is off without --nvls. With it,
NCCL_NVLS_ENABLE stays as the host has it."""

import ctypes
import glob
import json
import os
import select
import shutil
import signal
import site
import statistics
import struct
import sys
import tempfile
import traceback

LEAST_BYTES, MOST_BYTES = 1 << 10, 512 << 20
OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
WARM_UP_CALLS = 3
LOOPS = 7
# The bytes of each part of a buffer, from both of its ends, that are compared with the right result.
CHECKED_BYTES = 64 << 10
NCCL_FLOAT32, NCCL_SUM = 7, 0
MAX_LOG_LINES = 200
LOG_WORDS = ("NCCL version", "NVLS", "nvls", "NET/", "Using network", "WARN")


class Trouble(Exception):
    """What went wrong, with a code that rgpu knows."""

    def __init__(self, code, text):
        super().__init__(text)
        self.code = code


class UniqueId(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_char * 128)]


def calls_of_a_loop(size):
    return 20 if size <= 16 << 20 else 6


def libraries_of_nccl():
    """Where NCCL may be: with the system, in the packages of this Python, of one on PATH, or of the Python of torchrun."""
    yield "libnccl.so.2"
    folders = [folder for folder in sys.path if folder] + [site.getusersitepackages()]
    prefixes = [os.environ.get(name) for name in ("VIRTUAL_ENV", "CONDA_PREFIX")]
    for program in ("torchrun", "python3", "python"):
        path = shutil.which(program)
        if path:
            prefixes.append(os.path.dirname(os.path.dirname(path)))
    for prefix in filter(None, prefixes):
        yield from glob.glob(prefix + "/lib/libnccl.so.2")
        for name in ("site-packages", "dist-packages"):
            folders += glob.glob(prefix + "/lib/python3*/" + name)
    for folder in folders:
        yield from sorted(glob.glob(folder + "/nvidia/*/lib/libnccl.so.2"))


def load_nccl():
    for path in libraries_of_nccl():
        try:
            return path, ctypes.CDLL(path)
        except OSError:
            continue
    raise Trouble("no_nccl", "there is no libnccl.so.2")


def load_cuda():
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise Trouble("no_driver", str(error))


def pattern(value):
    return struct.unpack("I", struct.pack("f", value))[0]


class Rank:
    """One GPU with its buffers and its communicator."""

    def __init__(self, rank, ranks, exchange):
        self.rank, self.ranks = rank, ranks
        self.cuda_library = load_cuda()
        self.library, self.nccl_library = load_nccl()
        self.communicator = ctypes.c_void_p()
        self.cuda("cuInit", 0)
        count = ctypes.c_int()
        self.cuda("cuDeviceGetCount", ctypes.byref(count))
        if count.value < ranks:
            raise Trouble("too_few_gpus", "CUDA shows %d GPUs" % count.value)
        device = ctypes.c_int()
        self.cuda("cuDeviceGet", ctypes.byref(device), rank)
        name = ctypes.create_string_buffer(256)
        self.cuda("cuDeviceGetName", name, 256, device)
        self.name = name.value.decode(errors="replace")
        context = ctypes.c_void_p()
        # NCCL's own runtime uses the primary context that is current.
        self.cuda("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self.cuda("cuCtxSetCurrent", context)
        self.stream = ctypes.c_void_p()
        self.cuda("cuStreamCreate", ctypes.byref(self.stream), 1)
        self.events = [ctypes.c_void_p(), ctypes.c_void_p()]
        for event in self.events:
            self.cuda("cuEventCreate", ctypes.byref(event), 0)
        self.sent, self.received, self.barrier_buffer = (self.memory(n) for n in (MOST_BYTES, MOST_BYTES, 4))
        version = ctypes.c_int()
        self.nccl("ncclGetVersion", ctypes.byref(version))
        self.version = version.value
        self.nccl("ncclCommInitRank", ctypes.byref(self.communicator), ranks, exchange(self.unique_id), rank)

    def cuda(self, name, *arguments):
        status = getattr(self.cuda_library, name)(*arguments)
        if status != 0:
            text = ctypes.c_char_p()
            self.cuda_library.cuGetErrorName(status, ctypes.byref(text))
            raise Trouble("cuda_failed", "%s: %s" % (name, (text.value or b"error %d" % status).decode()))

    def nccl(self, name, *arguments):
        status = getattr(self.nccl_library, name)(*arguments)
        if status != 0:
            self.nccl_library.ncclGetErrorString.restype = ctypes.c_char_p
            raise Trouble("nccl_failed", "%s: %s" % (name, self.nccl_library.ncclGetErrorString(status).decode()))

    def memory(self, size):
        pointer = ctypes.c_uint64()
        self.cuda("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(size))
        return pointer.value

    def unique_id(self):
        made = UniqueId()
        self.nccl("ncclGetUniqueId", ctypes.byref(made))
        return bytes(bytearray(made))

    def fill(self, at, size, value):
        self.cuda("cuMemsetD32_v2", ctypes.c_uint64(at), ctypes.c_uint(pattern(value)), ctypes.c_size_t(size // 4))

    def synchronize(self):
        self.cuda("cuCtxSynchronize")

    def all_reduce(self, source, target, size):
        self.nccl("ncclAllReduce", ctypes.c_void_p(source), ctypes.c_void_p(target), ctypes.c_size_t(size // 4),
                  NCCL_FLOAT32, NCCL_SUM, self.communicator, self.stream)

    def all_gather(self, source, target, size):
        self.nccl("ncclAllGather", ctypes.c_void_p(source), ctypes.c_void_p(target),
                  ctypes.c_size_t(size // 4 // self.ranks), NCCL_FLOAT32, self.communicator, self.stream)

    def reduce_scatter(self, source, target, size):
        self.nccl("ncclReduceScatter", ctypes.c_void_p(source), ctypes.c_void_p(target),
                  ctypes.c_size_t(size // 4 // self.ranks), NCCL_FLOAT32, NCCL_SUM, self.communicator, self.stream)

    def all_to_all(self, source, target, size):
        part = size // self.ranks
        self.nccl("ncclGroupStart")
        for peer in range(self.ranks):
            for name, start in (("ncclSend", source), ("ncclRecv", target)):
                self.nccl(name, ctypes.c_void_p(start + peer * part), ctypes.c_size_t(part // 4), NCCL_FLOAT32, peer,
                          self.communicator, self.stream)
        self.nccl("ncclGroupEnd")

    def parts(self, operation, size):
        """What this rank sends and must receive: of each buffer the parts, as bytes and value. A part that lands in the
        wrong place has another value."""
        n, part = self.ranks, size // self.ranks
        whole = n * (n + 1) // 2
        return {
            "all_reduce": ([(size, self.rank + 1)], [(size, whole)]),
            "all_gather": ([(part, self.rank + 1)], [(part, i + 1) for i in range(n)]),
            "reduce_scatter": ([(part, (self.rank + 1) * (i + 1)) for i in range(n)], [(part, whole * (self.rank + 1))]),
            "all_to_all": ([(part, self.rank * n + i + 1) for i in range(n)],
                           [(part, i * n + self.rank + 1) for i in range(n)]),
        }[operation]

    def check(self, operation, size, parts):
        at = self.received
        for part, value in parts:
            length = min(part, CHECKED_BYTES)
            right = struct.pack("f", value) * (length // 4)
            for start in (at, at + part - length):
                found = ctypes.create_string_buffer(length)
                self.cuda("cuMemcpyDtoH_v2", found, ctypes.c_uint64(start), ctypes.c_size_t(length))
                if found.raw != right:
                    raise Trouble("wrong_result", "%s of %d bytes: rank %d received wrong numbers"
                                  % (operation, size, self.rank))
            at += part

    def measure(self, operation, size):
        """The times of one call in ns, one for each loop of calls."""
        call = getattr(self, operation)
        sends, receives = self.parts(operation, size)
        at = self.sent
        for part, value in sends:
            self.fill(at, part, value)
            at += part
        self.fill(self.received, size, float("nan"))
        self.synchronize()
        for _ in range(WARM_UP_CALLS):
            call(self.sent, self.received, size)
        times = []
        for _ in range(LOOPS):
            # All ranks leave this together, so that none waits for another within the measured time.
            self.all_reduce(self.barrier_buffer, self.barrier_buffer, 4)
            self.cuda("cuEventRecord", self.events[0], self.stream)
            for _ in range(calls_of_a_loop(size)):
                call(self.sent, self.received, size)
            self.cuda("cuEventRecord", self.events[1], self.stream)
            self.cuda("cuEventSynchronize", self.events[1])
            milliseconds = ctypes.c_float()
            self.cuda("cuEventElapsedTime", ctypes.byref(milliseconds), *self.events)
            times.append(milliseconds.value * 1e6 / calls_of_a_loop(size))
        self.synchronize()
        self.check(operation, size, receives)
        return times


def sizes(ranks):
    """Powers of two, rounded down to whole numbers for each rank."""
    size = LEAST_BYTES
    while size <= MOST_BYTES:
        yield max(size // (4 * ranks), 1) * 4 * ranks
        size *= 2


def run_rank(rank, ranks, ids):
    """What this rank found. `ids` are pipes, one for each rank, over which rank 0 tells the id of the communicator."""
    def exchange(make):
        if rank == 0:
            made = make()
            for peer in range(1, ranks):
                os.write(ids[peer][1], made)
        else:
            made = os.read(ids[rank][0], 128)
        return UniqueId.from_buffer_copy(made)

    try:
        one = Rank(rank, ranks, exchange)
        rows = [[operation, size, one.measure(operation, size)] for operation in OPERATIONS for size in sizes(ranks)]
        return {"gpu": one.name, "version": one.version, "library": one.library, "rows": rows}
    except Trouble as trouble:
        return {"trouble": {"code": trouble.code, "text": str(trouble), "rank": rank}}
    except Exception:
        return {"trouble": {"code": "failed", "text": traceback.format_exc(), "rank": rank}}


def start_ranks(ranks):
    """A process for each rank: process ids, and the pipes with their results."""
    ids = [os.pipe() for _ in range(ranks)]
    results = [os.pipe() for _ in range(ranks)]
    processes = []
    for rank in range(ranks):
        process = os.fork()
        if process == 0:
            # Another rank's result ends when that rank ends, not when this one does.
            for other, (_, write) in enumerate(results):
                if other != rank:
                    os.close(write)
            text = json.dumps(run_rank(rank, ranks, ids)).encode()
            with os.fdopen(results[rank][1], "wb") as pipe:
                pipe.write(text)
            # NCCL's threads may wait for a rank that failed.
            os._exit(0)
        processes.append(process)
    for _, write in results:
        os.close(write)
    return processes, [read for read, _ in results]


def results_of(processes, pipes):
    """The results of all ranks. The first trouble ends the others, which would wait for that rank for ever."""
    texts = {pipe: b"" for pipe in pipes}
    open_pipes, found = list(pipes), [None] * len(pipes)
    try:
        while open_pipes:
            for pipe in select.select(open_pipes, [], [])[0]:
                piece = os.read(pipe, 1 << 16)
                texts[pipe] += piece
                if piece:
                    continue
                open_pipes.remove(pipe)
                rank = pipes.index(pipe)
                result = {"trouble": {"code": "died", "text": "the process ended without a result", "rank": rank}}
                if texts[pipe]:
                    result = json.loads(texts[pipe].decode())
                if "trouble" in result:
                    return [result]
                found[rank] = result
        return found
    finally:
        for process in processes:
            os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)


def log_lines(folder):
    """The lines of rank 0's log that tell NCCL's choices, and warnings of all ranks."""
    lines = []
    for path in sorted(glob.glob(folder + "/*")):
        with open(path, errors="replace") as log:
            lines += [line.strip() for line in log if any(word in line for word in LOG_WORDS)]
    return lines[:MAX_LOG_LINES]


def main():
    ranks, result_path = int(sys.argv[1]), sys.argv[2]
    if "--nvls" not in sys.argv[3:]:
        os.environ["NCCL_NVLS_ENABLE"] = "0"
    logs = tempfile.mkdtemp(prefix="rgpu-nccl-")
    os.environ.update(NCCL_DEBUG="INFO", NCCL_DEBUG_SUBSYS="INIT,ENV,NVLS", NCCL_DEBUG_FILE=logs + "/%p")
    try:
        all_found = results_of(*start_ranks(ranks))
        result = {"ranks": ranks, "nvls_setting": os.environ.get("NCCL_NVLS_ENABLE"), "log": log_lines(logs)}
    finally:
        shutil.rmtree(logs, ignore_errors=True)
    if "trouble" in all_found[0]:
        result["trouble"] = all_found[0]["trouble"]
    else:
        first = all_found[0]
        result.update({key: first[key] for key in ("gpu", "version", "library")})
        # As in nccl-tests, the time of a call is the mean over ranks.
        result["rows"] = [
            {"op": operation, "bytes": size,
             "loops_ns": [statistics.mean(times) for times in zip(*(one["rows"][i][2] for one in all_found))]}
            for i, (operation, size, _) in enumerate(first["rows"])]
    with open(result_path, "w") as file:
        json.dump(result, file)


if __name__ == "__main__":
    main()
