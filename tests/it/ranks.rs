//! `rgpu report` of the reports of many ranks.

mod program;

use std::path::PathBuf;

use serde_json::Value;

use crate::fake_host::FakeHost;
use crate::laptop::{Laptop, status};
use program::{BYTES, Fault, MS, Program, REDUCE_NS};

/// A laptop with the reports of a program in the folder `ranks`.
fn with(program: &Program) -> (Laptop, PathBuf) {
    let laptop = Laptop::new();
    let folder = laptop.project("ranks");
    std::fs::create_dir(&folder).unwrap();
    program.write_each(&folder);
    (laptop, folder)
}

fn json(laptop: &Laptop, line: &str) -> Value {
    let output = laptop.run(line);
    assert_eq!(status(&output), 0, "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn sleeping(ranks: usize) -> Program {
    let fault = Some(Fault::Sleep { rank: 1, step: 6, ns: 100 * MS });
    Program { fault, ..Program::new(ranks) }
}

fn finding<'a>(report: &'a Value, id: &str) -> &'a Value {
    let all = report["findings"].as_array().unwrap();
    all.iter().find(|finding| finding["id"] == id).unwrap_or_else(|| panic!("{all:#?}"))
}

fn gap_codes(report: &Value) -> Vec<&str> {
    report["gaps"].as_array().unwrap().iter().filter_map(|gap| gap["code"].as_str()).collect()
}

#[test]
fn a_rank_that_sleeps_is_named_with_its_region_and_size() {
    let (laptop, _) = with(&sleeping(2));
    let report = json(&laptop, "report ranks --json");
    let straggler = &report["ranks"]["stragglers"][0];
    assert_eq!(straggler["rank"], 1);
    assert_eq!(
        (&straggler["cause"], &straggler["region"]),
        (&"host".into(), &"step::load_batch".into())
    );
    let late = straggler["late_ns"].as_i64().unwrap();
    assert!((100 * MS..101 * MS).contains(&late), "{late}");
    let finding = finding(&report, "straggler");
    assert_eq!(finding["rank"], 1);
    assert!(finding["text"].as_str().unwrap().contains("in `step::load_batch`"), "{finding}");
    let wait = &report["ranks"]["waits"][0];
    assert_eq!((&wait["number"], &wait["last"]), (&6.into(), &1.into()));
    let waited = wait["duration_ns"][0].as_i64().unwrap();
    assert!((waited - 100 * MS - REDUCE_NS).abs() < MS, "{waited}");
    // Both ranks computed as long; only the wall time of a collective differs.
    let ranks = report["ranks"]["ranks"].as_array().unwrap();
    assert_eq!(ranks[0]["compute_ns"], ranks[1]["compute_ns"]);
    for rank in ranks {
        let ns = |key: &str| rank[key].as_i64().unwrap();
        assert_eq!(
            ns("span_ns"),
            ns("compute_ns") + ns("exposed_ns") + ns("copy_ns") + ns("idle_ns")
        );
        let causes: i64 = rank["idle"]
            .as_array()
            .unwrap()
            .iter()
            .map(|idle| idle["total_ns"].as_i64().unwrap())
            .sum();
        assert_eq!(causes, ns("idle_ns"));
    }
    assert!(ranks[0]["waited_ns"].as_i64().unwrap() > 100 * MS);
    assert!(ranks[1]["waited_ns"].as_i64().unwrap() < MS);
}

#[test]
fn a_slow_kernel_is_named_although_all_ranks_take_equally_long() {
    let fault = Some(Fault::SlowKernel { rank: 2, ns: MS });
    let (laptop, _) = with(&Program { fault, ..Program::new(4) });
    let report = json(&laptop, "report ranks --json");
    let straggler = &report["ranks"]["stragglers"][0];
    assert_eq!((&straggler["rank"], &straggler["cause"]), (&2.into(), &"compute".into()));
    assert_eq!(straggler["region"], "step::forward");
    assert!(straggler["kernel"].as_str().unwrap().contains("gemm"));
    // The first call of a group shows how the ranks started, not how they work.
    assert_eq!(straggler["times_last"], 9);
    let balance = &report["ranks"]["regions"][0];
    assert_eq!(balance["slowest"], 2);
    assert!((balance["imbalance"].as_f64().unwrap() - (3.0 / 2.25 - 1.0)).abs() < 1e-3);
    assert_eq!(finding(&report, "rank_imbalance")["rank"], 2);
    let spans: Vec<i64> = report["ranks"]["ranks"]
        .as_array()
        .unwrap()
        .iter()
        .map(|r| r["span_ns"].as_i64().unwrap())
        .collect();
    assert!(spans.iter().max().unwrap() - spans.iter().min().unwrap() < 2 * MS, "{spans:?}");
}

