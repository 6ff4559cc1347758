//! Two accounts, cause by cause: what became of the time.

use std::collections::HashMap;

use rgpu_model::Account;
use rgpu_model::account::{AccountCause, AccountPart};
use rgpu_model::comparison::{AccountChange, PartChange};
use rgpu_model::finding::GainScope;

/// How many times more work a step may launch before it is said that the steps differ.
const OTHER_STEP: u64 = 2;

/// What became of the time: step against step; program against program if not both have steps.
/// `None` if an account is empty. Recordings may hold any number of steps, so windows or programs
/// are compared only where there is no step.
pub fn accounts(before: &Account, after: &Account) -> Option<AccountChange> {
    let mut change = match (&before.step, &after.step) {
        (Some(a), Some(b)) => {
            let (least, most) = (a.work.min(b.work), a.work.max(b.work));
            let differ = most / OTHER_STEP > least;
            let note = format!(
                "the steps may not be the same: one launches {} pieces of work, the other {}",
                a.work, b.work
            );
            AccountChange {
                of: GainScope::Step,
                ns: [a.median_ns, b.median_ns],
                note: differ.then_some(note),
                parts: Vec::new(),
            }
        }
        (a, b) => {
            let side = match (a, b) {
                (Some(_), None) => Some("only the base has steps"),
                (None, Some(_)) => Some("the base has no steps"),
                _ => None,
            };
            AccountChange {
                of: GainScope::Program,
                ns: [before.program_ns, after.program_ns],
                note: side.map(|side| format!("the whole programs are compared, since {side}")),
                parts: Vec::new(),
            }
        }
    };
    change.parts = changes(before, after);
    (change.ns != [0, 0]).then_some(change)
}

/// The causes whose time changed, largest change first: per step, or of the program if not both
/// have steps. A time that stayed the same is left out.
pub fn changes(before: &Account, after: &Account) -> Vec<PartChange> {
    let has_steps = before.step.is_some() && after.step.is_some();
    let (before, after) = if has_steps {
        (&before.parts, &after.parts)
    } else {
        (&before.program_parts, &after.program_parts)
    };
    let mut causes: Vec<&AccountCause> = Vec::new();
    for part in before.iter().chain(after) {
        if !causes.contains(&&part.cause) {
            causes.push(&part.cause);
        }
    }
    let of_cause = causes.into_iter().map(|cause| change(cause, before, after));
    let mut changes: Vec<_> = of_cause.filter(|change| change.difference_ns != 0).collect();
    changes.sort_by_key(|change| std::cmp::Reverse(change.difference_ns.unsigned_abs()));
    changes
}

/// The time of one cause on both sides.
fn change(cause: &AccountCause, before: &[AccountPart], after: &[AccountPart]) -> PartChange {
    let sides = [before, after];
    let sum = |parts: &[AccountPart]| {
        let times = parts.iter().filter(|part| part.cause == *cause).map(|part| part.ns);
        times.fold(0_u64, u64::saturating_add)
    };
    let ns = sides.map(sum);
    let mut rows: HashMap<&str, [u64; 2]> = HashMap::new();
    for (side, parts) in sides.iter().enumerate() {
        let own = parts.iter().filter(|part| part.cause == *cause);
        for row in own.flat_map(|part| &part.rows) {
            let times = rows.entry(&row.name).or_default();
            if let Some(ns) = times.get_mut(side) {
                *ns = ns.saturating_add(row.ns);
            }
        }
    }
    let largest = rows.into_iter().max_by_key(|(name, ns)| {
        (difference(*ns).unsigned_abs(), ns[0].max(ns[1]), std::cmp::Reverse(*name))
    });
    let row = largest.map(|(name, _)| name.to_owned()).unwrap_or_default();
    PartChange { cause: cause.clone(), ns, difference_ns: difference(ns), row }
}

