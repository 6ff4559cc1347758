//! A repository that prepares its own state and run folders: links that lead out of it or in a
//! circle, and files that never end. Each place is tried with each way in which `rgpu` reads,
//! writes or deletes there.
//!
//! Nothing outside may change, nothing of what lies outside may be shown or copied, no command
//! panics or waits for ever, and an error names the place. The tests here try a sample, in which
//! each place and each way comes; `each_way` tries all and belongs to `.ci/long`. A failing test
//! prints its whole table.

mod machine;
mod places;
mod ways;

use std::collections::BTreeMap;
use std::fmt::Write;

use machine::{Machine, ShownOutput};
use places::{Kind, Place};
use ways::Way;

/// What a way made of a place, from the worst to the best.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Verdict {
    /// Text of a file outside was shown or copied.
    Leak,
    /// Something outside was created, changed or removed.
    WrittenOutside,
    /// The command did not end.
    Hangs,
    /// It panicked.
    Panics,
    /// It failed, and did not say where.
    Unclear,
    /// It failed, and named the place.
    Refused,
    /// It succeeded, and named the link.
    Told,
    /// It succeeded without a word: it had no business there, or left the place out.
    NotTouched,
}

impl Verdict {
    fn is_bad(self) -> bool {
        self <= Self::Unclear
    }

    fn name(self) -> &'static str {
        match self {
            Self::Leak => "LEAK",
            Self::WrittenOutside => "WRITTEN OUTSIDE",
            Self::Hangs => "HANGS",
            Self::Panics => "PANICS",
            Self::Unclear => "UNCLEAR",
            Self::Refused => "refused",
            Self::Told => "told",
            Self::NotTouched => "not touched",
        }
    }
}

/// The cells where something was first found. The sample has them.
const FIRST_FOUND: [(&str, &str); 6] = [
    (".rgpu/queue", "queue clean"),
    (".rgpu/queue/1/1.log", "queue add and run"),
    (".rgpu/queue/2/1.log", "queue add and run"),
    ("artifacts/loop", "loop start"),
    ("artifacts/runs/second/log", "dashboard export"),
    ("artifacts/runs/second/log/exec.stdout", "mcp"),
];

/// How many of the cells are tried.
#[derive(Clone, Copy)]
enum Cells {
    /// Each place with at least one way, and each way with at least one place.
    Sample,
    All,
}

/// Tries places with ways.
fn try_cells(machine: &Machine, places: &[Place], ways: &[Way], cells: Cells) {
    let (mut table, mut bad) = (String::new(), Vec::new());
    let mut usual = UsualStatus::default();
    let rows: Vec<_> = places
        .iter()
        .flat_map(|place| place.kinds.iter().map(move |kind| (place, *kind)))
        .collect();
    let per_row = ways.len().div_ceil(rows.len());
    let mut tried: BTreeMap<&str, usize> = ways.iter().map(|way| (way.name, 0)).collect();
    for (place, kind) in rows {
        let mut chosen: Vec<&Way> = ways.iter().filter(|way| way.is_for(kind)).collect();
        if let Cells::Sample = cells {
            let is_first = |way: &Way| FIRST_FOUND.contains(&(&*place.path, way.name));
            // Then those that were tried least.
            chosen.sort_by_key(|way| (!is_first(way), tried[way.name]));
            chosen.truncate(per_row);
        }
        let mut found: BTreeMap<Verdict, Vec<&str>> = BTreeMap::new();
        let mut is_prepared = false;
        for way in chosen {
            if !is_prepared {
                machine.renew_project();
                place.prepare(machine, kind);
            }
            *tried.entry(way.name).or_default() += 1;
            let shown = way.go(machine, place);
            let usual = || {
                *usual
                    .entry((way.name, place.run()))
                    .or_insert_with(|| machine.without_place(|| way.go(machine, place).status))
            };
            let verdicts = judge(machine, place, kind, &shown, usual);
            is_prepared = !way.changes && !verdicts.contains(&Verdict::WrittenOutside);
            for verdict in verdicts {
                found.entry(verdict).or_default().push(way.name);
                if verdict.is_bad() {
                    let text = String::from_utf8_lossy(&shown.text);
                    bad.push(format!(
                        "{} is {}: {} ({}): {}",
                        place.path,
                        kind.name(),
                        way.name,
                        verdict.name(),
                        text.chars().take(1500).collect::<String>()
                    ));
                }
            }
        }
        let _ = writeln!(table, "{} is {}", place.path, kind.name());
        for (verdict, ways) in found {
            let _ = writeln!(table, "    {}: {}", verdict.name(), ways.join(", "));
        }
    }
    // The laptop reads the documents of its project when it goes.
    machine.renew_project();
    let left_out: Vec<_> = tried.iter().filter(|(_, count)| **count == 0).collect();
    assert!(left_out.is_empty(), "never tried: {left_out:?}");
    assert!(bad.is_empty(), "{table}\n{}", bad.join("\n"));
}

