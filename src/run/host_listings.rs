//! nvdisasm on a host: all listings are requested in one plan and come back as one file.

use rgpu_protocol::HostFacts;
use rgpu_protocol::event::Stream;

use super::bundle_reader::submission;
use super::facts::FactsCache;
use super::job::{self, RunContext};
use super::{Programs, Reporter, RunEvent, outcome};
use crate::bundle::{DEFAULT_MAX_BYTES, Packer};
use crate::disasm::{ListingCalls, ListingRequest, Nvdisasm};
use crate::error::{Exit, Failure, Result};
use crate::remote::{HostLink, RemoteSpec};
use crate::tool::{self, JobName, LISTINGS, LISTINGS_STEP};

/// A host to request listings from.
pub(super) struct ListingHost<'a> {
    /// The connection.
    pub link: &'a mut HostLink,
    /// The host's facts; if they are stale, the request fails with `facts_changed`.
    pub facts: &'a HostFacts,
    /// The job's name.
    pub job: String,
}

impl ListingHost<'_> {
    /// Requests all listings at once. `None` if the host has no working nvdisasm.
    ///
    /// # Errors
    /// The link, the host or the run folder fails, or the user cancels. A cubin that nvdisasm
    /// rejects is no error here: its listing is.
    pub(super) async fn all(
        self,
        questions: &[ListingRequest],
        context: &mut RunContext<'_>,
    ) -> Result<Option<Nvdisasm>> {
        let Some(version) = self.facts.tool("nvdisasm").map(|tool| tool.version.clone()) else {
            return Ok(None);
        };
        let cores = usize::try_from(self.facts.agent.cpus).unwrap_or(1);
        let mut listing = ListingCalls::new(questions, &version, cores);
        let cubins = std::mem::take(&mut listing.cubins);
        let Some(draft) = tool::listings(self.job.clone(), cubins, &listing.calls, self.facts)
        else {
            return Ok(None);
        };
        let bundle = Packer::new(DEFAULT_MAX_BYTES).pack(draft)?;
        let mut counter =
            CallCounter { inner: context.reporter, done: 0, total: listing.calls.len() };
        let mut counting_context = RunContext {
            folder: context.folder,
            record: context.record,
            reporter: &mut counter,
            cancel: context.cancel.clone(),
            input: None,
        };
        let submission = submission(bundle.plan, bundle.blobs);
        job::submit(self.link, &submission, &mut counting_context).await?;
        let end = job::follow_to_end(self.link, &self.job, &[], &mut counting_context).await?;
        let file = end.files.iter().find(|file| file.host_path == LISTINGS);
        let Some(file) = file.filter(|_| end.step_ok(LISTINGS_STEP)) else {
            return Err(outcome::failure(self.link.remote(), &end));
        };
        let text = context.folder.read(&file.artifact.path)?;
        // The run keeps only the listings made from this file.
        let path = context.folder.path().join(&file.artifact.path);
        let _ = std::fs::remove_file(&path);
        let _ = path.parent().map(std::fs::remove_dir);
        let remote = self.link.remote();
        let tool = listing.nvdisasm(remote.name(), text).ok_or_else(|| {
            Failure::new(
                Exit::Tool,
                "bad_listings",
                "the output of nvdisasm on the host is incomplete",
            )
            .on(remote.name(), remote.transport())
        })?;
        Ok(Some(tool))
    }
}

/// Reports how many calls have ended, from the lines that the step prints, instead of its output.
struct CallCounter<'r> {
    inner: &'r mut dyn Reporter,
    done: usize,
    total: usize,
}

impl Reporter for CallCounter<'_> {
    fn report(&mut self, event: &RunEvent<'_>) {
        match event {
            RunEvent::Output { step: LISTINGS_STEP, stream: Stream::Stdout, bytes, .. } => {
                let ended = bytes.iter().filter(|b| **b == b'\n').count();
                self.done = self.total.min(self.done + ended);
                self.inner.report(&RunEvent::Disassembling { done: self.done, total: self.total });
            }
            event => self.inner.report(event),
        }
    }
}

/// A host for a command that has no facts of it yet.
pub struct CommandHost<'a> {
    /// The remote that compiles.
    pub spec: &'a RemoteSpec,
    /// The host's facts, cached between runs.
    pub cache: FactsCache,
    /// rgpu's own programs for the host.
    pub programs: &'a Programs,
    /// The current time in Unix seconds.
    pub now_s: i64,
}

impl CommandHost<'_> {
    /// Requests all listings at once. `None` if the host has no working nvdisasm.
    ///
    /// # Errors
    /// As [`ListingHost::all`].
    pub async fn ask(
        &self,
        link: &mut HostLink,
        questions: &[ListingRequest],
        context: &mut RunContext<'_>,
    ) -> Result<Option<Nvdisasm>> {
        let mut known = self.cache.load(self.now_s);
        // A second try is for a host that changed since its facts were cached.
        for sequence in 1..=2 {
            let facts = match known.take() {
                Some(facts) => facts,
                None => {
                    let Self { spec, cache, programs, now_s } = self;
                    let cancel = &context.cancel;
                    cache.ask(link, spec, programs, *now_s, context.reporter, cancel).await?
                }
            };
            let job = JobName { run: context.record.id.clone(), sequence }.job();
            let result = ListingHost { link, facts: &facts, job: job.clone() };
            let result = result.all(questions, context).await;
            // No other command uses this job.
            link.drop_job(&job);
            match result {
                Err(failure) if failure.code == "facts_changed" => self.cache.forget(),
                result => return result,
            }
        }
        Err(Failure::new(Exit::Host, "facts_changed", "the host keeps changing"))
    }
}
