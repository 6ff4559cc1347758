"""Profiles a function of PyTorch over a sweep, on the GPU host."""

import rgpu


@rgpu.kernel(sweep={"n": [1024, 4096]}, mode="nsys", dependencies=["torch"])
def matmul(n: int) -> None:
    import torch

    a = torch.randn(n, n, device="cuda")
    with rgpu.annotate("product"):
        torch.matmul(a, a)


if __name__ == "__main__":
    sweep = matmul()
    for point in sweep:
        for region in point.regions:
            print(point.arguments, "::".join(region.path[1:]), region.gpu_ns)
