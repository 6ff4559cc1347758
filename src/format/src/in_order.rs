//! Reads the parts of a file on several threads and returns their rows in the order of the parts.
//!
//! Each reader thread takes every n-th part, decodes its rows and sends them in batches. The
//! caller's thread receives the parts in order. A reader that is ahead waits, so memory stays
//! bounded whatever the file's size.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

/// Bytes of rows that are handed to another thread at once. Allocations of more than 128 KiB would
/// each be mapped anew.
const BATCH_BYTES: usize = 1 << 16;
/// A batch is also full when its texts reach this many bytes.
const MAX_BATCH_TEXT_BYTES: usize = 1 << 16;
/// How many batches a reader may be ahead.
const MAX_BATCHES_AHEAD: usize = 16;
/// Further readers would only wait for the thread that receives the rows.
const MAX_READERS: usize = 8;

/// Number of readers suitable for this machine.
pub(crate) fn readers() -> usize {
    std::thread::available_parallelism().map_or(1, |many| many.get().min(MAX_READERS))
}

/// A message from a reader.
enum ReaderMessage<T, E> {
    Rows(Batch<T>),
    PartEnds,
    Failed(E),
}

/// Rows of one part.
pub(crate) struct Batch<T> {
    pub(crate) rows: Vec<T>,
    /// Bytes of the texts of these rows.
    pub(crate) text_bytes: usize,
}

impl<T> Batch<T> {
    fn new() -> Batch<T> {
        Batch { rows: Vec::new(), text_bytes: 0 }
    }
}

/// Sends the rows of one reader.
pub(crate) struct RowSender<T, E> {
    to: SyncSender<ReaderMessage<T, E>>,
    batch: Batch<T>,
    /// Nobody takes the rows any more.
    is_stopped: bool,
}

impl<T, E> RowSender<T, E> {
    /// No row is without a size.
    const BATCH_ROWS: usize = BATCH_BYTES / size_of::<T>();

    /// Sends a row. `text_bytes` is the length of its texts. False if the reader should stop,
    /// because nobody takes its rows.
    pub(crate) fn row(&mut self, row: T, text_bytes: usize) -> bool {
        self.batch.rows.push(row);
        self.batch.text_bytes += text_bytes;
        if self.batch.rows.len() >= Self::BATCH_ROWS
            || self.batch.text_bytes >= MAX_BATCH_TEXT_BYTES
        {
            self.flush();
        }
        !self.is_stopped
    }

    /// Tells that the part has no further rows. False if the reader should stop.
    #[must_use]
    pub(crate) fn part_ends(&mut self) -> bool {
        self.flush();
        self.send(ReaderMessage::PartEnds);
        !self.is_stopped
    }

    fn flush(&mut self) {
        let full = std::mem::replace(&mut self.batch, Batch::new());
        if !full.rows.is_empty() {
            self.send(ReaderMessage::Rows(full));
        }
    }

    fn send(&mut self, message: ReaderMessage<T, E>) {
        if !self.is_stopped {
            self.is_stopped = self.to.send(message).is_err();
        }
    }
}

