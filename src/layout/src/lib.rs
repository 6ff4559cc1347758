//! Layout algebra with proofs, and the layouts that sm_100 demands.
//!
//! A [`Layout`] maps coordinates to offsets, in CuTe's notation `S:D`. Every operation returns its
//! result with a [`Proof`], checked after the result was computed, or a [`Rejection`] that names
//! the mode, the condition and a point that shows it. Nothing here does I/O, nothing panics on any
//! input, and [`Limits`] bound the work.
//!
//! [`sm100`] has scale factors, descriptors and tensor memory, [`access`] sectors and bank
//! conflicts, [`blocks`] the tiles of grouped problems, [`picture`] drawings.

pub mod access;
pub mod blocks;
mod coalesce;
mod complement;
mod compose;
mod divide;
mod element;
mod f2;
mod identity;
mod insights;
mod inverse;
mod layout;
mod parse;
pub mod picture;
mod proof;
mod properties;
mod recast;
mod schema;
pub mod sm100;
mod swizzle;

pub use coalesce::{Difference, Equality, coalesce, coalesce_by_mode, equal, filter, filter_zeros};
pub use complement::complement;
pub use compose::compose;
pub use divide::{Grouping, Tiler, compose_tiler, divide, product};
pub use element::{ElementSize, ElementSizeError};
pub use f2::{F2Matrix, f2_matrix};
pub use identity::{Change, Identity, Level, compare, identity};
pub use insights::{EpilogueCheck, LayoutInsight, epilogue_checks, insight};
pub use inverse::{left_inverse, right_inverse};
pub use layout::{
    Coordinate, Layout, LayoutError, LeafCoordinate, MAX_DEPTH, Mode, Modes, Offsets, Tree,
};
pub use parse::ParseError;
pub use proof::{Condition, Limits, Method, ModeName, Proof, ProvenLayout, Rejection, Witness};
pub use properties::{Properties, injective, properties};
pub use recast::recast;
pub use swizzle::{Swizzle, SwizzleError, SwizzledLayout, equal_swizzled};
