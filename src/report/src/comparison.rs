//! Renders a comparison for a terminal and as Markdown. The JSON form is the document itself.
//!
//! It is not in [`super::REPORTS`], since those render a single profile.

mod sections;
mod words;

use super::blocks::{Block, to_markdown, to_text};
use super::{KernelNames, Style};
use rgpu_model::Comparison;

/// Renders a comparison for a terminal: the verdict, then the evidence. It ends with a newline.
pub fn table(c: &Comparison, style: &Style) -> String {
    let verdict = style.paint_verdicts(c.verdict.as_str());
    format!("{verdict}\n{}", to_text(&sections::report(c, style.names, false).0, style))
}

/// Renders a comparison as Markdown, for `compare.md`. Sections without data say why.
pub fn markdown(c: &Comparison, names: KernelNames) -> String {
    let title = format!("{} against {}", c.b.name, c.a.name);
    let mut blocks = vec![Block::Title(c.verdict.as_str().to_owned(), title)];
    blocks.extend(sections::report(c, names, true).0);
    to_markdown(&blocks)
}
