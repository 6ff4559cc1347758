//! Fetches counters from the provider's own ncu, where the workspace may not read them itself.
//!
//! It is tried after the host's own ladder. If the provider has no such service or refuses, the
//! profile keeps its results and the ladder says why there are no more. The service's report is
//! imported and judged as any other.

use std::path::Path;
use std::time::{Duration, Instant};

use rgpu_protocol::event::Stream;
use rgpu_protocol::pattern::{Condition, LadderAction, diagnose, strip_ansi};
use rgpu_protocol::{HostFacts, Outcome, RungRecord};

use super::event::RunEvent;
use super::is_below;
use super::job::{self, RunContext, cancelled};
use super::lifecycle::RunSession;
use super::profile::ProfileDriver;
use crate::store::RunFolder;
use rgpu_model::error::{Exit, Failure, Result};
use rgpu_model::profile::Artifact;
use rgpu_model::profile::ArtifactKind;
use rgpu_plan::tool::{self, JobName, ProviderRung};
use rgpu_remote::{HostLink, ProviderJob, ProviderNcu, ProviderResult};

/// Path of the service's report in the run folder.
const REPORT_PATH: &str = "raw/service.ncu-rep";

/// Step name under which the service's log is stored.
const LOG_NAME: &str = "service";

/// Most bytes of output in a rung's record, as in the agent's records.
const MAX_TAIL_BYTES: usize = 3000;

impl ProfileDriver<'_> {
    /// Asks the provider's ncu for rungs above the one that the run reached.
    pub(super) async fn run_provider_ncu(
        &mut self,
        session: &mut RunSession<'_>,
        facts: &HostFacts,
        context: &mut RunContext<'_>,
    ) -> Result<()> {
        if session.link.remote().provider_ncu().is_none()
            || !matches!(self.builder.outcome(), Some(Outcome::Done))
        {
            return Ok(());
        }
        self.run.request.reuse = session.add_built_files(&self.builder.built)?;
        let rungs = self.provider_rungs(session, facts);
        for rung in rungs {
            if !is_below(&self.builder.rung(), &rung.rung) {
                break;
            }
            let job = self.provider_job(session, &rung)?;
            let Some(provider) = session.link.remote().provider_ncu() else { break };
            let text = format!("{} is asked: `{}`", provider.called(), rung.rung);
            context.reporter.report(&RunEvent::Note { text: &text });
            let (record, report) = ask_once(session.link, provider, &rung, job, context).await?;
            let code = record.code.clone();
            let text = match &report {
                Some(artifact) => {
                    let request = &self.run.request;
                    self.builder.add_provider_report(context.folder, record, artifact, request)
                }
                None => {
                    let message = record.message.clone();
                    self.builder.profile.ladder.push(record);
                    Some((code.clone(), message))
                }
            };
            let Some((code, text)) = text else { break };
            context.reporter.report(&RunEvent::Refused {
                rung: &rung.rung,
                code: &code,
                text: &text,
            });
            // Lower rungs can help only if ncu itself failed for such a reason.
            if report.is_none() && !tool::retry_with_less(&code) {
                break;
            }
        }
        Ok(())
    }

    /// Whether the provider's ncu may reach the required rung.
    pub(super) fn provider_may_reach(&self, session: &RunSession<'_>, facts: &HostFacts) -> bool {
        let Some(required) = self.run.required_rung else { return false };
        session.link.remote().provider_ncu().is_some()
            && self
                .provider_rungs(session, facts)
                .iter()
                .any(|rung| !is_below(&rung.rung, required))
    }

    /// The rungs that the provider's ncu could serve. If no plan can be made for another machine,
    /// there are none.
    fn provider_rungs(&self, session: &RunSession<'_>, facts: &HostFacts) -> Vec<ProviderRung> {
        // No job of this name is submitted.
        let job = JobName { run: String::new(), sequence: 1 };
        tool::served(&self.run.request, facts, &session.host_binaries(facts), &job)
            .unwrap_or_default()
    }

    fn provider_job(
        &self,
        session: &mut RunSession<'_>,
        rung: &ProviderRung,
    ) -> Result<ProviderJob> {
        Ok(ProviderJob {
            files: session.pack(&rung.draft)?,
            folders: rung.folders.clone(),
            program: rung.program.clone(),
            arguments: rung.arguments.clone(),
            limit: Duration::from_secs(self.run.request.timeout_s),
            queue: Duration::from_secs(self.run.request.queue_s),
        })
    }
}

