//! Writes blocks as Markdown, with foreign text escaped.

use super::{Block, Field};
use crate::text::{capital, one_line};

/// The blocks as Markdown; it ends with a newline.
pub(crate) fn to_markdown(blocks: &[Block]) -> String {
    let mut out = String::new();
    // Whether details are part of a numbered item.
    let mut is_in_item = false;
    for block in blocks {
        let is_list = matches!(block, Block::Field(_) | Block::Item(..) | Block::Detail(..));
        if !is_list {
            end_list(&mut out);
            is_in_item = false;
        }
        match block {
            Block::Title(name, text) if text.is_empty() => out += &format!("# {}\n\n", plain(name)),
            Block::Title(name, text) => {
                out += &format!("# {}: {}\n\n", plain(name), sentence(text))
            }
            Block::Heading(text) => heading(&mut out, text),
            Block::Subheading(text) => out += &format!("### {}\n\n", plain(text)),
            Block::Group(name) => heading(&mut out, name),
            Block::Field(Field { label, text, .. }) if label.is_empty() => {
                out += &format!("  - {}\n", sentence(text.trim()));
            }
            Block::Field(Field { label, text, .. }) => {
                out += &format!("- {}: {}\n", plain(label), sentence(text));
            }
            Block::Item(number, text) => {
                out += &format!("{number}. {}\n", sentence(text));
                is_in_item = true;
            }
            Block::Detail(_, text) if text.is_empty() => {}
            Block::Detail(bullet, text) => {
                let indent = if is_in_item { "   " } else { "" };
                let arrow = if bullet.starts_with('→') { "→ " } else { "" };
                out += &format!("{indent}- {arrow}{}\n", sentence(text));
            }
            Block::Table(block) => {
                heading(&mut out, &block.title);
                let table = block.table.clone().without_empty_columns();
                let table = if block.is_markdown { table } else { table.escaped() };
                out += &table.markdown();
                out.push('\n');
            }
            Block::Note(_, text) => {
                let stop = if text.ends_with(['.', ':']) { "" } else { "." };
                out += &format!("{}{stop}\n\n", sentence(text));
            }
            Block::Code(lines) => {
                let lines = lines
                    .iter()
                    .flat_map(|[place, code]| [place.clone(), format!("        {code}")]);
                let lines = lines.filter(|line| !line.trim().is_empty());
                lines.for_each(|line| out += &format!("    {}\n", one_line(line.trim_end())));
            }
            Block::Chapter(title, why) => {
                heading(&mut out, title);
                if !why.is_empty() {
                    out += &format!("{why}\n\n");
                }
            }
        }
    }
    out.truncate(out.trim_end().len());
    out + "\n"
}

/// Ends a list or a block of code with an empty line.
fn end_list(out: &mut String) {
    if !out.is_empty() && !out.ends_with("\n\n") {
        out.push('\n');
    }
}

fn heading(out: &mut String, text: &str) {
    if !text.is_empty() {
        *out += &format!("## {}\n\n", plain(&capital(text)));
    }
}

/// Escapes foreign text for Markdown; control characters become visible escapes.
pub(crate) fn plain(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '<' => out.push_str("&lt;"),
            '*' | '_' | '`' | '[' | ']' | '\\' | '#' => {
                out.push('\\');
                out.push(c);
            }
            c if c.is_control() => out.extend(c.escape_default()),
            c => out.push(c),
        }
    }
    out
}

/// A text of ours: what it has in backticks stays code, and the rest is escaped.
fn sentence(text: &str) -> String {
    let parts: Vec<&str> = text.split('`').collect();
    if parts.len().is_multiple_of(2) {
        return plain(text);
    }
    let part = |(at, part): (usize, &&str)| match at % 2 {
        0 => plain(part),
        _ => format!("`{}`", one_line(part)),
    };
    parts.iter().enumerate().map(part).collect()
}

#[cfg(test)]
mod tests {
    use super::super::{Blocks, TableBlock};
    use super::*;
    use crate::TextTable;

    #[test]
    fn a_foreign_text_begins_no_line_and_is_no_markup() {
        let lie = "a\n# lie\n<b> `x`\n```".to_owned();
        let mut table = TextTable::new("name");
        table.add_row([lie.clone()]);
        let mut out = Blocks(vec![
            Block::Title(lie.clone(), lie.clone()),
            Block::Heading(lie.clone()),
            Block::Subheading(lie.clone()),
            Block::Item(1, lie.clone()),
            Block::Detail("→ ", lie.clone()),
            Block::Note(4, lie.clone()),
            Block::Code(vec![[lie.clone(), lie.clone()]]),
        ]);
        out.field(lie.clone(), lie.clone());
        out.full_table(TableBlock { title: lie, table, ..TableBlock::default() });
        let text = to_markdown(&out.0);
        for line in text.lines() {
            let is_ours = ["# a", "## A", "### a", "1. a", "   - → a", "a", "    ", "- a", "| "];
            let is_ours = line.is_empty() || is_ours.iter().any(|start| line.starts_with(start));
            assert!(is_ours, "{line}");
        }
        assert!(
            !text.lines().any(|line| !line.starts_with("    ") && line.contains('<')),
            "{text}"
        );
    }
}
