//! `rgpu runs … --remote`: handles the jobs stored on a host.
//!
//! All machines of a user share a host's cache. A job is therefore removed only if its run is on
//! this machine and has fetched everything, unless the user removes all.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use rgpu_protocol::message::JobLine;
use rgpu_protocol::plan::Origin;
use schemars::JsonSchema;
use serde::Serialize;

use super::super::support::app::{App, Status};
use super::super::support::cleaned::{CleanResult, require_consent};
use super::super::support::progress::LiveOutput;
use super::super::support::session::{self, OutputOptions};
use super::super::support::started_here;
use super::super::support::terminal::escape_controls;
use super::clean::CleanArgs;
use super::{AttachArgs, outcome_word};
use rgpu_model::error::{Exit, Failure, Result, indent_continuation};
use rgpu_model::number_form::counted;
use rgpu_remote::{HostJobs, HostLink, HostRequest, OnRemote};
use rgpu_report::{TextTable, age, bytes, one_line};
use rgpu_run::store::{JobRecord, RunFolder, RunRecord, RunState, Runs};

/// Limits a run's plans: each may have 1 MiB.
const MAX_PLANS_PER_RUN: usize = 64;

/// Runs `work` over a connection to `remote`.
fn with_link<T>(
    app: &App,
    remote: &str,
    work: impl AsyncFnOnce(&mut HostLink) -> Result<T>,
) -> Result<T> {
    let spec = session::spec(app, Some(remote))?;
    let output_options = OutputOptions {
        live: LiveOutput::Hidden,
        events: None,
        accept_new: false,
        run: "",
        row: None,
        host: HostRequest::existing(),
    };
    app.block_on(async {
        session::open(app, spec, output_options).await?.run_and_close(work).await
    })
}

/// The output of `runs list --remote REMOTE --json` (`rgpu.jobs/1`).
#[derive(Serialize, JsonSchema)]
pub(in crate::cli) struct JobList {
    /// Name and version of this schema: `rgpu.jobs/1`.
    schema: &'static str,
    /// The name of the remote.
    remote: String,
    /// Number of jobs on the remote. The list has the newest, and all that still run.
    total: usize,
    /// The listed jobs, newest first.
    jobs: Vec<JobLine>,
    /// The host's clock, Unix time in milliseconds. The times of the jobs are from this clock.
    now_ms: u64,
    /// Bytes used by jobs and their inputs.
    used_bytes: u64,
    /// Limit of `used_bytes`; 0 if the agent does not report one.
    quota_bytes: u64,
}

/// Lists the newest `count` jobs of a host.
pub(super) fn list(app: &App, runs: &Runs, remote: &str, count: usize) -> Result<Status> {
    let HostJobs { mut jobs, now_ms, used_bytes, quota_bytes } =
        with_link(app, remote, async |link| link.jobs().await.on(link.remote()))?;
    let job_count = jobs.len();
    // Running jobs are always listed.
    let mut shown = 0;
    jobs.retain(|job| {
        shown += 1;
        shown <= count || job.ended.is_none()
    });
    if job_count > jobs.len() {
        app.print_note(&format!(
            "the newest {} of {job_count} jobs; `--count {job_count}` shows all",
            jobs.len()
        ));
    }
    if app.global.json {
        let (schema, remote) = ("rgpu.jobs/1", remote.to_owned());
        let listed =
            JobList { schema, remote, total: job_count, jobs, now_ms, used_bytes, quota_bytes };
        app.print_json(&listed)?;
        return Ok(0);
    }
    let fetched = fetched_jobs(runs)?;
    let mut table = TextTable::new("job | title | state | changed: | results | size:");
    for job in &jobs {
        let since = job.ended_ms.unwrap_or(job.started_ms);
        table.add_row([
            escape_controls(job.job.as_bytes()),
            escape_controls(job.title.as_bytes()),
            state(job),
            // Both times are by the host's clock, which may differ from ours.
            now_ms
                .checked_sub(since)
                .map(|ms| format!("{} ago", age(Duration::from_millis(ms))))
                .unwrap_or_default(),
            if fetched.contains(&job.job) { "fetched" } else { "only there" }.to_owned(),
            bytes(job.bytes as f64),
        ]);
    }
    if jobs.is_empty() {
        app.print_note(&format!("you have no jobs on `{remote}`"));
    }
    app.print(&table.fitted(app.style().width, 0));
    if quota_bytes > 0 && !jobs.is_empty() {
        app.print_note(&format!(
            "jobs and their inputs use {} of {} on `{remote}`; `fetched`: this machine has all \
             results",
            bytes(used_bytes as f64),
            bytes(quota_bytes as f64)
        ));
    }
    Ok(0)
}

fn state(job: &JobLine) -> String {
    match (&job.ended, job.queued) {
        (Some(outcome), _) => outcome_word(outcome).to_owned(),
        (None, Some(place)) => format!("waits for a GPU, position {place} in the queue"),
        (None, None) if job.step.is_empty() => "running".to_owned(),
        (None, None) => format!("at step {}", one_line(&job.step)),
    }
}

