# --- the candidate's process ------------------------------------------------------------------
#
# The code under test runs in a process of its own (`harness.py candidate`). It gets the inputs of a
# call when the call begins and has neither the reference, nor expected values, nor the seeds, nor the
# report. Tensors lie in one block of memory that both processes see: the arena. The judge sends
# pickles, the candidate answers with JSON, which the judge checks.

LENGTH = struct.Struct("<I")
# Limits of one message to the judge.
ANSWER_BYTES = 8 << 20
ALIGN = 512
# The longest wait without sleeping.
SPIN_SECONDS = 1.0


class Gone(Exception):
    """The other process has ended."""


def send(link, message):
    link.sendall(LENGTH.pack(len(message)) + message)


def await_soon(link):
    """Waits for a message without sleeping, for at most a second: to be woken takes longer than a turn.
    With few cores, sleeping disturbs less."""
    until = time.perf_counter() + SPIN_SECONDS
    while os.cpu_count() >= 4 and time.perf_counter() < until:
        with contextlib.suppress(BlockingIOError):
            link.recv(1, socket.MSG_DONTWAIT | socket.MSG_PEEK)
            return


def receive(link, most=None):
    def exactly(count):
        parts = bytearray()
        while len(parts) < count:
            part = link.recv(min(count - len(parts), 1 << 20))
            if not part:
                raise Gone()
            parts += part
        return bytes(parts)

    length, = LENGTH.unpack(exactly(LENGTH.size))
    if most is not None and length > most:
        raise Gone()
    return exactly(length)


def tell(link, **answer):
    send(link, json.dumps(finite(answer)).encode())


def serve(asked, start):
    """The loop of a process that answers the judge: a pickle is a job, the answer is JSON."""
    link = socket.socket(fileno=asked.control)
    # PR_SET_PDEATHSIG: nothing of it stays when the judge is killed.
    prctl(1, signal.SIGKILL)
    try:
        jobs = start(link).jobs()
        while True:
            told = pickle.loads(receive(link))
            try:
                answer = jobs[told["do"]](told)
            except Unsuited as why:
                answer = {"unsuited": str(why)}
            tell(link, **answer)
            if told.get("prepare"):
                await_soon(link)
    except Gone:
        return
    except Fault as fault:
        if fault.__cause__ is not None:
            show(fault.__cause__)
        told = fault
    except Exception as error:
        show(error)
        told = fault_of(error, ENTRY["function"])
    tell(link, fault=[told.kind, told.text])
    os._exit(STATUS.get(told.kind, 70))


class Pointer:
    """Device memory of another process, in the form that torch takes."""

    def __init__(self, address, size):
        self.__cuda_array_interface__ = {
            "shape": (size,), "typestr": "|u1", "data": (address, False), "version": 3, "strides": None}


class IpcHandle(ctypes.Structure):
    """CUipcMemHandle."""

    _fields_ = [("reserved", ctypes.c_char * 64)]


def driver_call(name, *arguments):
    status = getattr(ctypes.CDLL("libcuda.so.1"), name)(*arguments)
    if status != 0:
        raise OSError(f"{name} gives {status}")


def opened_arena(facts, link):
    """The arena as bytes: device memory by its handle, or a file that follows on the link."""
    if facts["handle"] is None:
        _, (file,), _, _ = socket.recv_fds(link, 1, 1)
        with os.fdopen(file) as mapped:
            return torch.frombuffer(mmap.mmap(mapped.fileno(), facts["size"]), dtype=torch.uint8)
    handle, address = IpcHandle(), ctypes.c_uint64(0)
    ctypes.memmove(ctypes.byref(handle), facts["handle"], 64)
    torch.zeros(1, device=DEVICE)
    driver_call("cuIpcOpenMemHandle_v2", ctypes.byref(address), handle, 1)
    return torch.as_tensor(Pointer(address.value, facts["size"]), device=DEVICE)


def close_arena(arena, facts):
    if facts["handle"] is not None:
        synchronize()
        driver_call("cuIpcCloseMemHandle", ctypes.c_uint64(arena.data_ptr()))


def placed(arena, place):
    """The tensor that lies at a place of the arena: (first byte, bytes, dtype, shape, strides, offset)."""
    first, size, dtype, shape, strides, offset = place
    whole_storage = arena[first:first + size].view(getattr(torch, dtype))
    return whole_storage.as_strided(shape, strides, whole_storage.storage_offset() + offset)


