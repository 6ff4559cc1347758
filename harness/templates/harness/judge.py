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
# What a turn between the processes takes beside the calls; a round has so many calls that its part
# of a call is small beside what a claim may lie below the bound.
TURN_NS, TURN_SHARE = 300_000.0, 0.5
MOST_SLOTS, COLD_SLOTS, BOUND_ROUNDS = 300, 48, 3
# Part of the free memory that the arena and the judge's copies of it may take.
MEMORY_SHARE = 0.4
ANSWER_SECONDS, LOAD_SECONDS = 120, 600
# The most time for the rounds of one case, in seconds, if `max_seconds` does not say less.
JUDGED_SECONDS = 5.0


class Unsuited(Exception):
    """Why the kernel cannot be judged from another process."""


class Packer(pickle.Pickler):
    """Writes values without the contents of their tensors; collects the tensors' storages."""

    def __init__(self):
        self.text, self.storages, self.known = io.BytesIO(), [], {}
        super().__init__(self.text, protocol=4)

    def persistent_id(self, value):
        if not isinstance(value, torch.Tensor) or value.device.type != torch.device(DEVICE).type:
            return None
        if type(value) not in (torch.Tensor, torch.nn.Parameter) or value.layout != torch.strided:
            raise Unsuited(f"its data has a `{type(value).__name__}` that is no plain tensor")
        storage = value.untyped_storage()
        number = self.known.setdefault(storage.data_ptr(), len(self.storages))
        if number == len(self.storages):
            self.storages.append(torch.empty(0, dtype=torch.uint8, device=value.device).set_(storage))
        return number, *layout_of(value), value.storage_offset()


def layout_of(tensor):
    return str(tensor.dtype).replace("torch.", ""), tuple(tensor.shape), tuple(tensor.stride())


def packed(values):
    packer = Packer()
    try:
        packer.dump(values)
    except (pickle.PicklingError, TypeError, AttributeError) as error:
        raise Unsuited(f"its data cannot be handed over: {error}") from error
    return packer.text.getvalue(), packer.storages


def aligned(size):
    """The bytes that a tensor takes in the arena: there is a canary behind each."""
    return (size + ALIGN - 1) // ALIGN * ALIGN + ALIGN


