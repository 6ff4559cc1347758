use ratatui::Terminal;
use ratatui::backend::TestBackend;
use serde_json::json;

use super::*;
use crate::cli::top::data::HostRow;
use crate::loops::{Heartbeat, IterationRecord, LoopMode, LoopTarget, Metric};
use crate::queue::Entry;

fn shown(data: &TopData, tab: Tab, scroll: usize) -> String {
    let mut terminal = Terminal::new(TestBackend::new(90, 24)).unwrap();
    let mut state = ViewState { tab, scroll };
    terminal.draw(|frame| draw(frame, data, &mut state)).unwrap();
    let text = terminal.backend().to_string();
    // The backend quotes its lines; blanks at their ends say nothing.
    let lines = text.lines().map(|line| line.trim_matches('"').trim_end());
    lines.collect::<Vec<_>>().join("\n")
}

fn entry(id: i64, state: EntryState, reason: Option<&str>) -> Entry {
    Entry {
        id,
        name: format!("rgpu profile --kernel k{id}"),
        state,
        reason: reason.map(str::to_owned),
        attempt: 1,
        retries_left: 0,
        rc: None,
        signal: None,
        seconds: Some(id as f64 * 1.5),
        silent_s: None,
        added: String::new(),
        started: None,
        ended: None,
        command: Vec::new(),
        script: None,
        cwd: String::new(),
        priority: 0,
        after: Vec::new(),
        remote: None,
        gpu: None,
        timeout_s: None,
        tags: Vec::new(),
        snapshot: Default::default(),
        log: None,
        pid: None,
    }
}

fn iteration(number: u32, outcome: &str, speedup: f64, reason: &str) -> IterationRecord {
    let time = |us: f64| json!({"gmean_us": us, "cases": [{"name": "large", "median_us": us}]});
    let comparison = json!({
        "run": "artifacts/runs/x", "verdict": "FASTER", "summary": reason, "speedup": speedup,
        "base": time(80.0), "new": time(80.0 / speedup),
    });
    let record = json!({
        "iteration": number, "outcome": outcome, "reason": reason, "changed": ["k.cu"],
        "comparison": comparison, "confirmation": comparison,
    });
    serde_json::from_value(record).unwrap()
}

fn kept(iteration: u32, us: f64) -> crate::loops::KeptState {
    serde_json::from_value(json!({
        "iteration": iteration, "files": "best", "digest": "x",
        "time": {"gmean_us": us, "cases": []},
    }))
    .unwrap()
}

fn sample() -> TopData {
    let host = |name: &str, gpus: &str, running: &[&str]| HostRow {
        name: name.to_owned(),
        address: format!("ssh://me@{name}"),
        gpus: gpus.to_owned(),
        running: running.iter().map(ToString::to_string).collect(),
    };
    let status = LoopStatus {
        schema: "rgpu.loop/1",
        id: "20261123-101502-k-3f2a1c".to_owned(),
        folder: "artifacts/loop/20261123-101502-k-3f2a1c".to_owned(),
        state: "RUN_WORKER".to_owned(),
        phase: Phase::Compare,
        iteration: 4,
        max_iterations: 40,
        mode: LoopMode::Command,
        kernel_path: "kernels/k".to_owned(),
        pid: Some(4711),
        started: String::new(),
        changed: String::new(),
        active_s: 600.0,
        max_active_s: 21600.0,
        nonce: None,
        target: LoopTarget {
            metric: Metric::GmeanUs,
            threshold: Some(30.0),
            best: Some(40.0),
            reached: false,
        },
        kept: 1,
        no_progress: 1,
        infra_failures: 0,
        failure: None,
        start: Some(kept(0, 80.0)),
        best: Some(kept(2, 40.0)),
        stop: None,
        final_comparison: None,
        iterations: vec![
            iteration(1, "slower", 0.8, "SLOWER: 0.800 times as fast"),
            iteration(2, "kept", 2.0, "FASTER: 2.000 times as fast"),
            iteration(3, "same", 1.0, "SAME"),
        ],
    };
    let heartbeat = Heartbeat {
        at: "2026-11-23T10:25:02Z".to_owned(),
        pid: 4711,
        phase: Phase::Compare,
        iteration: 4,
        child: None,
    };
    let lines = (1..=9).map(|n| format!("2026-11-23T10:2{n}:00Z line {n}")).collect();
    TopData {
        project: "/home/me/project".to_owned(),
        hosts: vec![
            host("h200", "NVIDIA H200", &["profile k (ncu)"]),
            // Words of a host cannot draw over the view.
            host("evil", "\u{1b}[2J\u{7}red", &[]),
        ],
        queue: Some(QueueData {
            entries: vec![
                entry(1, EntryState::Ok, None),
                entry(2, EntryState::Failed, Some("exit status 3")),
                entry(3, EntryState::Running, None),
                entry(4, EntryState::Waiting, None),
            ],
            runner: Some(99),
            is_paused: false,
        }),
        loop_data: Some(LoopData { status, heartbeat: Some(heartbeat), lines }),
        problem: None,
    }
}

#[test]
fn hosts_queue_and_loop_are_drawn() {
    let data = sample();
    insta::assert_snapshot!("hosts", shown(&data, Tab::Hosts, 0));
    insta::assert_snapshot!("queue", shown(&data, Tab::Queue, 0));
    insta::assert_snapshot!("loop", shown(&data, Tab::Loop, 0));
}

#[test]
fn without_a_queue_or_a_loop_it_says_how_to_get_one() {
    let data = TopData { problem: Some("the disk failed".to_owned()), ..TopData::default() };
    assert!(shown(&data, Tab::Queue, 0).contains("rgpu queue add"));
    let text = shown(&data, Tab::Loop, 0);
    assert!(text.contains("rgpu loop start") && text.contains("the disk failed"), "{text}");
}

#[test]
fn no_control_character_reaches_the_terminal_and_no_size_is_too_small() {
    let data = sample();
    assert!(!shown(&data, Tab::Hosts, 0).contains(|c: char| c.is_control() && c != '\n'));
    for (width, height) in [(0, 0), (1, 1), (5, 3), (200, 2), (3, 60)] {
        for tab in TABS {
            let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
            let mut state = ViewState { tab, scroll: usize::MAX };
            terminal.draw(|frame| draw(frame, &data, &mut state)).unwrap();
        }
    }
}

#[test]
fn the_places_go_round_and_a_long_list_scrolls_to_its_end() {
    let mut state = ViewState::default();
    for tab in [Tab::Queue, Tab::Loop, Tab::Hosts] {
        state.select_tab(1);
        assert_eq!(state.tab, tab);
    }
    state.select_tab(-1);
    assert_eq!(state.tab, Tab::Loop);
    let mut data = sample();
    let entries = (1..=100).map(|id| entry(id, EntryState::Waiting, None)).collect();
    data.queue = Some(QueueData { entries, ..QueueData::default() });
    assert!(shown(&data, Tab::Queue, 10_000).contains("k100"));
    assert!(
        shown(&data, Tab::Queue, 5).contains("k6 ") && !shown(&data, Tab::Queue, 5).contains("k5 ")
    );
}
