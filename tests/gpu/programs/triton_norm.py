"""RMS norm in Triton over rows of 8192, called 50 times."""

import torch
import triton
import triton.language as tl


@triton.jit
def rms_norm(x, weight, out, columns, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    inside = at < columns
    values = tl.load(x + row * columns + at, mask=inside, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(values * values) / columns + eps)
    tl.store(out + row * columns + at, values * scale * tl.load(weight + at, mask=inside), mask=inside)


torch.manual_seed(0)
x = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
weight = torch.ones(8192, device="cuda")
out = torch.empty_like(x)
for _ in range(50):
    rms_norm[(8192,)](x, weight, out, 8192, 1e-6, BLOCK=8192)
torch.cuda.synchronize()
print("mean square", out.float().square().mean().item())
