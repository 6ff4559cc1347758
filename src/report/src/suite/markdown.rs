//! `report.md` of a suite, which also fits a comment of a pull request.

use super::table::{cases, clock_policy, counts, devices_text, speedup_text};
use crate::blocks::{Block, Blocks, Field, to_markdown};
use crate::quantity::timestamp;
use rgpu_model::suite::{MissingTool, RowState, SuiteRun, SuiteVerdict};

/// Renders a suite as Markdown.
pub fn markdown(run: &SuiteRun) -> String {
    let clean = match run.clean {
        true => "clean",
        false if run.rows.iter().all(|row| row.state.has_ended_well()) => RowState::NoGpu.as_str(),
        false => "not clean",
    };
    let mut out = Blocks::default();
    out.add(Block::Title(run.id.clone(), clean.to_owned()));
    let judged = run.times().filter_map(|(_, time)| time.against.as_ref());
    let slower = match judged.filter(|judged| judged.verdict == SuiteVerdict::Slower).count() {
        0 => String::new(),
        slower => format!(". {slower} slower than expected"),
    };
    out.note(format!("{}{slower}", counts(run)));
    let mut text = format!("Started {}", timestamp(&run.started));
    if let Some(commit) = &run.commit {
        let dirty = if run.dirty { ", with changes" } else { "" };
        text += &format!(" at `{}`{dirty}", commit.get(..12).unwrap_or(commit));
    }
    text += &format!(", {:.0} s, {}", run.seconds, clock_policy(run));
    devices_text(run).iter().for_each(|devices| text += &format!(", {devices}"));
    out.note(text);
    out.table("", cases(run, None));
    let failed = run.rows.iter().filter(|row| row.state == RowState::Failed);
    let failed = failed.map(|row| {
        let failure = row.failure.as_deref().unwrap_or_default();
        vec![format!("{}: {failure}", row.case), format!("again: `{}`", row.again)]
    });
    list(&mut out, "failures", failed);
    let missing = run.rows.iter().flat_map(|row| row.missing.iter().map(move |m| (row, m)));
    let missing = missing.map(|(row, MissingTool { tool, text, .. })| {
        vec![format!("{}: no {tool}, {text}", row.case)]
    });
    list(&mut out, "missing", missing);
    let pairs = run.rows.iter().filter_map(|row| Some((row, row.pair.as_ref()?)));
    let pairs = pairs.map(|(row, pair)| {
        let mut text = format!("{}: {}", row.case, pair.summary);
        if pair.too_close || !pair.grown.is_empty() {
            text.push('.');
        }
        if pair.too_close {
            text += " Too close to call.";
        }
        for grown in &pair.grown {
            let speedup = speedup_text(grown.speedup);
            text += &format!(" At {}: {speedup}, too close to call.", grown.sizes);
        }
        let parts = pair.parts.iter().filter(|part| !part.there);
        let parts = parts.map(|part| format!("no {}: {}", part.part, part.note));
        std::iter::once(text).chain(parts).collect()
    });
    list(&mut out, "pairs", pairs);
    let judged = run.times().filter_map(|(row, time)| Some((row, time, time.against.as_ref()?)));
    let judged = judged.filter(|(_, _, judged)| !judged.why.is_empty());
    let judged = judged.map(|(row, time, judged)| {
        let verdict = judged.verdict.as_str();
        vec![format!("{} {}: {verdict}, {}", row.case, time.key.side, judged.why)]
    });
    list(&mut out, "notes on expectations", judged);
    let doubts = run.rows.iter().flat_map(|row| row.warnings.iter().map(move |w| (row, w)));
    let doubts = doubts.map(|(row, warning)| vec![format!("{}: {}", row.case, warning.text)]);
    list(&mut out, "host warnings", doubts);
    to_markdown(&out.0)
}

/// Adds a list with a heading, if it has items: each a text, and texts below it.
fn list(out: &mut Blocks, title: &str, items: impl Iterator<Item = Vec<String>>) {
    for (at, item) in items.enumerate() {
        if at == 0 {
            out.heading(title);
        }
        for (at, text) in item.into_iter().enumerate() {
            out.add(if at == 0 {
                Block::Detail("", text)
            } else {
                Block::Field(Field { text, ..Field::default() })
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suite::html;
    use rgpu_model::suite::{SuiteRow, SuiteTime, TimeJudgement};

    #[test]
    fn what_a_text_has_in_backticks_is_code_in_both_reports() {
        let judgement = TimeJudgement {
            verdict: SuiteVerdict::Incomparable,
            speedup: None,
            ci95: None,
            threshold: None,
            why: "another driver (`580`, now `590`)".to_owned(),
        };
        let row = SuiteRow {
            case: "s:a".to_owned(),
            state: RowState::Failed,
            failure: Some("`vec_add` does not compile: a_b".to_owned()),
            times: vec![SuiteTime { against: Some(judgement), ..SuiteTime::default() }],
            ..SuiteRow::default()
        };
        let run = SuiteRun { rows: vec![row], ..SuiteRun::default() };
        let text = markdown(&run);
        assert!(text.contains("- s:a: `vec_add` does not compile: a\\_b\n"), "{text}");
        assert!(text.contains("another driver (`580`, now `590`)"), "{text}");
        let page = html(&run, &Default::default(), std::path::Path::new("/"));
        assert!(page.contains("<code>vec_add</code> does not compile"), "{page}");
        assert!(page.contains("title=\"another driver (580, now 590)\""), "{page}");
    }
}
