use ratatui::Terminal;
use ratatui::backend::TestBackend;
use rgpu_protocol::HostFacts;
use rgpu_protocol::probe::GpuFacts;
use serde_json::json;

use super::*;
use crate::dashboard::{FailedHostTry, HealthLevel, HostState, RunningRun};
use rgpu_work::loops::{
    AwaitedAnswer, Heartbeat, IterationRecord, LoopMetric, LoopMode, LoopTarget,
};
use rgpu_work::queue::Entry;

fn shown(data: &TopData, tab: Tab, scroll: usize) -> String {
    shown_in(90, 24, data, tab, scroll)
}

fn shown_in(width: u16, height: u16, data: &TopData, tab: Tab, scroll: usize) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    let mut state = ViewState { tab, scroll };
    terminal.draw(|frame| draw(frame, Some(data), &mut state)).unwrap();
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

fn kept(iteration: u32, us: f64) -> rgpu_work::loops::KeptState {
    serde_json::from_value(json!({
        "iteration": iteration, "files": "best", "digest": "x",
        "time": {"gmean_us": us, "cases": []},
    }))
    .unwrap()
}

fn gpu(index: u32, name: &str, memory_bytes: u64) -> GpuFacts {
    GpuFacts { index, name: name.to_owned(), memory_bytes, sm: 90, ..GpuFacts::default() }
}

/// A host that was never asked.
fn host(name: &str, address: &str) -> HostState {
    HostState {
        name: name.to_owned(),
        address: address.to_owned(),
        default: false,
        asked: None,
        failed_try: None,
        facts: None,
        health: Default::default(),
        running: Vec::new(),
        not_followed: 0,
        waiting: 0,
    }
}

fn asked_host(name: &str, address: &str, gpus: Vec<GpuFacts>) -> HostState {
    let facts = HostFacts {
        driver: (!gpus.is_empty()).then(|| "580.159.04".to_owned()),
        cuda: (!gpus.is_empty()).then(|| "13.0".to_owned()),
        gpus,
        ..HostFacts::default()
    };
    let mut host = host(name, address);
    host.asked = Some("2026-11-23T09:40:00Z".to_owned());
    host.facts = Some(facts);
    host.health.level = HealthLevel::Ok;
    host
}

fn running(id: &str, title: &str, remote: &str, phase: &str) -> RunningRun {
    let run = json!({
        "id": id, "title": title, "command": "profile", "mode": "ncu", "kernel": "k",
        "remote": remote, "state": "running", "state_text": "running", "started": "2026-11-23T10:13:02Z", "seconds": 0.0,
    });
    RunningRun {
        run: serde_json::from_value(run).unwrap(),
        phase: Some(phase.to_owned()),
        followed_by: (!phase.starts_with("not followed")).then(|| "process 4711".to_owned()),
        output: None,
    }
}

/// Two hosts with GPUs, this machine without, and one that was never asked.
fn sample_hosts() -> Vec<HostState> {
    let h200: Vec<GpuFacts> = (0..8).map(|n| gpu(n, "NVIDIA H200", 143_771 << 20)).collect();
    let mut h200 = asked_host("h200", "ssh://root@gpu-box:2222", h200);
    h200.running = vec!["20261123-101302-vecadd-ncu-3f2a1c".to_owned()];
    h200.waiting = 3;
    let mig = GpuFacts { mig: true, ..gpu(2, "NVIDIA B200", 183_359 << 20) };
    let b200 = vec![
        gpu(0, "NVIDIA B200", 183_359 << 20),
        gpu(1, "NVIDIA B200", 183_359 << 20),
        mig,
        gpu(3, "Tesla T4", 15_109 << 20),
    ];
    let mut b200 = asked_host("b200", "b200.example", b200);
    b200.health.level = HealthLevel::Warning;
    b200.health.warnings = vec!["GPU 2 is in MIG mode".to_owned()];
    b200.health.missing = vec!["nvcc".to_owned(), "triton".to_owned()];
    b200.running = vec!["20261121-090000-softmax-nsys-aa1100".to_owned()];
    let mut local = asked_host("local", "local", Vec::new());
    local.health.level = HealthLevel::Issue;
    local.health.issues = vec!["no NVIDIA driver answers".to_owned()];
    vec![b200, h200, host("modal", "https://me--rgpu.modal.run"), local]
}

