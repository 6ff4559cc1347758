"""A shallow residual network: stem, two stages of residual blocks, classifier.

Small enough for a CPU, and made of what a ResNet is made of: 3×3 convolutions, folded batch
normalisation, shortcuts, pooling. `[model]` of kernel.toml says how wide and deep it is.
"""

import torch
import torch.nn.functional as F
from torch import nn

try:
    from rgpu_harness import region
except ImportError:  # run without rgpu
    from contextlib import nullcontext as region


class Block(nn.Module):
    """Two 3×3 convolutions beside a shortcut."""

    def __init__(self, inside, outside, stride):
        super().__init__()
        self.first = nn.Conv2d(inside, outside, 3, stride, 1)
        self.second = nn.Conv2d(outside, outside, 3, 1, 1)
        self.shortcut = nn.Identity() if inside == outside and stride == 1 else nn.Conv2d(inside, outside, 1, stride)

    def forward(self, x):
        return F.relu(self.second(F.relu(self.first(x))) + self.shortcut(x))


class ResNet(nn.Module):
    def __init__(self, width, blocks, classes):
        super().__init__()
        self.stem = nn.Conv2d(3, width, 7, 2, 3)
        self.stage1 = nn.Sequential(*[Block(width, width, 1) for _ in range(blocks)])
        self.stage2 = nn.Sequential(*[Block(width if i == 0 else 2 * width, 2 * width, 2 if i == 0 else 1) for i in range(blocks)])
        self.head = nn.Linear(2 * width, classes)

    def forward(self, x):
        with region("stem"):
            x = F.max_pool2d(F.relu(self.stem(x)), 3, 2, 1)
        with region("stage1"):
            x = self.stage1(x)
        with region("stage2"):
            x = self.stage2(x)
        with region("head"):
            return self.head(x.mean(dim=(2, 3)))


def build(width, blocks, classes, dtype, device):
    return ResNet(width, blocks, classes).to(device=device, dtype=dtype).eval()


def classify(model, images):
    """The logits of a batch of images."""
    return model(images)


def reference(model, images):
    """The same in double precision."""
    twin = ResNet(model.stem.out_channels, len(model.stage1), model.head.out_features)
    twin.load_state_dict(model.state_dict())
    return twin.to(device=images.device, dtype=torch.float64)(images.double())
