"""Trains with DistributedDataParallel and NCCL, one process a GPU: `torchrun --nproc-per-node N ddp.py`."""

import os

import torch
import torch.distributed as dist

rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(rank)
dist.init_process_group("nccl")
torch.manual_seed(0)
model = torch.nn.Sequential(*[torch.nn.Linear(2048, 2048) for _ in range(8)]).cuda()
model = torch.nn.parallel.DistributedDataParallel(model, device_ids=[rank])
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(10):
    loss = model(torch.randn(512, 2048, device="cuda")).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
print("rank", rank, "loss", loss.item())
dist.destroy_process_group()
