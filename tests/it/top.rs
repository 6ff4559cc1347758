//! `rgpu top` on a terminal: what it shows, and that it gives the terminal back.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::process::Child;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};

use crate::laptop::{Laptop, status, wait_for, words};
use crate::loops::TestLoop;

/// The view in a terminal of its own.
pub(crate) struct View {
    child: Child,
    ours: File,
    theirs: File,
    text: Arc<Mutex<String>>,
}

impl View {
    pub(crate) fn open(laptop: &Laptop, line: &str) -> Self {
        let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&ours).unwrap();
        unlockpt(&ours).unwrap();
        let name = ptsname(&ours, Vec::new()).unwrap();
        let path = OsStr::from_bytes(name.to_bytes());
        let theirs = File::options().read(true).write(true).open(path).unwrap();
        let size = Winsize { ws_row: 30, ws_col: 100, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&ours, size).unwrap();
        let mut command = laptop.rgpu(words(line));
        let side = || theirs.try_clone().unwrap();
        command.env("TERM", "xterm").stdin(side()).stdout(side()).stderr(side());
        let child = command.spawn().unwrap();
        let ours: File = ours.into();
        let (text, mut reader) = (Arc::new(Mutex::new(String::new())), ours.try_clone().unwrap());
        let into = text.clone();
        std::thread::spawn(move || {
            let mut piece = [0; 4096];
            while let Ok(n @ 1..) = reader.read(&mut piece) {
                into.lock().unwrap().push_str(&String::from_utf8_lossy(&piece[..n]));
            }
        });
        Self { child, ours, theirs, text }
    }

    fn wait_for(&self, words: &str) {
        wait_for(words, || self.text.lock().unwrap().contains(words).then_some(()));
    }

    fn is_raw(&self) -> bool {
        !tcgetattr(&self.theirs).unwrap().local_modes.contains(LocalModes::ICANON)
    }

    /// What the view draws in its first moment, and its status after `q`: `None` if it does not end
    /// within `limit`.
    pub(crate) fn look_and_leave(mut self, limit: Duration) -> (String, Option<i32>) {
        let begun = Instant::now();
        let shown = || self.text.lock().unwrap().clone();
        while begun.elapsed() < limit && !shown().contains("\u{1b}[?1049h") {
            if self.child.try_wait().unwrap().is_some() {
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        std::thread::sleep(Duration::from_millis(300));
        let _ = (&self.ours).write_all(b"q");
        while begun.elapsed() < limit {
            if let Some(status) = self.child.try_wait().unwrap() {
                return (self.text.lock().unwrap().clone(), Some(status.code().unwrap_or(128)));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
        let text = self.text.lock().unwrap().clone();
        (text, None)
    }

    /// Types an answer when the command has shown a question, and waits for its end: what was shown
    /// until then, and its status.
    pub(crate) fn answer(mut self, question: &str, typed: &str) -> (String, i32) {
        self.wait_for(question);
        let text = self.text.lock().unwrap().clone();
        (&self.ours).write_all(format!("{typed}\n").as_bytes()).unwrap();
        let ended = wait_for("the end of the command", || self.child.try_wait().unwrap());
        (text, ended.code().unwrap_or(-1))
    }

    /// The end of the command: its status, with the terminal as it was before.
    fn end(mut self) -> i32 {
        let ended = wait_for("the end of the view", || self.child.try_wait().unwrap());
        assert!(!self.is_raw(), "the terminal is still raw");
        // The other screen is left.
        self.wait_for("\u{1b}[?1049l");
        ended.code().unwrap_or(-1)
    }
}

#[test]
fn it_shows_the_queue_moves_by_keys_and_gives_the_terminal_back() {
    let laptop = Laptop::new();
    assert_eq!(status(&laptop.run("queue add --name my-entry -- true")), 0);
    let mut view = View::open(&laptop, "queue watch");
    view.wait_for("my-entry");
    assert!(view.is_raw());
    view.ours.write_all(b"\x1b[C").unwrap();
    view.wait_for("rgpu loop start");
    view.ours.write_all(b"\x1b[C").unwrap();
    view.wait_for("health");
    view.ours.write_all(b"q").unwrap();
    assert_eq!(view.end(), 0);
}

#[test]
fn a_signal_and_ctrl_c_give_the_terminal_back() {
    let laptop = Laptop::new();
    let view = View::open(&laptop, "top");
    view.wait_for("health");
    kill_process(Pid::from_child(&view.child), Signal::TERM).unwrap();
    assert_eq!(view.end(), 0);
    let mut view = View::open(&laptop, "loop tui");
    // The first drawing moves over blanks instead of writing them.
    view.wait_for("loop.toml");
    view.ours.write_all(b"\x03").unwrap();
    assert_eq!(view.end(), 0);
}

#[test]
fn a_loop_that_it_starts_goes_on_when_the_view_ends() {
    let test = TestLoop::new(&[]);
    let line = "loop tui --run -- loop.toml --mode manual max_iterations=1";
    let mut view = View::open(&test.laptop, line);
    // Of "waits for the worker's change": only cells that differ from "measures the start" are
    // sent.
    view.wait_for("er's");
    view.ours.write_all(b"q").unwrap();
    assert_eq!(view.end(), 0);
    let report = test.report();
    assert_eq!((&report["phase"], &report["pid"].is_i64()), (&"worker".into(), &true));
    assert_eq!(status(&test.laptop.run("loop stop")), 0);
    test.laptop.wait_until_quiet();
    assert_eq!(test.report()["stop"]["reason"], "stopped");
}

#[test]
fn without_a_terminal_it_is_refused_with_what_to_do_instead() {
    let laptop = Laptop::new();
    for line in ["top", "top loop", "loop tui", "top --json"] {
        let output = laptop.run(line);
        let shown = laptop.shown(line, &output);
        assert_eq!(status(&output), 2, "{shown}");
        assert!(shown.contains("rgpu loop status"), "{shown}");
    }
}
