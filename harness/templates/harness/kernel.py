# --- the kernel -------------------------------------------------------------------------------


def load(path):
    """Imports a user's module with its folder first on sys.path."""
    path = os.path.join(HERE, path)
    name = os.path.splitext(os.path.basename(path))[0]
    known = sys.modules.get(name)
    if known is not None and getattr(known, "__file__", None) == path:
        return known
    folder = os.path.dirname(path)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    add_stand_ins(path)
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        try:
            spec.loader.exec_module(module)
        except ModuleNotFoundError as error:
            if not build_extension(error.name):
                raise
            spec.loader.exec_module(module)
    except ModuleNotFoundError as error:
        raise Fault("load", f"`{os.path.basename(path)}` imports `{error.name}`, which this Python has not ({sys.executable})") from error
    except Exception as error:
        raise fault_of(error, os.path.basename(path)) from error
    return module


def build_extension(name):
    """Builds the torch extension that a missing module is, if its sources were sent. Whether there are any."""
    sources, folders = [], set()
    for ending in ("cu", "cpp", "cc"):
        sources += glob.glob(os.path.join(HERE, "src", "**", "*." + ending), recursive=True)
    is_defined = False
    for source in sources:
        folders.add(os.path.dirname(source))
        with open(source, encoding="utf-8", errors="replace") as file:
            is_defined = is_defined or f"PYBIND11_MODULE({name}," in file.read()
    if not name or not is_defined:
        return False
    from torch.utils import cpp_extension
    place = os.path.join(HERE, "extension")
    os.makedirs(place, exist_ok=True)
    print(f"building the extension `{name}` of {len(sources)} sources", flush=True)
    try:
        sys.modules[name] = cpp_extension.load(
            name=name, sources=sorted(sources), build_directory=place, extra_include_paths=sorted(folders),
            extra_cflags=["-O3", "-std=c++17"], extra_cuda_cflags=["-O3", "-lineinfo"])
    except Exception as error:
        lines = [line for line in str(error).splitlines() if "error" in line] or str(error).splitlines() or [""]
        raise Fault("compile", f"the extension `{name}` cannot be built: {lines[0].strip()[:500]}") from error
    return True


def function_of(module, name):
    function = getattr(module, name, None)
    if not callable(function):
        raise Fault("load", f"`{os.path.basename(module.__file__)}` has no function `{name}`")
    return function


def parameters(function):
    try:
        return inspect.signature(function).parameters
    except (TypeError, ValueError) as error:
        raise Fault("bad_case", f"the parameters of `{function}` cannot be seen: {error}") from error


def bind(function, values):
    """The values for a function's parameters, by their names."""
    chosen = {}
    for name, parameter in parameters(function).items():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        if name in values:
            chosen[name] = values[name]
        elif parameter.default is parameter.empty:
            known = "`, `".join(sorted(values))
            raise Fault("bad_case", f"`{function.__name__}` takes `{name}`, and nothing has that name; there are `{known}`")
    return chosen


def sizes(case):
    """The size variables: numbers, or tuples over the groups if there are several."""
    rows = [group.get("sizes", []) for group in case["groups"]]
    grouped = ENTRY.get("grouped", False)
    names = case.get("vars", [])
    values = {n: tuple(row[i] for row in rows) if grouped else rows[0][i] for i, n in enumerate(names)}
    values["problem_sizes"] = [tuple(row) for row in rows]
    values["g"] = values["groups"] = len(rows)
    # A list of a case is a tuple, as on the board.
    return {**values, **{n: tuple(v) if isinstance(v, list) else v for n, v in case.get("values", {}).items()}}


