//! One fault of Modal's at each request of a whole command in turn: with its inputs uploaded, its
//! job submitted and followed over several long polls, and its folder removed.

use std::fs;
use std::path::PathBuf;
use std::process::Output;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::fake_proxy::{FakeModalProxy, Fault, ReceivedRequest};
use super::{AMPLE, Worker};
use crate::laptop::{Laptop, status};

/// A command that uses everything, and what it came to.
struct Run {
    laptop: Laptop,
    ran: PathBuf,
    output: Output,
    said: String,
    requests: Vec<String>,
    /// Takes the faults away.
    calm: Arc<AtomicBool>,
    _door: FakeModalProxy,
    _worker: Worker,
}

fn run(mischief: impl Fn(&ReceivedRequest) -> Fault + Send + Sync + 'static) -> Run {
    let laptop = Laptop::new();
    let worker = Worker::start(&laptop);
    let calm = Arc::new(AtomicBool::new(false));
    let (calmed, door) = (calm.clone(), move |request: &ReceivedRequest| mischief(request));
    let door = FakeModalProxy::start(Some(&worker), AMPLE, move |request| match door(request) {
        _ if calmed.load(Ordering::SeqCst) => Fault::None,
        // Followed over several polls, each of which ends by itself.
        Fault::None => Fault::Brief,
        fault => fault,
    });
    door.add_remote_to_config(&laptop);
    fs::write(laptop.write("data/big", ""), vec![7; 400_000]).unwrap();
    let ran = laptop.path("ran");
    let line = format!(
        "exec --remote b200 --mount data --pull made -- \
         sh -c 'echo once >> {}; echo out; sleep 3; cp big made; echo end; exit 3'",
        ran.display()
    );
    let output = laptop.run(&line);
    let said = laptop.shown(&line, &output);
    let requests = door.log();
    Run { laptop, ran, output, said, requests, calm, _door: door, _worker: worker }
}

impl Run {
    /// The program ran once, and everything of it is here.
    fn is_whole(&self, output: &Output, stdout: &[u8]) {
        assert_eq!(status(output), 3, "{}", self.said);
        assert_eq!(output.stdout, stdout, "{}", self.said);
        assert_eq!(fs::read_to_string(&self.ran).unwrap(), "once\n", "{}", self.said);
        let made = fs::read(self.laptop.project("data/made")).unwrap();
        assert!(made == [7; 400_000], "{}", self.said);
    }
}

const LOST: &str = "modal-http: Missing request, possibly due to expiry or cancellation";
const GONE: &str = "modal-http: invalid function call";
const DIED: &str = "modal-http: internal error: function was terminated by signal";

#[test]
fn a_fault_that_passes_costs_nothing_at_any_request() {
    let calm = run(|_| Fault::None);
    calm.is_whole(&calm.output, b"out\nend\n");
    let polls = calm.requests.iter().filter(|line| line.contains("wait_ms=10000")).count();
    assert!(polls > 1, "{:#?}", calm.requests);
    let faults: [fn() -> Fault; 6] = [
        || Fault::Refused("404 Not Found", GONE),
        || Fault::Refused("408 Request Timeout", LOST),
        || Fault::Lost("408 Request Timeout", LOST),
        || Fault::Lost("500 Internal Server Error", DIED),
        || Fault::Cut(120),
        // Put off, and then the result is there no more.
        || Fault::Late,
    ];
    std::thread::scope(|threads| {
        for fault in faults {
            let requests = calm.requests.len();
            threads.spawn(move || {
                for at in 0..requests {
                    let run = run(move |request| match fault() {
                        fault @ Fault::Late if request.before == at => fault,
                        Fault::Late if request.result => Fault::Refused("404 Not Found", GONE),
                        fault if request.before == at => fault,
                        _ => Fault::None,
                    });
                    run.is_whole(&run.output, b"out\nend\n");
                }
            });
        }
    });
}

#[test]
fn results_that_go_round_from_any_request_on_are_one_error_and_the_run_can_be_taken_up() {
    let calm = run(|_| Fault::None);
    let requests = calm.requests.len();
    let taken_up: usize = std::thread::scope(|threads| {
        let runs: Vec<_> =
            (0..requests).map(|from| threads.spawn(move || goes_round(from))).collect();
        runs.into_iter().map(|run| usize::from(run.join().unwrap())).sum()
    });
    assert!(taken_up > 0);
}

/// Results go round from this request on, until the command has failed; whether it was taken up.
fn goes_round(from: usize) -> bool {
    let run = run(move |request| if request.before >= from { Fault::Round } else { Fault::None });
    if status(&run.output) == 3 {
        // Only the folder's removal was left.
        run.is_whole(&run.output, b"out\nend\n");
        return false;
    }
    assert_eq!(status(&run.output), 125, "{from}: {}", run.said);
    assert!(run.said.contains("redirects again and again"), "{from}: {}", run.said);
    run.calm.store(true, Ordering::SeqCst);
    let again = run.laptop.run("runs attach latest");
    if status(&again) != 3 {
        // It was never submitted.
        assert!(!run.ran.exists(), "{from}: {}", run.said);
        return false;
    }
    let all = fs::read(run.laptop.latest().join("log/exec.stdout")).unwrap();
    assert_eq!(all, b"out\nend\n", "{from}: {}", run.said);
    assert_eq!(fs::read_to_string(&run.ran).unwrap(), "once\n");
    true
}
