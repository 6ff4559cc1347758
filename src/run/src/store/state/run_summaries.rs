//! The table of the index of runs. Its content can be made again from the run folders.

/// The columns that lists show of every run. `stamp` identifies the folder's state that was read.
pub(super) const RUN_SUMMARIES: &str = "
CREATE TABLE run_summary (
    run TEXT PRIMARY KEY,
    stamp TEXT NOT NULL,
    summary TEXT NOT NULL
) STRICT, WITHOUT ROWID;
";
