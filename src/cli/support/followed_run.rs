//! A run from its folder to its recorded end, the same for profile, exec, build and compare, and for
//! `runs attach` of each: create or take up, connect, do the work, record how it ended.

use std::path::Path;
use std::time::Instant;

use super::app::{App, Status};
use super::session::{self, OpenRemote, OutputOptions};
use crate::error::{ErrorDocument, Exit, Failure, Result};
use crate::remote::RemoteSpec;
use crate::run::{Reporter, RunContext, RunEvent, RunHost, RunStart, close};
use crate::store::{InputsRecord, RunFolder, RunRecord, RunState, Runs};

/// A run that this command follows.
pub(in crate::cli) struct FollowedRun {
    pub(in crate::cli) folder: RunFolder,
    pub(in crate::cli) record: RunRecord,
    pub(in crate::cli) start: RunStart,
}

/// The names of a new run.
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
    /// Creates a run's folder with everything that is known before anything is sent. `describe` adds
    /// the command's own fields to the record.
    pub(in crate::cli) fn begin(
        app: &App,
        spec: &RemoteSpec,
        new: &NewRun<'_>,
        inputs: &InputsRecord,
        describe: impl FnOnce(RunRecord) -> RunRecord,
    ) -> Result<Self> {
        let now = jiff::Timestamp::now();
        let runs = Runs::new(&app.config.runs_dir.value);
        let (id, folder) = runs.create(new.run_id, new.name, now, new.out)?;
        let record = describe(session::record(app, spec, id, new.command, now));
        folder.save(&record)?;
        folder.write_json("inputs.json", inputs)?;
        folder.write("config.toml", app.config.record(spec).as_bytes())?;
        let start = if new.detach { RunStart::Detached } else { RunStart::New };
        Ok(Self { folder, record, start })
    }

    /// Takes up a run whose command has gone.
    pub(in crate::cli) fn resume(folder: RunFolder, record: RunRecord) -> Self {
        Self { folder, record, start: RunStart::Resumed }
    }

    /// Connects to the remote, does `work` there and closes the connection. `status` is the exit
    /// status that events report. Adds the time to the record.
    pub(in crate::cli) fn carry_out<T>(
        &mut self,
        app: &App,
        spec: &RemoteSpec,
        output_options: OutputOptions<'_>,
        status: impl FnOnce(&Result<T>) -> Status,
        work: impl AsyncFnOnce(&mut RunHost<'_>, &mut RunContext<'_>) -> Result<T>,
    ) -> Result<T> {
        let started_at = Instant::now();
        let id = self.record.id.clone();
        let output_options = OutputOptions { run: &id, ..output_options };
        let outcome = app.block_on(async {
            let open = session::open(app, spec.clone(), output_options).await?;
            let work = async |open: &mut OpenRemote, run: &mut Self| {
                let (mut host, mut context) = run.on(app, open);
                work(&mut host, &mut context).await
            };
            self.follow(open, status, work).await
        });
        self.lasted(started_at);
        outcome
    }

    /// Does `work` over an open connection, reports the exit status and closes the connection.
    pub(in crate::cli) async fn follow<T>(
        &mut self,
        mut open: OpenRemote,
        status: impl FnOnce(&Result<T>) -> Status,
        work: impl AsyncFnOnce(&mut OpenRemote, &mut Self) -> Result<T>,
    ) -> Result<T> {
        let outcome = work(&mut open, self).await;
        open.reporter.report(&RunEvent::Finished { exit: status(&outcome) });
        close(open.link, &mut self.record).await;
        outcome
    }

    /// The run's host over this connection, and the context of its jobs.
    pub(in crate::cli) fn on<'a>(
        &'a mut self,
        app: &App,
        open: &'a mut OpenRemote,
    ) -> (RunHost<'a>, RunContext<'a>) {
        let cache = session::facts_cache(app, &open.spec);
        let host = RunHost::new(&mut open.link, &open.spec, cache, &open.programs, self.start);
        let context = RunContext {
            folder: &self.folder,
            record: &mut self.record,
            reporter: &mut open.reporter,
            cancel: open.cancel.clone(),
            input: None,
        };
        (host, context)
    }

    /// Adds the time since `started_at` to the run's duration.
    pub(in crate::cli) fn lasted(&mut self, started_at: Instant) {
        self.record.lasted(started_at.elapsed().as_secs_f64());
        self.record.at_least(self.folder.job_time());
    }

    /// Records how the run ended.
    pub(in crate::cli) fn end(&mut self, failure: Option<&Failure>, status: Status) -> Result<()> {
        let has_open_job = self.record.jobs.iter().any(|job| job.outcome.is_none());
        self.record.state = match failure {
            None => RunState::Done,
            // The link was lost or the user stopped waiting: the job may go on and can be resumed.
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

    /// Records that the run's job goes on by itself.
    pub(in crate::cli) fn detach(&mut self) -> Result<()> {
        self.record.state = RunState::Detached;
        Ok(self.folder.save(&self.record)?)
    }

    /// Says that the run's job goes on by itself.
    pub(in crate::cli) fn show_detached(&self, app: &App) -> Result<Status> {
        let id = &self.record.id;
        app.say(&format!(
            "`{id}` continues on the host; `rgpu runs attach {id}` fetches the results"
        ));
        if app.global.json {
            app.print_json(&self.record)?;
        }
        Ok(0)
    }
}
