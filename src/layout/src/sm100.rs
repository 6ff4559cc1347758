//! Layouts that sm_100 demands: scale factors, operands in shared memory, tensor memory.
//!
//! Sources: the PTX ISA (tcgen05, matrix descriptors), CUTLASS's documented block of 128 rows by
//! four scales in 512 bytes, and layouts that CuTe DSL 4.4.0 and 4.8.1 print for `mxf4nvf4`
//! kernels. The last are in `tests/data/golden_layouts.json`, and the formulas here return each of
//! them.

mod bundle;
mod descriptor;
mod epilogue;
mod scale;
mod scale_check;
mod scale_order;
mod tile;
mod tmem;

pub use bundle::{ProblemShape, bundle};
pub use descriptor::{
    DescriptorError, ElementFormat, InstructionDescriptor, MatrixDescriptor, ScaleType, SmemSwizzle,
};
pub use epilogue::{EpilogueError, EpilogueTile, LoadLanes, TmemLoad};
pub use scale::{ScaleError, ScaleProof, ScaleTensor};
pub use scale_check::{BufferCheck, BufferError, ScaleLayoutError, WrongScale, check_buffer};
pub use tile::{
    MmaTile, TileError, accumulator_layout, operand_smem, scale_smem, scale_tmem, smem_swizzle,
};
pub use tmem::{
    Advice, Order, RequestError, Segment, SegmentKind, TMEM_COLUMNS, TmemBudget, TmemRequest,
    budget,
};
