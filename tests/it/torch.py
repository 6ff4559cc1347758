"""A played torch: the parts of its interface that rgpu's hook uses. Its profiler writes a recorded trace."""

import json
import os
from types import SimpleNamespace as Namespace

__version__ = "2.9.0"
TRACE = os.environ["FAKE_TORCH_TRACE"]
state = Namespace(cuda=False, calls=[], ranges=[], profilers=0)


def compile(model, **_):
    return model


class Inner:
    """`torch.autograd.profiler.profile`."""

    def _prepare_trace(self):
        assert state.profilers == 0, "a profiler is running already"
        state.profilers += 1


class Profile:
    def __init__(self, activities, record_shapes, profile_memory, with_stack):
        self.keys = {}

    def start(self):
        autograd.profiler.profile()._prepare_trace()

    def stop(self):
        state.profilers -= 1

    def add_metadata_json(self, key, value):
        self.keys[key] = json.loads(value)

    def export_chrome_trace(self, path):
        with open(TRACE) as file:
            trace = json.load(file)
        events = trace["traceEvents"]
        call = next(e for e in events if e.get("cat") in ("cpu_op", "cuda_runtime"))
        for at, name in enumerate(state.ranges):
            events.append({"ph": "X", "cat": "user_annotation", "name": name, "pid": call["pid"],
                           "tid": call["tid"], "ts": int(call["ts"]) + 10**6 * (at + 1), "dur": 10**5})
        with open(path, "w") as file:
            json.dump({**trace, **self.keys}, file)


class Range:
    """`record_function`."""

    def __init__(self, name):
        self.name = name

    def __enter__(self):
        return self

    def __exit__(self, *_):
        state.ranges.append(self.name)


class Optimizer:
    def __init__(self):
        if not hasattr(type(self).step, "hooked"):
            type(self).step = self.profile_hook_step(type(self).step)
            type(self).step.hooked = True

    @staticmethod
    def profile_hook_step(function):
        return lambda self: function(self)

    def step(self):
        pass


def open_gpu():
    if not state.cuda:
        state.cuda = True
        for call in state.calls:
            call()


memory = Namespace(total_memory=80 << 30)
nvtx = Namespace(range_push=lambda name: 0, range_pop=lambda: 0)
profiler = Namespace(profile=Profile, record_function=Range, ProfilerActivity=Namespace(CPU=0, CUDA=1))
autograd = Namespace(profiler=Namespace(profile=Inner))
compiler = Namespace(is_compiling=lambda: False)
optim = Namespace(Optimizer=Optimizer)
cuda = Namespace(_lazy_call=state.calls.append, is_initialized=lambda: state.cuda, nvtx=nvtx, init=open_gpu,
                 current_device=lambda: 0, get_device_properties=lambda device: memory,
                 max_memory_allocated=lambda device: 3 << 30, max_memory_reserved=lambda device: 4 << 30)