#[test]
fn a_collective_has_the_rates_of_nccl_tests() {
    let (laptop, _) = with(&Program::new(4));
    let report = json(&laptop, "report ranks --json");
    let sum = &report["ranks"]["collectives"][0];
    assert_eq!((&sum["operation"], &sum["ranks"]), (&"all_reduce".into(), &4.into()));
    assert_eq!((&sum["calls"], &sum["bytes"]), (&10.into(), &BYTES.into()));
    let algorithm = sum["algorithm_bytes_per_s"].as_f64().unwrap();
    assert!((algorithm / (BYTES as f64 * 1e9 / REDUCE_NS as f64) - 1.0).abs() < 0.01, "{sum}");
    assert_eq!(sum["bus_bytes_per_s"].as_f64().unwrap(), algorithm * 1.5);
    let share = sum["link_share"].as_f64().unwrap();
    assert!((share - algorithm * 1.5 / 450e9).abs() < 0.01, "{sum}");
}

#[test]
fn clocks_of_two_hosts_are_fitted_and_the_residual_is_printed() {
    let program = Program {
        ahead_ns: vec![0, 3_600_000_000_000],
        hosts: vec!["node0", "node1"],
        ..sleeping(2)
    };
    let (laptop, _) = with(&program);
    let report = json(&laptop, "report ranks --json");
    let clock = &report["ranks"]["clock"];
    assert_eq!((&clock["source"], &clock["collectives"]), (&"fitted".into(), &10.into()));
    assert!(clock["residual_ns"].as_i64().unwrap() < 1_000, "{clock}");
    assert_eq!(report["ranks"]["stragglers"][0]["rank"], 1);
    // NVLink does not join hosts.
    assert_eq!(report["ranks"]["collectives"][0]["link_share"], Value::Null);
    let starts = report["ranks"]["waits"][0]["start_ns"].as_array().unwrap().clone();
    let apart = starts[1].as_i64().unwrap() - starts[0].as_i64().unwrap();
    assert!((apart - 100 * MS).abs() < MS, "{starts:?}");
    let text = laptop.show("report ranks");
    assert!(text.contains("aligned on 10 collectives"), "{text}");
}

#[test]
fn without_a_common_clock_durations_tell_who_waits() {
    let program = Program {
        steps: 2,
        fault: Some(Fault::Sleep { rank: 0, step: 1, ns: 50 * MS }),
        hosts: vec!["node0", "node1"],
        ..Program::new(2)
    };
    let (laptop, _) = with(&program);
    let report = json(&laptop, "report ranks --json");
    assert_eq!(report["ranks"]["clock"]["source"], "none");
    let straggler = &report["ranks"]["stragglers"][0];
    assert_eq!((&straggler["rank"], &straggler["region"]), (&0.into(), &"step::load_batch".into()));
}

#[test]
fn one_report_of_a_launcher_has_the_same_ranks() {
    let laptop = Laptop::new();
    sleeping(2).write_one(&laptop.project("all.sqlite"));
    let report = json(&laptop, "report all.sqlite --json");
    assert_eq!(report["ranks"]["clock"]["source"], "report");
    let ranks = report["ranks"]["ranks"].as_array().unwrap();
    let places: Vec<_> =
        ranks.iter().map(|r| (r["rank"].clone(), r["gpu"].clone(), r["pid"].clone())).collect();
    assert_eq!(places, [(0.into(), 0.into(), 1000.into()), (1.into(), 1.into(), 1001.into())]);
    assert_eq!(report["ranks"]["stragglers"][0]["region"], "step::load_batch");
    assert!(gap_codes(&report).contains(&"ranks_inferred"));
    assert!(report["launches"].as_array().unwrap().iter().all(|launch| launch["rank"].is_u64()));
}

#[test]
fn steps_are_compared_between_ranks() {
    let (laptop, _) = with(&sleeping(2));
    let report = json(&laptop, "report ranks --json");
    let steps = &report["ranks"]["steps"];
    assert_eq!(steps["name"], "step");
    assert_eq!(steps["steps"].as_array().unwrap().len(), 10);
    let slow = &steps["steps"][6];
    assert!(slow["host_ns"][1].as_i64().unwrap() > 100 * MS);
    assert!(slow["host_ns"][0].as_i64().unwrap() < 3 * MS);
    assert_eq!(slow["compute_ns"][0], slow["compute_ns"][1]);
}

