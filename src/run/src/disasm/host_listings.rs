//! Listings that a host's nvdisasm makes: which ones are needed, the calls that make them, and the
//! parsed result, which answers like an nvdisasm on this machine ([`Nvdisasm::listing`]).

use std::collections::HashMap;
use std::path::PathBuf;

use rgpu_format::cubin;
use sha2::{Digest, Sha256};

use super::image_task::ImageTask;
use super::images::image_bytes;
use super::nvdisasm::{Nvdisasm, ToolError, tool_failure, with_expected_header};
use super::read::listing_options;
use super::shards;
use rgpu_plan::tool::{CALL_TIMEOUT_S, ListingCall};

/// A listing to request from a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListingRequest {
    /// The bytes of the cubin to list.
    pub cubin: Vec<u8>,
    /// Flags before the file.
    pub flags: Vec<&'static str>,
    /// Symbol indices of the functions, empty for all.
    pub symbols: Vec<usize>,
}

/// The requests for every listing that [`super::listing`] will need for these files. Unreadable
/// files are left out; reading them later reports the error.
pub fn cubin_listing_requests(files: &[PathBuf], task: &ImageTask) -> Vec<ListingRequest> {
    let mut all: Vec<ListingRequest> = Vec::new();
    let read = files.iter().filter_map(|file| image_bytes(file, task).ok());
    for (_, bytes) in read.flat_map(|(images, _)| images) {
        let Ok(cubin) = cubin::read(&bytes) else { continue };
        let (flags, symbols) = listing_options(&cubin, task);
        let no_code = !cubin.code.iter().any(|section| task.filter.matches_kernel(&section.name));
        let request = ListingRequest { cubin: bytes, flags: flags.to_vec(), symbols };
        if !no_code && !all.contains(&request) {
            all.push(request);
        }
    }
    all
}

/// The key of a request in [`PendingListings`]: SHA-256 of its parts with their lengths.
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

/// The calls of a host's nvdisasm that make the requested listings.
pub struct ListingCalls {
    /// The cubins, with the header that the host's nvdisasm expects.
    pub cubins: Vec<Vec<u8>>,
    /// The calls; their output is expected in this order.
    pub calls: Vec<ListingCall>,
    version: String,
    calls_by_request: PendingListings,
}

impl ListingCalls {
    /// Spreads the requests over the host's cores; `version` is that of its nvdisasm.
    pub fn new(requests: &[ListingRequest], version: &str, cores: usize) -> Self {
        let (mut calls, mut calls_by_request) = (Vec::new(), HashMap::new());
        let mut cubins = Vec::with_capacity(requests.len());
        for (at, ListingRequest { cubin, flags, symbols }) in requests.iter().enumerate() {
            cubins.push(with_expected_header(cubin, version).unwrap_or_else(|| cubin.clone()));
            let first = calls.len();
            let words = shards::split_calls(cubin, flags, symbols, cores);
            calls.extend(words.into_iter().map(|args| ListingCall { args, cubin: at }));
            calls_by_request.insert(key(cubin, flags, symbols), (at, first..calls.len()));
        }
        Self { cubins, calls, version: version.to_owned(), calls_by_request }
    }

    /// The nvdisasm that answers with the file that the calls wrote on `host`; `None` if the file
    /// is not whole.
    pub fn nvdisasm(self, host: &str, text: Vec<u8>) -> Option<Nvdisasm> {
        let listings = HostListings::read(text, self.calls_by_request, self.calls.len())?;
        Some(Nvdisasm::on_host(self.version, host.to_owned(), listings))
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
