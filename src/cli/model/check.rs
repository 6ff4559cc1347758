//! `rgpu model check`: hardware files and configs, and the predictions against known results.

use std::path::PathBuf;

use clap::Args;
use rgpu_predict::document::CheckedItem;
use rgpu_predict::hw::{Problem, check};
use rgpu_predict::known;

use super::{gpu, hw, llm};
use crate::cli::support::app::{App, Status};
use rgpu_model::error::Result;

/// Check GPUs and configs, and compare predictions with known results
#[derive(Args, Clone, Debug)]
pub(in crate::cli) struct CheckArgs {
    /// Hardware files (.toml) and configs (.json); without any, the whole catalogue
    pub files: Vec<PathBuf>,
}

pub(super) fn run(app: &App, args: &CheckArgs) -> Result<Status> {
    let mut checks = Vec::new();
    for file in &args.files {
        let subject = file.display().to_string();
        let problems = if file.extension().is_some_and(|extension| extension == "json") {
            match llm::model(file) {
                Ok(_) => Vec::new(),
                Err(failure) if failure.code == "bad_config" => {
                    vec![Problem { place: "config".to_owned(), text: failure.what }]
                }
                Err(failure) => return Err(failure),
            }
        } else {
            check(&gpu::read(file)?)
        };
        checks.push(CheckedItem { subject, problems });
    }
    if args.files.is_empty() {
        for (hardware, _) in gpu::all(app) {
            checks.push(CheckedItem { subject: hardware.id.clone(), problems: check(&hardware) });
        }
    }
    for result in known::results() {
        let problems = if result.agrees() {
            Vec::new()
        } else {
            vec![Problem {
                place: result.source.to_owned(),
                text: format!("is {:.4}, must be {}", result.computed, result.known),
            }]
        };
        checks.push(CheckedItem { subject: result.name.to_owned(), problems });
    }
    hw::print_checks(app, checks)
}
