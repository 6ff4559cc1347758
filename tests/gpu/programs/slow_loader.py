"""A training step that waits for its data: each batch is made on the CPU by one thread."""

import torch

torch.manual_seed(0)
torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Linear(4096, 4096), torch.nn.GELU(), torch.nn.Linear(4096, 4096)).cuda()
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(20):
    batch = torch.randn(1024, 4096).cuda()
    loss = model(batch).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
print("loss", loss.item())
