//! A hostile host: every message of the protocol, false in every way, at every state.
//!
//! [`samples`] has one honest message of each kind, and [`invalid_messages`] makes every false one
//! of it. [`agent`] is a host in memory that tells one lie at one state of the client, and
//! [`session`] runs a real client against it in a sandbox. A message of the protocol without a
//! sample fails. [`client_side`] lies to a real agent in the same way, and [`http`] is a server
//! that lies, also as a provider does ([`provider_lies`]).
//! [`terminal`] looks at what the command line then shows.

mod agent;
mod client_side;
mod http;
mod invalid_messages;
mod provider_lies;
mod samples;
mod session;
mod terminal;

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write;
use std::sync::{Arc, Mutex};

use serde_json::json;

use agent::State;
use invalid_messages::InvalidMessage;
use session::{Case, End};

/// The job of the samples. The agent puts the followed job in its place.
const JOB: &str = "adversary.1";

/// What the job prints.
const OUTPUT: &[u8] = b"hello\n";

/// The file that is pulled.
const ARTIFACT: &[u8] = b"a result\n";

/// The file that is sent.
const FILE: &[u8] = b"an input\n";

/// Every case, by state and message.
fn cases() -> Vec<Case> {
    let hello = json!({"rgpu": rgpu_protocol::PROTOCOL, "features": ["pieces"], "required": [], "version": "v"});
    let mut rows = vec![("hello".to_owned(), InvalidMessage::variants_of(&hello, &[]))];
    for sample in samples::from_agent() {
        rows.push((sample.name, InvalidMessage::variants_of(&sample.message, &sample.bytes)));
    }
    rows.push(("no message".to_owned(), invalid_messages::garbage()));
    let mut cases = Vec::new();
    for (n, state) in State::ALL.into_iter().enumerate() {
        for (message, lies) in &rows {
            let own = *message == state.awaits();
            let case =
                |lie: &InvalidMessage| Case { state, message: message.clone(), lie: lie.clone() };
            cases.extend(turn(lies, n, own).map(case));
        }
    }
    cases
}

/// The lies that state number `n` takes. The lies about the message that it waits for (`own`) are
/// all told. Of the others each state takes its turn of a sixth, beside those about the message as
/// a whole. With `RGPU_TEST_ALL_LIES` every state takes all, which lasts minutes.
fn turn(lies: &[InvalidMessage], n: usize, own: bool) -> impl Iterator<Item = &InvalidMessage> {
    let all = own || std::env::var_os("RGPU_TEST_ALL_LIES").is_some();
    let takes = move |i: usize, lie: &InvalidMessage| {
        all || !lie.name.starts_with('/') || (i + n).is_multiple_of(6)
    };
    lies.iter().enumerate().filter(move |(i, lie)| takes(*i, lie)).map(|(_, lie)| lie)
}

/// Runs the cases on several threads, many at a time.
fn run_all(cases: Vec<Case>) -> Vec<(Case, Result<End, String>)> {
    let queue = Arc::new(Mutex::new(VecDeque::from(cases)));
    let ended = Arc::new(Mutex::new(Vec::new()));
    std::thread::scope(|threads| {
        for _ in 0..4 {
            threads.spawn(|| {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
                let lanes = tokio::task::LocalSet::new();
                for _ in 0..12 {
                    let (queue, ended) = (queue.clone(), ended.clone());
                    lanes.spawn_local(async move {
                        loop {
                            let Some(case) = queue.lock().unwrap().pop_front() else { return };
                            let mut tries = 0;
                            // A loaded machine may give up before it has reconnected. A lie that
                            // was not told proves nothing, so the case runs again.
                            let end = loop {
                                let run = tokio::task::spawn_local(session::run(case.clone()));
                                let end = run.await.unwrap_or_else(|_| Err("panics".to_owned()));
                                tries += 1;
                                let told = !matches!(&end, Err(why) if why == session::NEVER_TOLD);
                                if told || tries == 3 {
                                    break end;
                                }
                            };
                            ended.lock().unwrap().push((case, end));
                        }
                    });
                }
                runtime.unwrap().block_on(lanes);
            });
        }
    });
    Arc::into_inner(ended).unwrap().into_inner().unwrap()
}

/// The panics so far, of any thread.
static PANICS: Mutex<Vec<String>> = Mutex::new(Vec::new());

#[test]
fn no_lie_of_a_host_at_any_state_breaks_a_promise() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        PANICS.lock().unwrap().push(info.to_string());
        before(info);
    }));
    let cases = cases();
    let count = cases.len();
    let begun = std::time::Instant::now();
    let ended = run_all(cases);
    eprintln!("{count} cases in {:.1} s", begun.elapsed().as_secs_f64());
    assert_eq!(ended.len(), count);
    let mut broken: Vec<String> = Vec::new();
    let mut counts: BTreeMap<(&str, State), BTreeMap<char, usize>> = BTreeMap::new();
    for (case, end) in &ended {
        match end {
            Ok(end) => {
                let cell = counts.entry((&case.message, case.state)).or_default();
                *cell.entry(end.letter()).or_default() += 1;
            }
            Err(why) => broken.push(format!("{}: {why}", case.title())),
        }
        if std::env::var_os("ADVERSARY_VERBOSE").is_some() {
            eprintln!("{end:?} {}", case.title());
        }
    }
    broken.sort();
    broken.extend(PANICS.lock().unwrap().iter().cloned());
    assert!(broken.is_empty(), "{} of {count}:\n{}", broken.len(), broken.join("\n"));
    let legend = "h: harmless, b: believed as a result, r: ends with an error (always, once \
                  cancelled), s: waits until a signal, l: waits until its limit";
    let text = table(legend, &State::ALL, &counts);
    eprintln!("{text}");
    // How a case ends may depend on the machine's load; which lies are told does not.
    insta::assert_snapshot!(lies_table(&State::ALL, &counts));
}

/// The number of lies by message and state.
fn lies_table<S: Copy + Ord + std::fmt::Debug>(
    states: &[S],
    counts: &BTreeMap<(&str, S), BTreeMap<char, usize>>,
) -> String {
    let told = counts.iter().map(|(cell, ends)| (*cell, ends.values().sum()));
    let told: BTreeMap<_, usize> = told.collect();
    render("lies by message and state", states, &told, |n| n.to_string())
}

/// A table of messages and states: how many lies each cell has, by how they ended.
fn table<S: Copy + Ord + std::fmt::Debug>(
    legend: &str,
    states: &[S],
    counts: &BTreeMap<(&str, S), BTreeMap<char, usize>>,
) -> String {
    render(legend, states, counts, |ends| {
        let ends: Vec<String> = ends.iter().map(|(letter, n)| format!("{n}{letter}")).collect();
        ends.join(" ")
    })
}

fn render<S: Copy + Ord + std::fmt::Debug, T>(
    legend: &str,
    states: &[S],
    cells: &BTreeMap<(&str, S), T>,
    show: impl Fn(&T) -> String,
) -> String {
    let mut text = format!("{legend}\n\n{:<22}", "");
    for state in states {
        write!(text, "{:<16}", format!("{state:?}").to_lowercase()).unwrap();
    }
    let mut names: Vec<&str> = cells.keys().map(|(name, _)| *name).collect();
    names.dedup();
    for name in names {
        write!(text, "\n{name:<22}").unwrap();
        for state in states {
            write!(text, "{:<16}", show(&cells[&(name, *state)])).unwrap();
        }
    }
    text.lines().map(|line| line.trim_end().to_owned() + "\n").collect()
}
