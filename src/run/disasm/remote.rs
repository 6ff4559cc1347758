//! nvdisasm on a host: all listings are requested in one plan and come back as one file. The result
//! then answers like an nvdisasm on this machine ([`Nvdisasm::listing`]).

use std::collections::HashMap;
use std::path::PathBuf;

use rgpu_format::cubin;
use rgpu_protocol::HostFacts;
use rgpu_protocol::event::Stream;
use sha2::{Digest, Sha256};

use super::image_task::ImageTask;
use super::images::image_bytes;
use super::nvdisasm::{Nvdisasm, ToolError, tool_failure, with_expected_header};
use super::read::listing_options;
use super::shards;
use crate::bundle::{DEFAULT_MAX_BYTES, Packer};
use crate::error::{Exit, Failure, Result};
use crate::remote::{HostLink, RemoteSpec};
use crate::run::bundle_reader::submission;
use crate::run::job::{self, RunContext};
use crate::run::{FactsCache, Programs, Reporter, RunEvent, outcome};
use crate::tool::{self, CALL_TIMEOUT_S, JobName, LISTINGS, LISTINGS_STEP, ListingCall};

/// A listing to request from a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListingRequest {
    /// The cubin.
    pub cubin: Vec<u8>,
    /// Flags before the file.
    pub flags: Vec<&'static str>,
    /// Symbol indices of the functions, empty for all.
    pub symbols: Vec<usize>,
}

/// The requests for every listing that [`super::listing`] will need for these files. Unreadable
/// files are left out; reading them later reports the error.
pub fn questions(files: &[PathBuf], task: &ImageTask) -> Vec<ListingRequest> {
    let mut all: Vec<ListingRequest> = Vec::new();
    let read = files.iter().filter_map(|file| image_bytes(file, task).ok());
    for (_, bytes) in read.flat_map(|(images, _)| images) {
        let Ok(cubin) = cubin::read(&bytes) else { continue };
        let (flags, symbols) = listing_options(&cubin, task);
        let no_code = !cubin.code.iter().any(|section| task.wanted.kernel(&section.name));
        let request = ListingRequest { cubin: bytes, flags: flags.to_vec(), symbols };
        if !no_code && !all.contains(&request) {
            all.push(request);
        }
    }
    all
}

/// Identifies a request.
fn key(cubin: &[u8], flags: &[&str], symbols: &[usize]) -> [u8; 32] {
    let mut hash = Sha256::new();
    hash.update((cubin.len() as u64).to_le_bytes());
    hash.update(cubin);
    for flag in flags {
        hash.update(flag.as_bytes());
        hash.update([0]);
    }
    for symbol in symbols {
        hash.update((*symbol as u64).to_le_bytes());
    }
    hash.finalize().into()
}

/// A shell's exit status for a program that exceeded its processor time (SIGXCPU).
const CPU_LIMIT_STATUS: usize = 128 + 24;

/// The output of one call of nvdisasm.
#[derive(Debug)]
struct CallOutput {
    exit: usize,
    out: std::ops::Range<usize>,
    err: std::ops::Range<usize>,
}

/// The output of all calls of a host's nvdisasm.
#[derive(Debug, Default)]
pub(super) struct HostListings {
    text: Vec<u8>,
    answers: Vec<CallOutput>,
    calls_by_request: PendingListings,
}

/// For each request, the number of its cubin and its calls.
type PendingListings = HashMap<[u8; 32], (usize, std::ops::Range<usize>)>;

impl HostListings {
    /// The result of a request; `None` if it was not requested.
    pub(super) fn listing(
        &self,
        cubin: &[u8],
        flags: &[&str],
        symbols: &[usize],
    ) -> Option<std::result::Result<String, ToolError>> {
        let (number, calls) = self.calls_by_request.get(&key(cubin, flags, symbols))?;
        let mut texts = Vec::with_capacity(calls.len());
        for answer in self.answers.get(calls.clone())? {
            let text = String::from_utf8_lossy(self.text.get(answer.out.clone())?);
            if answer.exit == CPU_LIMIT_STATUS {
                return Some(Err(ToolError::Endless { seconds: CALL_TIMEOUT_S }));
            }
            if answer.exit != 0 || text.trim().is_empty() {
                let file = format!("{number}.cubin");
                return Some(Err(tool_failure(self.text.get(answer.err.clone())?, &file)));
            }
            texts.push(text.into_owned());
        }
        Some(Ok(shards::join(texts)))
    }

