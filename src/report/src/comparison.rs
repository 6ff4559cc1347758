//! Renders a comparison for a terminal and as Markdown. The JSON form is the document itself.
//!
//! It is not in [`super::REPORTS`], since those render a single profile.

mod markdown;
mod table;
mod words;

pub use markdown::markdown;
pub use table::table;