/// Tries one rung. Returns its record and, if it succeeded, the report.
async fn ask_once(
    link: &HostLink,
    provider: &dyn ProviderNcu,
    rung: &ProviderRung,
    job: ProviderJob,
    context: &mut RunContext<'_>,
) -> Result<(RungRecord, Option<Artifact>)> {
    let mut argv = vec!["ncu".to_owned()];
    argv.extend(rung.arguments.iter().chain(&rung.program).cloned());
    let mut record = RungRecord {
        step: rung.step.clone(),
        rung: rung.rung.to_string(),
        argv,
        loses: rung.loses.to_owned(),
        ..RungRecord::default()
    };
    let report_path = context.folder.path().join(REPORT_PATH);
    if let Some(parent) = Path::new(REPORT_PATH).parent() {
        context.folder.files().make_folder(parent).map_err(|e| {
            Failure::new(Exit::Disk, "disk", "cannot write the run folder")
                .file(report_path.display())
                .cause(e)
        })?;
    }
    let (started, user_prompt, cancels_before) =
        (Instant::now(), link.user_prompt(), context.cancel.handled_count());
    let ended = tokio::select! {
        ended = provider.profile(&job, &report_path, &*user_prompt) => Some(ended),
        () = context.cancel.wait_for_more_than(cancels_before) => None,
    };
    record.seconds = started.elapsed().as_secs_f64();
    job::take_bills(link, context)?;
    let Some(ended) = ended else {
        return Err(cancelled().hint(format!(
            "{} cannot be told to stop: its current work ends by itself within {} s",
            provider.called(),
            (job.limit + job.queue).as_secs()
        )));
    };
    match ended {
        Err(error) => {
            let failure = error.failure(link.remote().name(), link.remote().transport());
            if failure.exit == Exit::Disk {
                return Err(failure);
            }
            record.code = failure.code.clone();
            record.message = match &failure.cause {
                Some(cause) => format!("{}: {cause}", failure.what),
                None => failure.what,
            };
            Ok((record, None))
        }
        Ok(end) => {
            context
                .folder
                .write(&RunFolder::log_name(LOG_NAME, Stream::Stdout), end.output.as_bytes())?;
            judge(&mut record, rung, &end);
            let artifact = (record.ok && end.report).then(|| artifact(context, &rung.step));
            Ok((record, artifact.transpose()?))
        }
    }
}

/// Completes the rung's record by the agent's checks: messages first, then exit status, and the
/// report must exist.
fn judge(record: &mut RungRecord, rung: &ProviderRung, end: &ProviderResult) {
    let output = strip_ansi(&end.output);
    record.exit = end.exit;
    let mut from = output.len().saturating_sub(MAX_TAIL_BYTES)..output.len();
    let from = from.find(|at| output.is_char_boundary(*at)).unwrap_or(0);
    record.stdout_tail = output[from..].to_owned();
    record.notes.extend(end.notes.iter().map(|note| ("service".to_owned(), note.clone())));
    let failed = end.exit.unwrap_or(0) != 0 || !end.report;
    let rows = rung.diagnosis.iter().filter(|row| failed || row.when == Condition::Always);
    let rows: Vec<_> = rows.filter(|row| row.then != LadderAction::Note).cloned().collect();
    if let Some((row, words)) = diagnose(&rows, &output, "") {
        record.code.clone_from(&row.code);
        record.message = words.to_owned();
    } else if !end.report {
        record.code = "no_file".to_owned();
        record.message = "it ended without a report".to_owned();
    } else if let Some(status) = end.exit.filter(|status| *status != 0) {
        record.code = "exit".to_owned();
        record.message = format!("it ended with status {status}");
    } else {
        record.ok = true;
    }
}

fn artifact(context: &RunContext<'_>, step: &str) -> Result<Artifact> {
    let digest =
        crate::store::digest_file(&context.folder.path().join(REPORT_PATH)).map_err(|e| {
            Failure::new(Exit::Disk, "disk", "cannot read the run folder")
                .file(REPORT_PATH)
                .cause(e)
        })?;
    Ok(Artifact {
        path: REPORT_PATH.to_owned(),
        kind: ArtifactKind::NcuRep,
        step: step.to_owned(),
        size: digest.size,
        sha256: digest.sha256.into(),
    })
}
