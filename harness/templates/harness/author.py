# --- what is right ----------------------------------------------------------------------------
#
# The author's process (`harness.py author`) makes the data of calls and their expected outputs, and
# compares where the task has a function for that. It does not call the kernel, and has no memory in
# common with the candidate. The judge takes bytes and numbers from it, no objects.


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


class Data(Kernel):
    """The data and expected outputs of one call; made without the code under test."""

    def __init__(self, author, seed):
        self.case, self.takes, self.extras = author.case_of, author.takes, author.extras
        self.popcorn = not self.case["groups"][0].get("args")
        self.reference_module, self.reference, self.checker = author.module, author.reference, author.checker
        self.outs, self.inouts, self.inputs, self.roles, self.data = [], [], [], [], None
        if self.popcorn:
            self.make_tree(seed)
        else:
            self.make_args(seed)

    def make_tree(self, seed):
        """The task's own data. Beside a checker the reference only shows the outputs' shapes."""
        self.values = {**self.extras, "seed": self.extras["seed"] + seed - SEED}
        self.data = self.make(self.values)
        self.handed = {"data": self.data, "values": self.told_of_case()}
        self.twin = copied(self.data)
        self.given_like = self.run_on(self.reference, self.twin, "reference")
        self.expected = self.named(self.given_like, {}, [], {})
        self.outputs = [(name, g, None) for name, g, _ in self.expected]

    def told_of_case(self):
        """What a kernel may take beside `data`: the case's sizes, and never its seed."""
        return {name: value for name, value in self.extras.items() if name not in ("seed", "model")}

    def make_args(self, seed):
        groups, values = self.case["groups"], {}
        for position, arg in enumerate(groups[0]["args"]):
            made = [self.argument(group["args"][position], g, position, seed) for g, group in enumerate(groups)]
            values[arg["name"]] = made if len(groups) > 1 else made[0]
            kind = {"out": self.outs, "inout": self.inouts, "in": self.inputs}.get(arg["role"])
            if kind is not None:
                kind += [(arg["name"], g, value) for g, value in enumerate(made)]
                self.roles.append((arg["name"], arg["role"]))
        # An output that the kernel returns has a name and no memory.
        not_taken = {arg["name"] for arg in groups[0]["args"] if arg["role"] == "out" and arg["name"] not in self.takes}
        nothing = lambda value: [None] * len(value) if isinstance(value, list) else None
        self.handed = {**self.told_of_case(), **{n: nothing(v) if n in not_taken else v for n, v in values.items()}}
        if "seed" in self.takes:
            self.handed["seed"] = seed
        self.made, self.seed = values, seed
        found = {(name, g): tensor for name, g, tensor in self.right_for(values)}
        ordered = ([e for e in self.outs if e[0] in self.takes] + self.inouts
                   + [e for e in self.outs if e[0] not in self.takes])
        self.outputs = ordered
        self.expected = [(name, g, found[name, g]) for name, g, _ in ordered if (name, g) in found]
        if len(self.expected) != len(ordered):
            raise Unsuited("its reference does not give every output")

    def right_for(self, values):
        """What the reference gives for values of the arguments."""
        return self.results(self.reference, {**self.extras, **copied(values), "seed": self.seed})

    def parcel(self):
        """The data as numbers and texts, and the tensors whose bytes go with them: the values for the
        kernel as one text, the storages of their tensors, and the expected outputs.

        An output is the place of a tensor that is handed over (storage, dtype, shape, strides, offset),
        or none if the kernel returns it; whether it is also an input; and its dtype."""
        text, storages = packed(self.handed)
        numbers = {storage.untyped_storage().data_ptr(): i for i, storage in enumerate(storages)}
        storage_of = lambda tensor: numbers.get(tensor.untyped_storage().data_ptr())
        both = {id(tensor) for _, _, tensor in self.inouts}
        outputs = []
        for (_, _, tensor), (key, _, right) in zip(self.outputs, self.expected):
            is_handed = tensor is not None and (key in self.takes or id(tensor) in both)
            place = (storage_of(tensor), *layout_of(tensor), tensor.storage_offset()) if is_handed else None
            # The reference may compute in a wider type than kernel.toml declares.
            declared = right if tensor is None else tensor
            outputs.append((place, id(tensor) in both, *layout_of(declared)[:1]))
        written = {storage_of(tensor) for _, _, tensor in self.outputs if tensor is not None}
        named = enumerate(tensors(self.data)) if self.popcorn else []
        inputs = [(f"data[{i}]", storage_of(t)) for i, t in named] + [(name, storage_of(t)) for name, _, t in self.inputs]
        facts = {
            "is_out": [i in written for i in range(len(storages))], "roles": self.roles, "outputs": outputs,
            "expected": [(name, g, *layout_of(t)[:2]) for name, g, t in self.expected],
            "inputs": [(name, i) for name, i in inputs if i is not None],
            "changeable": [storage_of(t) for t in self.changed_by_reference()]}
        return facts, [bytes_tensor(text), *storages, *(raw(t.to(DEVICE)) for _, _, t in self.expected)]

    def changed_by_reference(self):
        """The tensors of the task's data that the reference changes; the kernel may change them too."""
        if not self.popcorn:
            return []
        return [now for was, now in zip(tensors(self.twin), tensors(self.data)) if not same_bytes(was, now)]

    def reads(self, numbers):
        """Whether the reference reads these storages of the task's data, which the kernel returns."""
        twin = copied(self.data)
        _, storages = packed({"data": twin, "values": self.told_of_case()})
        for number in numbers:
            storages[number].fill_(0xFF)
        again = self.run_on(self.reference, twin, "reference")
        found = self.named(again, {}, [], {})
        return not all(same_bytes(a, b) for (_, _, a), (_, _, b) in zip(found, self.expected))

    def refused_by_task(self, outputs):
        """What the task's own function says against outputs; empty if it has none or is content."""
        if not self.popcorn:
            return ""
        left = list(outputs)
        given = mapped(self.given_like, lambda _: left.pop(0))
        self.pristine = self.data
        if self.checker:
            return self.refusal(given)
        check = getattr(self.reference_module, "check_implementation", None)
        if not callable(check):
            return ""
        said = blamed(lambda: check(copied(self.data), given), "check_implementation", "reference")
        return message_of(said, "check_implementation")


