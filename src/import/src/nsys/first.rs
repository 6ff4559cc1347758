//! The first rows in time order, from rows in any order.

/// A row that has a place in time.
pub(super) trait Timed {
    /// Its start, then its number in reading order.
    fn time(&self) -> (i64, u64);
}

/// Keeps the earliest rows of those passed to [`EarliestRows::see`].
///
/// Rows are only collected until there are twice as many as wanted; then the later half is dropped.
/// So each row is moved a few times at most, and the rows of most files, which are nearly in order,
/// stay nearly in order.
#[derive(Debug)]
pub(super) struct EarliestRows<T> {
    most: usize,
    rows: Vec<T>,
    /// A row from this time on comes too late.
    too_late: Option<(i64, u64)>,
}

impl<T: Timed> EarliestRows<T> {
    pub(super) fn new(most: usize) -> EarliestRows<T> {
        EarliestRows { most, rows: Vec::new(), too_late: None }
    }

    /// Adds a row if it is early enough.
    pub(super) fn see(&mut self, row: T) {
        if self.too_late.is_some_and(|too_late| row.time() >= too_late) {
            return;
        }
        self.rows.push(row);
        if self.rows.len() >= self.most.saturating_mul(2).max(1) {
            self.drop_later();
        }
    }

    fn drop_later(&mut self) {
        if self.rows.len() > self.most {
            let (_, first_late, _) =
                self.rows.select_nth_unstable_by_key(self.most, |row| row.time());
            self.too_late = Some(first_late.time());
            self.rows.truncate(self.most);
        }
    }

    /// The earliest rows in time order.
    pub(super) fn finish(mut self) -> Vec<T> {
        self.drop_later();
        self.rows.sort_by_key(|row| row.time());
        self.rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Timed for (i64, u64) {
        fn time(&self) -> (i64, u64) {
            *self
        }
    }

    #[test]
    fn the_earliest_of_rows_in_any_order_are_kept() {
        for (count, most, step) in
            [(0, 5, 1), (4, 5, 1), (200, 7, 1), (200, 7, 199), (200, 1, 77), (200, 0, 3)]
        {
            let mut rows: Vec<(i64, u64)> =
                (0..count).map(|n| ((n as i64 * step) % 50, n)).collect();
            let mut earliest = EarliestRows::new(most);
            rows.iter().for_each(|row| earliest.see(*row));
            rows.sort_unstable();
            rows.truncate(most);
            assert_eq!(earliest.finish(), rows, "{count} {most} {step}");
        }
    }
}