/// By how much the second time is longer; bounded by what the type holds.
fn difference([a, b]: [u64; 2]) -> i64 {
    if b >= a {
        i64::try_from(b - a).unwrap_or(i64::MAX)
    } else {
        i64::try_from(a - b).map_or(i64::MIN, |ns| -ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rgpu_model::account::{AccountRow, StepTime};

    fn part(cause: AccountCause, rows: &[(&str, u64)]) -> AccountPart {
        let row = |(name, ns): &(&str, u64)| AccountRow {
            name: (*name).to_owned(),
            ns: *ns,
            ..AccountRow::default()
        };
        let ns = rows.iter().map(|(_, ns)| *ns).sum();
        AccountPart { cause, ns, rows: rows.iter().map(row).collect(), ..AccountPart::default() }
    }

    fn stepped(count: u64, work: u64, parts: Vec<AccountPart>) -> Account {
        let median_ns = parts.iter().map(|part| part.ns).sum();
        let program_ns = count * median_ns;
        let step = Some(StepTime { count, work, median_ns, ..StepTime::default() });
        Account { step, parts, program_ns, ..Account::default() }
    }

    #[test]
    fn a_step_is_held_against_a_step_however_many_there_are() {
        use AccountCause as C;
        let before = stepped(
            10,
            40,
            vec![
                part(C::MatrixProduct, &[("gemm", 700), ("gemv", 100)]),
                part(C::CopyPageable, &[("HtoD", 300)]),
                part(C::Cast, &[("cast", 50)]),
            ],
        );
        let after = stepped(
            25,
            42,
            vec![
                part(C::MatrixProduct, &[("gemm", 650), ("gemv", 120)]),
                part(C::CopyPinned, &[("HtoD", 90)]),
                part(C::Cast, &[("cast", 50)]),
            ],
        );
        let change = accounts(&before, &after).unwrap();
        assert_eq!((change.of, change.ns, change.note), (GainScope::Step, [1_150, 910], None));
        let told: Vec<_> =
            change.parts.iter().map(|p| (&p.cause, p.ns, p.difference_ns, &p.row[..])).collect();
        let expected = [
            (&C::CopyPageable, [300, 0], -300, "HtoD"),
            (&C::CopyPinned, [0, 90], 90, "HtoD"),
            (&C::MatrixProduct, [800, 770], -30, "gemm"),
        ];
        assert_eq!(told, expected);
        let sum: i64 = change.parts.iter().map(|part| part.difference_ns).sum();
        assert_eq!(sum, 910 - 1_150);
    }

    #[test]
    fn programs_are_compared_where_one_has_no_steps() {
        let mut before = stepped(10, 40, vec![part(AccountCause::Sort, &[("sort", 900)])]);
        before.program_parts = vec![part(AccountCause::Sort, &[("sort", 9_000)])];
        let after = Account {
            program_ns: 4_000,
            program_parts: vec![part(AccountCause::Sort, &[("sort", 4_000)])],
            ..Account::default()
        };
        let change = accounts(&before, &after).unwrap();
        assert_eq!((change.of, change.ns), (GainScope::Program, [9_000, 4_000]));
        let note = "the whole programs are compared, since only the base has steps";
        assert_eq!(change.note.as_deref(), Some(note));
        assert_eq!(change.parts[0].difference_ns, -5_000);
        assert_eq!(accounts(&Account::default(), &Account::default()), None);
    }

    #[test]
    fn steps_of_another_size_are_told() {
        let before = stepped(10, 400, vec![part(AccountCause::Sort, &[("sort", 900)])]);
        let after = stepped(90, 10, vec![part(AccountCause::Sort, &[("sort", 20)])]);
        let note = accounts(&before, &after).unwrap().note.unwrap();
        assert!(note.contains("400") && note.contains("10"), "{note}");
    }

    #[test]
    fn numbers_that_cannot_be_are_no_problem() {
        let large = vec![part(AccountCause::Sort, &[("sort", u64::MAX)])];
        let mut before = Account { program_parts: large.clone(), ..Account::default() };
        before.program_ns = u64::MAX;
        before.program_parts.extend(large);
        let change = accounts(&before, &Account::default()).unwrap();
        assert_eq!(change.parts[0].difference_ns, i64::MIN);
        let change = accounts(&Account::default(), &before).unwrap();
        assert_eq!(change.parts[0].difference_ns, i64::MAX);
    }
}
