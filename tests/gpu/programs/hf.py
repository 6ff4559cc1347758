"""A Hugging Face Llama of random weights: prefill of 4 x 512 tokens, then 16 decode steps."""

import torch
from torch.cuda import nvtx
from transformers import LlamaConfig, LlamaForCausalLM

torch.manual_seed(0)
config = LlamaConfig(hidden_size=1024, intermediate_size=2816, num_hidden_layers=8, num_attention_heads=16,
                     num_key_value_heads=16, vocab_size=32000, max_position_embeddings=2048)
model = LlamaForCausalLM(config).to("cuda", torch.bfloat16).eval()
prompt = torch.randint(0, 32000, (4, 512), device="cuda")
with torch.inference_mode():
    with nvtx.range("prefill"):
        out = model(prompt, use_cache=True)
    with nvtx.range("decode"):
        for _ in range(16):
            with nvtx.range("step"):
                token = out.logits[:, -1].argmax(-1, keepdim=True)
                out = model(token, past_key_values=out.past_key_values, use_cache=True)
torch.cuda.synchronize()
print("last tokens", token.flatten().tolist())
