//! The cases of a sweep or suite, read from its run folder.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use rgpu_model::suite::{SuiteRow, SuiteRun};
use rgpu_run::store::RunFolder;

/// A case of a sweep or suite.
#[serde_with::skip_serializing_none]
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(super) struct CaseFigures {
    /// The values of its axes, `n=1024`, or its name.
    case: String,
    /// `waiting`, `running`, `ok`, `no GPU`, `failed`, `cancelled` or `no budget`.
    state: String,
    /// The id of its run, which has all else.
    run: Option<String>,
    /// Median time of its first size in nanoseconds.
    median_ns: Option<f64>,
    /// Code of its failure.
    reason: Option<String>,
}

impl CaseFigures {
    /// The id of its run.
    pub(super) fn run(&self) -> Option<&str> {
        self.run.as_deref()
    }

    fn from_row(row: SuiteRow) -> Self {
        let values = row.case.split_once('[').and_then(|(_, values)| values.strip_suffix(']'));
        Self {
            case: values.unwrap_or(&row.case).to_owned(),
            state: row.state.as_str().to_owned(),
            median_ns: row.times.first().map(|time| time.median_ns),
            run: row.run,
            reason: row.reason,
        }
    }
}

/// The cases of a suite's run, also while it goes on. Empty for other runs.
pub(super) fn cases(folder: &RunFolder) -> Vec<CaseFigures> {
    let suite = folder.read("suite.json").ok();
    let suite = suite.and_then(|bytes| rgpu_run::saved_json::from_slice::<SuiteRun>(&bytes).ok());
    suite.map_or_else(Vec::new, |suite| suite.rows.into_iter().map(CaseFigures::from_row).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_has_the_values_of_its_axes_or_its_name() {
        let case = |name: &str| {
            CaseFigures::from_row(SuiteRow { case: name.to_owned(), ..SuiteRow::default() }).case
        };
        assert_eq!(case("sweep:vecadd[n=1000,TILE=16]"), "n=1000,TILE=16");
        assert_eq!(case("memory:vecadd"), "memory:vecadd");
    }
}
