//! The selection: which regions and kernels were profiled, if not all of them.

use super::{MAX_ROWS, Page};
use crate::model::Profile;
use crate::model::profile::Gap;
use crate::report::quantity::duration;
use crate::report::{Align, KernelNames, TextTable};

/// Writes the selected regions and kernels, their share of the time, and what was left out.
pub(super) fn selection(page: &mut Page<'_>, profile: &Profile) {
    let Some(selection) = &profile.selection else { return };
    let mut table = TextTable::new(&[
        ("kernel", Align::Left),
        ("total", Align::Right),
        ("share", Align::Right),
        ("launches", Align::Right),
        ("profiled", Align::Right),
    ]);
    let rows = || selection.kernels.iter().take(MAX_ROWS);
    for (kernel, name) in
        rows().zip(page.style.names.of_rows(profile, rows().map(|k| k.kernel.as_str())))
    {
        table.add_row([
            name,
            duration(kernel.total_ns as f64),
            format!("{:.1} %", kernel.percent),
            kernel.launches.to_string(),
            kernel.profiled.to_string(),
        ]);
    }
    page.table("kernels that hold the time", table);
    if let Some(percent) = selection.covered_percent.filter(|percent| *percent > 0.0) {
        let cost = selection.price.as_ref().map_or(String::new(), |price| {
            format!("; {} passes a launch, {:.0} s expected", price.passes, price.seconds)
        });
        page.field("covered", &format!("{percent:.1} % of the GPU time{cost}"));
    }
    if selection.regions.is_empty() && selection.left_out.is_empty() {
        return;
    }
    page.line("");
    for choice in selection.regions.iter().take(MAX_ROWS) {
        let matched = match choice.matched.as_slice() {
            [only] if *only == choice.asked => only.clone(),
            matched => format!("{}: {}", choice.asked, matched.join(", ")),
        };
        page.field("selected", &matched);
    }
    // A stop is a warning in the first lines.
    let stopped = profile.stopped();
    let gaps = selection.left_out.iter().filter(|gap| Some(*gap) != stopped);
    // The table has these numbers.
    let (in_table, others): (Vec<_>, Vec<_>) = gaps.partition(|gap| is_budgeted(gap));
    if !in_table.is_empty() {
        page.field("left out", "most launches of these kernels, to stay within the budget");
    }
    let (sets, others): (Vec<_>, Vec<_>) =
        others.into_iter().partition(|gap| gap.code == "budget_sections");
    for text in joined(&others, page.style.names).iter().take(MAX_ROWS) {
        page.field("left out", text);
    }
    sets.iter().for_each(|set| page.field("measured", &set.text));
}

/// Whether a gap only says how many launches of a kernel fit the budget, as planned.
fn is_budgeted(gap: &Gap) -> bool {
    gap.code == "budget_launches" && gap.text.ends_with("to stay within the budget")
}

/// Texts of gaps, with kernels by the names of the table. What is said of several kernels is one text.
fn joined(gaps: &[&Gap], names: KernelNames) -> Vec<String> {
    let mut texts: Vec<(Vec<String>, &str)> = Vec::new();
    for gap in gaps {
        let subject = gap.text.strip_prefix('`').and_then(|text| text.split_once("`: "));
        let (subject, rest) = subject.map_or((None, gap.text.as_str()), |(s, r)| (Some(s), r));
        let subject = subject.map(|subject| format!("`{}`", kernel_of(subject, names)));
        match texts
            .iter_mut()
            .find(|(known, text)| subject.is_some() && !known.is_empty() && *text == rest)
        {
            Some((known, _)) => known.extend(subject),
            None => texts.push((subject.into_iter().collect(), rest)),
        }
    }
    let text = |(subjects, rest): (Vec<String>, &str)| match subjects.is_empty() {
        true => rest.to_owned(),
        false => format!("{}: {rest}", subjects.join(", ")),
    };
    texts.into_iter().map(text).collect()
}

/// The name of a kernel that is told by its name or by the exact filter of its pass.
fn kernel_of(subject: &str, names: KernelNames) -> String {
    let exact = subject.strip_prefix("regex:^").and_then(|filter| filter.strip_suffix('$'));
    names.name(exact.unwrap_or(subject))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Selection;
    use crate::model::selection::{KernelChoice, Price, RegionChoice};
    use crate::report::Style;

    #[test]
    fn the_share_of_the_time_and_what_was_left_out_are_shown() {
        let selection = Selection {
            regions: vec![RegionChoice {
                asked: "A*".into(),
                matched: vec!["A".into(), "A::A1".into()],
            }],
            kernels: vec![KernelChoice {
                kernel: "void tile<float, (int)4>(T1 *, long long)".into(),
                total_ns: 4_000_000,
                percent: 61.25,
                launches: 8,
                profiled: 2,
                ..KernelChoice::default()
            }],
            covered_percent: Some(61.25),
            price: Some(Price { seconds: 12.4, passes: 38, ..Price::default() }),
            left_out: [
                ("budget_launches", "`tile`: 2 of 8 launches, to stay within the budget"),
                ("budget_sections", "only the set `minimal`, to stay within the budget"),
                ("fewer_launches", "`void add<(int)1>(int)`: 0 of 3 launches were profiled"),
                ("fewer_launches", "`regex:^mul$`: 0 of 3 launches were profiled"),
            ]
            .map(|(code, text)| Gap { code: code.into(), text: text.into() })
            .into(),
            ..Selection::default()
        };
        let profile = Profile { selection: Some(selection), ..Profile::default() };
        let style = Style::default();
        let mut page = Page { out: String::new(), style: &style };
        super::selection(&mut page, &profile);
        insta::assert_snapshot!(page.out);
    }
}
