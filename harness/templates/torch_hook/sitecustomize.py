"""Records a Python program with torch's own profiler, without a change of the program.

rgpu puts this folder first on PYTHONPATH. Python imports `sitecustomize` when it starts, so this
file runs before the program, in its child processes too. A `sitecustomize` that the host has runs as
well. Nothing happens in a process that does not import torch, and no error of this file ends the
program.

The trace goes to `$RGPU_TORCH_TRACE.<pid>.json`. It has what runs

- from `$RGPU_TORCH_AFTER` seconds after the start on, for `$RGPU_TORCH_FOR` seconds, if one of them
  is set; after `$RGPU_TORCH_FOR` the program is stopped as by Ctrl-C;
- inside the first STEPS ranges named `$RGPU_TORCH_RANGE`, if that is set; if `$RGPU_TORCH_FOR` is
  `range`, the program is stopped then;
- else in STEPS steps after the first one, if the program makes an optimizer: a step ends with
  `optimizer.step()`, and is the range `torch@step`;
- else from the first call of a Hugging Face model on, if the program imports such models;
- else from the first use of the GPU on.

It ends after LIMIT_S seconds, since a trace with the places in the source has each call of Python.
A program that compiles its model has no places, and LIMIT_WITHOUT_PLACES_S seconds.

NVTX ranges of `torch.cuda.nvtx` are ranges of the trace too. One that is open when the recording
begins is in it from then on, but not if steps are recorded. A call of a Hugging Face model is
`LLM@prefill`, `LLM@decode_step` or `LLM@forward`. The trace's key `rgpu` has the model, the FLOPs of
these ranges and the peak of the memory, as `src/format/src/torch_trace.rs` reads them.

Recording lengthens the host's time. So the hook also times up to PLAIN_STEPS steps after the recorded
ones. Their median is the trace's key `rgpu_plain_step_ns`, unless they are too few or uneven.
"""

import atexit
import contextlib
import functools
import importlib.machinery
import importlib.util
import json
import os
import signal
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
PREFIX = os.environ.get("RGPU_TORCH_TRACE")
RANGE = os.environ.get("RGPU_TORCH_RANGE")
WITHOUT_GPU = os.environ.get("RGPU_TORCH_WITHOUT_GPU") == "1"
AFTER_S = float(os.environ.get("RGPU_TORCH_AFTER", "0"))
STOPS_AFTER_RANGE = os.environ.get("RGPU_TORCH_FOR") == "range"
FOR_S = 0.0 if STOPS_AFTER_RANGE else float(os.environ.get("RGPU_TORCH_FOR", "0"))
WINDOW = AFTER_S > 0 or FOR_S > 0
STEPS = 3
# Steps to time without the profiler, the fewest that tell something, and how far their mean may exceed
# their median: a loader that delivers several batches at once makes most steps shorter than their mean.
PLAIN_STEPS = 10
MIN_PLAIN_STEPS = 3
MAX_MEAN_TO_MEDIAN = 1.25
LIMIT_S = {"program": 5.0, "range": 15.0, "steps": 15.0, "window": 15.0}
LIMIT_WITHOUT_PLACES_S = 60.0
# Python functions of torch, and what has no file, only pass a call on; the trace has none of them.
NOT_A_PLACE = ("torch/", "<", "nn.Module: ", "sitecustomize.py(")
PYTHON_CALL = '\n  {\n    "ph": "X", "cat": "python_function", "name": "'
# Settings of a config that say how many experts there are.
EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts")


def say(text):
    print(f"rgpu torch: {text}", file=sys.stderr, flush=True)


def guarded(function):
    """The same function, but an error inside is told and does not reach the program."""

    @functools.wraps(function)
    def call(*args, **kwargs):
        try:
            return function(*args, **kwargs)
        except Exception as error:
            say(f"{function.__name__} failed: {type(error).__name__}: {error}")
            return None

    return call


def run_other_sitecustomize():
    """Runs the `sitecustomize` that this file hides."""
    paths = [path for path in sys.path if os.path.abspath(path or ".") != HERE]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", paths)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


