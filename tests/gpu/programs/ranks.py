"""Trains on several ranks, `torchrun --nproc-per-node N ranks.py [sleep|slow|hang]`: NCCL with a GPU for each rank, else gloo
with all ranks on one GPU. `sleep`: rank 1 sleeps 0.1 s in the range load_batch of step 6. `slow`: it computes four times
as much in each forward pass. `hang`: it never comes to the all-reduce of step 6."""

import os
import sys
import time

import torch
import torch.distributed as dist

fault = sys.argv[1] if len(sys.argv) > 1 else ""
rank = int(os.environ["LOCAL_RANK"])
own_gpu = torch.cuda.device_count() >= int(os.environ["WORLD_SIZE"])
torch.cuda.set_device(rank if own_gpu else 0)
dist.init_process_group("nccl" if own_gpu else "gloo")
a = torch.randn(4096, 4096, device="cuda")
gradient = torch.ones(16 << 20, device="cuda" if own_gpu else "cpu")
for _ in range(3):
    dist.all_reduce(gradient)
a = (a @ a).mul_(1e-3)
torch.cuda.synchronize()
for step in range(12):
    with torch.cuda.nvtx.range("step"):
        with torch.cuda.nvtx.range("load_batch"):
            if fault == "sleep" and rank == 1 and step == 6:
                time.sleep(0.1)
            if fault == "hang" and rank == 1 and step == 6:
                time.sleep(3600)
        with torch.cuda.nvtx.range("forward"):
            for _ in range(16 if fault == "slow" and rank == 1 else 4):
                a = (a @ a).mul_(1e-3)
        if not own_gpu:
            torch.cuda.synchronize()
        dist.all_reduce(gradient)
        with torch.cuda.nvtx.range("read_loss"):
            # As programs do that log their loss. Without it the queue of launches hides a late host.
            gradient[0].item()
torch.cuda.synchronize()
print("rank", rank, "own GPU", own_gpu)
dist.destroy_process_group()
