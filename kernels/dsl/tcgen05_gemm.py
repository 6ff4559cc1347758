"""D = A · Bᵀ in f16 with f32 sums on Blackwell's tensor cores, one tile a block: the smallest CuTe
DSL kernel that shows TMA, tensor memory and tcgen05, for trying `rgpu build --dsl cute` with no GPU.

It has been compiled and its SASS looked at; it was never run.
"""

import cutlass
import cutlass.cute as cute
import cutlass.pipeline as pipeline
import cutlass.utils as utils
import cutlass.utils.blackwell_helpers as blackwell
from cutlass.cute.nvgpu import cpasync, tcgen05

TILE = (128, 128, 64)
STAGES = 4
THREADS = 128


@cute.struct
class Barriers:
    loaded: cute.struct.MemRange[cutlass.Int64, 2 * STAGES]
    summed: cute.struct.MemRange[cutlass.Int64, 2]
    tensor_memory: cutlass.Int32


@cute.kernel
def tile_kernel(
    mma: cute.TiledMma,
    load_a: cute.CopyAtom,
    a: cute.Tensor,
    load_b: cute.CopyAtom,
    b: cute.Tensor,
    d: cute.Tensor,
    layout_a: cute.ComposedLayout,
    layout_b: cute.ComposedLayout,
):
    thread, _, _ = cute.arch.thread_idx()
    warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
    block_m, block_n, _ = cute.arch.block_idx()
    at = (block_m, block_n, None)

    memory = utils.SmemAllocator()
    barriers = memory.allocate(Barriers)
    smem_a = memory.allocate_tensor(
        cutlass.Float16, layout_a.outer, byte_alignment=128, swizzle=layout_a.inner
    )
    smem_b = memory.allocate_tensor(
        cutlass.Float16, layout_b.outer, byte_alignment=128, swizzle=layout_b.inner
    )
    tmem = utils.TmemAllocator(
        barriers.tensor_memory,
        barrier_for_retrieve=pipeline.NamedBarrier(barrier_id=1, num_threads=THREADS),
    )
    columns = 128
    tmem.allocate(columns)

    bytes_a_stage = cute.size_in_bytes(
        cutlass.Float16, cute.select(layout_a, mode=[0, 1, 2])
    ) + cute.size_in_bytes(cutlass.Float16, cute.select(layout_b, mode=[0, 1, 2]))
    one = pipeline.CooperativeGroup(pipeline.Agent.Thread)
    filler, taker = pipeline.PipelineTmaUmma.create(
        num_stages=STAGES,
        producer_group=one,
        consumer_group=one,
        tx_count=bytes_a_stage,
        barrier_storage=barriers.loaded.data_ptr(),
    ).make_participants()
    summer, reader = pipeline.PipelineUmmaAsync.create(
        num_stages=1,
        producer_group=one,
        consumer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread, THREADS),
        barrier_storage=barriers.summed.data_ptr(),
    ).make_participants()

    tiles_a = cute.local_tile(a, TILE, (block_m, None, None), proj=(1, None, 1))
    tiles_b = cute.local_tile(b, TILE, (None, block_n, None), proj=(None, 1, 1))
    tile_d = cute.local_tile(d, TILE, at, proj=(1, 1, None))
    of_block = mma.get_slice(0)
    parts_a = of_block.partition_A(tiles_a)
    parts_b = of_block.partition_B(tiles_b)
    part_d = of_block.partition_C(tile_d)
    operand_a = mma.make_fragment_A(smem_a)
    operand_b = mma.make_fragment_B(smem_b)
    sums_of = mma.make_fragment_C(mma.partition_shape_C(TILE[:2]))

    to_a, from_a = cpasync.tma_partition(
        load_a,
        0,
        cute.make_layout(1),
        cute.group_modes(smem_a, 0, 3),
        cute.group_modes(parts_a, 0, 3),
    )
    to_b, from_b = cpasync.tma_partition(
        load_b,
        0,
        cute.make_layout(1),
        cute.group_modes(smem_b, 0, 3),
        cute.group_modes(parts_b, 0, 3),
    )

    tmem.wait_for_alloc()
    sums = cute.make_tensor(tmem.retrieve_ptr(cutlass.Float32), sums_of.layout)

    steps = cute.size(tiles_a, mode=[2])
    if warp == 0:
        sum_slot = summer.acquire_and_advance()
        for step in cutlass.range(steps, prefetch_stages=STAGES - 2):
            slot = filler.acquire_and_advance()
            cute.copy(load_a, from_a[(None, slot.count)], to_a[(None, slot.index)], tma_bar_ptr=slot.barrier)
            cute.copy(load_b, from_b[(None, slot.count)], to_b[(None, slot.index)], tma_bar_ptr=slot.barrier)
            full = taker.wait_and_advance()
            for k in cutlass.range_constexpr(cute.size(operand_a, mode=[2])):
                here = (None, None, k, full.index)
                cute.gemm(mma, sums, operand_a[here], operand_b[here], sums)
                mma.set(tcgen05.Field.ACCUMULATE, True)
            full.release()
        sum_slot.commit()

    tmem.relinquish_alloc_permit()
    done = reader.wait_and_advance()

    load = cute.make_copy_atom(tcgen05.Ld32x32bOp(tcgen05.Repetition.x32), cutlass.Float32)
    pieces = ((cute.size(sums, mode=[0, 0]), 32),)
    sums_in = cute.zipped_divide(sums, pieces)
    d_in = cute.zipped_divide(part_d, pieces)
    copy = tcgen05.make_tmem_copy(load, sums_in[None, 0])
    mine = copy.get_slice(thread)
    from_tmem = mine.partition_S(sums_in)
    to_d = mine.partition_D(d_in)
    read = cute.make_rmem_tensor(to_d[None, None, 0].shape, cutlass.Float32)
    written = cute.make_rmem_tensor(to_d[None, None, 0].shape, cutlass.Float16)
    for piece in cutlass.range(cute.size(from_tmem, mode=[2])):
        cute.copy(copy, from_tmem[None, None, piece], read)
        written.store(read.load().to(cutlass.Float16))
        cute.autovec_copy(written, to_d[None, None, piece])
    done.release()

    pipeline.sync(barrier_id=1)
    tmem.free(tmem.retrieve_ptr(cutlass.Float32))


