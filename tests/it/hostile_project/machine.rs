//! A user's machine with a project of every kind of state, and what must not be reached from there:
//! another project and a key in the user's home.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use walkdir::WalkDir;

use crate::fake_host::FakeHost;
use crate::laptop::{Laptop, status, words};
use crate::loops::TestLoop;
use crate::python::python;

/// Words of the project, and those that stand at the same place in the other project: as long, so
/// that a database keeps its form.
const INSIDE: &str = "inside-marker-000";
const SECRET: &str = "outside-secret-00";
/// A word of every result, which the other project has not.
const DEVICE: &str = "NVIDIA H200";

/// How long a command may take that only reads and writes files, on a machine that does much else.
const LIMIT: Duration = Duration::from_secs(30);

/// What a command showed, and how it ended: `None` if it did not.
pub(super) struct ShownOutput {
    pub(super) text: Vec<u8>,
    pub(super) status: Option<i32>,
}

impl ShownOutput {
    pub(super) fn has_secret(&self) -> bool {
        has_secret(&self.text)
    }
}

/// What is known of a file outside.
#[derive(Debug, PartialEq, Eq)]
struct FileState {
    mode: u32,
    modified: (i64, i64),
    content: Vec<u8>,
}

pub(super) struct Machine {
    pub(super) laptop: Laptop,
    outside: BTreeMap<PathBuf, FileState>,
}

impl Machine {
    /// A project with runs and a queue.
    pub(super) fn with_runs() -> Self {
        let laptop = Laptop::new();
        FakeHost::new(&laptop);
        laptop.write(
            "bench.toml",
            "[defaults]\nmode = \"bench\"\nremote = \"h200\"\n[[target]]\n\
             name = \"memory:vecadd\"\nkernel = \"vecadd\"\n[target.matrix]\nsizes.n = [1000]\n",
        );
        Self::new(laptop)
    }

    /// The same with a loop.
    pub(super) fn with_loop() -> Self {
        let test = TestLoop::new(&["time 0.8"]);
        test.laptop.write(
            "bench.toml",
            "[defaults]\nmode = \"bench\"\nremote = \"h200\"\n[[target]]\n\
             name = \"memory:k\"\nkernel = \"k\"\n",
        );
        test.run("max_iterations=1", 0);
        Self::new(test.laptop)
    }

    fn new(laptop: Laptop) -> Self {
        let night = "bench run --run-id night";
        for line in [
            &*format!("profile --kernel vecadd --remote h200 --run-id first --note {INSIDE}"),
            &*format!("exec --run-id second --note {INSIDE} -- echo {INSIDE}"),
            &*format!("queue add --name {INSIDE} -- echo {INSIDE}"),
            "queue run --once",
        ]
        .into_iter()
        .chain((!laptop.project("loop.toml").exists()).then_some(night))
        {
            let output = laptop.run(line);
            assert_eq!(status(&output), 0, "{}", laptop.shown(line, &output));
        }
        let _ = fs::remove_file(laptop.project("artifacts/runs/first/raw/report.ncu-rep"));
        copy(&laptop.path("project"), &laptop.path("kept"));
        let machine = Self { laptop, outside: BTreeMap::new() };
        machine.renew_outside();
        let outside = machine.states();
        Self { outside, ..machine }
    }

    /// The id of the loop, which is its folder's name.
    pub(super) fn loop_id(&self) -> String {
        let folders = fs::read_dir(self.laptop.path("kept/artifacts/loop")).unwrap();
        let folder = folders.flatten().find(|entry| entry.file_type().unwrap().is_dir());
        folder.unwrap().file_name().into_string().unwrap()
    }

    /// The other project.
    pub(super) fn twin(&self) -> PathBuf {
        self.laptop.path("home/other")
    }

