#!/usr/bin/env python3
"""Compares a layer of Llama 2 7B on an H100 as `rgpu model`, calculon and vidur predict it.

    git clone https://github.com/calculon-ai/calculon && git -C calculon checkout caa4b11f
    git clone https://github.com/microsoft/vidur && git -C vidur checkout 7d475133
    python3 -m venv env && env/bin/pip install psutil numpy pandas scikit-learn wandb plotly_express ddsketch fasteners kaleido
    env/bin/python benches/model_peers_layers.py RGPU CALCULON VIDUR

calculon (Apache-2.0) is taken from its repository; `calculon` on PyPI is another program. It has no gated MLP: two matrices
of 1.5 times the width have as many weights. It runs the prompt of a GPT block twice: in its mode `roofline`, at full
efficiency, with the peak and the bandwidth of rgpu's catalogue; and with its own file for the H100, which has its own.

vidur (MIT) predicts each operation from its table of times on an H100 with a random forest. Its loader and its kind of
estimator are used, without its search for the forest's parameters. Only the products and the all-reduce are compared.
"""

import copy
import json
import logging
import subprocess
import sys
import types
from pathlib import Path

sys.path.pop(0)  # this folder, whose queue.py would hide Python's own

HIDDEN, INNER, HEADS, HEAD, LAYERS, VOCABULARY = 4096, 11008, 32, 128, 32, 32768
PROMPT, GPUS, ELEMENT = 2048, 8, 2
TOKENS = (1, 32, 256, 2048)
# vidur has padded the vocabulary.
# Products of a layer: rgpu's n and k, and vidur's name. vidur times Q, K and V as one product, gate and up as another.
PRODUCTS = {"Q, K and V": (3 * HIDDEN, HIDDEN, "attn_pre_proj"), "out": (HIDDEN, HIDDEN, "attn_post_proj"),
            "gate and up": (2 * INNER, HIDDEN, "mlp_up_proj"), "down": (HIDDEN, INNER, "mlp_down_proj")}


class Rgpu:
    """Bounds and times of rgpu without a calibration, in ns."""

    def __init__(self, program):
        self.program = program

    def ask(self, *args):
        command = [self.program, "model", *args, "--gpu", "h100", "--json"]
        found = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
        return found["bound_ns"], found["time_ns"]

    def product(self, m, n, k):
        return self.ask("kernel", "gemm", "--mnk", f"{m},{n},{k}")

    def all_reduce(self, size):
        return self.ask("coll", "allreduce", "--bytes", str(size), "--gpus", str(GPUS))


def calculon_block(folder, system, gpus):
    """One block of a forward pass: FLOPs and ns of its linear layers, and ns of one all-reduce."""
    sys.path.insert(0, str(folder))
    from calculon.llm import Llm
    from calculon.system import System

    execution = dict.fromkeys(Llm.Execution.fields(), 0) | {
        "num_procs": gpus, "tensor_par": gpus, "pipeline_par": 1, "data_par": 1, "batch_size": 1, "microbatch_size": 1,
        "datatype": "float16", "fused_activation": False, "attention_type": "multihead", "activation_recompute": "none",
        "pipeline_interleaving": 1, "optimizer_sharding": False, "tensor_par_comm_type": "ar", "tensor_par_overlap": "none",
        "seq_par_ag_redo": False, "data_par_overlap": False, "weight_offload": False, "activations_offload": False,
        "optimizer_offload": False, "training": False}
    model = Llm(Llm.Application({"hidden": HIDDEN, "feedforward": INNER * 3 // 2, "seq_size": PROMPT, "attn_heads": HEADS, "attn_size": HEAD,
                                 "num_blocks": LAYERS}), logging.getLogger())
    machine = System(system)
    model.compile(machine, Llm.Execution.from_json(execution))
    model.run(machine)
    layers = model.get_stats_json(True)["layers"]
    linear = [layer for layer in layers if layer["name"] in ("AttnBlock_Query", "AttnBlock_Key", "AttnBlock_Value", "AttnBlock_MLP",
                                                             "MlpBlock_Mlp1", "MlpBlock_Mlp2")]
    assert len(linear) == 6, [layer["name"] for layer in layers]
    reductions = [layer["baseblock_fw_tp_comm_time"] for layer in layers if layer["baseblock_fw_tp_comm_time"]]
    return (sum(layer["fw_flops"] for layer in linear), 1e9 * sum(layer["fw_processing_time"] for layer in linear),
            1e9 * max(reductions, default=0.0))


