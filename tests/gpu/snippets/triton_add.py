"""A Triton kernel, compiled and launched on the host."""

import torch
import triton
import triton.language as tl


@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = i < n
    tl.store(out + i, tl.load(x + i, mask) + tl.load(y + i, mask), mask)


n = 100_003
x, y = torch.arange(n, device="cuda", dtype=torch.float32), torch.ones(n, device="cuda")
out = torch.empty_like(x)
add[(triton.cdiv(n, 1024),)](x, y, out, n, BLOCK=1024)
torch.cuda.synchronize()
print("triton", triton.__version__, "equal" if torch.equal(out, x + y) else "different")
raise SystemExit(not torch.equal(out, x + y))
