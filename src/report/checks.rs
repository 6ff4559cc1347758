//! Texts on the sanitizer's checks that several reports share: a cause in one line, and the checks
//! that did not run, so that `clean` is not read as more than it says.

use super::kernel_name::KernelNames;
use crate::model::Profile;
use crate::model::sanitizer::{CheckTool, SanitizerCause};

/// The tools of compute-sanitizer.
const TOOLS: [CheckTool; 4] =
    [CheckTool::Memcheck, CheckTool::Racecheck, CheckTool::Initcheck, CheckTool::Synccheck];

/// `Only memcheck ran: racecheck, initcheck and synccheck did not`. `None` if all of them ran, or if
/// no log names its tool.
pub(super) fn not_run(profile: &Profile) -> Option<String> {
    let ran = |tool: &CheckTool| profile.sanitizer.iter().any(|result| result.tool == *tool);
    let (ran, others): (Vec<CheckTool>, Vec<CheckTool>) = TOOLS.into_iter().partition(ran);
    if ran.is_empty() || others.is_empty() {
        return None;
    }
    Some(format!("Only {} ran: {} did not (`--tool` names the checks).", list(&ran), list(&others)))
}

fn list(tools: &[CheckTool]) -> String {
    let names: Vec<&str> = tools.iter().map(|tool| tool.as_str()).collect();
    match names.split_last() {
        Some((last, [])) => (*last).to_owned(),
        Some((last, first)) => format!("{} and {last}", first.join(", ")),
        None => String::new(),
    }
}

/// A cause in one line: place, message, kernel, and how often it was reported.
pub(super) fn cause(cause: &SanitizerCause, names: KernelNames) -> String {
    let at = match (&cause.file, cause.line) {
        (Some(file), Some(line)) => format!("{file}:{line}: "),
        (Some(file), None) => format!("{file}: "),
        _ => String::new(),
    };
    let kernel = match cause.kernel.is_empty() {
        true => String::new(),
        false => format!(" in {}", names.name(&cause.kernel)),
    };
    let count = if cause.count > 1 { format!(" ({} times)", cause.count) } else { String::new() };
    format!("{at}{}{kernel}{count}", cause.text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::sanitizer::SanitizerResult;

    #[test]
    fn the_checks_that_did_not_run_are_named() {
        let ran = |tools: &[CheckTool]| {
            let result = |tool: &CheckTool| SanitizerResult {
                tool: tool.clone(),
                ..SanitizerResult::default()
            };
            let sanitizer = tools.iter().map(result).collect();
            not_run(&Profile { sanitizer, ..Profile::default() })
        };
        assert_eq!(
            ran(&[CheckTool::Memcheck]).unwrap(),
            "Only memcheck ran: racecheck, initcheck and synccheck did not (`--tool` names the checks)."
        );
        assert_eq!(ran(&TOOLS), None);
        assert_eq!(ran(&[CheckTool::Guard]), None);
    }
}
