//! Runs the cases of a suite: those of one connection one after the other, several connections side
//! by side. Each remote has one connection; with `--parallel` it has more, each to a host of its
//! own or, where the remote is one machine, for another of its GPUs.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rgpu_protocol::GpuChoice;

use super::case_runner::{Builds, CaseRunner, open_run};
use super::run::has_many_hosts;
use crate::cli::support::app::App;
use crate::cli::support::profile_args::ProfileArgs;
use crate::cli::support::profile_request::gpu_choice;
use crate::cli::support::progress::{LiveOutput, ProgressRow};
use crate::cli::support::session::{self, OutputOptions, RemoteSession};
use rgpu_model::error::{Exit, Failure, Result};
use rgpu_model::suite::{RowState, SuiteOptions, SuiteRow};
use rgpu_remote::{HostRequest, JOB_EXISTS, RemoteSpec};
use rgpu_report::{Style, duration, suite::speedup_text};
use rgpu_run::run::{Reporter, RunEvent};
use rgpu_run::store::{RunFolder, RunLine};
use rgpu_work::suite::{RunIndex, RunningSuite, SuiteCase};

/// Times to open a connection again after it failed.
const MAX_RECONNECTS: u32 = 1;

/// The maximum number of earlier suites of the same id that left a job of a case on its host.
const MAX_TAKEN_NAMES: u32 = 50;

/// A suite that this command works on.
pub(super) struct SuiteWork<'a> {
    pub(super) app: &'a App,
    /// The folder of the suite's run.
    pub(super) folder: RunFolder,
    /// The cases by the number of their row, with their remotes.
    pub(super) cases: BTreeMap<usize, (SuiteCase, RemoteSpec)>,
    pub(super) suite: Mutex<RunningSuite>,
    pub(super) index: Mutex<Option<RunIndex>>,
    /// The folder of bench.toml.
    pub(super) file_folder: Option<PathBuf>,
    pub(super) options: SuiteOptions,
    pub(super) accept_new: bool,
    /// The flags of a sweep; `None` for the cases of a suite.
    pub(super) base: Option<ProfileArgs>,
}

/// The rows of one remote that are still to run.
struct RemoteQueue<'a> {
    spec: &'a RemoteSpec,
    rows: Mutex<Vec<usize>>,
    /// Whether the connections go to hosts of their own, or to the GPUs of one.
    has_many_hosts: bool,
    /// The numbers of the connections that take rows.
    hosts: BTreeSet<u32>,
    /// The hosts of the rows whose job is still open: only they can follow it.
    open_on: BTreeMap<usize, u32>,
    /// The builds of all hosts; each host can use those of the others.
    builds: Mutex<Builds>,
}

impl RemoteQueue<'_> {
    /// Where the next row for this host is in the queue.
    fn position(&self, rows: &[usize], host_number: u32) -> Option<usize> {
        rows.iter().position(|at| self.open_on.get(at).is_none_or(|open| *open == host_number))
    }

    /// Takes the next row for this host.
    fn take(&self, host_number: u32) -> Option<usize> {
        let mut rows = self.rows.lock().unwrap_or_else(PoisonError::into_inner);
        self.position(&rows, host_number).map(|at| rows.remove(at))
    }

    fn is_empty(&self, host_number: u32) -> bool {
        let rows = self.rows.lock().unwrap_or_else(PoisonError::into_inner);
        self.position(&rows, host_number).is_none()
    }
}

