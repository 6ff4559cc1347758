//! A suite and a comparison of suites for a terminal.

use std::collections::BTreeMap;

use super::case_names::{SharedAxes, sizes_without_axes};
use super::pair::{at_size, over_sizes};
use crate::phrase::graph_text;
use crate::quantity::duration;
use crate::text::wrap;
use crate::{BAD, DOUBTFUL, Style, TextTable};
use rgpu_model::number_form::by_number;
use rgpu_model::suite::{
    ComparedRow, MissingTool, RowState, SuiteComparison, SuiteRow, SuiteRun, SuiteState, SuiteTime,
    SuiteVerdict,
};

/// The columns of a suite that a narrow terminal has no room for, in the order in which they go.
/// suite.json and the reports have them.
const SPARE: [&str; 3] = ["cooled", "in a graph", "of the roofline"];

/// The least width of a column of reasons. With less room each row has several lines.
pub const MIN_REASON_WIDTH: usize = 24;

/// A speedup, `1.980×`; empty if it is unknown.
pub fn speedup_text(speedup: Option<f64>) -> String {
    speedup.map(|x| format!("{x:.3}×")).unwrap_or_default()
}

/// A median with half the width of its interval.
pub(super) fn time_text(time: &SuiteTime) -> String {
    let half = (time.ci95_ns[1] - time.ci95_ns[0]) / 2.0 / time.median_ns * 100.0;
    format!("{} ± {half:.1} %", duration(time.median_ns))
}

/// How many cases are in which state.
pub(super) fn counts(run: &SuiteRun) -> String {
    let states = [
        RowState::Ok,
        RowState::NoGpu,
        RowState::Failed,
        RowState::Cancelled,
        RowState::NoBudget,
        RowState::Waiting,
        RowState::Running,
    ];
    let counted = states.into_iter().map(|state| (run.count(state), state)).filter(|(n, _)| *n > 0);
    let counted: Vec<String> =
        counted.map(|(n, state)| format!("{n} {}", state.as_str())).collect();
    let s = if run.rows.len() == 1 { "" } else { "s" };
    format!("{} case{s}: {}", run.rows.len(), counted.join(", "))
}

/// Under which clocks the times were taken.
pub(super) fn clock_policy(run: &SuiteRun) -> String {
    match run.options.lock_clocks_mhz {
        Some(mhz) => format!("clocks locked at {mhz} MHz"),
        None => "clocks not locked".to_owned(),
    }
}

/// The GPU of a time, as the first part of its UUID.
fn short_device(time: &SuiteTime) -> &str {
    let end = time.device.match_indices('-').nth(1).map_or(time.device.len(), |(at, _)| at);
    &time.device[..end]
}

/// How many times came from each GPU; `None` if all came from one. A case that is resumed or spread
/// over several GPUs may have another than before.
pub(super) fn devices_text(run: &SuiteRun) -> Option<String> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for (_, time) in run.times().filter(|(_, time)| !time.device.is_empty()) {
        *counts.entry(short_device(time)).or_default() += 1;
    }
    let each: Vec<String> = counts.iter().map(|(gpu, count)| format!("{count} on {gpu}")).collect();
    (counts.len() > 1).then(|| format!("times of {} GPUs: {}", counts.len(), each.join(", ")))
}