class Kernel(MadeData):
    """The entry and its reference, bound to one case."""

    checker, refused, ready = None, (), None

    def __init__(self, case):
        self.case = case
        module = load(ENTRY["file"])
        self.function = function_of(module, ENTRY["function"])
        self.reference_module = load(REFERENCE["file"]) if REFERENCE else module
        self.checker = function_of(self.reference_module, REFERENCE["checker"]) if REFERENCE and REFERENCE.get("checker") else None
        # Beside a checker, the reference only shows which data are outputs.
        is_there = REFERENCE and (not self.checker or hasattr(self.reference_module, REFERENCE["function"]))
        self.reference = function_of(self.reference_module, REFERENCE["function"]) if is_there else None
        self.popcorn = not case["groups"][0].get("args")
        self.inside, self.given, self.fill_s = None, None, 0.0
        self.extras = extras_of(case)
        self.prepare(module)
        self.fill(SEED)

    def prepare(self, module):
        """One-time work: builds the model and compiles kernels."""
        start = time.perf_counter_ns()
        done = False
        if ENTRY.get("prepare"):
            self.extras["model"] = built(module, self.extras)
            done = True
        if self.popcorn and inspect.isclass(self.function):
            arguments = constructor_arguments()
            self.function, self.reference = (thing and instance(thing, arguments) for thing in (self.function, self.reference))
            if isinstance(self.function, torch.nn.Module) and isinstance(self.reference, torch.nn.Module):
                if not takes_weights(self.function, self.reference.state_dict()):
                    JOURNAL.gap(OTHER_WEIGHTS)
            done = True
        if self.popcorn and not self.case.get("values") and callable(getattr(module, "compile_kernel", None)):
            blamed(lambda: module.compile_kernel(self.extras["problem_sizes"]), "compile_kernel")
            done = True
        if done:
            synchronize()
            JOURNAL.record(self.case, prepare_ns=float(time.perf_counter_ns() - start))
        facts = facts_of_model(self.extras.get("model"))
        if facts:
            JOURNAL.report.setdefault("model", {}).update(facts)

    def fill(self, seed):
        """The data and the expected outputs. `fixed` holds the contents that are restored before
        each call, by tensor."""
        if self.popcorn:
            self.fill_made(seed)
        else:
            self.fill_args(seed)

    def fill_args(self, seed):
        groups = self.case["groups"]
        values, self.outs, self.inouts, self.inputs = {}, [], [], []
        for position, arg in enumerate(groups[0]["args"]):
            made = [self.argument(group["args"][position], g, position, seed) for g, group in enumerate(groups)]
            values[arg["name"]] = made if len(groups) > 1 else made[0]
            for g, value in enumerate(made):
                kind = {"out": self.outs, "inout": self.inouts, "in": self.inputs}.get(arg["role"])
                if kind is not None:
                    kind.append((arg["name"], g, value))
        expected = None
        if self.reference:
            mine = {**self.extras, **copied(values), "seed": seed}
            expected = self.results(self.reference, mine)
        self.fixed = [(value, value.clone()) for _, _, value in self.inouts]
        self.kept = [(name, value, value.clone()) for name, _, value in self.inputs]
        self.values = {**self.extras, **values, "seed": seed}
        self.bound = bind(self.function, self.values)
        self.poisoned = [value for name, _, value in self.outs if name in self.bound]
        # A function that returns its outputs gets them from torch's allocator, which reuses
        # the memory freed last: that memory is poisoned instead.
        self.like = [value for name, _, value in self.outs if name not in self.bound]
        self.expected = expected

    def refill(self, seed):
        """New contents for a timed call: in the existing tensors, or as the task's new `data`. The
        kernel is not called here, so that the timed call is the first to see them."""
        if self.popcorn:
            self.fill_made(seed)
            return
        for position, arg in enumerate(self.case["groups"][0]["args"]):
            if arg["role"] in ("in", "inout"):
                now = self.values[arg["name"]]
                for g, tensor in enumerate(now if isinstance(now, list) else [now]):
                    tensor.copy_(contents(self.case["groups"][g]["args"][position], g, position, seed))
        self.values["seed"] = seed
        if "seed" in self.bound:
            self.bound["seed"] = seed
        if self.reference:
            mine = {name: copied(value) if name != "model" else value for name, value in self.values.items()}
            self.expected = self.results(self.reference, mine)
        for tensor, before in self.fixed:
            before.copy_(tensor)
        for _, now, before in self.kept:
            before.copy_(now)

    def argument(self, arg, group, position, seed):
        if arg["role"] == "scalar":
            return arg["value"]
        if arg["role"] == "out":
            return torch.empty(shape(arg), dtype=getattr(torch, DTYPES[arg["dtype"]]), device=DEVICE)
        return contents(arg, group, position, seed)

    def results(self, function, values):
        chosen = bind(function, values) if not self.popcorn or "data" in parameters(function) else None
        call = (lambda: function(**chosen)) if chosen is not None else (lambda: function(values["data"]))
        given = blamed(call, function.__name__, "reference")
        names = chosen or {}
        mine = [] if self.popcorn else [(n, g, values[n][g] if isinstance(values[n], list) else values[n]) for n, g, _ in self.inouts]
        return self.named(given, names, mine, {n: values.get(n) for n in names})

    def named(self, given, names, inouts, passed):
        """Outputs as (name, group, tensor): those passed in, those changed in place, and those
        that were returned, in the order of the arguments."""
        if self.popcorn:
            found = tensors(given)
            if not found and not self.checker:
                raise Fault("wrong_result", "no tensor was returned")
            return [("output" if len(found) == 1 else f"output{i}", 0, t) for i, t in enumerate(found)]
        pick = lambda name, g: passed[name][g] if isinstance(passed[name], list) else passed[name]
        outs = [(name, g, pick(name, g)) for name, g, _ in self.outs if name in names]
        returned = [(name, g) for name, g, _ in self.outs if name not in names]
        found = tensors(given) if returned else []
        if len(found) != len(returned):
            raise Fault("wrong_result", f"{len(found)} tensors were returned, but kernel.toml has {len(returned)} outputs that are no parameters")
        return outs + list(inouts) + [(name, g, t) for (name, g), t in zip(returned, found)]

    def call_once(self):
        if self.popcorn:
            return self.call_made()
        given = self.function(**self.bound)
        return self.named(given, self.bound, self.inouts, self.values)

    def restore(self, pattern=0):
        """Prepares a call: restores changed tensors and poisons outputs."""
        for tensor, before in self.fixed:
            plain(tensor).copy_(plain(before))
        for tensor in self.poisoned:
            poison(tensor, pattern)
        twins = [torch.empty_like(t) for t in self.like]
        for tensor in twins:
            poison(tensor, pattern)
        del twins

    def check_shapes(self, outputs):
        for (name, _, got), (_, _, wanted) in zip(outputs, self.expected or []):
            if tuple(got.shape) != tuple(wanted.shape):
                raise Fault("wrong_result", f"`{name}` has the shape {tuple(got.shape)}, expected {tuple(wanted.shape)}")
        declared = {(name, g): t for name, g, t in self.outs} if not self.popcorn else {}
        for name, g, got in outputs:
            wanted = declared.get((name, g))
            if wanted is not None and (got.shape != wanted.shape or got.dtype != wanted.dtype):
                raise Fault("wrong_result", f"`{name}` is {got.dtype} of shape {tuple(got.shape)}, but kernel.toml says {wanted.dtype} of shape {tuple(wanted.shape)}")

    def changed_inputs(self):
        return [name for name, now, before in self.kept if not torch.equal(raw(now), raw(before))]


