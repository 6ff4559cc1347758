"""Compares attention by torch on the GPU with the same in double precision."""

import torch

torch.manual_seed(0)
q, k, v = (torch.randn(2, 4, 256, 64, device="cuda") for _ in range(3))
got = torch.nn.functional.scaled_dot_product_attention(q, k, v)
scores = (q.double() @ k.double().transpose(-1, -2)) / 8
want = scores.softmax(-1) @ v.double()
worst = (got - want).abs().max().item()
print(torch.cuda.get_device_name(), f"largest error {worst:.1e}")
raise SystemExit(worst > 1e-2)