    /// Puts the project and all that lies outside as they were.
    pub(super) fn renew_project(&self) {
        let project = self.laptop.path("project");
        let _ = fs::remove_dir_all(&project);
        let _ = fs::remove_dir_all(self.laptop.path("made"));
        fs::create_dir(self.laptop.path("made")).unwrap();
        let agent = self.laptop.path("agent");
        if is_found_in(std::slice::from_ref(&agent)) {
            fs::remove_dir_all(&agent).unwrap();
            fs::create_dir(&agent).unwrap();
            fs::set_permissions(&agent, fs::Permissions::from_mode(0o700)).unwrap();
        }
        copy(&self.laptop.path("kept"), &project);
        if self.outside != self.states() {
            let _ = fs::remove_dir_all(self.twin());
            let _ = fs::remove_dir_all(self.laptop.path("home/.ssh"));
            let _ = fs::remove_file(self.laptop.path("home/new"));
            let _ = fs::remove_dir_all(self.laptop.path("home/new"));
            copy(&self.laptop.path("kept-other"), &self.twin());
            copy(&self.laptop.path("kept-ssh"), &self.laptop.path("home/.ssh"));
        }
    }

    /// Does something in an untouched copy of the project, and puts back what stands there.
    pub(super) fn without_place<T>(&self, action: impl FnOnce() -> T) -> T {
        let paths = |parts: [&str; 2]| parts.map(|part| self.laptop.path(part));
        let (own, aside) = (paths(["project", "made"]), paths(["aside", "made-aside"]));
        for (own, aside) in own.iter().zip(&aside) {
            fs::rename(own, aside).unwrap();
        }
        copy(&self.laptop.path("kept"), &own[0]);
        fs::create_dir(&own[1]).unwrap();
        let result = action();
        for (own, aside) in own.iter().zip(&aside) {
            fs::remove_dir_all(own).unwrap();
            fs::rename(aside, own).unwrap();
        }
        result
    }

    /// Makes the other project and the key.
    fn renew_outside(&self) {
        let twin = self.laptop.path("kept-other");
        copy(&self.laptop.path("kept"), &twin);
        // Places that the project itself may lack.
        let of_loop = self.laptop.path("kept/artifacts/loop").exists().then(|| {
            ["heartbeat.json", "control.json", "iter_1/verify.json", "iter_1/git_diff.patch"]
                .map(|file| format!("artifacts/loop/{}/{file}", self.loop_id()))
        });
        for file in of_loop.iter().flatten().map(String::as_str).chain([
            "artifacts/sass/summary.json",
            "artifacts/sass/vecadd.sm_90a.sass",
            "artifacts/vecadd.sm_90a.ptx",
            "artifacts/runs/first/regions/x.json",
            "artifacts/runs/second/error.json",
            ".rgpu/queue/2/1.log",
            "rgpu.toml",
            "AGENTS.md",
        ]) {
            let file = twin.join(file);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            if !file.exists() {
                fs::write(file, format!("# {SECRET}\n")).unwrap();
            }
        }
        let error = "{\"schema\": \"rgpu.error/1\", \"exit\": 6, \"error\": {\"code\": \"x\", \
                     \"what\": \"NVIDIA H200\", \"hints\": [\"NVIDIA H200\"]}}";
        fs::write(twin.join("artifacts/runs/second/error.json"), error).unwrap();
        for entry in WalkDir::new(&twin).into_iter().flatten() {
            let path = entry.path();
            if entry.file_type().is_dir() {
                fs::write(path.join("id_ed25519"), format!("{SECRET}\n")).unwrap();
            } else if entry.file_type().is_file() {
                let bytes = fs::read(path).unwrap();
                let marked = replaced(&bytes, INSIDE.as_bytes());
                let is_text = std::str::from_utf8(&marked).is_ok();
                let marked = if is_text { replaced(&marked, DEVICE.as_bytes()) } else { marked };
                // What has no such word gets one as a comment, where the form allows any text.
                let extension = path.extension().and_then(|e| e.to_str()).unwrap_or_default();
                let marked = match extension {
                    "md" | "toml" | "cu" | "sass" | "patch" | "log" | "stdout" => {
                        let sign = if extension == "cu" { "//" } else { "#" };
                        [marked, format!("\n{sign} {SECRET}\n").into_bytes()].concat()
                    }
                    _ => marked,
                };
                fs::write(path, marked).unwrap();
            }
        }
        let ssh = self.laptop.path("kept-ssh");
        fs::create_dir_all(&ssh).unwrap();
        fs::write(ssh.join("id_ed25519"), format!("{SECRET} = = {SECRET}\n")).unwrap();
        copy(&twin, &self.twin());
        copy(&ssh, &self.laptop.path("home/.ssh"));
        fs::write(self.laptop.path("home/.bashrc"), format!("# {SECRET}\n")).unwrap();
    }

