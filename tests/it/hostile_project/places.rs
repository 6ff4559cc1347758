//! The places that a repository can prepare.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::machine::Machine;

/// What stands at a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// An absolute link to what another project has there, with the user's key beside it.
    Outside,
    /// A relative link to the user's key.
    Key,
    /// A relative link to a file that does not exist outside.
    Dangling,
    /// A pipe: whoever opens it waits.
    Pipe,
    /// A link to a device that never ends.
    Device,
    /// A link to itself.
    Circle,
}

impl Kind {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Outside => "a link to the same of another project",
            Self::Key => "a link to a key",
            Self::Dangling => "a link to nothing",
            Self::Pipe => "a pipe",
            Self::Device => "a link to a device",
            Self::Circle => "a link to itself",
        }
    }
}

const FOLDER: &[Kind] = &[Kind::Outside, Kind::Circle];
const FILE: &[Kind] = &[Kind::Outside, Kind::Dangling];
const READ: &[Kind] = &[Kind::Outside, Kind::Dangling, Kind::Pipe, Kind::Device];
const SETTINGS: &[Kind] = &[Kind::Outside, Kind::Key, Kind::Pipe, Kind::Device, Kind::Circle];

/// A place in a project.
pub(super) struct Place {
    pub(super) path: String,
    pub(super) kinds: &'static [Kind],
}

impl Place {
    /// The run that it belongs to.
    pub(super) fn run(&self) -> &'static str {
        ["first", "second", "night"]
            .into_iter()
            .find(|run| self.path.split('/').any(|part| part == *run))
            .unwrap_or("first")
    }

    /// Puts the link or pipe in place of whatever stands there.
    pub(super) fn prepare(&self, machine: &Machine, kind: Kind) {
        let path = machine.laptop.project(&self.path);
        let _ = fs::remove_file(&path);
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        match kind {
            Kind::Outside => symlink(machine.twin().join(&self.path), &path).unwrap(),
            Kind::Key => symlink(self.relative(".ssh/id_ed25519"), &path).unwrap(),
            Kind::Dangling => symlink(self.relative("new"), &path).unwrap(),
            Kind::Pipe => {
                assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
            }
            Kind::Device => symlink("/dev/zero", &path).unwrap(),
            Kind::Circle => symlink(path.file_name().unwrap(), &path).unwrap(),
        }
    }

    /// A path of the user's home, from the place's folder.
    fn relative(&self, inner: &str) -> PathBuf {
        let depth = Path::new(&self.path).components().count();
        PathBuf::from("../".repeat(depth)).join("home").join(inner)
    }
}

fn places(of: &[(&'static str, &'static [Kind])]) -> Vec<Place> {
    of.iter().map(|&(path, kinds)| Place { path: path.to_owned(), kinds }).collect()
}

/// What lies in a run's folder.
pub(super) fn of_runs() -> Vec<Place> {
    places(&[
        ("artifacts/runs/first/run.json", READ),
        ("artifacts/runs/first/profile.json", READ),
        ("artifacts/runs/first/events.jsonl", FILE),
        ("artifacts/runs/first/report.md", FILE),
        ("artifacts/runs/first/report.html", FILE),
        ("artifacts/runs/first/hotspots.json", FILE),
        ("artifacts/runs/first/inputs.json", FILE),
        ("artifacts/runs/first/env.json", FILE),
    ])
}

/// The rest of what lies there: tools' files and logs.
pub(super) fn of_files_of_runs() -> Vec<Place> {
    places(&[
        ("artifacts/runs/first/raw", FOLDER),
        ("artifacts/runs/first/raw/verify.json", FILE),
        ("artifacts/runs/first/sass", FOLDER),
        ("artifacts/runs/first/sass/vecadd.sm_90a.sass", FILE),
        ("artifacts/runs/first/cubin", FOLDER),
        ("artifacts/runs/first/cubin/vecadd.cubin", FILE),
        ("artifacts/runs/first/regions", FOLDER),
        ("artifacts/runs/second/error.json", READ),
        ("artifacts/runs/second/log", FOLDER),
        ("artifacts/runs/second/log/exec.stdout", READ),
        ("artifacts/runs/night/suite.json", READ),
    ])
}

/// The folders above the runs.
pub(super) fn of_artifacts() -> Vec<Place> {
    places(&[
        ("artifacts", FOLDER),
        ("artifacts/runs", FOLDER),
        ("artifacts/runs/latest", READ),
        ("artifacts/runs/.gitignore", FILE),
        ("artifacts/runs/first", FOLDER),
        ("artifacts/runs/second", FOLDER),
        ("artifacts/runs/night", FOLDER),
    ])
}

/// What the queue and a loop keep.
pub(super) fn of_state(machine: &Machine) -> Vec<Place> {
    let mut places = places(&[
        (".rgpu", FOLDER),
        (".rgpu/.gitignore", FILE),
        (".rgpu/queue", FOLDER),
        (".rgpu/queue/1", FOLDER),
        (".rgpu/queue/1/1.log", READ),
        (".rgpu/queue/2", FOLDER),
        (".rgpu/queue/2/1.log", FILE),
        (".rgpu/queue.log", FILE),
        (".rgpu/state.db", READ),
        (".rgpu/state.db-wal", FILE),
        (".rgpu/state.db-shm", FILE),
        (".rgpu/state.lock", FILE),
        (".rgpu/runner.lock", FILE),
        (".rgpu/probe.lock", FILE),
        ("artifacts", FOLDER),
        ("artifacts/loop", FOLDER),
        ("artifacts/loop/LOOP", FOLDER),
        ("artifacts/loop/LOOP/control.json", FILE),
        ("artifacts/loop/LOOP/heartbeat.json", READ),
        ("artifacts/loop/LOOP/run.log", FILE),
        ("artifacts/loop/LOOP/iter_1", FOLDER),
        ("artifacts/loop/LOOP/iter_1/verify.json", FILE),
        ("artifacts/loop/LOOP/iter_1/git_diff.patch", READ),
    ]);
    for place in &mut places {
        place.path = place.path.replace("LOOP", &machine.loop_id());
    }
    places
}

/// Where results go that are no runs.
pub(super) fn of_results() -> Vec<Place> {
    places(&[
        ("artifacts", FOLDER),
        ("artifacts/sass", FOLDER),
        ("artifacts/sass/summary.json", FILE),
        ("artifacts/sass/vecadd.sm_90a.sass", FILE),
        ("artifacts/vecadd.sm_90a.cubin", FILE),
        ("artifacts/vecadd.sm_90a.ptx", FILE),
    ])
}

/// Files that say what to do.
pub(super) fn of_settings() -> Vec<Place> {
    places(&[
        ("rgpu.toml", SETTINGS),
        ("bench.toml", SETTINGS),
        ("loop.toml", SETTINGS),
        ("AGENTS.md", SETTINGS),
        ("kernels/k/kernel.toml", SETTINGS),
        ("kernels/k/k.cu", SETTINGS),
    ])
}
