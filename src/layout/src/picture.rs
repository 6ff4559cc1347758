//! Pictures of layouts: value layouts as a grid of offsets, thread-value layouts as a tile in which
//! each place names the thread and the value that hold it. As text, as SVG, with or without
//! colours.

mod svg;
mod table;

use crate::element::ElementSize;
use crate::layout::Layout;
use crate::swizzle::SwizzledLayout;

pub use svg::style;

/// Maximum number of cells of a picture.
pub const MAX_CELLS: i64 = 1 << 14;

/// Number of colours: one for each bank of shared memory.
const COLORS: i64 = 32;

/// The meaning of a colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Coloring {
    /// The thread; of a value layout, the first mode.
    Thread,
    /// The bank of shared memory of an element.
    Bank {
        /// The size of an element.
        element: ElementSize,
    },
    /// The offset, modulo the number of colours.
    Offset,
}

/// The tile that a thread-value layout fills.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tile {
    /// Rows, 1 or more.
    pub rows: i64,
    /// Columns, 1 or more.
    pub columns: i64,
    /// Whether offsets run along rows first. CuTe's run along columns.
    pub row_major: bool,
}

/// The reason why there is no picture.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PictureError {
    /// There are too many cells to look at.
    #[error("a picture has at most {MAX_CELLS} cells, and this one would have {0}; draw one tile")]
    TooLarge(i128),
    /// The tile is empty.
    #[error("a tile has at least one row and one column")]
    Empty,
    /// The layout leaves the tile.
    #[error("thread {thread}, value {value} is at offset {offset}, outside the tile of {places}")]
    Outside {
        /// The thread, from 0: the index in the first mode.
        thread: i64,
        /// The value of that thread, from 0: the index in the other modes.
        value: i64,
        /// The offset that the layout gives; below 0, or `places` or more.
        offset: i64,
        /// Places of the tile.
        places: i64,
    },
}

/// One place of a picture.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cell {
    /// The text, of one line or two.
    pub lines: Vec<String>,
    /// The number of the colour.
    pub color: i64,
    /// Everything known about the place.
    pub note: String,
}

/// The cells of a layout's picture, in rows and columns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CellGrid {
    title: String,
    columns: i64,
    /// Row by row; `None` for an empty cell.
    cells: Vec<Option<Cell>>,
}

impl CellGrid {
    /// A value layout: its first mode runs down, the others run right; a single mode runs right.
    ///
    /// # Errors
    /// If there are too many cells.
    pub fn from_values(layout: &SwizzledLayout, coloring: Coloring) -> Result<Self, PictureError> {
        let plain = layout.layout();
        let parts = plain.parts();
        let rows = match parts.as_slice() {
            [_] | [] => 1,
            [first, ..] => first.size(),
        };
        let columns = plain.size() / rows;
        fits(i128::from(plain.size()))?;
        let offsets: Vec<i64> = layout.offsets().collect();
        let mut cells = Vec::with_capacity(offsets.len());
        for row in 0..rows {
            for column in 0..columns {
                let index = row + column * rows;
                let offset = offsets[index as usize];
                let mut note = format!("({row},{column}) index {index} offset {offset}");
                let color = color(coloring, row, offset, &mut note);
                cells.push(Some(Cell { lines: vec![offset.to_string()], color, note }));
            }
        }
        Ok(Self { title: layout.to_string(), columns, cells })
    }

    /// A thread-value layout over a tile: its first mode counts threads, the others values.
    ///
    /// # Errors
    /// If there are too many cells, or an offset lies outside the tile.
    pub fn from_threads(
        layout: &Layout,
        tile: Tile,
        coloring: Coloring,
    ) -> Result<Self, PictureError> {
        let Tile { rows, columns, row_major } = tile;
        if rows < 1 || columns < 1 {
            return Err(PictureError::Empty);
        }
        fits(i128::from(rows) * i128::from(columns))?;
        fits(i128::from(layout.size()))?;
        let places = rows * columns;
        let threads = layout.parts().first().map_or(1, Layout::size);
        let mut holders: Vec<Vec<(i64, i64)>> = vec![Vec::new(); places as usize];
        for (index, offset) in (0_i64..).zip(layout.offsets()) {
            let (thread, value) = (index % threads, index / threads);
            let holder = usize::try_from(offset).ok().and_then(|at| holders.get_mut(at));
            let outside = PictureError::Outside { thread, value, offset, places };
            holder.ok_or(outside)?.push((thread, value));
        }
        let mut cells = Vec::with_capacity(places as usize);
        for row in 0..rows {
            for column in 0..columns {
                let offset = if row_major { row * columns + column } else { column * rows + row };
                let held = &holders[offset as usize];
                cells.push(held.first().map(|(thread, value)| {
                    let mut note = format!("({row},{column}) offset {offset}");
                    for (thread, value) in held {
                        note += &format!(" · thread {thread} value {value}");
                    }
                    let color = color(coloring, *thread, offset, &mut note);
                    let more = if held.len() > 1 { "+" } else { "" };
                    Cell {
                        lines: vec![format!("T{thread}{more}"), format!("V{value}")],
                        color,
                        note,
                    }
                }));
            }
        }
        Ok(Self { title: layout.to_string(), columns, cells })
    }

    /// The picture under another title.
    pub fn titled(self, title: impl ToString) -> Self {
        Self { title: title.to_string(), ..self }
    }

    /// The rows, each with its cells.
    fn rows(&self) -> impl Iterator<Item = (i64, &[Option<Cell>])> {
        (0..).zip(self.cells.chunks(self.columns.max(1) as usize))
    }
}

fn fits(cells: i128) -> Result<(), PictureError> {
    if cells > i128::from(MAX_CELLS) { Err(PictureError::TooLarge(cells)) } else { Ok(()) }
}

fn color(coloring: Coloring, thread: i64, offset: i64, note: &mut String) -> i64 {
    match coloring {
        Coloring::Thread => thread.rem_euclid(COLORS),
        Coloring::Offset => offset.rem_euclid(COLORS),
        Coloring::Bank { element } => {
            let bit = i128::from(offset) * i128::from(element.bits());
            let bank = bit.div_euclid(32).rem_euclid(i128::from(COLORS)) as i64;
            *note += &format!(" · bank {bank}");
            bank
        }
    }
}
