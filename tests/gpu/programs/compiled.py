"""torch.compile on a transformer block: Triton kernels made by Inductor between cuBLAS GEMMs."""

import torch

torch.manual_seed(0)
block = torch.nn.TransformerEncoderLayer(1024, 16, 4096, dropout=0.0, activation="gelu", batch_first=True,
                                         norm_first=True, device="cuda", dtype=torch.bfloat16)
step = torch.compile(block)
x = torch.randn(8, 1024, 1024, device="cuda", dtype=torch.bfloat16)
for _ in range(10):
    y = step(x)
    y.sum().backward()
torch.cuda.synchronize()
print("mean", y.float().mean().item())
