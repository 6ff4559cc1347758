"""decoder_times.py OUT.csv CONFIGS: times prefill and decode of Llama models with random weights on this GPU. Writes rows of
kind `step` for `rgpu model reconcile`, and the config.json of each model as CONFIGS/NAME.json.

A step runs in a CUDA graph and once more launched from Python (`launch` graph and stream). The cache is static: its
memory stays, and the position of the new token is a tensor. A step of a given context attends to exactly that many keys,
so no mask is needed. Prefill is one prompt (TTFT of an idle server), decode one token for each sequence (TPOT).

The model is transformers' LlamaForCausalLM with this file's cache and attention. If transformers cannot run that, the
same operations are done by `Llama` below, and the rows say `torch`. `launches` counts the kernels and copies that
torch.profiler saw. `launch_ns` of rows without a graph is what one launch costs the host, measured on the smallest step.

DEVICE=cpu runs tiny models without graphs, to test this file.
"""

import csv
import json
import os
import statistics
import sys
import time
from pathlib import Path

import torch
from torch.nn import functional

DEVICE = os.environ.get("DEVICE", "cuda")
IS_CUDA = DEVICE == "cuda"
REPLAYS, SECONDS = 7, float(os.environ.get("DECODER_SECONDS", "80"))
DTYPE = torch.bfloat16
NAME = torch.cuda.get_device_name().lower() if IS_CUDA else "cpu"
GPU = next((name for name in ("h200", "h100", "b200", "a100") if name in NAME), NAME)
SHAPES = {
    "llama-1024": {"hidden_size": 1024, "intermediate_size": 2816, "num_hidden_layers": 16, "num_attention_heads": 16, "num_key_value_heads": 8},
    "llama-2048": {"hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16, "num_attention_heads": 32, "num_key_value_heads": 8},
    "llama-4096": {"hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 8, "num_attention_heads": 32, "num_key_value_heads": 8},
}
BATCHES, CONTEXTS, VOCABULARY = (1, 8, 32, 64), (512, 2048, 4096), 32000
if not IS_CUDA:
    SHAPES = {"llama-64": {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}}
    BATCHES, CONTEXTS, VOCABULARY = (1, 2), (16,), 256
ROWS = []


def config(shape):
    return {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": VOCABULARY, "max_position_embeddings": 8192,
            "rms_norm_eps": 1e-05, "rope_theta": 10000.0, "hidden_act": "silu", "attention_bias": False, "mlp_bias": False,
            "tie_word_embeddings": False, "torch_dtype": "bfloat16", **shape}


def attend(query, keys, values):
    """Attention of the last tokens: with one query it sees all keys, with a prompt those before it."""
    shared = query.shape[1] != keys.shape[1]
    return functional.scaled_dot_product_attention(query, keys, values, is_causal=query.shape[2] > 1, enable_gqa=shared)


class Cache:
    """Keys and values at fixed addresses. `update` is what transformers' attention calls."""

    is_compileable = False

    def __init__(self, shape, batch, context):
        heads, dim = shape["num_key_value_heads"], shape["hidden_size"] // shape["num_attention_heads"]
        made = [torch.zeros(2, batch, heads, context, dim, device=DEVICE, dtype=DTYPE).normal_() for _ in range(shape["num_hidden_layers"])]
        self.layers = [one.unbind(0) for one in made]
        self.position = torch.arange(context, device=DEVICE)

    def update(self, keys, values, layer, *_):
        own_keys, own_values = self.layers[layer]
        own_keys.index_copy_(2, self.position, keys)
        own_values.index_copy_(2, self.position, values)
        return own_keys, own_values

    def get_seq_length(self, *_):
        return 0


def transformers_model(shape):
    """LlamaForCausalLM, as a function of tokens, positions and cache."""
    import transformers
    from transformers import LlamaConfig, LlamaForCausalLM
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    def attention(module, query, keys, values, mask, **_):
        assert mask is None
        return attend(query, keys, values).transpose(1, 2), None

    # A name without a mask function: transformers then makes no mask.
    ALL_ATTENTION_FUNCTIONS.register("unmasked", attention)
    fields = {name: value for name, value in config(shape).items() if name not in ("architectures", "model_type", "torch_dtype")}
    options = LlamaConfig(**fields)
    options._attn_implementation = "unmasked"
    with torch.device(DEVICE):
        before = torch.get_default_dtype()
        torch.set_default_dtype(DTYPE)
        model = LlamaForCausalLM(options).eval()
        torch.set_default_dtype(before)
    model.config._attn_implementation = "unmasked"

    def run(tokens, positions, cache):
        return model(input_ids=tokens, position_ids=positions, past_key_values=cache, use_cache=True, logits_to_keep=1).logits

    return run, "transformers", transformers.__version__


class Llama:
    """The operations of transformers' modeling_llama.py, one call for each."""

    def __init__(self, shape):
        hidden, inner, heads = shape["hidden_size"], shape["intermediate_size"], shape["num_attention_heads"]
        self.dim = hidden // heads
        kv = self.dim * shape["num_key_value_heads"]

        def matrix(rows, columns):
            return torch.randn(rows, columns, device=DEVICE, dtype=DTYPE) * 0.02

        self.layers = [[matrix(n, k) for n, k in ((hidden, hidden), (kv, hidden), (kv, hidden), (hidden, hidden), (inner, hidden), (inner, hidden), (hidden, inner))]
                       for _ in range(shape["num_hidden_layers"])]
        self.embedding, self.head, self.ones = matrix(VOCABULARY, hidden), matrix(VOCABULARY, hidden), torch.ones(hidden, device=DEVICE, dtype=DTYPE)
        self.frequencies = 1.0 / 10000.0 ** (torch.arange(0, self.dim, 2, device=DEVICE).float() / self.dim)

    def norm(self, x):
        wide = x.to(torch.float32)
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-5)
        return self.ones * wide.to(x.dtype)

    def rotate(self, x, cos, sin):
        half = self.dim // 2
        return x * cos + torch.cat((-x[..., half:], x[..., :half]), dim=-1) * sin

    def __call__(self, tokens, positions, cache):
        x = functional.embedding(tokens, self.embedding)
        angles = (self.frequencies[None, :, None] @ positions[:, None, :].float()).transpose(1, 2)
        angles = torch.cat((angles, angles), dim=-1)
        cos, sin = angles.cos().to(DTYPE).unsqueeze(1), angles.sin().to(DTYPE).unsqueeze(1)
        for at, (q, k, v, out, gate, up, down) in enumerate(self.layers):
            y = self.norm(x)
            query, keys, values = (functional.linear(y, w).view(*y.shape[:2], -1, self.dim).transpose(1, 2) for w in (q, k, v))
            keys, values = cache.update(self.rotate(keys, cos, sin), values, at)
            y = attend(self.rotate(query, cos, sin), keys, values).transpose(1, 2)
            x = x + functional.linear(y.reshape(x.shape).contiguous(), out)
            y = self.norm(x)
            x = x + functional.linear(functional.silu(functional.linear(y, gate)) * functional.linear(y, up), down)
        return functional.linear(self.norm(x)[:, -1:], self.head)


def milliseconds(call):
    """One call: by events on a GPU, else by the clock."""
    if not IS_CUDA:
        begun = time.perf_counter()
        call()
        return 1e3 * (time.perf_counter() - begun)
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    call()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end)