/// The cases, with a row for each time. Names and sizes lack the axes that are `shared`.
pub(super) fn cases(run: &SuiteRun, shared: Option<&SharedAxes<'_>>) -> TextTable {
    let mut table = TextTable::new(
        "case | remote | gpu | size | side | time: | in a graph: | cooled: | of the roofline: | \
         speedup: | pair | expected | state",
    );
    let first_remote = run.rows.first().map(|row| row.remote.as_str()).unwrap_or_default();
    let several = run.rows.iter().any(|row| row.remote != first_remote);
    let several_gpus = devices_text(run).is_some();
    for row in &run.rows {
        let head = || {
            let remote = if several { row.remote.clone() } else { String::new() };
            [shared.map_or_else(|| row.case.clone(), |axes| axes.shorten(&row.case)), remote]
        };
        if row.times.is_empty() {
            let mut cells = <[String; 13]>::default();
            [cells[0], cells[1]] = head();
            cells[12] = state_text(row);
            table.add_row(cells);
        }
        for (at, time) in row.times.iter().enumerate() {
            let [case, remote] = if at == 0 { head() } else { Default::default() };
            let pair = at_size(row, time);
            let expected = time.against.as_ref().map(|judged| match judged.speedup {
                Some(speedup) => format!("{} {speedup:.3}×", judged.verdict.as_str()),
                None => judged.verdict.as_str().to_owned(),
            });
            table.add_row([
                case,
                remote,
                if several_gpus { short_device(time).to_owned() } else { String::new() },
                match shared {
                    Some(_) => sizes_without_axes(&time.size, &row.case),
                    None => time.size.clone(),
                },
                if time.key.side == "kernel" { String::new() } else { time.key.side.clone() },
                time_text(time),
                time.graph.as_ref().map(graph_text).unwrap_or_default(),
                time.cooled_s.map(|s| format!("{s:.0} s")).unwrap_or_default(),
                time.sol_percent.map(|x| format!("{x:.0} %")).unwrap_or_default(),
                speedup_text(pair.as_ref().and_then(|pair| pair.speedup)),
                pair.map(|pair| pair.verdict_text()).unwrap_or_default(),
                expected.unwrap_or_default(),
                if at == 0 { state_text(row) } else { String::new() },
            ]);
        }
        if let Some((mean_of, pair)) = over_sizes(row) {
            let mut cells = <[String; 13]>::default();
            cells[3] = mean_of;
            cells[9] = speedup_text(pair.speedup);
            cells[10] = pair.verdict_text();
            table.add_row(cells);
        }
    }
    table.without_empty_columns()
}

/// A remark that cases ran without a GPU; `None` if none did.
pub(super) fn without_gpu_text(run: &SuiteRun) -> Option<&'static str> {
    // Of a kernel the reference may have run on the CPU; a program has none.
    let text = "no GPU: nothing ran on one, so there are no times of a GPU; name a host that has \
                one: `--remote NAME`";
    (run.count(RowState::NoGpu) > 0).then_some(text)
}

/// The reasons of the verdicts against expected times, each once with its number of times.
fn expectation_notes(run: &SuiteRun) -> Vec<(String, usize)> {
    let mut notes: Vec<(String, usize)> = Vec::new();
    let judged = run.times().filter_map(|(_, time)| time.against.as_ref());
    for judged in judged.filter(|judged| !judged.why.is_empty()) {
        let note = format!("{}: {}", judged.verdict.as_str(), judged.why);
        match notes.iter_mut().find(|(known, _)| *known == note) {
            Some((_, count)) => *count += 1,
            None => notes.push((note, 1)),
        }
    }
    notes
}

/// Why tools gave no results: each reason once, with its tool and its number of cases.
fn missing_notes(run: &SuiteRun) -> Vec<(String, String, usize)> {
    let mut notes: Vec<(String, String, usize)> = Vec::new();
    for MissingTool { tool, text, .. } in run.rows.iter().flat_map(|row| &row.missing) {
        match notes.iter_mut().find(|(why, known, _)| why == text && known == tool) {
            Some((.., count)) => *count += 1,
            None => notes.push((text.clone(), tool.clone(), 1)),
        }
    }
    notes
}

/// The tools that gave a row no results, in a few words: `no ncu (counters_refused)`; empty if
/// none.
pub(super) fn missing_text(row: &SuiteRow) -> String {
    let text = |missing: &MissingTool| match missing.code.as_str() {
        "" => format!("no {}", missing.tool),
        code => format!("no {} ({code})", missing.tool),
    };
    row.missing.iter().map(text).collect::<Vec<_>>().join(", ")
}

/// The state of a row; empty if it is ok in the first attempt and lacks nothing.
fn state_text(row: &SuiteRow) -> String {
    match (row.state, row.reason.as_deref(), row.attempts) {
        (RowState::Ok, _, 0 | 1) => missing_text(row),
        (RowState::Ok, _, n) if row.missing.is_empty() => format!("ok, attempt {n}"),
        (RowState::Ok, _, n) => format!("ok, attempt {n}, {}", missing_text(row)),
        (state, Some(reason), _) => format!("{}: {reason}", state.as_str()),
        (state, None, _) => state.as_str().to_owned(),
    }
}

