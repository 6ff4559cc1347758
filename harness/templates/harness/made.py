# --- data that a function makes ---------------------------------------------------------------

# The seed before each constructor, as in KernelBench: so that both models draw the same weights.
WEIGHT_SEED = 42
OTHER_WEIGHTS = "the kernel's weights have other names or shapes than the reference's: both were made after the same seed"


class MadeData:
    """The part of a kernel whose data a function makes: a tree, and not declared arguments.

    `data` is the tree that the kernel gets, `pristine` a copy of it from before the first call. A
    result is compared with the reference's, or judged by the task's own function on copies: that
    function may write into what it gets, and the result may share memory with the data."""

    def fill_made(self, seed):
        begin = time.perf_counter()
        # The old data goes before the new is made.
        self.data = self.pristine = self.expected = self.values = self.bound = self.given = self.ready = None
        self.kept, self.fixed, self.poisoned, self.like = [], [], [], []
        values = {**self.extras, "seed": self.extras["seed"] + seed - SEED}
        self.data = self.make(values)
        self.pristine = copied(self.data)
        self.values = values
        if self.reference and not self.checker:
            self.expected = self.named(self.run_on(self.reference, copied(self.pristine), "reference"), {}, [], {})
        synchronize()
        self.fill_s = time.perf_counter() - begin
        if self.inside is None:
            self.find_outputs()
        mine = list(zip(tensors(self.data), tensors(self.pristine)))
        # A first call may have changed them.
        restore_tensors(mine)
        self.kept = [(f"data[{i}]", t, before) for i, (t, before) in enumerate(mine) if i not in self.inside and i not in self.changeable]
        for i, (t, before) in enumerate(mine):
            if i in self.inside and self.unread:
                self.poisoned.append(t)
            elif i in self.inside or i in self.changeable:
                self.fixed.append((t, before))
        if not self.inside:
            self.like = self.returned

    def make(self, values):
        inputs = ENTRY.get("inputs") or {}
        module = load(inputs["file"]) if inputs else self.reference_module
        make = function_of(module, inputs.get("function", "generate_input"))
        torch.manual_seed(values["seed"])
        chosen = bind(make, values)
        if any(p.kind == p.VAR_KEYWORD for p in parameters(make).values()):
            chosen.update(self.case.get("values", {}))
        if not inputs.get("spread"):
            return blamed(lambda: make(**chosen), make.__name__, "reference")
        return mapped(on_device(lambda: make(**chosen), make.__name__, values["seed"], "reference"), lambda t: t.to(DEVICE))

    def call_on(self, function, data):
        """A call of a user's function on the data, as it takes it. What Python has to find out for
        it is done here, before anything is timed."""
        if (ENTRY.get("inputs") or {}).get("spread"):
            return lambda: function(*data)
        if "data" in parameters(function):
            chosen = bind(function, {**self.values, "data": data})
            return lambda: function(**chosen)
        return lambda: function(data)

    def run_on(self, function, data, kind="host_entry"):
        name = getattr(function, "__name__", type(function).__name__)
        return blamed(self.call_on(function, data), name, kind)

    def call_made(self):
        if self.ready is None or self.ready[0] is not self.function:
            self.ready = self.function, self.call_on(self.function, self.data)
        self.given = self.ready[1]()
        return self.named(self.given, {}, [], {})

    def find_outputs(self):
        """Finds the tensors of `data` that are outputs, by a first call, and those that the
        reference changes, too. Outputs are poisoned before each call if the reference shows that
        nothing reads them; all other tensors must not change."""
        results = [value for _, _, value in call(self)]
        synchronize()
        places = {t.untyped_storage().data_ptr() for t in results if t.numel()}
        given = tensors(self.data)
        self.inside = {i for i, t in enumerate(given) if t.numel() and t.untyped_storage().data_ptr() in places}
        self.returned, self.unread, self.changeable = [torch.empty_like(t) for t in results], False, set()
        if not self.reference:
            return
        twin = copied(self.pristine)
        self.run_on(self.reference, twin, "reference")
        pairs = enumerate(zip(tensors(twin), tensors(self.pristine)))
        self.changeable = {i for i, (a, b) in pairs if not same_bytes(a, b)}
        if self.inside:
            twin = copied(self.pristine)
            for i, theirs in enumerate(tensors(twin)):
                if i in self.inside:
                    poison(theirs, 0)
            again = self.run_on(self.reference, twin, "reference")
            if self.checker:
                self.unread = not self.refusal(again)
            else:
                found = self.named(again, {}, [], {})
                self.unread = all(same_bytes(a, b) for (_, _, a), (_, _, b) in zip(found, self.expected))

    def refusal(self, given):
        """What the task's own function says against a result; empty if nothing."""
        check, result, data = self.checker, copied(given), copied(self.pristine)
        said = blamed(lambda: check(data, result), REFERENCE["checker"], "reference")
        return message_of(said, REFERENCE["checker"])


def constructor_arguments():
    """The problem's own arguments for its classes; none if it has none."""
    inputs = ENTRY.get("inputs") or {}
    if not inputs.get("constructor"):
        return None
    make = function_of(load(inputs["file"]), inputs["constructor"])
    torch.manual_seed(WEIGHT_SEED)
    return blamed(make, make.__name__, "reference")


def instance(thing, arguments):
    """An object of the user's class; a function stays."""
    if not inspect.isclass(thing) or arguments is None:
        return thing
    torch.manual_seed(WEIGHT_SEED)
    build = (lambda: thing(**arguments)) if isinstance(arguments, dict) else (lambda: thing(*arguments))
    made = on_device(build, thing.__name__, WEIGHT_SEED)
    return made.to(DEVICE) if isinstance(made, torch.nn.Module) else made


def takes_weights(model, wanted):
    """Gives a model the reference's weights where they differ; false if they have not the same names."""
    own = model.state_dict()
    if own.keys() != wanted.keys() or any(own[k].shape != wanted[k].shape for k in own):
        return not wanted
    if not all(same_bytes(own[k].cpu(), wanted[k].cpu()) for k in own if own[k].dtype == wanted[k].dtype):
        model.load_state_dict(wanted)
        print("the kernel has the reference's weights, by name", flush=True)
    return True


def on_device(make, name, seed, kind="host_entry"):
    """What a function makes after a seed, with new tensors on the GPU: gigabytes of random numbers take a CPU many
    seconds. A function that needs them on the CPU gets them there."""
    torch.manual_seed(seed)
    if DEVICE == "cuda":
        try:
            with torch.device(DEVICE):
                return make()
        except (RuntimeError, TypeError, ValueError, AssertionError) as error:
            if isinstance(error, torch.OutOfMemoryError):
                raise fault_of(error, name, kind) from error
        torch.manual_seed(seed)
    return blamed(make, name, kind)


def message_of(said, name):
    """What the answer of a task's own check says against a result: `(right, text)`, `right`, or in
    older tasks a text that is empty if the result is right."""
    if isinstance(said, tuple) and said:
        good, text = bool(said[0]), str(said[1] if len(said) > 1 else "")
    else:
        good, text = (said, "") if isinstance(said, bool) else (not said, str(said or ""))
    return "" if good else f"`{name}` refuses it: {text.strip()[:2000] or 'it does not say why'}"


def restore_tensors(pairs):
    for tensor, before in pairs:
        if tensor.layout == torch.strided:
            plain(tensor).copy_(plain(before))


def same_bytes(a, b):
    return a.shape == b.shape and a.dtype == b.dtype and torch.equal(raw(a), raw(b))
