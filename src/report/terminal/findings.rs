//! Findings, the rungs that failed, and what is missing.

use super::Page;
use crate::model::Profile;
use crate::report::kernel_name::short_name;
use crate::report::text::wrap;

pub(super) fn findings(page: &mut Page<'_>, profile: &Profile) {
    if profile.findings.is_empty() {
        return;
    }
    page.line("");
    let title = page.bold("what to try");
    page.line(&format!("  {title}"));
    let room = page.style.width.saturating_sub(7).max(30);
    for (at, finding) in profile.findings.iter().take(5).enumerate() {
        let kernel = finding.kernel.as_deref().map(|k| format!("{}: ", short_name(k)));
        let text = format!("{}{}", kernel.unwrap_or_default(), finding.text);
        for (line, part) in wrap(&text, room).into_iter().enumerate() {
            let number = if line == 0 { (at + 1).to_string() } else { String::new() };
            page.line(&format!("    {number:>1}  {part}"));
        }
        for (line, part) in wrap(&finding.hint, room.saturating_sub(2)).into_iter().enumerate() {
            page.line(&format!("       {} {part}", if line == 0 { "→" } else { " " }));
        }
    }
}

pub(super) fn tail(page: &mut Page<'_>, profile: &Profile) {
    page.line("");
    page.field("rung", &profile.rung);
    if let Some(lost) = profile.lost() {
        page.field("", &format!("lost: {lost}"));
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
    const FEW: usize = 5;
    match text.match_indices("`, `").nth(FEW - 1) {
        Some((at, _)) => {
            let more = text[at..].matches("`, `").count();
            format!("{}`, … and {more} more", &text[..at])
        }
        None => text.to_owned(),
    }
}
