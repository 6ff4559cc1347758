//! The exit status of a comparison.

use super::CompareArgs;
use super::args::FailOn;
use crate::cli::support::app::{App, Status, show_failure};
use crate::cli::support::unmeasured::NOT_MEASURED;
use rgpu_model::Comparison;
use rgpu_model::comparison::TimeVerdict;
use rgpu_model::error::{Exit, Failure, Result};

/// 1 if `--fail-on` or `--fail-under` applies, 5 if `--fail-on` has no times to judge.
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
    let is_judged = comparison.time.is_some() || comparison.verdict != TimeVerdict::Ambiguous;
    if !args.fail_on.is_empty() && !is_judged && !args.unmeasured.allow_unmeasured {
        let failure = Failure::new(Exit::Tool, NOT_MEASURED, "`--fail-on` has no time to judge")
            .cause(&comparison.summary)
            .hint("`--allow-unmeasured` accepts that, with status 0");
        // The comparison was printed before, as the document of `--json`.
        show_failure(&failure, Exit::Tool as u8, false);
        return Ok(Exit::Tool as u8);
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
