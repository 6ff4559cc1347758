//! Rungs for an ncu that the provider runs on a machine of its own. They have the same command as
//! on the host, split into ncu's arguments and the program's, with paths in a folder that is sent
//! along.

use rgpu_protocol::plan::{Arg, Rung};
use rgpu_protocol::probe::ToolFacts;
use rgpu_protocol::{DiagnosisRule, HostFacts};

use super::draft::{Draft, PlanError};
use super::ladder::step_of;
use super::message_rows::{MessageRow, RowAction};
use super::request::{HostBinaries, JobName, PlanPart, ProfileTarget, Request};
use super::rungs::{RUNGS, RungCommand};
use super::{RAW, plan};
use crate::kernel::ProfileMode;
use crate::tool::ncu;
use rgpu_model::RungId;

/// A rung that a provider's ncu runs.
#[derive(Clone, Debug, PartialEq)]
pub struct ProviderRung {
    /// Id of the step in the ladder.
    pub step: String,
    /// Id of the rung: `ncu.service` …
    pub rung: RungId,
    /// The files to send; its steps are not run.
    pub draft: Draft,
    /// Folders that the program writes to.
    pub folders: Vec<String>,
    /// The program and its arguments, with paths relative to the folder.
    pub program: Vec<String>,
    /// The arguments for ncu.
    pub arguments: Vec<String>,
    /// Meanings of ncu's messages.
    pub diagnosis: Vec<DiagnosisRule>,
    /// Data that this rung does not provide.
    pub loses: &'static str,
}

/// The rungs that a provider's ncu can run. Empty if the target cannot be sent: a program on the
/// host, a Python kernel, which needs the host's Python, or regions from a first pass.
pub fn served(
    request: &Request,
    facts: &HostFacts,
    binaries: &HostBinaries,
    job: &JobName,
) -> Result<Vec<ProviderRung>, PlanError> {
    let travels =
        matches!(&request.target, ProfileTarget::Kernel { spec, .. } if !spec.is_python());
    let simple =
        request.mode == ProfileMode::Ncu && request.pass == 0 && request.part == PlanPart::Whole;
    if !travels || !simple || facts.gpus.is_empty() {
        return Ok(Vec::new());
    }
    // Failures and missing tools on the host do not matter on another machine.
    let mut request = request.clone();
    request.failed.clear();
    request.skip.clear();
    request.ncu.sudo = false;
    let mut facts = facts.clone();
    facts.tools.retain(|tool| tool.name != "ncu");
    facts.tools.push(ToolFacts { name: "ncu".into(), path: "ncu".into(), ..ToolFacts::default() });
    let draft = plan(&request, &facts, binaries, job)?;
    let step = step_of(&request);
    let Some(profile_step) = draft.plan.steps.iter().find(|s| s.id == step) else {
        return Ok(Vec::new());
    };
    let rungs = RUNGS.iter().filter_map(|info| {
        let RungCommand::Provider(host_rung) = &info.command else { return None };
        let rung = profile_step.rungs.iter().find(|rung| rung.id == *host_rung)?;
        let (arguments, program) = split_command(rung)?;
        // A program name without a slash would be searched on PATH.
        let words = program.iter().enumerate().map(|(at, word)| match (at, word) {
            (0, Arg::InJob { .. }) => format!("./{}", path_in_job(word)),
            _ => path_in_job(word),
        });
        Some(ProviderRung {
            step: step.clone(),
            rung: info.id.clone(),
            draft: draft.clone(),
            folders: vec![RAW.to_owned()],
            program: words.collect(),
            arguments: arguments.iter().map(path_in_job).collect(),
            diagnosis: rung.diagnosis.clone(),
            loses: info.loses,
        })
    });
    Ok(rungs.collect())
}

/// Whether an ncu that failed with `code` may succeed if it collects less.
pub fn retry_with_less(code: &str) -> bool {
    let collects_less = |row: &&MessageRow| {
        row.1 == code
            && matches!(row.2, RowAction::Next | RowAction::FailedNext | RowAction::ToCounterless)
    };
    ncu::MESSAGE_ROWS.iter().find(collects_less).is_some()
        || ["exit", "no_file", "empty_report", "nan_counters"].contains(&code)
}

/// An argument with paths relative to the job's folder.
fn path_in_job(word: &Arg) -> String {
    match word {
        Arg::Text(text) => text.clone(),
        Arg::InJob { prefix, in_job } if in_job.is_empty() => format!("{prefix}."),
        Arg::InJob { prefix, in_job } => format!("{prefix}{in_job}"),
    }
}

/// ncu's own arguments without the report's path, and the program with its arguments.
fn split_command(rung: &Rung) -> Option<(&[Arg], &[Arg])> {
    let export = rung.argv.iter().position(|word| *word == Arg::from("--export"))?;
    let arguments = rung.argv.get(1..export)?;
    let arguments = match arguments.split_last() {
        Some((last, rest)) if *last == Arg::from("--force-overwrite") => rest,
        _ => arguments,
    };
    Some((arguments, rung.argv.get(export + 2..)?))
}