#[test]
fn the_longest_step_is_found_among_those_that_are_not_listed() {
    let fault = Some(Fault::Sleep { rank: 1, step: 230, ns: 100 * MS });
    let (laptop, _) = with(&Program { fault, steps: 250, ..Program::new(2) });
    let report = json(&laptop, "report ranks --json");
    let steps = &report["ranks"]["steps"];
    assert_eq!((steps["steps"].as_array().unwrap().len(), &steps["cut"]), (200, &50.into()));
    let longest = &steps["longest"];
    assert_eq!((&longest["number"], &longest["rank"]), (&230.into(), &1.into()));
    assert!(longest["host_ns"].as_i64().unwrap() > 100 * MS, "{longest}");
    assert!(longest["median_ns"].as_i64().unwrap() < 3 * MS, "{longest}");
    let text = laptop.show("report ranks");
    assert!(text.contains("the longest of 250 `step` is number 230 on rank 1"), "{text}");
}

#[test]
fn markdown_says_what_its_tables_leave_out() {
    let fault = Some(Fault::SlowKernel { rank: 1, ns: MS });
    let (laptop, _) = with(&Program { fault, ..Program::new(2) });
    let text = laptop.show("report ranks --format markdown");
    assert!(text.contains("… and 4 of the longest waits more in the JSON."), "{text}");
    assert!(text.contains("- steps: the longest of 10 "), "{text}");
}

#[test]
fn a_report_that_is_cut_or_missing_is_named_and_the_others_are_shown() {
    let (laptop, folder) = with(&sleeping(4));
    std::fs::write(folder.join("rank0.sqlite"), b"SQLite format 3\0 and no more").unwrap();
    std::fs::remove_file(folder.join("rank2.sqlite")).unwrap();
    let report = json(&laptop, "report ranks --json");
    let codes = gap_codes(&report);
    assert!(codes.contains(&"report_left_out"), "{codes:?}");
    assert!(codes.contains(&"ranks_missing"), "{codes:?}");
    assert_eq!(report["ranks"]["ranks"].as_array().unwrap().len(), 2);
    assert_eq!(report["ranks"]["stragglers"][0]["rank"], 1);
    // A name that is no file is a mistake of the user.
    let output = laptop.run("report ranks/rank1.sqlite ranks/rank9.sqlite");
    assert_ne!(status(&output), 0);
}

#[test]
fn ranks_of_different_programs_are_told() {
    let (laptop, folder) = with(&Program::new(2));
    let other =
        concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/nsys/2025.3.1/regions/report.sqlite");
    std::fs::copy(other, folder.join("rank1.sqlite")).unwrap();
    let report = json(&laptop, "report ranks --json");
    let gaps = report["gaps"].to_string();
    assert!(gaps.contains("they may be of different programs"), "{gaps}");
    assert_eq!(report["ranks"]["ranks"].as_array().unwrap().len(), 2);
    assert_eq!(report["ranks"]["stragglers"], Value::Array(Vec::new()));
}

#[test]
fn the_calls_of_a_rank_that_died_are_matched_until_its_death() {
    let (laptop, folder) = with(&Program::new(2));
    let dead = laptop.path("dead");
    std::fs::create_dir(&dead).unwrap();
    Program { steps: 6, ..Program::new(2) }.write_each(&dead);
    std::fs::remove_file(folder.join("rank1.sqlite")).unwrap();
    std::fs::copy(dead.join("rank1.sqlite"), folder.join("rank1.sqlite")).unwrap();
    let report = json(&laptop, "report ranks --json");
    let gaps = report["gaps"].to_string();
    assert!(gaps.contains("call between 6 and 10 collectives"), "{gaps}");
    assert_eq!(report["ranks"]["collectives"][0]["calls"], 6);
    assert_eq!(report["ranks"]["unmatched"], 4);
}

#[test]
fn every_view_has_the_ranks() {
    let (laptop, folder) = with(&sleeping(2));
    let text = laptop.show("report ranks");
    let wide = text.lines().find(|l| l.chars().count() > 80 && !l.starts_with('$'));
    assert_eq!(wide, None);
    insta::assert_snapshot!(text);
    let page = folder.join("page.html");
    laptop.show(&format!("report ranks --format html --out {}", page.display()));
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.contains("\"waits\"") && page.contains("load_batch"));
    let trace = folder.join("all.pftrace");
    laptop.show(&format!("report ranks --format perfetto --out {}", trace.display()));
    let bytes = std::fs::read(trace).unwrap();
    let has = |text: &str| bytes.windows(text.len()).any(|part| part == text.as_bytes());
    assert!(has("rank 0, GPU 0") && has("rank 1, GPU 0"));
}

