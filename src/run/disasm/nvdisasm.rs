//! nvdisasm, for the operands that rgpu does not read itself: on this machine, or on a host that
//! has been asked for all listings at once (`remote`).
//!
//! It is a program for one file and one core. Several run at once, at most one a core whoever asks,
//! and a large cubin is cut into lists of functions (`shards`).

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use super::leash;
use super::permits::Permits;
use super::remote::HostListings;
use super::shards;

/// nvdisasm, found and answering.
#[derive(Clone, Debug)]
pub struct Nvdisasm {
    version: String,
    place: NvdisasmOrigin,
}

/// Where it is.
#[derive(Clone, Debug)]
enum NvdisasmOrigin {
    /// On this machine.
    Here { path: PathBuf, turns: Arc<Permits>, limit: Option<Duration> },
    /// On a host: what it said to everything it was asked.
    There { host: String, brought: Arc<HostListings> },
}

/// Why nvdisasm gave no listing.
#[derive(Debug, thiserror::Error)]
pub enum ToolError {
    /// It could not be started, or its input not be written.
    #[error("`{program}` cannot be run: {source}")]
    Start {
        /// The program.
        program: String,
        /// Why.
        source: std::io::Error,
    },
    /// It failed, in its own words.
    #[error("{words}")]
    Failed {
        /// The first lines of what it said.
        words: String,
    },
    /// It was ended, still at work.
    #[error("it was ended after {seconds} s of processor time: the cubin may be damaged")]
    Endless {
        /// What it was given.
        seconds: u64,
    },
    /// A listing that the host was not asked for.
    #[error("`{host}` was not asked for this listing")]
    NotAsked {
        /// The host.
        host: String,
    },
}

/// The first of `candidates` that answers `--version`.
pub fn find(candidates: &[PathBuf]) -> Option<Nvdisasm> {
    candidates.iter().find_map(|path| {
        let output = Command::new(path).arg("--version").stdin(Stdio::null()).output().ok()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        // "Cuda compilation tools, release 13.5, V13.5.37"
        let version = text.split_whitespace().rev().find_map(|w| {
            w.strip_prefix('V').filter(|v| v.starts_with(|c: char| c.is_ascii_digit()))
        })?;
        output.status.success().then(|| Nvdisasm::here(path.clone(), version.to_owned()))
    })
}

/// The fields of an ELF header that tell the two layouts of cubins apart.
const OS_ABI: usize = 7;
const ABI_VERSION: usize = 8;
const VERSION: usize = 20;
const FLAGS: usize = 48;

/// A copy whose header names the layout that nvdisasm of this version expects: it reads the other
/// one too, but without its analysis of control flow. `None` where the file is as expected.
///
/// 13 expects the newer layout of all; 12 the older one up to sm_90, the newer one from sm_100 on.
/// Seen with 13.5.37 on a cubin of 12.9, and with 12.8.55 on one of 13.5.
pub(super) fn fitting(cubin: &[u8], version: &str) -> Option<Vec<u8>> {
    const OLDER: u8 = 7;
    const NEWER: u8 = 8;
    const LAST_OLDER_SM: u32 = 90;
    let major: u32 = version.split('.').next().and_then(|n| n.parse().ok())?;
    let layout = *cubin.get(ABI_VERSION)?;
    let mut copy = cubin.to_vec();
    let mut put = |os_abi: u8, abi: u8, toolkit: u32, flags: u32| -> Option<()> {
        copy.get_mut(OS_ABI..=ABI_VERSION)?.copy_from_slice(&[os_abi, abi]);
        copy.get_mut(VERSION..VERSION + 4)?.copy_from_slice(&toolkit.to_le_bytes());
        copy.get_mut(FLAGS..FLAGS + 4)?.copy_from_slice(&flags.to_le_bytes());
        Some(())
    };
    match (major, layout) {
        (13.., OLDER) => {
            let sm = u32::from(*cubin.get(FLAGS)?);
            put(0x41, NEWER, 1, 0x0600_0004 | sm << 8)?;
        }
        (12, NEWER) => {
            let sm = rgpu_format::cubin::read(cubin).ok()?.sm;
            if sm.number > LAST_OLDER_SM {
                return None;
            }
            let specific = if sm.to_string().ends_with('a') { 0x800 } else { 0 };
            put(0x33, OLDER, 128, 0x500 | specific | sm.number | sm.number << 16)?;
        }
        _ => return None,
    }
    Some(copy)
}

