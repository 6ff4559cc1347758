//! nvdisasm on a host: everything that is to be asked is collected first, travels as one plan, and
//! comes back as one file. Then it answers as one on this machine would ([`Nvdisasm::listing`]).

use std::collections::HashMap;
use std::path::PathBuf;

use rgpu_format::cubin;
use rgpu_protocol::HostFacts;
use rgpu_protocol::event::Stream;
use sha2::{Digest, Sha256};

use super::image_task::ImageTask;
use super::images::image_bytes;
use super::nvdisasm::{Nvdisasm, ToolError, failed, fitting};
use super::read::asked;
use super::shards;
use crate::bundle::{DEFAULT_MAX_BYTES, Packer};
use crate::error::{Exit, Failure, Result};
use crate::remote::{HostLink, RemoteSpec};
use crate::run::bundle_reader::submission;
use crate::run::job::{self, RunContext};
use crate::run::{FactsCache, Programs, Reporter, RunEvent, outcome};
use crate::tool::{self, CALL_TIMEOUT_S, JobName, LISTINGS, LISTINGS_STEP, ListingCall};

/// A listing that is wanted of a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListingRequest {
    /// The cubin.
    pub cubin: Vec<u8>,
    /// Flags before the file.
    pub flags: Vec<&'static str>,
    /// Functions by the number of their symbol, empty for all.
    pub symbols: Vec<usize>,
}

/// What is to be asked so that [`super::listing`] finds an answer for every wanted cubin of these
/// files. What cannot be read is left out: it is told when the files are.
pub fn questions(files: &[PathBuf], what: &ImageTask) -> Vec<ListingRequest> {
    let mut all: Vec<ListingRequest> = Vec::new();
    let read = files.iter().filter_map(|file| image_bytes(file, what).ok());
    for (_, bytes) in read.flat_map(|(images, _)| images) {
        let Ok(cubin) = cubin::read(&bytes) else { continue };
        let (flags, symbols) = asked(&cubin, what);
        let nothing = !cubin.code.iter().any(|section| what.wanted.kernel(&section.name));
        let question = ListingRequest { cubin: bytes, flags: flags.to_vec(), symbols };
        if !nothing && !all.contains(&question) {
            all.push(question);
        }
    }
    all
}

/// A question's name among those answered.
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

/// A shell's status of a program that its processor time ended (SIGXCPU).
const OVERRAN: usize = 128 + 24;

/// What one call of nvdisasm gave.
#[derive(Debug)]
struct CallOutput {
    exit: usize,
    out: std::ops::Range<usize>,
    err: std::ops::Range<usize>,
}

/// Everything that a host's nvdisasm said.
#[derive(Debug, Default)]
pub(super) struct HostListings {
    text: Vec<u8>,
    answers: Vec<CallOutput>,
    asked: PendingListings,
}

/// By question, the number of its cubin and the calls that answer it.
type PendingListings = HashMap<[u8; 32], (usize, std::ops::Range<usize>)>;

impl HostListings {
    /// The answer to a question; `None` where it was not asked.
    pub(super) fn listing(
        &self,
        cubin: &[u8],
        flags: &[&str],
        symbols: &[usize],
    ) -> Option<std::result::Result<String, ToolError>> {
        let (number, calls) = self.asked.get(&key(cubin, flags, symbols))?;
        let mut texts = Vec::with_capacity(calls.len());
        for answer in self.answers.get(calls.clone())? {
            let text = String::from_utf8_lossy(self.text.get(answer.out.clone())?);
            if answer.exit == OVERRAN {
                return Some(Err(ToolError::Endless { seconds: CALL_TIMEOUT_S }));
            }
            if answer.exit != 0 || text.trim().is_empty() {
                let file = format!("{number}.cubin");
                return Some(Err(failed(self.text.get(answer.err.clone())?, &file)));
            }
            texts.push(text.into_owned());
        }
        Some(Ok(shards::join(texts)))
    }

    /// Takes the host's file apart. It is not trusted: sizes that do not fit end it.
    fn read(text: Vec<u8>, asked: PendingListings, calls: usize) -> Option<Self> {
        let mut answers = Vec::with_capacity(calls);
        let mut at = 0_usize;
        for number in 1..=calls {
            let end = at + text.get(at..)?.iter().take(200).position(|b| *b == b'\n')?;
            let line = std::str::from_utf8(text.get(at..end)?).ok()?;
            let mut words = line.split_whitespace().map(|w| w.parse::<usize>().ok());
            let mut next = || words.next().flatten();
            let (its, exit, out, err) = (next()?, next()?, next()?, next()?);
            let out = end + 1..(end + 1).checked_add(out)?;
            let err = out.end..out.end.checked_add(err)?;
            if its != number || err.end > text.len() {
                return None;
            }
            at = err.end;
            answers.push(CallOutput { exit, out, err });
        }
        Some(Self { text, answers, asked })
    }
}

