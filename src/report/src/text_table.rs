//! Renders tables: aligned columns for terminals, or Markdown.

use std::borrow::Cow;

use comfy_table::{
    Cell, CellAlignment, ColumnConstraint, ContentArrangement, Table, Width, presets,
};

use super::blocks::plain;
use rgpu_model::error::is_line_break;

/// The alignment of a column: texts at the left, numbers at the right, so that their digits line
/// up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Align {
    Left,
    Right,
}

/// A table for terminals and Markdown.
#[derive(Clone, Debug, Default)]
pub struct TextTable {
    head: Vec<(String, Align)>,
    rows: Vec<Vec<String>>,
}

impl TextTable {
    /// A table with the columns of `head`: `kernel | launches: | total:`. A column of numbers ends
    /// in a colon, as in Markdown.
    pub fn new(head: &str) -> Self {
        let column = |name: &str| match name.strip_suffix(':') {
            Some(name) => (name.to_owned(), Align::Right),
            None => (name.to_owned(), Align::Left),
        };
        Self { head: head.split(" | ").map(column).collect(), rows: Vec::new() }
    }

    /// A table with a row for each of `items`: of each column the head, as for [`Self::new`], and
    /// what its cell says of an item.
    pub fn of<T>(
        items: impl IntoIterator<Item = T>,
        columns: &[(&str, &dyn Fn(&T) -> String)],
    ) -> Self {
        let head: Vec<&str> = columns.iter().map(|(name, _)| *name).collect();
        let mut table = Self::new(&head.join(" | "));
        for item in items {
            table.add_row(columns.iter().map(|(_, cell)| cell(&item)));
        }
        table
    }

    /// Adds a column of numbers whose name is foreign.
    pub fn add_number_column(&mut self, name: &str) {
        self.head.push((name.to_owned(), Align::Right));
    }

    /// Adds a row; missing cells are empty, surplus ones dropped. A cell is one line, so
    /// that untrusted text cannot imitate a line of rgpu's own output.
    pub fn add_row(&mut self, cells: impl IntoIterator<Item = String>) {
        let cells = cells.into_iter().take(self.head.len());
        let mut row: Vec<String> = cells.map(|cell| cell.replace(is_line_break, " ")).collect();
        row.resize(self.head.len(), String::new());
        self.rows.push(row);
    }

    /// Whether there is no row.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Drops the columns in which every cell is empty.
    pub fn without_empty_columns(mut self) -> Self {
        for at in (0..self.head.len()).rev() {
            if self.rows.iter().all(|row| row[at].is_empty()) {
                self.head.remove(at);
                self.rows.iter_mut().for_each(|row| drop(row.remove(at)));
            }
        }
        self
    }

    /// Drops columns named in `spare`, in that order, until the last column has `least` characters
    /// within `width` (without indent), or as many as it needs if that is less.
    pub fn with_room(mut self, width: usize, least: usize, spare: &[&str]) -> Self {
        for name in spare {
            let Some(last) = self.head.len().checked_sub(1) else { break };
            // Columns are separated by two blanks.
            let others: usize = (0..last).map(|at| self.column_width(at) + 2).sum();
            if others + self.column_width(last).min(least) <= width {
                break;
            }
            if let Some(at) = self.head.iter().position(|(head, _)| head == name) {
                self.head.remove(at);
                self.rows.iter_mut().for_each(|row| drop(row.remove(at)));
            }
        }
        self
    }

    /// Renders for a terminal of `width` columns, indented by `indent` blanks. Long cells wrap in
    /// the last left-aligned column. Ends with a newline; empty if there are no rows.
    pub fn plain(&self, width: usize, indent: usize) -> String {
        if self.rows.is_empty() {
            return String::new();
        }
        let mut table = Table::new();
        table.load_style(presets::NOTHING);
        table.set_content_arrangement(ContentArrangement::Dynamic);
        table.set_width(width.saturating_sub(indent).clamp(20, usize::from(u16::MAX)) as u16);
        if self.head.iter().any(|(name, _)| !name.is_empty()) {
            table.set_header(self.head.iter().map(|(name, align)| cell(name, *align)));
        }
        for row in &self.rows {
            table.add_row(row.iter().zip(&self.head).map(|(text, (_, align))| cell(text, *align)));
        }
        // Only the last text column may wrap; names and numbers stay whole.
        let last =
            self.head.iter().rposition(|(_, align)| *align == Align::Left).filter(|at| *at > 0);
        for (at, column) in table.column_iter_mut().enumerate() {
            column.set_constraint(if Some(at) == last {
                ColumnConstraint::LowerBoundary(Width::Fixed(12))
            } else {
                ColumnConstraint::ContentWidth
            });
        }
        let pad = " ".repeat(indent);
        table
            .lines()
            .map(|line| {
                format!("{pad}{}\n", line.trim_end().strip_prefix(' ').unwrap_or(line.trim_end()))
            })
            .collect()
    }