/// The table of a suite's cases for a terminal: counts above, failures and close calls below.
pub fn table(run: &SuiteRun, style: &Style) -> String {
    let mut head = format!("{}  {}", run.id, style.paint_verdicts(&counts(run)));
    if run.options.lock_clocks_mhz.is_some() {
        head += &format!(", {}", clock_policy(run));
    }
    if let Some(devices) = devices_text(run) {
        head += &format!(", {devices}");
    }
    let mut out = wrap(&head, style.table_width).join("\n    ") + "\n\n";
    let width = style.table_width;
    let with_room = |cases: TextTable| cases.with_room(width.saturating_sub(2), usize::MAX, &SPARE);
    let whole = with_room(cases(run, None));
    let shared = SharedAxes::from_cases(run.rows.iter().map(|row| row.case.as_str()));
    let short = with_room(cases(run, Some(&shared)));
    let shown = whole
        .unstacked(width, 2, "", 0)
        .or_else(|| Some(shared.note(width) + &short.unstacked(width, 2, "", 0)?))
        .unwrap_or_else(|| whole.fitted(width, 2));
    out += &style.paint_verdicts(&shown);
    let below = |first: &str, text: &str| {
        let width = style.width.saturating_sub(6);
        let lines = text.lines().flat_map(|line| wrap(line, width));
        let lines: String = lines.map(|line| format!("      {line}\n")).collect();
        format!("  {first}\n{lines}")
    };
    for row in run.rows.iter().filter(|row| row.state == RowState::Failed) {
        let failure = row.failure.as_deref().unwrap_or_default();
        out += &below(&row.case, failure);
        // A command stays one line, so that it can be copied.
        out += &format!("      again: {}\n", row.again);
    }
    for row in &run.rows {
        if let Some(pair) = row.pair.as_ref().filter(|pair| pair.too_close) {
            let grown = match pair.grown.len() {
                0 => String::new(),
                n => format!(" after {n} larger sizes"),
            };
            out += &below(&row.case, &format!("too close to call{grown}: {}", pair.summary));
        }
    }
    for (why, tool, count) in missing_notes(run) {
        let cases = by_number(count, "case", "cases");
        let lead = style.paint(DOUBTFUL, &format!("no {tool}"));
        out += &below(&format!("{lead}: {count} {cases}"), &why);
    }
    for (why, count) in expectation_notes(run) {
        let times = by_number(count, "time", "times");
        out += &below(&format!("expected: {count} {times}"), &style.paint_verdicts(&why));
    }
    if let Some(text) = without_gpu_text(run) {
        let lines = wrap(text, style.width.saturating_sub(2));
        out += &lines.iter().map(|line| format!("\n  {line}")).collect::<String>();
        out.push('\n');
    }
    if run.state == SuiteState::Open {
        out += &format!("\n  `rgpu bench resume {}` runs the rest\n", run.id);
    }
    out
}

/// Sizes for a column: of several groups the first, and how many more there are. `--json` has all.
fn short_sizes(sizes: &str) -> String {
    match sizes.split_once(';') {
        None => sizes.to_owned(),
        Some((first, rest)) => format!("{first} and {} more", rest.split(';').count()),
    }
}

/// Case, sizes and side of a compared time: the sizes without those that the name of the case has.
fn compared_work(row: &ComparedRow) -> [String; 3] {
    let sizes = short_sizes(&sizes_without_axes(&row.sizes, &row.case));
    let side = if row.side == "kernel" { String::new() } else { row.side.clone() };
    [row.case.clone(), sizes, side]
}

/// The words that are there, with blanks between them.
fn joined(words: [String; 3]) -> String {
    let words: Vec<String> = words.into_iter().filter(|word| !word.is_empty()).collect();
    words.join(" ")
}

/// The times of a comparison; `work` names case, sizes and side.
fn compared_times(
    comparison: &SuiteComparison,
    work: impl Fn(&ComparedRow) -> [String; 3],
) -> TextTable {
    let table = TextTable::of(
        comparison.rows.iter().map(|row| (row, work(row))),
        &[
            ("case", &|(_, [case, _, _])| case.clone()),
            ("sizes", &|(_, [_, sizes, _])| sizes.clone()),
            ("side", &|(_, [_, _, side])| side.clone()),
            ("before:", &|(row, _)| row.a_ns.map(duration).unwrap_or_default()),
            ("now:", &|(row, _)| duration(row.b_ns)),
            ("speedup:", &|(row, _)| speedup_text(row.judgement.speedup)),
            ("verdict", &|(row, _)| row.judgement.verdict.as_str().to_owned()),
            ("why", &|(row, _)| row.judgement.why.clone()),
        ],
    );
    table.without_empty_columns()
}

