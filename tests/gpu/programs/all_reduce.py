"""Times an all-reduce of 512 MiB with events of torch, `torchrun --nproc-per-node N all_reduce.py`. Rank 0 prints its time
as JSON."""

import json
import os
import statistics

import torch
import torch.distributed as dist

CALLS, LOOPS = 6, 7
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl")
data, barrier = torch.ones(128 << 20, device="cuda"), torch.ones(1, device="cuda")
for _ in range(3):
    dist.all_reduce(data)
times = []
for _ in range(LOOPS):
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    dist.all_reduce(barrier)
    begin.record()
    for _ in range(CALLS):
        dist.all_reduce(data)
    end.record()
    end.synchronize()
    times.append(begin.elapsed_time(end) * 1e6 / CALLS)
if dist.get_rank() == 0:
    print(json.dumps({"ns": statistics.median(times)}))
dist.destroy_process_group()