#[test]
fn every_format_has_the_busy_share_of_each_gpu_and_calls_sums_sums() {
    let (laptop, _) = with(&sleeping(4));
    // The ranks that wait in the collective are busy; the one that sleeps is not.
    let (share, over) = ("18 to 100 %", "summed over 4 ranks");
    let sentence = format!("The GPUs of 4 ranks were busy {share} of the time");
    let report = json(&laptop, "report ranks --json");
    for device in report["timeline"]["devices"].as_array().unwrap() {
        let ns = |key: &str| device[key].as_u64().unwrap();
        assert!(ns("busy_ns") <= ns("span_ns"), "{device}");
    }
    let brief = laptop.show("report ranks --format brief");
    assert!(brief.contains(&format!("verdict: {sentence}. Rank 1 arrives last at ")), "{brief}");
    let text = laptop.show("report ranks");
    assert!(text.contains(&format!("  kernels, {over}\n")), "{text}");
    laptop.show("report ranks --format markdown --out set");
    let markdown =
        |file: &str| std::fs::read_to_string(laptop.project(format!("set/{file}"))).unwrap();
    let table = markdown("report.md");
    assert!(table.contains(&format!("## Kernels, {over}\n")), "{table}");
    let summary = markdown("stakeholder_summary.md");
    assert!(summary.contains(&format!("\n{sentence}. ")), "{summary}");
    assert!(summary.contains(&format!("- time in kernels, {over}: ")), "{summary}");
    assert!(summary.contains(&format!("- share of it with the GPU busy: {share}\n")), "{summary}");
    laptop.show("report ranks --format html --out page.html");
    let page = std::fs::read_to_string(laptop.project("page.html")).unwrap();
    assert!(page.contains(&sentence));
    assert!(page.contains(&format!("\"percent\":\"{share}\"")));
}

#[test]
fn a_redacted_report_does_not_name_the_hosts() {
    let program = Program { hosts: vec!["node17", "node17"], ..sleeping(2) };
    let (laptop, _) = with(&program);
    let report = json(&laptop, "report ranks --json --redact");
    assert_eq!(report["ranks"]["ranks"][1]["host"], "host 0");
    assert!(!report.to_string().contains("node17"));
}

#[test]
fn two_runs_of_ranks_are_compared_rank_by_rank() {
    let (laptop, _) = with(&Program::new(2));
    let other = laptop.project("slow");
    std::fs::create_dir(&other).unwrap();
    let fault = Some(Fault::SlowKernel { rank: 1, ns: MS });
    Program { fault, ..Program::new(2) }.write_each(&other);
    let compared = json(&laptop, "compare ranks slow --json");
    let ranks = compared["ranks"].as_array().unwrap();
    assert_eq!(ranks.len(), 2);
    let compute = |rank: usize, side: usize| ranks[rank]["compute_ns"][side].as_i64().unwrap();
    assert_eq!(compute(0, 0), compute(0, 1));
    assert_eq!(compute(1, 1) - compute(1, 0), 10 * MS);
    assert!(laptop.show("compare ranks slow").contains("rank 1"));
}

#[test]
fn several_gpus_are_refused_where_they_cannot_work() {
    let laptop = Laptop::new();
    for (line, word) in [
        ("profile --mode ncu --gpus 2 -- true", "waits for another rank"),
        ("profile --mode deep --gpus all -- true", "waits for another rank"),
        ("profile --mode nsys --gpus 0 -- true", "leaves nothing to profile"),
        ("profile --mode nsys --gpus two -- true", "`all`"),
    ] {
        let output = laptop.run(line);
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(status(&output), 2, "{line}: {told}");
        assert!(told.split_whitespace().collect::<Vec<_>>().join(" ").contains(word), "{told}");
    }
}

#[test]
fn a_mode_locks_as_many_gpus_as_asked_for_and_no_more_than_there_are() {
    let laptop = Laptop::new();
    FakeHost::new(&laptop).gpus(4);
    let dry = |gpus: &str| {
        let line =
            format!("profile --remote h200 --mode nsys --gpus {gpus} --dry-run --json -- true");
        json(&laptop, &line)["gpu"].clone()
    };
    // Of a host that nobody has asked yet, the plan is for as many as asked for.
    assert_eq!(dry("2")["count"], 2);
    assert_eq!(status(&laptop.run("remote check h200")), 0);
    let plan = |gpus: &str| {
        let gpu = dry(gpus);
        let known = gpu["known"].as_array().unwrap();
        let indexes: Vec<u64> = known.iter().map(|one| one["index"].as_u64().unwrap()).collect();
        // One is not written.
        (gpu["count"].as_u64().unwrap_or(1), indexes)
    };
    assert_eq!(plan("2"), (2, vec![0, 1, 2, 3]));
    assert_eq!(plan("all"), (4, vec![0, 1, 2, 3]));
    assert_eq!(plan("3,1"), (2, vec![1, 3]));
    assert_eq!(plan("all --gpu 2"), (1, vec![2]));
    let output = laptop.run("profile --remote h200 --mode nsys --gpus 5 --dry-run -- true");
    assert_eq!(status(&output), 4);
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(told.contains("the host has 4 GPUs, but 5 are requested"), "{told}");
}