/// How a way ends in a project that nobody has prepared, by way and run.
type UsualStatus = BTreeMap<(&'static str, &'static str), Option<i32>>;

/// All that is to be said of a cell: a leak and a write may come together.
fn judge(
    machine: &Machine,
    place: &Place,
    kind: Kind,
    shown: &ShownOutput,
    usual: impl FnOnce() -> Option<i32>,
) -> Vec<Verdict> {
    let mut verdicts = Vec::new();
    if shown.has_secret() || machine.has_secret_in_project() {
        verdicts.push(Verdict::Leak);
    }
    if machine.is_outside_changed() {
        verdicts.push(Verdict::WrittenOutside);
    }
    let text = String::from_utf8_lossy(&shown.text);
    if text.contains("panicked") || shown.status == Some(70) {
        verdicts.push(Verdict::Panics);
    }
    let name = place.path.rsplit('/').next().unwrap_or_default();
    let is_named = text.contains(&place.path) || (kind == Kind::Pipe && text.contains(name));
    verdicts.extend(match shown.status {
        _ if !verdicts.is_empty() => None,
        None => Some(Verdict::Hangs),
        Some(0) if is_named => Some(Verdict::Told),
        Some(0) => Some(Verdict::NotTouched),
        Some(_) if is_named => Some(Verdict::Refused),
        // A profile that is no file is none, and the error says that the run has none.
        Some(_) if kind == Kind::Pipe && text.contains("has no profile") => Some(Verdict::Refused),
        status if status == usual() => Some(Verdict::NotTouched),
        Some(_) => Some(Verdict::Unclear),
    });
    verdicts
}

fn run_folders_lead_nowhere(cells: Cells) {
    let machine = Machine::with_runs();
    try_cells(&machine, &places::of_runs(), &ways::of_runs(), cells);
}

fn files_of_runs_lead_nowhere(cells: Cells) {
    let machine = Machine::with_runs();
    try_cells(&machine, &places::of_files_of_runs(), &ways::of_runs(), cells);
}

fn folders_for_runs_lead_nowhere(cells: Cells) {
    let machine = Machine::with_runs();
    try_cells(&machine, &places::of_artifacts(), &ways::of_runs(), cells);
}

fn the_queues_and_loops_folders_lead_nowhere(cells: Cells) {
    let machine = Machine::with_loop();
    try_cells(&machine, &places::of_state(&machine), &ways::of_state(), cells);
}

fn results_are_written_inside_the_project(cells: Cells) {
    let machine = Machine::with_runs();
    try_cells(&machine, &places::of_results(), &ways::of_results(), cells);
}

fn settings_of_a_project_are_files_of_it(cells: Cells) {
    let machine = Machine::with_loop();
    try_cells(&machine, &places::of_settings(), &ways::of_settings(), cells);
}

mod sample {
    use super::Cells::Sample;

    #[test]
    fn run_folders_lead_nowhere() {
        super::run_folders_lead_nowhere(Sample);
    }

    #[test]
    fn files_of_runs_lead_nowhere() {
        super::files_of_runs_lead_nowhere(Sample);
    }

    #[test]
    fn folders_for_runs_lead_nowhere() {
        super::folders_for_runs_lead_nowhere(Sample);
    }

    #[test]
    fn the_queues_and_loops_folders_lead_nowhere() {
        super::the_queues_and_loops_folders_lead_nowhere(Sample);
    }

    #[test]
    fn results_are_written_inside_the_project() {
        super::results_are_written_inside_the_project(Sample);
    }

    #[test]
    fn settings_of_a_project_are_files_of_it() {
        super::settings_of_a_project_are_files_of_it(Sample);
    }
}

mod each_way {
    use super::Cells::All;

    #[test]
    fn run_folders_lead_nowhere() {
        super::run_folders_lead_nowhere(All);
    }

    #[test]
    fn files_of_runs_lead_nowhere() {
        super::files_of_runs_lead_nowhere(All);
    }

    #[test]
    fn folders_for_runs_lead_nowhere() {
        super::folders_for_runs_lead_nowhere(All);
    }

    #[test]
    fn the_queues_and_loops_folders_lead_nowhere() {
        super::the_queues_and_loops_folders_lead_nowhere(All);
    }

    #[test]
    fn results_are_written_inside_the_project() {
        super::results_are_written_inside_the_project(All);
    }

    #[test]
    fn settings_of_a_project_are_files_of_it() {
        super::settings_of_a_project_are_files_of_it(All);
    }
}