def median_ns(call, repeats):
    return 1e6 * statistics.median(milliseconds(call) for _ in range(repeats))


def graph_ns(step):
    """The time of a step in a CUDA graph."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(2):
            step()
        stream.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            step()
        graph.replay()
        stream.synchronize()
        return median_ns(graph.replay, REPLAYS)


def launches_of(step):
    """The kernels, copies and fills of a step, or None if the profiler sees none."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as found:
        step()
        torch.cuda.synchronize()
    return sum(1 for event in found.events() if event.device_type == torch.autograd.DeviceType.CUDA) or None


def rows_of(name, shape, run, framework, version, launch_ns):
    """The rows of one model. Returns what a launch costs the host."""

    def measure(op, batch, queries, keys):
        nonlocal launch_ns
        cache = Cache(shape, batch, keys)
        cache.position = torch.arange(keys - queries, keys, device=DEVICE)
        tokens = torch.randint(0, VOCABULARY, (batch, queries), device=DEVICE)
        positions = cache.position.unsqueeze(0)
        step = lambda: run(tokens, positions, cache)
        finite = bool(torch.isfinite(step()).all())
        row = {"kind": "step", "source": "decoder_times.py", "gpu": GPU, "gpus": 1, "framework": framework, "version": version,
               "date": time.strftime("%Y-%m-%d"), "op": op, "dtype": "bf16", "batch": batch, "queries": queries, "keys": keys,
               "model": name, "tp": 1, "fusion": "eager"}
        text = f"{name} {op} {batch} x {queries}, context {keys}:"
        if not finite:
            print(text, "the logits are not finite; no row", flush=True)
            return
        if not IS_CUDA:
            ROWS.append({**row, "launch": "stream", "time_ns": round(median_ns(step, 3))})
            return
        try:
            launches = launches_of(step)
        except Exception as problem:
            launches = None
            print(text, f"launches were not counted: {problem!r}", flush=True)
        step()
        eager = median_ns(step, 3)
        if launch_ns is None and launches:
            launch_ns = eager / launches
        ROWS.append({**row, "launch": "stream", "launches": launches, "launch_ns": round(launch_ns or 0) or None, "time_ns": round(eager)})
        graph = graph_ns(step)
        ROWS.append({**row, "launch": "graph", "launches": launches, "time_ns": round(graph)})
        print(text, f"{graph / 1e6:.3f} ms in a graph, {eager / 1e6:.3f} ms without, {launches} launches", flush=True)

    for batch in BATCHES:
        for keys in CONTEXTS:
            if time.monotonic() - BEGUN > SECONDS:
                print(f"{name}: out of time; the rest is left out", flush=True)
                return launch_ns
            measure("decode", batch, 1, keys)
    for keys in CONTEXTS:
        measure("prefill", 1, keys, keys)
    return launch_ns


def main():
    torch.manual_seed(0)
    out, configs = Path(sys.argv[1]), Path(sys.argv[2])
    configs.mkdir(parents=True, exist_ok=True)
    launch_ns = None
    with torch.inference_mode():
        for name, shape in SHAPES.items():
            (configs / f"{name}.json").write_text(json.dumps(config(shape), indent=2) + "\n")
            for make in (transformers_model, lambda shape: (Llama(shape), "torch", torch.__version__)):
                had = len(ROWS)
                try:
                    launch_ns = rows_of(name, shape, *make(shape), launch_ns)
                except Exception as problem:
                    print(f"{name}: {problem!r}", flush=True)
                if len(ROWS) > had:
                    break
            if IS_CUDA:
                torch.cuda.empty_cache()
            print(f"{name}: {len(ROWS)} rows, {time.monotonic() - BEGUN:.1f} s", flush=True)
            write(out)
    return 0 if ROWS else 1


def write(path):
    with open(path, "w", newline="", encoding="utf-8") as file:
        names = list(dict.fromkeys(name for one in ROWS for name in one))
        writer = csv.DictWriter(file, names)
        writer.writeheader()
        writer.writerows(ROWS)


BEGUN = time.monotonic()
if __name__ == "__main__":
    sys.exit(main())
