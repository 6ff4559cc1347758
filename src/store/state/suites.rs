//! The tables of the index of suites. Their content can be made again from the run folders.

/// The times and cases of every suite.
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

/// Version 5: the times inside CUDA graphs, and rows that lie in the order in which a history reads
/// them.
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
