"""A chain of small kernels, replayed as a CUDA graph 50 times."""

import torch

torch.manual_seed(0)
layers = torch.nn.Sequential(*[torch.nn.Sequential(torch.nn.Linear(512, 512), torch.nn.ReLU()) for _ in range(12)])
layers = layers.cuda().half().eval()
x = torch.randn(32, 512, device="cuda", dtype=torch.half)
with torch.inference_mode():
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            layers(x)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = layers(x)
    for _ in range(50):
        graph.replay()
torch.cuda.synchronize()
print("sum", y.float().sum().item())