    /// Parses the host's file, which is untrusted; `None` if a size does not fit.
    fn read(text: Vec<u8>, calls_by_request: PendingListings, calls: usize) -> Option<Self> {
        let mut answers = Vec::with_capacity(calls);
        let mut at = 0_usize;
        for number in 1..=calls {
            let end = at + text.get(at..)?.iter().take(200).position(|b| *b == b'\n')?;
            let line = std::str::from_utf8(text.get(at..end)?).ok()?;
            let mut words = line.split_whitespace().map(|w| w.parse::<usize>().ok());
            let mut next = || words.next().flatten();
            let (reported_number, exit, out, err) = (next()?, next()?, next()?, next()?);
            let out = end + 1..(end + 1).checked_add(out)?;
            let err = out.end..out.end.checked_add(err)?;
            if reported_number != number || err.end > text.len() {
                return None;
            }
            at = err.end;
            answers.push(CallOutput { exit, out, err });
        }
        Some(Self { text, answers, calls_by_request })
    }
}

/// A host to request listings from.
pub struct ListingHost<'a> {
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
    pub async fn all(
        self,
        questions: &[ListingRequest],
        context: &mut RunContext<'_>,
    ) -> Result<Option<Nvdisasm>> {
        let Some(version) = self.facts.tool("nvdisasm").map(|tool| tool.version.clone()) else {
            return Ok(None);
        };
        let cores = usize::try_from(self.facts.agent.cpus).unwrap_or(1);
        let (mut calls, mut calls_by_request) = (Vec::new(), HashMap::new());
        let mut cubins = Vec::with_capacity(questions.len());
        for (at, ListingRequest { cubin, flags, symbols }) in questions.iter().enumerate() {
            cubins.push(with_expected_header(cubin, &version).unwrap_or_else(|| cubin.clone()));
            let first = calls.len();
            let words = shards::cut(cubin, flags, symbols, cores);
            calls.extend(words.into_iter().map(|words| ListingCall { words, cubin: at }));
            calls_by_request.insert(key(cubin, flags, symbols), (at, first..calls.len()));
        }
        let Some(draft) = tool::listings(self.job.clone(), cubins, &calls, self.facts) else {
            return Ok(None);
        };
        let bundle = Packer::new(DEFAULT_MAX_BYTES).pack(draft)?;
        let mut counter = CallCounter { inner: context.reporter, done: 0, total: calls.len() };
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
        let host_listings =
            HostListings::read(text, calls_by_request, calls.len()).ok_or_else(|| {
                let remote = self.link.remote();
                Failure::new(
                    Exit::Tool,
                    "bad_listings",
                    "the output of nvdisasm on the host is incomplete",
                )
                .on(remote.name(), remote.transport())
            })?;
        let host = self.link.remote().name().to_owned();
        Ok(Some(Nvdisasm::on_host(version, host, host_listings)))
    }
}

/// Reports how many calls have ended, from the lines that the step prints, instead of its output.
struct CallCounter<'r> {
    inner: &'r mut dyn Reporter,
    done: usize,
    total: usize,
}

impl Reporter for CallCounter<'_> {
    fn say(&mut self, event: &RunEvent<'_>) {
        match event {
            RunEvent::Output { step: LISTINGS_STEP, stream: Stream::Stdout, bytes, .. } => {
                let ended = bytes.iter().filter(|b| **b == b'\n').count();
                self.done = self.total.min(self.done + ended);
                self.inner.say(&RunEvent::Disassembling { done: self.done, total: self.total });
            }
            event => self.inner.say(event),
        }
    }
}

/// A host for a command that has no facts of it yet.
pub struct CommandHost<'a> {
    /// The remote's definition.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn host_listings(text: &str, calls: usize) -> Option<HostListings> {
        let calls_by_request = HashMap::from([
            (key(b"cubin", &["-gi"], &[]), (0, 0..1)),
            (key(b"old", &[], &[]), (1, 1..2)),
        ]);
        HostListings::read(text.as_bytes().to_vec(), calls_by_request, calls)
    }

    #[test]
    fn answers_are_found_by_their_question() {
        let text = "1 0 8 5\nlisting\nnoise2 1 0 17\n1.cubin: too old!";
        let host_listings = host_listings(text, 2).unwrap();
        assert_eq!(host_listings.listing(b"cubin", &["-gi"], &[]).unwrap().unwrap(), "listing\n");
        assert!(host_listings.listing(b"cubin", &[], &[]).is_none());
        let refused = host_listings.listing(b"old", &[], &[]).unwrap().unwrap_err();
        assert_eq!(refused.to_string(), "the cubin: too old!");
    }

    #[test]
    fn sizes_that_do_not_fit_are_refused() {
        for text in [
            "",
            "1 0 9",
            "1 0 9 0\nshort",
            "2 0 0 0\n",
            "1 0 18446744073709551615 1\n",
            "1 -1 0 0\n",
        ] {
            assert!(host_listings(text, 1).is_none(), "{text:?}");
        }
    }
}
