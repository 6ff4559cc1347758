//! A kernel under an ncu that its provider runs itself, elsewhere: the same command as on the host,
//! taken apart into what is ncu's and what is the program's, and told in paths of a folder that
//! travels.

use rgpu_protocol::plan::{Arg, Rung};
use rgpu_protocol::probe::ToolFacts;
use rgpu_protocol::{Diagnosis, HostFacts};

use super::draft::{Draft, PlanError};
use super::ladder::step_of;
use super::message_rows::{MessageRow, RowAction};
use super::request::{JobName, PlanPart, Request, Target, Toolbox};
use super::{RAW, plan};
use crate::kernel::Mode;
use crate::tool::ncu;

/// What such an ncu is asked for, best first, with the rung of a host's own that says how.
pub static PROVIDER_RUNGS: &[(&str, &str, &str)] = &[
    (
        "ncu.service",
        "ncu.asked",
        "the host of the counters: the provider's own ncu read them, on a machine of its choice",
    ),
    (
        "ncu.service_launch",
        "ncu.launch",
        "every hardware counter: the provider's own ncu told the launch alone",
    ),
];

/// A rung for an ncu elsewhere.
#[derive(Clone, Debug, PartialEq)]
pub struct ProviderRung {
    /// The step and the rung as the ladder has them.
    pub step: String,
    /// `ncu.service` …
    pub rung: &'static str,
    /// What travels; its steps are not carried out.
    pub draft: Draft,
    /// Folders that the program writes to.
    pub folders: Vec<String>,
    /// The program and its arguments, from within the folder.
    pub program: Vec<String>,
    /// ncu's own arguments.
    pub arguments: Vec<String>,
    /// What ncu's words mean.
    pub diagnosis: Vec<Diagnosis>,
    /// What is lost on it.
    pub loses: &'static str,
}

/// The rungs that an ncu elsewhere could be asked for; empty where what is profiled cannot travel:
/// a program of the host, a kernel that needs the host's Python, regions that only a first pass
/// knows.
///
/// # Errors
/// As [`plan`].
pub fn served(
    request: &Request,
    facts: &HostFacts,
    toolbox: &Toolbox,
    job: &JobName,
) -> Result<Vec<ProviderRung>, PlanError> {
    let travels = matches!(&request.target, Target::Kernel { spec, .. } if !spec.is_python());
    let simple = request.mode == Mode::Ncu && request.look == 0 && request.part == PlanPart::Whole;
    if !travels || !simple || facts.gpus.is_empty() {
        return Ok(Vec::new());
    }
    // What failed or is missing on the host says nothing of another machine.
    let mut request = request.clone();
    request.failed.clear();
    request.skip.clear();
    request.sudo = false;
    let mut facts = facts.clone();
    facts.tools.retain(|tool| tool.name != "ncu");
    facts.tools.push(ToolFacts { name: "ncu".into(), path: "ncu".into(), ..ToolFacts::default() });
    let draft = plan(&request, &facts, toolbox, job)?;
    let step = step_of(&request);
    let Some(at) = draft.plan.steps.iter().find(|s| s.id == step) else { return Ok(Vec::new()) };
    let rungs = PROVIDER_RUNGS.iter().filter_map(|(id, like, loses)| {
        let rung = at.rungs.iter().find(|rung| rung.id == *like)?;
        let (arguments, program) = apart(rung)?;
        // A program without a slash is looked for on PATH.
        let words = program.iter().enumerate().map(|(at, word)| match (at, word) {
            (0, Arg::InJob { .. }) => format!("./{}", here(word)),
            _ => here(word),
        });
        Some(ProviderRung {
            step: step.clone(),
            rung: id,
            draft: draft.clone(),
            folders: vec![RAW.to_owned()],
            program: words.collect(),
            arguments: arguments.iter().map(here).collect(),
            diagnosis: rung.diagnosis.clone(),
            loses,
        })
    });
    Ok(rungs.collect())
}

/// Whether an ncu that failed with `code` may do better with less to collect.
pub fn asks_for_less(code: &str) -> bool {
    let less = |row: &&MessageRow| {
        row.1 == code
            && matches!(row.2, RowAction::Next | RowAction::FailedNext | RowAction::Counterless)
    };
    ncu::ROWS.iter().find(less).is_some()
        || ["exit", "no_file", "empty_report", "nan_counters"].contains(&code)
}

/// A word as it is from within the job's folder.
fn here(word: &Arg) -> String {
    match word {
        Arg::Text(text) => text.clone(),
        Arg::InJob { prefix, in_job } if in_job.is_empty() => format!("{prefix}."),
        Arg::InJob { prefix, in_job } => format!("{prefix}{in_job}"),
    }
}

/// ncu's own arguments, without where its report goes, and the program with its arguments.
fn apart(rung: &Rung) -> Option<(&[Arg], &[Arg])> {
    let export = rung.argv.iter().position(|word| *word == Arg::from("--export"))?;
    let arguments = rung.argv.get(1..export)?;
    let arguments = match arguments.split_last() {
        Some((last, rest)) if *last == Arg::from("--force-overwrite") => rest,
        _ => arguments,
    };
    Some((arguments, rung.argv.get(export + 2..)?))
}
