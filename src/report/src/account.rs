//! The texts of an account that all reports share: how long a step takes, its parts, and what its
//! first changes would give together.

use std::cmp::Reverse;

use super::finding::replayed_step;
use super::kernel_name::KernelLabels;
use super::phrase::short_place;
use super::quantity::{count_of, digits, duration, duration_range, percent};
use super::text::{cut_middle, one_line};
use rgpu_model::account::{
    Account, AccountCause, AccountPart, AccountRow, StepOutlier, StepSource, StepTime, TogetherGain,
};
use rgpu_model::finding::{GainKind, GainScope};
use rgpu_model::number_form::counted;
use rgpu_model::{Finding, Profile};

/// Parts with a smaller share are shown as one, unless everything is.
const MIN_SHOWN_SHARE: f64 = 0.01;

/// Parts of the short form.
pub(super) const MAX_SHORT_PARTS: usize = 5;

/// Hidden parts that are named.
const MAX_HIDDEN_PARTS: usize = 4;

/// Outliers that are named.
const MAX_OUTLIERS: usize = 2;

/// Less of the work in common than this is told.
const USUAL_MATCH_SHARE: f64 = 0.95;

/// The most columns of a name in a row.
const MAX_NAME_COLUMNS: usize = 44;

/// A part as reports show it, or several small ones as one.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct PartRow {
    /// The cause in words, or `3 others`.
    pub(super) label: String,
    /// Whether the GPU does this; of several parts, all of them.
    pub(super) is_gpu: bool,
    /// The part of the whole, 0 to 1.
    pub(super) share: f64,
    /// Nanoseconds of a step, or of the program.
    pub(super) ns: u64,
    /// Nanoseconds of the same that other work hides.
    pub(super) hidden_ns: u64,
    /// Number of kernels, copies or calls; empty if none is known.
    pub(super) count: String,
    /// The kernel or call with most of the time; empty if none is known.
    pub(super) largest: String,
    /// Its region or operator; empty if none is known.
    pub(super) place: String,
    /// The part of the time that it has, 0 to 1; absent if it has all.
    pub(super) largest_share: Option<f64>,
}

/// The heading of an account.
pub(super) fn title(account: &Account) -> &'static str {
    match step(account) {
        Some(_) => "where a step's time goes",
        None => "where the program's time goes",
    }
}

/// The step whose time is split; `None` if it is the program's.
pub(super) fn step(account: &Account) -> Option<&StepTime> {
    account.step.as_ref().filter(|_| !account.parts.is_empty())
}

/// The parts that an account is about: those of a step, or of the program.
pub(super) fn parts(account: &Account) -> &[AccountPart] {
    if step(account).is_some() { &account.parts } else { &account.program_parts }
}

/// Nanoseconds that the parts are of.
pub(super) fn whole_ns(account: &Account) -> u64 {
    step(account).map_or(account.program_ns, |step| step.median_ns)
}

/// `a step 33.1 ms (32.8 to 34.0), 120 steps found by their kernels' sequence; start-up 2.10 s
/// before them`. Without steps, how long the program takes.
pub(super) fn lead(account: &Account) -> String {
    let whose = account.rank.map_or_else(String::new, |rank| format!("rank {rank}: "));
    let Some(step) = step(account) else {
        let program = duration(account.program_ns as f64);
        let none = if account.step.is_none() { "; no step repeats" } else { "" };
        return format!("{whose}{program} from the first event to the last{none}");
    };
    let mut text = format!("{whose}a step {}", step_time(step));
    text += &format!(", {}{}", counted(step.count, "step", "steps"), found_by(step));
    if step.match_share < USUAL_MATCH_SHARE {
        let share = percent(100.0 * step.match_share);
        text += &format!(", {share} of their work is the same in each");
    }
    if step.first_start_ns > 0 {
        let before = if step.count == 1 { "it" } else { "them" };
        text += &format!("; start-up {} before {before}", duration(step.first_start_ns as f64));
    }
    text
}

/// `33.1 ms (32.8 to 34.0)`: the median, and what 80 % of the steps take.
fn step_time(step: &StepTime) -> String {
    let [low, median, high] =
        [step.low_ns, step.median_ns, step.high_ns].map(|ns| duration(ns as f64));
    if step.low_ns >= step.high_ns || low == high {
        return median;
    }
    format!("{median} ({})", range_beside(&median, step.low_ns, step.high_ns))
}

