//! The data of the picture of a step: its parts as texts and shares, in the order of their time.

use serde::Serialize;

use crate::account::{self, HiddenRow, PartRow};
use crate::kernel_name::KernelLabels;
use crate::quantity::duration;
use crate::text::capital;
use rgpu_model::Profile;
use rgpu_model::account::{AccountPart, StepTime};

/// The most parts of the picture; the rest is one more.
const MAX_PARTS: usize = 14;

/// The most hidden parts of the picture; the rest is one more.
const MAX_HIDDEN_PARTS: usize = 6;

/// Where the time of a step goes, or of the program without steps.
#[serde_with::skip_serializing_none]
#[derive(Serialize)]
pub(super) struct PageAccount {
    title: String,
    /// How long a step takes, and how steps were found.
    lead: String,
    /// The whole bar, in words: `a step, 33.1 ms`.
    whole: String,
    parts: Vec<PagePart>,
    hidden: Vec<HiddenPart>,
    /// The time of the program, start-up included; absent without steps.
    program: Option<ProgramParts>,
    /// What is below the picture, as sentences.
    notes: Vec<String>,
    /// Start and length of the step that the timeline shows first, in nanoseconds since the first
    /// event.
    shown: Option<(u64, u64)>,
}

/// The time of the whole program.
#[derive(Serialize)]
struct ProgramParts {
    /// The whole bar, in words: `the program, 5.97 s`.
    whole: String,
    parts: Vec<PagePart>,
    hidden: Vec<HiddenPart>,
}

/// A part of the picture.
#[serde_with::skip_serializing_none]
#[derive(Serialize)]
struct PagePart {
    label: String,
    /// Whether the GPU does it.
    gpu: bool,
    /// The part of the whole, 0 to 1.
    share: f64,
    percent: String,
    time: String,
    count: String,
    /// The time that other work hides.
    hidden: Option<String>,
    /// The kernel or call with most of the time.
    largest: String,
}

/// What other work hides: most time first.
#[derive(Serialize)]
struct HiddenPart {
    label: String,
    /// Whether the GPU does it.
    gpu: bool,
    /// Its time as a part of the whole; several pieces of work at once can have more than 1.
    share: f64,
    time: String,
}

impl PageAccount {
    /// The picture of a profile's account; `None` without an account, or if it has no time.
    pub(super) fn new(profile: &Profile, names: &KernelLabels<'_>) -> Option<PageAccount> {
        let account = profile.account.as_ref()?;
        let whole_ns = account::whole_ns(account);
        let rows = account::rows(account::parts(account), names, MAX_PARTS);
        if rows.is_empty() {
            return None;
        }
        let step = account::step(account);
        let program = step.filter(|_| !account.program_parts.is_empty()).map(|_| {
            let rows = account::rows(&account.program_parts, names, MAX_PARTS);
            ProgramParts {
                whole: format!("the program, {}", duration(account.program_ns as f64)),
                parts: page_parts(&rows),
                hidden: hidden_parts(&account.program_parts),
            }
        });
        let outliers = account::outliers(account, names);
        let notes = [account::together(profile), outliers, account::no_gains(account)];
        let name = if step.is_some() { "a step" } else { "the program" };
        Some(PageAccount {
            title: capital(account::title(account)),
            lead: capital(&account::lead(account)),
            whole: format!("{name}, {}", duration(whole_ns as f64)),
            parts: page_parts(&rows),
            hidden: hidden_parts(account::parts(account)),
            program,
            notes: notes.into_iter().flatten().map(|note| capital(&note)).collect(),
            shown: step.and_then(shown),
        })
    }
}

/// The step that is shown, if it has a length.
fn shown(step: &StepTime) -> Option<(u64, u64)> {
    (step.shown_ns > 0).then_some((step.shown_start_ns, step.shown_ns))
}

fn page_parts(rows: &[PartRow]) -> Vec<PagePart> {
    rows.iter().map(PagePart::new).collect()
}

fn hidden_parts(parts: &[AccountPart]) -> Vec<HiddenPart> {
    let whole_ns = parts.iter().map(|part| part.ns).fold(0, u64::saturating_add);
    let part = |row: HiddenRow| HiddenPart {
        label: row.label,
        gpu: row.is_gpu,
        share: row.ns as f64 / whole_ns.max(1) as f64,
        time: duration(row.ns as f64),
    };
    account::hidden_rows(parts, MAX_HIDDEN_PARTS).into_iter().map(part).collect()
}

impl PagePart {
    fn new(row: &PartRow) -> PagePart {
        let largest_share =
            row.largest_share.map(|share| format!(", {:.0} % of it", 100.0 * share));
        PagePart {
            label: row.label.clone(),
            gpu: row.is_gpu,
            share: if row.share.is_finite() { row.share.clamp(0.0, 1.0) } else { 0.0 },
            percent: account::share_text(row.share),
            time: duration(row.ns as f64),
            count: row.count.clone(),
            hidden: (row.hidden_ns > 0).then(|| duration(row.hidden_ns as f64)),
            largest: row.largest_text() + &largest_share.unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::account::tests::training;
    use crate::kernel_name::KernelNames;
    use rgpu_model::Account;

    fn picture(account: Account) -> Option<PageAccount> {
        let profile = Profile { account: Some(account), ..Profile::default() };
        PageAccount::new(&profile, &KernelNames::Short.labels(&profile))
    }

    #[test]
    fn the_parts_of_the_picture_add_up_to_the_step() {
        let picture = picture(training()).unwrap();
        let sum: f64 = picture.parts.iter().map(|part| part.share).sum();
        assert!((sum - 1.0).abs() < 1e-9, "{sum}");
        assert_eq!(picture.whole, "a step, 33.1 ms");
        assert_eq!(picture.shown, Some((3_000_000_000, 33_000_000)));
        assert_eq!(picture.program.unwrap().whole, "the program, 5.97 s");
        let hidden = picture.hidden.iter().map(|part| (part.label.as_str(), part.time.as_str()));
        let expected =
            [("communication", "9.00 ms"), ("host work", "3.00 ms"), ("casts", "400 µs")];
        assert!(hidden.eq(expected));
        assert!((picture.hidden[0].share - 9.0 / 33.1).abs() < 1e-9);
        assert_eq!(picture.parts[0].largest, "gemm_bf16<128, 128>, 61 % of it");
    }

    #[test]
    fn without_steps_or_parts_there_is_no_step_to_show() {
        let mut account = Account { step: None, ..training() };
        let of_program = picture(account.clone()).unwrap();
        assert_eq!(of_program.whole, "the program, 5.97 s");
        assert!(of_program.program.is_none() && of_program.shown.is_none());
        account.program_parts.clear();
        assert!(picture(account).is_none());
    }
}
