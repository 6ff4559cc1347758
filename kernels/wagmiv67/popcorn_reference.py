"""Data and reference of the grouped NVFP4 GEMM for Python kernels (`custom_kernel(data)`).

data = (abc, sfasfb, sfasfb_reordered, problem_sizes), the first three with an entry for each group:
  abc               a [m, k/2, l] and b [n, k/2, l], packed codes, K-major; c [m, n, l] f16, N-major, for the result
  sfasfb            scales [m, k/16, l] and [n, k/16, l], E4M3, on the CPU
  sfasfb_reordered  the same on the GPU in blocks, [32, 4, rows/128, 4, k/64, l]; rows of padding hold numbers too
  problem_sizes     (m, n, k, l) of each group

Codes are 0, 0.5, 1, 1.5 of either sign and scales 1 and 2: every sum is exact in f32, in any order.
"""

import torch

VALUES = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]


def packed(rows, k, l, device):
    """Two codes a byte, as torch's own type where that can be copied."""
    codes = torch.randint(0, 256, (l, rows, k // 2), dtype=torch.uint8, device=device) & 0b1011_1011
    codes = codes.permute(1, 2, 0)
    try:
        named = codes.view(torch.float4_e2m1fn_x2)
        torch.empty_strided(named.shape, named.stride(), dtype=named.dtype, device=device).copy_(named)
        named.clone()
        return named
    except (AttributeError, RuntimeError):
        return codes


def scales(rows, k, l, device):
    """As rows of plain scales on the CPU, and in blocks on the GPU."""
    blocks = torch.randint(1, 3, (l, -(-rows // 128), k // 64, 32, 4, 4), device=device)
    plain = blocks.permute(0, 1, 4, 3, 2, 5).reshape(l, -1, k // 16)[:, :rows].permute(1, 2, 0)
    blocks = blocks.to(torch.float32).to(torch.float8_e4m3fn).permute(3, 4, 1, 5, 2, 0)
    return plain.to("cpu", torch.float32).to(torch.float8_e4m3fn), blocks


def generate_input(problem_sizes, seed, device="cuda"):
    torch.manual_seed(seed)
    abc, sfasfb, reordered = [], [], []
    for m, n, k, l in problem_sizes:
        c = torch.randn((l, m, n), device=device).to(torch.float16).permute(1, 2, 0)
        abc.append((packed(m, k, l, device), packed(n, k, l, device), c))
        plain, blocks = zip(scales(m, k, l, device), scales(n, k, l, device))
        sfasfb.append(plain)
        reordered.append(blocks)
    return abc, sfasfb, reordered, [tuple(sizes) for sizes in problem_sizes]


def decoded(codes, plain):
    """[l, rows, k] in f32."""
    codes = codes.view(torch.uint8).permute(2, 0, 1)
    values = torch.tensor(VALUES + [-v for v in VALUES], device=codes.device)
    both = torch.stack((codes & 15, codes >> 4), dim=-1).flatten(-2)
    scale = plain.to(torch.float32).to(codes.device).permute(2, 0, 1)
    return values[both.to(torch.int32)] * scale.repeat_interleave(16, dim=-1)


def ref_kernel(data):
    """Decodes, then a matrix product in f32 (no TF32), rounded once."""
    abc, sfasfb, _, _ = data
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = False
    try:
        return [
            torch.matmul(decoded(a, sfa), decoded(b, sfb).transpose(1, 2)).to(torch.float16).permute(1, 2, 0)
            for (a, b, _), (sfa, sfb) in zip(abc, sfasfb)
        ]
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before
