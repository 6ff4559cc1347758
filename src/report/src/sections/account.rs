//! Adds where the time of a step, or of the whole program, goes.

use super::View;
use crate::TextTable;
use crate::account::{self, PartRow};
use crate::blocks::{Blocks, TableBlock};
use crate::quantity::duration;
use crate::text::{capital, cut_middle};
use rgpu_model::Account;
use rgpu_model::account::AccountPart;

/// The most parts that a terminal shows one by one.
const MAX_PARTS: usize = 12;

/// The least columns for the largest kernel, and the columns that go until it has them.
const SPARE: (usize, &[&str]) = (24, &["count"]);

/// The most columns of a word of the last column on a terminal.
const MAX_WORD_COLUMNS: usize = 26;

/// The most columns of a name with its place there.
const MAX_PLACE_COLUMNS: usize = 34;

/// Adds the account of a profile, if there is one.
pub(super) fn add_account(out: &mut Blocks, view: &View<'_>) {
    let Some(account) = &view.profile.account else { return };
    out.heading(account::title(account));
    add_note(out, view, account::lead(account));
    let max = view.rows(MAX_PARTS);
    add_parts(out, view, account::parts(account), max);
    add_remarks(out, view, account);
    // A file has what was before and after the steps, too.
    if view.is_whole && account::step(account).is_some() && !account.program_parts.is_empty() {
        out.heading("where the program's time goes");
        let program = duration(account.program_ns as f64);
        out.note(format!("{program} from the first event to the last, start-up included"));
        add_parts(out, view, &account.program_parts, max);
    }
}

/// Adds an account in short, for readers who do not profile.
pub(crate) fn add_short_account(out: &mut Blocks, view: &View<'_>) {
    let Some(account) = &view.profile.account else { return };
    out.heading(account::title(account));
    add_note(out, view, account::lead(account));
    add_parts(out, view, account::parts(account), account::MAX_SHORT_PARTS);
    add_remarks(out, view, account);
    account::together(view.profile).into_iter().for_each(|text| add_note(out, view, text));
}

fn add_parts(out: &mut Blocks, view: &View<'_>, parts: &[AccountPart], max: usize) {
    let rows = account::rows(parts, &view.names, max);
    let table = table(&rows, view.is_whole);
    out.full_table(TableBlock { table, indent: 4, spare: Some(SPARE), ..TableBlock::default() });
}

/// A terminal has hidden work in a line of its own.
fn table(rows: &[PartRow], is_whole: bool) -> TextTable {
    let hidden = |row: &PartRow| match row.hidden_ns {
        ns if ns > 0 && is_whole => duration(ns as f64),
        _ => String::new(),
    };
    TextTable::of(
        rows,
        &[
            ("cause", &|row| row.label.clone()),
            ("share:", &|row| account::share_text(row.share)),
            ("time:", &|row| duration(row.ns as f64)),
            ("count:", &|row| row.count.clone()),
            ("hidden:", &|row| hidden(row)),
            ("most of it", &|row| most_of_it(row, is_whole)),
        ],
    )
}

/// `61 % gemm bf16`; without the share if it is all. A terminal has short words and places only, and
/// the full name in its table of kernels.
fn most_of_it(row: &PartRow, is_whole: bool) -> String {
    let share = row.largest_share.map(|share| format!("{:.0} % ", 100.0 * share));
    let mut text = row.largest_text();
    if !is_whole {
        if text.chars().count() > MAX_PLACE_COLUMNS {
            text.clone_from(&row.largest);
        }
        let words: Vec<_> =
            text.split(' ').map(|word| cut_middle(word, MAX_WORD_COLUMNS)).collect();
        text = words.join(" ");
    }
    share.unwrap_or_default() + &text
}

/// Adds a remark; in a file it is a sentence.
fn add_note(out: &mut Blocks, view: &View<'_>, text: String) {
    out.note(if view.is_whole { capital(&text) } else { text });
}

/// Adds what is hidden, the steps that took much longer than others, and why no gains are told.
fn add_remarks(out: &mut Blocks, view: &View<'_>, account: &Account) {
    let hidden = account::hidden(account).filter(|_| !view.is_whole);
    let outliers = account::outliers(account, &view.names);
    let remarks = [hidden, outliers, account::no_gains(account)];
    remarks.into_iter().flatten().for_each(|remark| add_note(out, view, remark));
}

#[cfg(test)]
mod tests {
    use crate::account::tests::{replayed, training};
    use crate::{Style, report};
    use rgpu_model::account::TogetherGain;
    use rgpu_model::finding::{GainScope, PotentialGain};
    use rgpu_model::timeline::{DeviceTime, Timeline, WaitCause, WaitSum};
    use rgpu_model::{Account, Finding, Profile};

    fn profile() -> Profile {
        let waiting = vec![WaitSum { cause: WaitCause::HostLate, total_ns: 900_000_000, gaps: 1 }];
        let device = DeviceTime {
            busy_ns: 2_000_000_000,
            span_ns: 4_000_000_000,
            waiting,
            ..DeviceTime::default()
        };
        let little = Finding {
            stake: Some(PotentialGain::bound(9_000_000, GainScope::Program, 0.002)),
            ..replayed("tail", 0)
        };
        let ids = ["pageable", "casts"].map(str::to_owned).to_vec();
        let together = TogetherGain { findings: ids, low_ns: 25_800_000, high_ns: 27_000_000 };
        let mut profile = Profile {
            account: Some(Account { together: Some(together), ..training() }),
            timeline: Some(Timeline { devices: vec![device], ..Timeline::default() }),
            findings: vec![replayed("pageable", 4_000_000), replayed("casts", 2_000_000), little],
            ..Profile::default()
        };
        profile.kernel.name = "train.py".to_owned();
        profile.run.mode = "torch".to_owned();
        profile
    }

    fn text(profile: &Profile, format: &str) -> String {
        report(format).unwrap().text(&profile.into(), &Style::default())
    }

    #[test]
    fn the_first_screen_says_where_a_steps_time_goes() {
        let profile = profile();
        insta::assert_snapshot!("terminal", text(&profile, "table"));
        insta::assert_snapshot!("markdown", text(&profile, "markdown"));
        insta::assert_snapshot!("brief", text(&profile, "brief"));
    }

    #[test]
    fn a_narrow_terminal_keeps_cause_share_and_time() {
        let style = Style { width: 60, ..Style::default() };
        let text = report("table").unwrap().text(&(&profile()).into(), &style);
        let head = text.lines().find(|line| line.trim_start().starts_with("cause")).unwrap();
        assert!(["share", "time"].iter().all(|name| head.contains(name)), "{text}");
        assert!(!head.contains("count"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 60), "{text}");
    }

    #[test]
    fn without_steps_the_programs_time_is_split() {
        let mut profile = profile();
        profile.findings.clear();
        let account = profile.account.as_mut().unwrap();
        account.step = None;
        account.parts.clear();
        account.no_gains = Some("no step repeats".to_owned());
        insta::assert_snapshot!("without_steps", text(&profile, "table"));
    }

    #[test]
    fn why_no_gains_are_told_is_said() {
        let mut profile = profile();
        let account = profile.account.as_mut().unwrap();
        account.no_gains = Some("the replay takes 112 % of the recorded time".to_owned());
        let text = text(&profile, "brief");
        let expected = "  what a change would give back is not told: the replay takes 112 % of the \
                        recorded time\n";
        assert!(text.contains(expected), "{text}");
    }
}
