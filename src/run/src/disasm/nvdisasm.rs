//! nvdisasm, for the operands that rgpu does not decode: on this machine, or on a host that has
//! produced all listings in advance (`remote`).
//!
//! nvdisasm reads one file on one core and takes a few hundred megabytes. Several run at once, at
//! most one per core, because each is waited for by a thread that has a core (`spare_cores`). A
//! large cubin is split into lists of functions (`shards`).

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use super::host_listings::HostListings;
use super::limited_process;
use super::listing_cache::CachedListing;
use super::shards;
use super::spare_cores::{self, CORES};
use rgpu_model::program_answer::{MAX_LIST_BYTES, MAX_PROBE_BYTES, read_answer, wait_for_answer};

/// An nvdisasm that works.
#[derive(Clone, Debug)]
pub struct Nvdisasm {
    version: String,
    origin: NvdisasmOrigin,
}

/// Where the listings come from.
#[derive(Clone, Debug)]
enum NvdisasmOrigin {
    /// A program on this machine.
    Local { path: PathBuf, limit: Option<Duration>, cache: Option<PathBuf> },
    /// A host; holds the output of all its calls.
    Host { host: String, listings: Arc<HostListings> },
}

/// Why nvdisasm gave no listing.
#[derive(Debug, thiserror::Error)]
pub enum ToolError {
    /// It cannot be started, or its input cannot be written.
    #[error("`{program}` cannot be run: {source}")]
    Start {
        /// The path of nvdisasm.
        program: String,
        /// The operating system's error.
        source: std::io::Error,
    },
    /// It failed with a message.
    #[error("{words}")]
    Failed {
        /// The first lines of the message.
        words: String,
    },
    /// It exceeded its processor time.
    #[error("it was ended after {seconds} s of processor time: the cubin may be damaged")]
    Endless {
        /// The processor time that it was allowed, in seconds.
        seconds: u64,
    },
    /// The listing was not requested from the host.
    #[error("`{host}` was not asked for this listing")]
    NotAsked {
        /// The remote's name.
        host: String,
    },
}

/// Where this machine may have nvdisasm, and the cache of what it prints.
#[derive(Clone, Debug, Default)]
pub struct NvdisasmSearch {
    /// Programs to try. Of two with the same version, the first is taken.
    pub paths: Vec<PathBuf>,
    /// Folder of cached listings; `None`: no cache.
    pub cache: Option<PathBuf>,
}

impl NvdisasmSearch {
    /// The newest of the programs that answer to `--version`: older ones do not know the newest
    /// architectures.
    pub fn find(&self) -> Option<Nvdisasm> {
        self.find_in(&self.paths)
    }

    /// As [`Self::find`], with other programs.
    pub fn find_in(&self, paths: &[PathBuf]) -> Option<Nvdisasm> {
        let mut tool = find(paths)?;
        if let NvdisasmOrigin::Local { cache, .. } = &mut tool.origin {
            cache.clone_from(&self.cache);
        }
        Some(tool)
    }
}

/// The newest of `candidates` that answer to `--version`; the first of those of one version.
pub fn find(candidates: &[PathBuf]) -> Option<Nvdisasm> {
    // The last of equal elements is the greatest.
    let found = candidates.iter().rev().filter_map(|path| {
        let mut command = Command::new(path);
        let output = read_answer(command.arg("--version"), MAX_PROBE_BYTES).ok()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        // "Cuda compilation tools, release 13.5, V13.5.37"
        let version = text.split_whitespace().rev().find_map(|w| {
            w.strip_prefix('V').filter(|v| v.starts_with(|c: char| c.is_ascii_digit()))
        })?;
        output.status.success().then(|| Nvdisasm::local(path.clone(), version.to_owned()))
    });
    found.max_by_key(|tool| version_numbers(&tool.version))
}

/// The numbers of a version such as `13.5.37`.
fn version_numbers(version: &str) -> Vec<u32> {
    version.split('.').map(|number| number.parse().unwrap_or(0)).collect()
}

/// Offsets of the ELF header fields that differ between the two layouts of cubins.
const OS_ABI: usize = 7;
const ABI_VERSION: usize = 8;
const VERSION: usize = 20;
const FLAGS: usize = 48;