impl Nvdisasm {
    fn here(path: PathBuf, version: String) -> Self {
        let turns = Arc::new(Permits::one_a_core());
        Self { version, place: NvdisasmOrigin::Here { path, turns, limit: None } }
    }

    /// With this much processor time for each call on this machine, in place of what the size of
    /// the cubin gives it.
    pub fn within(mut self, time: Option<Duration>) -> Self {
        if let NvdisasmOrigin::Here { limit, .. } = &mut self.place {
            *limit = time;
        }
        self
    }

    /// What a host's has said.
    pub(super) fn there(version: String, host: String, brought: HostListings) -> Self {
        Self { version, place: NvdisasmOrigin::There { host, brought: Arc::new(brought) } }
    }

    /// Its version, e.g. `13.5.37`.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Where it lies; `None` on a host.
    pub fn path(&self) -> Option<&Path> {
        match &self.place {
            NvdisasmOrigin::Here { path, .. } => Some(path),
            NvdisasmOrigin::There { .. } => None,
        }
    }

    /// As summaries name it.
    pub fn name(&self) -> String {
        match &self.place {
            NvdisasmOrigin::Here { .. } => format!("nvdisasm {}", self.version),
            NvdisasmOrigin::There { host, .. } => format!("nvdisasm {} on {host}", self.version),
        }
    }

    /// The listing of a cubin. `flags` go before the file; `symbols` are indices of functions in
    /// the symbol table, empty for all.
    ///
    /// # Errors
    /// It cannot be run, says why it failed, comes to no end, or is on a host that was not asked for
    /// this listing.
    pub fn listing(
        &self,
        cubin: &[u8],
        flags: &[&str],
        symbols: &[usize],
    ) -> Result<String, ToolError> {
        match &self.place {
            NvdisasmOrigin::There { host, brought } => brought
                .listing(cubin, flags, symbols)
                .unwrap_or_else(|| Err(ToolError::NotAsked { host: host.clone() })),
            NvdisasmOrigin::Here { path, turns, limit } => {
                let file = CubinFile::new(path, cubin, &self.version)?;
                let time = limit.unwrap_or_else(|| usual_time(cubin.len()));
                let calls = shards::cut(cubin, flags, symbols, turns.most());
                let one = |words: &Vec<String>| turns.take(|| file.listing(path, words, time));
                let mut texts = Vec::with_capacity(calls.len());
                if let [words] = calls.as_slice() {
                    texts.push(one(words)?);
                } else {
                    let one = &one;
                    let all: Vec<Result<String, ToolError>> = std::thread::scope(|scope| {
                        let running: Vec<_> =
                            calls.iter().map(|words| scope.spawn(move || one(words))).collect();
                        let ended = running.into_iter().map(std::thread::ScopedJoinHandle::join);
                        ended.filter_map(std::result::Result::ok).collect()
                    });
                    for text in all {
                        texts.push(text?);
                    }
                }
                Ok(shards::join(texts))
            }
        }
    }
}

/// A cubin where nvdisasm can read it: in memory where the system has files there, so that nothing
/// is left behind whatever ends this process.
struct CubinFile {
    path: PathBuf,
    #[cfg(target_os = "linux")]
    _memory: std::os::fd::OwnedFd,
    #[cfg(not(target_os = "linux"))]
    _file: tempfile::TempPath,
}

impl CubinFile {
    fn new(program: &Path, cubin: &[u8], version: &str) -> Result<Self, ToolError> {
        let start = |source| ToolError::Start { program: program.display().to_string(), source };
        let fitting = fitting(cubin, version);
        Self::of(fitting.as_deref().unwrap_or(cubin)).map_err(start)
    }

