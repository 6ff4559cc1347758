//! A user's machine in a temporary folder: a home, a project, settings, and the built programs.
//!
//! Nothing outside the folder is read or written but this repository's kernels, so that tests can
//! run side by side and on any machine. When a test ends, whatever still runs in its folder is
//! killed; tests that forbid leftovers say so with [`Laptop::running`].

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use regex::Regex;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::documents;

/// How long a condition may take to come true before a test gives up: generous, since machines
/// that test many things at once are slow.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Settings of a host that every program there must get: without them, NVLink multicast of one user
/// can disturb the GPUs of others.
pub(crate) const OF_MANY_GPUS: [&str; 3] =
    ["NCCL_NVLS_ENABLE=0", "TORCH_SYMM_MEM_DISABLE_MULTICAST=1", "NVSHMEM_DISABLE_NVLS=1"];

/// A folder that stands for a user's machine: home, settings and projects.
pub(crate) struct Laptop {
    folder: TempDir,
}

impl Laptop {
    /// An empty project, no settings, the agent and the played runner in place.
    pub(crate) fn new() -> Laptop {
        // Short: the agent's sockets lie below it.
        let folder = tempfile::Builder::new().prefix("rgpu-it-").tempdir().unwrap();
        let laptop = Laptop { folder };
        for part in ["home", "project", "agent", "lock", "tmp", "libexec", "config"] {
            fs::create_dir(laptop.path(part)).unwrap();
        }
        fs::set_permissions(laptop.path("agent"), fs::Permissions::from_mode(0o700)).unwrap();
        // As an administrator makes it for all users of a host.
        fs::set_permissions(laptop.path("lock"), fs::Permissions::from_mode(0o1777)).unwrap();
        symlink(built("rgpu-agent"), laptop.path("libexec/rgpu-agent")).unwrap();
        // All tests share the listings of nvdisasm, which would take most of their processor time.
        let listings = Path::new(env!("CARGO_TARGET_TMPDIR")).join("listings");
        fs::create_dir_all(&listings).unwrap();
        fs::create_dir_all(laptop.path("home/.cache/rgpu")).unwrap();
        fs::set_permissions(laptop.path("home/.cache/rgpu"), fs::Permissions::from_mode(0o700))
            .unwrap();
        symlink(listings, laptop.path("home/.cache/rgpu/listings")).unwrap();
        laptop
    }

    /// Has no compiler found that set-up put into this checkout: `rgpu` lies elsewhere from now on,
    /// as where it was installed.
    pub(crate) fn hide_compiler(&self) {
        let (built, installed) = (Path::new(env!("CARGO_BIN_EXE_rgpu")), self.path("bin/rgpu"));
        fs::create_dir_all(self.path("share/rgpu")).unwrap();
        fs::create_dir(self.path("bin")).unwrap();
        // Another file system has no links to this one.
        fs::hard_link(built, &installed)
            .or_else(|_| fs::copy(built, &installed).map(drop))
            .unwrap();
        let kernels = Path::new(env!("CARGO_MANIFEST_DIR")).join("kernels");
        symlink(kernels, self.path("share/rgpu/kernels")).unwrap();
    }