/// A range beside a time that has the same unit, without that unit.
fn range_beside(time: &str, low_ns: u64, high_ns: u64) -> String {
    let range = duration_range(low_ns, high_ns);
    let unit = time.rsplit_once(' ').map(|(_, unit)| unit);
    match range.rsplit_once(' ') {
        // With one unit, `LOW to HIGH UNIT` has three blanks.
        Some((numbers, own)) if Some(own) == unit && range.matches(' ').count() == 3 => {
            numbers.to_owned()
        }
        _ => range,
    }
}

fn found_by(step: &StepTime) -> String {
    match (&step.found_by, &step.name) {
        (StepSource::Range, Some(name)) => {
            format!(" marked by `{}`", cut_middle(&one_line(name), MAX_NAME_COLUMNS))
        }
        (StepSource::Range, None) => " marked by ranges".to_owned(),
        (StepSource::Period, _) => " found by their kernels' sequence".to_owned(),
        (StepSource::Waits, _) => " found by the host's waits for the GPU".to_owned(),
        _ => String::new(),
    }
}

/// The rows of `parts`, at most `max` of them and those of at least 1 %; the rest is one more row.
/// All of them if `max` is `usize::MAX`.
pub(super) fn rows(parts: &[AccountPart], names: &KernelLabels<'_>, max: usize) -> Vec<PartRow> {
    let is_shown = |(at, part): &(usize, &AccountPart)| {
        max == usize::MAX || *at < max && part.share >= MIN_SHOWN_SHARE
    };
    let shown = parts.iter().enumerate().take_while(is_shown).count();
    let (shown, rest) = parts.split_at(shown);
    let mut rows: Vec<PartRow> = shown.iter().map(|part| row(part, names)).collect();
    match rest {
        [] => {}
        // One part has a name that is as short.
        [only] => rows.push(row(only, names)),
        several => rows.push(others(several)),
    }
    rows
}

fn row(part: &AccountPart, names: &KernelLabels<'_>) -> PartRow {
    let first = part.rows.first();
    PartRow {
        label: one_line(part.cause.words()),
        is_gpu: part.cause.is_gpu(),
        share: part.share,
        ns: part.ns,
        hidden_ns: part.hidden_ns,
        count: count_text(part.count),
        largest: first.map(|row| row_name(&part.cause, &row.name, names)).unwrap_or_default(),
        place: first.and_then(place_text).unwrap_or_default(),
        largest_share: first.and_then(|row| share_of_part(part, row)),
    }
}

/// Several parts as one.
fn others(parts: &[AccountPart]) -> PartRow {
    let sum = |of: fn(&AccountPart) -> u64| parts.iter().map(of).fold(0, u64::saturating_add);
    PartRow {
        label: format!("{} others", parts.len()),
        is_gpu: parts.iter().all(|part| part.cause.is_gpu()),
        share: parts.iter().map(|part| part.share).filter(|share| share.is_finite()).sum(),
        ns: sum(|part| part.ns),
        hidden_ns: sum(|part| part.hidden_ns),
        count: String::new(),
        largest: String::new(),
        place: String::new(),
        largest_share: None,
    }
}

/// `96`; of a step that is not always the same `12.5`.
fn count_text(count: f64) -> String {
    match count {
        n if !n.is_finite() || n <= 0.0 => String::new(),
        n if n.fract() == 0.0 && n < 1e4 => format!("{n}"),
        n if n < 1e4 => digits(n),
        n => count_of(n),
    }
}

/// The region or operator of a row; `None` if it is not known.
fn place_text(row: &AccountRow) -> Option<String> {
    let place = row.place.as_deref().filter(|place| !place.is_empty())?;
    Some(cut_middle(&one_line(&short_place(place)), MAX_NAME_COLUMNS))
}

impl PartRow {
    /// `gemm bf16 in train::step`: what has most of the time, and where.
    pub(super) fn largest_text(&self) -> String {
        match &self.place[..] {
            "" => self.largest.clone(),
            place => format!("{} in {place}", self.largest),
        }
    }
}

/// The part of a cause's time that a row has, 0 to 1; `None` if it has all.
fn share_of_part(part: &AccountPart, row: &AccountRow) -> Option<f64> {
    let share = row.ns as f64 / part.ns.max(1) as f64;
    (part.rows.len() > 1 && share < 0.995).then_some(share)
}

