//! Which files a user means: a file is itself, a folder is all files in it that may hold GPU code,
//! a run is the code in its folder.

use std::fs;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

use rgpu_format::{container, ncu_rep};

/// Why nothing can be read.
#[derive(Debug, thiserror::Error)]
pub enum InputError {
    /// Neither a file, nor a folder.
    #[error("there is no file or folder `{}`", path.display())]
    Missing {
        /// As the user named it.
        path: PathBuf,
    },
    /// A folder without GPU code.
    #[error("no file in `{}` holds GPU code", path.display())]
    Empty {
        /// The folder.
        path: PathBuf,
    },
    /// A folder cannot be listed.
    #[error("`{}` cannot be listed", path.display())]
    Unlisted {
        /// The folder.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
}

/// What a user named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NamedInput {
    /// A file, or everything in a folder.
    Path(PathBuf),
    /// A file that is there.
    File(PathBuf),
    /// A run's folder.
    Run(PathBuf),
}

/// What is to be read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inputs {
    /// In the order named; those of a folder sorted by name.
    pub files: Vec<PathBuf>,
    /// Reports of ncu in folders, which keep copies of the cubins that lie beside them: passed over
    /// unless their folder holds nothing else.
    pub reports: Vec<PathBuf>,
}

/// The files meant. What is not there, or holds nothing, stands among them where others are there:
/// it is told in its place when they are read.
///
/// # Errors
/// Nothing is there, or a folder cannot be listed.
pub fn inputs(meant: &[NamedInput]) -> Result<Inputs, InputError> {
    let mut inputs = Inputs::default();
    let mut nothing = Vec::new();
    for one in meant {
        let added = match one {
            NamedInput::File(path) => {
                inputs.files.push(path.clone());
                Ok(())
            }
            NamedInput::Path(path) => match fs::metadata(path) {
                Ok(there) if there.is_dir() => folder(path, path, &mut inputs),
                Ok(_) => {
                    inputs.files.push(path.clone());
                    Ok(())
                }
                Err(_) => Err(InputError::Missing { path: path.clone() }),
            },
            NamedInput::Run(path) => {
                let cubins = path.join("cubin");
                let within = if cubins.is_dir() { &cubins } else { path };
                folder(within, path, &mut inputs)
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
                nothing.push(error);
            }
        }
    }
    match nothing.len() == inputs.files.len() {
        true => nothing.into_iter().next().map_or(Ok(inputs), Err),
        false => Ok(inputs),
    }
}

/// Bytes by which kinds of files are told.
const SNIFF_BYTES: u64 = 4096;

/// The bytes of a file that is to be read; of one that begins like nothing with GPU code the first
/// ones, by which the reader refuses it as it would the whole.
pub(super) fn bytes(path: &Path) -> Result<Vec<u8>, String> {
    let unread = |e: std::io::Error| match e.kind() {
        ErrorKind::NotFound => "there is no such file".to_owned(),
        // Where folders cannot be opened.
        _ if path.is_dir() => FOLDER.to_owned(),
        _ => format!("the file cannot be read: {e}"),
    };
    let mut file = fs::File::open(path).map_err(unread)?;
    let there = file.metadata().map_err(unread)?;
    if there.is_dir() {
        return Err(FOLDER.to_owned());
    }
    if endless(there.file_type()) {
        return Err("a device, not a file".to_owned());
    }
    let mut data = Vec::new();
    file.by_ref().take(SNIFF_BYTES).read_to_end(&mut data).map_err(unread)?;
    if data.is_empty() {
        return Err("the file is empty".to_owned());
    }
    if container::kind(&data).is_none() && !ncu_rep::begins(&data) {
        return Ok(data);
    }
    // A byte more than it has: then the end is seen without growing.
    let rest = usize::try_from(there.len()).unwrap_or_default().saturating_sub(data.len());
    data.try_reserve_exact(rest.saturating_add(1))
        .map_err(|_| "the file does not fit into memory".to_owned())?;
    // `take`, so that nobody asks once more how large it is.
    file.take(u64::MAX).read_to_end(&mut data).map_err(unread)?;
    Ok(data)
}

/// A folder that was named.
const FOLDER: &str = "no file in it holds GPU code";

/// What may never come to an end.
#[cfg(unix)]
fn endless(kind: fs::FileType) -> bool {
    use std::os::unix::fs::FileTypeExt;
    kind.is_char_device() || kind.is_block_device()
}

#[cfg(not(unix))]
fn endless(_: fs::FileType) -> bool {
    false
}

/// Adds the files under `path` that begin like something with GPU code; hidden ones are left out,
/// links to folders not followed.
fn folder(path: &Path, named: &Path, inputs: &mut Inputs) -> Result<(), InputError> {
    let (mut found, mut reports) = (Vec::new(), Vec::new());
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
            found.push(entry.into_path());
        } else if entry.path().extension().is_some_and(|x| x == "ncu-rep" || x == "ncu-repz") {
            reports.push(entry.into_path());
        }
    }
    if found.is_empty() {
        found = std::mem::take(&mut reports);
    }
    if found.is_empty() {
        return Err(InputError::Empty { path: named.to_owned() });
    }
    inputs.files.extend(found);
    inputs.reports.extend(reports);
    Ok(())
}

fn may_hold_code(path: &Path) -> bool {
    let mut head = Vec::new();
    let read = fs::File::open(path).and_then(|f| f.take(SNIFF_BYTES).read_to_end(&mut head));
    read.is_ok() && container::kind(&head).is_some()
}