class Unpacker(pickle.Unpickler):
    """Reads values whose tensors lie in the arena."""

    def __init__(self, data, arena, places):
        super().__init__(io.BytesIO(data))
        self.arena, self.places = arena, places

    def persistent_load(self, where):
        storage, dtype, shape, strides, offset = where
        first, size = self.places[storage]
        return placed(self.arena, (first, size, dtype, shape, strides, offset))


class Call(Kernel):
    """One call: the values of a slot, bound to the kernel's parameters."""

    def __init__(self, candidate, told):
        self.popcorn, self.function = candidate.popcorn, candidate.function
        self.values = Unpacker(told["values"], candidate.arena, told["places"]).load()
        listed = lambda value: value if isinstance(value, list) else [value]
        entries = [(name, g, tensor, role) for name, role in told["roles"]
                   for g, tensor in enumerate(listed(self.values[name]))]
        self.outs = [entry[:3] for entry in entries if entry[3] == "out"]
        self.inouts = [entry[:3] for entry in entries if entry[3] == "inout"]
        self.data, self.checker = self.values.get("data"), True
        model = {"model": candidate.extras["model"]} if "model" in candidate.extras else {}
        if self.popcorn:
            # `run_on` binds what the kernel takes beside the data.
            self.values = self.values["values"]
        self.values.update(model)
        self.bound = None if self.popcorn else bind(self.function, self.values)
        self.areas = [placed(candidate.arena, area) for area in told["areas"]]
        self.arena = candidate.arena
        self.returned = []

    def within_arena(self, tensor):
        """The first byte of a tensor in the arena; none if it lies elsewhere."""
        first = tensor.data_ptr() - self.arena.data_ptr()
        return first if 0 <= first < self.arena.numel() else None

    def run(self):
        """Calls the kernel. What it returns in memory of its own is kept until `hand_over`."""
        self.returned = self.call_once()

    def hand_over(self):
        """Copies what was returned in other memory to its area, in the order of the stream."""
        for (_, _, tensor), area in zip(self.returned, self.areas):
            if self.within_arena(tensor) is None and tensor.shape == area.shape and tensor.dtype == area.dtype:
                area.copy_(tensor)

    def described(self):
        """For each output: dtype, shape, strides, and its first byte if it lies in the arena."""
        facts = []
        for _, _, tensor in self.returned:
            if type(tensor) not in (torch.Tensor, torch.nn.Parameter):
                raise Fault("wrong_result", f"a `{type(tensor).__name__}` was returned in place of a tensor")
            facts.append([str(tensor.dtype).replace("torch.", ""), list(tensor.shape), list(tensor.stride()),
                          self.within_arena(tensor)])
        self.returned = []
        return facts