fn sample() -> TopData {
    let status = LoopStatus {
        schema: "rgpu.loop/1",
        id: "20261123-101502-k-3f2a1c".to_owned(),
        folder: "artifacts/loop/20261123-101502-k-3f2a1c".to_owned(),
        state: "RUN_WORKER".to_owned(),
        phase: Phase::Compare,
        phase_text: Phase::Compare.text(),
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
        awaited: None,
        target: LoopTarget {
            metric: LoopMetric::GmeanUs,
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
        now: "2026-11-23T10:25:02Z".parse().unwrap(),
        hosts: sample_hosts(),
        running: vec![
            running(
                "20261123-101302-vecadd-ncu-3f2a1c",
                "profile vecadd (ncu)",
                "h200",
                "ncu: vecadd",
            ),
            running(
                "20261121-090000-softmax-nsys-aa1100",
                "profile softmax (nsys)",
                "b200",
                "not followed; last seen: the link is lost: the link was cut while following the job",
            ),
        ],
        running_count: 2,
        reading: false,
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
    insta::assert_snapshot!("hosts_140", shown_in(140, 20, &data, Tab::Hosts, 0));
    insta::assert_snapshot!("hosts_80", shown_in(80, 24, &data, Tab::Hosts, 0));
    insta::assert_snapshot!("queue", shown(&data, Tab::Queue, 0));
    insta::assert_snapshot!("loop", shown(&data, Tab::Loop, 0));
}

#[test]
fn what_is_too_long_for_80_columns_is_cut_with_a_mark() {
    let mut data = sample();
    let long = "a-long-word ".repeat(20);
    let queue = data.queue.as_mut().unwrap();
    queue.entries[1].name.clone_from(&long);
    queue.entries[1].reason = Some(long.clone());
    queue.entries[2].silent_s = Some(720.0);
    queue.entries[3].silent_s = Some(720.0);
    insta::assert_snapshot!("queue_80", shown_in(80, 12, &data, Tab::Queue, 0));
    let loop_data = data.loop_data.as_mut().unwrap();
    loop_data.status.mode = LoopMode::DryRun;
    loop_data.status.iterations[0].reason.clone_from(&long);
    loop_data.lines.push(long.clone());
    data.project = format!("/{}", long.replace(' ', "/"));
    insta::assert_snapshot!("loop_80", shown_in(80, 24, &data, Tab::Loop, 0));
}

#[test]
fn a_manual_loop_names_the_files_that_it_waits_for() {
    let mut data = sample();
    let status = &mut data.loop_data.as_mut().unwrap().status;
    status.best = Some(kept(0, 80.0));
    status.awaited = Some(AwaitedAnswer {
        prompt: "iter_0001/worker_prompt.txt".to_owned(),
        file: "iter_0001/worker_result.json".to_owned(),
    });
    let text = shown_in(80, 24, &data, Tab::Loop, 0);
    for line in [
        "│best 80.00 µs, the start ",
        "│waits for iter_0001/worker_result.json ",
        "│prompt    iter_0001/worker_prompt.txt ",
    ] {
        assert!(text.contains(line), "{text}");
    }
}

#[test]
fn an_entry_that_runs_is_named_where_no_run_is() {
    let mut data = sample();
    data.running.clear();
    let text = shown(&data, Tab::Hosts, 0);
    let named = "no run is running; the queue runs entry 3: rgpu profile --kernel k3";
    assert!(text.contains(named), "{text}");
    let queue = data.queue.as_mut().unwrap();
    queue.entries[3].state = EntryState::Running;
    let text = shown(&data, Tab::Hosts, 0);
    assert!(text.contains("the queue runs entries 3, 4"), "{text}");
}

#[test]
fn without_remotes_and_runs_it_says_how_to_get_them() {
    let mut data = TopData { hosts: vec![host("local", "local")], ..TopData::default() };
    insta::assert_snapshot!("nothing", shown_in(80, 12, &data, Tab::Hosts, 0));
    data.reading = true;
    let text = shown(&data, Tab::Hosts, 0);
    assert!(text.contains("are being read") && !text.contains("never asked"), "{text}");
    data.reading = false;
    data.hosts[0].failed_try = Some(FailedHostTry {
        at: data.now.to_string(),
        text: "ssh: connection refused".to_owned(),
    });
    let text = shown_in(140, 12, &data, Tab::Hosts, 0);
    assert!(text.contains("not reached 0 s ago: ssh: connection refused"), "{text}");
    let mut terminal = Terminal::new(TestBackend::new(80, 12)).unwrap();
    terminal.draw(|frame| draw(frame, None, &mut ViewState::default())).unwrap();
    assert!(terminal.backend().to_string().contains("is being read"));
}

#[test]
fn words_of_a_host_cannot_draw_over_the_view() {
    let evil = "\u{1b}[2J\u{7}\u{202e}red\nhost";
    let mut data = sample();
    data.hosts = vec![asked_host(evil, evil, vec![gpu(0, evil, 1 << 30)])];
    data.hosts[0].health.level = HealthLevel::Issue;
    data.hosts[0].health.issues = vec![evil.to_owned()];
    data.running = vec![running("a-run", evil, evil, evil)];
    data.problem = Some(evil.to_owned());
    for width in [60, 80, 140] {
        let text = shown_in(width, 12, &data, Tab::Hosts, 0);
        assert!(!text.contains(|c: char| c != '\n' && (c.is_control() || is_bidi(c))), "{text}");
    }
    insta::assert_snapshot!("hostile", shown_in(140, 9, &data, Tab::Hosts, 0));
}

#[test]
fn many_hosts_and_many_runs_share_the_screen_and_scroll_to_their_ends() {
    let mut data = sample();
    data.hosts = (0..30).map(|n| host(&format!("host{n}"), "local")).collect();
    let many = (0..20).map(|n| running(&format!("run{n}"), "title", "h200", "ncu"));
    data.running = many.collect();
    data.running_count = 35;
    let first = shown(&data, Tab::Hosts, 0);
    assert!(first.contains("host0") && first.contains("run0"), "{first}");
    assert!(first.contains("35 runs not ended, the newest 20"), "{first}");
    let last = shown(&data, Tab::Hosts, usize::MAX);
    assert!(last.contains("host29") && last.contains("run19"), "{last}");
    assert!(!last.contains("host0 ") && last.contains("health"), "{last}");
}

#[test]
fn without_a_queue_or_a_loop_it_says_how_to_get_one() {
    let data = TopData { problem: Some("the disk failed".to_owned()), ..TopData::default() };
    assert!(shown(&data, Tab::Queue, 0).contains("rgpu queue add"));
    let text = shown(&data, Tab::Loop, 0);
    assert!(text.contains("rgpu loop start") && text.contains("the disk failed"), "{text}");
}

#[test]
fn no_size_is_too_small() {
    let data = sample();
    for (width, height) in [(0, 0), (1, 1), (5, 3), (200, 2), (3, 60)] {
        for tab in TABS {
            let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
            let mut state = ViewState { tab, scroll: usize::MAX };
            terminal.draw(|frame| draw(frame, Some(&data), &mut state)).unwrap();
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
