//! nvdisasm on a host: all listings are requested in one plan and come back as one file.

use std::path::Path;

use rgpu_protocol::HostFacts;
use rgpu_protocol::event::Stream;

use super::bundle_reader::submission;
use super::job::{self, RunContext, SubmitError};
use super::lifecycle::RunSession;
use super::{Reporter, RunEvent, outcome};
use crate::disasm::{ListingCalls, ListingRequest, Nvdisasm};
use rgpu_model::error::{Exit, Failure, Result};
use rgpu_plan::bundle::{DEFAULT_MAX_BYTES, Packer};
use rgpu_plan::tool::{self, JobName, LISTINGS, NVDISASM_STEP_ID};
use rgpu_remote::HostLink;

/// A host to request listings from.
pub(super) struct ListingHost<'a> {
    pub link: &'a mut HostLink,
    /// The host's facts; if they are outdated, the request fails with
    /// [`SubmitError::FactsChanged`].
    pub facts: &'a HostFacts,
    /// The name of the job that makes the listings.
    pub job: String,
}

impl ListingHost<'_> {
    /// Requests all listings at once. `None` if the host has no working nvdisasm.
    ///
    /// # Errors
    /// The link, the host or the run folder fails, or the user cancels. A cubin that nvdisasm
    /// rejects is no error here: its listing is.
    pub(super) async fn fetch_listings(
        self,
        requests: &[ListingRequest],
        context: &mut RunContext<'_>,
    ) -> Result<Option<Nvdisasm>, SubmitError> {
        let Some(version) = self.facts.tool("nvdisasm").map(|tool| tool.version.clone()) else {
            return Ok(None);
        };
        let cores = usize::try_from(self.facts.agent.cpus).unwrap_or(1);
        let mut listing = ListingCalls::new(requests, &version, cores);
        let cubins = std::mem::take(&mut listing.cubins);
        let Some(draft) = tool::listings(self.job.clone(), cubins, &listing.calls, self.facts)
        else {
            return Ok(None);
        };
        let bundle = Packer::new(DEFAULT_MAX_BYTES).pack(draft).map_err(Failure::from)?;
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
        let Some(file) = file.filter(|_| end.step_ok(NVDISASM_STEP_ID)) else {
            return Err(outcome::failure(self.link.remote(), &end).into());
        };
        let text = context.folder.read(&file.artifact.path)?;
        // The run keeps only the listings made from this file.
        let (files, path) = (context.folder.files(), Path::new(&file.artifact.path));
        let _ = files.remove_file(path);
        let _ = path.parent().map(|parent| files.remove_empty_folder(parent));
        let remote = self.link.remote();
        let tool = listing.nvdisasm(remote.name(), text).ok_or_else(|| {
            Failure::new(
                Exit::Tool,
                "bad_listings",
                "the output of nvdisasm on the host is incomplete",
            )
            .host(remote.name(), remote.transport())
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
            RunEvent::Output { step: NVDISASM_STEP_ID, stream: Stream::Stdout, bytes, .. } => {
                let ended = bytes.iter().filter(|b| **b == b'\n').count();
                self.done = self.total.min(self.done + ended);
                self.inner.report(&RunEvent::Disassembling { done: self.done, total: self.total });
            }
            event => self.inner.report(event),
        }
    }
}

/// Requests listings from a host in jobs of their own. `None` if it has no working nvdisasm.
pub async fn fetch_host_listings(
    session: &mut RunSession<'_>,
    requests: &[ListingRequest],
    context: &mut RunContext<'_>,
) -> Result<Option<Nvdisasm>> {
    // A second try is for a host that changed since its facts were cached.
    for sequence in 1..=2 {
        let facts = session.facts(context).await?;
        let job = JobName { run: context.record.id.clone(), sequence }.job();
        let listing_host = ListingHost { link: session.link, facts: &facts, job: job.clone() };
        let result = listing_host.fetch_listings(requests, context).await;
        // No other command uses this job.
        session.link.request_job_removal(&job);
        match result {
            Err(SubmitError::FactsChanged(_)) => session.forget_facts(),
            result => return Ok(result?),
        }
    }
    Err(outcome::facts_changed_twice())
}