/// Jobs whose run is on this machine and has ended, so that everything was fetched. Cancelled runs
/// do not count: `rgpu runs cancel` fetches nothing.
fn fetched_jobs(runs: &Runs) -> Result<BTreeSet<String>> {
    let ended = |record: &RunRecord| matches!(record.state, RunState::Done | RunState::Failed);
    let records = runs.list()?.into_iter().map(|line| line.record).filter(ended);
    let jobs = records.flat_map(|record| record.jobs);
    Ok(jobs.filter(|job| job.outcome.is_some()).map(|job| job.job).collect())
}

/// Removes ended jobs of a host, after the user agreed.
pub(super) fn clean(app: &App, runs: &Runs, remote: &str, args: &CleanArgs) -> Result<Status> {
    let fetched = fetched_jobs(runs)?;
    let is_fetched = |job: &JobLine| fetched.contains(&job.job);
    let (old, left) = with_link(app, remote, async |link| {
        let jobs = link.jobs().await.on(link.remote())?.jobs;
        let ended = jobs.into_iter().filter(|job| job.ended.is_some());
        let (old, left): (Vec<_>, Vec<_>) = ended.partition(|job| args.all || is_fetched(job));
        if args.yes {
            remove_jobs(link, &old).await?;
        }
        Ok((old, left))
    })?;
    let total: u64 = old.iter().map(|job| job.bytes).sum();
    let amount = format!("{}, {}", counted(old.len(), "job", "jobs"), bytes(total as f64));
    if !args.yes && !args.dry_run && !old.is_empty() {
        let only_there = old.iter().filter(|job| !is_fetched(job)).count();
        let lost = match only_there {
            0 => String::new(),
            count => format!(" (the results of {count} were not fetched here)"),
        };
        let amount = format!("{amount}, on `{remote}`{lost}");
        require_consent(app, args.yes, &amount, &format!("Remove {amount}?"))?;
        // The user may take long to answer, and a link costs its host.
        with_link(app, remote, async |link| remove_jobs(link, &old).await)?;
    }
    if app.global.json {
        let gone = old.into_iter().map(|job| (job.job, job.bytes)).collect();
        app.print_json(&CleanResult::new(args.dry_run, gone, left.len()))?;
        return Ok(0);
    }
    let verb = if args.dry_run { "would remove" } else { "removed" };
    for job in old.iter().filter(|_| args.dry_run) {
        let name = one_line(&job.job);
        app.print(&format!("{verb} {name}  {}\n", bytes(job.bytes as f64)));
    }
    app.print_note(&format!("{verb} {amount}"));
    if !left.is_empty() {
        app.print_note(&format!(
            "{} ended, but their results were not fetched here; `--all` removes them too",
            left.len()
        ));
    }
    Ok(0)
}

/// Removes jobs from a host. Another machine may have removed one first.
async fn remove_jobs(link: &mut HostLink, jobs: &[JobLine]) -> Result<()> {
    for job in jobs {
        match link.remove_job(&job.job).await {
            Err(error) if error.no_such_job().is_some() => {}
            answer => answer.on(link.remote())?,
        }
    }
    Ok(())
}

/// Stops a job of a host. If its run is on this machine, stops that run, so that its record is
/// updated.
pub(super) fn cancel(app: &App, runs: &Runs, remote: &str, job: &str) -> Result<Status> {
    let job = job_name(job, remote)?;
    if let Some(folder) = local_run(runs, job)? {
        return super::cancel(app, &folder);
    }
    let begun = Instant::now();
    let (stopped, jobs_after) = with_link(app, remote, async |link| {
        let stopped = super::stop_job(link, job).await?;
        Ok((stopped, link.jobs().await.on(link.remote())?))
    })?;
    if stopped.is_missing {
        return Err(no_such_job(remote, job));
    }
    let text = stopped.outcome.as_ref().map_or("ended", outcome_word);
    app.print_note(&format!(
        "`{job}` is stopped on `{remote}`: {text} ({:.1} s)",
        begun.elapsed().as_secs_f64()
    ));
    if stopped.has_pulled_files {
        app.print_note(&format!(
            "`rgpu runs attach --remote {remote} {job}` fetches the files for `--pull`"
        ));
    }
    if app.global.json {
        let HostJobs { mut jobs, now_ms, used_bytes, quota_bytes } = jobs_after;
        jobs.retain(|line| line.job == job);
        let (schema, remote, total) = ("rgpu.jobs/1", remote.to_owned(), jobs.len());
        app.print_json(&JobList { schema, remote, total, jobs, now_ms, used_bytes, quota_bytes })?;
    }
    Ok(0)
}

fn no_such_job(remote: &str, job: &str) -> Failure {
    let message = format!("there is no job `{job}` on `{remote}`");
    Failure::new(Exit::Usage, "no_such_job", message)
        .hint(format!("`rgpu runs list --remote {remote}` shows the jobs there"))
}

