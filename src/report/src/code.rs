//! Renders the code of kernels: the output of `rgpu disasm --view`, control flow as Graphviz and
//! SVG, and one page with source, PTX and SASS side by side. All are pure functions of a
//! [`CodeDocument`](rgpu_model::code::CodeDocument).

mod dot;
mod graph_layout;
mod live;
mod mix;
mod page;
mod source;
mod svg;

pub use dot::dot;
pub use live::live;
pub use mix::mix;
pub use page::page;
pub use source::{ExtraColumn, source};
pub use svg::svg;
