//! A Rust file compiled on this machine, once for each text: cargo runs only when something in it
//! has changed.
//!
//! Everything lies below `<cache>/exec`: `rust/<name>/` the packages, `target/` what cargo keeps,
//! `built/<key>` the programs.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, SystemTime};

use tokio::process::Command;

use crate::error::{Exit, Failure, Result};
use crate::exec::{Package, PackageFile};
use crate::store::atomic;

/// Programs that were not used for this long are removed.
const UNUSED_PROGRAM_AGE: Duration = Duration::from_secs(30 * 24 * 3600);

/// The folder of compiled files.
#[derive(Clone, Debug)]
pub struct CargoCache {
    folder: PathBuf,
    color: bool,
}

/// What came of a compilation.
#[derive(Debug)]
pub enum CargoBuild {
    /// The program, and what the compiler said on the way (warnings).
    Program(PathBuf, Vec<u8>),
    /// It does not compile; the compiler's own words.
    Refused(Vec<u8>),
    /// There is no cargo here.
    NoCargo,
}

impl CargoCache {
    /// Below the user's cache folder; the compiler's words with colours or without.
    pub fn new(cache: &Path, color: bool) -> Self {
        Self { folder: cache.join("exec"), color }
    }

    /// The program of a package that was compiled before.
    pub fn find(&self, package: &Package) -> Option<PathBuf> {
        let built = self.folder.join("built").join(&package.key);
        let file = std::fs::File::options().append(true).open(&built).ok()?;
        // The newest use tells which programs are still wanted; one that cannot be marked is
        // compiled again some day.
        let _ = file.set_modified(SystemTime::now());
        Some(built)
    }

    /// Compiles a package.
    ///
    /// # Errors
    /// Our disk, or a cargo that cannot be started.
    pub async fn build(&self, package: &Package) -> Result<CargoBuild> {
        let Some(cargo) = cargo() else { return Ok(CargoBuild::NoCargo) };
        let root = self.folder.join("rust");
        self.write(&root, package).map_err(|e| disk(&root, &e))?;
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
        let done = child.wait_with_output().await.map_err(failed)?;
        group.ended();
        if !done.status.success() {
            return Ok(CargoBuild::Refused(done.stderr));
        }
        let made = target.join("debug").join(&package.name);
        let kept = self.keep(&made, &package.key).map_err(|e| disk(&made, &e))?;
        Ok(CargoBuild::Program(kept, done.stderr))
    }

    /// Writes what has changed: cargo goes by the time of a file's last change.
    fn write(&self, root: &Path, package: &Package) -> io::Result<()> {
        let put = |file: &PackageFile| {
            let path = root.join(&file.path);
            match std::fs::read(&path) {
                Ok(text) if text == file.text => Ok(()),
                _ => atomic::write(&path, &file.text),
            }
        };
        package.files.iter().try_for_each(put)?;
        // Cargo adds to it what the file's own dependencies resolve to.
        match root.join(&package.lock.path).exists() || package.lock.text.is_empty() {
            true => Ok(()),
            false => put(&package.lock),
        }
    }

    /// Keeps a program under its key, and removes those that nobody used for long.
    fn keep(&self, made: &Path, key: &str) -> io::Result<PathBuf> {
        let folder = self.folder.join("built");
        std::fs::create_dir_all(&folder)?;
        let kept = folder.join(key);
        let fresh = folder.join(format!(".{key}.{}", std::process::id()));
        // A copy: cargo writes the next one into the same file.
        std::fs::copy(made, &fresh)?;
        std::fs::rename(&fresh, &kept)?;
        for entry in std::fs::read_dir(&folder)?.flatten() {
            let old = entry.metadata().and_then(|m| m.modified());
            if old.is_ok_and(|at| at.elapsed().is_ok_and(|age| age > UNUSED_PROGRAM_AGE)) {
                // Another rgpu may have done so just now.
                let _ = std::fs::remove_file(entry.path());
            }
        }
        Ok(kept)
    }
}

/// The processes of a compilation: they end with it.
struct ProcessGroup(Option<u32>);

impl ProcessGroup {
    /// It ended by itself.
    fn ended(mut self) {
        self.0 = None;
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        let id = self.0.and_then(|id| i32::try_from(id).ok());
        if let Some(group) = id.and_then(rustix::process::Pid::from_raw) {
            // What has ended meanwhile cannot be stopped.
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::TERM);
        }
    }
}

/// cargo, where a shell would find it or rustup puts it.
fn cargo() -> Option<PathBuf> {
    let installed = || {
        let home = std::env::home_dir()?.join(".cargo/bin/cargo");
        home.is_file().then_some(home)
    };
    which::which("cargo").ok().or_else(installed)
}

fn disk(path: &Path, error: &io::Error) -> Failure {
    Failure::new(Exit::Disk, "disk", "the cache of compiled files cannot be written")
        .file(path.display())
        .cause(error)
}
