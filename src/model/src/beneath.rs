//! Files below a folder that somebody else may have filled: a project's `.rgpu` and `artifacts`, a
//! run folder.
//!
//! A [`Folder`] is opened once. Everything below it is opened, created and removed from its
//! descriptor, and no component of a path below it may be a symbolic link: such a folder can come
//! with a clone, and a link there would lead to the user's other files. On Linux the kernel holds
//! this (`openat2`), elsewhere each folder on the way is opened by itself. Only regular files are
//! opened, without blocking. Links above the folder are followed: the user named it.
//!
//! A path below a folder is relative to it, or absolute and begins with the folder's own path.

#![expect(
    clippy::disallowed_methods,
    reason = "this module is the one that opens, creates and removes there"
)]

use std::collections::hash_map::RandomState;
use std::ffi::OsString;
use std::fs::File;
use std::hash::{BuildHasher, Hasher};
use std::io::{self, IoSlice, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::SystemTime;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

/// The mode of new files and folders, before the user's umask.
const FILE_MODE: u32 = 0o666;
const FOLDER_MODE: u32 = 0o777;

/// The mode of a folder that is for its owner alone.
const PRIVATE_FOLDER_MODE: u32 = 0o700;

/// Deeper folders are neither listed nor removed: each level takes a descriptor.
const MAX_DEPTH: usize = 200;

/// A path below a folder has a symbolic link as a component.
#[derive(Clone, Debug, thiserror::Error)]
#[error("`{}` is a symbolic link, which is not followed", .0.display())]
pub struct LinkError(pub PathBuf);

/// The link that an error is about, if it is about one.
pub fn link_of(error: &io::Error) -> Option<&Path> {
    error.get_ref()?.downcast_ref().map(|LinkError(path)| path.as_path())
}

/// Folders of projects that are opened without a link, whatever path leads there.
static HELD: RwLock<Vec<HeldFolder>> = RwLock::new(Vec::new());

/// A folder of a project, such as `artifacts`.
#[derive(Debug, PartialEq)]
struct HeldFolder {
    project: PathBuf,
    /// Its path below the project.
    inner: PathBuf,
}

/// From here on [`Folder::open`], [`Folder::create`] and [`open_held`] follow no link to the folder
/// `inner` of this project nor below it: a path that was checked is opened without another look.
pub fn hold(project: &Path, inner: &Path) {
    let held = HeldFolder { project: project.to_owned(), inner: inner.to_owned() };
    let mut all = HELD.write().unwrap_or_else(PoisonError::into_inner);
    if !all.contains(&held) {
        all.push(held);
    }
}

/// The project of a path to or below one of its held folders, and the path below the project.
fn held(path: &Path) -> Option<(PathBuf, PathBuf)> {
    let path = std::path::absolute(path).ok()?;
    let all = HELD.read().unwrap_or_else(PoisonError::into_inner);
    let found = all.iter().find(|held| path.starts_with(held.project.join(&held.inner)))?;
    Some((found.project.clone(), path.strip_prefix(&found.project).ok()?.to_owned()))
}

/// Opens a regular file to read if it is below a held folder; `None` if it is elsewhere.
///
/// # Errors
/// As [`Folder::open_file`].
pub fn open_held(path: &Path) -> Option<io::Result<File>> {
    let (project, inner) = held(path)?;
    Some(Folder::open(&project).and_then(|folder| folder.open_file(inner)))
}

/// An open folder, from which everything below it is reached. Clones share one handle.
#[derive(Clone, Debug)]
pub struct Folder {
    handle: Arc<OwnedFd>,
    path: PathBuf,
}

/// A file or folder in a folder.
#[derive(Debug)]
pub struct Entry {
    /// Its path below the folder that was listed.
    pub path: PathBuf,
    /// What it is; a link is not followed.
    pub kind: FileType,
    /// Size in bytes.
    pub bytes: u64,
}

impl Folder {
    /// Opens a folder that the user named. Links in its path are followed, unless it is held
    /// ([`hold`]).
    ///
    /// # Errors
    /// I/O errors; it is no folder.
    pub fn open(path: &Path) -> io::Result<Self> {
        if let Some((project, inner)) = held(path) {
            let opened = Self::open(&project)?.folder(inner)?;
            return Ok(Self { path: path.to_owned(), ..opened });
        }
        let named = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        let handle = rustix::fs::open(named, folder_flags(), Mode::empty())?;
        Ok(Self { handle: Arc::new(handle), path: path.to_owned() })
    }

    /// As [`Folder::open`]; creates the folder and those above it if needed.
    pub fn create(path: &Path) -> io::Result<Self> {
        match held(path) {
            Some((project, inner)) => drop(Self::open(&project)?.make_folder(inner)?),
            None => std::fs::create_dir_all(path)?,
        }
        Self::open(path)
    }

    /// The folder's inode, and its time of birth if the file system keeps it: together no other
    /// folder of this file system has them, not even a later one.
    pub fn identity(&self) -> io::Result<(u64, Option<SystemTime>)> {
        let about = File::from(self.handle.try_clone()?).metadata()?;
        Ok((about.ino(), about.created().ok()))
    }

    /// The path of the folder, for messages and for programs that rgpu starts.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Opens a folder below this one.
    pub fn folder(&self, path: impl AsRef<Path>) -> io::Result<Self> {
        let path = self.inner(path.as_ref());
        let handle = if path.as_os_str().is_empty() {
            self.handle.try_clone()?
        } else {
            self.open_with(path, folder_flags(), Mode::empty())?
        };
        Ok(Self { handle: Arc::new(handle), path: self.path.join(path) })
    }

    /// Opens a folder below this one, and creates it and those above it if needed.
    pub fn make_folder(&self, path: impl AsRef<Path>) -> io::Result<Self> {
        self.make_folder_with(path.as_ref(), FOLDER_MODE)
    }

    /// As [`Folder::make_folder`]; what is created is for its owner alone.
    pub fn make_private_folder(&self, path: impl AsRef<Path>) -> io::Result<Self> {
        self.make_folder_with(path.as_ref(), PRIVATE_FOLDER_MODE)
    }

    fn make_folder_with(&self, path: &Path, mode: u32) -> io::Result<Self> {
        let path = self.inner(path);
        if let Ok(folder) = self.folder(path) {
            return Ok(folder);
        }
        let mut folder = self.folder("")?;
        for part in parts(path)? {
            match rustix::fs::mkdirat(&folder.handle, part, Mode::from_raw_mode(mode)) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
            }
            folder = folder.folder(part)?;
        }
        Ok(folder)
    }

    /// Creates a folder that does not exist yet. The folder above it must exist.
    ///
    /// # Errors
    /// [`io::ErrorKind::AlreadyExists`]; as [`Folder::folder`].
    pub fn new_folder(&self, path: impl AsRef<Path>) -> io::Result<Self> {
        self.new_folder_with(path.as_ref(), FOLDER_MODE)
    }

    /// As [`Folder::new_folder`], for its owner alone.
    pub fn new_private_folder(&self, path: impl AsRef<Path>) -> io::Result<Self> {
        self.new_folder_with(path.as_ref(), PRIVATE_FOLDER_MODE)
    }

    fn new_folder_with(&self, path: &Path, mode: u32) -> io::Result<Self> {
        let (parent, name) = self.parent_of(path)?;
        rustix::fs::mkdirat(&parent, name, Mode::from_raw_mode(mode))?;
        self.folder(path)
    }

    /// Opens a regular file for reading.
    ///
    /// # Errors
    /// I/O errors, a [`LinkError`]; it is no regular file.
    pub fn open_file(&self, path: impl AsRef<Path>) -> io::Result<File> {
        regular(self.open_with(path.as_ref(), OFlags::RDONLY | file_flags(), Mode::empty())?)
    }

    /// Reads a regular file of at most `max_bytes`.
    ///
    /// # Errors
    /// As [`Folder::open_file`]; it is larger.
    pub fn read(&self, path: impl AsRef<Path>, max_bytes: u64) -> io::Result<Vec<u8>> {
        crate::regular_file::read_from(self.open_file(path)?, max_bytes)
    }

    /// As [`Folder::read`], as text.
    ///
    /// # Errors
    /// As [`Folder::read`]; it is not UTF-8.
    pub fn read_to_string(&self, path: impl AsRef<Path>, max_bytes: u64) -> io::Result<String> {
        let text = String::from_utf8(self.read(path, max_bytes)?);
        text.map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))
    }

    /// Creates a file that does not exist yet, for writing.
    ///
    /// # Errors
    /// [`io::ErrorKind::AlreadyExists`], which a link is too; I/O errors, a [`LinkError`].
    pub fn create_new(&self, path: impl AsRef<Path>, mode: u32) -> io::Result<File> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | file_flags();
        let (parent, name) = self.parent_of(path.as_ref())?;
        Ok(rustix::fs::openat(&parent, name, flags, Mode::from_raw_mode(mode))?.into())
    }

    /// Opens a regular file for reading and appending, or creates it with `mode`.
    ///
    /// # Errors
    /// I/O errors, a [`LinkError`]; it is no regular file, or has a second name elsewhere.
    pub fn append(&self, path: impl AsRef<Path>, mode: u32) -> io::Result<File> {
        self.open_or_create(path.as_ref(), OFlags::APPEND, mode)
    }

    /// As [`Folder::append`], for writing anywhere in the file.
    pub fn update(&self, path: impl AsRef<Path>, mode: u32) -> io::Result<File> {
        self.open_or_create(path.as_ref(), OFlags::empty(), mode)
    }

    fn open_or_create(&self, path: &Path, flags: OFlags, mode: u32) -> io::Result<File> {
        let flags = OFlags::RDWR | OFlags::CREATE | flags | file_flags();
        let file = regular(self.open_with(path, flags, Mode::from_raw_mode(mode))?)?;
        match file.metadata()?.nlink() {
            0 | 1 => Ok(file),
            _ => Err(io::Error::other("it has another name (a hard link)")),
        }
    }

    /// Writes a file in one step, replacing what has its name, and creates the folders above it.
    ///
    /// # Errors
    /// I/O errors, a [`LinkError`]; the temporary file is removed.
    pub fn write(&self, path: impl AsRef<Path>, bytes: &[u8]) -> io::Result<()> {
        self.write_parts(path, [bytes])
    }

    /// As [`Folder::write`], with the concatenation of `parts`.
    pub fn write_parts<'p>(
        &self,
        path: impl AsRef<Path>,
        parts: impl IntoIterator<Item = &'p [u8]>,
    ) -> io::Result<()> {
        let (mut file, new) = self.begin(path)?;
        let mut slices: Vec<IoSlice<'_>> = parts.into_iter().map(IoSlice::new).collect();
        let mut remaining = slices.as_mut_slice();
        IoSlice::advance_slices(&mut remaining, 0);
        while !remaining.is_empty() {
            match file.write_vectored(remaining) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => IoSlice::advance_slices(&mut remaining, written),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        new.finish()
    }

    /// As [`Folder::write`], with these permissions, and synced to the disk.
    pub fn write_with_mode(
        &self,
        path: impl AsRef<Path>,
        bytes: &[u8],
        mode: u32,
    ) -> io::Result<()> {
        let (mut file, new) = self.begin_with_mode(path, mode)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        new.finish()
    }

    /// Begins a file that replaces what has its name once it is finished. Creates the folders above
    /// it.
    pub fn begin(&self, path: impl AsRef<Path>) -> io::Result<(File, NewFile)> {
        self.begin_with_mode(path, FILE_MODE)
    }

    /// As [`Folder::begin`], with these permissions before the user's umask.
    pub fn begin_with_mode(
        &self,
        path: impl AsRef<Path>,
        mode: u32,
    ) -> io::Result<(File, NewFile)> {
        let path = self.inner(path.as_ref());
        let (Some(name), Some(parent)) = (path.file_name(), path.parent()) else {
            return Err(not_below(path));
        };
        let folder = self.make_folder(parent)?;
        loop {
            let temporary = temporary_name();
            match folder.create_new(&temporary, mode) {
                Ok(file) => {
                    let name = PathBuf::from(name);
                    return Ok((file, NewFile { folder, name, temporary: Some(temporary) }));
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Makes a symbolic link with the content `target`, replacing a link or file. rgpu never
    /// follows it.
    pub fn link(&self, target: impl AsRef<Path>, path: impl AsRef<Path>) -> io::Result<()> {
        let (parent, name) = self.parent_of(path.as_ref())?;
        let temporary = temporary_name();
        rustix::fs::symlinkat(target.as_ref(), &parent, &*temporary)?;
        let renamed = rustix::fs::renameat(&parent, &*temporary, &parent, name);
        if renamed.is_err() {
            let _ = rustix::fs::unlinkat(&parent, &*temporary, AtFlags::empty());
        }
        Ok(renamed?)
    }

    /// The content of a symbolic link.
    ///
    /// # Errors
    /// I/O errors, a [`LinkError`] above it; it is no link.
    pub fn link_target(&self, path: impl AsRef<Path>) -> io::Result<PathBuf> {
        let (parent, name) = self.parent_of(path.as_ref())?;
        let target = rustix::fs::readlinkat(&parent, name, Vec::new())?;
        Ok(PathBuf::from(OsString::from_vec(target.into_bytes())))
    }

    /// What has this path, without following a link; `None` if nothing has.
    pub fn stat(&self, path: impl AsRef<Path>) -> io::Result<Option<Stat>> {
        let found = self.parent_of(path.as_ref()).and_then(|(parent, name)| {
            Ok(rustix::fs::statat(&parent, name, AtFlags::SYMLINK_NOFOLLOW)?)
        });
        match found {
            Ok(stat) => Ok(Some(stat)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Whether a regular file has this path.
    pub fn is_file(&self, path: impl AsRef<Path>) -> bool {
        self.kind(path) == Some(FileType::RegularFile)
    }

    /// What has this path; a link is not followed. `None` if nothing can be found there.
    pub fn kind(&self, path: impl AsRef<Path>) -> Option<FileType> {
        let stat = self.stat(path).ok()??;
        Some(FileType::from_raw_mode(stat.st_mode))
    }

    /// When a regular file was last changed.
    pub fn modified(&self, path: impl AsRef<Path>) -> Option<SystemTime> {
        self.open_file(path).ok()?.metadata().ok()?.modified().ok()
    }

    /// What is directly in this folder, sorted by name.
    pub fn entries(&self) -> io::Result<Vec<Entry>> {
        let mut entries = Vec::new();
        for entry in Dir::read_from(&self.handle)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if name == b"." || name == b".." {
                continue;
            }
            let name = Path::new(std::ffi::OsStr::from_bytes(name));
            // Without a stat it was removed meanwhile.
            let Some(stat) = self.stat(name)? else { continue };
            entries.push(Entry {
                path: name.to_owned(),
                kind: FileType::from_raw_mode(stat.st_mode),
                bytes: u64::try_from(stat.st_size).unwrap_or_default(),
            });
        }
        entries.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(entries)
    }

    /// Everything below this folder, sorted by name; a folder stands before what is in it.
    ///
    /// # Errors
    /// I/O errors; the folders are nested too deeply.
    pub fn walk(&self) -> io::Result<Vec<Entry>> {
        let mut found = Vec::new();
        self.walk_into(Path::new(""), 0, &mut found)?;
        Ok(found)
    }

    fn walk_into(&self, above: &Path, depth: usize, found: &mut Vec<Entry>) -> io::Result<()> {
        if depth > MAX_DEPTH {
            return Err(too_deep());
        }
        for entry in self.entries()? {
            let inner = (entry.kind == FileType::Directory).then(|| self.folder(&entry.path));
            let path = above.join(&entry.path);
            found.push(Entry { path: path.clone(), ..entry });
            match inner {
                Some(Ok(inner)) => inner.walk_into(&path, depth + 1, found)?,
                Some(Err(e)) if e.kind() != io::ErrorKind::NotFound => return Err(e),
                _ => {}
            }
        }
        Ok(())
    }

    /// The path of the first link below this folder, if there is one.
    pub fn first_link(&self) -> io::Result<Option<PathBuf>> {
        let found = self.walk()?.into_iter().find(|entry| entry.kind == FileType::Symlink);
        Ok(found.map(|entry| self.path.join(entry.path)))
    }

    /// Removes a file or a link, not what a link leads to.
    pub fn remove_file(&self, path: impl AsRef<Path>) -> io::Result<()> {
        let (parent, name) = self.parent_of(path.as_ref())?;
        Ok(rustix::fs::unlinkat(&parent, name, AtFlags::empty())?)
    }

    /// Removes a folder with all that is in it. Links in it are removed, and never followed.
    pub fn remove_folder(&self, path: impl AsRef<Path>) -> io::Result<()> {
        let path = path.as_ref();
        let (parent, name) = self.parent_of(path)?;
        self.folder(path)?.empty(0)?;
        Ok(rustix::fs::unlinkat(&parent, name, AtFlags::REMOVEDIR)?)
    }

    /// Removes a folder that has nothing in it.
    ///
    /// # Errors
    /// I/O errors, a [`LinkError`] above it; it is not empty.
    pub fn remove_empty_folder(&self, path: impl AsRef<Path>) -> io::Result<()> {
        let (parent, name) = self.parent_of(path.as_ref())?;
        Ok(rustix::fs::unlinkat(&parent, name, AtFlags::REMOVEDIR)?)
    }

    fn empty(&self, depth: usize) -> io::Result<()> {
        if depth > MAX_DEPTH {
            return Err(too_deep());
        }
        for entry in self.entries()? {
            let flags = match entry.kind {
                FileType::Directory => {
                    self.folder(&entry.path)?.empty(depth + 1)?;
                    AtFlags::REMOVEDIR
                }
                _ => AtFlags::empty(),
            };
            match rustix::fs::unlinkat(&self.handle, &entry.path, flags) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Renames a file or folder below this folder, replacing a file.
    pub fn rename(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> io::Result<()> {
        let (from_folder, from) = self.parent_of(from.as_ref())?;
        let (to_folder, to) = self.parent_of(to.as_ref())?;
        Ok(rustix::fs::renameat(&from_folder, from, &to_folder, to)?)
    }

    /// Waits for the lock of the folder above `path`, which each write of a file there replaces.
    /// Dropping the file releases it. On a file system without locks it does not wait.
    pub fn lock_parent_of(&self, path: impl AsRef<Path>) -> io::Result<File> {
        let path = path.as_ref();
        let folder = self.make_folder(path.parent().unwrap_or(Path::new("")))?;
        // Opened once more: clones of one descriptor share its lock.
        let lock = rustix::fs::openat(&folder.handle, ".", folder_flags(), Mode::empty())?;
        let lock = File::from(lock);
        let _ = lock.lock();
        Ok(lock)
    }

    /// Opens the folder above `path`, and gives the name in it.
    fn parent_of<'p>(&self, path: &'p Path) -> io::Result<(OwnedFd, &'p Path)> {
        let path = self.inner(path);
        let name = path.file_name().ok_or_else(|| not_below(path))?;
        let above = path.parent().unwrap_or(Path::new(""));
        let parent = if above.as_os_str().is_empty() {
            self.handle.try_clone()?
        } else {
            self.open_with(above, folder_flags(), Mode::empty())?
        };
        Ok((parent, Path::new(name)))
    }

    /// `path` from this folder.
    fn inner<'p>(&self, path: &'p Path) -> &'p Path {
        if path.is_absolute() { path.strip_prefix(&self.path).unwrap_or(path) } else { path }
    }

    fn open_with(&self, path: &Path, flags: OFlags, mode: Mode) -> io::Result<OwnedFd> {
        let path = self.inner(path);
        // Refuses what leads out before the kernel sees it.
        parts(path)?;
        let flags = flags | OFlags::CLOEXEC;
        #[cfg(target_os = "linux")]
        {
            use rustix::fs::ResolveFlags;
            let resolve =
                ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
            match rustix::fs::openat2(&self.handle, path, flags, mode, resolve) {
                // Old kernels, and containers that do not allow the call. A link: the walk finds
                // which.
                Err(Errno::NOSYS | Errno::PERM | Errno::LOOP | Errno::AGAIN) => {}
                opened => return Ok(opened?),
            }
        }
        self.open_by_steps(path, flags, mode)
    }

    /// As `openat2` without links: each folder on the way is opened by itself.
    fn open_by_steps(&self, path: &Path, flags: OFlags, mode: Mode) -> io::Result<OwnedFd> {
        let parts = parts(path)?;
        let mut folder = self.handle.try_clone()?;
        for (at, part) in parts.iter().enumerate() {
            let is_last = at + 1 == parts.len();
            let (flags, mode) = if is_last {
                (flags | OFlags::NOFOLLOW, mode)
            } else {
                (folder_flags() | OFlags::NOFOLLOW, Mode::empty())
            };
            folder = rustix::fs::openat(&folder, *part, flags, mode).map_err(|error| {
                if is_link(folder.as_fd(), part) {
                    let link: PathBuf = parts[..=at].iter().collect();
                    io::Error::other(LinkError(self.path.join(link)))
                } else {
                    error.into()
                }
            })?;
        }
        Ok(folder)
    }
}

/// A file that is written under a temporary name, and removed unless it is finished.
#[derive(Debug)]
pub struct NewFile {
    folder: Folder,
    name: PathBuf,
    /// `None` once the file has its final name.
    temporary: Option<String>,
}

impl NewFile {
    /// Gives the file its final name, replacing an existing file.
    ///
    /// # Errors
    /// I/O errors; the temporary file is removed.
    pub fn finish(mut self) -> io::Result<()> {
        if let Some(temporary) = &self.temporary {
            self.folder.rename(temporary, &self.name)?;
            self.temporary = None;
        }
        Ok(())
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if let Some(temporary) = &self.temporary {
            let _ = self.folder.remove_file(temporary);
        }
    }
}

/// A name that no other file of a folder has.
fn temporary_name() -> String {
    format!(".writing-{:016x}", RandomState::new().build_hasher().finish())
}

fn folder_flags() -> OFlags {
    OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC
}

/// Opening a pipe would block without these.
fn file_flags() -> OFlags {
    OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC
}

fn is_link(folder: impl AsFd, name: &Path) -> bool {
    rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)
        .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Symlink)
}

fn regular(handle: OwnedFd) -> io::Result<File> {
    let file = File::from(handle);
    if file.metadata()?.is_file() {
        Ok(file)
    } else {
        Err(io::Error::other("it is not a regular file"))
    }
}

/// The names in a path below a folder.
fn parts(path: &Path) -> io::Result<Vec<&Path>> {
    let name = |part| match part {
        Component::Normal(name) => Ok(Path::new(name)),
        _ => Err(not_below(path)),
    };
    let parts: Vec<&Path> = path
        .components()
        .filter(|part| *part != Component::CurDir)
        .map(name)
        .collect::<io::Result<_>>()?;
    if parts.is_empty() { Err(not_below(path)) } else { Ok(parts) }
}

fn not_below(path: &Path) -> io::Error {
    let text = format!("`{}` is no path below the folder", path.display());
    io::Error::new(io::ErrorKind::InvalidInput, text)
}

fn too_deep() -> io::Error {
    io::Error::other(format!("its folders are nested more than {MAX_DEPTH} deep"))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Read;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    /// A project with a link in each position, and a folder outside that must not change.
    fn prepared() -> (tempfile::TempDir, Folder) {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        fs::create_dir_all(path("in/a/b")).unwrap();
        fs::create_dir_all(path("out/deep")).unwrap();
        for name in ["in/a/b/file", "out/secret", "out/deep/file"] {
            fs::write(path(name), "text").unwrap();
        }
        symlink("../out", path("in/link")).unwrap();
        symlink("../../out", path("in/a/link")).unwrap();
        symlink("../out/secret", path("in/secret")).unwrap();
        symlink("../out/new", path("in/dangling")).unwrap();
        symlink("a", path("in/inner")).unwrap();
        let folder = Folder::open(&path("in")).unwrap();
        (dir, folder)
    }

    const THROUGH_LINKS: [&str; 6] =
        ["link/secret", "link/deep/file", "a/link/secret", "secret", "inner/b/file", "link/new"];

    fn outside_is_whole(dir: &tempfile::TempDir) {
        let names = |name: &str| {
            let entries = fs::read_dir(dir.path().join(name)).unwrap();
            entries.count()
        };
        assert_eq!((names("out"), names("out/deep")), (2, 1));
        for name in ["out/secret", "out/deep/file"] {
            assert_eq!(fs::read(dir.path().join(name)).unwrap(), b"text");
        }
    }

    #[test]
    fn nothing_is_opened_written_or_removed_through_a_link() {
        let (dir, folder) = prepared();
        for path in THROUGH_LINKS {
            let refused = |error: io::Error| assert!(link_of(&error).is_some(), "{path}: {error}");
            refused(folder.open_file(path).unwrap_err());
            refused(folder.append(path, 0o600).unwrap_err());
            refused(folder.update(path, 0o600).unwrap_err());
            if path != "secret" {
                refused(folder.write(path, b"x").unwrap_err());
                refused(folder.create_new(path, 0o600).unwrap_err());
                refused(folder.stat(path).unwrap_err());
                refused(folder.remove_file(path).unwrap_err());
                refused(folder.new_folder(path).unwrap_err());
                refused(folder.rename("a/b/file", path).unwrap_err());
                refused(folder.rename(path, "taken").unwrap_err());
                refused(folder.link("x", path).unwrap_err());
            }
            assert!(!folder.is_file(path), "{path}");
        }
        for path in ["link", "a/link", "inner", "link/deep"] {
            assert!(link_of(&folder.folder(path).unwrap_err()).is_some(), "{path}");
            assert!(link_of(&folder.make_folder(path).unwrap_err()).is_some(), "{path}");
            assert!(link_of(&folder.remove_folder(path).unwrap_err()).is_some(), "{path}");
        }
        assert!(folder.append("dangling", 0o600).is_err());
        assert_eq!(
            folder.create_new("dangling", 0o600).unwrap_err().kind(),
            io::ErrorKind::AlreadyExists
        );
        outside_is_whole(&dir);
    }

    #[test]
    fn the_walk_by_steps_refuses_what_the_kernel_refuses() {
        let (dir, folder) = prepared();
        for path in THROUGH_LINKS {
            let opened = folder.open_by_steps(Path::new(path), OFlags::RDONLY, Mode::empty());
            assert!(link_of(&opened.unwrap_err()).is_some(), "{path}");
        }
        let path = Path::new("a/b/file");
        let file = folder.open_by_steps(path, OFlags::RDONLY, Mode::empty()).unwrap();
        let mut text = String::new();
        File::from(file).read_to_string(&mut text).unwrap();
        assert_eq!(text, "text");
        outside_is_whole(&dir);
    }

    #[test]
    fn a_held_folder_is_not_reached_through_a_link_that_took_its_place() {
        let (dir, _folder) = prepared();
        let project = dir.path().join("in");
        let runs = project.join("a/runs");
        Folder::create(&runs).unwrap().write("one/log", b"x").unwrap();
        // It was checked. Then a program puts a link in its place.
        fs::rename(project.join("a"), project.join("old")).unwrap();
        symlink("../out", project.join("a")).unwrap();
        let deep = project.join("a/deep");
        assert!(Folder::open(&deep).is_ok() && open_held(&deep.join("file")).is_none());
        hold(&project, Path::new("a"));
        for path in [&deep, &runs, &project.join("./a")] {
            assert!(link_of(&Folder::open(path).unwrap_err()).is_some(), "{path:?}");
            assert!(link_of(&Folder::create(path).unwrap_err()).is_some(), "{path:?}");
        }
        let file = open_held(&deep.join("file")).unwrap();
        assert!(link_of(&file.unwrap_err()).is_some());
        fs::remove_file(project.join("a")).unwrap();
        assert_eq!(Folder::create(&runs).unwrap().path(), runs);
        fs::write(runs.join("log"), "text").unwrap();
        assert!(open_held(&runs.join("log")).unwrap().is_ok());
        outside_is_whole(&dir);
    }

    #[test]
    fn a_path_that_leads_out_is_refused() {
        let (dir, folder) = prepared();
        let absolute = dir.path().join("out/secret");
        for path in ["../out/secret", "a/../../out/secret", "", ".", absolute.to_str().unwrap()] {
            assert!(folder.open_file(path).is_err(), "{path}");
            assert!(folder.write(path, b"x").is_err(), "{path}");
            assert!(folder.remove_file(path).is_err(), "{path}");
            assert!(folder.remove_folder(path).is_err(), "{path}");
        }
        outside_is_whole(&dir);
    }

    #[test]
    fn a_link_in_a_files_place_is_replaced_and_a_removed_folder_takes_only_its_links_along() {
        let (dir, folder) = prepared();
        folder.write("secret", b"mine").unwrap();
        assert_eq!(folder.read("secret", 10).unwrap(), b"mine");
        assert_eq!(folder.first_link().unwrap(), Some(dir.path().join("in/a/link")));
        folder.remove_folder("a").unwrap();
        assert!(folder.stat("a").unwrap().is_none());
        folder.remove_file("link").unwrap();
        outside_is_whole(&dir);
    }

    #[test]
    fn files_are_made_whole_in_folders_that_are_made_for_them() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::open(dir.path()).unwrap();
        folder.write("a/b/c", b"one").unwrap();
        folder.write("a/b/c", b"two").unwrap();
        folder.write_parts("a/d", [b"x".as_slice(), b"", b"yz"]).unwrap();
        drop(folder.begin("a/unfinished").unwrap());
        folder.append("log", 0o600).unwrap().write_all(b"1").unwrap();
        folder.append("log", 0o600).unwrap().write_all(b"2").unwrap();
        folder.make_private_folder("own/inner").unwrap();
        folder.link("a", "latest").unwrap();
        folder.link("own", "latest").unwrap();
        let walked = folder.walk().unwrap();
        let paths: Vec<&str> = walked.iter().map(|e| e.path.to_str().unwrap()).collect();
        assert_eq!(paths, ["a", "a/b", "a/b/c", "a/d", "latest", "log", "own", "own/inner"]);
        assert_eq!(folder.read_to_string("a/b/c", 3).unwrap(), "two");
        assert!(folder.read("a/b/c", 2).is_err());
        assert_eq!(folder.read("log", 9).unwrap(), b"12");
        assert_eq!(fs::read_link(dir.path().join("latest")).unwrap(), Path::new("own"));
        let mode =
            |name: &str| fs::metadata(dir.path().join(name)).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode("own"), mode("own/inner"), mode("log")), (0o700, 0o700, 0o600));
        // A second name of another file is not written.
        fs::hard_link(dir.path().join("a/d"), dir.path().join("hard")).unwrap();
        assert!(folder.append("hard", 0o600).is_err());
        let pipe = dir.path().join("pipe");
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, Mode::RUSR | Mode::WUSR).unwrap();
        assert!(folder.open_file("pipe").is_err());
    }
}