class AfterImport:
    """A finder that calls a function after a module was imported."""

    def __init__(self, actions):
        self.actions = actions

    def find_spec(self, name, path=None, target=None):
        action = self.actions.pop(name, None)
        if action is None:
            return None
        finders = (f for f in sys.meta_path if f is not self and hasattr(f, "find_spec"))
        spec = next(filter(None, (f.find_spec(name, path, target) for f in finders)), None)
        if spec is None or spec.loader is None:
            self.actions[name] = action
            return spec
        run = spec.loader.exec_module

        def exec_module(module):
            run(module)
            guarded(action)(module)

        spec.loader.exec_module = exec_module
        return spec


class Recording:
    """What is recorded, and what was recorded so far. Its methods run on the program's threads."""

    def __init__(self, torch):
        self.torch = torch
        # The process that records: a forked one has a copy of everything.
        self.pid = None
        # `waiting`, then `window`, `range`, `steps` or `program` while the profiler runs, then `done`.
        self.state = "waiting"
        self.profiler = None
        # Whether it has places, and whether it cannot.
        self.places, self.compiles = False, False
        # The first optimizer's id, and the steps of it that are in the trace.
        self.optimizer, self.steps = None, 0
        self.step_range = None
        # The trace of whole steps, and the times at which later steps ended, in nanoseconds.
        self.trace_of_steps, self.step_ends = None, []
        self.deadline = None
        self.starting = False
        self.model = None
        # Calls and FLOPs by the name of the range, while the profiler runs.
        self.work = {}
        self.local = threading.local()
        self.cut = False
        # Whether a range was opened in a recording of the whole program.
        self.named = False

    # --- the profiler ---

    def start(self, state, places=True):
        self.places, self.pid = places and not self.compiles, os.getpid()
        profiler = self.torch.profiler
        activities = [profiler.ProfilerActivity.CPU]
        if not WITHOUT_GPU:
            activities.append(profiler.ProfilerActivity.CUDA)
        self.starting = True
        try:
            self.profiler = profiler.profile(
                activities=activities, record_shapes=True, profile_memory=True, with_stack=self.places)
            self.profiler.start()
        finally:
            self.starting = False
        self.state, self.work, self.steps = state, {}, 0
        if state != "steps":
            self.reopen_ranges()
        self.limit()

    def drop(self):
        """Ends the profiler without a trace."""
        profiler, self.profiler, self.state = self.profiler, None, "waiting"
        if profiler is not None:
            self.deadline.cancel()
            profiler.stop()

    @guarded
    def finish(self):
        """Writes the trace."""
        if self.profiler is None or os.getpid() != self.pid:
            return
        self.end_step()
        if self.state == "steps" and not (self.steps or self.cut):
            # The program ended in the second step: nothing whole was recorded.
            self.drop()
            return
        self.deadline.cancel()
        profiler, self.profiler, what = self.profiler, None, self.state
        self.state = "done"
        profiler.add_metadata_json("rgpu", json.dumps(self.facts(what)))
        with uninterrupted():
            profiler.stop()
            path = f"{PREFIX}.{self.pid}.json"
            profiler.export_chrome_trace(path + ".new")
            if self.places:
                trim(path + ".new")
            os.replace(path + ".new", path)
        if what == "steps" and not self.cut:
            self.trace_of_steps = path

    def facts(self, what):
        torch = self.torch
        facts = {
            "recorded": what, "torch": torch.__version__, "cuda": torch.cuda.is_initialized(),
            "steps": self.steps, "cut": self.cut, "places": self.places,
            "no_places": self.why_no_places(what), "model": self.model or None, "work": self.work,
            "ranks": int(os.environ.get("WORLD_SIZE", "1")),
        }
        if self.model and self.work.get("LLM@forward", {}).get("trained") and self.steps:
            # A backward pass has twice the products of the forward pass.
            flops = 3 * self.work["LLM@forward"]["flops"]
            self.work["torch@step"] = {"calls": self.steps, "flops": flops}
        if torch.cuda.is_initialized():
            device = torch.cuda.current_device()
            facts["memory"] = {
                "device": device,
                "peak_allocated_bytes": torch.cuda.max_memory_allocated(device),
                "peak_reserved_bytes": torch.cuda.max_memory_reserved(device),
                "total_bytes": torch.cuda.get_device_properties(device).total_memory,
            }
        return facts

    def why_no_places(self, what):
        if self.places:
            return None
        if what == "window" and not self.compiles:
            return f"the window of {FOR_S:.0f} s is too long"
        return "the program calls torch.compile" if self.compiles else "the whole program ran on a CPU"

    # --- the ways to choose what is recorded ---

    @guarded
    def gpu_opened(self):
        if WINDOW:
            left = BEGUN + AFTER_S - time.monotonic()
            self.later(left, self.start_window) if left > 0 else self.start_window()
        elif "transformers.modeling_utils" not in sys.modules:
            # Without a GPU it is the start of the program, with the imports of all modules.
            self.start_program(places=not WITHOUT_GPU)

    @guarded
    def start_window(self):
        if self.state == "waiting":
            # A trace of more time with places would be too large.
            self.start("window", places=FOR_S <= LIMIT_S["window"])

    def start_program(self, places=True):
        if self.state == "waiting" and not (RANGE or WINDOW) and self.optimizer is None:
            self.start("program", places)

    @guarded
    def models_imported(self):
        """The recording begins with the first call of a model."""
        if self.state == "program":
            self.drop()

    def limit(self):
        """Ends a recording at its limit."""
        if self.deadline is not None:
            self.deadline.cancel()
        limit = LIMIT_S[self.state] if self.places else LIMIT_WITHOUT_PLACES_S
        if self.state == "window" and FOR_S:
            limit = FOR_S
        self.deadline = self.later(limit, self.end_at_limit)

    def end_at_limit(self):
        if self.profiler is None:
            return
        ends_window = self.state == "window" and FOR_S > 0
        self.cut = not ends_window
        self.finish()
        if ends_window:
            # On this thread the interrupt would hit the call from C that runs this.
            threading.Timer(0.1, interrupt_program).start()

    def later(self, seconds, action):
        """Calls `action` after some seconds on the main thread: the profiler belongs to the thread
        that started it."""
        timer = threading.Timer(seconds, self.ask_main_thread, [action])
        timer.daemon = True
        timer.start()
        return timer

    @guarded
    def ask_main_thread(self, action):
        import ctypes

        @ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)
        def call(_):
            action()
            return 0

        self.keep_call = call
        ctypes.pythonapi.Py_AddPendingCall(call, None)

    @guarded
    def optimizer_begun(self, optimizer):
        if self.optimizer is None:
            self.optimizer = id(optimizer)
            # What was recorded before is the set-up of the training.
            if self.state == "program":
                self.drop()

    @guarded
    def other_profiler(self):
        """Makes way for a profiler that the program itself starts: there can be one."""
        if self.starting:
            return
        # The steps that it records take longer, too.
        self.trace_of_steps = None
        if self.profiler is not None:
            say("the program starts a profiler itself, so the recording ends")
            self.cut = True
            self.finish()

    @guarded
    def stepped(self, optimizer):
        if id(optimizer) != self.optimizer:
            return
        if self.state == "waiting" and not (RANGE or WINDOW):
            self.start("steps")
            self.begin_step()
        elif self.state == "steps":
            self.end_step()
            self.steps += 1
            if self.steps < STEPS:
                self.begin_step()
            else:
                self.finish()
        elif self.trace_of_steps is not None:
            # The first step after the recording begins with an idle GPU. It only gives the time at
            # which the next one begins.
            self.step_ends.append(time.monotonic_ns())
            if len(self.step_ends) > PLAIN_STEPS:
                self.add_plain_step()

    @guarded
    def add_plain_step(self):
        """Adds the time of a step without the profiler to the trace."""
        path, self.trace_of_steps = self.trace_of_steps, None
        if path is None or os.getpid() != self.pid:
            return
        times = sorted(end - start for start, end in zip(self.step_ends, self.step_ends[1:]))
        if len(times) < MIN_PLAIN_STEPS:
            return
        median = times[len(times) // 2]
        if sum(times) <= MAX_MEAN_TO_MEDIAN * median * len(times):
            add_key(path, "rgpu_plain_step_ns", median)

    def begin_step(self):
        self.step_range = self.torch.profiler.record_function("torch@step")
        self.step_range.__enter__()

    def end_step(self):
        if self.step_range is not None:
            self.step_range.__exit__(None, None, None)
            self.step_range = None

    # --- ranges ---

    @guarded
    def push(self, name):
        name = str(name)
        if name == RANGE and self.state == "waiting":
            self.start("range")
        elif self.state == "program" and not self.named:
            # The work begins here; what was before was its set-up.
            self.named = True
            self.limit()
        span = None
        if self.profiler is not None:
            span = self.torch.profiler.record_function(name)
            span.__enter__()
        self.open_ranges().append((name, span, self.profiler))

    @guarded
    def pop(self):
        if not self.open_ranges():
            return
        name, span, profiler = self.open_ranges().pop()
        if span is not None and profiler is self.profiler:
            span.__exit__(None, None, None)
        if name == RANGE and self.state == "range":
            self.steps += 1
            if self.steps == STEPS:
                self.finish()
                if STOPS_AFTER_RANGE:
                    interrupt_program()

    def reopen_ranges(self):
        """Opens the ranges again in which the recording begins, since the profiler knows no others.
        Those in which a step ended would be short ones more, beside those of the whole steps."""
        for at, (name, _, _) in enumerate(self.open_ranges()):
            span = self.torch.profiler.record_function(name)
            span.__enter__()
            self.open_ranges()[at] = (name, span, self.profiler)

    def open_ranges(self):
        if not hasattr(self.local, "ranges"):
            self.local.ranges = []
        return self.local.ranges

    # --- Hugging Face models ---

    @guarded
    def stage_of(self, model, args, kwargs):
        """The range of a model's call, and its FLOPs."""
        if self.model is None:
            self.model = {}
            self.start_program()
            self.model = facts_of_model(model)
        tokens = kwargs.get("input_ids")
        tokens = kwargs.get("inputs_embeds") if tokens is None else tokens
        tokens = args[0] if tokens is None and args else tokens
        if not hasattr(tokens, "shape") or len(tokens.shape) < 2:
            return None
        batch, queries = int(tokens.shape[0]), int(tokens.shape[1])
        trained = self.torch.is_grad_enabled() and model.training
        generates = getattr(model, "can_generate", lambda: False)()
        # The length of the cache is counted here: reading it may wait for the GPU.
        past = getattr(self.local, "past", 0)
        if trained or not generates:
            name, past = "LLM@forward", 0
        elif queries > 1 or past == 0:
            name, past = "LLM@prefill", 0
        else:
            name = "LLM@decode_step"
        self.local.past = past + queries
        if self.profiler is not None and self.model.get("active_parameters"):
            work = self.work.setdefault(name, {"calls": 0, "flops": 0, "trained": trained})
            work["calls"] += 1
            work["flops"] += flops_of(self.model, batch, queries, past)
        return name

    def call_model(self, call, model, args, kwargs):
        """Calls a model inside the range of its stage. Models inside a model have no range."""
        if getattr(self.local, "in_model", False):
            return call(model, *args, **kwargs)
        name = self.stage_of(model, args, kwargs)
        self.local.in_model = True
        try:
            recorded = name and self.profiler is not None
            span = self.torch.profiler.record_function(name) if recorded else contextlib.nullcontext()
            with span:
                return call(model, *args, **kwargs)
        finally:
            self.local.in_model = False


@contextlib.contextmanager
def uninterrupted():
    """A trace of a window is written to its end: the program is stopped meanwhile."""
    handler = signal.getsignal(signal.SIGINT)
    stops = WINDOW or STOPS_AFTER_RANGE
    if not stops or handler is None or threading.current_thread() is not threading.main_thread():
        yield
        return
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)