    /// Puts a script in the place of the agent.
    pub(crate) fn play_agent(&self, script: &str) {
        let agent = self.path("libexec/rgpu-agent");
        fs::remove_file(&agent).unwrap();
        fs::write(&agent, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&agent, fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// A path in the folder.
    pub(crate) fn path(&self, inner: impl AsRef<Path>) -> PathBuf {
        self.folder.path().join(inner)
    }

    /// A path in the project.
    pub(crate) fn project(&self, inner: impl AsRef<Path>) -> PathBuf {
        self.path("project").join(inner)
    }

    /// Writes a file of the project, with the folders above it.
    pub(crate) fn write(&self, inner: &str, text: &str) -> PathBuf {
        let path = self.project(inner);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        path
    }

    /// `rgpu` in the project, as this user.
    pub(crate) fn rgpu<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Command {
        let installed = Some(self.path("bin/rgpu")).filter(|installed| installed.exists());
        let mut command =
            Command::new(installed.unwrap_or_else(|| env!("CARGO_BIN_EXE_rgpu").into()));
        command
            .args(args)
            .current_dir(self.path("project"))
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("HOME", self.path("home"))
            .env("TMPDIR", self.path("tmp"))
            .env("LANG", "C.UTF-8")
            .env("RGPU_CONFIG", self.path("config/config.toml"))
            .env("RGPU_LIBEXEC", self.path("libexec"))
            .env("RGPU_AGENT_HOME", self.path("agent"))
            .env("RGPU_LOCK_DIR", self.path("lock"))
            .stdin(Stdio::null());
        command
    }

    /// Runs `rgpu` to its end.
    pub(crate) fn run(&self, line: &str) -> Output {
        self.rgpu(words(line)).output().unwrap()
    }

    /// Runs `rgpu` with this standard input.
    pub(crate) fn run_with_input(&self, line: &str, input: &[u8]) -> Output {
        let mut command = self.rgpu(words(line));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let input = input.to_owned();
        // A command that ends without reading is no failure of the writer.
        let writer = std::thread::spawn(move || drop(stdin.write_all(&input)));
        let output = child.wait_with_output().unwrap();
        writer.join().unwrap();
        output
    }

    /// Runs `rgpu exec … -- cat`, types a line, two more while the link is `cut`, and the end once
    /// it is `healed`; all that `cat` printed, and what the user was told.
    pub(crate) fn typed_around(
        &self,
        line: &str,
        cut: impl FnOnce(),
        healed: impl FnOnce(),
    ) -> (String, String) {
        let mut command = self.rgpu(words(line));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (mut stdin, stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let (mut printed, mut stdout) = (String::new(), BufReader::new(stdout));
        stdin.write_all(b"first\n").unwrap();
        stdout.read_line(&mut printed).unwrap();
        cut();
        stdin.write_all(b"second\n").unwrap();
        stdin.write_all(b"third\n").unwrap();
        healed();
        stdin.write_all(b"last\n").unwrap();
        drop(stdin);
        stdout.read_to_string(&mut printed).unwrap();
        let output = child.wait_with_output().unwrap();
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(status(&output), 0, "{printed}{told}");
        (printed, told)
    }

    /// Runs `rgpu exec … -- cat` with input that never ends, and asks it to stop once both
    /// directions are full.
    pub(crate) fn run_flooded_until_stopped(&self, line: &str) -> Output {
        let mut command = self.rgpu(words(line));
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let flood = std::thread::spawn(move || {
            let piece = vec![b'.'; 1 << 20];
            while stdin.write_all(&piece).is_ok() {}
        });
        // More than any pipe or window holds; each byte is also kept, here and on the host.
        wait_for("a flood of output", || {
            let id = fs::read_to_string(self.project("artifacts/runs/.latest")).ok()?;
            let log = self.project("artifacts/runs").join(id.trim()).join("log/exec.stdout");
            fs::metadata(log).ok().filter(|log| log.len() > 64 << 20)
        });
        kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
        wait_for("the end of the command", || child.try_wait().unwrap());
        let output = child.wait_with_output().unwrap();
        flood.join().unwrap();
        output
    }

    /// Starts `rgpu` and leaves it running.
    pub(crate) fn start(&self, line: &str) -> Child {
        let mut command = self.rgpu(words(line));
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    /// Runs `rgpu` and gives all that a user sees, fit for a snapshot.
    pub(crate) fn show(&self, line: &str) -> String {
        self.shown(line, &self.run(line))
    }

    /// What a user saw, fit for a snapshot.
    pub(crate) fn shown(&self, line: &str, output: &Output) -> String {
        let text = |bytes: &[u8]| self.filtered(&String::from_utf8_lossy(bytes));
        let mut shown = format!("$ rgpu {}\n", self.filtered(line));
        for (name, bytes) in [("stdout", &output.stdout), ("stderr", &output.stderr)] {
            if !bytes.is_empty() {
                shown += &format!("--- {name}\n{}", text(bytes));
                if !shown.ends_with('\n') {
                    shown += "⏎\n";
                }
            }
        }
        shown + &format!("--- status {}\n", status(output))
    }

    /// Text without what differs from run to run: folders, ids, times, sizes of builds.
    pub(crate) fn filtered(&self, text: &str) -> String {
        let mut text = text.replace(&*self.folder.path().to_string_lossy(), "[TMP]");
        for (pattern, with) in FILTERS.iter() {
            text = pattern.replace_all(&text, *with).into_owned();
        }
        text
    }

    /// The folder of the newest run.
    pub(crate) fn latest(&self) -> PathBuf {
        let runs = self.project("artifacts/runs");
        let id = fs::read_to_string(runs.join(".latest")).unwrap();
        runs.join(id.trim())
    }

    /// A JSON file of the newest run.
    pub(crate) fn latest_json(&self, name: &str) -> serde_json::Value {
        let path = self.latest().join(name);
        let bytes = fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        serde_json::from_slice(&bytes).unwrap()
    }

    /// Processes that run in this folder, or name it: `pid command`.
    pub(crate) fn running(&self) -> Vec<String> {
        running_in(self.folder.path())
            .into_iter()
            .map(|(pid, line)| format!("{pid} {line}"))
            .collect()
    }

    /// Waits until nothing runs in this folder but `rgpu mcp`.
    pub(crate) fn wait_until_only_server(&self) {
        let is_server =
            |line: &String| line.trim_end().ends_with(" mcp") || line.contains(" mcp --http ");
        wait_for("nothing left but the server", || {
            self.running().iter().all(is_server).then_some(())
        });
    }

    /// Waits until nothing runs in this folder.
    pub(crate) fn wait_until_quiet(&self) {
        wait_for("nothing left running", || self.running().is_empty().then_some(()));
    }
}

impl Drop for Laptop {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            documents::keep_to_their_schemas(&self.path("project"));
        }
        // Supervisors first die and then cannot start anything anew; twice, for what they had
        // just started.
        for _ in 0..2 {
            for (pid, _) in running_in(self.folder.path()) {
                if let Some(pid) = Pid::from_raw(pid) {
                    let _ = kill_process(pid, Signal::KILL);
                }
            }
        }
        // A folder that a test made read-only could not be removed.
        for entry in walkdir::WalkDir::new(self.folder.path()).into_iter().flatten() {
            let Ok(metadata) = entry.metadata() else { continue };
            if metadata.is_dir() && metadata.mode() & 0o200 == 0 {
                let _ = fs::set_permissions(entry.path(), fs::Permissions::from_mode(0o700));
            }
        }
    }
}

/// What differs from run to run.
static FILTERS: LazyLock<Vec<(Regex, &'static str)>> = LazyLock::new(|| {
    [
        (r"\b\d{8}-\d{6}-([a-z0-9-]*?)-[0-9a-f]{6}\b", "[RUN $1]"),
        (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", "[TIME]"),
        (r"\b\d+(\.\d+)? (ms|s)\b", "[N] $2"),
        (r"\[N\] s +[0-9.]+ ([kKMG]i?)?B", "[N] s  [SIZE]"),
        (r#""seconds": [0-9.]+"#, r#""seconds": "[N]""#),
        (r"GPU-[0-9a-f]{8}-[0-9a-f-]+", "[UUID]"),
        (r"(fetching|removed?|runs?,)( \w+ )? *[0-9.]+ ([kM]?B)\b", "$1$2 [SIZE]"),
        // The shipped kernels, wherever the program found them.
        (r#"(^|[\s`"])/[^\s`",]*/kernels\b"#, "$1[KERNELS]"),
    ]
    .map(|(pattern, with)| (Regex::new(pattern).unwrap(), with))
    .into()
});

/// Splits a command line as a shell would.
pub(crate) fn words(line: &str) -> Vec<String> {
    shlex::split(line).unwrap_or_else(|| panic!("an open quote in `{line}`"))
}

/// The status of a command as a shell shows it.
pub(crate) fn status(output: &Output) -> i32 {
    use std::os::unix::process::ExitStatusExt;
    output.status.code().unwrap_or_else(|| 128 + output.status.signal().unwrap_or(0))
}

/// A recorded file or folder below `tests/fixtures`.
pub(crate) fn fixture(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(path)
}

/// A program that cargo built beside this test; built now where it is missing.
pub(crate) fn built(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_BIN_EXE_rgpu")).with_file_name(name);
    if !path.exists() {
        let built = Command::new(env!("CARGO"))
            .args(["build", "--quiet", "--package", name])
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .status()
            .unwrap();
        assert!(built.success(), "`{name}` cannot be built");
    }
    path
}

/// Waits until `condition` gives something.
pub(crate) fn wait_for<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(value) = condition() {
            return value;
        }
        assert!(begun.elapsed() < PATIENCE, "waited too long for {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The processes that run in a folder or name it in their command line or environment.
pub(crate) fn running_in(folder: &Path) -> Vec<(i32, String)> {
    let name = folder.as_os_str().as_encoded_bytes();
    let mentions = |bytes: &[u8]| bytes.windows(name.len()).any(|window| window == name);
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|n| n.parse::<i32>().ok()) else {
            continue;
        };
        let proc = entry.path();
        let inside = fs::read_link(proc.join("cwd")).is_ok_and(|cwd| cwd.starts_with(folder));
        let read = |file: &str| fs::read(proc.join(file)).unwrap_or_default();
        let line = read("cmdline");
        // Zombies have no command line: they hold nothing.
        let ours = inside || mentions(&line) || mentions(&read("environ"));
        if ours && !line.is_empty() && pid != std::process::id().cast_signed() {
            found.push((pid, String::from_utf8_lossy(&line).replace('\0', " ")));
        }
    }
    found
}
