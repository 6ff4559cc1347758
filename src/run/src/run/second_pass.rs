//! A second pass of mode `nsys`: the program once more, with what costs too much time to be recorded
//! at once. It gives findings their lines, and CUDA graphs their kernels; no time comes from it.
//!
//! It is made only if the program repeats steps, and a finding about them lacks its place or graphs
//! hold much of them. The program is stopped in it once it has made enough steps.

use rgpu_import::join::second_pass::{add_graph_nodes, add_stacks};
use rgpu_import::{IMPORTERS, ImportedArtifact, Source};
use rgpu_model::RungId;
use rgpu_model::error::chain;
use rgpu_model::profile::{ArtifactKind, Gap};
use rgpu_plan::kernel::ProfileMode;
use rgpu_plan::tool::{
    PlanPart, ProfileTarget, Request, SECOND_STEP, SecondPass, Window, WindowEnd,
};

use super::assemble::ProfileBuilder;
use super::job::{HostFile, JobResult};
use crate::store::RunFolder;

/// How much longer the program takes with stacks: 1.4 to 3.5 times on an H200.
const SLOWDOWN: f64 = 3.0;
/// Seconds for what comes besides the program's own time.
const SPARE_S: f64 = 10.0;

/// A second pass before it starts.
pub(super) struct PlannedPass {
    /// What it records.
    pub(super) records: SecondPass,
    /// The part of the program's run that it records.
    pub(super) window: Window,
    /// What it is for and what it costs, for the user.
    pub(super) note: String,
}

/// The second pass after the job that `result` is of. `None` if there is none: the user left it out,
/// or recorded the same already, or there is nothing that it could add.
pub(super) fn plan(
    request: &Request,
    builder: &mut ProfileBuilder,
    result: &JobResult,
) -> Option<PlannedPass> {
    let is_program = matches!(request.target, ProfileTarget::Program(_));
    let is_alone = request.nodes <= 1 && request.ranks.is_none() && request.pass == 0;
    if request.mode != ProfileMode::Nsys
        || request.part != PlanPart::Whole
        || !is_program
        || !is_alone
        || builder.rung() != RungId::NsysFull
    {
        return None;
    }
    let record = result.rungs.iter().rfind(|r| r.ok && RungId::NsysFull == *r.rung)?;
    let has_ended_well = record.exit.unwrap_or(0) == 0 || request.window.stopped(record.seconds);
    if !has_ended_well {
        return None;
    }
    let trace = builder.trace()?;
    let unseen = rgpu_analysis::unseen(trace)?;
    let span_s = trace.span_ns as f64 / 1e9;
    let records = SecondPass {
        stacks: unseen.places
            && request.nsys.sample.is_none()
            && !has_argument(request, &["--cudabacktrace", "--python-backtrace", "--sample", "-s"]),
        graph_nodes: unseen.graph_nodes && !has_argument(request, &["--cuda-graph-trace"]),
    };
    if records == SecondPass::default() {
        return None;
    }
    let before_s = record.seconds - span_s - request.window.after_s.unwrap_or(0) as f64;
    let stop_s = before_s.max(0.0) + SLOWDOWN * unseen.enough_ns as f64 / 1e9 + SPARE_S;
    let mut window = request.window;
    if window.end.is_none() && request.nsys.capture_range.is_none() {
        window.end = Some(WindowEnd::Seconds(stop_s.ceil() as u64));
    }
    let seconds = stop_s.min(SLOWDOWN * record.seconds + SPARE_S);
    Some(PlannedPass { records, window, note: note(records, seconds) })
}

/// Whether the user passed one of these arguments to nsys.
fn has_argument(request: &Request, names: &[&str]) -> bool {
    let words = request.nsys.nsys_args.iter().flat_map(|words| words.iter());
    let is_one = |word: &str| {
        names.iter().any(|name| {
            let rest = word.strip_prefix(name);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('='))
        })
    };
    words.into_iter().any(|word| is_one(word))
}