    /// Renders for a terminal that is too narrow for the table: each row's first cell on its own
    /// line, the others below it, as many per line as fit, numbers with their column's name. Ends
    /// with a newline; empty if there are no rows.
    pub fn stacked(&self, width: usize) -> String {
        let mut out = String::new();
        let room = width.saturating_sub(4);
        let below = |out: &mut String, line: &str| {
            for line in super::text::wrap(line.trim(), room).iter().filter(|l| !l.trim().is_empty())
            {
                *out += &format!("    {line}\n");
            }
        };
        for row in &self.rows {
            let Some((first, rest)) = row.split_first() else { continue };
            // A row without a first cell continues the one above.
            if !first.is_empty() {
                out += &format!("{first}\n");
            }
            let named = rest.iter().zip(self.head.iter().skip(1)).filter(|(c, _)| !c.is_empty());
            let mut line = String::new();
            for (text, (name, align)) in named {
                let cell = match align {
                    Align::Left => text.clone(),
                    Align::Right => format!("{name} {text}"),
                };
                let joined = format!("{line}, {cell}");
                if !line.is_empty() && joined.chars().count() <= room {
                    line = joined;
                    continue;
                }
                below(&mut out, &std::mem::replace(&mut line, cell));
            }
            below(&mut out, &line);
        }
        out
    }

    /// Renders in `width` columns: as a table if it fits, else stacked, so that names and paths
    /// that users copy stay whole. Every line is indented by `indent` blanks.
    pub fn fitted(&self, width: usize, indent: usize) -> String {
        let table = self.plain(usize::from(u16::MAX), indent);
        if fits(&table, width) {
            return table;
        }
        let pad = " ".repeat(indent);
        let rows = self.stacked(width.saturating_sub(indent));
        rows.lines().map(|line| format!("{pad}{line}\n")).collect()
    }

    /// Like [`Self::fitted`], for a last column, named `wrapped_column`, of sentences: they are
    /// wrapped if the other columns leave at least `least` characters for them.
    pub fn fitted_with_words(
        &self,
        width: usize,
        indent: usize,
        wrapped_column: &str,
        least: usize,
    ) -> String {
        self.unstacked(width, indent, wrapped_column, least)
            .unwrap_or_else(|| self.fitted(width, indent))
    }

    /// As [`Self::fitted_with_words`]; `None` if the table has to be stacked.
    pub fn unstacked(
        &self,
        width: usize,
        indent: usize,
        wrapped_column: &str,
        least: usize,
    ) -> Option<String> {
        let table = self.plain(usize::from(u16::MAX), indent);
        if fits(&table, width) {
            return Some(table);
        }
        let last = self.head.len().checked_sub(1)?;
        // Columns are separated by two blanks.
        let others: usize = (0..last).map(|at| self.column_width(at) + 2).sum();
        let room = width.saturating_sub(indent + others);
        if self.head[last].0 != wrapped_column || room < least {
            return None;
        }
        let mut wrapped = self.clone();
        for row in &mut wrapped.rows {
            row[last] = super::text::wrap(&row[last], room).join("\n");
        }
        let table = wrapped.plain(usize::from(u16::MAX), indent);
        fits(&table, width).then_some(table)
    }

    /// The width in characters of a column's widest cell, including its head.
    fn column_width(&self, at: usize) -> usize {
        let cells = self.rows.iter().map(|row| row[at].chars().count());
        cells.chain([self.head[at].0.chars().count()]).max().unwrap_or(0)
    }

    /// The table with its foreign texts escaped for Markdown.
    pub(crate) fn escaped(mut self) -> Self {
        let cells = self.rows.iter_mut().flatten();
        cells
            .chain(self.head.iter_mut().map(|(name, _)| name))
            .for_each(|text| *text = plain(text));
        self
    }

    /// Renders a Markdown table. Ends with a newline.
    pub fn markdown(&self) -> String {
        let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
        let escape = |text: &String| text.replace('|', "\\|").replace('\n', " ");
        let mut out = line(self.head.iter().map(|(name, _)| escape(name)).collect());
        out += &line(
            self.head
                .iter()
                .map(|(_, a)| if *a == Align::Right { "---:" } else { "---" }.to_owned())
                .collect(),
        );
        self.rows.iter().for_each(|row| out += &line(row.iter().map(escape).collect()));
        out
    }
}

