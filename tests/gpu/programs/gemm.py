"""Large matrix products by cuBLAS: 8192^3 in bfloat16, and a thin one."""

import torch

torch.manual_seed(0)
a = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
thin = torch.randn(8192, 64, device="cuda", dtype=torch.bfloat16)
for _ in range(10):
    c = a @ a
    d = a @ thin
torch.cuda.synchronize()
print("sum", c.float().abs().mean().item(), d.float().abs().mean().item())