def ideal(system, peak, bandwidth):
    """The system at full efficiency, where computing and moving overlap."""
    system = copy.deepcopy(system)
    system["processing_mode"] = "roofline"
    system["matrix"]["float16"] = {"tflops": peak / 1e12, "gflops_efficiency": [[0, 1.0]]}
    system["mem1"] |= {"GBps": bandwidth / 1e9, "MB_efficiency": [[0, 1.0]]}
    return system


class Vidur:
    """Predictions of vidur's random forests, in ns."""

    def __init__(self, folder):
        sys.path.insert(0, str(folder))
        from vidur.execution_time_predictor.random_forrest_execution_time_predictor import RandomForrestExecutionTimePredictor as Forest

        forest = Forest.__new__(Forest)  # its __init__ also wants tables of attention
        forest._model_config = types.SimpleNamespace(num_q_heads=HEADS, num_kv_heads=HEADS, embedding_dim=HIDDEN, mlp_hidden_dim=INNER,
                                                     use_gated_mlp=True, vocab_size=VOCABULARY)
        forest._replica_config = types.SimpleNamespace(tensor_parallel_size=1)
        self.forest, self.tables = forest, folder / "data/profiling"
        self.compute = forest._load_compute_df(self.tables / "compute/h100/meta-llama/Llama-2-7b-hf/mlp.csv")

    def fitted(self, table, feature, target, value):
        estimator = self.forest._get_estimator().set_params(random_state=0)
        estimator.fit(table[[feature]].to_numpy(), table[target])
        return 1e6 * float(estimator.predict([[value]])[0])

    def product(self, name, tokens):
        return self.fitted(self.compute, "num_tokens", f"time_stats.{name}.median", tokens)

    def all_reduce(self, size):
        import pandas

        table = pandas.read_csv(self.tables / "network/h100_dgx/all_reduce.csv")
        return self.fitted(table[table["num_workers"] == GPUS], "size", "time_stats.all_reduce.median", size)


def us(ns):
    return f"{ns / 1e3:9.1f}"


def main():
    rgpu, calculon, vidur = Rgpu(sys.argv[1]), Path(sys.argv[2]), Vidur(Path(sys.argv[3]))
    size = PROMPT * HIDDEN * ELEMENT
    sums = [rgpu.product(PROMPT, n, k) for n, k, _ in PRODUCTS.values()]
    flops = sum(2 * PROMPT * n * k for n, k, _ in PRODUCTS.values())
    system = json.loads((calculon / "systems/h100_80g_nvl8.json").read_text())
    own = calculon_block(calculon, system, 1)
    full = calculon_block(calculon, ideal(system, 989.4e12, 3.35e12), 1)
    reduce = calculon_block(calculon, system, GPUS)[2]
    bound, time = rgpu.all_reduce(size)
    print(f"{'us':44}{'rgpu, bound':>12}{'rgpu, time':>12}{'calculon':>12}{'vidur':>12}")
    line = lambda name, *cells: print(f"{name:44}" + "".join(f"{cell:>12}" for cell in cells))
    line("FLOPs of the linear layers, 2048 tokens", f"{flops / 1e9:.1f} G", "", f"{own[0] / 1e9:.1f} G")
    line("linear layers, 2048 tokens, ideal", us(sum(bound for bound, _ in sums)), "", us(full[1]))
    line("linear layers, 2048 tokens", us(sum(bound for bound, _ in sums)), us(sum(time for _, time in sums)), us(own[1]),
         us(sum(vidur.product(name, PROMPT) for *_, name in PRODUCTS.values())))
    line(f"all-reduce of {size / 1e6:.1f} MB, {GPUS} GPUs", us(bound), us(time), us(reduce), us(vidur.all_reduce(size)))
    for tokens in TOKENS:
        for name, (n, k, table) in PRODUCTS.items():
            bound, time = rgpu.product(tokens, n, k)
            line(f"{name}, {tokens} tokens", us(bound), us(time), "", us(vidur.product(table, tokens)))


if __name__ == "__main__":
    main()