def bytes_tensor(data):
    return torch.frombuffer(bytearray(data or b"\0"), dtype=torch.uint8).to(DEVICE)


# Bytes that a GPU reads at once, the most of them that are tried in a tensor, and the time for it.
SECTOR, MOST_TRIED, TRIED_SECONDS = 32, 32, 0.5


def least_share(hits, tried):
    """The share of all sectors that matter, of which `hits` of `tried` do, at 99 % confidence."""
    low, high = 0.0, 1.0
    if hits == 0:
        return low
    for _ in range(40):
        middle = (low + high) / 2
        as_many = sum(math.comb(tried, n) * middle**n * (1 - middle)**(tried - n) for n in range(hits, tried + 1))
        low, high = (middle, high) if as_many < 0.01 else (low, middle)
    return low


class Needed:
    """The bytes that any right kernel moves for some data: those of the outputs, and of the inputs as
    far as they influence them.

    Random sectors of a tensor get the values of other data, one at a time. Those whose change changes
    the outputs, or is refused by the task's own function, have to be read, or written; how many there
    are follows from the sample. Only numbers with a point are tried: others can be places."""

    def __init__(self, data, other):
        self.data, self.other, self.draw = data, other, random.Random(7)
        outside = {id(t) for t in data.changed_by_reference()}
        if data.popcorn:
            pairs = zip(tensors(data.data), tensors(other.data))
        else:
            mine, theirs = ([t for _, _, t in d.inputs + d.inouts] for d in (data, other))
            pairs = zip(mine, theirs)
        self.inputs = [(a, b) for a, b in pairs if self.fits(a, b) and id(a) not in outside]

    @staticmethod
    def fits(mine, theirs):
        return (mine.dtype.is_floating_point and mine.is_contiguous() and theirs.is_contiguous() and mine.shape == theirs.shape
                and mine.dtype == theirs.dtype and mine.device.type == torch.device(DEVICE).type and mine.numel() > 0)

    def bytes(self):
        begin = time.perf_counter()
        if not self.same_outputs():
            return None
        each = max(time.perf_counter() - begin, 1e-6)
        outputs = self.outputs()
        tried = int(min(MOST_TRIED, TRIED_SECONDS / each / max(len(self.inputs) + len(outputs), 1)))
        found = sum(self.share(mine, theirs, tried, lambda: not self.same_outputs()) for mine, theirs in self.inputs)
        for mine, theirs, declared in outputs:
            # Each value of an output is compared, unless the task's own function decides.
            found += self.share(mine, theirs, tried, self.is_refused) if self.data.checker else raw_bytes(declared)
        return int(found)

    def outputs(self):
        """Outputs that are no inputs, with other values of them."""
        both = {id(t) for _, _, t in self.data.inouts}
        pairs = zip(self.data.expected, self.other.expected, self.data.outputs)
        return [(mine, theirs, mine if given is None else given) for (_, _, mine), (_, _, theirs), (_, _, given) in pairs
                if id(given) not in both and mine.shape == theirs.shape and (not self.data.checker or self.fits(mine, theirs))]

    def share(self, mine, theirs, tried, matters):
        """The bytes of a tensor that matter, from a sample of its sectors."""
        if tried < 1:
            return 0.0
        own, new, hits = raw(mine), raw(theirs), 0
        for _ in range(tried):
            first = self.draw.randrange(-(-own.numel() // SECTOR)) * SECTOR
            before = own[first:first + SECTOR].clone()
            own[first:first + SECTOR] = new[first:first + SECTOR]
            hits += bool(matters())
            own[first:first + SECTOR] = before
        return least_share(hits, tried) * raw_bytes(mine)

    def same_outputs(self):
        data = self.data
        if data.popcorn:
            found = data.named(data.run_on(data.reference, copied(data.data), "reference"), {}, [], {})
        else:
            by_name = {(name, g): tensor for name, g, tensor in data.right_for(data.made)}
            found = [(name, g, by_name[name, g]) for name, g, _ in data.expected]
        return all(same_bytes(a, b) for (_, _, a), (_, _, b) in zip(found, data.expected))

    def is_refused(self):
        return bool(self.data.refused_by_task([t for _, _, t in self.data.expected]))


def raw_bytes(tensor):
    return tensor.numel() * tensor.element_size()


class Author:
    """Answers the judge: makes the data of one case after another, and says what is right."""

    def __init__(self, link):
        self.link, self.arena, self.facts, self.parts, self.known, self.graph = link, None, None, [], {}, None

    def load(self, _):
        leave_own_folder()
        self.module = load(REFERENCE["file"])
        if (ENTRY.get("inputs") or {}).get("file", ENTRY["file"]) != ENTRY["file"]:
            load(ENTRY["inputs"]["file"])
        freeze_imports()
        return {"shares": why_shared()}

    def turn(self, told):
        """A turn with a CUDA graph as rounds have, and the time of the GPU in it."""
        self.graph = self.graph or graph_of_fills()
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        self.graph.replay()
        end.record()
        synchronize()
        if not told["prepare"]:
            tell(self.link, done=True)
        return {"gpu_ns": start.elapsed_time(end) * 1e6}

    def case(self, told):
        self.known, self.parts = {}, []
        free_cached()
        self.case_of, self.takes = case_named(told["case"]), told["takes"]
        if REFERENCE.get("checker") and not hasattr(self.module, REFERENCE["function"]):
            raise Unsuited("its task has no reference that shows its outputs")
        self.extras = extras_of(self.case_of)
        if ENTRY.get("prepare"):
            self.extras["model"] = built(load(ENTRY["file"]), self.extras)
        self.arguments = constructor_arguments()
        self.reference = instance(function_of(self.module, REFERENCE["function"]), self.arguments)
        self.checker = function_of(self.module, REFERENCE["checker"]) if REFERENCE.get("checker") else None
        return {}

    def weights(self, _):
        """What the kernel's class is made with, and the weights of the reference's, as a pickle."""
        is_model = isinstance(self.reference, torch.nn.Module)
        state = {name: tensor.cpu() for name, tensor in self.reference.state_dict().items()} if is_model else None
        try:
            self.parts = [bytes_tensor(pickle.dumps({"arguments": self.arguments, "state": state}))]
        except (pickle.PicklingError, TypeError, AttributeError) as error:
            raise Unsuited(f"the arguments of its class cannot be handed over: {error}") from error
        return {"sizes": [part.numel() for part in self.parts]}

    def make(self, told):
        """New data. Those of the numbers in `alive` are kept, for `refusal` and `reads`."""
        self.known = {number: data for number, data in self.known.items() if number in told["alive"]}
        data = Data(self, told["seed"])
        if data.popcorn:
            self.known[told["number"]] = data
        facts, self.parts = data.parcel()
        return {"facts": facts, "sizes": [part.numel() for part in self.parts]}

    def open(self, told):
        """Takes the memory that judge and author both see."""
        self.close({})
        self.arena, self.facts = opened_arena(told, self.link), told
        return {}

    def close(self, _):
        if self.arena is not None:
            close_arena(self.arena, self.facts)
            self.arena = None
        return {}

    def put(self, _):
        """Copies the bytes of what was made last, where the judge sees them."""
        for part, (first, size) in zip(self.parts, laid_out([part.numel() for part in self.parts])[0]):
            self.arena[first:first + size].copy_(part)
        synchronize()
        self.parts = []
        return {}

    def refusal(self, told):
        outputs = [placed(self.arena, place).clone() for place in told["places"]]
        return {"text": self.known[told["number"]].refused_by_task(outputs)}

    def reads(self, told):
        return {"reads": self.known[told["number"]].reads(told["storages"])}

    def needed(self, told):
        """The bytes that any right kernel moves, and whether other data have other outputs."""
        try:
            differ, count = self.needed_for(*told["seeds"])
        except (Fault, torch.OutOfMemoryError) as error:
            # Both data may not fit, and a reference may refuse parts of other data.
            print(f"the bytes that it has to move are not known: {error}", flush=True)
            differ, count = True, None
        free_cached()
        return {"bytes": count, "differ": differ}

    def needed_for(self, *seeds):
        data, other = (Data(self, seed) for seed in seeds)
        pairs = list(zip(data.expected, other.expected))
        differ = not pairs or any(not same_bytes(a, b) for (_, _, a), (_, _, b) in pairs)
        return differ, Needed(data, other).bytes() if differ else None

    def baselines(self, told):
        """Times of the forms of the reference, on the data of the given seed."""
        data, flush = Data(self, SEED), flush_buffer() if told["flush"] else None
        return {"baselines": [baseline(form, lambda thing: data.call_on(thing, data.data), self.reference, lambda: None, flush)
                              for form in ENTRY.get("baselines", [])]}

    def jobs(self):
        return {"load": self.load, "turn": self.turn, "case": self.case, "weights": self.weights, "make": self.make, "open": self.open, "close": self.close,
                "put": self.put, "refusal": self.refusal, "reads": self.reads, "needed": self.needed, "baselines": self.baselines}


# Nodes of the graph in the turns that measure the least one, and the bytes that each fills.
TURN_NODES, FILLED_BYTES = 64, 32 << 20


def graph_of_fills():
    graph, block = torch.cuda.CUDAGraph(), torch.zeros(FILLED_BYTES, dtype=torch.uint8, device=DEVICE)
    # A kernel must have been loaded before it is captured.
    block.add_(1)
    with torch.cuda.graph(graph):
        for _ in range(TURN_NODES):
            block.add_(1)
    return graph


def why_shared():
    """Why the kernel's author has a say in what is right; none if its file is not needed for that."""
    inputs = ENTRY.get("inputs") or {}
    if ENTRY.get("prepare"):
        return "the kernel's file builds the model of the reference, too"
    if REFERENCE["file"] == ENTRY["file"] or inputs.get("file") == ENTRY["file"]:
        return "the reference is in the kernel's file"
    return "the reference imports the kernel" if is_loaded(ENTRY["file"]) else None


def is_loaded(file):
    path = os.path.join(HERE, file)
    return any(getattr(module, "__file__", None) == path for module in list(sys.modules.values()))


def case_named(name):
    return next(case for case in CASE["cases"] if case["name"] == name)


def job_author(asked):
    prctl(4, 0)  # PR_SET_DUMPABLE: the candidate can neither trace nor read this process
    serve(asked, Author)
