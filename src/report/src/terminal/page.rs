//! Builds the terminal report: lines, labelled fields and tables, wrapped to the terminal's width.

use crate::kernel_name::KernelLabels;
use crate::text::wrap;
use crate::{Style, TextTable};
use rgpu_model::error::is_line_break;

/// The lines of a foreign text, wrapped: its own line breaks begin continuation lines, too.
fn lines(text: &str, room: usize) -> impl Iterator<Item = String> {
    text.split(is_line_break).flat_map(move |line| wrap(line, room))
}

/// The text so far, its style and the names of its kernels.
pub(super) struct Page<'a> {
    pub(super) out: String,
    pub(super) style: &'a Style,
    pub(super) names: KernelLabels<'a>,
}

impl Page<'_> {
    pub(super) fn line(&mut self, text: &str) {
        self.out.push_str(text.trim_end());
        self.out.push('\n');
    }

    /// Adds text; continuation lines are indented.
    pub(super) fn wrapped(&mut self, text: &str) {
        for (at, part) in lines(text, self.style.width - 4).enumerate() {
            self.line(&format!("{}{part}", if at == 0 { "" } else { "    " }));
        }
    }

    /// Adds a labelled line; continuation lines are aligned with the text.
    pub(super) fn field(&mut self, label: &str, text: &str) {
        self.painted_field(label, text, "");
    }

    /// Like [`Page::field`], with the text in a colour.
    pub(super) fn painted_field(&mut self, label: &str, text: &str, sgr: &str) {
        let room = self.style.width.saturating_sub(14).max(30);
        for (at, part) in lines(text, room).enumerate() {
            let label = if at == 0 { label } else { "" };
            let part = if sgr.is_empty() { part } else { self.paint(sgr, &part) };
            self.line(&format!("  {label:<11} {part}"));
        }
    }

    /// The text in bold if colours are enabled.
    pub(super) fn bold(&self, text: &str) -> String {
        self.paint("1", text)
    }

    /// The text in a colour if colours are enabled.
    pub(super) fn paint(&self, sgr: &str, text: &str) -> String {
        self.style.paint(sgr, text)
    }

    /// Adds a titled table; nothing if it has no rows.
    pub(super) fn table(&mut self, title: &str, table: TextTable) {
        self.titled(title, &table.without_empty_columns().plain(self.style.width, 4));
    }

    /// Adds a titled table as [`TextTable::fitted_with_words`] renders it.
    pub(super) fn table_with_words(
        &mut self,
        title: &str,
        table: &TextTable,
        wrapped_column: &str,
        least: usize,
    ) {
        self.titled(title, &table.fitted_with_words(self.style.width, 4, wrapped_column, least));
    }

    fn titled(&mut self, title: &str, text: &str) {
        if !text.is_empty() {
            self.line("");
            let title = self.bold(title);
            self.line(&format!("  {title}"));
            self.out.push_str(text);
        }
    }
}
