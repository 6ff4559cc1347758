//! Compiles a Rust file on this machine. cargo runs only if the file has changed.
//!
//! Below `<cache>/exec`: `rust/<name>/` holds the packages, `target/` cargo's build, `built/<key>`
//! the programs.

#![expect(clippy::disallowed_methods, reason = "rgpu's own cache")]

use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, SystemTime};

use tokio::process::Command;

use crate::store::atomic;
use rgpu_model::error::{Exit, Failure, Result};
use rgpu_model::program_answer::{MAX_PROBE_BYTES, answer_of};
use rgpu_plan::exec::{Package, PackageFile};

/// Programs unused for this long are removed.
const UNUSED_PROGRAM_AGE: Duration = Duration::from_secs(30 * 24 * 3600);

/// The cache of compiled Rust files.
#[derive(Clone, Debug)]
pub struct CargoCache {
    folder: PathBuf,
    color: bool,
}

/// The result of a compilation.
#[derive(Debug)]
pub enum CargoBuild {
    /// The program, and the compiler's output (warnings).
    Program(PathBuf, Vec<u8>),
    /// The file does not compile; the compiler's output.
    Refused(Vec<u8>),
    /// This machine has no cargo.
    NoCargo,
}

impl CargoCache {
    /// The cache below the user's cache folder; `color` is for the compiler's output.
    pub fn new(cache: &Path, color: bool) -> Self {
        Self { folder: cache.join("exec"), color }
    }

    /// The cached program of a package, if it was compiled before.
    pub fn find(&self, package: &Package) -> Option<PathBuf> {
        let built = self.folder.join("built").join(&package.key);
        let file = std::fs::File::options().append(true).open(&built).ok()?;
        // The modification time records the last use. If it cannot be set, the program may be
        // removed and compiled again.
        let _ = file.set_modified(SystemTime::now());
        Some(built)
    }

    /// Compiles a package.
    pub async fn build(&self, package: &Package) -> Result<CargoBuild> {
        let Some(cargo) = cargo() else { return Ok(CargoBuild::NoCargo) };
        let root = self.folder.join("rust");
        self.write(&root, package).map_err(|e| disk_failure(&root, &e))?;
        let target = self.folder.join("target");
        let mut command = Command::new(&cargo);
        command
            .args(["build", "--quiet", "--color"])
            .arg(if self.color { "always" } else { "never" })
            .arg("--target-dir")
            .arg(&target)
            .current_dir(root.join(&package.name))
            .env_remove("CARGO_TARGET_DIR")
            .env_remove("CARGO_BUILD_TARGET")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .process_group(0);
        let failed = |e| {
            let what = format!("`{}` cannot be started", cargo.display());
            Failure::new(Exit::Config, "cargo", what).cause(e)
        };
        let child = command.spawn().map_err(failed)?;
        let group = ProcessGroup(child.id());
        let done = answer_of(child, MAX_PROBE_BYTES).await.map_err(failed)?;
        group.disarm();
        if !done.status.success() {
            return Ok(CargoBuild::Refused(done.stderr));
        }
        let binary = target.join("debug").join(&package.name);
        let program = self.keep(&binary, &package.key).map_err(|e| disk_failure(&binary, &e))?;
        Ok(CargoBuild::Program(program, done.stderr))
    }

    /// Writes only files that changed: cargo goes by modification times.
    fn write(&self, root: &Path, package: &Package) -> io::Result<()> {
        let write_if_changed = |file: &PackageFile| {
            let path = root.join(&file.path);
            match std::fs::read(&path) {
                Ok(text) if text == file.text => Ok(()),
                _ => atomic::write(&path, &file.text),
            }
        };
        package.files.iter().try_for_each(write_if_changed)?;
        // Cargo extends the lock file with the file's own dependencies, so it is written once.
        if root.join(&package.lock.path).exists() || package.lock.text.is_empty() {
            Ok(())
        } else {
            write_if_changed(&package.lock)
        }
    }

    /// Stores a program under its key, and removes programs unused for long.
    fn keep(&self, binary: &Path, key: &str) -> io::Result<PathBuf> {
        let folder = self.folder.join("built");
        std::fs::create_dir_all(&folder)?;
        let program = folder.join(key);
        let temporary = folder.join(format!(".{key}.{}", std::process::id()));
        // Copied, not linked: cargo writes the next program into the same file.
        std::fs::copy(binary, &temporary)?;
        std::fs::rename(&temporary, &program)?;
        for entry in std::fs::read_dir(&folder)?.flatten() {
            let modified = entry.metadata().and_then(|m| m.modified());
            if modified.is_ok_and(|at| at.elapsed().is_ok_and(|age| age > UNUSED_PROGRAM_AGE)) {
                // Another rgpu may have removed it already.
                let _ = std::fs::remove_file(entry.path());
            }
        }
        Ok(program)
    }
}

/// The process group of a compilation; terminated on drop.
struct ProcessGroup(Option<u32>);

impl ProcessGroup {
    /// Called when the compilation ended: nothing is left to terminate.
    fn disarm(mut self) {
        self.0 = None;
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        let id = self.0.and_then(|id| i32::try_from(id).ok());
        if let Some(group) = id.and_then(rustix::process::Pid::from_raw) {
            // The processes may have ended in the meantime.
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::TERM);
        }
    }
}

/// Finds cargo on the PATH or where rustup installs it.
fn cargo() -> Option<PathBuf> {
    let installed = || {
        let home = std::env::home_dir()?.join(".cargo/bin/cargo");
        home.is_file().then_some(home)
    };
    which::which("cargo").ok().or_else(installed)
}

fn disk_failure(path: &Path, error: &io::Error) -> Failure {
    Failure::new(Exit::Disk, "disk", "the cache of compiled files cannot be written")
        .file(path.display())
        .cause(error)
}
