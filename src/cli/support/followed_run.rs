//! The common part of all commands that send work to a host, from `rgpu profile` to `rgpu doctor`:
//! create or resume the run, connect, do the command's work, and record the end in the run's
//! folder.

use std::path::Path;
use std::time::Instant;

use super::app::{App, Status};
use super::session::{self, OutputOptions, RemoteSession};
use rgpu_model::error::{ErrorDocument, Exit, Failure, Result};
use rgpu_remote::{HostRequest, RemoteSpec};
use rgpu_run::run::{NEVER_SUBMITTED, Reporter, RunContext, RunEvent, RunSession, RunStart, close};
use rgpu_run::store::{InputsRecord, RunFolder, RunRecord, RunState, Runs};

/// A run whose jobs this command waits for: its folder and its record.
pub(in crate::cli) struct FollowedRun {
    pub(in crate::cli) folder: RunFolder,
    pub(in crate::cli) record: RunRecord,
    pub(in crate::cli) start: RunStart,
}

/// Options of a new run.
pub(in crate::cli) struct NewRun<'a> {
    pub(in crate::cli) command: &'a str,
    /// Part of the id, unless the user chose one.
    pub(in crate::cli) name: &'a str,
    /// The id that the user chose.
    pub(in crate::cli) run_id: Option<&'a str>,
    /// The run's folder, if the user named one.
    pub(in crate::cli) out: Option<&'a Path>,
    pub(in crate::cli) detach: bool,
}

impl FollowedRun {
    /// Creates a run's folder with everything that is known before anything is sent. `describe`
    /// adds the command's own fields to the record.
    pub(in crate::cli) fn begin(
        app: &App,
        spec: &RemoteSpec,
        new: &NewRun<'_>,
        inputs: &InputsRecord,
        describe: impl FnOnce(RunRecord) -> RunRecord,
    ) -> Result<Self> {
        let now = jiff::Timestamp::now();
        let runs = app.runs();
        let (id, folder) = runs.create(new.run_id, new.name, now, new.out)?;
        let record = describe(session::record(app, spec, id, new.command, now));
        folder.save(&record)?;
        folder.write_json("inputs.json", inputs)?;
        folder.write("config.toml", app.config.record(spec).as_bytes())?;
        let start = if new.detach { RunStart::Detached } else { RunStart::New };
        Ok(Self { folder, record, start })
    }

    /// Continues a run whose rgpu process has ended.
    pub(in crate::cli) fn resume(folder: RunFolder, record: RunRecord) -> Self {
        Self { folder, record, start: RunStart::Resumed }
    }

    /// Runs `work` as a run in a temporary folder, which is deleted at the end. Only the result of
    /// `work` remains.
    pub(in crate::cli) fn run_in_scratch_folder<T>(
        app: &App,
        spec: &RemoteSpec,
        command: &str,
        title: String,
        accept_new: bool,
        work: impl AsyncFnOnce(&mut RunSession<'_>, &mut RunContext<'_>) -> Result<T>,
    ) -> Result<T> {
        let now = jiff::Timestamp::now();
        let id = Runs::fresh_id(command, now);
        let prefix = format!("rgpu-{command}-");
        let scratch = tempfile::Builder::new().prefix(&prefix).tempdir().map_err(|e| {
            Failure::new(Exit::Disk, "disk", "a temporary folder cannot be made").cause(e)
        })?;
        let folder = RunFolder::create(scratch.path(), &id, Some(&scratch.path().join("run")))?;
        let record = RunRecord { title, ..session::record(app, spec, id, command, now) };
        let output_options = OutputOptions::with_progress_bar(app, None, accept_new);
        let status =
            |answer: &Result<T>| answer.as_ref().err().map_or(0, |failure| failure.exit as u8);
        Self { folder, record, start: RunStart::New }.connect_and_run(
            app,
            spec,
            output_options,
            status,
            work,
        )
    }