@cute.jit
def gemm(a: cute.Tensor, b: cute.Tensor, d: cute.Tensor):
    k_major = tcgen05.OperandMajorMode.K
    op = tcgen05.MmaF16BF16Op(
        cutlass.Float16,
        cutlass.Float32,
        (TILE[0], TILE[1], 16),
        tcgen05.CtaGroup.ONE,
        tcgen05.OperandSource.SMEM,
        k_major,
        k_major,
    )
    mma = cute.make_tiled_mma(op)
    layout_a = blackwell.make_smem_layout_a(mma, TILE, a.element_type, STAGES)
    layout_b = blackwell.make_smem_layout_b(mma, TILE, b.element_type, STAGES)
    tma = cpasync.CopyBulkTensorTileG2SOp(tcgen05.CtaGroup.ONE)
    load_a, tma_a = cute.nvgpu.make_tiled_tma_atom_A(
        tma, a, cute.select(layout_a, mode=[0, 1, 2]), TILE, mma
    )
    load_b, tma_b = cute.nvgpu.make_tiled_tma_atom_B(
        tma, b, cute.select(layout_b, mode=[0, 1, 2]), TILE, mma
    )
    grid = cute.ceil_div((*d.layout.shape, 1), TILE[:2])
    tile_kernel(mma, load_a, tma_a, load_b, tma_b, d, layout_a, layout_b).launch(
        grid=grid, block=(THREADS, 1, 1)
    )


def compile_kernel(problem_sizes):
    """Compiles for the first of `problem_sizes`, `(m, n, k)`."""
    from cutlass.cute.runtime import make_fake_compact_tensor

    m, n, k = problem_sizes[0] if problem_sizes else (512, 512, 512)
    rows = {"stride_order": (1, 0), "assumed_align": 16}
    return cute.compile(
        gemm,
        make_fake_compact_tensor(cutlass.Float16, (m, k), **rows),
        make_fake_compact_tensor(cutlass.Float16, (n, k), **rows),
        make_fake_compact_tensor(cutlass.Float16, (m, n), **rows),
    )
