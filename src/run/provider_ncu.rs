//! Counters from the provider's own ncu, where the workspace may not read them itself.
//!
//! The host's own ladder has been walked down before, so nothing is lost where the provider has no
//! such thing or will not: the profile keeps what it has, and its ladder says why not more. What
//! comes back is a report like any other, and is judged like any other.

use std::time::{Duration, Instant};

use rgpu_protocol::event::Stream;
use rgpu_protocol::pattern::{Condition, LadderAction, diagnose, strip_ansi};
use rgpu_protocol::{HostFacts, Outcome, RungRecord};

use super::assemble::ProfileBuilder;
use super::bundle_reader::submission;
use super::event::RunEvent;
use super::is_below;
use super::job::{self, RunContext, cancelled};
use super::profile::ProfileRun;
use crate::error::{Exit, Failure, Result};
use crate::model::profile::Artifact;
use crate::remote::{HostLink, ProviderJob, ProviderNcu, ProviderResult};
use crate::store::RunFolder;
use crate::tool::{self, JobName, ProviderRung};

/// Where its report lies in the run folder.
const REPORT: &str = "raw/service.ncu-rep";

/// What its log is called after.
const LOG: &str = "service";

/// The same limit as of the agent's records, in bytes.
const TAIL: usize = 3000;