fn note(records: SecondPass, seconds: f64) -> String {
    let (what, off) = match (records.stacks, records.graph_nodes) {
        (true, false) => ("the lines that call CUDA", "`--sample none`"),
        (false, _) => ("the kernels inside CUDA graphs", "`--nsys-args --cuda-graph-trace=graph`"),
        (true, true) => (
            "the lines that call CUDA and the kernels inside CUDA graphs",
            "`--sample none --nsys-args --cuda-graph-trace=graph`",
        ),
    };
    format!(
        "the program runs a second time, for up to {seconds:.0} s, to record {what}; no time comes \
         from that run ({off} leaves it out)"
    )
}

/// Adds what the second pass recorded to the trace of the first. What it lacks is a gap.
pub(super) fn add(
    request: &Request,
    builder: &mut ProfileBuilder,
    folder: &RunFolder,
    result: &JobResult,
) {
    let PlanPart::SecondPass(records) = request.part else { return };
    builder.profile.ladder.extend(result.rungs.iter().cloned());
    let is_report = |file: &&HostFile| file.artifact.kind == ArtifactKind::NsysRep;
    let report = result.files.iter().find(is_report).filter(|_| result.step_ok(SECOND_STEP));
    let added = match report {
        Some(file) => {
            let path = &file.artifact.path;
            builder.profile.artifacts.retain(|known| known.path != *path);
            builder.profile.artifacts.push(file.artifact.clone());
            import(folder, file).and_then(|imported| add_imported(records, builder, imported))
        }
        None => {
            let record = result.last_rung(SECOND_STEP);
            Err(record.map_or_else(|| "it did not run".to_owned(), |r| r.message.clone()))
        }
    };
    if let Err(why) = added {
        let text = format!("the second pass brought nothing: {why}");
        builder.profile.gaps.push(Gap { code: "no_second_pass".to_owned(), text });
    }
}

fn import(folder: &RunFolder, file: &HostFile) -> Result<ImportedArtifact, String> {
    let importer = IMPORTERS.iter().find(|importer| importer.kind == file.artifact.kind);
    let importer = importer.ok_or_else(|| "its report is of an unknown kind".to_owned())?;
    let path = folder.path().join(&file.artifact.path);
    (importer.import)(&Source::new(&path, &file.artifact.path)).map_err(|error| chain(&error))
}

fn add_imported(
    records: SecondPass,
    builder: &mut ProfileBuilder,
    imported: ImportedArtifact,
) -> Result<(), String> {
    let second = imported.sidecars.trace.ok_or("its report has no events")?;
    let first = builder.trace().ok_or("the first pass has no events")?;
    let mut missing = Vec::new();
    if records.stacks && add_stacks(first, &second) == 0 {
        missing.push("no stack of it belongs to a call of the first");
    }
    if records.graph_nodes && add_graph_nodes(first, &second) == 0 {
        missing.push("no graph of it is one of the first");
    }
    if missing.is_empty() { Ok(()) } else { Err(missing.join(", and ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_note_says_what_the_pass_is_for_what_it_costs_and_how_to_leave_it_out() {
        let told = |stacks, graph_nodes| note(SecondPass { stacks, graph_nodes }, 24.4);
        assert_eq!(
            told(true, false),
            "the program runs a second time, for up to 24 s, to record the lines that call CUDA; no \
             time comes from that run (`--sample none` leaves it out)"
        );
        assert!(told(false, true).contains("the kernels inside CUDA graphs; no time"));
        assert!(told(true, true).contains("CUDA and the kernels"));
    }

    #[test]
    fn arguments_of_the_user_are_found_with_and_without_their_value() {
        let mut request =
            Request::new(ProfileMode::Nsys, ProfileTarget::Program(Default::default()));
        let asked = |request: &Request| has_argument(request, &["--cudabacktrace", "-s"]);
        assert!(!asked(&request));
        for (words, is_there) in [
            (["--cudabacktrace=all:0", "-x"], true),
            (["-s", "none"], true),
            (["--cudabacktraces", "--stats"], false),
        ] {
            request.nsys.nsys_args = Some(words.map(str::to_owned).to_vec());
            assert_eq!(asked(&request), is_there, "{words:?}");
        }
    }
}
