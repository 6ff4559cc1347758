//! The pieces that a report is made of. A section of a report makes them of its subject, once; a
//! writer makes text for a terminal or Markdown of them.

mod markdown;
mod text;

pub(crate) use markdown::{plain, to_markdown};
pub(crate) use text::to_text;

use super::TextTable;

/// A piece of a report. Texts may be foreign; the writers escape and wrap them.
#[derive(Clone, Debug)]
pub(crate) enum Block {
    /// The name of what the report is about, and what was done with it.
    Title(String, String),
    /// A heading.
    Heading(String),
    /// A heading inside a section.
    Subheading(String),
    /// The beginning of a group that has a heading in Markdown, and an empty line on a terminal. An
    /// empty name has no heading.
    Group(&'static str),
    /// A named text.
    Field(Field),
    /// An item of a numbered list.
    Item(usize, String),
    /// A text below an item, after a bullet such as `→ `; also alone, as an item of a plain list.
    Detail(&'static str, String),
    /// A table, with its heading.
    Table(TableBlock),
    /// A remark, and its indent on a terminal.
    Note(usize, String),
    /// Lines of code, each after a line that says where it is.
    Code(Vec<[String; 2]>),
    /// A heading that a terminal leaves out, and why nothing follows, if so.
    Chapter(String, &'static str),
}

/// A named text. A text without a name continues the field above it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Field {
    /// The name.
    pub(crate) label: String,
    /// The text.
    pub(crate) text: String,
    /// The colour of the text's first `painted` bytes (SGR parameters).
    pub(crate) color: &'static str,
    /// How much of the text has the colour.
    pub(crate) painted: usize,
    /// Whether it is below a subheading.
    pub(crate) is_inner: bool,
}

/// A table, and what a narrow terminal makes of it.
#[derive(Clone, Debug, Default)]
pub(crate) struct TableBlock {
    /// The heading; empty for a table without one.
    pub(crate) title: String,
    /// The table. Columns without a cell are left out.
    pub(crate) table: TextTable,
    /// The indent on a terminal.
    pub(crate) indent: usize,
    /// The least room of the last column, and the columns that go until it has that.
    pub(crate) spare: Option<(usize, &'static [&'static str])>,
    /// A last column of sentences, and its least width.
    pub(crate) sentences: Option<(&'static str, usize)>,
    /// Whether the cells are Markdown already.
    pub(crate) is_markdown: bool,
    /// Whether verdicts have their colour.
    pub(crate) has_verdicts: bool,
}

/// Collects the blocks of a report.
#[derive(Clone, Debug, Default)]
pub(crate) struct Blocks(pub(crate) Vec<Block>);

impl Blocks {
    /// Adds a block.
    pub(crate) fn add(&mut self, block: Block) {
        self.0.push(block);
    }

    /// Adds a heading.
    pub(crate) fn heading(&mut self, text: impl Into<String>) {
        self.add(Block::Heading(text.into()));
    }

    /// Adds a named text.
    pub(crate) fn field(&mut self, label: impl Into<String>, text: impl Into<String>) {
        self.painted_field(label, text, "", 0);
    }

    /// Adds a named text whose first `painted` bytes have a colour.
    pub(crate) fn painted_field(
        &mut self,
        label: impl Into<String>,
        text: impl Into<String>,
        color: &'static str,
        painted: usize,
    ) {
        let (label, text) = (label.into(), text.into());
        self.add(Block::Field(Field { label, text, color, painted, is_inner: false }));
    }

    /// Adds a named text below a subheading.
    pub(crate) fn inner_field(&mut self, label: &str, text: String) {
        let label = label.to_owned();
        self.add(Block::Field(Field { label, text, is_inner: true, ..Field::default() }));
    }

    /// Adds a remark with the usual indent.
    pub(crate) fn note(&mut self, text: impl Into<String>) {
        self.add(Block::Note(4, text.into()));
    }

    /// Adds a table with a heading; nothing if it has no rows.
    pub(crate) fn table(&mut self, title: impl Into<String>, table: TextTable) {
        self.full_table(TableBlock { title: title.into(), table, indent: 4, ..Default::default() });
    }

    /// Adds a table with a heading, or why it has no rows.
    pub(crate) fn table_or(
        &mut self,
        title: impl Into<String>,
        table: TextTable,
        absent: &'static str,
    ) {
        if table.is_empty() {
            self.add(Block::Chapter(title.into(), absent));
        } else {
            self.table(title, table);
        }
    }

    /// Adds a table; nothing if it has no rows.
    pub(crate) fn full_table(&mut self, table: TableBlock) {
        if !table.table.is_empty() {
            self.add(Block::Table(table));
        }
    }
}
