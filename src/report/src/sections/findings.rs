//! Verdicts on the longest kernels, findings, the rungs that failed, and what is missing.

use std::collections::HashSet;

use super::View;
use crate::TextTable;
use crate::account;
use crate::blocks::{Block, Blocks, TableBlock};
use crate::finding;
use crate::missing;
use crate::quantity::{measured, percent, threshold};
use crate::text::capital;
use rgpu_model::Profile;

/// The maximum number of findings that are shown.
const MAX_FINDINGS: usize = 5;

/// The maximum number of idle gaps that are shown for a finding.
const MAX_GAPS_PER_FINDING: usize = 3;

/// Adds the verdict of each kernel that takes most GPU time. A terminal leaves it out if there is
/// only one kernel.
pub(super) fn add_kernel_verdicts(out: &mut Blocks, view: &View<'_>) {
    let verdicts = &view.profile.kernel_verdicts;
    if verdicts.is_empty() || (view.profile.kernels.len() < 2 && !view.is_whole) {
        return;
    }
    out.heading("what limits the kernels");
    // Without counters the reason is the same for all, and is said once.
    let mut without: Vec<(&str, Vec<String>)> = Vec::new();
    for verdict in verdicts {
        let name = format!("{} ({})", view.names.name(&verdict.kernel), percent(verdict.percent));
        match &verdict.verdict {
            Some(_) => out.add(Block::Detail("", format!("{name}: {}", verdict.text))),
            None => match without.iter_mut().find(|(why, _)| *why == verdict.text) {
                Some((_, names)) => names.push(name),
                None => without.push((&verdict.text, vec![name])),
            },
        }
    }
    for (why, names) in without {
        out.add(Block::Detail("", format!("{}: {why}", names.join(", "))));
    }
}

pub(super) fn add_findings(out: &mut Blocks, view: &View<'_>) {
    let (profile, names) = (view.profile, &view.names);
    if profile.findings.is_empty() {
        out.add(Block::Chapter("what to try".to_owned(), "No findings."));
        return;
    }
    out.heading("what to try");
    let little = profile.findings.iter().filter(|finding| profile.is_little(finding)).count();
    // Those below 1 % of a step are the last ones.
    let large = profile.findings.len() - little;
    for (at, finding) in
        profile.findings.iter().take(large.min(view.rows(MAX_FINDINGS))).enumerate()
    {
        let kernel = finding::kernel(finding, names).map(|kernel| format!("{kernel}: "));
        let id = if view.is_whole { format!(" (`{}`)", finding.id) } else { String::new() };
        let text = format!("{}{}{id}", kernel.unwrap_or_default(), finding.text);
        out.add(Block::Item(at + 1, text));
        if let Some(gain) = finding::gain(finding, profile) {
            out.add(Block::Detail("", gain));
        }
        for place in finding.places.iter().take(view.rows(MAX_GAPS_PER_FINDING)) {
            out.add(Block::Detail("· ", finding::idle_location_text(place, names)));
        }
        if let Some(covered) = finding::covered(finding, names) {
            out.add(Block::Detail("", format!("in {covered}")));
        }
        if let Some(code) = finding::code(finding) {
            out.add(Block::Detail("", format!("at {code}")));
        }
        out.add(Block::Detail("→ ", finding::hint(&profile.findings, at).into_owned()));
        for e in finding.evidence.iter().filter(|_| view.is_whole) {
            let against = threshold(e).map(|limit| format!(" (threshold {limit}, {})", e.source));
            let (value, against) = (measured(e.value, &e.unit), against.unwrap_or_default());
            out.add(Block::Detail("", format!("`{}` = {value}{against}", e.metric)));
        }
    }
    let together = account::together(profile);
    if view.is_whole {
        together.into_iter().for_each(|together| out.note(capital(&together)));
        add_little_findings(out, view, large);
        return;
    }
    let more = large.saturating_sub(MAX_FINDINGS);
    let mut rest = Vec::new();
    if more > 0 {
        rest.push(format!("and {more} more"));
    }
    if little > 0 {
        rest.push(format!("and {little} more below 1 % of a step"));
    }
    if !rest.is_empty() {
        let rest = rest.join(", ");
        out.add(Block::Note(7, format!("… {rest}; `--format markdown` shows all")));
    }
    together.into_iter().for_each(|together| out.note(together));
}

