# --- the judge --------------------------------------------------------------------------------
#
# This process makes the data, keeps reference and expected values, compares, and owns the clock. A
# round hands a set of inputs to each of n slots, all new, and lets the candidate call the kernel once
# for each. The judge's wall time of a round whose outputs are all right, divided by n, bounds the time
# of a call from above: no code in the candidate can make it smaller than the work took. The
# candidate's own events refine the bound; they count only as far as they do not lie below it.

# A claim may lie below the bound by 2 us or 5 %, whichever is more: the bound contains launches.
BOUND_NS, BOUND_SHARE = 2_000.0, 0.05
# Below a third of the bound and by 10 us, while no host work was in the round: the clocks disagree.
DISAGREE_NS, DISAGREE_SHARE = 10_000.0, 2 / 3
# What a turn may take beyond the least turn of this host; a round has so many calls that its part of
# a call is small beside what a claim may lie below the bound.
TURN_NS, TURN_SHARE = 300_000.0, 0.5
# Turns with the author's process that measure the least one, and the bytes that are copied in each.
LEAST_TURNS, TURN_BYTES = 24, 4 << 30
MOST_SLOTS, COLD_SLOTS, BOUND_ROUNDS = 300, 48, 3
# Part of the free memory that the arena and the judge's copies of it may take.
MEMORY_SHARE = 0.4
ANSWER_SECONDS, LOAD_SECONDS = 120, 600
# How long the processes that the kernel leaves behind may take to end.
END_SECONDS = 20
# Data that take longer to make are shared by all timed calls; the most time for one round's.
SLOW_DATA_SECONDS, ROUND_SECONDS = 2.0, 0.6
# The most time for the rounds of one case, in seconds, if `max_seconds` does not say less.
JUDGED_SECONDS = 5.0


def aligned(size):
    """The bytes that a tensor takes in the arena: there is a canary behind each."""
    return (size + ALIGN - 1) // ALIGN * ALIGN + ALIGN


