"""Profiles a function of PyTorch over a sweep, on the GPU host."""

import sys

import rgpu


@rgpu.kernel(sweep={"n": [1024, 4096]}, mode="nsys", dependencies=["torch", "nvtx"])
def matmul(n: int) -> None:
    import torch

    a = torch.randn(n, n, device="cuda")
    with rgpu.annotate("product"):
        torch.matmul(a, a)


if __name__ == "__main__":
    try:
        sweep = matmul()
    except rgpu.KernelError as error:
        # Such as on a host without a GPU.
        sys.exit(str(error))
    for point in sweep:
        for region in point.regions:
            # The first part of the path is the point: `matmul(n=1024)`.
            print("::".join(region.path), region.gpu_ns)
