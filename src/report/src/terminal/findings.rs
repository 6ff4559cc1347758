//! Verdicts on the longest kernels, findings, the rungs that failed, and what is missing.

use std::collections::HashSet;

use super::Page;
use crate::finding;
use crate::missing;
use crate::quantity::percent;
use crate::text::wrap;
use rgpu_model::Profile;

/// The maximum number of findings that are shown.
const MAX_FINDINGS: usize = 5;

/// The maximum number of idle gaps that are shown for a finding.
const MAX_GAPS_PER_FINDING: usize = 3;

/// Writes the verdict of each kernel that takes most GPU time; nothing if there is only one kernel.
pub(super) fn add_kernel_verdicts(page: &mut Page<'_>, profile: &Profile) {
    if profile.kernels.len() < 2 || profile.kernel_verdicts.is_empty() {
        return;
    }
    page.line("");
    let title = page.bold("what limits the kernels");
    page.line(&format!("  {title}"));
    let all = &profile.kernel_verdicts;
    // Without counters the reason is the same for all, and is said once.
    let mut without: Vec<(&str, Vec<String>)> = Vec::new();
    for verdict in all {
        let name = format!("{} ({})", page.names.name(&verdict.kernel), percent(verdict.percent));
        match &verdict.verdict {
            Some(_) => write_wrapped(page, "", &format!("{name}: {}", verdict.text)),
            None => match without.iter_mut().find(|(why, _)| *why == verdict.text) {
                Some((_, names)) => names.push(name),
                None => without.push((&verdict.text, vec![name])),
            },
        }
    }
    for (why, names) in without {
        write_wrapped(page, "", &format!("{}: {why}", names.join(", ")));
    }
}

/// Writes wrapped text in the column of the findings; `bullet` precedes its first line.
fn write_wrapped(page: &mut Page<'_>, bullet: &str, text: &str) {
    let indent = bullet.chars().count();
    let room = page.style.width.saturating_sub(7 + indent).max(30);
    for (line, part) in wrap(text, room).into_iter().enumerate() {
        let bullet = if line == 0 { bullet } else { "" };
        page.line(&format!("       {bullet:indent$}{part}"));
    }
}

pub(super) fn add_findings(page: &mut Page<'_>, profile: &Profile) {
    if profile.findings.is_empty() {
        return;
    }
    page.line("");
    let title = page.bold("what to try");
    page.line(&format!("  {title}"));
    let room = page.style.width.saturating_sub(7).max(30);
    for (at, finding) in profile.findings.iter().take(MAX_FINDINGS).enumerate() {
        let kernel = finding::kernel(finding, &page.names).map(|kernel| format!("{kernel}: "));
        let text = format!("{}{}", kernel.unwrap_or_default(), finding.text);
        for (line, part) in wrap(&text, room).into_iter().enumerate() {
            let number = if line == 0 { (at + 1).to_string() } else { String::new() };
            page.line(&format!("    {number:>1}  {part}"));
        }
        if let Some(worth) = finding::worth(finding, profile) {
            write_wrapped(page, "", &format!("worth {worth}"));
        }
        for place in finding.places.iter().take(MAX_GAPS_PER_FINDING) {
            write_wrapped(page, "· ", &finding::idle_location_text(place, &page.names));
        }
        if let Some(covered) = finding::covered(finding, &page.names) {
            write_wrapped(page, "", &format!("in {covered}"));
        }
        write_wrapped(page, "→ ", &finding::hint(&profile.findings, at));
    }
    match profile.findings.len().saturating_sub(MAX_FINDINGS) {
        0 => {}
        more => page.line(&format!("       … and {more} more; `--format markdown` shows all")),
    }
}

/// Writes the rung, what it loses, the failed rungs and the gaps.
pub(super) fn add_rung_and_gaps(page: &mut Page<'_>, profile: &Profile) {
    page.line("");
    page.field("rung", &profile.rung);
    if let Some(lost) = profile.data_lost_on_rung() {
        page.field("", &format!("lost on this rung: {lost}"));
    }
    // Several passes may fail on a rung for one reason.
    let mut printed = HashSet::new();
    for rung in profile.ladder.iter().filter(|r| !r.ok) {
        let message =
            if rung.message.is_empty() { String::new() } else { format!(": {}", rung.message) };
        let text = format!("failed: {} ({}{message})", rung.rung, rung.code);
        if printed.insert(text.clone()) {
            page.field("", &text);
        }
    }
    // Failed rungs are already listed above with their reason.
    let is_listed = |text: &str| {
        profile.ladder.iter().any(|r| !r.ok && text.starts_with(&format!("{}: ", r.rung)))
    };
    let gaps = profile.gaps.iter().filter(|gap| !is_listed(&gap.text));
    for missing in missing::texts(gaps, &page.names) {
        page.field("missing", &first_names(&missing.text));
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