/// Adds the findings from number `first` on, which are about next to nothing of a step: one line
/// each.
fn add_little_findings(out: &mut Blocks, view: &View<'_>, first: usize) {
    let (profile, names) = (view.profile, &view.names);
    let little = profile.findings.iter().enumerate().skip(first);
    if profile.findings.len() > first {
        out.note("Below 1 % of a step each:");
    }
    for (at, finding) in little {
        let kernel = finding::kernel(finding, names).map(|kernel| format!("{kernel}: "));
        let kernel = kernel.unwrap_or_default();
        let gain = finding::gain(finding, profile).map(|gain| format!("; {gain}"));
        let text =
            format!("{kernel}{} (`{}`){}", finding.text, finding.id, gain.unwrap_or_default());
        out.add(Block::Item(at + 1, text));
        if let Some(code) = finding::code(finding) {
            out.add(Block::Detail("", format!("at {code}")));
        }
        out.add(Block::Detail("→ ", finding::hint(&profile.findings, at).into_owned()));
    }
}

/// Adds the rung, what it loses, the failed rungs and the gaps.
pub(super) fn add_rung_and_gaps(out: &mut Blocks, view: &View<'_>) {
    let profile = view.profile;
    out.add(Block::Group("ladder"));
    out.field("rung", profile.rung.as_str());
    if let Some(lost) = profile.data_lost_on_rung() {
        out.field("", format!("lost on this rung: {lost}"));
    }
    // Several passes may fail on a rung for one reason.
    let mut printed = HashSet::new();
    for rung in profile.ladder.iter().filter(|r| !r.ok) {
        let message =
            if rung.message.is_empty() { String::new() } else { format!(": {}", rung.message) };
        let text = format!("failed: {} ({}{message})", rung.rung, rung.code);
        if printed.insert(text.clone()) {
            out.field("", text);
        }
    }
    if view.is_whole {
        add_steps_and_gaps(out, view);
        return;
    }
    // Failed rungs are already listed above with their reason.
    let is_listed = |text: &str| {
        profile.ladder.iter().any(|r| !r.ok && text.starts_with(&format!("{}: ", r.rung)))
    };
    let gaps = profile.gaps.iter().filter(|gap| !is_listed(&gap.text));
    for missing in missing::texts(gaps, &view.names) {
        out.field("missing", first_names(&missing.text));
    }
}

/// Adds the steps of the run, and all that is missing with its codes.
fn add_steps_and_gaps(out: &mut Blocks, view: &View<'_>) {
    let profile = view.profile;
    out.full_table(TableBlock { table: steps(profile), ..TableBlock::default() });
    let missing = missing::texts(profile.missing(), &view.names);
    if missing.is_empty() {
        let nothing = "Nothing that was requested is missing.";
        out.add(Block::Chapter("missing".to_owned(), nothing));
        return;
    }
    out.heading("missing");
    for missing in missing {
        out.add(Block::Detail("", format!("`{}`: {}", missing.code, missing.text)));
    }
}

/// The steps of a run with their rungs.
pub(crate) fn steps(profile: &Profile) -> TextTable {
    TextTable::of(
        &profile.ladder,
        &[
            ("step", &|r| r.step.clone()),
            ("rung", &|r| r.rung.clone()),
            ("ok", &|r| if r.ok { "yes".to_owned() } else { format!("no: {}", r.code) }),
            ("seconds:", &|r| format!("{:.2}", r.seconds)),
        ],
    )
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
