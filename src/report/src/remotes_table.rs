//! Renders the results of one plan on several remotes, one row each. The JSON form is the document
//! itself.
//!
//! It is not in [`super::REPORTS`], since those render a single profile.

use super::quantity::{duration, usd};
use super::text::wrap;
use super::{Style, TextTable};
use rgpu_model::RungId;
use rgpu_model::fan_out::{FanOut, FanOutRow};

/// Renders a fan-out for a terminal; the text ends with a newline.
pub fn table(fan_out: &FanOut, style: &Style) -> String {
    let FanOut { kernel, mode, remotes, summary, .. } = fan_out;
    let mut out = format!("{}  {mode} on {} remotes\n", style.paint("1", kernel), remotes.len());
    for line in wrap(summary, style.width.saturating_sub(2)) {
        out += &format!("  {line}\n");
    }
    let rows = rows(fan_out).without_empty_columns();
    if !rows.is_empty() {
        out += &format!(
            "\n{}",
            rows.with_room(style.width.saturating_sub(2), 12, &["occ %", "results"])
                .plain(style.width, 2)
        );
    }
    let cases = cases(fan_out);
    if !cases.is_empty() {
        out += &format!("\n{}", cases.plain(style.width, 2));
    }
    let failed: Vec<_> = remotes.iter().filter(|row| row.failure.is_some()).collect();
    if !failed.is_empty() {
        out.push('\n');
    }
    for row in failed {
        let text = failure(row);
        for (at, line) in wrap(&text, style.width.saturating_sub(4)).into_iter().enumerate() {
            out += &format!("{}{line}\n", if at == 0 { "  " } else { "    " });
        }
    }
    out.push('\n');
    for row in remotes {
        if let Some(run) = &row.run {
            out += &format!("  {:<11} {run}\n", row.remote);
        }
    }
    out
}

/// Renders a fan-out as Markdown, for `fan-out.md`.
pub fn markdown(fan_out: &FanOut) -> String {
    let FanOut { kernel, mode, remotes, summary, .. } = fan_out;
    let (plain, sentence) = (super::markdown::plain, super::markdown::sentence);
    let mut out = format!("# {}: {mode} on {} remotes\n\n", plain(kernel), remotes.len());
    out += &format!("{}.\n\n", sentence(summary));
    out += &rows(fan_out).without_empty_columns().markdown();
    let cases = cases(fan_out);
    if !cases.is_empty() {
        out += &format!("\n{}", cases.markdown());
    }
    for row in remotes {
        let run = row.run.as_deref().map_or(String::new(), |run| format!("run `{run}`"));
        let why = row
            .failure
            .as_deref()
            .map_or(String::new(), |what| format!("{} (exit {})", sentence(what), row.exit));
        let gap = if run.is_empty() || why.is_empty() { "" } else { ": " };
        out += &format!("\n- {}: {run}{gap}{why}", plain(&row.remote));
    }
    out.push('\n');
    out
}

fn failure(row: &FanOutRow) -> String {
    let what = row.failure.as_deref().unwrap_or_default();
    format!("{}: {what} (exit {})", row.remote, row.exit)
}

/// One row per remote. The rung is the tool and options that produced the result.
fn rows(fan_out: &FanOut) -> TextTable {
    let mut table = TextTable::new(
        "remote | GPU | time: | ×: | SM %: | mem %: | occ %: | results | cost: | rung | bound by",
    );
    let percent = |x: Option<f64>| x.map(|x| format!("{x:.1}")).unwrap_or_default();
    for row in &fan_out.remotes {
        // Without a rung the column shows the state.
        let rung = row.rung.as_ref().map_or_else(|| row.state.to_string(), RungId::to_string);
        let is_base = fan_out.base.as_ref() == Some(&row.remote);
        let times = row.against_base.as_ref().map(|t| format!("{:.3}", t.speedup));
        table.add_row([
            row.remote.clone(),
            row.device.clone().unwrap_or_default(),
            row.median_ns.map(duration).unwrap_or_default(),
            times.or_else(|| is_base.then(|| "1".to_owned())).unwrap_or_default(),
            percent(row.sm_percent),
            percent(row.memory_percent),
            percent(row.occupancy_percent),
            row.correctness.as_deref().unwrap_or_default().to_owned(),
            row.cost_usd.map(usd).unwrap_or_default(),
            rung,
            row.bound_by.as_ref().map(|b| b.replace('_', " ")).unwrap_or_default(),
        ]);
    }
    table
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
