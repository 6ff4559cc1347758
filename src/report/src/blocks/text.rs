//! Writes blocks for a terminal: aligned and wrapped to its width.

use super::{Block, Field, TableBlock};
use crate::Style;
use crate::text::{one_line, wrap};
use rgpu_model::error::is_line_break;

/// Columns of a field's label.
const LABEL: usize = 11;

/// The blocks as text for a terminal; it ends with a newline.
pub(crate) fn to_text(blocks: &[Block], style: &Style) -> String {
    let mut out = Writer { out: String::new(), style };
    blocks.iter().for_each(|block| out.block(block));
    out.out
}

struct Writer<'a> {
    out: String,
    style: &'a Style,
}

impl Writer<'_> {
    fn block(&mut self, block: &Block) {
        match block {
            Block::Title(name, text) => {
                let (name, text) = (one_line(name), one_line(text));
                let title = format!("{}  {text}", self.style.paint("1", &name));
                for (at, part) in lines(&title, self.style.width - 4).enumerate() {
                    self.line(&format!("{}{part}", if at == 0 { "" } else { "    " }));
                }
            }
            Block::Heading(text) => {
                self.line("");
                let text = self.style.paint("1", text);
                self.line(&format!("  {text}"));
            }
            Block::Subheading(text) => self.line(&format!("\n  {text}")),
            Block::Group(_) => self.line(""),
            Block::Field(field) => self.field(field),
            Block::Item(number, text) => self.hang(&format!("    {number}  "), &one_line(text)),
            Block::Detail(bullet, text) => self.hang(&format!("       {bullet}"), text),
            Block::Table(table) => self.table(table),
            Block::Note(indent, text) => self.hang(&" ".repeat(*indent), text),
            Block::Code(lines) => {
                for [place, code] in lines {
                    self.line(&format!("    {place}"));
                    let code = cut(code, self.style.width.saturating_sub(12));
                    if !code.is_empty() {
                        self.line(&format!("            {code}"));
                    }
                }
            }
            Block::Chapter(..) => {}
        }
    }

    fn line(&mut self, text: &str) {
        self.out.push_str(text.trim_end());
        self.out.push('\n');
    }

    /// Writes a wrapped text after `lead`, with a hanging indent.
    fn hang(&mut self, lead: &str, text: &str) {
        let indent = lead.chars().count();
        let room = self.style.width.saturating_sub(indent).max(30);
        for (at, part) in lines(text, room).enumerate() {
            let lead = if at == 0 { lead } else { "" };
            self.line(&format!("{lead:indent$}{part}"));
        }
    }

    fn field(&mut self, field: &Field) {
        let Field { label, text, color, painted, is_inner } = field;
        let indent = if *is_inner { 4 } else { 2 };
        let lead = format!("{:indent$}{label:<LABEL$} ", "");
        match *painted {
            0 => self.hang(&lead, text),
            // Each line has its own colour, so that the indent has none.
            painted if painted == text.len() => {
                let room = self.style.width.saturating_sub(indent + LABEL + 1).max(30);
                let parts: Vec<_> = lines(text, room).collect();
                let parts: Vec<_> =
                    parts.iter().map(|part| self.style.paint(color, part)).collect();
                self.hang(&lead, &parts.join("\n"));
            }
            painted => {
                let (first, rest) = text.split_at(painted);
                self.hang(&lead, &(self.style.paint(color, first) + rest));
            }
        }
    }

    fn table(&mut self, block: &TableBlock) {
        let (width, indent) = (self.style.width, block.indent);
        let mut table = block.table.clone().without_empty_columns();
        if let Some((least, names)) = block.spare {
            table = table.with_room(width.saturating_sub(indent), least, names);
        }
        let text = match block.sentences {
            Some((column, least)) => table.fitted_with_words(width, indent, column, least),
            None => table.plain(width, indent),
        };
        if !block.title.is_empty() {
            self.block(&Block::Heading(block.title.clone()));
        }
        self.out += &if block.has_verdicts { self.style.paint_verdicts(&text) } else { text };
    }
}

/// The lines of a foreign text, wrapped: its own line breaks begin continuation lines, too.
fn lines(text: &str, room: usize) -> impl Iterator<Item = String> {
    text.split(is_line_break).flat_map(move |line| wrap(line, room))
}

/// The code on one line, cut to `room` columns.
fn cut(code: &str, room: usize) -> String {
    let code = code.split_whitespace().collect::<Vec<_>>().join(" ");
    if code.chars().count() <= room {
        code
    } else {
        format!("{}…", code.chars().take(room.saturating_sub(1)).collect::<String>())
    }
}
