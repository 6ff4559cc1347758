//! A comparison made readable: for a terminal and as Markdown. Its JSON is the document itself.
//!
//! It is no entry of [`super::REPORTS`]: those are of one profile, this is of two.

mod markdown;
mod table;
mod words;

pub use markdown::markdown;
pub use table::table;
