//! Renders the results of one plan on several remotes, one row each. The JSON form is the document
//! itself.
//!
//! It is not in [`super::REPORTS`], since those render a single profile.

use super::blocks::{Block, Blocks, TableBlock, to_markdown, to_text};
use super::quantity::{duration, usd};
use super::{Style, TextTable};
use rgpu_model::RungId;
use rgpu_model::fan_out::{FanOut, FanOutRow};

/// Renders a fan-out for a terminal; the text ends with a newline.
pub fn table(fan_out: &FanOut, style: &Style) -> String {
    to_text(&report(fan_out).0, style)
}

/// Renders a fan-out as Markdown, for `fan-out.md`.
pub fn markdown(fan_out: &FanOut) -> String {
    to_markdown(&report(fan_out).0)
}

fn report(fan_out: &FanOut) -> Blocks {
    let FanOut { kernel, mode, remotes, summary, .. } = fan_out;
    let mut out = Blocks::default();
    out.add(Block::Title(kernel.clone(), format!("{mode} on {} remotes", remotes.len())));
    out.add(Block::Note(2, summary.clone()));
    let spare = Some((12, &["occ %", "results"][..]));
    for (table, spare) in [(rows(fan_out), spare), (cases(fan_out), None)] {
        if !table.is_empty() {
            out.add(Block::Group(""));
            out.full_table(TableBlock { table, indent: 2, spare, ..TableBlock::default() });
        }
    }
    if remotes.iter().any(|row| row.failure.is_some()) {
        out.add(Block::Group(""));
    }
    for row in remotes {
        let failure = row.failure.iter();
        failure.for_each(|what| {
            out.add(Block::Note(2, format!("{}: {what} (exit {})", row.remote, row.exit)));
        });
    }
    out.add(Block::Group(""));
    for row in remotes {
        row.run.iter().for_each(|run| out.field(&row.remote, run));
    }
    out
}

/// One row per remote. The rung is the tool and options that produced the result.
fn rows(fan_out: &FanOut) -> TextTable {
    let percent = |x: Option<f64>| x.map(|x| format!("{x:.1}")).unwrap_or_default();
    let times = |row: &FanOutRow| {
        let is_base = fan_out.base.as_ref() == Some(&row.remote);
        let times = row.against_base.as_ref().map(|t| format!("{:.3}", t.speedup));
        times.or_else(|| is_base.then(|| "1".to_owned())).unwrap_or_default()
    };
    TextTable::of(
        &fan_out.remotes,
        &[
            ("remote", &|row| row.remote.clone()),
            ("GPU", &|row| row.device.clone().unwrap_or_default()),
            ("time:", &|row| row.median_ns.map(duration).unwrap_or_default()),
            ("×:", &|row| times(row)),
            ("SM %:", &|row| percent(row.sm_percent)),
            ("mem %:", &|row| percent(row.memory_percent)),
            ("occ %:", &|row| percent(row.occupancy_percent)),
            ("results", &|row| row.correctness.as_deref().unwrap_or_default().to_owned()),
            ("cost:", &|row| row.cost_usd.map(usd).unwrap_or_default()),
            // Without a rung the column shows the state.
            ("rung", &|row| {
                row.rung.as_ref().map_or_else(|| row.state.to_string(), RungId::to_string)
            }),
            ("bound by", &|row| row.bound_by.as_deref().unwrap_or_default().replace('_', " ")),
        ],
    )
}

/// Times by case and remote; empty unless there are several cases.
fn cases(fan_out: &FanOut) -> TextTable {
    let mut names: Vec<&str> = Vec::new();
    for case in fan_out.remotes.iter().flat_map(|row| &row.cases) {
        if !names.contains(&case.name.as_str()) {
            names.push(&case.name);
        }
    }
    let timed: Vec<&FanOutRow> =
        fan_out.remotes.iter().filter(|row| !row.cases.is_empty()).collect();
    let mut table = TextTable::new("case");
    timed.iter().for_each(|row| table.add_number_column(&row.remote));
    if names.len() < 2 {
        return table;
    }
    for name in names {
        let cell = |row: &&FanOutRow| {
            let case = row.cases.iter().find(|case| case.name == name);
            case.map(|case| duration(case.median_ns)).unwrap_or_default()
        };
        table.add_row([name.to_owned()].into_iter().chain(timed.iter().map(cell)));
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use rgpu_model::RungId;
    use rgpu_model::comparison::{SideTime, TimeChange, TimeVerdict};
    use rgpu_model::fan_out::{FanOutCase, SCHEMA};

    fn example() -> FanOut {
        let row = |remote: &str, device: &str, median_ns: f64| FanOutRow {
            remote: remote.to_owned(),
            run: Some(format!("20261121-130000-vecadd-ncu-{remote}-1f2e")),
            state: "done".into(),
            device: Some(device.to_owned()),
            rung: Some(RungId::NcuRequested),
            median_ns: Some(median_ns),
            clock: Some("cuda_events".into()),
            correctness: Some("right".into()),
            sm_percent: Some(12.3),
            memory_percent: Some(91.02),
            occupancy_percent: Some(71.5),
            bound_by: Some("memory_bound".to_owned()),
            cases: ["small", "large"]
                .into_iter()
                .map(|name| FanOutCase { name: name.to_owned(), median_ns })
                .collect(),
            ..FanOutRow::default()
        };
        FanOut {
            schema: SCHEMA.to_owned(),
            id: "20261121-130000-vecadd-ncu-1f2e".to_owned(),
            kernel: "vecadd".to_owned(),
            mode: "ncu".to_owned(),
            started: "2026-11-21T13:00:00Z".to_owned(),
            seconds: 9.0,
            summary: "`b` is 1.500 times as fast as `a` (95 %: 1.490 to 1.510)".to_owned(),
            base: Some("a".to_owned()),
            remotes: vec![
                row("a", "NVIDIA H200", 85_100.0),
                FanOutRow {
                    against_base: Some(TimeChange {
                        a: SideTime::default(),
                        b: SideTime::default(),
                        speedup: 1.5,
                        ci95: Some([1.49, 1.51]),
                        verdict: TimeVerdict::Faster,
                        source: "samples".into(),
                        rounds: None,
                    }),
                    ..row("b", "NVIDIA B200", 56_700.0)
                },
                FanOutRow {
                    remote: "c".to_owned(),
                    exit: 4,
                    state: "failed".into(),
                    failure: Some("cannot reach `c`: connection refused".to_owned()),
                    code: Some("unreachable".to_owned()),
                    ..FanOutRow::default()
                },
            ],
        }
    }

    #[test]
    fn each_remote_has_its_row_and_what_failed_is_said() {
        insta::assert_snapshot!(table(&example(), &Style::default()));
        insta::assert_snapshot!(markdown(&example()));
    }
}