    #[cfg(target_os = "linux")]
    fn of(bytes: &[u8]) -> std::io::Result<Self> {
        use std::io::Write;
        use std::os::fd::AsRawFd;
        let memory = rustix::fs::memfd_create("rgpu.cubin", rustix::fs::MemfdFlags::CLOEXEC)?;
        let mut file = std::fs::File::from(memory);
        file.write_all(bytes)?;
        let path = format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
        Ok(Self { path: path.into(), _memory: file.into() })
    }

    #[cfg(not(target_os = "linux"))]
    fn of(bytes: &[u8]) -> std::io::Result<Self> {
        let file = tempfile::Builder::new().prefix("rgpu-").suffix(".cubin").tempfile()?;
        std::fs::write(file.path(), bytes)?;
        Ok(Self { path: file.path().to_owned(), _file: file.into_temp_path() })
    }

    fn listing(
        &self,
        program: &Path,
        words: &[String],
        time: Duration,
    ) -> Result<String, ToolError> {
        let start = |source| ToolError::Start { program: program.display().to_string(), source };
        let mut command = leash::command(program);
        command.args(words).arg(&self.path).stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.spawn().map_err(start)?;
        leash::limit(&child, time);
        let output = child.wait_with_output().map_err(start)?;
        if leash::overran(output.status) {
            return Err(ToolError::Endless { seconds: leash::seconds(time) });
        }
        let text = String::from_utf8(output.stdout)
            .unwrap_or_else(|e| String::from_utf8_lossy(e.as_bytes()).into_owned());
        if !output.status.success() || text.trim().is_empty() {
            return Err(failed(&output.stderr, &self.path.display().to_string()));
        }
        Ok(text)
    }
}

/// Processor time of a call for a cubin of so many bytes: many times what one takes that is whole
/// (a second for 50 MB to read, and for 10 MB of code), since a damaged one may hold it up for ever.
fn usual_time(bytes: usize) -> Duration {
    const LEAST_S: u64 = 30;
    const MIB_S: u64 = 10;
    Duration::from_secs(LEAST_S + MIB_S * (bytes as u64 >> 20))
}

/// What it said where it gave no listing; `file` is the name it knew the cubin by.
pub(super) fn failed(stderr: &[u8], file: &str) -> ToolError {
    ToolError::Failed { words: named(&String::from_utf8_lossy(stderr), file) }
}

/// The tool's own words without the name of the temporary file.
fn named(words: &str, file: &str) -> String {
    let words = words.replace(file, "the cubin");
    let words: Vec<&str> = words.lines().map(str::trim).filter(|l| !l.is_empty()).take(3).collect();
    match words.is_empty() {
        true => "it printed nothing".to_owned(),
        false => words.join("; ").chars().take(200).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_fit_the_tool_that_reads_them() {
        let read = |name: &str| {
            let fixtures = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/cubin");
            std::fs::read(format!("{fixtures}/{name}.cubin")).unwrap()
        };
        let head = |bytes: &[u8]| {
            let flags = u32::from_le_bytes(bytes[FLAGS..FLAGS + 4].try_into().unwrap());
            (bytes[OS_ABI], bytes[ABI_VERSION], flags)
        };
        let (old, new) = (read("12.9/facts/sm_90a"), read("13.5/facts/sm_90a"));
        let newer = fitting(&old, "13.5.37").unwrap();
        assert_eq!(head(&newer), head(&new));
        let older = fitting(&new, "12.8.55").unwrap();
        assert_eq!(head(&older), head(&old));
        assert!(fitting(&old, "12.8.55").is_none() && fitting(&new, "13.5.37").is_none());
        assert!(fitting(&read("13.5/facts/sm_100a"), "12.9.79").is_none());
        assert!(fitting(b"", "13.5").is_none() && fitting(&new, "").is_none());
    }
}
