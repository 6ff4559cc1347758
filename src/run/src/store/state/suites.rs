//! The tables of the index of suites. Their content can be made again from the run folders.

/// Version 3: the times and cases of every suite.
///
/// Columns of `suite_time`: `side` is `kernel`, `baseline` or `optimised`. `gpu` is the name of the
/// GPU, `device` its UUID. `toolkit` is the compiler with its version. `clocks` is `as_found` or
/// `locked N MHz`. `inputs` is the digest of the files and options that the kernel was made of.
/// `low_ns` and `high_ns` bound the 95 % interval of the median. `right_result`, `throttled` and
/// `dirty` are 0 or 1.
pub(super) const SUITES: &str = "
CREATE TABLE suite_case (
    run TEXT NOT NULL,
    case_name TEXT NOT NULL,
    started TEXT NOT NULL,
    state TEXT NOT NULL,
    seconds REAL NOT NULL,
    PRIMARY KEY (run, case_name)
) STRICT, WITHOUT ROWID;
CREATE INDEX suite_case_of_name ON suite_case (case_name, started);

CREATE TABLE suite_time (
    run TEXT NOT NULL,
    case_name TEXT NOT NULL,
    side TEXT NOT NULL,
    sizes TEXT NOT NULL,
    started TEXT NOT NULL,
    dtype TEXT NOT NULL,
    gpu TEXT NOT NULL,
    driver TEXT NOT NULL,
    toolkit TEXT NOT NULL,
    clocks TEXT NOT NULL,
    method TEXT NOT NULL,
    inputs TEXT NOT NULL,
    device TEXT NOT NULL,
    median_ns REAL NOT NULL,
    low_ns REAL NOT NULL,
    high_ns REAL NOT NULL,
    samples INTEGER NOT NULL,
    right_result INTEGER NOT NULL,
    throttled INTEGER NOT NULL,
    commit_id TEXT NOT NULL,
    dirty INTEGER NOT NULL,
    PRIMARY KEY (run, case_name, side, sizes)
) STRICT, WITHOUT ROWID;
CREATE INDEX suite_time_of_case ON suite_time (case_name, started);
";

/// Version 5: adds `graph_ns`, the time inside a CUDA graph. The new primary key stores the rows in
/// the order in which the history reads them.
pub(super) const GRAPH_TIMES: &str = "
CREATE TABLE suite_time_ordered (
    case_name TEXT NOT NULL,
    side TEXT NOT NULL,
    sizes TEXT NOT NULL,
    started TEXT NOT NULL,
    run TEXT NOT NULL,
    dtype TEXT NOT NULL,
    gpu TEXT NOT NULL,
    driver TEXT NOT NULL,
    toolkit TEXT NOT NULL,
    clocks TEXT NOT NULL,
    method TEXT NOT NULL,
    inputs TEXT NOT NULL,
    device TEXT NOT NULL,
    median_ns REAL NOT NULL,
    low_ns REAL NOT NULL,
    high_ns REAL NOT NULL,
    graph_ns REAL,
    samples INTEGER NOT NULL,
    right_result INTEGER NOT NULL,
    throttled INTEGER NOT NULL,
    commit_id TEXT NOT NULL,
    dirty INTEGER NOT NULL,
    PRIMARY KEY (case_name, side, sizes, started, run)
) STRICT, WITHOUT ROWID;
INSERT INTO suite_time_ordered
    SELECT case_name, side, sizes, started, run, dtype, gpu, driver, toolkit, clocks, method, inputs,
           device, median_ns, low_ns, high_ns, NULL, samples, right_result, throttled, commit_id, dirty
    FROM suite_time;
DROP TABLE suite_time;
ALTER TABLE suite_time_ordered RENAME TO suite_time;
CREATE INDEX suite_time_of_run ON suite_time (run, case_name);
";
