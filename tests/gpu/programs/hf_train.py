"""Trains a small GPT-2 of random weights by Hugging Face's model code and torch's AdamW, 8 steps."""

import torch
from transformers import GPT2Config, GPT2LMHeadModel

torch.manual_seed(0)
model = GPT2LMHeadModel(GPT2Config(n_embd=768, n_layer=6, n_head=12, vocab_size=32000)).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
tokens = torch.randint(0, 32000, (8, 512), device="cuda")
for _ in range(8):
    with torch.autocast("cuda", torch.bfloat16):
        loss = model(tokens, labels=tokens).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
print("loss", loss.item())
