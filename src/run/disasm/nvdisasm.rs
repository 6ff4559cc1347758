//! nvdisasm on this machine, for the operands that rgpu does not read itself.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// nvdisasm, found and answering.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nvdisasm {
    /// Where it lies.
    pub path: PathBuf,
    /// Its version, e.g. `13.5.37`.
    pub version: String,
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
        output
            .status
            .success()
            .then(|| Nvdisasm { path: path.clone(), version: version.to_owned() })
    })
}

/// The fields of an ELF header that tell the two layouts of cubins apart.
const OS_ABI: usize = 7;
const ABI_VERSION: usize = 8;
const VERSION: usize = 20;
const FLAGS: usize = 48;

/// A copy in the newer layout's terms: nvdisasm 13 reads the older layout, but without its
/// analysis of control flow. `None` where the file is in the newer layout already.
fn modernized(cubin: &[u8]) -> Option<Vec<u8>> {
    const OLDER: u8 = 7;
    if cubin.get(ABI_VERSION) != Some(&OLDER) {
        return None;
    }
    let mut copy = cubin.to_vec();
    let sm = u32::from(*copy.get(FLAGS)?);
    copy.get_mut(OS_ABI..=ABI_VERSION)?.copy_from_slice(&[0x41, 8]);
    copy.get_mut(VERSION..VERSION + 4)?.copy_from_slice(&1_u32.to_le_bytes());
    copy.get_mut(FLAGS..FLAGS + 4)?.copy_from_slice(&(0x0600_0004 | sm << 8).to_le_bytes());
    Some(copy)
}

impl Nvdisasm {
    /// As summaries name it.
    pub fn name(&self) -> String {
        format!("nvdisasm {}", self.version)
    }

    fn major(&self) -> u32 {
        self.version.split('.').next().and_then(|n| n.parse().ok()).unwrap_or(0)
    }

    /// The listing of a cubin. `flags` go before the file; `symbols` are indices of functions in
    /// the symbol table, empty for all.
    ///
    /// # Errors
    /// It cannot be run, or says why it failed.
    pub fn listing(
        &self,
        cubin: &[u8],
        flags: &[&str],
        symbols: &[usize],
    ) -> Result<String, ToolError> {
        let start = |source| ToolError::Start { program: self.path.display().to_string(), source };
        let modern = if self.major() >= 13 { modernized(cubin) } else { None };
        let file =
            tempfile::Builder::new().prefix("rgpu-").suffix(".cubin").tempfile().map_err(start)?;
        std::fs::write(file.path(), modern.as_deref().unwrap_or(cubin)).map_err(start)?;
        let mut command = Command::new(&self.path);
        command.arg("-c").args(flags);
        if !symbols.is_empty() {
            let list: Vec<String> = symbols.iter().map(usize::to_string).collect();
            command.arg("-fun").arg(list.join(","));
        }
        let output = command.arg(file.path()).stdin(Stdio::null()).output().map_err(start)?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        if !output.status.success() || text.trim().is_empty() {
            let words = String::from_utf8_lossy(&output.stderr);
            let words = named(&words, file.path());
            return Err(ToolError::Failed { words });
        }
        Ok(text)
    }
}

/// The tool's own words without the name of the temporary file.
fn named(words: &str, file: &Path) -> String {
    let words = words.replace(&file.display().to_string(), "the cubin");
    let words: Vec<&str> = words.lines().map(str::trim).filter(|l| !l.is_empty()).take(3).collect();
    match words.is_empty() {
        true => "it printed nothing".to_owned(),
        false => words.join("; ").chars().take(200).collect(),
    }
}
