//! The prompts of the loop's coding agent (the worker) and of its reviewer, within a byte limit.
//!
//! A prompt has a fixed part, which says what to do and how to answer, and further sections, most
//! important first. Each section gets at most its share of the limit, and no more than is left.
//! What does not fit is left out with a line that says so.

use std::fmt::Write as _;

use super::config::LoopConfig;
use super::state::{IterationRecord, LoopComparison, LoopState, MeasuredTime, Outcome};

/// A part of a prompt.
pub(super) struct PromptSection {
    pub(super) title: &'static str,
    pub(super) text: String,
    /// It gets at most this share of the limit.
    pub(super) share: f64,
}

/// The data that a prompt is made of.
pub(super) struct PromptInput<'a> {
    pub(super) config: &'a LoopConfig,
    pub(super) state: &'a LoopState,
    pub(super) history: &'a [IterationRecord],
    /// The user's words for the worker.
    pub(super) instructions: &'a str,
    /// The summary of the profile (`rgpu report --format brief`) of the change, or of the best
    /// version if the change has none.
    pub(super) brief: &'a str,
    /// The change as a patch.
    pub(super) patch: &'a str,
    /// The file to write.
    pub(super) answer: &'a str,
    /// The JSON Schema of that file.
    pub(super) schema: &'a str,
}

/// The worker's prompt, of at most `prompt_bytes`.
pub(super) fn worker(input: &PromptInput<'_>) -> String {
    let PromptInput { config, state, answer, .. } = *input;
    let mut fixed = format!(
        "Make the kernel `{}` faster. This is iteration {}.\n\n\
         Change only these files: {}. A change of any other file is refused.\n\
         rgpu verifies and measures your change itself; your own numbers are kept as claims.\n\
         It is kept only if its results are right on all sizes and two comparisons say that it is \
         faster by more than {} %.\n\n",
        config.kernel_path.display(),
        state.iteration,
        config.allowed_paths.join(", "),
        config.threshold * 100.0,
    );
    let _ = writeln!(fixed, "{}", progress_text(config, state));
    fixed += &answer_text(state, answer, "\"decision\": \"KEEP\"", "`decision` is KEEP or REVERT");
    let _ = writeln!(
        fixed,
        "To report an intermediate time: rgpu loop report-time --iter {} --time-us T --note TEXT\n",
        state.iteration
    );
    let hint = state.next_change_hint.clone().unwrap_or_default();
    let sections = [
        PromptSection { title: "Instructions", text: input.instructions.to_owned(), share: 0.4 },
        PromptSection { title: "The reviewer's hint", text: hint, share: 0.2 },
        PromptSection {
            title: "Profile of the best version so far",
            text: input.brief.to_owned(),
            share: 0.4,
        },
        PromptSection {
            title: "Earlier iterations",
            text: history_text(input.history, false),
            share: 0.3,
        },
        PromptSection { title: "Schema of the answer", text: input.schema.to_owned(), share: 1.0 },
    ];
    fit(&fixed, &sections, config.prompt_bytes)
}

/// The reviewer's prompt, of at most `prompt_bytes`.
pub(super) fn reviewer(input: &PromptInput<'_>) -> String {
    let PromptInput { config, state, answer, .. } = *input;
    let proposal = &state.proposal;
    let mut fixed = format!(
        "Review iteration {} of making the kernel `{}` faster.\n\n",
        state.iteration,
        config.kernel_path.display(),
    );
    let _ = writeln!(fixed, "{}", progress_text(config, state));
    let outcome = proposal.outcome.map_or("not decided yet", |outcome| outcome.as_str());
    let _ = writeln!(fixed, "rgpu's own verdict on the change: {outcome}. {}", proposal.reason);
    if let Some(claim) = &proposal.claim {
        let value = match (&claim.metric_name, claim.metric_value) {
            (Some(name), Some(value)) => format!("{name} = {value}"),
            _ => "no number".to_owned(),
        };
        let note = claim.note.as_ref().map(|note| format!(" ({note})")).unwrap_or_default();
        let _ = writeln!(fixed, "The worker claims, unverified: {value}{note}");
    }
    fixed.push('\n');
    fixed += &answer_text(
        state,
        answer,
        "\"verdict\": \"CONTINUE\", \"confidence\": \"medium\", \"reason\": \"…\"",
        "`verdict` is CONTINUE, STOP_TARGET_REACHED, STOP_NO_PROGRESS or STOP_BLOCKED; \
         with `requires_revert` true, rgpu reverts the change even if it is faster",
    );
    let comparisons = [("first", &proposal.comparison), ("second", &proposal.confirmation)];
    let comparison: String = comparisons
        .iter()
        .filter_map(|(name, one)| Some(comparison_text(name, one.as_ref()?)))
        .collect();
    let sections = [
        PromptSection { title: "The comparison with the best", text: comparison, share: 0.3 },
        PromptSection { title: "The change", text: input.patch.to_owned(), share: 0.4 },
        PromptSection { title: "The profile", text: input.brief.to_owned(), share: 0.4 },
        PromptSection {
            title: "Earlier iterations",
            text: history_text(input.history, true),
            share: 0.4,
        },
        PromptSection { title: "Schema of the answer", text: input.schema.to_owned(), share: 1.0 },
    ];
    fit(&fixed, &sections, config.prompt_bytes)
}

/// How to write the answer, with the iteration and the nonce that it must repeat.
fn answer_text(state: &LoopState, answer: &str, example: &str, words: &str) -> String {
    format!(
        "When you are done, write the file {answer} atomically (write a temporary file, then rename it):\n\
         {{\"iteration\": {}, \"nonce\": \"{}\", {example}}}\n{words}.\n\n",
        state.iteration, state.nonce
    )
}

