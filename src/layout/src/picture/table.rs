//! Pictures as text.

use super::{COLORS, Cell, CellGrid};

/// Pale backgrounds of terminals with 256 colours, on which black text can be read.
const BACKGROUNDS: [u8; 32] = [
    159, 223, 193, 225, 229, 153, 217, 157, 189, 222, 194, 219, 195, 187, 183, 151, 152, 216, 192,
    218, 230, 147, 181, 158, 188, 215, 155, 213, 123, 186, 177, 121,
];

impl CellGrid {
    /// The picture as text, with the numbers of rows and columns around it.
    pub fn table(&self, colors: bool) -> String {
        let text = |cell: &Option<Cell>| cell.as_ref().map_or(String::new(), |c| c.lines.join(" "));
        let cells = self.cells.iter().map(|cell| text(cell).len());
        let width = cells.max().unwrap_or(0).max(self.columns.to_string().len());
        let rows = self.rows().count();
        let margin = rows.saturating_sub(1).to_string().len();
        let mut out = " ".repeat(margin);
        for column in 0..self.columns {
            out += &format!("  {column:>width$}");
        }
        out.push('\n');
        for (row, cells) in self.rows() {
            out += &format!("{row:>margin$}");
            for cell in cells {
                let shown = format!("{:>width$}", text(cell));
                match cell {
                    Some(cell) if colors => {
                        let color = BACKGROUNDS[(cell.color % COLORS) as usize];
                        out += &format!(" \u{1b}[30;48;5;{color}m {shown}\u{1b}[0m");
                    }
                    _ => out += &format!("  {shown}"),
                }
            }
            let end = out.trim_end_matches(' ').len();
            out.truncate(end);
            out.push('\n');
        }
        out
    }
}
