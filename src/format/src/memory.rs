//! The memory that the contents of one file may take.
//!
//! Many short rows or tiny objects take a multiple of their bytes once they are values. Each reader
//! takes what a row costs from a [`MemoryBudget`], and stops at the row that no longer fits. The
//! costs count everything that is made of a row later: the parts of a profile, their sums and their
//! text. `tests/it/reader_memory.rs` of the workspace measures that they suffice.

use thiserror::Error;

/// With the bytes of the file itself, a process takes at most four times the file's size.
const BYTES_PER_FILE_BYTE: u64 = 3;

/// Every file may take this much. The rest of 64 MiB is for the program itself.
const BASE_BYTES: u64 = 32 << 20;

/// A document of this size always fits.
const SMALL_DOCUMENT_BYTES: usize = 64 << 10;
/// The depth at which readers of JSON stop.
const MAX_DEPTH: usize = 128;
/// Memory of an object in a list, such as a launch or a region.
const LISTED_OBJECT_BYTES: usize = 600;
/// Memory of an object with a name, such as a metric.
const NAMED_OBJECT_BYTES: usize = 180;
/// Memory of the first block of a map of objects.
const MAP_BYTES: usize = 1000;
/// Memory of any other value without its text.
const VALUE_BYTES: usize = 32;

/// The memory that is left for the contents of a file.
#[derive(Debug, Clone)]
pub struct MemoryBudget {
    limit: u64,
    left: u64,
}

/// The contents of a file take more memory than a file of its size may take.
#[derive(Debug, Error, Clone, Copy, PartialEq, Eq)]
#[error("what it holds takes more than the {} MiB of memory that a file of this size may take", .limit >> 20)]
pub struct OverBudget {
    /// The limit in bytes.
    pub limit: u64,
}

impl MemoryBudget {
    /// The budget of a file of `file_bytes` unpacked bytes.
    pub fn for_file(file_bytes: usize) -> Self {
        let limit = (file_bytes as u64).saturating_mul(BYTES_PER_FILE_BYTE) + BASE_BYTES;
        Self { limit, left: limit }
    }

    /// The bytes that are left.
    pub fn left(&self) -> u64 {
        self.left
    }

    /// Adds what a further part of the file may take, of `file_bytes` unpacked bytes.
    pub fn grow(&mut self, file_bytes: usize) {
        let more = (file_bytes as u64).saturating_mul(BYTES_PER_FILE_BYTE);
        self.limit = self.limit.saturating_add(more);
        self.left = self.left.saturating_add(more);
    }

    /// Takes `bytes` from the budget. Once this failed, it always fails until
    /// the budget grows.
    ///
    /// # Errors
    /// [`OverBudget`] if fewer are left.
    pub fn take(&mut self, bytes: usize) -> Result<(), OverBudget> {
        match self.left.checked_sub(bytes as u64) {
            Some(left) => self.left = left,
            None => {
                self.left = 0;
                return Err(OverBudget { limit: self.limit });
            }
        }
        Ok(())
    }

    /// Checks that the values of a JSON text fit: `object_bytes` for each object, `value_bytes` for
    /// each other value.
    ///
    /// # Errors
    /// [`JsonOverBudget`] with the offset of the value that does not fit.
    pub fn take_json(
        &mut self,
        text: &[u8],
        object_bytes: usize,
        value_bytes: usize,
    ) -> Result<(), JsonOverBudget> {
        for (offset, byte) in text.iter().enumerate() {
            let bytes = match byte {
                b'{' => object_bytes,
                b',' | b'[' => value_bytes,
                _ => continue,
            };
            let offset = offset as u64;
            self.take(bytes).map_err(|over| JsonOverBudget::Values { offset, over })?;
        }
        Ok(())
    }

    /// Checks that the values of a JSON document fit, as the fields of structures and maps that a
    /// reader makes of them.
    ///
    /// # Errors
    /// [`JsonOverBudget`] with the offset of the value that does not fit.
    pub fn take_document(&mut self, text: &[u8]) -> Result<(), JsonOverBudget> {
        if text.len() <= SMALL_DOCUMENT_BYTES {
            return Ok(());
        }
        // The texts of all strings.
        self.take(text.len()).map_err(|over| JsonOverBudget::Values { offset: 0, over })?;
        // For each open value whether it is a list, and whether it has an object.
        let mut open: Vec<(bool, bool)> = Vec::new();
        let (mut in_string, mut is_escaped) = (false, false);
        for (offset, byte) in text.iter().enumerate() {
            if in_string {
                in_string = *byte != b'"' || is_escaped;
                is_escaped = *byte == b'\\' && !is_escaped;
                continue;
            }
            let bytes = match byte {
                b'"' => {
                    in_string = true;
                    continue;
                }
                b'{' => {
                    let bytes = match open.last_mut() {
                        Some((true, _)) => LISTED_OBJECT_BYTES,
                        Some((false, has_object @ false)) => {
                            *has_object = true;
                            NAMED_OBJECT_BYTES + MAP_BYTES
                        }
                        Some((false, true)) | None => NAMED_OBJECT_BYTES,
                    };
                    open.push((false, false));
                    bytes
                }
                b'[' => {
                    open.push((true, false));
                    VALUE_BYTES
                }
                b',' => VALUE_BYTES,
                b']' | b'}' => {
                    open.pop();
                    continue;
                }
                _ => continue,
            };
            // Readers refuse deeper values.
            if open.len() > MAX_DEPTH {
                return Ok(());
            }
            let offset = offset as u64;
            self.take(bytes).map_err(|over| JsonOverBudget::Values { offset, over })?;
        }
        Ok(())
    }

