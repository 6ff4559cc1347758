//! `rgpu layout`: the algebra of layouts with proofs, the layouts of sm_100, and those of CuTe DSL
//! kernels. The crate `rgpu-layout` computes; here texts become layouts, and results text or JSON.

mod algebra;
mod check;
mod cta;
mod diff;
mod document;
mod dump;
mod epilogue;
mod equal;
mod eval;
mod input;
mod insights;
mod named;
mod output;
mod page;
mod scale;
mod snapshot;
mod tmem;
mod umma;

use clap::Subcommand;

use super::support::app::{App, Status};
use rgpu_model::error::Result;

#[cfg(test)]
pub(super) use document::LayoutDocument;
#[cfg(test)]
pub(super) use dump::LayoutDump;
#[cfg(test)]
pub(super) use snapshot::LayoutSnapshot;

/// Compute with layouts, with proofs: algebra, scale factors, tensor memory, epilogues
///
/// A layout is written as CuTe prints it, `((32,4),8):((16,4),1)`; a shape alone is column-major. A
/// tiler may give one layout for each mode: `<4:1,8:2>`. A swizzled layout is `S<3,4,3> o 0 o L`;
/// the swizzle acts on byte addresses, and offsets count bytes where no size of an element is
/// given. The exit status is 1 if a layout does not exist, and if a protected layout changed.
#[derive(Subcommand, Clone, Debug)]
pub(super) enum LayoutCommand {
    /// Evaluate a layout: size, image, injective, compact; offsets and pictures
    #[command(after_long_help = examples!(
        "rgpu layout eval '(4,8):(8,1)' --at '(3,2)'",
        "rgpu layout eval '((4,2),(2,1)):((2,1),(8,0))' --tile 4x4 --table",
        "rgpu layout eval '(8,8):(8,1)' --svg layout.svg --color-by bank --elem-bytes 4",
    ))]
    Eval(eval::EvalArgs),
    /// Compose two layouts: A∘B, B's coordinates through A
    #[command(after_long_help = examples!("rgpu layout compose '(4,8):(8,1)' '(8,4):(4,1)'"))]
    Compose(algebra::ComposeArgs),
    /// Complement a layout: a layout of the offsets that it skips
    #[command(after_long_help = examples!("rgpu layout complement '(4,2):(1,8)' 64"))]
    Complement(algebra::ComplementArgs),
    /// Split a layout into tiles and the rest
    #[command(after_long_help = examples!("rgpu layout divide '16:1' '4:1'"))]
    Divide(algebra::TileArgs),
    /// Repeat a layout as another one counts: the logical product
    #[command(after_long_help = examples!("rgpu layout product '(2,2):(1,2)' '3:1'"))]
    Product(algebra::TileArgs),
    /// Invert a layout: from offsets to indices
    #[command(after_long_help = examples!("rgpu layout inverse --left '(4,8):(8,1)'"))]
    Inverse(algebra::InverseArgs),
    /// Coalesce a layout: the same function with as few modes as possible
    #[command(after_long_help = examples!("rgpu layout coalesce '(2,(1,6)):(1,(6,2))'"))]
    Coalesce(algebra::CoalesceArgs),
    /// Drop the modes of stride 0 of a layout, and coalesce it
    #[command(after_long_help = examples!("rgpu layout filter '(4,8):(0,1)'"))]
    Filter(algebra::FilterArgs),
    /// Recast a layout: the same bytes as elements of another width
    #[command(after_long_help = examples!(
        "rgpu layout recast '(8,16):(16,1)' --from 16 --to 32",
    ))]
    Recast(algebra::RecastArgs),
    /// Compare two layouts: a proof that they are equal, or the first coordinate where they differ
    #[command(after_long_help = examples!("rgpu layout equal '(4,8):(8,1)' '(4,(4,2)):(8,(1,4))'"))]
    Equal(equal::EqualArgs),
    /// Count the sectors of global memory and the bank conflicts that accesses of warps cause
    #[command(after_long_help = examples!(
        "rgpu layout check '32:32' --elem-bytes 4 --access smem",
    ))]
    Check(check::CheckArgs),
    /// Place scale factors of NVFP4 and MXFP4, with proofs, and explain a wrong dumped buffer
    #[command(after_long_help = examples!(
        "rgpu layout sf --mn 384 --k 512 --file sfb.bin --expect plain.bin",
    ))]
    Sf(scale::ScaleArgs),
    /// Check whether accumulators and scales fit into tensor memory, and what to change
    #[command(after_long_help = examples!("rgpu layout tmem --tile 128x128x256 --acc-stages 2"))]
    Tmem(tmem::TmemArgs),
    /// Encode and decode the descriptors of `tcgen05.mma`: matrices in shared memory, instructions
    #[command(subcommand)]
    Umma(umma::UmmaCommand),
    /// Analyse how an epilogue reads tensor memory and what its stores cost
    #[command(after_long_help = examples!(
        "rgpu layout epilogue --tile 128x128 --elem-bytes 2 --ldc 4096 --search --top-k 2",
    ))]
    Epilogue(epilogue::EpilogueArgs),
    /// Find the tile of grouped problems that a block computes, with a proof and as code
    #[command(after_long_help = examples!(
        "rgpu layout cta --groups '80,4096;40,7168' --tile 128x128 --block 5",
    ))]
    Cta(cta::CtaArgs),
    /// Print the layouts of a CuTe DSL kernel, by the DSL and by our formulas; no GPU needed
    Dump(dump::DumpArgs),
    /// Report what stands out in dumped layouts
    #[command(after_long_help = examples!("rgpu layout insights layouts.json"))]
    Insights(insights::InsightsArgs),
    /// Record the layouts of a kernel, to compare later ones with them
    #[command(after_long_help = examples!(
        "rgpu layout snapshot kernel.py --shape 80,4096,7168,1 --out layouts.json",
    ))]
    Snapshot(snapshot::SnapshotArgs),
    /// Compare two snapshots; exit 1 if a protected layout changed
    #[command(after_long_help = examples!(
        "rgpu layout diff layouts.json new.json --protect sfb_smem",
    ))]
    Diff(diff::DiffArgs),
}

pub(super) fn run(app: &App, command: &LayoutCommand) -> Result<Status> {
    match command {
        LayoutCommand::Eval(args) => eval::run(app, args),
        LayoutCommand::Compose(args) => algebra::compose(app, args),
        LayoutCommand::Complement(args) => algebra::complement(app, args),
        LayoutCommand::Divide(args) => algebra::divide(app, args),
        LayoutCommand::Product(args) => algebra::product(app, args),
        LayoutCommand::Inverse(args) => algebra::inverse(app, args),
        LayoutCommand::Coalesce(args) => algebra::coalesce(app, args),
        LayoutCommand::Filter(args) => algebra::filter(app, args),
        LayoutCommand::Recast(args) => algebra::recast(app, args),
        LayoutCommand::Equal(args) => equal::run(app, args),
        LayoutCommand::Check(args) => check::run(app, args),
        LayoutCommand::Sf(args) => scale::run(app, args),
        LayoutCommand::Tmem(args) => tmem::run(app, args),
        LayoutCommand::Umma(command) => umma::run(app, command),
        LayoutCommand::Epilogue(args) => epilogue::run(app, args),
        LayoutCommand::Cta(args) => cta::run(app, args),
        LayoutCommand::Dump(args) => dump::run(app, args),
        LayoutCommand::Insights(args) => insights::run(app, args),
        LayoutCommand::Snapshot(args) => snapshot::run(app, args),
        LayoutCommand::Diff(args) => diff::run(app, args),
    }
}
