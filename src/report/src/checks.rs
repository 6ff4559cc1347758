//! Texts on the sanitizer's checks that several reports share: a cause in one line, the checks that
//! did not run, and the kernels that were checked, so that `clean` is not read as more than it
//! says.

use super::kernel_name::KernelLabels;
use rgpu_model::Profile;
use rgpu_model::sanitizer::{CheckTool, SanitizerCause, SanitizerResult, SanitizerVerdict};
use rgpu_model::timeline::WHOLE_GRAPHS;

/// The tools of compute-sanitizer.
const TOOLS: [CheckTool; 4] =
    [CheckTool::Memcheck, CheckTool::Racecheck, CheckTool::Initcheck, CheckTool::Synccheck];

/// `Only memcheck ran: racecheck, initcheck and synccheck did not`. `None` if all of them ran, or
/// if no log names its tool.
pub(super) fn not_run(profile: &Profile) -> Option<String> {
    let ran = |tool: &CheckTool| profile.sanitizer.iter().any(|result| result.tool == *tool);
    let (ran, others): (Vec<CheckTool>, Vec<CheckTool>) = TOOLS.into_iter().partition(ran);
    if ran.is_empty() || others.is_empty() {
        return None;
    }
    Some(format!("Only {} ran: {} did not (`--tool` names the checks).", list(&ran), list(&others)))
}

/// The maximum number of kernels that a text names.
const MAX_KERNELS: usize = 4;

/// The kernels that compute-sanitizer checked, from a trace in the same profile: it lists none
/// itself. `None` without a clean result of it.
pub(super) fn covered(profile: &Profile, names: &KernelLabels<'_>) -> Option<String> {
    let is_ours = |result: &SanitizerResult| {
        TOOLS.contains(&result.tool) || result.tool == CheckTool::Sanitizer
    };
    let is_clean = |r: &&SanitizerResult| r.verdict == SanitizerVerdict::Clean && is_ours(r);
    profile.sanitizer.iter().find(is_clean)?;
    let mut text =
        "compute-sanitizer does not say which kernels it checked, nor how many launches".to_owned();
    let kernels: Vec<_> =
        profile.kernels.iter().filter(|kernel| kernel.kernel != WHOLE_GRAPHS).collect();
    if kernels.is_empty() {
        text += ": with a filter (`-k`, `--launch-count` …) it may be none.";
        return Some(text);
    }
    let named = kernels.iter().take(MAX_KERNELS);
    let named = named.map(|k| format!("{} ({})", names.name(&k.kernel), k.launches));
    let launches: u64 = kernels.iter().map(|kernel| kernel.launches).sum();
    text += &format!(
        ". Without it, the program launched {launches} kernel{}: {}",
        if launches == 1 { "" } else { "s" },
        named.collect::<Vec<_>>().join(", ")
    );
    match kernels.len().saturating_sub(MAX_KERNELS) {
        0 => {}
        more => text += &format!(" and {more} more"),
    }
    text.push('.');
    Some(text)
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
pub(super) fn cause(cause: &SanitizerCause, names: &KernelLabels<'_>) -> String {
    let at = match (&cause.file, cause.line) {
        (Some(file), Some(line)) => format!("{file}:{line}: "),
        (Some(file), None) => format!("{file}: "),
        _ => String::new(),
    };
    let kernel = if cause.kernel.is_empty() {
        String::new()
    } else {
        format!(" in {}", names.name(&cause.kernel))
    };
    let count = if cause.count > 1 { format!(" ({} times)", cause.count) } else { String::new() };
    format!("{at}{}{kernel}{count}", cause.text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::KernelNames;
    use rgpu_model::timeline::KernelSum;

    #[test]
    fn the_kernels_that_were_checked_are_told_by_a_trace_or_not_at_all() {
        let result = |verdict| SanitizerResult {
            tool: CheckTool::Memcheck,
            verdict,
            ..SanitizerResult::default()
        };
        let of = |verdict| Profile { sanitizer: vec![result(verdict)], ..Profile::default() };
        let told = |profile: &Profile| covered(profile, &KernelNames::Short.labels(profile));
        let mut profile = of(SanitizerVerdict::Clean);
        assert_eq!(
            told(&profile).unwrap(),
            "compute-sanitizer does not say which kernels it checked, nor how many launches: with a \
             filter (`-k`, `--launch-count` …) it may be none."
        );
        profile.kernels = ["a", "b", "c", "d", "e"]
            .map(|name| KernelSum { kernel: name.to_owned(), launches: 2, ..KernelSum::default() })
            .to_vec();
        assert_eq!(
            told(&profile).unwrap(),
            "compute-sanitizer does not say which kernels it checked, nor how many launches. Without \
             it, the program launched 10 kernels: a (2), b (2), c (2), d (2) and 1 more."
        );
        assert_eq!(told(&of(SanitizerVerdict::Unknown)), None, "nothing is claimed");
        assert_eq!(told(&of(SanitizerVerdict::Found)), None, "its causes name kernels");
        assert_eq!(told(&Profile::default()), None);
    }

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