def varies(case):
    """Whether another seed gives other contents. Files, constants and arguments with their own seed do not."""
    drawn = lambda arg: isinstance(arg.get("init"), dict) and not {"uniform", "normal", "ints", "bits"}.isdisjoint(arg["init"])
    args = case["groups"][0].get("args")
    return not args or any(drawn(arg) and "seed" not in arg for arg in args)


def extras_of(case):
    """What a function may take beside the arguments of a case."""
    extras = {**settings(), "seed": SEED, "device": DEVICE, **sizes(case)}
    if "seed" in case.get("values", {}):
        # The case's own data, unless the user asks for others.
        extras["seed"] += SEED - DEFAULT_SEED
    return extras


def built(module, extras):
    """What `prepare` makes."""
    build = function_of(module, ENTRY["prepare"])
    torch.manual_seed(SEED)
    return blamed(lambda: build(**bind(build, extras)), build.__name__)


def facts_of_model(model):
    """The number of a model's weights, and the dtype of most of them."""
    if not isinstance(model, torch.nn.Module):
        return {}
    counts = {}
    for parameter in model.parameters():
        counts[parameter.dtype] = counts.get(parameter.dtype, 0) + parameter.numel()
    most = max(counts, key=counts.get) if counts else None
    return {"parameters": sum(counts.values()), "dtype": str(most).replace("torch.", "") if most else None}


def settings():
    """`[model]` as parameters, with its dtype as a torch dtype."""
    model = dict(ENTRY.get("model", {}))
    if isinstance(model.get("dtype"), str):
        dtype = getattr(torch, model["dtype"], None)
        if not isinstance(dtype, torch.dtype):
            raise Fault("bad_case", f"torch has no dtype `{model['dtype']}`")
        model["dtype"] = dtype
    return model


def blamed(call, name, kind="host_entry"):
    """Calls the user's code; an exception becomes a Fault that names it."""
    try:
        return call()
    except Fault:
        raise
    except Exception as error:
        raise fault_of(error, name, kind) from error


def fault_of(error, name, kind="host_entry"):
    text = str(error).strip().splitlines() or [""]
    if isinstance(error, torch.OutOfMemoryError):
        return Fault("out_of_memory", text[0])
    if isinstance(error, ModuleNotFoundError):
        return Fault("load", f"`{name}` needs `{error.name}`, which this Python has not ({sys.executable})")
    if "illegal memory access" in str(error):
        return Fault("illegal_access", text[0])
    if type(error).__module__.startswith("triton"):
        kind = "compile" if "ompil" in type(error).__name__ else kind
    frames = traceback.extract_tb(error.__traceback__)
    inside = [f for f in frames if f.filename.startswith(os.path.join(HERE, "src"))]
    place = f" at {os.path.relpath(inside[-1].filename, os.path.join(HERE, 'src'))}:{inside[-1].lineno}" if inside else ""
    return Fault(kind, f"`{name}` raised {type(error).__name__}: {text[0]}{place}")


def call(kernel):
    return blamed(kernel.call_once, ENTRY["function"])


def synchronize():
    if DEVICE == "cuda":
        torch.cuda.synchronize()
