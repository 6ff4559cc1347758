//! Reads measurements from CSV files and runs, for the commands that compare predictions with them.

use std::path::Path;

use clap::Args;
use rgpu_predict::import::between;
use rgpu_predict::measurement::{Measurement, read_csv};

use super::input;
use crate::cli::support::app::App;
use crate::cli::support::missing;
use crate::cli::support::open_profile::saved_profile;
use rgpu_analysis::measured_rows::measured_rows;
use rgpu_format::memory::MemoryBudget;
use rgpu_model::error::{Exit, Failure, Result};
use rgpu_run::store::StoreError;

/// Memory of a measurement and its comparison.
const ROW_BYTES: usize = 1500;

/// Limits the days of rows.
#[derive(Args, Clone, Debug, Default)]
pub(in crate::cli) struct DateArgs {
    /// Only rows from this day on
    #[arg(long, value_parser = input::day)]
    pub since: Option<String>,

    /// Only rows up to this day
    #[arg(long, value_parser = input::day)]
    pub until: Option<String>,
}

impl DateArgs {
    /// The rows of these days. Rows without a day are left out if a limit is given.
    pub(super) fn select(&self, rows: Vec<Measurement>) -> Vec<Measurement> {
        between(rows, self.since.as_deref(), self.until.as_deref())
    }
}

/// The rows of CSV files and runs, of these days.
pub(super) fn rows(app: &App, sources: &[String], dates: &DateArgs) -> Result<Vec<Measurement>> {
    let mut rows = Vec::new();
    for source in sources {
        if Path::new(source).is_file() {
            rows.extend(csv_rows(Path::new(source))?)
        } else {
            rows.extend(run_rows(app, source)?)
        }
    }
    Ok(dates.select(rows))
}

fn csv_rows(file: &Path) -> Result<Vec<Measurement>> {
    let text = input::read(file)?;
    let lines = text.iter().filter(|byte| **byte == b'\n').count();
    MemoryBudget::for_file(text.len()).take_values("row", lines, ROW_BYTES).map_err(|over| {
        Failure::new(Exit::Artifact, "too_large", over.to_string()).file(file.display())
    })?;
    read_csv(&text).map_err(|error| {
        Failure::new(Exit::Artifact, "bad_csv", error.to_string())
            .file(file.display())
            .hint("`rgpu model import` writes such CSVs")
    })
}

fn run_rows(app: &App, name: &str) -> Result<Vec<Measurement>> {
    let folder = app.runs().find_result(name).map_err(|e| match e {
        StoreError::Unknown(_) => missing::run_or_file(name),
        other => other.into(),
    })?;
    let found = measured_rows(&saved_profile(&folder)?);
    for reason in &found.skipped {
        app.print_note(&format!("{name}: no row of {reason}"));
    }
    if found.rows.is_empty() {
        app.print_note(&format!("{name} has no kernel whose work is known"));
    }
    Ok(found.rows)
}
