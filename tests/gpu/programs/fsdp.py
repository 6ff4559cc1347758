"""Trains with fully sharded parameters and NCCL, one process a GPU: `torchrun --nproc-per-node N fsdp.py`. In each step every
layer is gathered forward and again backward, and its gradient is reduced and scattered."""

import os

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

LAYERS, WIDTH, BATCH, STEPS = 8, 4096, 2048, 10
rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(rank)
dist.init_process_group("nccl")
torch.manual_seed(0)
model = torch.nn.Sequential(*[torch.nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(LAYERS)]).cuda()
for layer in model:
    fully_shard(layer, reshard_after_forward=True)
# It has no parameters of its own: only the layers are gathered.
fully_shard(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
torch.manual_seed(rank)
for step in range(STEPS):
    with torch.cuda.nvtx.range("step"):
        batch = torch.randn(BATCH, WIDTH, device="cuda")
        with torch.cuda.nvtx.range("forward"):
            loss = model(batch).square().mean()
        with torch.cuda.nvtx.range("backward"):
            loss.backward()
        with torch.cuda.nvtx.range("optimizer"):
            optimizer.step()
            optimizer.zero_grad()
        with torch.cuda.nvtx.range("read_loss"):
            loss.item()
print("rank", rank, "loss", loss.item())
dist.destroy_process_group()