    /// Connects, runs `work` and closes the connection. `status` gives the exit status for the
    /// final event. Adds the time to the record.
    pub(in crate::cli) fn connect_and_run<T>(
        &mut self,
        app: &App,
        spec: &RemoteSpec,
        output_options: OutputOptions<'_>,
        status: impl FnOnce(&Result<T>) -> Status,
        work: impl AsyncFnOnce(&mut RunSession<'_>, &mut RunContext<'_>) -> Result<T>,
    ) -> Result<T> {
        let started_at = Instant::now();
        let id = self.record.id.clone();
        let host = match self.start {
            RunStart::New | RunStart::Detached => output_options.host,
            RunStart::Resumed => HostRequest::existing(),
        };
        let output_options = OutputOptions { run: &id, host, ..output_options };
        let outcome = app.block_on(async {
            let session = session::open(app, spec.clone(), output_options).await?;
            let work = async |session: &mut RemoteSession, run: &mut Self| {
                let (mut run_session, mut context) = run.session_and_context(app, session);
                work(&mut run_session, &mut context).await
            };
            self.run_connected(session, status, work).await
        });
        self.add_duration(started_at);
        outcome
    }

    /// Runs `work` over an open connection, reports the exit status and closes the connection.
    pub(in crate::cli) async fn run_connected<T>(
        &mut self,
        mut session: RemoteSession,
        status: impl FnOnce(&Result<T>) -> Status,
        work: impl AsyncFnOnce(&mut RemoteSession, &mut Self) -> Result<T>,
    ) -> Result<T> {
        let outcome = work(&mut session, self).await;
        let outcome = outcome.map_err(|failure| naming_run(failure, &self.record.id));
        session.reporter.report(&RunEvent::Finished { exit: status(&outcome) });
        close(session.link, &mut self.record, &mut session.cancel).await;
        outcome
    }

    /// The run's session over this connection, and the context of its jobs.
    pub(in crate::cli) fn session_and_context<'a>(
        &'a mut self,
        app: &App,
        session: &'a mut RemoteSession,
    ) -> (RunSession<'a>, RunContext<'a>) {
        let cache = session::facts_cache(app, &session.spec);
        let run_session =
            RunSession::new(&mut session.link, &session.spec, cache, &session.programs, self.start);
        let context = RunContext {
            folder: &self.folder,
            record: &mut self.record,
            reporter: &mut session.reporter,
            cancel: session.cancel.clone(),
            input: None,
        };
        (run_session, context)
    }

    /// Adds the time since `started_at` to the run's duration.
    pub(in crate::cli) fn add_duration(&mut self, started_at: Instant) {
        self.record.add_duration(started_at.elapsed().as_secs_f64());
        self.record.raise_duration_to(self.folder.job_time());
    }

    /// Records how the run ended.
    pub(in crate::cli) fn record_end(
        &mut self,
        failure: Option<&Failure>,
        status: Status,
    ) -> Result<()> {
        let has_open_job = self.record.jobs.iter().any(|job| job.outcome.is_none());
        self.record.state = match failure {
            None => RunState::Done,
            Some(f) if f.exit == Exit::Cancelled && f.code == NEVER_SUBMITTED => {
                RunState::NeverSubmitted
            }
            // The link was lost or the user stopped waiting: the job may continue and can be
            // resumed.
            Some(f) if matches!(f.exit, Exit::Cancelled | Exit::Host) && has_open_job => {
                RunState::Running
            }
            Some(f) if f.exit == Exit::Cancelled => RunState::Cancelled,
            Some(_) => RunState::Failed,
        };
        self.record.exit = Some(status);
        let document = failure.map(|failure| ErrorDocument::new(failure.clone(), status));
        Ok(self.folder.end(&self.record, document.as_ref())?)
    }

    /// Records that the job continues on the host.
    pub(in crate::cli) fn record_detached(&mut self) -> Result<()> {
        self.record.state = RunState::Detached;
        Ok(self.folder.save(&self.record)?)
    }

    /// Prints that the job continues on the host, and how to attach.
    pub(in crate::cli) fn show_detached(&self, app: &App) -> Result<Status> {
        let id = &self.record.id;
        app.print_note(&format!(
            "`{id}` continues on the host; `rgpu runs attach {id}` fetches the results"
        ));
        if app.global.json {
            app.print_json(&self.record)?;
        }
        Ok(0)
    }
}

/// The failure with the run's id where a hint has the latest run: another may be newer.
fn naming_run(mut failure: Failure, id: &str) -> Failure {
    for hint in &mut failure.hints {
        *hint = hint.replace("rgpu runs attach latest", &format!("rgpu runs attach {id}"));
    }
    failure
}
