//! The selection: which regions and kernels were profiled, if not all of them.

use super::{MAX_ROWS, View};
use crate::TextTable;
use crate::blocks::{Block, Blocks};
use crate::missing;
use crate::quantity::duration;
use rgpu_model::profile::Gap;
use rgpu_model::selection::NcuTime;
use rgpu_model::{Profile, Selection};

/// Adds the selected regions and kernels, their share of the time, and what was left out.
pub(super) fn add_selection(out: &mut Blocks, view: &View<'_>) {
    let profile = view.profile;
    let Some(selection) = &profile.selection else { return };
    let table = TextTable::of(
        selection.kernels.iter().take(view.rows(MAX_ROWS)),
        &[
            ("kernel", &|k| view.names.name(&k.kernel)),
            ("total:", &|k| duration(k.total_ns as f64)),
            ("share:", &|k| format!("{:.1} %", k.percent)),
            ("launches:", &|k| k.launches.to_string()),
            ("profiled:", &|k| k.profiled.to_string()),
        ],
    );
    out.table("kernels that hold the time", table);
    if let Some(covered) = covered_text(profile, selection) {
        out.field("covered", covered);
    }
    if let Some(time) = &selection.ncu_time {
        out.field("took", ncu_time_text(time, profile.stopped_pass().is_some()));
    }
    if selection.regions.is_empty() && selection.left_out.is_empty() {
        return;
    }
    out.add(Block::Group("selection"));
    for choice in selection.regions.iter().take(view.rows(MAX_ROWS)) {
        let matched = match choice.matched.as_slice() {
            [only] if *only == choice.asked => only.clone(),
            matched => format!("{}: {}", choice.asked, matched.join(", ")),
        };
        out.field("selected", matched);
    }
    // A stop is a warning in the first lines.
    let stopped = profile.stopped_pass();
    let gaps = selection.left_out.iter().filter(|gap| Some(*gap) != stopped);
    // The table has these numbers.
    let (in_table, others): (Vec<_>, Vec<_>) = gaps.partition(|gap| is_budgeted(gap));
    if !in_table.is_empty() {
        out.field("left out", "most launches of these kernels, to stay within the budget");
    }
    let (sets, others): (Vec<_>, Vec<_>) =
        others.into_iter().partition(|gap| gap.code == "budget_sections");
    let others = missing::texts(others.into_iter(), &view.names);
    others.into_iter().take(MAX_ROWS).for_each(|left_out| out.field("left out", left_out.text));
    sets.iter().for_each(|set| out.field("measured", &set.text));
}

/// What the chosen kernels cover and how long that took, in sentences for other reports.
pub(crate) fn sentences(profile: &Profile) -> Vec<String> {
    let Some(selection) = &profile.selection else { return Vec::new() };
    let covered = covered_text(profile, selection);
    let covered = covered.map(|text| format!("The chosen kernels have {text}."));
    let is_stopped = profile.stopped_pass().is_some();
    let took = selection.ncu_time.as_ref().map(|time| ncu_time_text(time, is_stopped));
    let took = took.map(|text| format!("The program took {text}."));
    covered.into_iter().chain(took).collect()
}

/// `61.2 % of the GPU time; 38 passes a launch, 12 s expected on an idle machine`.
/// The price is that of the best rung.
fn covered_text(profile: &Profile, selection: &Selection) -> Option<String> {
    let percent = selection.covered_percent.filter(|percent| *percent > 0.0)?;
    let price = selection.price.as_ref().filter(|_| profile.data_lost_on_rung().is_none());
    let cost = price.map_or(String::new(), |price| {
        let (passes, seconds) = (price.passes, price.seconds);
        format!("; {passes} passes a launch, {seconds:.0} s expected on an idle machine")
    });
    Some(format!("{percent:.1} % of the GPU time{cost}"))
}

/// `36.0 s under ncu: 12.0 s in 9 profiled launches, and 24.0 s that any choice of launches takes`.
/// A program that rgpu stopped (`is_stopped`) would have taken longer.
fn ncu_time_text(time: &NcuTime, is_stopped: bool) -> String {
    let runs = match time.runs {
        0 | 1 => String::new(),
        runs => format!(" in {runs} runs of the program"),
    };
    let es = if time.launches == 1 { "" } else { "es" };
    let (stop, at_least) =
        if is_stopped { (", until rgpu stopped it", "at least ") } else { ("", "") };
    format!(
        "{:.1} s under ncu{runs}{stop}: {:.1} s in {} profiled launch{es}, and {at_least}{:.1} s that \
         any choice of launches takes",
        time.seconds,
        time.launches_seconds,
        time.launches,
        (time.seconds - time.launches_seconds).max(0.0)
    )
}

/// Whether a gap only says how many launches of a kernel fit the budget, as planned.
fn is_budgeted(gap: &Gap) -> bool {
    gap.code == "budget_launches" && gap.text.ends_with("to stay within the budget")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blocks::to_text;
    use crate::{KernelNames, Style};
    use rgpu_model::selection::{KernelChoice, Price, RegionChoice};

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
            ncu_time: Some(NcuTime {
                runs: 1,
                seconds: 36.04,
                launches: 9,
                launches_seconds: 12.0,
            }),
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
        let mut profile = Profile { selection: Some(selection), ..Profile::default() };
        let mut out = Blocks::default();
        add_selection(&mut out, &View::new(&profile, KernelNames::Short, false));
        insta::assert_snapshot!(to_text(&out.0, &Style::default()));
        assert_eq!(
            sentences(&profile),
            [
                "The chosen kernels have 61.2 % of the GPU time; 38 passes a launch, 12 s expected on \
                 an idle machine.",
                "The program took 36.0 s under ncu: 12.0 s in 9 profiled launches, and 24.0 s that any \
                 choice of launches takes.",
            ]
        );
        let stop =
            Gap { code: "stopped".into(), text: "the program was stopped after 36 s".into() };
        profile.selection.as_mut().unwrap().left_out.push(stop);
        assert_eq!(
            sentences(&profile)[1],
            "The program took 36.0 s under ncu, until rgpu stopped it: 12.0 s in 9 profiled launches, \
             and at least 24.0 s that any choice of launches takes."
        );
    }
}