impl SuiteWork<'_> {
    /// Runs these rows, except those that are not expected to be done at `end`, when the budget is
    /// used up. Failed cases are not errors.
    ///
    /// # Errors
    /// A host cannot be reached, the user cancels, or the disk fails. What ended before is kept.
    pub(super) fn run_rows(&self, rows: &[usize], end: Option<Instant>) -> Result<()> {
        let mut by_remote: BTreeMap<&str, (&RemoteSpec, Vec<usize>)> = BTreeMap::new();
        for at in rows {
            let Some((_, spec)) = self.cases.get(at) else { continue };
            by_remote.entry(&spec.name).or_insert_with(|| (spec, Vec::new())).1.push(*at);
        }
        let queues: Vec<RemoteQueue<'_>> =
            by_remote.into_values().map(|(spec, rows)| self.queue(spec, rows)).collect();
        let hosts: Vec<(&RemoteQueue<'_>, u32)> = queues
            .iter()
            .flat_map(|queue| queue.hosts.iter().map(move |number| (queue, *number)))
            .collect();
        let quiet = self.app.global.quiet || self.app.global.json;
        let name = |(queue, number): &(&RemoteQueue<'_>, u32)| match queue.hosts.len() {
            1 => queue.spec.name.clone(),
            _ => format!("{} {}", queue.spec.name, number + 1),
        };
        let names: Vec<String> = hosts.iter().map(name).chain(["suite".to_owned()]).collect();
        let bars = ProgressRow::each(self.app.terminal, quiet, names.iter().map(String::as_str));
        let suite_bar = bars.last();
        let left = Mutex::new(rows.to_vec());
        let fits = |at: usize| self.fits(at, end);
        let ended: Vec<Result<()>> = std::thread::scope(|scope| {
            let threads: Vec<_> = hosts
                .into_iter()
                .zip(&bars)
                .map(|((queue, number), bar)| {
                    let (left, fits) = (&left, &fits);
                    scope.spawn(move || self.run_host(queue, number, bar, suite_bar, left, fits))
                })
                .collect();
            let join = |thread: std::thread::ScopedJoinHandle<'_, Result<()>>| {
                thread.join().unwrap_or_else(|_| {
                    Err(Failure::new(Exit::Bug, "bug", "a bug in rgpu stopped the suite"))
                })
            };
            threads.into_iter().map(join).collect()
        });
        // A cancelled remote tells why the others ended too.
        let mut failures: Vec<Failure> = ended.into_iter().filter_map(Result::err).collect();
        failures.sort_by_key(|failure| failure.exit != Exit::Cancelled);
        failures.into_iter().next().map_or(Ok(()), Err)
    }

    /// The rows of one remote, and the hosts that take them.
    fn queue<'s>(&self, spec: &'s RemoteSpec, rows: Vec<usize>) -> RemoteQueue<'s> {
        let has_many_hosts = has_many_hosts(spec);
        let count = self.options.parallel.unwrap_or(1).min(rows.len().try_into().unwrap_or(1));
        let open_on: BTreeMap<usize, u32> = self.with_suite(|suite| {
            let of_row = |at: &usize| {
                let row = &suite.run.rows[*at];
                let open = row.run.as_ref().and_then(|run| open_run(self.app, run));
                open.map(|_| (*at, row.host_number.unwrap_or(0)))
            };
            // Any connection to one machine can follow a job there.
            rows.iter().filter(|_| has_many_hosts).filter_map(of_row).collect()
        });
        let hosts = (0..count.max(1)).chain(open_on.values().copied()).collect();
        let (rows, builds) = (Mutex::new(rows), Mutex::default());
        RemoteQueue { spec, rows, has_many_hosts, hosts, open_on, builds }
    }

    /// Opens one more connection to a machine; `None` if it has no GPU for that.
    async fn open_for_another_gpu(
        &self,
        spec: &RemoteSpec,
        host_number: u32,
        output_options: OutputOptions<'_>,
    ) -> Result<Option<RemoteSession>> {
        let mut session = session::open(self.app, spec.clone(), output_options).await?;
        let cache = session::facts_cache(self.app, spec);
        let facts = session.ask_facts(&cache, jiff::Timestamp::now().as_second()).await?;
        let wanted = self.options.gpu.as_deref().map_or(GpuChoice::Any, gpu_choice);
        let gpus = facts.gpus.iter().filter(|gpu| wanted.allows(gpu.index, &gpu.uuid, &gpu.name));
        if gpus.count() > host_number as usize {
            return Ok(Some(session));
        }
        end_session(session).await;
        Ok(None)
    }

    fn run_host(
        &self,
        queue: &RemoteQueue<'_>,
        host_number: u32,
        bar: &ProgressRow,
        suite_bar: Option<&ProgressRow>,
        left: &Mutex<Vec<usize>>,
        fits: &dyn Fn(usize) -> bool,
    ) -> Result<()> {
        let id = self.with_suite(|suite| suite.run.id.clone());
        let output_options = OutputOptions {
            live: LiveOutput::Hidden,
            events: None,
            accept_new: self.accept_new,
            run: &id,
            row: Some(bar),
            host: HostRequest { host_number, ..HostRequest::default() },
        };
        let spec = queue.spec;
        self.app.block_on(async {
            let mut reconnects = 0;
            let mut ready = None;
            if host_number > 0 && !queue.has_many_hosts {
                // A row is taken once there is a GPU for it.
                ready = self.open_for_another_gpu(spec, host_number, output_options).await?;
                if ready.is_none() {
                    return Ok(());
                }
            }
            let mut next = queue.take(host_number);
            while next.is_some() {
                let session = match ready.take() {
                    Some(session) => session,
                    None => session::open(self.app, spec.clone(), output_options).await?,
                };
                let folder = self.file_folder.as_deref();
                let mut runner = CaseRunner::new(
                    self.app,
                    &self.options,
                    &id,
                    folder,
                    self.base.as_ref(),
                    &queue.builds,
                    session,
                );
                while let Some(at) = next {
                    if let Some(bar) = suite_bar {
                        bar.show(&self.progress(left));
                    }
                    if fits(at) {
                        self.run_row(&mut runner, at, host_number).await?
                    } else {
                        self.with_suite(|suite| {
                            suite.run.rows[at].state = RowState::NoBudget;
                        })
                    }
                    left.lock().unwrap_or_else(PoisonError::into_inner).retain(|row| *row != at);
                    if runner.session.cancel.request_count() > 0 {
                        // Acknowledges the request to the thread that handles signals.
                        runner.session.cancel.wait_for_more_than(0).await;
                        return Err(Failure::new(Exit::Cancelled, "cancelled", "cancelled"));
                    }
                    next = if runner.lost_by.is_some() && reconnects == MAX_RECONNECTS {
                        None
                    } else {
                        queue.take(host_number)
                    };
                    if runner.lost_by.is_some() {
                        break;
                    }
                }
                let Some(lost_by) = runner.lost_by else {
                    end_session(runner.session).await;
                    break;
                };
                runner.session.reporter.report(&RunEvent::Finished { exit: 0 });
                if next.is_none() && !queue.is_empty(host_number) {
                    return Err(lost_twice(&spec.name, &lost_by));
                }
                reconnects += 1;
            }
            if let Some(session) = ready {
                end_session(session).await;
            }
            Ok(())
        })
    }

    /// Runs one case and records its end.
    async fn run_row(
        &self,
        runner: &mut CaseRunner<'_>,
        at: usize,
        host_number: u32,
    ) -> Result<()> {
        let Some((case, spec)) = self.cases.get(&at) else { return Ok(()) };
        let host_number = (host_number > 0 && has_many_hosts(spec)).then_some(host_number);
        let mut run_id = self.with_suite(|suite| {
            let row = &mut suite.run.rows[at];
            row.host_number = host_number;
            match row.run.clone().filter(|run| open_run(self.app, run).is_some()) {
                Some(open) => {
                    row.state = RowState::Running;
                    open
                }
                None => suite.start(at),
            }
        });
        self.save()?;
        let mut end = runner.run_case(case, &run_id).await;
        // A suite of the same id from another folder, such as a fresh clone, ran on the host.
        // Nothing of this attempt did.
        for _ in 0..MAX_TAKEN_NAMES {
            if end.failure.as_ref().is_none_or(|failure| failure.code != JOB_EXISTS) {
                break;
            }
            self.remove_run_without_job(&run_id)?;
            run_id = self.with_suite(|suite| suite.start(at));
            self.save()?;
            end = runner.run_case(case, &run_id).await;
        }
        let log = match &end.failure {
            Some(failure) => Some(self.write_log(&run_id, failure)?),
            None => None,
        };
        let row = self.with_suite(|suite| {
            suite.end(at, end, log);
            suite.run.rows[at].clone()
        });
        self.save()?;
        self.put_in_index(&row);
        let style = Style { color: self.app.terminal.stderr_color, ..Style::default() };
        runner.session.reporter.report(&RunEvent::Note { text: &row_text(&row, &style) });
        Ok(())
    }

    /// Removes the run of an attempt, unless it had a job on the host.
    fn remove_run_without_job(&self, run_id: &str) -> Result<()> {
        let runs = self.app.runs();
        let folder = runs.find(run_id)?;
        let record = folder.record()?;
        if record.jobs.is_empty() {
            runs.remove(&[RunLine { folder: folder.path().to_owned(), record, bytes: 0 }])?;
        }
        Ok(())
    }

    /// Writes a failure into the suite's folder. Returns the path to show.
    fn write_log(&self, run_id: &str, failure: &Failure) -> Result<String> {
        let name = format!("log/{run_id}.txt");
        self.folder.write(&name, format!("{failure}\n").as_bytes())?;
        Ok(self.app.short(&self.folder.path().join(name)))
    }

    pub(super) fn with_suite<T>(&self, work: impl FnOnce(&mut RunningSuite) -> T) -> T {
        work(&mut self.suite.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Writes suite.json.
    pub(super) fn save(&self) -> Result<()> {
        self.with_suite(|suite| Ok(self.folder.write_json("suite.json", &suite.run)?))
    }

    /// The history is not worth a failed suite: `rgpu runs reindex` makes the index again.
    fn put_in_index(&self, row: &SuiteRow) {
        let mut index = self.index.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(open) = index.as_mut() else { return };
        if let Err(error) = self.with_suite(|suite| open.put_case(&suite.run, row)) {
            self.app.print_note(&format!(
                "warning: further cases of this suite are not added to the history ({error}); `rgpu runs \
                 reindex` adds them"
            ));
            *index = None;
        }
    }

    /// Works on the suite with the seconds that a case took in an earlier suite.
    pub(super) fn with_time_estimates<T>(
        &self,
        work: impl FnOnce(&mut RunningSuite, &dyn Fn(&SuiteRow) -> Option<f64>) -> T,
    ) -> T {
        let index = self.index.lock().unwrap_or_else(PoisonError::into_inner);
        let known = |row: &SuiteRow| index.as_ref().and_then(|index| index.seconds_of(&row.case));
        self.with_suite(|suite| work(suite, &known))
    }

    /// Whether a row is expected to be done at `end`.
    fn fits(&self, at: usize, end: Option<Instant>) -> bool {
        let estimated_seconds =
            || self.with_time_estimates(|suite, known| suite.estimated_seconds(at, known));
        end.is_none_or(|end| Instant::now() + Duration::from_secs_f64(estimated_seconds()) <= end)
    }

    /// How far the suite is, and how long it may still take.
    fn progress(&self, left: &Mutex<Vec<usize>>) -> String {
        let left = left.lock().unwrap_or_else(PoisonError::into_inner).clone();
        self.with_time_estimates(|suite, known| {
            let rows = &suite.run.rows;
            let estimated_seconds = |at: &usize| suite.estimated_seconds(*at, known);
            let has_estimate = rows.iter().any(|row| row.seconds > 0.0);
            let seconds: f64 =
                if has_estimate { left.iter().map(estimated_seconds).sum() } else { 0.0 };
            let failed = suite.run.count(RowState::Failed);
            let mut text = format!("{} of {} cases left", left.len(), rows.len());
            if failed > 0 {
                text += &format!(", {failed} failed");
            }
            if seconds > 0.0 {
                text += &format!(", about {} more", rough_time(seconds));
            }
            // The line ends with the time since its start.
            text + "; so far"
        })
    }
}

/// Ends the progress and the connection of a session.
async fn end_session(mut session: RemoteSession) {
    session.reporter.report(&RunEvent::Finished { exit: 0 });
    session.link.close().await;
}

/// The failure of a suite that lost a host again after it had connected again, with the reason of
/// the last case.
fn lost_twice(remote: &str, last: &Failure) -> Failure {
    let what = format!("`{remote}` was lost twice");
    let reason = match &last.cause {
        Some(cause) => format!("{}: {cause}", last.what),
        None => last.what.clone(),
    };
    Failure::new(Exit::Host, "host_lost", what).cause(reason)
}

/// A time for estimates: `40 s`, `12 min`, `3.5 h`.
fn rough_time(seconds: f64) -> String {
    match seconds {
        s if s < 90.0 => format!("{s:.0} s"),
        s if s < 5400.0 => format!("{:.0} min", s / 60.0),
        s => format!("{:.1} h", s / 3600.0),
    }
}

/// A case that has ended, in one line.
fn row_text(row: &SuiteRow, style: &Style) -> String {
    let time = row.times.last().map(|time| format!("  {}", duration(time.median_ns)));
    let pair = row.pair.as_ref().filter(|pair| pair.speedup.is_some()).map(|pair| {
        let close = if pair.too_close { ", too close to call" } else { "" };
        let mean = match pair.sizes.len() {
            0 | 1 => String::new(),
            n => format!(" mean of {n} sizes"),
        };
        let verdict = style.paint_verdicts(pair.verdict.as_str());
        format!("  {}{mean} {verdict}{close}", speedup_text(pair.speedup))
    });
    // A cancelled case has no other reason.
    let failure = row.failure.as_ref().filter(|_| row.state != RowState::Cancelled);
    let why = failure.map(|failure| format!("  {failure}"));
    format!(
        "{} {}{}{}  ({:.1} s){}",
        style.paint_verdicts(&format!("{:<9}", row.state.as_str())),
        row.case,
        time.unwrap_or_default(),
        pair.unwrap_or_default(),
        row.seconds,
        why.unwrap_or_default()
    )
}

/// Seconds since `started_at`.
pub(super) fn seconds_since(started_at: Instant) -> f64 {
    started_at.elapsed().as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cancelled_case_is_called_so_once() {
        let mut row = SuiteRow {
            case: "memory:vecadd".into(),
            state: RowState::Cancelled,
            failure: Some("cancelled".into()),
            seconds: 4.8,
            ..SuiteRow::default()
        };
        let plain = Style::default();
        assert_eq!(row_text(&row, &plain), "cancelled memory:vecadd  (4.8 s)");
        (row.state, row.failure) = (RowState::Failed, Some("it broke".into()));
        assert!(row_text(&row, &plain).ends_with("  it broke"));
        let shown = row_text(&row, &Style { color: true, ..plain });
        let shown = shown.replace(rgpu_report::own_mark(), "");
        assert!(shown.starts_with("\u{1b}[1;31mfailed\u{1b}[0m    memory:vecadd"), "{shown:?}");
    }

    #[test]
    fn a_suite_that_stops_names_the_reason_of_the_last_failure() {
        let last = Failure::new(Exit::Host, "link_cut", "the link was cut").cause("broken pipe");
        let shown = lost_twice("h200", &last).to_string();
        assert!(shown.starts_with("error: `h200` was lost twice\n"), "{shown}");
        assert!(shown.contains("cause: the link was cut: broken pipe"), "{shown}");
    }
}
