//! Pictures as SVG. The style sheet is inside, for light and dark; each cell has its note as a
//! title.

use std::fmt::Write;

use super::{COLORS, CellGrid};

/// Height of a line of text in a cell.
const LINE_HEIGHT_PX: i64 = 14;
/// Width of a character.
const CHARACTER_WIDTH_PX: i64 = 8;
/// The margin around the cells.
const MARGIN_PX: i64 = 34;

impl CellGrid {
    /// The picture as a document of its own.
    pub fn svg(&self) -> String {
        let lines = self.cells.iter().flatten().map(|cell| cell.lines.len()).max().unwrap_or(1);
        let longest = self.cells.iter().flatten().flat_map(|cell| &cell.lines);
        let longest = longest.map(String::len).max().unwrap_or(1);
        let (width, height) =
            (longest as i64 * CHARACTER_WIDTH_PX + 12, lines as i64 * LINE_HEIGHT_PX + 10);
        let rows = self.rows().count() as i64;
        let (full_width, full_height) =
            (MARGIN_PX + self.columns * width + 8, MARGIN_PX + rows * height + 8);
        let mut out = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {full_width} {full_height}\" \
             width=\"{full_width}\" height=\"{full_height}\" role=\"img\">\n<title>{}</title>\n\
             <style>{}</style>\n<rect class=\"back\" width=\"100%\" height=\"100%\"/>\n",
            escape(&self.title),
            style()
        );
        let middle = |at: i64, size: i64| MARGIN_PX + at * size + size / 2;
        for column in 0..self.columns {
            let (x, y) = (middle(column, width), MARGIN_PX - 10);
            let _ = writeln!(out, "<text class=\"edge\" x=\"{x}\" y=\"{y}\">{column}</text>");
        }
        for (row, cells) in self.rows() {
            let (x, y) = (MARGIN_PX / 2, middle(row, height) + 4);
            let _ = writeln!(out, "<text class=\"edge\" x=\"{x}\" y=\"{y}\">{row}</text>");
            for (column, cell) in (0_i64..).zip(cells) {
                let (x, y) = (MARGIN_PX + column * width, MARGIN_PX + row * height);
                let Some(cell) = cell else {
                    let size = format!("width=\"{width}\" height=\"{height}\"");
                    let _ = writeln!(out, "<rect class=\"hole\" x=\"{x}\" y=\"{y}\" {size}/>");
                    continue;
                };
                let _ = write!(
                    out,
                    "<g class=\"cell c{color}\"><title>{note}</title><rect x=\"{x}\" y=\"{y}\" \
                     width=\"{width}\" height=\"{height}\"/>",
                    color = cell.color % COLORS,
                    note = escape(&cell.note),
                );
                for (line, text) in (0_i64..).zip(&cell.lines) {
                    let (x, y) = (x + width / 2, y + LINE_HEIGHT_PX * (line + 1) + 2);
                    let _ = write!(out, "<text x=\"{x}\" y=\"{y}\">{}</text>", escape(text));
                }
                out.push_str("</g>\n");
            }
        }
        out.push_str("</svg>\n");
        out
    }
}

/// The style sheet inside a picture, for pages that allow it by its hash.
pub fn style() -> String {
    let mut css = String::from(
        "text{font:12px ui-monospace,monospace;text-anchor:middle;fill:#111}\n\
         .edge{fill:#667}.back{fill:#fff}.hole{fill:none;stroke:#ccd}\n\
         .cell rect{stroke:#889;stroke-width:.6}\n",
    );
    let mut dark =
        String::from("text{fill:#eee}.edge{fill:#99a}.back{fill:#15171c}.hole{stroke:#333}");
    for color in 0..COLORS {
        // Neighbours differ by the golden angle, so that no two near colours look alike.
        let hue = color * 137 % 360;
        let _ = writeln!(css, ".c{color} rect{{fill:hsl({hue},70%,86%)}}");
        let _ = write!(dark, ".c{color} rect{{fill:hsl({hue},45%,28%)}}");
    }
    css + "@media (prefers-color-scheme:dark){" + &dark + "}\n"
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