class Shared:
    """Memory that this process and another both see: device memory by its handle, or a file."""

    def __init__(self, size):
        # A whole number of 2 MiB: smaller blocks of an allocation would be seen with it.
        self.size = max(-(-size // (2 << 20)), 1) * (2 << 20)
        self.handle, self.file, self.address = None, None, None
        self.bytes = self.on_device() if DEVICE == "cuda" else self.in_file()

    def on_device(self):
        address, handle = ctypes.c_uint64(0), IpcHandle()
        torch.zeros(1, device=DEVICE)
        try:
            driver_call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(self.size))
            self.address = address.value
            driver_call("cuIpcGetMemHandle", ctypes.byref(handle), ctypes.c_uint64(self.address))
        except OSError as error:
            self.close()
            raise Unsuited(f"its process cannot share memory of the GPU: {error}") from error
        self.handle = bytes(handle)
        return torch.as_tensor(Pointer(self.address, self.size), device=DEVICE)

    def in_file(self):
        self.file = os.memfd_create("rgpu-shared", 0)
        os.ftruncate(self.file, self.size)
        return torch.frombuffer(mmap.mmap(self.file, self.size), dtype=torch.uint8)

    def open_in(self, process, **told):
        return process.ask("open", file=self.file, handle=self.handle, size=self.size, seconds=LOAD_SECONDS, **told)

    def close(self):
        self.bytes = None
        if self.address is not None:
            with contextlib.suppress(OSError):
                driver_call("cuMemFree_v2", ctypes.c_uint64(self.address))
        if self.file is not None:
            os.close(self.file)
        self.address = self.file = None


def laid_out(sizes):
    """The places of so many bytes each, one after another with a canary behind each, and their end."""
    places, first = [], 0
    for size in sizes:
        places.append((first, size))
        first += aligned(size)
    return places, first


class Arena(Shared):
    """The memory that judge and candidate see: for each slot the storages of the inputs, and in a
    second part those of the outputs, each with a canary behind it."""

    def __init__(self, sizes_in, sizes_out, slots):
        self.places_in, self.slot_in = laid_out(sizes_in)
        self.places_out, self.slot_out = laid_out(sizes_out)
        self.slots, self.first_out = slots, self.slot_in * slots
        super().__init__(self.first_out + self.slot_out * slots)
        self.bytes.random_(0, 256)

    def place_in(self, slot, number):
        first, size = self.places_in[number]
        return self.slot_in * slot + first, size

    def place_out(self, slot, number):
        first, size = self.places_out[number]
        return self.first_out + self.slot_out * slot + first, size


class Judge:
    """Judges one case: holds the arena, and asks the author's and the candidate's process."""

    def __init__(self, case):
        self.case, self.arena = case, None
        self.inside, self.changeable, self.unread, self.verified, self.distinct = [], [], False, 0, 0
        self.makes_new = varies(case)
        AUTHOR.start(case, CANDIDATE.takes)
        self.start_candidate()
        self.first = AUTHOR.make(case, SEED)

    def start_candidate(self):
        """Lets the candidate do its one-time work, and records what it says about it."""
        is_made = not self.case["groups"][0].get("args")
        weights = AUTHOR.weights() if is_made and (ENTRY.get("inputs") or {}).get("constructor") else None
        compiles = is_made and not self.case.get("values")
        said = CANDIDATE.ask("case", case=self.case["name"], weights=weights, compiles=compiles, seconds=LOAD_SECONDS)
        if said.get("prepare_ns") is not None:
            JOURNAL.record(self.case, prepare_ns=number_in(said, "prepare_ns"))
        if said.get("same_weights") is False:
            JOURNAL.gap(OTHER_WEIGHTS)
        model = said.get("model")
        if isinstance(model, dict) and type(model.get("parameters")) is int and isinstance(model.get("dtype"), str):
            JOURNAL.report.setdefault("model", {}).update(parameters=model["parameters"], dtype=model["dtype"][:32])

    def fresh(self):
        """Data from a seed that nobody knew before; the first again if they do not vary."""
        if not self.makes_new:
            return self.first
        self.distinct += 1
        return AUTHOR.make(self.case, int.from_bytes(os.urandom(4), "little") >> 1)

    def warm_up(self, calls, seconds):
        """Lets the candidate call the kernel on a set that is not used again."""
        self.prepare([self.fresh()])
        self.show()
        return CANDIDATE.ask("warm", slot=0, calls=max(calls, 1), for_seconds=seconds, seconds=LOAD_SECONDS)

    def slots_for(self, whole_ns):
        """How many calls make a round: enough for a turn to be small beside them, and for data of
        twice the L2, but no more than can be made in 0.6 s."""
        begin = time.perf_counter()
        made = self.fresh()
        AUTHOR.refusal(made, [t for _, _, t in made.expected])
        synchronize()
        seconds = time.perf_counter() - begin
        if seconds > SLOW_DATA_SECONDS:
            self.makes_new = False
            JOURNAL.gap(f"`{self.case['name']}`: its data take {seconds:.1f} s to make, so that all timed calls share one set")
        l2 = JOURNAL.report.get("device", {}).get("l2_bytes", 0)
        allowed = max(BOUND_NS, BOUND_SHARE * whole_ns)
        wanted = max(TURN_NS / (TURN_SHARE * allowed), 2 * l2 / max(sum(s.numel() for s in made.storages), 1))
        affordable = max(2.0, ROUND_SECONDS / max(seconds + whole_ns * 1e-9, 1e-6))
        return int(max(2, min(wanted, affordable, MOST_SLOTS)))

    def changed_inputs(self):
        """Names of the inputs that differ from what was handed over; `memory` if it is none of them."""
        if not self.is_disturbed():
            return []
        data, _, places = self.sets[0]
        names, outputs = [], {number for number, _ in self.inside} | set(self.changeable)
        for name, number in data.inputs:
            if number in outputs:
                continue
            first, size = places[number]
            if not torch.equal(self.arena.bytes[first:first + size], self.before[first:first + size]):
                names.append(name)
        return names or ["memory beside the outputs"]

    def open(self, slots):
        """Shares an arena for `slots` sets of the first set's shape."""
        sizes_in = [s.numel() for s, out in zip(self.first.storages, self.first.is_out) if not out]
        sizes_out = [s.numel() for s, out in zip(self.first.storages, self.first.is_out) if out]
        self.own = len(sizes_out)
        # Returned outputs have areas of the expected outputs' layout.
        sizes_out += [raw_size(t) for t in self.returned(self.first)]
        free = free_memory()
        each = sum(map(aligned, sizes_in)) + sum(map(aligned, sizes_out)) + 1
        # The arena, what it had before a round, and what it had after.
        slots = int(max(1, min(slots, MEMORY_SHARE * free / (3 * each))))
        if 3 * each > free:
            raise Unsuited("its data does not fit into the memory twice")
        self.close()
        self.arena = Arena(sizes_in, sizes_out, slots)
        self.sets, self.told = [None] * slots, [None] * slots
        self.before, self.snapshot = self.arena.bytes.clone(), self.arena.bytes.clone()
        self.least_copy = math.inf
        tell_missing(self.arena.open_in(CANDIDATE, popcorn=self.first.popcorn))

    def close(self):
        if self.arena is not None:
            # Memory must not be freed while another process has it open.
            with contextlib.suppress(Fault):
                CANDIDATE.ask("close")
            self.arena.close()
            self.arena = None

    def returned(self, data):
        """The expected outputs that the kernel returns in place of writing into a parameter."""
        return [like for like, (place, _, _) in zip(data.likes, data.outputs) if place is None]

    def laid(self, slot, data):
        """Where a set lies in a slot, and what the candidate is told about it."""
        places, numbers = [], [0, 0]
        for storage, out in zip(data.storages, data.is_out):
            number = numbers[out]
            numbers[out] += 1
            known = self.arena.places_out if out else self.arena.places_in
            if number >= len(known) or known[number][1] != storage.numel():
                raise Unsuited("its data changes its size from call to call")
            places.append(self.arena.place_out(slot, number) if out else self.arena.place_in(slot, number))
        areas = self.areas(slot, data, places)
        self.sets[slot] = (data, areas, places)
        return {"values": data.text, "places": places, "roles": data.roles, "areas": areas}

    def stage(self, slot, pattern):
        """Writes a set's inputs and poisoned outputs into the judge's copy of the arena."""
        data, areas, places = self.sets[slot]
        for storage, (first, size) in zip(data.storages, places):
            self.before[first:first + size].copy_(storage)
        for (_, is_input, _), area in zip(data.outputs, areas):
            if not is_input:
                poison_span(self.before, area, pattern)
        if self.unread:
            for number, _ in self.inside:
                first, size = places[number]
                self.before[first:first + size].fill_((0xFF, 0x3F)[pattern])

    def areas(self, slot, data, places):
        """Where each output lies, in the order in which the candidate names them."""
        areas, extra = [], self.own
        for (place, _, _), like in zip(data.outputs, data.likes):
            if place is not None:
                areas.append((*places[place[0]], *place[1:]))
            else:
                first, _ = self.arena.place_out(slot, extra)
                extra += 1
                areas.append((first, raw_size(like), *layout_of(like), 0))
        return areas

    def prepare(self, sets, pattern=0):
        """Lays sets into the first slots, in a random order, and tells the candidate where each lies.
        Their contents stay in the judge's copy of the arena until `show`."""
        order = list(range(len(sets)))
        random.SystemRandom().shuffle(order)
        new = {}
        for slot, data in zip(order, sets):
            told = self.laid(slot, data)
            if told != self.told[slot]:
                self.told[slot] = new[slot] = told
        for slot in order:
            self.stage(slot, pattern)
        synchronize()
        if new:
            CANDIDATE.ask("define", slots=new)
        return sorted(order)

    def show(self):
        """Writes the contents into the arena, in one copy. Returns how long it took, in ns."""
        return copy_ns(self.arena.bytes, self.before)

    def kept_spans(self):
        """The parts that a round must not change: all but outputs, and inputs that the kernel returns."""
        free = []
        for _, areas, places in filter(None, self.sets):
            free += [(first, size) for first, size, *_ in areas] + [places[n] for n, _ in self.inside]
            free += [places[n] for n in self.changeable]
        kept, at = [], 0
        for first, size in sorted(free):
            kept.append((at, first))
            at = max(at, first + size)
        return [(start, end) for start, end in [*kept, (at, self.arena.size)] if start < end]

    def is_disturbed(self):
        """Whether something but an output has changed since `show`."""
        parts = (slice(at, min(at + CHUNK, end)) for start, end in self.kept_spans() for at in range(start, end, CHUNK))
        return not all(torch.equal(self.arena.bytes[part], self.before[part]) for part in parts)

    def check(self, order, answers, snapshot):
        """Compares the outputs of a round with what was expected; ends the job if one is wrong."""
        if self.is_disturbed():
            raise Fault("wrong_result", f"a timed call on `{self.case['name']}` changed an input, or memory beside its outputs")
        bad = 0
        for slot, facts in zip(order, answers):
            data, outputs = self.sets[slot][0], self.outputs(slot, facts, snapshot)
            problem = AUTHOR.refusal(data, outputs) if data.checker else ""
            if problem:
                raise Fault("wrong_result", f"a timed call on `{self.case['name']}` gave wrong values: {problem}")
            for (_, _, wanted), got in zip(data.expected, outputs) if not data.checker else []:
                count, _, _ = difference(got, wanted)
                over = count - CASE.get("tolerance", {}).get("mismatch_fraction", 0.0) * wanted.numel()
                bad = bad + over.clamp(min=0)
        self.verified += len(order)
        if float(bad) > 0:
            raise Fault("wrong_result", f"a timed call on `{self.case['name']}` gave wrong values, {int(float(bad))} over {len(order)} calls, where the check before was content")

    def outputs(self, slot, facts, memory):
        """The outputs of a slot in a copy of the arena, in the layout that the candidate states."""
        data, areas, _ = self.sets[slot]
        if not isinstance(facts, list) or len(facts) != len(data.expected):
            raise Fault("wrong_result", f"{len(facts) if isinstance(facts, list) else 0} tensors were returned, expected {len(data.expected)}")
        found = []
        for fact, area, (name, _, _), wanted in zip(facts, areas, data.expected, data.likes):
            dtype, shape, strides, first = stated(fact)
            if shape != tuple(wanted.shape):
                raise Fault("wrong_result", f"`{name}` has the shape {shape}, expected {tuple(wanted.shape)}")
            if dtype != str(wanted.dtype).replace("torch.", "") and not data.popcorn:
                raise Fault("wrong_result", f"`{name}` is {dtype}, expected {wanted.dtype}")
            found.append(self.at(area, dtype, shape, strides, first, memory, wanted))
        return found

    def at(self, area, dtype, shape, strides, first, memory, wanted):
        if first is None or first == area[0] + area[5] * wanted.element_size():
            if dtype != area[2]:
                raise Fault("wrong_result", f"an output is {dtype}, expected {area[2]}")
            return placed(memory, area)
        # A tensor of the data that the kernel was given and returned.
        width = getattr(torch, dtype).itemsize
        last = first + width * (sum((n - 1) * s for n, s in zip(shape, strides)) + 1)
        if min(strides, default=0) < 0 or min(shape, default=1) < 1 or first % width or last > self.arena.size:
            raise Fault("wrong_result", "an output lies outside of the data that was handed over")
        return memory.view(getattr(torch, dtype)).as_strided(shape, strides, first // width)

    def find_outputs(self, facts):
        """Which storages of the data the kernel returned, and whether the reference reads them."""
        data, areas, places = self.sets[0]
        self.inside, own = [], {area[0] for area in areas}
        for fact in facts if isinstance(facts, list) else []:
            _, _, _, first = stated(fact)
            if first is None or first in own:
                continue
            for number, (start, size) in enumerate(places):
                if start <= first < start + size:
                    self.inside.append((number, first - start))
        self.changeable = data.changeable
        if data.popcorn and self.inside:
            self.unread = not AUTHOR.reads(data, [number for number, _ in self.inside])

    def round(self, do, calls, **how):
        """One round on new data, with all outputs checked. Returns its wall time in ns, the answer,
        and whether it was one CUDA graph.

        The wall time is that from the word to begin until the candidate says that it is done, less
        the least turn. Before it lies the copy that publishes the data, after it the copy of the
        outputs. On an idle GPU a copy takes what `least_copy` says; work of the candidate beside it
        would make it longer, and what is longer counts as the candidate's."""
        order = self.prepare([self.fresh() for _ in range(calls)])
        in_graph = do == "graph" and CANDIDATE.ask("graph", order=order, prepare=True).get("graph") is True
        self.measure_copies()
        published = self.show()
        wall = CANDIDATE.turn(do, order=order, prepare=False, **how)
        copied_out = copy_ns(self.snapshot, self.arena.bytes)
        answer = CANDIDATE.hear(ANSWER_SECONDS)
        self.check(order, listed(answer, "outputs", len(order)), self.snapshot)
        excess = max(published - self.least_copy, 0) + max(copied_out - self.least_copy, 0)
        wall += excess - AUTHOR.least_turn - (self.handover_ns(order) if do != "cold" else 0)
        return max(wall, 0.0), answer, in_graph

    def measure_copies(self):
        """The least time of a copy of the arena; the first is not counted."""
        synchronize()
        copy_ns(self.snapshot, self.arena.bytes)
        self.least_copy = min(self.least_copy, *(copy_ns(self.snapshot, self.arena.bytes) for _ in range(3)))

    def handover_ns(self, order):
        """The time of the copies from returned tensors to their areas, for all calls of a round: as one
        CUDA graph, between memory of the judge that is prepared anew before the next round."""
        if DEVICE != "cuda" or self.inside or not self.returned(self.first):
            return 0.0
        areas = [area for slot in order for area, (place, _, _) in zip(self.sets[slot][1], self.first.outputs) if place is None]
        graph, best = torch.cuda.CUDAGraph(), math.inf
        with torch.cuda.graph(graph):
            for area in areas:
                placed(self.before, area).copy_(placed(self.snapshot, area))
        for _ in range(3):
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            graph.replay()
            end.record()
            end.synchronize()
            best = min(best, start.elapsed_time(end) * 1e6)
        return best


def copy_ns(target, source):
    """How long a copy takes, in ns."""
    begin = time.perf_counter_ns()
    target.copy_(source)
    synchronize()
    return time.perf_counter_ns() - begin


def stated(fact):
    """What the candidate says about an output, checked: dtype, shape, strides, first byte."""
    good = isinstance(fact, list) and len(fact) == 4 and isinstance(fact[0], str) and fact[0].isidentifier()
    numbers = lambda values: isinstance(values, list) and len(values) <= 64 and all(type(v) is int and -(1 << 50) < v < 1 << 50 for v in values)
    if not good or not isinstance(getattr(torch, fact[0], None), torch.dtype) or not numbers(fact[1]) or not numbers(fact[2]) \
            or len(fact[1]) != len(fact[2]) or not (fact[3] is None or type(fact[3]) is int and fact[3] >= 0):
        raise Fault("wrong_result", "the kernel's process describes its outputs in a way that makes no sense")
    return fact[0], tuple(fact[1]), tuple(fact[2]), fact[3]


def number_in(answer, name):
    value = answer.get(name)
    if type(value) not in (int, float) or not 0 <= value < 1e15:
        raise Fault("wrong_result", f"the kernel's process gives no `{name}`")
    return float(value)


def positive(claim):
    if type(claim) not in (int, float) or not 0 < claim < 1e15:
        raise Fault("clocks_disagree", "the kernel's process claims a time that is no positive number")
    return float(claim)


def listed(answer, name, count):
    values = answer.get(name)
    if not isinstance(values, list) or len(values) != count:
        raise Fault("wrong_result", f"the kernel's process gives no `{name}` of {count} calls")
    return values


def poison_span(memory, area, pattern):
    """Poisons the bytes of an output's area, as `poison` does a tensor."""
    first, size, dtype = area[:3]
    is_float = getattr(torch, dtype).is_floating_point
    memory[first:first + size].fill_((0xFF, 0x3F)[pattern] if is_float else (0xA5, 0x5A)[pattern])


def raw_size(tensor):
    return max(tensor.numel() * tensor.element_size(), 1)


def free_cached():
    """Gives memory back that torch keeps for itself: other processes need it."""
    gc.collect()
    if DEVICE == "cuda":
        torch.cuda.empty_cache()


def free_memory():
    return torch.cuda.mem_get_info()[0] if DEVICE == "cuda" else 4 << 30


class Process:
    """A process that answers the judge: the candidate's or the author's."""

    def __init__(self, job, name, kind):
        mine, theirs = socket.socketpair()
        self.link, self.name, self.kind = mine, name, kind
        self.process = subprocess.Popen(
            [sys.executable, os.path.abspath(__file__), job, "--control", str(theirs.fileno())],
            pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, start_new_session=True)
        theirs.close()

    def ask(self, do, seconds=ANSWER_SECONDS, file=None, **told):
        self.say(do, file, **told)
        return self.hear(seconds)

    def say(self, do, file=None, **told):
        try:
            send(self.link, pickle.dumps({"do": do, **told}))
            if file is not None:
                socket.send_fds(self.link, [b"f"], [file])
        except OSError as error:
            raise self.ended() from error

    def turn(self, do, **told):
        """The time in ns from the word to begin until the process says that it is done."""
        begin = time.perf_counter_ns()
        self.say(do, **told)
        await_soon(self.link)
        self.hear(ANSWER_SECONDS)
        return time.perf_counter_ns() - begin

    def hear(self, seconds):
        self.link.settimeout(seconds)
        try:
            answer = json.loads(receive(self.link, ANSWER_BYTES))
        except TimeoutError as error:
            raise Fault(self.kind, f"{self.name} did not answer within {seconds} s") from error
        except (Gone, OSError) as error:
            raise self.ended() from error
        except ValueError as error:
            raise Fault(self.kind, f"{self.name} wrote into the judge's channel") from error
        if not isinstance(answer, dict):
            raise Fault(self.kind, f"{self.name} wrote into the judge's channel")
        if isinstance(answer.get("unsuited"), str):
            raise Unsuited(answer["unsuited"][:2000])
        fault = answer.get("fault")
        if isinstance(fault, list) and len(fault) == 2:
            kind = fault[0] if fault[0] in STATUS else "host_entry"
            raise Fault(kind, str(fault[1])[:2000])
        return answer

    def ended(self):
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(5)
        status = self.process.returncode
        if status is None:
            return Fault(self.kind, f"{self.name} closed the judge's channel")
        if status < 0:
            return Fault(self.kind, f"{self.name} was ended by signal {-status}")
        return Fault(self.kind, f"{self.name} ended with status {status} before its work was done")

    def end(self):
        self.link.close()
        with contextlib.suppress(OSError):
            os.killpg(self.process.pid, 9)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(10)


def tell_missing(said):
    """Tells what the host does not hold of the candidate's cage."""
    for what in said.get("missing") or []:
        if what in ("capabilities", "system calls", "the network"):
            JOURNAL.gap(f"the kernel's process is not held back: this host refuses limits of {what}")


class CandidateProcess(Process):
    """The process of the code under test, as the judge sees it."""

    def __init__(self):
        super().__init__("candidate", "the kernel's process", "crash")
        self.takes, self.interpreted = [], False

    def begin(self):
        said = self.ask("load", seconds=LOAD_SECONDS)
        self.interpreted, takes = said.get("triton") is True, said.get("takes")
        tell_missing(said)
        if not isinstance(takes, list) or not all(isinstance(name, str) for name in takes):
            raise Fault("load", "the kernel's process does not say what the kernel takes")
        self.takes = takes


@dataclasses.dataclass(eq=False)
class CallData:
    """The data of one call as the judge sees them (`Data.parcel`): bytes and numbers."""

    number: int
    case: dict
    popcorn: bool
    checker: bool
    text: bytes
    storages: list
    is_out: list
    roles: list
    outputs: list
    expected: list
    likes: list
    inputs: list
    changeable: list
    refused: tuple = ()


class AuthorProcess(Process):
    """The process of the reference, as the judge sees it."""

    def __init__(self):
        super().__init__("author", "the reference's process", "reference")
        self.shares, self.memory, self.made, self.alive = None, None, 0, weakref.WeakValueDictionary()
        self.least_turn = math.inf

    def begin(self):
        self.shares = self.ask("load", seconds=LOAD_SECONDS).get("shares")

    def measure_turns(self):
        """The least time of a turn beside the work of the GPU in it, with copies of the judge around it
        as in a round; of the copy after it, what it takes longer than the one before."""
        if DEVICE != "cuda":
            self.least_turn = 0.0
            return
        size = min(TURN_BYTES, free_memory() // 8)
        source, target = (torch.empty(size, dtype=torch.uint8, device=DEVICE) for _ in range(2))
        for number in range(LEAST_TURNS):
            self.ask("turn", prepare=True)
            least_copy = min(copy_ns(target, source) for _ in range(3))
            took = self.turn("turn", prepare=False)
            took += max(copy_ns(target, source) - least_copy, 0)
            took -= number_in(self.hear(ANSWER_SECONDS), "gpu_ns")
            if number > 0:
                self.least_turn = min(self.least_turn, max(took, 0.0))
        del source, target
        free_cached()

    def start(self, case, takes):
        self.ask("case", case=case["name"], takes=takes, seconds=LOAD_SECONDS)

    def share(self, size):
        """Memory of so many bytes that both see."""
        if self.memory is None or self.memory.size < size:
            if self.memory is not None:
                self.ask("close")
                self.memory.close()
            self.memory = Shared(size)
            self.memory.open_in(self)

    def fetch(self, sizes):
        """The parts that the author made last, as bytes on the device."""
        if not isinstance(sizes, list) or not all(type(size) is int and 0 <= size < 1 << 50 for size in sizes):
            raise Fault("reference", "the reference's process describes its data in a way that makes no sense")
        places, end = laid_out(sizes)
        self.share(end)
        self.ask("put")
        parts = [self.memory.bytes[first:first + size].clone() for first, size in places]
        synchronize()
        return parts

    def weights(self):
        text, = self.fetch(self.ask("weights", seconds=LOAD_SECONDS)["sizes"])
        return bytes_of_tensor(text)

    def make(self, case, seed):
        self.made += 1
        said = self.ask("make", seed=seed, number=self.made, alive=list(self.alive), seconds=LOAD_SECONDS)
        facts, parts = said["facts"], self.fetch(said["sizes"])
        count = len(facts["expected"])
        expected = [(name, g, raw_part.view(getattr(torch, dtype)).reshape(shape))
                    for (name, g, dtype, shape), raw_part in zip(facts["expected"], parts[len(parts) - count:])]
        # What the kernel has to give: the shapes of the right outputs, in the declared types.
        likes = [torch.empty(t.shape, dtype=getattr(torch, dtype), device="meta")
                 for (_, _, t), (_, _, dtype) in zip(expected, facts["outputs"])]
        data = CallData(number=self.made, likes=likes, case=case, popcorn=not case["groups"][0].get("args"),
                        checker=bool(REFERENCE.get("checker")), text=bytes_of_tensor(parts[0]),
                        storages=parts[1:len(parts) - count], expected=expected,
                        **{name: facts[name] for name in ("is_out", "roles", "outputs", "inputs", "changeable")})
        self.alive[self.made] = data
        return data

    def refusal(self, data, outputs):
        """What the task's own function says against outputs; empty if it has none or is content."""
        if not data.popcorn:
            return ""
        places, end = laid_out([raw_size(t) for t in outputs])
        self.share(end)
        for tensor, (first, size) in zip(outputs, places):
            self.memory.bytes[first:first + tensor.numel() * tensor.element_size()].copy_(raw(tensor))
        synchronize()
        described = [(*place, str(t.dtype).replace("torch.", ""), tuple(t.shape), dense_strides(t.shape), 0)
                     for place, t in zip(places, outputs)]
        said = self.ask("refusal", number=data.number, places=described, seconds=LOAD_SECONDS).get("text")
        return said if isinstance(said, str) else "it does not say why"

    def reads(self, data, storages):
        return self.ask("reads", number=data.number, storages=storages, seconds=LOAD_SECONDS).get("reads") is not False

    def needed(self):
        """The bytes that any right kernel moves, none if unknown; false if no data change an output."""
        seeds = [int.from_bytes(os.urandom(4), "little") >> 1 for _ in range(2)]
        said = self.ask("needed", seeds=seeds, seconds=LOAD_SECONDS)
        count = said.get("bytes")
        return said.get("differ") is not False, count if type(count) is int and 0 < count < 1 << 50 else None

    def baselines(self, flushes):
        return listed(self.ask("baselines", flush=flushes, seconds=LOAD_SECONDS), "baselines", len(ENTRY.get("baselines", [])))

    def end(self):
        super().end()
        if self.memory is not None:
            self.memory.close()


def bytes_of_tensor(tensor):
    on_host = tensor.cpu()
    return ctypes.string_at(on_host.data_ptr(), on_host.numel())


def dense_strides(shape):
    return torch.empty(tuple(shape), device="meta").stride()


def end_all(processes):
    """Ends the processes, and everything that they have left behind."""
    for process in processes:
        process.end()
    # Of a chain of processes that each start the next, the living one is always a child of this process.
    until = time.monotonic() + END_SECONDS
    while time.monotonic() < until:
        try:
            with open("/proc/thread-self/children", encoding="ascii") as file:
                left = file.read().split()
        except OSError:
            return
        if not left:
            return
        for pid in left:
            with contextlib.suppress(OSError):
                os.kill(int(pid), 9)
                os.waitpid(int(pid), 0)
    raise Fault("crash", f"processes that the kernel has started did not end within {END_SECONDS} s")


def prctl(option, value):
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def verdict_of(claim, bound, in_graph):
    """The reported time in ns and its trust, from the claimed median and the judge's bound."""
    if claim >= bound - max(BOUND_NS, BOUND_SHARE * bound):
        return claim, "proven"
    if in_graph and bound - claim > max(DISAGREE_NS, DISAGREE_SHARE * bound):
        return None, "clocks disagree"
    return bound, "bounded"