    /// Checks that `count` values of a kind fit, with `bytes` for each.
    ///
    /// # Errors
    /// [`JsonOverBudget`] with the number of the first that does not fit.
    pub fn take_values(
        &mut self,
        kind: &'static str,
        count: usize,
        bytes: usize,
    ) -> Result<(), JsonOverBudget> {
        let fitting = self.left / (bytes as u64).max(1);
        self.take(count.saturating_mul(bytes)).map_err(|over| JsonOverBudget::Kind {
            kind,
            number: fitting + 1,
            over,
        })
    }
}

/// A JSON text has too many values for its size.
#[derive(Debug, Error, Clone, Copy, PartialEq, Eq)]
pub enum JsonOverBudget {
    /// All values together are too many.
    #[error("the value at offset {offset} does not fit: {over}")]
    Values {
        /// Offset in bytes of the first value that does not fit.
        offset: u64,
        /// The limit.
        over: OverBudget,
    },
    /// The values of a kind are too many.
    #[error("{kind} {number} does not fit: {over}")]
    Kind {
        /// A word for the values.
        kind: &'static str,
        /// Number of the first value that does not fit, from 1.
        number: u64,
        /// The limit.
        over: OverBudget,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_is_used_up_once_and_for_all() {
        let mut budget = MemoryBudget::for_file(1 << 20);
        assert_eq!(budget.take(34 << 20), Ok(()));
        assert_eq!(budget.take(2 << 20), Err(OverBudget { limit: 35 << 20 }));
        assert!(budget.take(1).is_err());
        budget.grow(1 << 20);
        assert_eq!(budget.take(3 << 20), Ok(()));
        assert_eq!(budget.take(1), Err(OverBudget { limit: 38 << 20 }));
        let text = OverBudget { limit: 35 << 20 }.to_string();
        assert!(text.contains("35 MiB"), "{text}");
    }

    #[test]
    fn values_of_a_document_are_counted_by_where_they_are() {
        let taken = |text: &str| {
            let text = text.to_owned() + &" ".repeat(SMALL_DOCUMENT_BYTES);
            let mut budget = MemoryBudget::for_file(0);
            budget.take_document(text.as_bytes()).unwrap();
            budget.limit - budget.left - text.len() as u64
        };
        assert_eq!(taken("\"[{,\\\"{\""), 0);
        assert_eq!(taken("[1,2]"), 64);
        assert_eq!(taken("[{},{}]"), 64 + 1200);
        assert_eq!(taken("{\"a\":{},\"b\":{}}"), 32 + 3 * 180 + 1000);
        let list = format!("[{}{{}}]", "{},".repeat(100_000));
        let over = MemoryBudget::for_file(list.len()).take_document(list.as_bytes()).unwrap_err();
        assert!(matches!(over, JsonOverBudget::Values { offset: 100_000..200_000, .. }), "{over}");
        let deep = "[".repeat(10_000_000);
        assert_eq!(MemoryBudget::for_file(deep.len()).take_document(deep.as_bytes()), Ok(()));
    }

    #[test]
    fn values_of_a_json_text_are_counted() {
        let objects = "{},".repeat(100);
        let mut budget = MemoryBudget::for_file(objects.len());
        assert_eq!(budget.take_json(objects.as_bytes(), 1 << 10, 1 << 4), Ok(()));
        let over = MemoryBudget::for_file(0).take_json(objects.as_bytes(), 1 << 20, 0).unwrap_err();
        let limit = OverBudget { limit: 32 << 20 };
        assert_eq!(over, JsonOverBudget::Values { offset: 96, over: limit });
        let told =
            MemoryBudget::for_file(0).take_values("case", 40, 1 << 20).unwrap_err().to_string();
        assert!(told.starts_with("case 33 does not fit: "), "{told}");
    }
}