class Candidate:
    """Answers the judge: loads the kernel, takes slots, runs rounds."""

    def __init__(self, link):
        self.link, self.calls, self.graphs, self.arena, self.flush = link, {}, {}, None, None
        self.is_offline = False

    def load(self, _):
        """Runs the kernel's module, and says what the kernel takes."""
        missing = enter_cage()
        self.module = load(ENTRY["file"])
        self.made = function_of(self.module, ENTRY["function"])
        takes = [] if inspect.isclass(self.made) else list(parameters(self.made))
        return {"takes": takes, "triton": "triton" in sys.modules, "missing": missing}

    def case(self, told):
        """One-time work for a case: builds the model, compiles kernels."""
        self.extras, self.function = extras_of(case_named(told["case"])), self.made
        begin, done, same_weights = time.perf_counter_ns(), False, True
        if ENTRY.get("prepare"):
            self.extras["model"] = built(self.module, self.extras)
            done = True
        if told["weights"] is not None:
            weights, done = pickle.loads(told["weights"]), True
            self.function = instance(self.made, weights["arguments"])
            if isinstance(self.function, torch.nn.Module) and weights["state"] is not None:
                same_weights = takes_weights(self.function, weights["state"])
        if told["compiles"] and callable(getattr(self.module, "compile_kernel", None)):
            blamed(lambda: self.module.compile_kernel(self.extras["problem_sizes"]), "compile_kernel")
            done = True
        synchronize()
        took = time.perf_counter_ns() - begin if done else None
        return {"prepare_ns": took, "same_weights": same_weights, "model": facts_of_model(self.extras.get("model"))}

    def open(self, told):
        self.calls, self.graphs, self.popcorn = {}, {}, told["popcorn"]
        gc.collect()
        self.facts = told
        self.arena = opened_arena(told, self.link)
        missing = [] if self.is_offline else close_network()
        self.is_offline = True
        return {"missing": missing}

    def close(self, _):
        self.calls, self.graphs = {}, {}
        gc.collect()
        close_arena(self.arena, self.facts)
        self.arena = None
        return {}

    def define(self, told):
        self.calls.update({slot: Call(self, facts) for slot, facts in told["slots"].items()})
        self.graphs = {}
        return {}

    def warm(self, told):
        """Calls the kernel on one slot, several times and for some time."""
        kernel, until, most, calls = self.calls[told["slot"]], time.perf_counter() + told["for_seconds"], 0, 0
        took = []
        while calls < told["calls"] or time.perf_counter() < until:
            begin = time.perf_counter_ns()
            blamed(kernel.run, ENTRY["function"])
            most = time.perf_counter_ns() - begin
            synchronize()
            took.append(time.perf_counter_ns() - begin)
            calls += 1
        # The time to enqueue a call, and of a whole call by this process's clock: both only claims.
        return {"outputs": kernel.described(), "enqueue_ns": most, "whole_ns": median(took[-5:])}

    def plain(self, told):
        """Each slot once."""
        outputs = []
        for slot in told["order"]:
            blamed(self.calls[slot].run, ENTRY["function"])
            outputs.append(self.handed_over(slot))
        self.done()
        return {"outputs": outputs}

    def handed_over(self, slot):
        """What a call has given, where it belongs. Its own memory is free for the next call."""
        self.calls[slot].hand_over()
        return self.calls[slot].described()

    def in_graph(self, told):
        """Each slot once, as one CUDA graph if the kernel can be captured; the first time only prepares."""
        order = tuple(told["order"])
        if order not in self.graphs:
            self.graphs[order] = self.captured(order)
        graph, facts = self.graphs[order]
        if told["prepare"]:
            # The first replay also uploads the graph.
            if graph is not None:
                graph.replay()
                synchronize()
            return {"graph": graph is not None}
        if graph is None:
            return self.plain(told)
        graph.replay()
        self.done()
        return {"outputs": facts}

    def done(self):
        """Ends the judge's clock: the GPU is idle and the outputs are there."""
        synchronize()
        tell(self.link, done=True)

    def captured(self, order):
        if DEVICE != "cuda":
            return None, None
        graph, facts = torch.cuda.CUDAGraph(), []
        try:
            with torch.cuda.graph(graph):
                for slot in order:
                    self.calls[slot].run()
                    facts.append(self.handed_over(slot))
            torch.cuda.synchronize()
        except Exception:
            with contextlib.suppress(Exception):
                torch.cuda.synchronize()
            return None, None
        return graph, facts

    def cold(self, told):
        """Each slot once between two events, L2 overwritten before; the claimed times in ns."""
        if DEVICE != "cuda":
            return self.by_host_clock(told)
        if told["flush"] and self.flush is None:
            self.flush = torch.empty(told["flush"], dtype=torch.uint8, device=DEVICE)
        pairs = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in told["order"]]
        outputs = []
        for (start, end), slot in zip(pairs, told["order"]):
            if self.flush is not None:
                reset_persisting_l2()
                self.flush.zero_()
            torch.cuda._sleep(told["hold"])
            start.record()
            blamed(self.calls[slot].run, ENTRY["function"])
            end.record()
            outputs.append(self.handed_over(slot))
        self.done()
        return {"outputs": outputs,
                "claims": [start.elapsed_time(end) * 1e6 for start, end in pairs]}

    def by_host_clock(self, told):
        claims, outputs = [], []
        for slot in told["order"]:
            begin = time.perf_counter_ns()
            blamed(self.calls[slot].run, ENTRY["function"])
            synchronize()
            claims.append(float(time.perf_counter_ns() - begin))
            outputs.append(self.handed_over(slot))
        self.done()
        return {"outputs": outputs, "claims": claims}

    def jobs(self):
        return {"load": self.load, "case": self.case, "open": self.open, "close": self.close, "define": self.define, "warm": self.warm,
                "plain": self.plain, "graph": self.in_graph, "cold": self.cold}


def job_candidate(asked):
    serve(asked, Candidate)