class Data(Kernel):
    """The data and expected outputs of one call; made without the code under test."""

    def __init__(self, case, takes, seed, extras, module):
        self.case, self.takes, self.extras = case, takes, extras
        self.popcorn = not case["groups"][0].get("args")
        self.reference_module = module
        if REFERENCE.get("checker") and not hasattr(module, REFERENCE["function"]):
            raise Unsuited("its task has no reference that shows its outputs")
        self.reference = function_of(module, REFERENCE["function"])
        self.checker = function_of(module, REFERENCE["checker"]) if REFERENCE.get("checker") else None
        self.outs, self.inouts, self.inputs, self.roles = [], [], [], []
        if self.popcorn:
            self.make_tree(seed)
        else:
            self.make_args(seed)

    def make_tree(self, seed):
        """The task's own data. Beside a checker the reference only shows the outputs' shapes."""
        self.values = {**self.extras, "seed": self.extras["seed"] + seed - SEED}
        self.data = self.pristine = self.make(self.values)
        self.handed = {"data": self.data, "values": self.told_of_case()}
        self.twin = copied(self.data)
        self.given_like = self.run_on(self.reference, self.twin, "reference")
        self.expected = self.named(self.given_like, {}, [], {})
        self.outputs = [(name, g, None) for name, g, _ in self.expected]

    def told_of_case(self):
        """What a kernel may take beside `data`: the case's sizes, and never its seed."""
        return {name: value for name, value in self.extras.items() if name != "seed"}

    def changed_by_reference(self):
        """Numbers of the tensors that the reference changes; the kernel may change them too."""
        pairs = enumerate(zip(tensors(self.twin), tensors(self.data)))
        return {i for i, (a, b) in pairs if not same_bytes(a, b)}

    def refused_by_task(self, outputs):
        """What the task's own function says against outputs; empty if it has none or is content."""
        if not self.popcorn:
            return ""
        left = list(outputs)
        given = mapped(self.given_like, lambda _: left.pop(0))
        if self.checker:
            return self.refusal(given)
        check = getattr(self.reference_module, "check_implementation", None)
        if not callable(check):
            return ""
        said = blamed(lambda: check(copied(self.data), given), "check_implementation", "reference")
        return message_of(said, "check_implementation")

    def make_args(self, seed):
        groups, values = self.case["groups"], {}
        for position, arg in enumerate(groups[0]["args"]):
            made = [self.argument(group["args"][position], g, position, seed) for g, group in enumerate(groups)]
            values[arg["name"]] = made if len(groups) > 1 else made[0]
            kind = {"out": self.outs, "inout": self.inouts, "in": self.inputs}.get(arg["role"])
            if kind is not None:
                kind += [(arg["name"], g, value) for g, value in enumerate(made)]
                self.roles.append((arg["name"], arg["role"]))
        self.handed = {**self.extras, **values}
        del self.handed["seed"]
        if "seed" in self.takes:
            self.handed["seed"] = seed
        results = self.results(self.reference, {**self.extras, **copied(values), "seed": seed})
        found = {(name, g): tensor for name, g, tensor in results}
        ordered = ([e for e in self.outs if e[0] in self.takes] + self.inouts
                   + [e for e in self.outs if e[0] not in self.takes])
        self.outputs = ordered
        self.expected = [(name, g, found[name, g]) for name, g, _ in ordered if (name, g) in found]
        if len(self.expected) != len(ordered):
            raise Unsuited("its reference does not give every output")