/// A copy whose header has the layout that this version of nvdisasm expects; `None` if the cubin
/// has it already. nvdisasm reads the other layout too, but without its control flow analysis.
///
/// Version 13 expects the newer layout for all architectures; 12 the older one up to sm_90 and the
/// newer one from sm_100. Seen with 13.5.37 on a cubin of 12.9, and with 12.8.55 on one of 13.5.
pub(super) fn with_expected_header(cubin: &[u8], version: &str) -> Option<Vec<u8>> {
    const OLDER: u8 = 7;
    const NEWER: u8 = 8;
    const LAST_OLDER_SM: u32 = 90;
    let major: u32 = version.split('.').next().and_then(|n| n.parse().ok())?;
    let layout = *cubin.get(ABI_VERSION)?;
    let mut copy = cubin.to_vec();
    let mut patch_header = |os_abi: u8, abi: u8, toolkit: u32, flags: u32| -> Option<()> {
        copy.get_mut(OS_ABI..=ABI_VERSION)?.copy_from_slice(&[os_abi, abi]);
        copy.get_mut(VERSION..VERSION + 4)?.copy_from_slice(&toolkit.to_le_bytes());
        copy.get_mut(FLAGS..FLAGS + 4)?.copy_from_slice(&flags.to_le_bytes());
        Some(())
    };
    match (major, layout) {
        (13.., OLDER) => {
            let sm = u32::from(*cubin.get(FLAGS)?);
            patch_header(0x41, NEWER, 1, 0x0600_0004 | sm << 8)?;
        }
        (12, NEWER) => {
            let sm = rgpu_format::cubin::read(cubin).ok()?.sm;
            if sm.number > LAST_OLDER_SM {
                return None;
            }
            let specific = if sm.to_string().ends_with('a') { 0x800 } else { 0 };
            patch_header(0x33, OLDER, 128, 0x500 | specific | sm.number | sm.number << 16)?;
        }
        _ => return None,
    }
    Some(copy)
}

impl Nvdisasm {
    fn local(path: PathBuf, version: String) -> Self {
        Self { version, origin: NvdisasmOrigin::Local { path, limit: None, cache: None } }
    }

    /// Sets the processor time of each call on this machine; `None` derives it from the cubin's
    /// size.
    pub fn with_time_limit(mut self, time: Option<Duration>) -> Self {
        if let NvdisasmOrigin::Local { limit, .. } = &mut self.origin {
            *limit = time;
        }
        self
    }

    /// An nvdisasm on a host, from the listings that it produced.
    pub(super) fn on_host(version: String, host: String, listings: HostListings) -> Self {
        Self { version, origin: NvdisasmOrigin::Host { host, listings: Arc::new(listings) } }
    }

    /// The version, e.g. `13.5.37`.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// The program's path; `None` on a host.
    pub fn path(&self) -> Option<&Path> {
        match &self.origin {
            NvdisasmOrigin::Local { path, .. } => Some(path),
            NvdisasmOrigin::Host { .. } => None,
        }
    }

    /// The name for summaries.
    pub fn name(&self) -> String {
        match &self.origin {
            NvdisasmOrigin::Local { .. } => format!("nvdisasm {}", self.version),
            NvdisasmOrigin::Host { host, .. } => format!("nvdisasm {} on {host}", self.version),
        }
    }

    /// The listing of a cubin. `flags` go before the file; `symbols` are indices of functions in
    /// the symbol table, empty for all.
    ///
    /// # Errors
    /// nvdisasm cannot be run, fails or exceeds its time limit, or the listing was not requested
    /// from the host.
    pub fn listing(
        &self,
        cubin: &[u8],
        flags: &[&str],
        symbols: &[usize],
    ) -> Result<String, ToolError> {
        match &self.origin {
            NvdisasmOrigin::Host { host, listings } => listings
                .listing(cubin, flags, symbols)
                .unwrap_or_else(|| Err(ToolError::NotAsked { host: host.clone() })),
            NvdisasmOrigin::Local { path, limit, cache } => {
                let cached = cache
                    .as_deref()
                    .and_then(|folder| CachedListing::new(folder, path, cubin, flags, symbols));
                if let Some(listing) = cached.as_ref().and_then(CachedListing::read) {
                    return Ok(listing);
                }
                let file = CubinFile::new(path, cubin, &self.version)?;
                let time = limit.unwrap_or_else(|| default_time_limit(cubin.len()));
                let calls = shards::split_calls(cubin, flags, symbols, spare_cores::core_count());
                let run_call = |(): &mut (), at: usize| file.listing(path, &calls[at], time);
                let texts = CORES.parallel_map(calls.len(), || (), run_call);
                let listing = shards::join(texts.into_iter().collect::<Result<_, _>>()?);
                if let Some(cached) = cached {
                    cached.write(&listing);
                }
                Ok(listing)
            }
        }
    }
}

/// A cubin as a file for nvdisasm: in memory on Linux, so that nothing is left behind if this
/// process is killed.
struct CubinFile {
    path: PathBuf,
    max_listing_bytes: u64,
    _handle: FileHandle,
}

/// An instruction of 16 bytes is two lines of a hundred characters, with flow and registers four.
const LISTING_BYTES_PER_BYTE: u64 = 64;

#[cfg(target_os = "linux")]
type FileHandle = std::os::fd::OwnedFd;
#[cfg(not(target_os = "linux"))]
type FileHandle = tempfile::TempPath;

/// The file exists as long as the handle.
#[cfg(target_os = "linux")]
fn create_file(bytes: &[u8]) -> std::io::Result<(PathBuf, FileHandle)> {
    use std::io::Write;
    use std::os::fd::AsRawFd;
    let memory = rustix::fs::memfd_create("rgpu.cubin", rustix::fs::MemfdFlags::CLOEXEC)?;
    let mut file = std::fs::File::from(memory);
    file.write_all(bytes)?;
    let path = format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
    Ok((path.into(), file.into()))
}

