"""Launches kernels, then ends with an error of its own."""

import torch

x = torch.ones(1 << 20, device="cuda").sum().item()
raise SystemExit(f"the sum is {x}, not what was expected")
