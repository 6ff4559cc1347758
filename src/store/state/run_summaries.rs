//! The table of the index of runs. Its content can be made again from the run folders.

/// What lists show of every run. `stamp` says which state of the folder it was read from.
pub(super) const RUN_SUMMARIES: &str = "
CREATE TABLE run_summary (
    run TEXT PRIMARY KEY,
    stamp TEXT NOT NULL,
    summary TEXT NOT NULL
) STRICT, WITHOUT ROWID;
";
