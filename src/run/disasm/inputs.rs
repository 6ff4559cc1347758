//! Which files a user means: a file is itself, a folder is all files in it that may hold GPU code,
//! a run is the code in its folder.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use rgpu_format::container;

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
pub enum Meant {
    /// A file, or everything in a folder.
    Path(PathBuf),
    /// A run's folder.
    Run(PathBuf),
}

/// The files meant, in the order named; those of a folder sorted by name.
///
/// # Errors
/// A path that is not there, or a folder without any GPU code.
pub fn inputs(meant: &[Meant]) -> Result<Vec<PathBuf>, InputError> {
    let mut files = Vec::new();
    for one in meant {
        match one {
            Meant::Path(path) if path.is_dir() => files.extend(folder(path, path)?),
            Meant::Path(path) if path.exists() => files.push(path.clone()),
            Meant::Path(path) => return Err(InputError::Missing { path: path.clone() }),
            Meant::Run(path) => {
                let cubins = path.join("cubin");
                files.extend(folder(if cubins.is_dir() { &cubins } else { path }, path)?);
            }
        }
    }
    Ok(files)
}

/// Files under `path` that begin like something with GPU code; hidden ones are left out, links to
/// folders not followed.
fn folder(path: &Path, named: &Path) -> Result<Vec<PathBuf>, InputError> {
    let mut found = Vec::new();
    let walk = walkdir::WalkDir::new(path)
        .sort_by_file_name()
        .into_iter()
        .filter_entry(|e| e.depth() == 0 || !e.file_name().to_string_lossy().starts_with('.'));
    for entry in walk {
        let entry = entry.map_err(|e| InputError::Unlisted {
            path: path.to_owned(),
            source: e.into_io_error().unwrap_or_else(|| std::io::ErrorKind::Other.into()),
        })?;
        if entry.file_type().is_file() && may_hold_code(entry.path()) {
            found.push(entry.into_path());
        }
    }
    if found.is_empty() {
        return Err(InputError::Empty { path: named.to_owned() });
    }
    Ok(found)
}

fn may_hold_code(path: &Path) -> bool {
    let mut head = Vec::new();
    let read = fs::File::open(path).and_then(|f| f.take(4096).read_to_end(&mut head));
    read.is_ok() && container::kind(&head).is_some()
}
