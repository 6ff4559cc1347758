//! The selection: which regions and kernels were profiled, if not all of them.

use super::{MAX_ROWS, Page};
use crate::model::Profile;
use crate::report::quantity::duration;
use crate::report::{Align, TextTable};

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
    for (kernel, name) in rows().zip(page.style.names.distinct(rows().map(|k| k.kernel.as_str()))) {
        table.add_row([
            name,
            duration(kernel.total_ns as f64),
            format!("{:.1} %", kernel.percent),
            kernel.launches.to_string(),
            kernel.profiled.to_string(),
        ]);
    }
    page.table("kernels that hold the time", table);
    if let Some(percent) = selection.covered_percent {
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
    for gap in selection.left_out.iter().filter(|gap| Some(*gap) != stopped).take(MAX_ROWS) {
        page.field("left out", &gap.text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Selection;
    use crate::model::profile::Gap;
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
            left_out: vec![Gap {
                code: "budget_launches".into(),
                text: "`tile`: 2 of 8 launches, to stay within the budget".into(),
            }],
            ..Selection::default()
        };
        let profile = Profile { selection: Some(selection), ..Profile::default() };
        let style = Style::default();
        let mut page = Page { out: String::new(), style: &style };
        super::selection(&mut page, &profile);
        insta::assert_snapshot!(page.out);
    }
}
