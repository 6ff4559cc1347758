//! The exit status of a comparison.

use super::CompareArgs;
use super::args::FailOn;
use crate::cli::support::app::{App, Status};
use rgpu_model::Comparison;
use rgpu_model::comparison::TimeVerdict;
use rgpu_model::error::{Exit, Result};

/// 1 if `--fail-on` or `--fail-under` applies.
pub(super) fn status(app: &App, args: &CompareArgs, comparison: &Comparison) -> Result<Status> {
    let fails = |on| {
        args.fail_on.contains(&on)
            && comparison.verdict
                == match on {
                    FailOn::Slower => TimeVerdict::Slower,
                    FailOn::Ambiguous => TimeVerdict::Ambiguous,
                }
    };
    if fails(FailOn::Slower) || fails(FailOn::Ambiguous) {
        app.print_note(&format!("`--fail-on`: the verdict is {}", comparison.verdict.as_str()));
        return Ok(Exit::Findings as u8);
    }
    if let Some(min_speedup) = args.fail_under {
        let speedup = comparison.time.as_ref().map(|t| t.speedup);
        if speedup.is_none_or(|x| x < min_speedup) {
            let shown = speedup.map_or("not known".to_owned(), |x| format!("{x:.3}"));
            app.print_note(&format!("the speedup is {shown}, below `--fail-under` {min_speedup}"));
            return Ok(Exit::Findings as u8);
        }
    }
    Ok(0)
}