class Arena:
    """The memory that judge and candidate see: for each slot the storages of the inputs, and in a
    second part those of the outputs, each with a canary behind it."""

    def __init__(self, sizes_in, sizes_out, slots):
        self.places_in, self.slot_in = self.laid_out(sizes_in)
        self.places_out, self.slot_out = self.laid_out(sizes_out)
        self.slots, self.first_out = slots, self.slot_in * slots
        # A whole number of 2 MiB: smaller blocks of an allocation would be seen with it.
        self.size = max(-(-(self.first_out + self.slot_out * slots) // (2 << 20)), 1) * (2 << 20)
        self.handle, self.file, self.address = None, None, None
        self.bytes = self.on_device() if DEVICE == "cuda" else self.in_file()
        # What must not change: everything but the outputs.
        self.kept = torch.full((self.size,), 0xFF, dtype=torch.uint8, device=DEVICE)
        self.bytes.random_(0, 256)

    @staticmethod
    def laid_out(sizes):
        places, first = [], 0
        for size in sizes:
            places.append((first, size))
            first += aligned(size)
        return places, first

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
        self.file = os.memfd_create("rgpu-arena", 0)
        os.ftruncate(self.file, self.size)
        return torch.frombuffer(mmap.mmap(self.file, self.size), dtype=torch.uint8)

    def close(self):
        self.bytes = None
        if self.address is not None:
            with contextlib.suppress(OSError):
                driver_call("cuMemFree_v2", ctypes.c_uint64(self.address))
        if self.file is not None:
            os.close(self.file)
        self.address = self.file = None

    def place_in(self, slot, number):
        first, size = self.places_in[number]
        return self.slot_in * slot + first, size

    def place_out(self, slot, number):
        first, size = self.places_out[number]
        return self.first_out + self.slot_out * slot + first, size


class Judge:
    """Judges one case: holds the candidate's process and the arena."""

    def __init__(self, case, module):
        self.case, self.module, self.arena = case, module, None
        self.extras = {**settings(), "seed": SEED, "device": DEVICE, **sizes(case)}
        if "seed" in case.get("values", {}):
            self.extras["seed"] += SEED - DEFAULT_SEED
        self.inside, self.changeable, self.unread, self.verified, self.distinct = [], [], False, 0, 0
        self.takes = CANDIDATE.takes
        self.first = self.data(SEED)

    def data(self, seed):
        return Data(self.case, self.takes, seed, self.extras, self.module)

    def fresh(self):
        """Data from a seed that nobody knew before."""
        self.distinct += 1
        return self.data(int.from_bytes(os.urandom(4), "little") >> 1)

    def warm_up(self, calls, seconds):
        """Lets the candidate call the kernel on a set that is not used again."""
        self.prepare([self.fresh() if self.first.varies() else self.first])
        self.show()
        return CANDIDATE.ask("warm", slot=0, calls=max(calls, 1), for_seconds=seconds, seconds=LOAD_SECONDS)

    def slots_for(self, whole_ns):
        """How many calls make a round: enough for a turn to be small beside them, and for data of
        twice the L2, but no more than can be made in 0.6 s."""
        begin = time.perf_counter()
        made = self.fresh()
        if made.checker:
            made.refused_by_task([t for _, _, t in made.expected])
        synchronize()
        seconds = time.perf_counter() - begin
        _, storages, _ = self.parts(self.first)
        l2 = JOURNAL.report.get("device", {}).get("l2_bytes", 0)
        allowed = max(BOUND_NS, BOUND_SHARE * whole_ns)
        wanted = max(TURN_NS / (TURN_SHARE * allowed), 2 * l2 / max(sum(s.numel() for s in storages), 1))
        affordable = max(2.0, 0.6 / max(seconds, 1e-6))
        return int(max(2, min(wanted, affordable, MOST_SLOTS)))

    def changed_inputs(self):
        """Names of the inputs that differ from what was handed over; `memory` if it is none of them."""
        if not self.is_disturbed():
            return []
        data, _, places, storages = self.sets[0]
        inputs = data.inputs if not data.popcorn else [(f"data[{i}]", 0, t) for i, t in enumerate(tensors(data.data))]
        numbers = {s.untyped_storage().data_ptr(): i for i, s in enumerate(storages)}
        names, outputs = [], {number for number, _ in self.inside} | set(self.changeable)
        for name, _, tensor in inputs:
            number = numbers.get(tensor.untyped_storage().data_ptr())
            if number is None or number in outputs:
                continue
            first, size = places[number]
            if not torch.equal(self.arena.bytes[first:first + size], self.before[first:first + size]):
                names.append(name)
        return names or ["memory beside the outputs"]

    # Each set is packed into storages; an output of the arguments has a storage of its own.
    def parts(self, data):
        text, storages = packed(data.handed)
        outs = {t.untyped_storage().data_ptr() for _, _, t in data.outputs if t is not None}
        is_out = [s.untyped_storage().data_ptr() in outs for s in storages]
        return text, storages, is_out

    def open(self, slots):
        """Shares an arena for `slots` sets of the first set's shape."""
        text, storages, is_out = self.parts(self.first)
        sizes_in = [s.numel() for s, out in zip(storages, is_out) if not out]
        sizes_out = [s.numel() for s, out in zip(storages, is_out) if out]
        self.own = len(sizes_out)
        # Returned outputs have areas of the expected outputs' layout.
        sizes_out += [raw_size(t) for _, _, t in self.returned(self.first)]
        free = free_memory()
        each = sum(map(aligned, sizes_in)) + sum(map(aligned, sizes_out)) + 1
        slots = int(max(1, min(slots, MEMORY_SHARE * free / (4 * each))))
        if 4 * each > free:
            raise Unsuited("its data does not fit into the memory twice")
        self.close()
        self.arena = Arena(sizes_in, sizes_out, slots)
        self.sets, self.told = [None] * slots, [None] * slots
        self.before, self.snapshot = self.arena.bytes.clone(), self.arena.bytes.clone()
        self.least_copy = math.inf
        CANDIDATE.ask("open", file=self.arena.file, handle=self.arena.handle, size=self.arena.size,
                      popcorn=self.first.popcorn, has_values=bool(self.case.get("values")), problem_sizes=self.extras["problem_sizes"], seconds=LOAD_SECONDS)

    def close(self):
        if self.arena is not None:
            # Memory must not be freed while another process has it open.
            with contextlib.suppress(Fault):
                CANDIDATE.ask("close")
            self.arena.close()
            self.arena = None

    def returned(self, data):
        """The expected outputs that the kernel returns in place of writing into a parameter."""
        return [(i, key, t) for i, (key, _, t) in enumerate(data.expected)
                if data.popcorn or key not in self.takes]

    def laid(self, slot, data):
        """Where a set lies in a slot, and what the candidate is told about it."""
        text, storages, is_out = self.parts(data)
        places, numbers = [], [0, 0]
        for storage, out in zip(storages, is_out):
            number = numbers[out]
            numbers[out] += 1
            known = self.arena.places_out if out else self.arena.places_in
            if number >= len(known) or known[number][1] != storage.numel():
                raise Unsuited("its data changes its size from call to call")
            places.append(self.arena.place_out(slot, number) if out else self.arena.place_in(slot, number))
        areas = self.areas(slot, data, storages, places)
        self.sets[slot] = (data, areas, places, storages)
        return {"values": text, "places": places, "roles": data.roles, "areas": areas}

    def stage(self, slot, pattern):
        """Writes a set's inputs and poisoned outputs into the judge's copy of the arena."""
        data, areas, places, storages = self.sets[slot]
        for storage, (first, size) in zip(storages, places):
            self.before[first:first + size].copy_(storage)
        kept = {id(tensor) for _, _, tensor in data.inouts}
        for (_, _, tensor), area in zip(data.outputs, areas):
            if id(tensor) not in kept:
                poison_span(self.before, area, pattern)
        if self.unread:
            for number, _ in self.inside:
                first, size = places[number]
                self.before[first:first + size].fill_((0xFF, 0x3F)[pattern])

    def areas(self, slot, data, storages, places):
        """Where each output lies, in the order in which the candidate names them."""
        numbers = {s.untyped_storage().data_ptr(): i for i, s in enumerate(storages)}
        areas, extra = [], self.own
        for (_, _, tensor), (key, _, wanted) in zip(data.outputs, data.expected):
            if tensor is not None and key in self.takes or any(tensor is t for _, _, t in data.inouts):
                first, size = places[numbers[tensor.untyped_storage().data_ptr()]]
                areas.append((first, size, *layout_of(tensor), tensor.storage_offset()))
            else:
                first, size = self.arena.place_out(slot, extra)
                extra += 1
                dense = torch.empty(0, dtype=wanted.dtype).new_empty(wanted.shape, device="meta")
                areas.append((first, raw_size(wanted), *layout_of(dense), 0))
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
        self.kept_bytes()
        synchronize()
        if new:
            CANDIDATE.ask("define", slots=new)
        return sorted(order)

    def show(self):
        """Writes the contents into the arena, in one copy. Returns how long it took, in ns."""
        begin = time.perf_counter_ns()
        self.arena.bytes.copy_(self.before)
        synchronize()
        return time.perf_counter_ns() - begin

    def kept_bytes(self):
        """Marks the bytes that a round may change: outputs, and inputs that the kernel returns."""
        self.arena.kept.fill_(0xFF)
        for _, areas, places, _ in filter(None, self.sets):
            spans = [(first, size) for first, size, *_ in areas] + [places[n] for n, _ in self.inside]
            spans += [places[n] for n in self.changeable]
            for first, size in spans:
                self.arena.kept[first:first + size] = 0

    def is_disturbed(self):
        """Whether something but an output has changed since `show`."""
        for start in range(0, self.arena.size, CHUNK):
            part = slice(start, start + CHUNK)
            changed = (self.arena.bytes[part] ^ self.before[part]) & self.arena.kept[part]
            if bool((changed != 0).any()):
                return True
        return False

    def check(self, order, answers, snapshot):
        """Compares the outputs of a round with what was expected; ends the job if one is wrong."""
        if self.is_disturbed():
            raise Fault("wrong_result", f"a timed call on `{self.case['name']}` changed an input, or memory beside its outputs")
        bad = 0
        for slot, facts in zip(order, answers):
            data, outputs = self.sets[slot][0], self.outputs(slot, facts, snapshot)
            problem = data.refused_by_task(outputs) if data.checker else ""
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
        data, areas, _, _ = self.sets[slot]
        if not isinstance(facts, list) or len(facts) != len(data.expected):
            raise Fault("wrong_result", f"{len(facts) if isinstance(facts, list) else 0} tensors were returned, expected {len(data.expected)}")
        found = []
        for fact, area, (name, _, wanted) in zip(facts, areas, data.expected):
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
        data, areas, places, _ = self.sets[0]
        self.inside, own = [], {area[0] for area in areas}
        for fact in facts if isinstance(facts, list) else []:
            _, _, _, first = stated(fact)
            if first is None or first in own:
                continue
            for number, (start, size) in enumerate(places):
                if start <= first < start + size:
                    self.inside.append((number, first - start))
        if not data.popcorn:
            return
        numbers = {t.untyped_storage().data_ptr(): i for i, t in enumerate(self.sets[0][3])}
        mine = tensors(data.data)
        self.changeable = [numbers[mine[i].untyped_storage().data_ptr()] for i in data.changed_by_reference()]
        if not self.inside:
            return
        twin = copied(data.data)
        _, storages = packed({"data": twin})
        for number, _ in self.inside:
            storages[number].fill_(0xFF)
        again = data.run_on(data.reference, twin, "reference")
        found = data.named(again, {}, [], {})
        self.unread = all(same_bytes(a, b) for (_, _, a), (_, _, b) in zip(found, data.expected))

    def round(self, do, calls, **how):
        """One round on new data, with all outputs checked. Returns its wall time in ns, the answer,
        and whether it was one CUDA graph.

        The wall time is that from the word to begin until the candidate says that it is done. Before
        it lies the copy that publishes the data, after it the copy of the outputs. On an idle GPU a
        copy takes what `least_copy` says; work of the candidate beside it would make it longer, and
        what is longer counts as the candidate's."""
        order = self.prepare([self.fresh() for _ in range(calls)])
        in_graph = do == "graph" and CANDIDATE.ask("graph", order=order, prepare=True).get("graph") is True
        self.measure_copies()
        published = self.show()
        begin = time.perf_counter_ns()
        CANDIDATE.ask(do, order=order, prepare=False, **how)
        end = time.perf_counter_ns()
        self.snapshot.copy_(self.arena.bytes)
        synchronize()
        copied_out = time.perf_counter_ns() - end
        answer = CANDIDATE.hear(ANSWER_SECONDS)
        self.check(order, listed(answer, "outputs", len(order)), self.snapshot)
        excess = max(published - self.least_copy, 0) + max(copied_out - self.least_copy, 0)
        wall = end - begin + excess - len(order) * self.handover_ns()
        return max(wall, 0.0), answer, in_graph

    def measure_copies(self):
        """The least time of a copy of the arena; the first is not counted."""
        for number in range(4):
            synchronize()
            begin = time.perf_counter_ns()
            self.snapshot.copy_(self.arena.bytes)
            synchronize()
            if number > 0:
                self.least_copy = min(self.least_copy, time.perf_counter_ns() - begin)

    def handover_ns(self):
        """The time of one call's copies from returned tensors to their areas."""
        moved = [t for _, _, t in self.returned(self.sets[0][0])] if not self.inside else []
        if not moved or DEVICE != "cuda":
            return 0.0
        best = math.inf
        twins = [torch.empty(t.shape, dtype=t.dtype, device=t.device) for t in moved]
        for _ in range(5):
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            for _ in range(8):
                for tensor, twin in zip(moved, twins):
                    twin.copy_(tensor)
            end.record()
            end.synchronize()
            best = min(best, start.elapsed_time(end) * 1e6 / 8)
        return best


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


def free_memory():
    return torch.cuda.mem_get_info()[0] if DEVICE == "cuda" else 4 << 30


class Process:
    """The candidate's process, as the judge sees it."""

    def __init__(self):
        mine, theirs = socket.socketpair()
        prctl(4, 0)  # PR_SET_DUMPABLE: a process of the same user can neither trace nor read this one
        prctl(36, 1)  # PR_SET_CHILD_SUBREAPER: what the candidate leaves behind becomes our child
        self.link = mine
        self.process = subprocess.Popen(
            [sys.executable, os.path.abspath(__file__), "candidate", "--control", str(theirs.fileno())],
            pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, start_new_session=True)
        theirs.close()
        takes = self.hear(LOAD_SECONDS).get("takes")
        if not isinstance(takes, list) or not all(isinstance(name, str) for name in takes):
            raise Fault("load", "the kernel's process does not say what the kernel takes")
        self.takes = takes

    def ask(self, do, seconds=ANSWER_SECONDS, file=None, **told):
        try:
            send(self.link, pickle.dumps({"do": do, **told}))
            if file is not None:
                socket.send_fds(self.link, [b"f"], [file])
        except OSError as error:
            raise self.ended() from error
        return self.hear(seconds)

    def hear(self, seconds):
        self.link.settimeout(seconds)
        try:
            answer = json.loads(receive(self.link, ANSWER_BYTES))
        except TimeoutError as error:
            raise Fault("crash", f"the kernel's process did not answer within {seconds} s") from error
        except (Gone, OSError) as error:
            raise self.ended() from error
        except ValueError as error:
            raise Fault("crash", "the kernel's process wrote into the judge's channel") from error
        if not isinstance(answer, dict):
            raise Fault("crash", "the kernel's process wrote into the judge's channel")
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
            return Fault("crash", "the kernel's process closed the judge's channel")
        if status < 0:
            return Fault("crash", f"the kernel's process was ended by signal {-status}")
        return Fault("crash", f"the kernel's process ended with status {status} before its work was done")

    def close(self):
        """Ends the candidate and everything that it has left behind."""
        self.link.close()
        with contextlib.suppress(OSError):
            os.killpg(self.process.pid, 9)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(10)
        with contextlib.suppress(OSError):
            for _ in range(100):
                with open("/proc/thread-self/children", encoding="ascii") as file:
                    left = file.read().split()
                if not left:
                    return
                for pid in left:
                    os.kill(int(pid), 9)
                    os.waitpid(int(pid), 0)


def prctl(option, value):
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def why_unprotected():
    """Why the kernel shares the judge's process; none if it has its own."""
    if not REFERENCE:
        return "nothing checks its results"
    if ENTRY.get("baselines") or ENTRY.get("inputs", {}).get("constructor"):
        return "kernel and reference share weights"
    if ENTRY.get("prepare"):
        return "kernel and reference share what `prepare` builds"
    if REFERENCE["file"] == ENTRY["file"] or (ENTRY.get("inputs") or {}).get("file") == ENTRY["file"]:
        return "kernel and reference are in one file"
    return None


def verdict_of(claim, bound, in_graph):
    """The reported time in ns and its trust, from the claimed median and the judge's bound."""
    if claim >= bound - max(BOUND_NS, BOUND_SHARE * bound):
        return claim, "proven"
    if in_graph and bound - claim > max(DISAGREE_NS, DISAGREE_SHARE * bound):
        return None, "clocks disagree"
    return bound, "bounded"