/// The named job. `latest` is refused.
fn job_name<'a>(job: &'a str, remote: &str) -> Result<&'a str> {
    if job != "latest" {
        return Ok(job);
    }
    Err(Failure::new(Exit::Usage, "usage", "`--remote` needs the name of a job")
        .hint(format!("`rgpu runs list --remote {remote}` shows the jobs there")))
}

/// The local run folder of a job, if there is one.
fn local_run(runs: &Runs, job: &str) -> Result<Option<RunFolder>> {
    let known = runs.list()?.into_iter().find(|line| line.record.jobs.iter().any(|j| j.job == job));
    Ok(known.map(|line| RunFolder::open(&line.folder)).transpose()?)
}

/// The run folder of a job on a host: the local one, or a new one made from the origin that the
/// host keeps.
pub(super) fn folder_of(
    app: &App,
    runs: &Runs,
    remote: &str,
    args: &AttachArgs,
) -> Result<RunFolder> {
    let job = job_name(&args.run, remote)?;
    if let Some(folder) = local_run(runs, job)? {
        return Ok(folder);
    }
    let spec = session::spec(app, Some(remote))?;
    let (plans, jobs) = with_link(app, remote, async |link| {
        let plan = link.plan(job).await.on(link.remote())?;
        let mut plans = Vec::new();
        let mut jobs = vec![job.to_owned()];
        // A run may have sent several plans; resume all of its jobs.
        if let Some(origin) = &plan.origin {
            let listed = link.jobs().await.on(link.remote())?.jobs;
            jobs = listed
                .into_iter()
                .map(|line| line.job)
                .filter(|name| belongs_to(name, origin))
                .collect();
            jobs.sort_by_key(|name| sequence(name));
            jobs.dedup();
            if jobs.len() > MAX_PLANS_PER_RUN {
                let what = format!("the host names {} jobs of one run", jobs.len());
                return Err(Failure::new(Exit::Host, "too_many_jobs", what)
                    .hint(format!("a run has at most {MAX_PLANS_PER_RUN}: is this host yours?")));
            }
        }
        for name in &jobs {
            plans.push(link.plan(name).await.on(link.remote())?);
        }
        Ok((plans, jobs))
    })?;
    let origin = plans.first().and_then(|plan| plan.origin.clone()).ok_or_else(|| {
        Failure::new(
            Exit::Usage,
            "no_origin",
            format!("`{job}` does not name its command: an older rgpu made it"),
        )
        .hint("attach on the machine that has its run folder")
    })?;
    if !args.yes && !agreed(app, job, &origin) {
        return Err(Failure::new(
            Exit::Usage,
            "not_agreed",
            format!("the host says that `{job}` came from this command: {}", command(&origin)),
        )
        .hint("it would be finished as that command, with its flags and this folder's files")
        .hint(format!(
            "if that is your command: `rgpu runs attach --remote {remote} {job} --yes`"
        )));
    }
    // Use the run's own name: its jobs are named after it.
    let now = jiff::Timestamp::now();
    let (_, folder) = runs.create(Some(&origin.run), "", now, None)?;
    let record = RunRecord {
        started: origin.started,
        title: origin.title,
        argv: origin.argv,
        mode: origin.mode,
        kernel: origin.kernel,
        labels: origin.labels,
        note: origin.note,
        jobs: jobs
            .into_iter()
            .map(|job| JobRecord {
                job,
                remote: spec.name.clone(),
                last_seq: 0,
                outcome: None,
                unsynced: Vec::new(),
            })
            .collect(),
        state: RunState::Detached,
        ..session::record(app, &spec, origin.run, &origin.command, now)
    };
    folder.save(&record)?;
    started_here::remember(app, &record);
    for (at, plan) in plans.iter().enumerate() {
        folder.write_json(&format!("plan-{}.json", at + 1), plan)?;
    }
    Ok(folder)
}

/// The command that the host claims, escaped. It is untrusted: its flags say where files go.
fn command(origin: &Origin) -> String {
    let words = origin.argv.iter().skip(1).map(String::as_str);
    let words = shlex::try_join(words).unwrap_or_default();
    escape_controls(format!("rgpu {words}").as_bytes())
}

fn agreed(app: &App, job: &str, origin: &Origin) -> bool {
    app.agrees(&format!(
        "the host says that `{}` came from\n  {}\nFinish it here as that command?",
        one_line(job),
        indent_continuation(&command(origin), 4)
    ))
}

/// Whether a job's name is `<run>.<sequence>` of this run.
fn belongs_to(job: &str, origin: &Origin) -> bool {
    job.strip_prefix(origin.run.as_str()).is_some_and(|rest| {
        rest.strip_prefix('.')
            .is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
    })
}

fn sequence(job: &str) -> u32 {
    job.rsplit('.').next().and_then(|n| n.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_of_a_run_are_told_from_those_of_runs_with_a_longer_name() {
        let origin = Origin { run: "a.b".into(), ..Origin::default() };
        assert!(belongs_to("a.b.12", &origin));
        for other in ["a.b", "a.b.", "a.bc.1", "a.b.1.1", "a.b.x"] {
            assert!(!belongs_to(other, &origin), "{other}");
        }
        assert_eq!(sequence("a.b.12"), 12);
    }
}
