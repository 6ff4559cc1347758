//! Finds the input files: a file itself, all files in a folder that may hold GPU code, or the code
//! in a run's folder.

#![expect(clippy::disallowed_methods, reason = "files that the user named")]

use std::fs;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

use rgpu_format::{container, ncu_rep};
use rgpu_model::agent_files;

use crate::foreign_file;

/// Why there is nothing to read.
#[derive(Debug, thiserror::Error)]
pub enum InputError {
    /// There is no such file or folder.
    #[error("there is no file or folder `{}`", path.display())]
    Missing {
        /// The path as given by the user.
        path: PathBuf,
    },
    /// A folder without GPU code.
    #[error("no file in `{}` holds GPU code", path.display())]
    Empty {
        /// The folder that the user named, or a run's folder.
        path: PathBuf,
    },
    /// A folder cannot be listed.
    #[error("`{}` cannot be listed", path.display())]
    Unlisted {
        /// The folder that the user named, or `cubin/` of a run.
        path: PathBuf,
        /// The operating system's error.
        #[source]
        source: std::io::Error,
    },
}

/// An input that the user named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NamedInput {
    /// A file, or everything in a folder.
    Path(PathBuf),
    /// A file that exists: it is not checked again.
    File(PathBuf),
    /// The folder of a run. Its `cubin/` is read, or all of it if it has none.
    Run(PathBuf),
}

/// The files to read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inputs {
    /// In the order named; files of a folder are sorted by name.
    pub files: Vec<PathBuf>,
    /// ncu reports in folders. They contain copies of cubins, so they are skipped unless their
    /// folder holds no other GPU code.
    pub reports: Vec<PathBuf>,
}

/// The files for the user's inputs. A missing or empty input is kept among several, so that its
/// error is reported in its position.
pub fn inputs(named_inputs: &[NamedInput]) -> Result<Inputs, InputError> {
    let mut inputs = Inputs::default();
    let mut errors = Vec::new();
    for input in named_inputs {
        let added = match input {
            NamedInput::File(path) => {
                inputs.files.push(path.clone());
                Ok(())
            }
            NamedInput::Path(path) => match fs::metadata(path) {
                Ok(metadata) if metadata.is_dir() => folder(path, path, &mut inputs),
                Ok(_) => {
                    inputs.files.push(path.clone());
                    Ok(())
                }
                Err(_) => Err(InputError::Missing { path: path.clone() }),
            },
            NamedInput::Run(path) => {
                let cubins = path.join("cubin");
                let code_folder = if cubins.is_dir() { &cubins } else { path };
                folder(code_folder, path, &mut inputs)
            }
        };
        match added {
            Ok(()) => {}
            Err(unlisted @ InputError::Unlisted { .. }) => return Err(unlisted),
            Err(error) => {
                let (InputError::Missing { path }
                | InputError::Empty { path }
                | InputError::Unlisted { path, .. }) = &error;
                inputs.files.push(path.clone());
                errors.push(error);
            }
        }
    }
    if errors.len() == inputs.files.len() {
        errors.into_iter().next().map_or(Ok(inputs), Err)
    } else {
        Ok(inputs)
    }
}

/// Number of bytes read to detect a file's kind.
const SNIFF_BYTES: u64 = 4096;

/// Reads a file; only its beginning if that does not look like GPU code, which is enough for the
/// reader to reject it.
pub(super) fn bytes(path: &Path) -> Result<Vec<u8>, String> {
    let read_error = |e: std::io::Error| match e.kind() {
        ErrorKind::NotFound => "there is no such file".to_owned(),
        // For systems where a folder cannot be opened as a file.
        _ if path.is_dir() => NO_CODE_IN_FOLDER.to_owned(),
        _ => format!("the file cannot be read: {e}"),
    };
    let mut file = agent_files::open_named(path).map_err(read_error)?;
    let metadata = file.metadata().map_err(read_error)?;
    if metadata.is_dir() {
        return Err(NO_CODE_IN_FOLDER.to_owned());
    }
    if is_device(metadata.file_type()) {
        return Err("a device, not a file".to_owned());
    }
    let mut data = Vec::new();
    file.by_ref().take(SNIFF_BYTES).read_to_end(&mut data).map_err(read_error)?;
    if data.is_empty() {
        return Err("the file is empty".to_owned());
    }
    if container::kind(&data).is_none() && !ncu_rep::begins(&data) {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if let Some(known) = foreign_file::recognise(&name, &data) {
            return Err(format!("{}; {}", known.what, known.next_step));
        }
        return Ok(data);
    }
    // One byte more than the file's size, so that the end is seen without growing the buffer.
    let rest = usize::try_from(metadata.len()).unwrap_or_default().saturating_sub(data.len());
    data.try_reserve_exact(rest.saturating_add(1))
        .map_err(|_| "the file does not fit into memory".to_owned())?;
    // `take` hides the file's size, which `read_to_end` would query again.
    file.take(u64::MAX).read_to_end(&mut data).map_err(read_error)?;
    Ok(data)
}

/// The error for a folder given as a file.
const NO_CODE_IN_FOLDER: &str = "no file in it holds GPU code";

/// Whether reading may never end.
#[cfg(unix)]
fn is_device(kind: fs::FileType) -> bool {
    use std::os::unix::fs::FileTypeExt;
    kind.is_char_device() || kind.is_block_device()
}

#[cfg(not(unix))]
fn is_device(_: fs::FileType) -> bool {
    false
}

/// Adds the files below `path` that look like GPU code. Hidden files are skipped, and links to
/// folders are not followed.
fn folder(path: &Path, named: &Path, inputs: &mut Inputs) -> Result<(), InputError> {
    let (mut files, mut reports) = (Vec::new(), Vec::new());
    let walk = walkdir::WalkDir::new(path)
        .sort_by_file_name()
        .into_iter()
        .filter_entry(|e| e.depth() == 0 || !e.file_name().to_string_lossy().starts_with('.'));
    for entry in walk {
        let entry = entry.map_err(|e| InputError::Unlisted {
            path: path.to_owned(),
            source: e.into_io_error().unwrap_or_else(|| std::io::ErrorKind::Other.into()),
        })?;
        if !entry.file_type().is_file() {
            continue;
        }
        if may_hold_code(entry.path()) {
            files.push(entry.into_path());
        } else if entry.path().extension().is_some_and(|x| x == "ncu-rep" || x == "ncu-repz") {
            reports.push(entry.into_path());
        }
    }
    if files.is_empty() {
        files = std::mem::take(&mut reports);
    }
    if files.is_empty() {
        return Err(InputError::Empty { path: named.to_owned() });
    }
    inputs.files.extend(files);
    inputs.reports.extend(reports);
    Ok(())
}

fn may_hold_code(path: &Path) -> bool {
    let mut head = Vec::new();
    let read =
        agent_files::open_named(path).and_then(|f| f.take(SNIFF_BYTES).read_to_end(&mut head));
    read.is_ok() && container::kind(&head).is_some()
}