/// The reasons of a comparison's verdicts, each once below the time or the number of times that
/// have it.
fn compared_reasons(comparison: &SuiteComparison, style: &Style) -> String {
    let mut reasons: Vec<(String, Vec<&ComparedRow>)> = Vec::new();
    for row in comparison.rows.iter().filter(|row| !row.judgement.why.is_empty()) {
        let reason = format!("{}: {}", row.judgement.verdict.as_str(), row.judgement.why);
        match reasons.iter_mut().find(|(known, _)| *known == reason) {
            Some((_, rows)) => rows.push(row),
            None => reasons.push((reason, vec![row])),
        }
    }
    let mut out = String::new();
    for (reason, rows) in reasons {
        let of = match rows[..] {
            [row] => joined(compared_work(row)),
            _ => format!("{} times", rows.len()),
        };
        let lines = wrap(&reason, style.table_width.saturating_sub(6));
        out += &format!("  {of}\n      {}\n", lines.join("\n      "));
    }
    out
}

/// Renders a comparison of suites. Where the rows do not fit the terminal, sizes and sides follow
/// the names, and the axes that all cases of a target share stand above the table; if that is not
/// enough, the reasons stand below it.
pub fn comparison_table(comparison: &SuiteComparison, style: &Style) -> String {
    let verdicts = [
        SuiteVerdict::Slower,
        SuiteVerdict::Faster,
        SuiteVerdict::Same,
        SuiteVerdict::Ambiguous,
        SuiteVerdict::New,
        SuiteVerdict::Incomparable,
    ];
    let counted: Vec<String> = verdicts
        .iter()
        .filter_map(|verdict| match comparison.count(*verdict) {
            0 => None,
            n => Some(format!("{n} {}", verdict.as_str())),
        })
        .collect();
    let counted = style.paint_verdicts(&counted.join(", "));
    let head = format!("{} against {}: {counted}", comparison.b, comparison.a);
    let mut out = wrap(&head, style.table_width).join("\n    ") + "\n\n";
    let width = style.table_width;
    let unstacked = |table: &TextTable| table.unstacked(width, 2, "why", MIN_REASON_WIDTH);
    let whole = compared_times(comparison, compared_work);
    let shared = SharedAxes::from_cases(comparison.rows.iter().map(|row| row.case.as_str()));
    let short = compared_times(comparison, |row| {
        let [_, sizes, side] = compared_work(row);
        [joined([shared.shorten(&row.case), sizes, side]), String::new(), String::new()]
    });
    let without_reasons = short.clone().with_room(width.saturating_sub(2), usize::MAX, &["why"]);
    let shown = unstacked(&whole)
        .or_else(|| Some(shared.note(width) + &unstacked(&short)?))
        .or_else(|| {
            let table = unstacked(&without_reasons)?;
            Some(shared.note(width) + &table + &compared_reasons(comparison, style))
        })
        .unwrap_or_else(|| whole.fitted(width, 2));
    out += &style.paint_verdicts(&shown);
    for line in &comparison.newly_failed {
        out += &format!("  {}: {line}\n", style.paint(BAD, "fails now"));
    }
    for name in &comparison.only_a {
        out += &format!("  only in {}: {name}\n", comparison.a);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use rgpu_model::suite::TimeJudgement;

    #[test]
    fn sizes_of_many_groups_are_short_in_a_comparison() {
        assert_eq!(short_sizes("n=1024"), "n=1024");
        assert_eq!(short_sizes("k=1,n=2;k=3,n=4;k=5,n=6"), "k=1,n=2 and 2 more");
        assert_eq!(short_sizes(""), "");
    }

    #[test]
    fn the_reason_of_a_verdict_against_expected_times_is_told_once() {
        let time = |verdict: SuiteVerdict, why: &str| SuiteTime {
            median_ns: 1000.0,
            ci95_ns: [990.0, 1010.0],
            against: Some(TimeJudgement {
                verdict,
                speedup: None,
                ci95: None,
                threshold: None,
                why: why.to_owned(),
            }),
            ..SuiteTime::default()
        };
        let why = "expected under another clock policy (`as_found`, now `locked 1500 MHz`)";
        let other = time(SuiteVerdict::Incomparable, why);
        let times = vec![other.clone(), time(SuiteVerdict::Same, ""), other];
        let row = SuiteRow { state: RowState::Ok, times, ..SuiteRow::default() };
        let run = SuiteRun { rows: vec![row], ..SuiteRun::default() };
        let shown = table(&run, &Style { width: 200, ..Style::default() });
        let note = format!("  expected: 2 times\n      INCOMPARABLE: {why}\n");
        assert!(shown.contains(&note), "{shown}");
        assert_eq!(shown.matches("expected: ").count(), 1, "{shown}");
    }

    #[test]
    fn verdicts_and_failures_are_painted_in_both_tables() {
        let judgement = TimeJudgement {
            verdict: SuiteVerdict::Slower,
            speedup: Some(0.9),
            ci95: None,
            threshold: None,
            why: String::new(),
        };
        let failed = SuiteRow {
            case: "s:b".into(),
            state: RowState::Failed,
            reason: Some("wrong_result".into()),
            ..SuiteRow::default()
        };
        let time = SuiteTime { against: Some(judgement.clone()), ..SuiteTime::default() };
        let row = SuiteRow {
            case: "s:a".into(),
            state: RowState::Ok,
            times: vec![time],
            ..SuiteRow::default()
        };
        let run = SuiteRun { rows: vec![row, failed], ..SuiteRun::default() };
        let row = ComparedRow {
            case: "s:a".into(),
            side: "kernel".into(),
            sizes: String::new(),
            a_ns: Some(9.0),
            b_ns: 10.0,
            judgement,
        };
        let comparison = SuiteComparison { rows: vec![row], ..SuiteComparison::default() };
        let style = Style { color: true, ..Style::default() };
        let slower = style.paint(BAD, "SLOWER");
        let shown = table(&run, &style);
        assert_eq!(shown.matches(&slower).count(), 1, "{shown:?}");
        assert_eq!(shown.matches(&style.paint(BAD, "failed")).count(), 2, "{shown:?}");
        // Once among the counts, once in its row.
        assert_eq!(comparison_table(&comparison, &style).matches(&slower).count(), 2);
        let plain =
            [table(&run, &Style::default()), comparison_table(&comparison, &Style::default())];
        assert!(plain.iter().all(|text| !text.contains('\u{1b}')), "{plain:?}");
    }

    #[test]
    fn the_command_that_repeats_a_case_is_one_line() {
        let row = SuiteRow {
            case: "s:a".into(),
            state: RowState::Failed,
            failure: Some("wrong ".repeat(30)),
            again: format!("rgpu bench run -t s:a{}", " --iters 50".repeat(9)),
            ..SuiteRow::default()
        };
        let run = SuiteRun { rows: vec![row.clone()], ..SuiteRun::default() };
        let shown = table(&run, &Style::default());
        let mut lines = shown.lines().rev();
        assert_eq!(lines.next(), Some(format!("      again: {}", row.again).as_str()));
        assert!(lines.all(|line| line.chars().count() <= 80), "{shown}");
    }

    #[test]
    fn a_row_says_which_tool_gave_no_results_and_why() {
        let row = |case: &str, code: &str, attempts| SuiteRow {
            case: case.to_owned(),
            state: RowState::Ok,
            attempts,
            missing: vec![MissingTool {
                tool: "ncu".into(),
                code: code.to_owned(),
                text: "ERR_NVGPUCTRPERM: no permission".into(),
            }],
            ..SuiteRow::default()
        };
        let rows = vec![row("s:a", "counters_refused", 1), row("s:b", "", 2)];
        let run = SuiteRun { rows, ..SuiteRun::default() };
        let shown = table(&run, &Style::default());
        let line = |case: &str| shown.lines().find(|line| line.contains(case)).unwrap_or_default();
        assert!(line("s:a").ends_with("  no ncu (counters_refused)"), "{shown}");
        assert!(line("s:b").ends_with("  ok, attempt 2, no ncu"), "{shown}");
        let note = "  no ncu: 2 cases\n      ERR_NVGPUCTRPERM: no permission\n";
        assert_eq!(shown.matches(note).count(), 1, "{shown}");
        let text = crate::suite::markdown(&run);
        assert!(text.contains("\n## Missing\n\n- s:a: no ncu, "), "{text}");
        let page = crate::suite::html(&run, &Default::default(), std::path::Path::new("/"));
        assert!(page.contains("no ncu (counters_refused)"), "{page}");
    }

    #[test]
    fn tables_fit_a_narrow_terminal_and_rows_are_whole_in_a_pipe() {
        let judgement = TimeJudgement {
            verdict: SuiteVerdict::Incomparable,
            speedup: None,
            ci95: None,
            threshold: None,
            why: "another clock policy (`as_found`, now `locked 1500 MHz`)".to_owned(),
        };
        let time = |side: &str| {
            let mut time = SuiteTime {
                size: "cols=4096,rows=4096".into(),
                median_ns: 10_000.0,
                ci95_ns: [9_900.0, 10_100.0],
                cooled_s: Some(7.0),
                sol_percent: Some(61.0),
                against: Some(judgement.clone()),
                ..SuiteTime::default()
            };
            time.key.side = side.to_owned();
            time
        };
        let row = SuiteRow {
            case: "memory:transpose[cols=4096,rows=4096]".into(),
            state: RowState::Ok,
            times: vec![time("baseline"), time("optimised")],
            ..SuiteRow::default()
        };
        let run = SuiteRun { id: "night".into(), rows: vec![row], ..SuiteRun::default() };
        let row = ComparedRow {
            case: "memory:transpose[cols=4096,rows=4096]".into(),
            side: "optimised".into(),
            sizes: "cols=4096,rows=4096".into(),
            a_ns: Some(10_000.0),
            b_ns: 10_000.0,
            judgement: judgement.clone(),
        };
        let comparison = SuiteComparison { rows: vec![row], ..SuiteComparison::default() };
        let narrow = Style { table_width: 80, ..Style::default() };
        let shown = table(&run, &narrow);
        let compared = comparison_table(&comparison, &narrow);
        for line in shown.lines().chain(compared.lines()) {
            assert!(line.chars().count() <= 80, "{line}");
        }
        // The second side stands below the first, without an empty line.
        assert!(shown.contains(&format!("\n{}optimised  10.0 µs", " ".repeat(20))), "{shown}");
        let axes = "the same in all cases of memory:transpose: cols=4096, rows=4096";
        assert!(shown.contains(axes), "{shown}");
        assert_eq!(shown.matches("memory:transpose").count(), 2, "{shown}");
        assert!(!shown.contains("cooled") && shown.contains("INCOMPARABLE"), "{shown}");
        let shown = table(&run, &Style::default());
        assert!(shown.contains("cooled") && shown.contains("of the roofline"), "{shown}");
        let compared = comparison_table(&comparison, &Style::default());
        let whole = |line: &str| line.contains("memory:") && line.ends_with("`locked 1500 MHz`)");
        assert!(compared.lines().any(whole), "{compared}");
    }

    #[test]
    fn many_axes_leave_each_row_in_one_line() {
        let judgement = |why: &str| TimeJudgement {
            verdict: SuiteVerdict::Ambiguous,
            speedup: Some(1.0),
            ci95: None,
            threshold: None,
            why: why.to_owned(),
        };
        let case = |m: u32, mode: &str| {
            format!("gemm:decode[m={m},n=4096,k=7168,TYPE=bf16,ACCUMULATE=f32,MODE={mode}]")
        };
        let compared = |case: String, why: &str| ComparedRow {
            sizes: format!("k=7168,{},n=4096", &case[12..case.find(',').unwrap_or_default()]),
            case,
            side: "kernel".into(),
            a_ns: Some(10_000.0),
            b_ns: 10_000.0,
            judgement: judgement(why),
        };
        let why = "the interval lies on both sides of the threshold of 1 %, and the spread between \
                   sessions is not known with fewer than 3 sessions of the same code and inputs";
        let mut comparison = SuiteComparison {
            rows: vec![compared(case(16, "eager"), ""), compared(case(1024, "graph"), "")],
            ..SuiteComparison::default()
        };
        let style = Style { table_width: 100, ..Style::default() };
        let row = "  gemm:decode[m=1024,MODE=graph]  10.0 µs  10.0 µs   1.000×  AMBIGUOUS";
        let note = "  the same in all cases of gemm:decode: n=4096, k=7168, TYPE=bf16, \
                    ACCUMULATE=f32\n\n  case";
        let shown = comparison_table(&comparison, &style);
        assert!(shown.contains(&format!("{row}\n")) && shown.contains(note), "{shown}");
        assert!(!shown.contains("sizes"), "the names have them: {shown}");
        // A reason stands beside its row, or below all rows with its whole name.
        comparison.rows[1].judgement.why = why.to_owned();
        let shown = comparison_table(&comparison, &style);
        assert!(shown.contains(&format!("{row}  the interval lies on")), "{shown}");
        let style = Style { table_width: 80, ..Style::default() };
        let shown = comparison_table(&comparison, &style);
        assert!(shown.contains(&format!("{row}\n")), "{shown}");
        let name = case(1024, "graph");
        assert!(shown.contains(&format!("\n  {name}\n      AMBIGUOUS: the interval")), "{shown}");
        assert!(shown.lines().all(|line| line.chars().count() <= 80), "{shown}");
        // Sizes that are no axes, and sides, follow the name.
        let style = Style { table_width: 100, ..Style::default() };
        comparison.rows[0].sizes += ",batch=2";
        comparison.rows[0].side = "optimised".into();
        let shown = comparison_table(&comparison, &style);
        let row = "  gemm:decode[m=16,MODE=eager] batch=2 optimised  10.0 µs  10.0 µs   1.000×";
        assert!(shown.contains(row), "{shown}");
        comparison.rows[0].judgement.why = why.to_owned();
        let shown = comparison_table(&comparison, &style);
        assert_eq!(shown.matches("  2 times\n      AMBIGUOUS: the interval").count(), 1, "{shown}");
        // In a pipe names are whole, and the reason stands in the row.
        let shown = comparison_table(&comparison, &Style::default());
        assert!(shown.contains(&name) && !shown.contains("the same in all"), "{shown}");
        // The table of one suite.
        let time = SuiteTime {
            size: "large".into(),
            median_ns: 10_000.0,
            ci95_ns: [9_900.0, 10_100.0],
            ..SuiteTime::default()
        };
        let row = |case: String| SuiteRow {
            case,
            state: RowState::Ok,
            times: vec![time.clone()],
            ..SuiteRow::default()
        };
        let rows = vec![row(case(16, "eager")), row(case(1024, "graph"))];
        let run = SuiteRun { rows, ..SuiteRun::default() };
        let shown = table(&run, &Style { table_width: 95, ..Style::default() });
        let row = "  gemm:decode[m=1024,MODE=graph]  large       10.0 µs ± 1.0 %\n";
        assert!(shown.contains(note) && shown.contains(row), "{shown}");
        assert!(!table(&run, &Style::default()).contains("the same in all"));
    }

    #[test]
    fn times_of_several_gpus_name_the_gpu_of_each() {
        let row = |case: &str, device: &str| SuiteRow {
            case: case.to_owned(),
            state: RowState::Ok,
            times: vec![SuiteTime {
                device: device.to_owned(),
                median_ns: 1000.0,
                ci95_ns: [990.0, 1010.0],
                ..SuiteTime::default()
            }],
            ..SuiteRow::default()
        };
        let one = "GPU-8c90ffbc-48e1-9bda-8cc6-fa35dfdb712f";
        let mut run = SuiteRun {
            id: "night".into(),
            rows: vec![row("s:a", one), row("s:b", one), row("s:c", "")],
            ..SuiteRun::default()
        };
        assert_eq!(devices_text(&run), None);
        assert!(!table(&run, &Style::default()).contains("GPU-"));
        run.rows.push(row("s:d", "GPU-17e5a922-c253-121e-317d-f787dfc19245"));
        let shown = table(&run, &Style::default());
        let head = "times of 2 GPUs: 1 on GPU-17e5a922, 2 on GPU-8c90ffbc";
        assert!(shown.contains(head), "{shown}");
        assert!(shown.lines().any(|line| line.contains("s:d") && line.contains("GPU-17e5a922")));
    }
}
