"""Trains with layers that are split over the GPUs, one process a GPU: `torchrun --nproc-per-node N tensor_parallel.py`. A block
has a layer split by columns and one split by rows: one all-reduce forward and one backward."""

import os

import torch
import torch.distributed as dist

BLOCKS, WIDTH, BATCH, STEPS = 4, 4096, 2048, 10
rank, world = int(os.environ["LOCAL_RANK"]), int(os.environ["WORLD_SIZE"])
torch.cuda.set_device(rank)
dist.init_process_group("nccl")


class ReduceForward(torch.autograd.Function):
    forward = staticmethod(lambda ctx, part: summed(part))
    backward = staticmethod(lambda ctx, gradient: gradient)


class ReduceBackward(torch.autograd.Function):
    forward = staticmethod(lambda ctx, whole: whole.view_as(whole))
    backward = staticmethod(lambda ctx, part: summed(part))


def summed(part):
    whole = part.clone()
    dist.all_reduce(whole)
    return whole


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.columns = torch.nn.Linear(WIDTH, 4 * WIDTH // world, bias=False)
        self.rows = torch.nn.Linear(4 * WIDTH // world, WIDTH, bias=False)

    def forward(self, x):
        return x + ReduceForward.apply(self.rows(self.columns(ReduceBackward.apply(x)).relu()))


torch.manual_seed(rank)
model = torch.nn.Sequential(*[Block() for _ in range(BLOCKS)]).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
batch = torch.ones(BATCH, WIDTH, device="cuda", requires_grad=True)
for step in range(STEPS):
    with torch.cuda.nvtx.range("step"):
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