/// The file exists as long as the handle.
#[cfg(not(target_os = "linux"))]
fn create_file(bytes: &[u8]) -> std::io::Result<(PathBuf, FileHandle)> {
    let file = tempfile::Builder::new().prefix("rgpu-").suffix(".cubin").tempfile()?;
    std::fs::write(file.path(), bytes)?;
    Ok((file.path().to_owned(), file.into_temp_path()))
}

impl CubinFile {
    fn new(program: &Path, cubin: &[u8], version: &str) -> Result<Self, ToolError> {
        let start = |source| ToolError::Start { program: program.display().to_string(), source };
        let patched = with_expected_header(cubin, version);
        let bytes = patched.as_deref().unwrap_or(cubin);
        let (path, handle) = create_file(bytes).map_err(start)?;
        let max_listing_bytes = MAX_LIST_BYTES + LISTING_BYTES_PER_BYTE * bytes.len() as u64;
        Ok(Self { path, max_listing_bytes, _handle: handle })
    }

    fn listing(
        &self,
        program: &Path,
        words: &[String],
        time: Duration,
    ) -> Result<String, ToolError> {
        let start = |source| ToolError::Start { program: program.display().to_string(), source };
        let mut command = limited_process::command(program);
        command.args(words).arg(&self.path).stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.spawn().map_err(start)?;
        limited_process::limit(&child, time);
        let output = wait_for_answer(child, self.max_listing_bytes).map_err(start)?;
        if limited_process::overran(output.status) {
            return Err(ToolError::Endless { seconds: limited_process::seconds(time) });
        }
        let text = String::from_utf8(output.stdout)
            .unwrap_or_else(|e| String::from_utf8_lossy(e.as_bytes()).into_owned());
        if !output.status.success() || text.trim().is_empty() {
            return Err(tool_failure(&output.stderr, &self.path.display().to_string()));
        }
        Ok(text)
    }
}

/// Processor time limit for a cubin of this size. An intact cubin takes a fraction of it (a second
/// for 50 MB to read, and for 10 MB of code); a damaged one may never end.
fn default_time_limit(bytes: usize) -> Duration {
    const MIN_S: u64 = 30;
    const S_PER_MIB: u64 = 10;
    Duration::from_secs(MIN_S + S_PER_MIB * (bytes as u64 >> 20))
}

/// The error of a call without a listing; `file` is the cubin's name in the message.
pub(super) fn tool_failure(stderr: &[u8], file: &str) -> ToolError {
    ToolError::Failed { words: without_file_name(&String::from_utf8_lossy(stderr), file) }
}

/// nvdisasm's message without the name of the temporary file.
fn without_file_name(words: &str, file: &str) -> String {
    let words = words.replace(file, "the cubin");
    let words: Vec<&str> = words.lines().map(str::trim).filter(|l| !l.is_empty()).take(3).collect();
    if words.is_empty() {
        "it printed nothing".to_owned()
    } else {
        words.join("; ").chars().take(200).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_of_several_is_taken_and_of_equal_ones_the_first() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let played = |name: &str, version: &str| {
            let path = folder.path().join(name);
            let script = format!("#!/bin/sh\necho 'release 1, V{version}'\n");
            std::fs::write(&path, script).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
            path
        };
        let all = [
            played("triton", "12.8.93"),
            played("path", "13.5.37"),
            played("cached", "13.5.37"),
            played("other", "13.10.1"),
            folder.path().join("none"),
        ];
        assert_eq!(find(&all[..3]).unwrap().path(), Some(all[1].as_path()));
        assert_eq!(find(&all).unwrap().path(), Some(all[3].as_path()));
        assert!(find(&all[4..]).is_none());
    }

    #[test]
    fn headers_fit_the_tool_that_reads_them() {
        let read = |name: &str| {
            let fixtures = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/cubin");
            std::fs::read(format!("{fixtures}/{name}.cubin")).unwrap()
        };
        let head = |bytes: &[u8]| {
            let flags = u32::from_le_bytes(bytes[FLAGS..FLAGS + 4].try_into().unwrap());
            (bytes[OS_ABI], bytes[ABI_VERSION], flags)
        };
        let (old, new) = (read("12.9/facts/sm_90a"), read("13.5/facts/sm_90a"));
        let newer = with_expected_header(&old, "13.5.37").unwrap();
        assert_eq!(head(&newer), head(&new));
        let older = with_expected_header(&new, "12.8.55").unwrap();
        assert_eq!(head(&older), head(&old));
        assert!(
            with_expected_header(&old, "12.8.55").is_none()
                && with_expected_header(&new, "13.5.37").is_none()
        );
        assert!(with_expected_header(&read("13.5/facts/sm_100a"), "12.9.79").is_none());
        assert!(
            with_expected_header(b"", "13.5").is_none() && with_expected_header(&new, "").is_none()
        );
    }
}