/// The name of a row: short, if it is a kernel's; without its folders, if it is of the host.
fn row_name(cause: &AccountCause, name: &str, names: &KernelLabels<'_>) -> String {
    // Latency and waits are named by the kernel that they are before.
    if let Some(short) = names.of_kernel(name) {
        return short.to_owned();
    }
    let text = match cause {
        AccountCause::CopyPinned
        | AccountCause::CopyPageable
        | AccountCause::CopyDevice
        | AccountCause::CopyHost
        | AccountCause::CopyUnified
        | AccountCause::Fill => name.to_owned(),
        cause if cause.is_gpu() => names.name(name),
        _ => short_place(name),
    };
    cut_middle(&one_line(&text), MAX_NAME_COLUMNS)
}

/// `hidden beside it: communication 9.00 ms, host work 3.00 ms`: what other work hides. `None` if
/// nothing is hidden.
pub(super) fn hidden(account: &Account) -> Option<String> {
    let rows = hidden_rows(parts(account), MAX_HIDDEN_PARTS);
    let told =
        rows.iter().map(|row| format!("{} {}", in_list(&row.label), duration(row.ns as f64)));
    let told: Vec<String> = told.collect();
    (!told.is_empty()).then(|| format!("hidden beside it: {}", told.join(", ")))
}

/// What other work hides of a part, or of several small ones.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct HiddenRow {
    /// The cause in words, or `3 others`.
    pub(super) label: String,
    /// Whether the GPU does this; of several parts, all of them.
    pub(super) is_gpu: bool,
    /// Nanoseconds of a step, or of the program.
    pub(super) ns: u64,
}

/// What is hidden, most time first: at most `max` parts, and the rest as one more.
pub(super) fn hidden_rows(parts: &[AccountPart], max: usize) -> Vec<HiddenRow> {
    let mut parts: Vec<_> = parts.iter().filter(|part| part.hidden_ns > 0).collect();
    parts.sort_by_key(|part| Reverse(part.hidden_ns));
    let (shown, rest) = parts.split_at(parts.len().min(max));
    let row = |part: &&AccountPart| HiddenRow {
        label: one_line(part.cause.words()),
        is_gpu: part.cause.is_gpu(),
        ns: part.hidden_ns,
    };
    let mut rows: Vec<HiddenRow> = shown.iter().map(row).collect();
    match rest {
        [] => {}
        [only] => rows.push(row(only)),
        several => rows.push(HiddenRow {
            label: format!("{} others", several.len()),
            is_gpu: several.iter().all(|part| part.cause.is_gpu()),
            ns: several.iter().map(|part| part.hidden_ns).fold(0, u64::saturating_add),
        }),
    }
    rows
}

/// A cause within a list, whose items have commas between them: `copies (pinned memory)`.
fn in_list(label: &str) -> String {
    match label.split_once(", ") {
        Some((what, kind)) => format!("{what} ({kind})"),
        None => label.to_owned(),
    }
}

/// A share of 0 to 1 in percent; what is not the whole is not called so.
pub(super) fn share_text(share: f64) -> String {
    match 100.0 * share {
        share if (99.0..99.95).contains(&share) => format!("{share:.1} %"),
        share => percent(share),
    }
}

/// `step 17 took 91.0 ms: cudaFree`: the steps that took much longer than others. `None` if there
/// are none.
pub(super) fn outliers(account: &Account, names: &KernelLabels<'_>) -> Option<String> {
    let step = account.step.as_ref()?;
    let one = |outlier: &StepOutlier| {
        let name = row_name(&outlier.cause, &outlier.name, names);
        let why = if name.is_empty() { one_line(outlier.cause.words()) } else { name };
        let because = if why.is_empty() { String::new() } else { format!(": {why}") };
        format!("step {} took {}{because}", outlier.step, duration(outlier.duration_ns as f64))
    };
    let mut told: Vec<String> = step.outliers.iter().take(MAX_OUTLIERS).map(one).collect();
    let more = step.outliers.len().saturating_sub(MAX_OUTLIERS);
    if more > 0 {
        told.push(format!("{more} more took long, too"));
    }
    (!told.is_empty()).then(|| told.join("; "))
}

/// Why no gains are given, as a sentence; `None` if they are, or if there is no step, which the
/// account says.
pub(super) fn no_gains(account: &Account) -> Option<String> {
    account.step.as_ref()?;
    let why = account.no_gains.as_deref().filter(|why| !why.is_empty())?;
    Some(format!("what a change would give back is not told: {}", one_line(why)))
}