impl ProfileRun<'_> {
    /// Asks the provider's own ncu for what this run did not get on its host.
    ///
    /// # Errors
    /// Our own disk, or the user stopped waiting.
    pub(super) async fn ask_provider(
        &mut self,
        link: &HostLink,
        facts: &HostFacts,
        context: &mut RunContext<'_>,
        builder: &mut ProfileBuilder,
        seq: u32,
    ) -> Result<()> {
        let Some(provider) = link.remote().served_ncu() else { return Ok(()) };
        if !matches!(builder.outcome(), Some(Outcome::Done)) {
            return Ok(());
        }
        self.reuse_built(builder)?;
        let job = JobName { run: context.record.id.clone(), sequence: seq + 1 };
        // A plan that cannot be made for another machine is no failure of this run.
        let served =
            tool::served(&self.request, facts, &self.programs.toolbox(&facts.agent.arch), &job)
                .unwrap_or_default();
        for rung in served {
            if !is_below(builder.rung(), rung.rung) {
                break;
            }
            let text = format!("{} is asked: `{}`", provider.called(), rung.rung);
            context.reporter.say(&RunEvent::Note { text: &text });
            let (record, report) = self.ask_once(link, provider, &rung, context).await?;
            let code = record.code.clone();
            let text = match &report {
                Some(artifact) => {
                    builder.take_served(context.folder, record, artifact, &self.request)
                }
                None => {
                    let words = record.words.clone();
                    builder.profile.ladder.push(record);
                    Some((code.clone(), words))
                }
            };
            let Some((code, text)) = text else { break };
            context.reporter.say(&RunEvent::Refused { rung: rung.rung, code: &code, text: &text });
            // Only what ncu itself could not do is worth asking for less.
            if report.is_none() && !tool::asks_for_less(&code) {
                break;
            }
        }
        Ok(())
    }

    /// Whether the provider's own ncu may reach the rung that is asked for at least.
    pub(super) fn provider_may_reach(&self, link: &HostLink, facts: &HostFacts) -> bool {
        let Some(least) = self.at_least else { return false };
        let job = JobName { run: String::new(), sequence: 1 };
        link.remote().served_ncu().is_some()
            && tool::served(&self.request, facts, &self.programs.toolbox(&facts.agent.arch), &job)
                .is_ok_and(|rungs| rungs.iter().any(|rung| !is_below(rung.rung, least)))
    }

    /// One try.
    async fn ask_once(
        &mut self,
        link: &HostLink,
        provider: &dyn ProviderNcu,
        rung: &ProviderRung,
        context: &mut RunContext<'_>,
    ) -> Result<(RungRecord, Option<Artifact>)> {
        let mut argv = vec!["ncu".to_owned()];
        argv.extend(rung.arguments.iter().chain(&rung.program).cloned());
        let mut record = RungRecord {
            step: rung.step.clone(),
            rung: rung.rung.to_owned(),
            argv,
            loses: rung.loses.to_owned(),
            ..RungRecord::default()
        };
        let bundle = self.packer.pack(rung.draft.clone())?;
        let mut blobs = bundle.blobs;
        blobs.extend(self.built.clone());
        let job = ProviderJob {
            files: submission(bundle.plan, blobs),
            folders: rung.folders.clone(),
            program: rung.program.clone(),
            arguments: rung.arguments.clone(),
            limit: Duration::from_secs(self.request.timeout_s),
            queue: Duration::from_secs(self.request.queue_s),
        };
        let place = context.folder.path().join(REPORT);
        if let Some(parent) = place.parent() {
            std::fs::create_dir_all(parent).map_err(|e| {
                Failure::new(Exit::Disk, "disk", "cannot write the run folder")
                    .file(parent.display())
                    .cause(e)
            })?;
        }
        let (begun, talk, heard) = (Instant::now(), link.talk(), context.cancel.heard());
        let ended = tokio::select! {
            ended = provider.profile(&job, &place, &*talk) => Some(ended),
            () = context.cancel.beyond(heard) => None,
        };
        record.seconds = begun.elapsed().as_secs_f64();
        job::take_bills(link, context)?;
        let Some(ended) = ended else {
            return Err(cancelled().hint(format!(
                "{} cannot be told to stop: what it began ends by itself within {} s",
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
                record.words = match &failure.cause {
                    Some(cause) => format!("{}: {cause}", failure.what),
                    None => failure.what,
                };
                Ok((record, None))
            }
            Ok(end) => {
                context
                    .folder
                    .write(&RunFolder::log_name(LOG, Stream::Stdout), end.output.as_bytes())?;
                judge(&mut record, rung, &end);
                let artifact = (record.ok && end.report).then(|| artifact(context, &rung.step));
                Ok((record, artifact.transpose()?))
            }
        }
    }
}

/// Takes what came back into the rung's record, by the same signs as the agent: its words before
/// its status, and a report that is there.
fn judge(record: &mut RungRecord, rung: &ProviderRung, end: &ProviderResult) {
    let output = strip_ansi(&end.output);
    record.exit = end.exit;
    let mut from = output.len().saturating_sub(TAIL)..output.len();
    let from = from.find(|at| output.is_char_boundary(*at)).unwrap_or(0);
    record.stdout_tail = output[from..].to_owned();
    record.notes.extend(end.notes.iter().map(|note| ("service".to_owned(), note.clone())));
    let failed = end.exit.unwrap_or(0) != 0 || !end.report;
    let rows = rung.diagnosis.iter().filter(|row| failed || row.when == Condition::Always);
    let rows: Vec<_> = rows.filter(|row| row.then != LadderAction::Note).cloned().collect();
    if let Some((row, words)) = diagnose(&rows, &output, "") {
        record.code.clone_from(&row.code);
        record.words = words.to_owned();
    } else if !end.report {
        record.code = "no_file".to_owned();
        record.words = "it ended, and gave no report".to_owned();
    } else if let Some(status) = end.exit.filter(|status| *status != 0) {
        record.code = "exit".to_owned();
        record.words = format!("it ended with status {status}");
    } else {
        record.ok = true;
    }
}

fn artifact(context: &RunContext<'_>, step: &str) -> Result<Artifact> {
    let digest =
        super::provenance::digest_file(&context.folder.path().join(REPORT)).map_err(|e| {
            Failure::new(Exit::Disk, "disk", "cannot read the run folder").file(REPORT).cause(e)
        })?;
    Ok(Artifact {
        path: REPORT.to_owned(),
        kind: "ncu_rep".to_owned(),
        step: step.to_owned(),
        size: digest.size,
        sha256: digest.sha256.into(),
    })
}