/// A host that is asked for listings.
pub struct ListingHost<'a> {
    /// The connection.
    pub link: &'a mut HostLink,
    /// What is known of it; where that is stale the failure's code is `facts_changed`.
    pub facts: &'a HostFacts,
    /// The job's name.
    pub job: String,
}

impl ListingHost<'_> {
    /// Asks everything at once. `None` where the host has no nvdisasm that works.
    ///
    /// # Errors
    /// The link, the host, our disk, a cancel. A cubin that nvdisasm refuses is no error here: it
    /// is told where its listing is asked for.
    pub async fn all(
        self,
        questions: &[ListingRequest],
        context: &mut RunContext<'_>,
    ) -> Result<Option<Nvdisasm>> {
        let Some(version) = self.facts.tool("nvdisasm").map(|tool| tool.version.clone()) else {
            return Ok(None);
        };
        let cores = usize::try_from(self.facts.agent.cpus).unwrap_or(1);
        let (mut calls, mut asked) = (Vec::new(), HashMap::new());
        let mut cubins = Vec::with_capacity(questions.len());
        for (at, ListingRequest { cubin, flags, symbols }) in questions.iter().enumerate() {
            cubins.push(fitting(cubin, &version).unwrap_or_else(|| cubin.clone()));
            let first = calls.len();
            let words = shards::cut(cubin, flags, symbols, cores);
            calls.extend(words.into_iter().map(|words| ListingCall { words, cubin: at }));
            asked.insert(key(cubin, flags, symbols), (at, first..calls.len()));
        }
        let Some(draft) = tool::listings(self.job.clone(), cubins, &calls, self.facts) else {
            return Ok(None);
        };
        let bundle = Packer::new(DEFAULT_MAX_BYTES).pack(draft)?;
        let mut counter = CallCounter { inner: context.reporter, done: 0, total: calls.len() };
        let mut counted = RunContext {
            folder: context.folder,
            record: context.record,
            reporter: &mut counter,
            cancel: context.cancel.clone(),
            input: None,
        };
        let submission = submission(bundle.plan, bundle.blobs);
        job::submit(self.link, &submission, &mut counted).await?;
        let end = job::follow_to_end(self.link, &self.job, &[], &mut counted).await?;
        let file = end.files.iter().find(|file| file.host_path == LISTINGS);
        let Some(file) = file.filter(|_| end.step_ok(LISTINGS_STEP)) else {
            return Err(outcome::failure(self.link.remote(), &end));
        };
        let text = context.folder.read(&file.artifact.path)?;
        // It is taken apart here; the run keeps what is made of it.
        let path = context.folder.path().join(&file.artifact.path);
        let _ = std::fs::remove_file(&path);
        let _ = path.parent().map(std::fs::remove_dir);
        let brought = HostListings::read(text, asked, calls.len()).ok_or_else(|| {
            let remote = self.link.remote();
            Failure::new(Exit::Tool, "bad_listings", "what nvdisasm wrote on the host is not whole")
                .on(remote.name(), remote.transport())
        })?;
        let host = self.link.remote().name().to_owned();
        Ok(Some(Nvdisasm::there(version, host, brought)))
    }
}

/// Tells how many calls are done, by the lines that the step prints, in their place.
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

/// A host that is asked by a command of its own, not by a run that knows it already.
pub struct CommandHost<'a> {
    /// The remote's definition.
    pub spec: &'a RemoteSpec,
    /// Its facts, kept from run to run.
    pub cache: FactsCache,
    /// Our programs for the host.
    pub programs: &'a Programs,
    /// Unix seconds.
    pub now_s: i64,
}

impl CommandHost<'_> {
    /// Asks everything at once. `None` where the host has no nvdisasm that works.
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
        // A host that changed since it was asked says so, once.
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
            let asked = ListingHost { link, facts: &facts, job: job.clone() };
            let asked = asked.all(questions, context).await;
            // All of it is here, or of no use: no run of this machine would ever ask for it.
            link.drop_job(&job);
            match asked {
                Err(failure) if failure.code == "facts_changed" => self.cache.forget(),
                asked => return asked,
            }
        }
        Err(Failure::new(Exit::Host, "facts_changed", "the host changes while it is asked"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn brought(text: &str, calls: usize) -> Option<HostListings> {
        let asked = HashMap::from([
            (key(b"cubin", &["-gi"], &[]), (0, 0..1)),
            (key(b"old", &[], &[]), (1, 1..2)),
        ]);
        HostListings::read(text.as_bytes().to_vec(), asked, calls)
    }

    #[test]
    fn answers_are_found_by_their_question() {
        let text = "1 0 8 5\nlisting\nnoise2 1 0 17\n1.cubin: too old!";
        let brought = brought(text, 2).unwrap();
        assert_eq!(brought.listing(b"cubin", &["-gi"], &[]).unwrap().unwrap(), "listing\n");
        assert!(brought.listing(b"cubin", &[], &[]).is_none());
        let refused = brought.listing(b"old", &[], &[]).unwrap().unwrap_err();
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
            assert!(brought(text, 1).is_none(), "{text:?}");
        }
    }
}