/// `the first three together: a step 33.1 → 21.0 ms (20.5 to 21.9)`. `None` if that is not known of
/// at least two changes.
pub(super) fn together(profile: &Profile) -> Option<String> {
    let account = profile.account.as_ref()?;
    let step = step(account)?;
    let together = account.together.as_ref().filter(|together| together.findings.len() > 1)?;
    let (low_ns, high_ns) = (together.low_ns, together.high_ns.max(together.low_ns));
    let after_ns = low_ns + (high_ns - low_ns) / 2;
    // As the findings: the steps that were replayed are a part of all.
    let before_ns = account.replayed_ns.unwrap_or(step.median_ns);
    let step = replayed_step(before_ns, after_ns, [low_ns, high_ns]);
    Some(format!("{} together: {step}", changes(together, &profile.findings)))
}

/// The changes that are made together: `the first three`, or their ids.
fn changes(together: &TogetherGain, findings: &[Finding]) -> String {
    let is_replayed = |finding: &&Finding| {
        let stake = finding.stake.as_ref();
        stake.is_some_and(|s| s.of == GainScope::Step && s.kind == GainKind::Replayed)
    };
    let changes = together.findings.len();
    let first = findings.iter().filter(is_replayed).take(changes).map(|finding| &finding.id);
    if !first.eq(&together.findings) {
        let ids = together.findings.iter().map(|id| format!("`{}`", one_line(id)));
        return ids.collect::<Vec<_>>().join(", ");
    }
    match changes {
        2 => "the first two changes".to_owned(),
        3 => "the first three changes".to_owned(),
        more => format!("the first {more} changes"),
    }
}