/// The best and the target in two lines.
fn progress_text(config: &LoopConfig, state: &LoopState) -> String {
    let time = |time: Option<&MeasuredTime>| time.map_or("not measured".to_owned(), time_text);
    let best = state.best.as_ref().and_then(|best| best.time.as_ref());
    let start = state.start.as_ref().and_then(|start| start.time.as_ref());
    let mut text = format!("Start: {}. Best so far: {}.\n", time(start), time(best));
    if let Some(target) = config.target_metric_threshold {
        let _ = writeln!(text, "Target: {} {target}.", config.target_metric_name.as_str());
    }
    text
}

/// A time in a few words: `85.1 µs [84.9, 85.3]`.
pub(super) fn time_text(time: &MeasuredTime) -> String {
    let interval = time.interval_us.map(|[low, high]| format!(" [{low:.2}, {high:.2}]"));
    format!("{:.2} µs{}", time.gmean_us, interval.unwrap_or_default())
}

fn comparison_text(name: &str, comparison: &LoopComparison) -> String {
    let mut text = format!("{name}: {}\n", comparison.summary);
    for (base, new) in comparison.base.cases.iter().zip(&comparison.new.cases) {
        let _ = writeln!(
            text,
            "  {}: {:.2} µs before, {:.2} µs now",
            base.name, base.median_us, new.median_us
        );
    }
    text
}

/// The iterations, newest first, each in a line. `tells_all`: with why a time was not believed.
fn history_text(history: &[IterationRecord], tells_all: bool) -> String {
    let line = |record: &IterationRecord| {
        let note = record.claim.as_ref().and_then(|claim| claim.note.clone());
        let note = note.map(|note| format!(" — {note}")).unwrap_or_default();
        let reason = record.reason.lines().next().unwrap_or_default();
        if record.outcome == Outcome::NotBelieved && !tells_all {
            // Words on what was noticed would help to hide the next one.
            return format!("{}: refused{note}\n", record.iteration);
        }
        format!("{}: {}: {reason}{note}\n", record.iteration, record.outcome.as_str())
    };
    history.iter().rev().map(line).collect()
}

/// Joins the fixed part and as much of the sections as fits. The result is never longer than
/// `limit`.
fn fit(fixed: &str, sections: &[PromptSection], limit: usize) -> String {
    let mut text = cut(fixed, limit).to_owned();
    for section in sections.iter().filter(|section| !section.text.trim().is_empty()) {
        let title = format!("## {}\n", section.title);
        let left = limit.saturating_sub(text.len() + title.len() + 1);
        let allowed = left.min((limit as f64 * section.share) as usize);
        let body = section.text.trim_end();
        let marker = |left_out: usize| format!("[{left_out} bytes left out]\n");
        if body.len() < allowed {
            text += &format!("{title}{body}\n\n");
            continue;
        }
        let longest_marker = marker(body.len()).len();
        let Some(room) = allowed.checked_sub(longest_marker + 1).filter(|room| *room > 0) else {
            continue;
        };
        let kept = cut(body, room);
        // Whole lines, unless the first is longer than the room.
        let kept = kept.rfind('\n').map_or(kept, |at| &kept[..at]);
        text += &format!("{title}{kept}\n{}", marker(body.len() - kept.len()));
        if text.len() < limit {
            text.push('\n');
        }
    }
    cut(&text, limit).to_owned()
}

/// At most `limit` bytes of a text, without a half character.
fn cut(text: &str, limit: usize) -> &str {
    let mut end = limit.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn no_prompt_is_longer_than_its_limit(
            fixed in "\\PC{0,200}",
            texts in prop::collection::vec("(\\PC{0,40}\n){0,40}", 0..5),
            share in 0.0..1.0_f64,
            limit in 0..3000_usize,
        ) {
            let sections: Vec<PromptSection> =
                texts.into_iter().map(|text| PromptSection { title: "T", text, share }).collect();
            prop_assert!(fit(&fixed, &sections, limit).len() <= limit);
        }
    }

    #[test]
    fn a_worker_hears_that_a_time_was_not_believed_and_not_why() {
        let record = |outcome| IterationRecord {
            iteration: 3,
            outcome,
            reason: "the clocks disagree".into(),
            changed: Vec::new(),
            claim: None,
            comparison: None,
            confirmation: None,
            verdict: None,
        };
        let told = |outcome, all| history_text(&[record(outcome)], all);
        assert_eq!(told(Outcome::NotBelieved, false), "3: refused\n");
        assert_eq!(told(Outcome::NotBelieved, true), "3: not believed: the clocks disagree\n");
        assert_eq!(told(Outcome::Wrong, false), "3: wrong: the clocks disagree\n");
    }

    #[test]
    fn the_first_sections_win_and_what_is_left_out_is_told() {
        let section = |text: String, share| PromptSection { title: "T", text, share };
        let lines = |count: usize| (0..count).map(|n| format!("line {n}\n")).collect::<String>();
        let sections = [section(lines(5), 1.0), section(lines(1000), 0.5), section(lines(2), 1.0)];
        let text = fit("fixed\n", &sections, 2000);
        assert!(text.starts_with("fixed\n## T\nline 0\n"), "{text}");
        assert!(text.contains("line 4\n\n## T\nline 0"), "{text}");
        let left_out = text.lines().find(|line| line.contains("bytes left out")).unwrap();
        let at = text.find(left_out).unwrap();
        assert!(
            text[..at].ends_with('\n') && text[at..].contains("## T\nline 0\nline 1"),
            "{text}"
        );
    }
}