/// Whether no line is wider than `width`.
fn fits(table: &str, width: usize) -> bool {
    table.lines().all(|line| line.chars().count() <= width)
}

/// Characters of a cell that are shown. The table counts a row's columns in 16 bits.
const MAX_CELL_CHARS: usize = 4096;

fn cell(text: &str, align: Align) -> Cell {
    let cut = text.char_indices().nth(MAX_CELL_CHARS);
    let shown =
        cut.map_or(Cow::Borrowed(text), |(end, _)| Cow::Owned(format!("{}…", &text[..end])));
    Cell::new(shown).set_alignment(match align {
        Align::Left => CellAlignment::Left,
        Align::Right => CellAlignment::Right,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_of_any_length_is_cut_and_no_panic() {
        let mut table = TextTable::new("kernel");
        table.add_row(["k".repeat(70_000)]);
        let shown = table.plain(80, 0);
        assert!(shown.len() < 10_000 && shown.contains('…'), "{}", shown.len());
    }

    #[test]
    fn a_foreign_text_does_not_begin_a_line() {
        let mut table = TextTable::new("run | what");
        table.add_row(["a\nhelp: a lie".to_owned(), "x\r\u{2028}error: b".to_owned()]);
        let tables = [table.plain(80, 0), table.fitted(40, 0), table.stacked(40), table.markdown()];
        for table in tables {
            assert!(!table.contains("\nhelp") && !table.contains("\nerror"), "{table}");
        }
    }

    fn sample() -> TextTable {
        let mut table = TextTable::new("kernel | time: | note");
        table.add_row(["vecadd".into(), "59.7 µs".into()]);
        table.add_row(["a|b".into(), "1.20 ms".into()]);
        table
    }

    #[test]
    fn a_plain_table_has_columns_and_no_frame() {
        insta::assert_snapshot!(sample().without_empty_columns().plain(80, 2), @r"
          kernel     time
          vecadd  59.7 µs
          a|b     1.20 ms
        ");
    }

    #[test]
    fn the_last_column_gets_room_from_columns_that_can_be_spared() {
        let head = |width| {
            let text = sample().with_room(width, 20, &["none", "time"]).plain(80, 0);
            text.lines().next().unwrap_or_default().to_owned()
        };
        assert_eq!(head(21), "kernel     time  note");
        assert_eq!(head(20), "kernel  note");
    }

    #[test]
    fn a_narrow_terminal_gets_each_row_over_several_lines() {
        insta::assert_snapshot!(sample().stacked(20), @r"
        vecadd
            time 59.7 µs
        a|b
            time 1.20 ms
        ");
    }

    #[test]
    fn a_row_without_a_first_cell_continues_the_one_above() {
        let mut table = sample();
        table.add_row([String::new(), "1.30 ms".into(), "again".into()]);
        let shown = table.stacked(40);
        let end = "a|b\n    time 1.20 ms\n    time 1.30 ms, again\n";
        assert!(shown.ends_with(end), "{shown}");
    }

    #[test]
    fn a_table_that_does_not_fit_is_stacked_and_no_name_is_broken() {
        assert!(sample().fitted(26, 2).starts_with("  kernel     time  note\n"));
        assert_eq!(
            sample().fitted(22, 2),
            "  vecadd\n      time 59.7 µs\n  a|b\n      time 1.20 ms\n"
        );
    }

    #[test]
    fn a_long_sentence_widens_no_other_row() {
        let mut table = TextTable::new("remote | state");
        table.add_row(["h200".into(), "running".into()]);
        table.add_row([
            "w200".into(),
            "there is no login for that service: the file is not there".into(),
        ]);
        insta::assert_snapshot!(table.fitted_with_words(34, 0, "state", 24), @r"
        remote  state
        h200    running
        w200    there is no login for that
                service: the file is not
                there
        ");
        insta::assert_snapshot!(table.fitted_with_words(30, 0, "state", 24), @r"
        h200
            running
        w200
            there is no login for that
            service: the file is not
            there
        ");
    }

    #[test]
    fn markdown_escapes_what_would_break_the_table() {
        insta::assert_snapshot!(sample().markdown(), @r"
        | kernel | time | note |
        | --- | ---: | --- |
        | vecadd | 59.7 µs |  |
        | a\|b | 1.20 ms |  |
        ");
    }
}