/// The largest parts in one sentence: `matrix products 52 %, host work 20 %, casts 8.60 %`. At most
/// `max` of them; `None` without parts.
pub(super) fn in_short(account: &Account, names: &KernelLabels<'_>, max: usize) -> Option<String> {
    let rows = rows(parts(account), names, max);
    let told = rows.iter().take(max).filter(|row| row.share >= MIN_SHOWN_SHARE);
    let told: Vec<_> =
        told.map(|row| format!("{} {}", in_list(&row.label), share_text(row.share))).collect();
    (!told.is_empty()).then(|| told.join(", "))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::kernel_name::KernelNames;
    use rgpu_model::finding::PotentialGain;
    use rgpu_model::timeline::KernelSum;

    fn part(cause: AccountCause, ns: u64, hidden_ns: u64, count: f64) -> AccountPart {
        let share = ns as f64 / 33_100_000.0;
        AccountPart { cause, ns, share, hidden_ns, count, rows: Vec::new() }
    }

    fn account_row(name: &str, ns: u64, place: Option<&str>) -> AccountRow {
        let place = place.map(str::to_owned);
        AccountRow { name: name.to_owned(), ns, count: 1.0, place }
    }

    /// A training step of 33.1 ms, most of which is products.
    pub(crate) fn training() -> Account {
        let mut parts = vec![
            part(AccountCause::MatrixProduct, 17_000_000, 0, 96.0),
            part(AccountCause::Host, 8_000_000, 3_000_000, 12.5),
            part(AccountCause::CopyPageable, 4_000_000, 0, 2.0),
            part(AccountCause::Cast, 2_400_000, 400_000, 64.0),
            part(AccountCause::Communication, 1_000_000, 9_000_000, 8.0),
            part(AccountCause::Synchronisation, 300_000, 0, 3.0),
            part(AccountCause::LaunchLatency, 250_000, 0, 0.0),
            part(AccountCause::Unknown, 150_000, 0, 0.0),
        ];
        parts[0].rows = vec![
            account_row("void gemm_bf16<128, 128>(float*)", 10_400_000, None),
            account_row("gemv", 6_600_000, None),
        ];
        let frame = "/home/me/train.py(12): load";
        parts[1].rows = vec![account_row(frame, 8_000_000, None)];
        parts[2].rows = vec![account_row("copy to the GPU", 4_000_000, Some("data::next"))];
        let program_parts = [
            (AccountCause::Compilation, 2_100_000_000, 0.352),
            (AccountCause::MatrixProduct, 2_040_000_000, 0.342),
            (AccountCause::Host, 1_830_000_000, 0.306),
        ];
        let program_parts = program_parts.map(|(cause, ns, share)| AccountPart {
            cause,
            ns,
            share,
            count: 41.0,
            ..AccountPart::default()
        });
        Account {
            step: Some(StepTime {
                found_by: StepSource::Period,
                count: 120,
                median_ns: 33_100_000,
                low_ns: 32_800_000,
                high_ns: 34_000_000,
                work: 1820,
                match_share: 0.998,
                first_start_ns: 2_100_000_000,
                shown_start_ns: 3_000_000_000,
                shown_ns: 33_000_000,
                outliers: vec![StepOutlier {
                    step: 17,
                    duration_ns: 91_000_000,
                    cause: AccountCause::Allocation,
                    name: "cudaFree".to_owned(),
                    ..StepOutlier::default()
                }],
                ..StepTime::default()
            }),
            parts,
            program_ns: 5_970_000_000,
            program_parts: program_parts.to_vec(),
            replayed_ns: Some(33_100_000),
            ..Account::default()
        }
    }

    /// The finding of a change that was replayed.
    pub(crate) fn replayed(id: &str, ns: u64) -> Finding {
        let stake = PotentialGain {
            ns,
            low_ns: Some(ns - ns / 10),
            high_ns: Some(ns + ns / 10),
            share: ns as f64 / 33_100_000.0,
            of: GainScope::Step,
            change: Some(format!("change {id}")),
            kind: GainKind::Replayed,
            step_ns: Some(33_100_000),
            ..PotentialGain::default()
        };
        Finding {
            id: id.to_owned(),
            category: "host".to_owned(),
            stake: Some(stake),
            text: format!("what {id} finds"),
            hint: format!("do {id}"),
            ..Finding::default()
        }
    }

    fn shown(max: usize) -> Vec<PartRow> {
        let profile = Profile::default();
        let account = training();
        let names = KernelNames::Short.labels(&profile);
        rows(parts(&account), &names, max)
    }

    #[test]
    fn a_step_has_its_time_with_its_spread_how_it_was_found_and_what_was_before() {
        let mut account = training();
        let expected = "a step 33.1 ms (32.8 to 34.0), 120 steps found by their kernels' sequence; \
                        start-up 2.10 s before them";
        assert_eq!(lead(&account), expected);
        let step = account.step.as_mut().unwrap();
        (step.found_by, step.name) = (StepSource::Range, Some("train\nstep".to_owned()));
        (step.low_ns, step.first_start_ns, step.match_share) = (900_000, 0, 0.8);
        account.rank = Some(3);
        let expected = "rank 3: a step 33.1 ms (900 µs to 34.0 ms), 120 steps marked by `train step`, \
                        80 % of their work is the same in each";
        assert_eq!(lead(&account), expected);
        account.rank = None;
        let parts = std::mem::take(&mut account.parts);
        assert_eq!(lead(&account), "5.97 s from the first event to the last");
        assert_eq!(title(&account), "where the program's time goes");
        account.parts = parts;
        account.step = None;
        let expected = "5.97 s from the first event to the last; no step repeats";
        assert_eq!(lead(&account), expected);
        assert_eq!(title(&account), "where the program's time goes");
        assert_eq!(whole_ns(&account), 5_970_000_000);
    }

    /// What a part of latency is said to be before.
    fn latency_before(kernel: &str) -> String {
        let sum = KernelSum { kernel: kernel.to_owned(), ..KernelSum::default() };
        let profile = Profile { kernels: vec![sum], ..Profile::default() };
        let names = KernelNames::Short.labels(&profile);
        row_name(&AccountCause::LaunchLatency, kernel, &names)
    }

    #[test]
    fn parts_below_a_hundredth_are_one_row() {
        let rows = shown(12);
        let labels: Vec<_> = rows.iter().map(|row| row.label.as_str()).collect();
        let named = ["matrix products", "host work", "copies, pageable memory", "casts"];
        assert_eq!(labels[..4], named);
        assert_eq!(labels[4..], ["communication", "3 others"]);
        let sum: f64 = rows.iter().map(|row| row.share).sum();
        assert!((sum - 1.0).abs() < 1e-9, "{sum}");
        let counts: Vec<_> = rows.iter().map(|row| row.count.as_str()).collect();
        assert_eq!(counts, ["96", "12.5", "2", "64", "8", ""]);
        assert_eq!(rows[0].largest, "gemm_bf16<128, 128>");
        assert_eq!(rows[0].largest_share.map(|share| (100.0 * share).round()), Some(61.0));
        assert_eq!(rows[1].largest, "train.py(12): load");
        assert_eq!(rows[2].largest_text(), "copy to the GPU in data::next");
        assert_eq!(latency_before("void mul<float>(float*)"), "mul<float>");
        assert_eq!((rows[1].largest_share, rows[2].largest_share), (None, None));
        assert!(!rows[5].is_gpu && rows[0].is_gpu);
        assert_eq!(shown(2).len(), 3);
        assert_eq!(shown(usize::MAX).len(), 8, "a file has them all");
        let account = training();
        let names = KernelNames::Short;
        let profile = Profile::default();
        let short = in_short(&account, &names.labels(&profile), 3).unwrap();
        assert_eq!(short, "matrix products 51 %, host work 24 %, copies (pageable memory) 12 %");
    }

    #[test]
    fn what_is_hidden_is_named_most_time_first() {
        let mut account = training();
        let expected = "hidden beside it: communication 9.00 ms, host work 3.00 ms, casts 400 µs";
        assert_eq!(hidden(&account).unwrap(), expected);
        let two = hidden_rows(&account.parts, 1);
        let two: Vec<_> = two.iter().map(|row| (row.label.as_str(), row.ns, row.is_gpu)).collect();
        assert_eq!(two, [("communication", 9_000_000, true), ("2 others", 3_400_000, false)]);
        account.parts.iter_mut().for_each(|part| part.hidden_ns = 0);
        assert_eq!(hidden(&account), None);
    }

    #[test]
    fn numbers_that_cannot_be_are_no_problem() {
        let profile = Profile::default();
        let names = KernelNames::Short.labels(&profile);
        let strange = AccountPart {
            cause: AccountCause::from("a\u{1b}b"),
            ns: u64::MAX,
            share: f64::NAN,
            hidden_ns: u64::MAX,
            count: f64::INFINITY,
            rows: vec![AccountRow::default(), AccountRow::default()],
        };
        let rows = rows(&[strange.clone(), strange.clone(), strange], &names, 2);
        assert_eq!(rows.len(), 1);
        assert_eq!((rows[0].label.as_str(), rows[0].ns), ("3 others", u64::MAX));
        let mut account = training();
        // A spread that no digit shows is none.
        for ends in [(u64::MAX, 0), (33_090_000, 33_110_000)] {
            let step = account.step.as_mut().unwrap();
            (step.low_ns, step.high_ns) = ends;
            assert!(lead(&account).starts_with("a step 33.1 ms, 120 steps"));
        }
        assert_eq!([0.997, 1.0, 0.5].map(share_text), ["99.7 %", "100 %", "50 %"]);
    }

    #[test]
    fn steps_that_took_long_are_named_with_their_cause() {
        let (profile, mut account) = (Profile::default(), training());
        let names = KernelNames::Short.labels(&profile);
        let text = |account: &Account| outliers(account, &names);
        assert_eq!(text(&account).unwrap(), "step 17 took 91.0 ms: cudaFree");
        let step = account.step.as_mut().unwrap();
        step.outliers[0].name.clear();
        step.outliers.extend(step.outliers.clone());
        step.outliers.extend(step.outliers.clone());
        let expected = "step 17 took 91.0 ms: memory allocation; step 17 took 91.0 ms: memory \
                        allocation; 2 more took long, too";
        assert_eq!(text(&account).unwrap(), expected);
        account.step.as_mut().unwrap().outliers.clear();
        assert_eq!(text(&account), None);
    }

    #[test]
    fn the_first_changes_together_are_said_as_one_step() {
        let findings = ["a", "b", "c"].map(|id| replayed(id, 5_000_000)).to_vec();
        let ids = |ids: &[&str]| {
            let findings = ids.iter().map(|id| (*id).to_owned()).collect();
            Some(TogetherGain { findings, low_ns: 20_000_000, high_ns: 22_000_000 })
        };
        let text = |gain| {
            let account = Some(Account { together: gain, ..training() });
            together(&Profile { account, findings: findings.clone(), ..Profile::default() })
        };
        let expected = "the first three changes together: a step 33.1 → 21.0 ms (20.0 to 22.0)";
        assert_eq!(text(ids(&["a", "b", "c"])).unwrap(), expected);
        let expected = "`a`, `c` together: a step 33.1 → 21.0 ms (20.0 to 22.0)";
        assert_eq!(text(ids(&["a", "c"])).unwrap(), expected);
        assert_eq!((text(ids(&["a"])), text(None)), (None, None));
    }
}
