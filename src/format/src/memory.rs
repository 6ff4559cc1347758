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
    pub fn of(file_bytes: usize) -> Self {
        let limit = (file_bytes as u64).saturating_mul(BYTES_PER_FILE_BYTE) + BASE_BYTES;
        Self { limit, left: limit }
    }

    /// Takes `bytes` from the budget. Once this failed, it always fails.
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
        let mut budget = MemoryBudget::of(1 << 20);
        assert_eq!(budget.take(34 << 20), Ok(()));
        assert_eq!(budget.take(2 << 20), Err(OverBudget { limit: 35 << 20 }));
        assert!(budget.take(1).is_err());
        let text = OverBudget { limit: 35 << 20 }.to_string();
        assert!(text.contains("35 MiB"), "{text}");
    }

    #[test]
    fn values_of_a_json_text_are_counted() {
        let objects = "{},".repeat(100);
        let mut budget = MemoryBudget::of(objects.len());
        assert_eq!(budget.take_json(objects.as_bytes(), 1 << 10, 1 << 4), Ok(()));
        let over = MemoryBudget::of(0).take_json(objects.as_bytes(), 1 << 20, 0).unwrap_err();
        let limit = OverBudget { limit: 32 << 20 };
        assert_eq!(over, JsonOverBudget::Values { offset: 96, over: limit });
        let told = MemoryBudget::of(0).take_values("case", 40, 1 << 20).unwrap_err().to_string();
        assert!(told.starts_with("case 33 does not fit: "), "{told}");
    }
}
