//! `report.md` of a suite, which also fits a comment of a pull request.

use super::table::{cases, clock_policy, counts, devices_text};
use crate::markdown::{plain, sentence};
use crate::quantity::timestamp;
use rgpu_model::suite::{MissingTool, RowState, SuiteRun, SuiteVerdict};

/// Renders a suite as Markdown.
pub fn markdown(run: &SuiteRun) -> String {
    let clean = match run.clean {
        true => "clean",
        false if run.rows.iter().all(|row| row.state.has_ended_well()) => RowState::NoGpu.as_str(),
        false => "not clean",
    };
    let mut out = format!("# {}: {clean}\n\n{}.", plain(&run.id), counts(run));
    let slower = run
        .times()
        .filter_map(|(_, time)| time.against.as_ref())
        .filter(|judged| judged.verdict == SuiteVerdict::Slower)
        .count();
    if slower > 0 {
        out += &format!(" {slower} slower than expected.");
    }
    out += &format!("\n\nStarted {}", timestamp(&run.started));
    if let Some(commit) = &run.commit {
        let dirty = if run.dirty { ", with changes" } else { "" };
        out += &format!(" at `{}`{dirty}", commit.get(..12).unwrap_or(commit));
    }
    out += &format!(", {:.0} s, {}", run.seconds, clock_policy(run));
    out += &devices_text(run).map(|devices| format!(", {devices}")).unwrap_or_default();
    out += ".\n\n";
    out += &cases(run, None).markdown();
    let failed: Vec<_> = run.rows.iter().filter(|row| row.state == RowState::Failed).collect();
    if !failed.is_empty() {
        out += "\n## Failures\n";
    }
    for row in failed {
        let failure = sentence(row.failure.as_deref().unwrap_or_default());
        out += &format!("\n- {}: {failure}\n\n      {}\n", plain(&row.case), row.again);
    }
    let missing: Vec<_> =
        run.rows.iter().flat_map(|row| row.missing.iter().map(move |m| (row, m))).collect();
    if !missing.is_empty() {
        out += "\n## Missing\n\n";
    }
    for (row, MissingTool { tool, text, .. }) in missing {
        out += &format!("- {}: no {tool}, {}\n", plain(&row.case), sentence(text));
    }
    let pairs: Vec<_> = run.rows.iter().filter_map(|row| Some((row, row.pair.as_ref()?))).collect();
    if !pairs.is_empty() {
        out += "\n## Pairs\n\n";
    }
    for (row, pair) in pairs {
        out += &format!("- {}: {}", plain(&row.case), sentence(&pair.summary));
        if pair.too_close || !pair.grown.is_empty() {
            out.push('.');
        }
        if pair.too_close {
            out += " Too close to call.";
        }
        for grown in &pair.grown {
            let speedup = grown.speedup.map(|x| format!("{x:.3}×")).unwrap_or_default();
            out += &format!(" At {}: {speedup}, too close to call.", plain(&grown.sizes));
        }
        out.push('\n');
        for part in pair.parts.iter().filter(|part| !part.there) {
            out += &format!("  - no {}: {}\n", part.part, sentence(&part.note));
        }
    }
    let judged: Vec<_> = run
        .times()
        .filter_map(|(row, time)| Some((row, time, time.against.as_ref()?)))
        .filter(|(_, _, judged)| !judged.why.is_empty())
        .collect();
    if !judged.is_empty() {
        out += "\n## Notes on expectations\n\n";
    }
    for (row, time, judged) in judged {
        let verdict = judged.verdict.as_str();
        out += &format!(
            "- {} {}: {verdict}, {}\n",
            plain(&row.case),
            plain(&time.key.side),
            sentence(&judged.why)
        );
    }
    let doubts: Vec<_> =
        run.rows.iter().flat_map(|row| row.warnings.iter().map(move |w| (row, w))).collect();
    if !doubts.is_empty() {
        out += "\n## Host warnings\n\n";
    }
    for (row, warning) in doubts {
        out += &format!("- {}: {}\n", plain(&row.case), sentence(&warning.text));
    }
    out
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
