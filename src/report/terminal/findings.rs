//! Verdicts on the longest kernels, findings, the rungs that failed, and what is missing.

use super::Page;
use crate::model::Profile;
use crate::report::finding;
use crate::report::quantity::percent;
use crate::report::text::wrap;

/// The maximum number of places of idle time that are shown for a finding.
const MAX_PLACES: usize = 3;

/// Writes what limits the kernels that hold the time, if there are several kernels.
pub(super) fn kernel_verdicts(page: &mut Page<'_>, profile: &Profile) {
    if profile.kernels.len() < 2 || profile.kernel_verdicts.is_empty() {
        return;
    }
    page.line("");
    let title = page.bold("what limits the kernels");
    page.line(&format!("  {title}"));
    let all = &profile.kernel_verdicts;
    let names = page.style.names.distinct(all.iter().map(|verdict| verdict.kernel.as_str()));
    // Without counters the reason is the same for all, and is said once.
    let mut without: Vec<(&str, Vec<String>)> = Vec::new();
    for (verdict, name) in all.iter().zip(names) {
        let name = format!("{name} ({})", percent(verdict.percent));
        match &verdict.verdict {
            Some(_) => lines(page, "", &format!("{name}: {}", verdict.text)),
            None => match without.iter_mut().find(|(why, _)| *why == verdict.text) {
                Some((_, names)) => names.push(name),
                None => without.push((&verdict.text, vec![name])),
            },
        }
    }
    for (why, names) in without {
        lines(page, "", &format!("{}: {why}", names.join(", ")));
    }
}

/// Writes a text in the column of the findings, after `mark` in its first line.
fn lines(page: &mut Page<'_>, mark: &str, text: &str) {
    let indent = mark.chars().count();
    let room = page.style.width.saturating_sub(7 + indent).max(30);
    for (line, part) in wrap(text, room).into_iter().enumerate() {
        let mark = if line == 0 { mark } else { "" };
        page.line(&format!("       {mark:indent$}{part}"));
    }
}

pub(super) fn findings(page: &mut Page<'_>, profile: &Profile) {
    if profile.findings.is_empty() {
        return;
    }
    page.line("");
    let title = page.bold("what to try");
    page.line(&format!("  {title}"));
    let room = page.style.width.saturating_sub(7).max(30);
    for (at, finding) in profile.findings.iter().take(5).enumerate() {
        let kernel = finding::kernel(finding, page.style.names).map(|kernel| format!("{kernel}: "));
        let text = format!("{}{}", kernel.unwrap_or_default(), finding.text);
        for (line, part) in wrap(&text, room).into_iter().enumerate() {
            let number = if line == 0 { (at + 1).to_string() } else { String::new() };
            page.line(&format!("    {number:>1}  {part}"));
        }
        if let Some(worth) = finding::worth(finding) {
            lines(page, "", &format!("worth {worth}"));
        }
        for place in finding.places.iter().take(MAX_PLACES) {
            lines(page, "· ", &finding::place(place, page.style.names));
        }
        if let Some(covered) = finding::covered(finding, page.style.names) {
            lines(page, "", &format!("in {covered}"));
        }
        lines(page, "→ ", &finding::hint(&profile.findings, at));
    }
}

pub(super) fn tail(page: &mut Page<'_>, profile: &Profile) {
    page.line("");
    page.field("rung", &profile.rung);
    if let Some(lost) = profile.lost() {
        page.field("", &format!("not available: {lost}"));
    }
    for step in profile.ladder.iter().filter(|r| !r.ok) {
        let message =
            if step.message.is_empty() { String::new() } else { format!(": {}", step.message) };
        page.field("", &format!("not {} ({}{message})", step.rung, step.code));
    }
    // Failed rungs are already listed above with their reason.
    let is_listed = |text: &str| {
        profile.ladder.iter().any(|r| !r.ok && text.starts_with(&format!("{}: ", r.rung)))
    };
    for gap in profile.gaps.iter().filter(|gap| !is_listed(&gap.text)) {
        page.field("missing", &first_names(&gap.text));
    }
}

/// Shortens a text that ends in a long list of names to the first few names.
fn first_names(text: &str) -> String {
    const MAX_NAMES: usize = 5;
    match text.match_indices("`, `").nth(MAX_NAMES - 1) {
        Some((at, _)) => {
            let more = text[at..].matches("`, `").count();
            format!("{}`, … and {more} more", &text[..at])
        }
        None => text.to_owned(),
    }
}