/// Has `readers` threads read the parts, each with a call of `read` that gets the parts of its
/// thread, and passes the rows to `take` in the order of the parts. Returns `None`, before any row,
/// if a thread could not be started. The first error in that order ends the reading.
pub(crate) fn stream<P: Sync, T: Send, E: Send>(
    parts: &[P],
    readers: usize,
    read: impl Fn(&mut dyn Iterator<Item = &P>, &mut RowSender<T, E>) -> Result<(), E> + Sync,
    mut take: impl FnMut(Batch<T>) -> Result<(), E>,
) -> Option<Result<(), E>> {
    let read = &read;
    std::thread::scope(|scope| {
        // Dropped before the scope ends, which stops the readers after an early return.
        let mut streams: Vec<Receiver<ReaderMessage<T, E>>> = Vec::with_capacity(readers);
        for reader in 0..readers {
            let (to, from) = sync_channel(MAX_BATCHES_AHEAD);
            let mut own = parts.iter().skip(reader).step_by(readers);
            let work = move || {
                let mut sender = RowSender { to, batch: Batch::new(), is_stopped: false };
                if let Err(cause) = read(&mut own, &mut sender) {
                    // The receiver is gone if an earlier part failed.
                    sender.send(ReaderMessage::Failed(cause));
                }
            };
            std::thread::Builder::new().spawn_scoped(scope, work).ok()?;
            streams.push(from);
        }
        for (_, stream) in parts.iter().zip(streams.iter().cycle()) {
            for message in stream {
                let taken = match message {
                    ReaderMessage::Rows(batch) => take(batch),
                    ReaderMessage::PartEnds => break,
                    ReaderMessage::Failed(cause) => Err(cause),
                };
                if taken.is_err() {
                    return Some(taken);
                }
            }
        }
        Some(Ok(()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    type Row = (u32, u32);

    /// Part n has n % 5 * 700 rows. The rows that arrive before the first part of `failing`.
    fn read(parts: u32, readers: usize, failing: Option<u32>) -> (Vec<Row>, Result<(), u32>) {
        let parts: Vec<u32> = (0..parts).collect();
        let mut rows = Vec::new();
        let outcome = stream(
            &parts,
            readers,
            |own, to| {
                for part in own {
                    if Some(*part) == failing {
                        return Err(*part);
                    }
                    (0..part % 5 * 7000)
                        .for_each(|row| assert!(to.row((*part, row), 1) || failing.is_some()));
                    if !to.part_ends() {
                        break;
                    }
                }
                Ok(())
            },
            |batch| {
                assert!(
                    !batch.rows.is_empty() && batch.rows.len() <= BATCH_BYTES / size_of::<Row>()
                );
                assert_eq!(batch.rows.len(), batch.text_bytes);
                rows.extend(batch.rows);
                Ok(())
            },
        );
        (rows, outcome.unwrap())
    }

    fn expected(parts: u32) -> Vec<Row> {
        (0..parts).flat_map(|part| (0..part % 5 * 7000).map(move |row| (part, row))).collect()
    }

    #[test]
    fn rows_arrive_in_order_by_any_number_of_readers() {
        for readers in [1, 2, 3, 8, 40] {
            assert_eq!(read(33, readers, None), (expected(33), Ok(())), "{readers} readers");
        }
        assert_eq!(read(0, 3, None), (vec![], Ok(())));
    }

    #[test]
    fn a_part_that_fails_ends_the_reading_after_the_rows_before_it() {
        for readers in [1, 3, 8] {
            assert_eq!(read(33, readers, Some(19)), (expected(19), Err(19)));
        }
    }

    #[test]
    fn an_early_end_stops_the_readers() {
        let parts: Vec<u32> = (0..10_000).collect();
        let mut taken = 0;
        let outcome = stream(
            &parts,
            4,
            |own, to| {
                for part in own {
                    to.row(*part, 0);
                    if !to.part_ends() {
                        return Ok(());
                    }
                    assert!(*part < 9_000, "the readers did not stop");
                }
                Ok(())
            },
            |_: Batch<u32>| {
                taken += 1;
                Err(taken)
            },
        );
        assert_eq!(outcome, Some(Err(1)));
    }

    #[test]
    fn long_texts_fill_a_batch() {
        let mut sizes = Vec::new();
        let read = |own: &mut dyn Iterator<Item = &u8>, to: &mut RowSender<u8, ()>| {
            for part in own {
                (0..5).for_each(|row| assert!(to.row(row, MAX_BATCH_TEXT_BYTES / 2)));
                assert!(to.part_ends(), "part {part}");
            }
            Ok(())
        };
        let take = |batch: Batch<u8>| {
            sizes.push(batch.rows.len());
            Ok(())
        };
        stream(&[0], 1, read, take).unwrap().unwrap();
        assert_eq!(sizes, [2, 2, 1]);
    }
}