def interrupt_program():
    """Stops the program and its children as Ctrl-C does."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(int(os.environ["RGPU_TORCH_GROUP"]), signal.SIGINT)


def facts_of_model(model):
    """Name, size and format of a Hugging Face model."""
    config = model.config
    text = config.get_text_config() if hasattr(config, "get_text_config") else config
    setting = lambda *names: next((v for v in (getattr(text, n, None) for n in names) if v), None)
    experts, chosen = setting(*EXPERTS), setting("num_experts_per_tok", "moe_topk", "top_k")
    share = chosen / experts if experts and chosen else 1.0
    count, active, dtypes = 0, 0.0, {}
    for name, parameter in model.named_parameters():
        count += parameter.numel()
        active += parameter.numel() * (share if ".experts." in name else 1.0)
        dtypes[parameter.dtype] = dtypes.get(parameter.dtype, 0) + parameter.numel()
    inputs, outputs = model.get_input_embeddings(), model.get_output_embeddings()
    if inputs is not None and (outputs is None or outputs.weight is not inputs.weight):
        # A look-up in the table of tokens is no product.
        active -= inputs.weight.numel()
    heads, hidden = setting("num_attention_heads"), setting("hidden_size")
    head_dim = setting("head_dim") or (hidden // heads if heads and hidden else None)
    most = max(dtypes, key=dtypes.get) if dtypes else ""
    is_decoder = not getattr(config, "is_encoder_decoder", False)
    known = is_decoder and heads and head_dim and setting("num_hidden_layers")
    return {
        "name": getattr(config, "_name_or_path", "") or type(model).__name__,
        "architecture": type(model).__name__, "dtype": str(most).replace("torch.", ""),
        "parameters": count, "active_parameters": int(active) if known else None,
        "layers": setting("num_hidden_layers"), "heads": heads, "head_dim": head_dim,
    }


def flops_of(model, batch, queries, past):
    """FLOPs of one call: products with weights, and causal attention over `past` earlier tokens."""
    pairs = batch * (queries * past + queries * (queries + 1) // 2)
    attention = 4 * model["layers"] * model["heads"] * model["head_dim"] * pairs
    return 2 * model["active_parameters"] * batch * queries + attention


def torch_imported(torch):
    # The other ranks do the same work.
    if os.environ.get("RANK", "0") != "0":
        return
    # Taking CUPTI down and up again breaks programs with CUDA graphs.
    os.environ.setdefault("TEARDOWN_CUPTI", "0")
    os.environ.setdefault("DISABLE_CUPTI_LAZY_REINIT", "1")
    recording = Recording(torch)
    RECORDINGS.append(recording)
    watch_optimizers(recording)
    watch_ranges(recording)
    watch_compilation(recording)
    watch_profilers(recording)
    atexit.register(recording.add_plain_step)
    atexit.register(recording.finish)
    if WITHOUT_GPU:
        recording.gpu_opened()
    else:
        # Runs `gpu_opened` where the program itself first uses the GPU.
        torch.cuda._lazy_call(recording.gpu_opened)


def watch_optimizers(recording):
    """Calls `stepped` after each step, outside of the range that torch opens around it."""
    optimizer = recording.torch.optim.Optimizer
    if not hasattr(optimizer, "profile_hook_step"):
        say(f"torch {recording.torch.__version__} is too old to see steps of an optimizer")
        return
    is_compiling = recording.torch.compiler.is_compiling
    wrap, init = optimizer.profile_hook_step, optimizer.__init__

    def profile_hook_step(function):
        inner = wrap(function)

        @functools.wraps(inner)
        def step(self, *args, **kwargs):
            result = inner(self, *args, **kwargs)
            if not is_compiling():
                recording.stepped(self)
            return result

        return step

    @functools.wraps(init)
    def __init__(self, *args, **kwargs):
        recording.optimizer_begun(self)
        init(self, *args, **kwargs)

    optimizer.profile_hook_step, optimizer.__init__ = staticmethod(profile_hook_step), __init__


def watch_ranges(recording):
    nvtx = recording.torch.cuda.nvtx
    push, pop = nvtx.range_push, nvtx.range_pop

    @functools.wraps(push)
    def range_push(msg):
        recording.push(msg)
        return push(msg)

    @functools.wraps(pop)
    def range_pop():
        recording.pop()
        return pop()

    nvtx.range_push, nvtx.range_pop = range_push, range_pop


def watch_compilation(recording):
    """A compiler makes millions of Python calls, which a trace with places would all have."""
    torch = recording.torch
    if not hasattr(torch, "compile"):
        return
    compile = torch.compile

    @guarded
    def without_places():
        if recording.state in ("waiting", "program") and (WINDOW or recording.optimizer is None):
            recording.compiles = True
            if recording.state == "program" and not recording.open_ranges():
                recording.drop()
                recording.gpu_opened()

    @functools.wraps(compile)
    def compile_without_places(*args, **kwargs):
        without_places()
        return compile(*args, **kwargs)

    torch.compile = compile_without_places


def watch_profilers(recording):
    profile = recording.torch.autograd.profiler.profile
    prepare = profile._prepare_trace

    @functools.wraps(prepare)
    def _prepare_trace(self):
        recording.other_profiler()
        return prepare(self)

    profile._prepare_trace = _prepare_trace


def trim(path):
    """Leaves the Python functions out of a trace that are no places. torch may write names that are
    no JSON: those of code that is gone."""
    with open(path, encoding="utf-8", errors="replace") as file:
        head, *calls = file.read().split(PYTHON_CALL)
    kept = [head]
    for call in calls:
        name, there, rest = call.partition('", "pid": ')
        end = rest.find("\n  },")
        if there and end >= 0 and not is_place(name):
            kept.append(rest[end + 5:])
        else:
            kept += [PYTHON_CALL, json.dumps(name)[1:-1], there, rest]
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(kept)


def add_key(path, key, value):
    """Adds a key to the JSON object in a file."""
    with open(path, "r+b") as file:
        file.seek(max(0, os.path.getsize(path) - 4096))
        start, end = file.tell(), file.read().rstrip()
        if end.endswith(b"}"):
            file.seek(start + len(end) - 1)
            file.write(f", {json.dumps(key)}: {json.dumps(value)}\n}}\n".encode())
            file.truncate()


def is_place(name):
    """Whether a function `file.py(12): name` is of the program or of its libraries."""
    name = name.rpartition("-packages/")[2]
    file, _, function = name.partition("(")
    if name.startswith(NOT_A_PLACE) or function.startswith("0)") or "\ufffd" in name:
        return False
    module = file.partition("/")[0].partition(".")[0]
    of_python = module in getattr(sys, "stdlib_module_names", ())
    return not of_python or os.path.exists(os.path.join(sys.path[0], file))


def transformers_imported(module):
    """Opens a range around each call of a model. `RECORDINGS` is empty where nothing is recorded."""
    for recording in RECORDINGS:
        recording.models_imported()
    import torch

    is_compiling = torch.compiler.is_compiling
    model = module.PreTrainedModel
    call = model.__call__

    @functools.wraps(call)
    def __call__(self, *args, **kwargs):
        if is_compiling() or not RECORDINGS:
            return call(self, *args, **kwargs)
        return RECORDINGS[0].call_model(call, self, args, kwargs)

    model.__call__ = __call__


def explain_missing_trace():
    """Tells why the first Python process and its children have written no trace."""
    import glob

    if os.getpid() != ROOT or glob.glob(f"{glob.escape(PREFIX)}.*.json"):
        return
    # Python sets it for an exception that nothing has caught.
    if getattr(sys, "last_type", None) is not None:
        say("the program ended with an exception before anything was recorded")
    elif "torch" not in sys.modules:
        say("the program did not import torch")
    elif not RECORDINGS:
        say("the program could not be watched")
    elif WINDOW and RECORDINGS[0].torch.cuda.is_initialized():
        say(f"nothing ran on the program's main thread {AFTER_S:.0f} s after its start")
    elif RECORDINGS[0].optimizer is not None:
        say("the program made an optimizer, but no second step of it")
    elif RANGE:
        say(f"the program opened no range `{RANGE}` of torch.cuda.nvtx")
    else:
        say("the program did not use the GPU by torch")


RECORDINGS = []
ROOT = None
BEGUN = float(os.environ.get("RGPU_TORCH_BEGUN", time.monotonic()))
if PREFIX:
    if "RGPU_TORCH_ROOT" not in os.environ:
        ROOT = os.getpid()
        os.environ["RGPU_TORCH_ROOT"] = str(ROOT)
        os.environ["RGPU_TORCH_GROUP"] = str(os.getpgrp())
        os.environ["RGPU_TORCH_BEGUN"] = str(BEGUN)
        atexit.register(explain_missing_trace)
    sys.meta_path.insert(
        0, AfterImport({"torch": torch_imported, "transformers.modeling_utils": transformers_imported}))
run_other_sitecustomize()
