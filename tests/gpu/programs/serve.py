"""A server that never ends: it multiplies until it is told to stop."""

import torch

a = torch.randn(2048, 2048, device="cuda", dtype=torch.bfloat16)
try:
    while True:
        b = a @ a
        torch.cuda.synchronize()
except KeyboardInterrupt:
    print("stopped as asked", b.shape)
