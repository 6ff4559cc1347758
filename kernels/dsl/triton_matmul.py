"""D = A · Bᵀ in f16 with f32 sums, the plain Triton way: on Blackwell its `tl.dot` becomes tcgen05.
For trying `rgpu build --dsl triton` with no GPU.
"""

import triton
import triton.language as tl

TILE = {"M": 128, "N": 128, "K": 64}


@triton.jit
def matmul(a_ptr, b_ptr, d_ptr, m, n, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    rows = tl.program_id(0) * M + tl.arange(0, M)
    columns = tl.program_id(1) * N + tl.arange(0, N)
    inner = tl.arange(0, K)
    a_at = a_ptr + rows[:, None] * k + inner[None, :]
    b_at = b_ptr + inner[:, None] + columns[None, :] * k
    inside_a, inside_b = rows[:, None] < m, columns[None, :] < n
    sums = tl.zeros((M, N), dtype=tl.float32)
    for step in range(0, k, K):
        within = step + inner < k
        a = tl.load(a_at, mask=inside_a & within[None, :], other=0.0)
        b = tl.load(b_at, mask=inside_b & within[:, None], other=0.0)
        sums = tl.dot(a, b, sums)
        a_at += K
        b_at += K
    out = d_ptr + rows[:, None] * n + columns[None, :]
    tl.store(out, sums.to(tl.float16), mask=inside_a & inside_b)


def compile_kernel(problem_sizes):
    """One kernel for all sizes: they are arguments."""
    half, size = "*fp16", "i32"
    signature = dict(a_ptr=half, b_ptr=half, d_ptr=half, m=size, n=size, k=size)
    return matmul, signature, TILE, {"num_warps": 8}
