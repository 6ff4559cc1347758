"""Trains a convolutional network on random images with torch, SGD, 20 steps."""

import torch
from torchvision.models import resnet18

torch.manual_seed(0)
model = resnet18().cuda().to(memory_format=torch.channels_last)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
loss_of = torch.nn.CrossEntropyLoss()
for _ in range(20):
    images = torch.randn(64, 3, 224, 224, device="cuda").to(memory_format=torch.channels_last)
    labels = torch.randint(0, 1000, (64,), device="cuda")
    with torch.autocast("cuda", torch.bfloat16):
        loss = loss_of(model(images), labels)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
print("loss", loss.item())