    /// Everything in the user's home but rgpu's own cache and lists.
    fn states(&self) -> BTreeMap<PathBuf, FileState> {
        let home = self.laptop.path("home");
        let walk = WalkDir::new(&home).min_depth(1).into_iter();
        let mut states = BTreeMap::new();
        for entry in
            walk.filter_entry(|e| e.file_name() != ".cache" && e.file_name() != ".local").flatten()
        {
            let about = entry.metadata().unwrap();
            let is_file = about.is_file();
            let content = if is_file { fs::read(entry.path()).unwrap() } else { Vec::new() };
            let modified = (about.mtime(), about.mtime_nsec());
            let state = FileState { mode: about.mode(), modified, content };
            states.insert(entry.into_path(), state);
        }
        states
    }

    pub(super) fn is_outside_changed(&self) -> bool {
        self.states() != self.outside
    }

    /// Whether a file of the project, or of what a command made beside it or sent to a host, has
    /// text from outside.
    pub(super) fn has_secret_in_project(&self) -> bool {
        let folders = ["project", "made", "agent"].map(|part| self.laptop.path(part));
        let archive = self.laptop.path("made/run.tar.zst");
        let is_in_archive = archive.exists() && {
            let file = fs::File::open(archive).unwrap();
            has_secret(&zstd::decode_all(file).unwrap_or_default())
        };
        is_in_archive || is_found_in(&folders)
    }

    /// Asks the Python package.
    pub(super) fn python(&self, program: &str) -> ShownOutput {
        until_end(python(&self.laptop, "python3").args(["-c", program]).stdin(Stdio::null()))
    }

    /// Runs commands one after another to their ends.
    pub(super) fn run(&self, lines: &[String]) -> ShownOutput {
        let mut shown = ShownOutput { text: Vec::new(), status: Some(0) };
        for line in lines {
            let mut command = self.laptop.rgpu(words(line));
            let one = until_end(command.stdin(Stdio::null()));
            shown.text.extend(one.text);
            shown.status = match (shown.status, one.status) {
                (Some(0), status) => status,
                (status, _) => status,
            };
        }
        shown
    }
}

/// Runs a command to its end, or ends it.
pub(super) fn until_end(command: &mut Command) -> ShownOutput {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let streams = [read_all(child.stdout.take().unwrap()), read_all(child.stderr.take().unwrap())];
    let status = wait(&mut child);
    let text = streams.map(|stream| stream.join().unwrap()).concat();
    ShownOutput { text, status }
}

fn wait(child: &mut Child) -> Option<i32> {
    let begun = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return Some(status.code().unwrap_or(128));
        }
        if begun.elapsed() > LIMIT {
            let _ = child.kill();
            let _ = child.wait();
            return None;
        }
        std::thread::sleep(Duration::from_millis(3));
    }
}

fn read_all(mut stream: impl Read + Send + 'static) -> JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = stream.read_to_end(&mut bytes);
        bytes
    })
}

fn has_secret(bytes: &[u8]) -> bool {
    String::from_utf8_lossy(bytes).contains(SECRET)
}

/// Whether a file of these folders has text from outside. Links are not followed.
fn is_found_in(folders: &[PathBuf]) -> bool {
    let mut search = Command::new("grep");
    search.args(["-rqsF", "-D", "skip", SECRET]).args(folders);
    search.status().unwrap().success()
}

fn replaced(bytes: &[u8], word: &[u8]) -> Vec<u8> {
    let (mut out, mut rest) = (Vec::new(), bytes);
    while let Some(at) = rest.windows(word.len()).position(|window| window == word) {
        out.extend_from_slice(&rest[..at]);
        out.extend_from_slice(SECRET.as_bytes());
        rest = &rest[at + word.len()..];
    }
    out.extend_from_slice(rest);
    out
}

/// Copies a folder with modes and times.
fn copy(from: &Path, to: &Path) {
    let copied = Command::new("cp").arg("-a").arg(from).arg(to).status().unwrap();
    assert!(copied.success(), "{} to {}", from.display(), to.display());
}
