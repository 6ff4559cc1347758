//! Whole comparisons of profiles made here.

use super::*;
use rgpu_model::Launch;
use rgpu_model::profile::{CaseResult, Correctness, Timing, TimingClock, Trust};

const NAMES: [&str; 2] = ["old", "new"];

fn timing(median_ns: f64, half: f64) -> Timing {
    Timing {
        median_ns,
        ci95_ns: [median_ns - half, median_ns + half],
        samples: 30,
        clock: "cuda_events".into(),
        l2_flushed: true,
        ..Timing::default()
    }
}

fn run(cases: &[(&str, Timing)]) -> Profile {
    let cases = cases.iter().map(|(name, timing)| CaseResult {
        name: (*name).to_owned(),
        timing: Some(timing.clone()),
        ..CaseResult::default()
    });
    let mut profile = Profile { cases: cases.collect(), ..Profile::default() };
    profile.timing = profile.cases.first().and_then(|c| c.timing.clone());
    profile
}

fn report(launches: &[(&str, f64, &[(&str, f64)])]) -> Profile {
    let launches = launches.iter().zip(0..).map(|((kernel, ns, metrics), id)| Launch {
        id,
        kernel: (*kernel).to_owned(),
        duration_ns: Some(*ns),
        ..Launch::from_numbers(metrics)
    });
    Profile { launches: launches.collect(), ..Profile::default() }
}

fn held(a: &Profile, b: &Profile) -> Comparison {
    compare(a, b, &CompareOptions { names: NAMES, threshold: 0.01, paired: &[] })
}

#[test]
fn a_hundred_thousand_regions_are_joined_in_one_pass() {
    let profile = |ns: u64| {
        let region = |n: u64| Region {
            path: vec![(n * ns % 100_003).to_string()],
            host_ns: Some(ns),
            ..Region::default()
        };
        Profile { regions: (1..=100_000).map(region).collect(), ..Profile::default() }
    };
    let changes = super::regions(&profile(2), &profile(3));
    assert!((99_900..=100_000).contains(&changes.len()), "{}", changes.len());
    assert!(changes.iter().all(|change| change.host_ns == Some([2, 3])));
}

#[test]
fn samples_decide_before_the_tools_own_durations() {
    let mut a = run(&[("n", timing(2000.0, 4.0))]);
    let mut b = run(&[("n", timing(1000.0, 4.0))]);
    a.launches = report(&[("f", 10.0, &[])]).launches;
    b.launches = report(&[("f", 90.0, &[])]).launches;
    let there = held(&a, &b);
    assert_eq!(there.verdict, TimeVerdict::Faster);
    assert_eq!(
        there.summary,
        "`new` is 2.000 times as fast as `old` (95 % interval 1.991 to 2.009)"
    );
    let back = held(&b, &a);
    assert_eq!(back.verdict, TimeVerdict::Slower);
    assert!(back.summary.starts_with("`new` is 2.000 times as slow as `old`"), "{}", back.summary);
}

#[test]
fn two_runs_of_one_binary_are_the_same_and_a_wide_interval_is_undecided() {
    let same = held(&run(&[("n", timing(1000.0, 3.0))]), &run(&[("n", timing(1002.0, 3.0))]));
    assert_eq!(same.verdict, TimeVerdict::Same);
    assert!(same.summary.contains("the same time within 1 %"), "{}", same.summary);
    let wide = held(&run(&[("n", timing(1000.0, 30.0))]), &run(&[("n", timing(1002.0, 30.0))]));
    assert_eq!(wide.verdict, TimeVerdict::Ambiguous);
    assert!(wide.summary.contains("crosses the threshold of 1 %"), "{}", wide.summary);
}

#[test]
fn interleaved_calls_count_more_than_times_taken_apart() {
    let (a, b) = (run(&[("n", timing(1000.0, 50.0))]), run(&[("n", timing(1001.0, 50.0))]));
    let paired = [PairedTimes {
        case: "n".to_owned(),
        speedup: 1.001,
        ci95: [0.999, 1.003],
        rounds: 40,
        source: TimeSource::Abba,
    }];
    let there = compare(&a, &b, &CompareOptions { names: NAMES, threshold: 0.01, paired: &paired });
    let time = there.time.unwrap();
    assert_eq!((there.verdict, time.source.as_str()), (TimeVerdict::Same, "abba"));
    assert_eq!(time.rounds, Some(40));
}

#[test]
fn the_interval_of_alternated_processes_includes_both_of_their_ratios() {
    let timing = |median_ns: f64| -> rgpu_case::Timing {
        let report = serde_json::json!({
            "source": "events", "median_ns": median_ns, "ci95_ns": [median_ns - 1.0, median_ns + 1.0],
            "samples": 30, "min_ns": median_ns, "mad_ns": 0.5, "sample_ns": [], "converged": true,
            "l2_flushed": true,
        });
        serde_json::from_value(report).unwrap()
    };
    let [a1, a2, b1, b2] = [1100.0, 1060.0, 1000.0, 1000.0].map(timing);
    let paired = PairedTimes::from_processes("n", [&a1, &a2], [&b1, &b2]).unwrap();
    assert!((paired.speedup - (1.1_f64 * 1.06).sqrt()).abs() < 1e-9, "{paired:?}");
    assert!(paired.ci95[0] <= 1.06 && paired.ci95[1] >= 1.1, "{paired:?}");
    assert_eq!((paired.rounds, paired.source.as_str()), (2, "alternated_processes"));
    let zero = timing(0.0);
    assert_eq!(PairedTimes::from_processes("n", [&a1, &zero], [&b1, &b2]), None);
}

#[test]
fn a_proven_and_a_bounded_time_are_compared_by_the_judges_clock() {
    let judged = |median_ns, trust, bound: f64| Timing {
        trust: Some(trust),
        bound_ns: Some(bound),
        bound_range_ns: Some([bound - 1.0, bound + 1.0]),
        ..timing(median_ns, 1.0)
    };
    let proven = judged(2000.0, Trust::Proven, 2100.0);
    let bounded = Timing {
        clock: TimingClock::HostClock,
        l2_flushed: false,
        ..judged(1050.0, Trust::Bounded, 1050.0)
    };
    let speedup = |a: &Timing, b: &Timing| {
        let found = held(&run(&[("n", a.clone())]), &run(&[("n", b.clone())]));
        assert!(found.differences.is_empty(), "{:?}", found.differences);
        found.time.unwrap().speedup
    };
    assert!((speedup(&proven, &bounded) - 2.0).abs() < 1e-9);
    let faster = judged(1000.0, Trust::Proven, 1100.0);
    assert!((speedup(&proven, &faster) - 2.0).abs() < 1e-9, "both proven: their own times");
}

#[test]
fn cases_that_disagree_leave_it_open() {
    let a = run(&[("small", timing(1000.0, 1.0)), ("large", timing(1000.0, 1.0))]);
    let b = run(&[("small", timing(500.0, 1.0)), ("large", timing(1500.0, 1.0))]);
    let there = held(&a, &b);
    assert_eq!(there.verdict, TimeVerdict::Ambiguous);
    assert!(there.summary.contains("some cases are faster, some slower"), "{}", there.summary);
}

#[test]
fn a_report_of_one_launch_is_undecided_but_says_what_changed() {
    let conflicts = |all, lost| {
        [
            ("l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum", all),
            ("l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum", lost),
        ]
    };
    let (before, after) = (conflicts(33e6, 32e6), conflicts(1e6, 0.0));
    let a = report(&[("f", 2000.0, &before)]);
    let b = report(&[("f", 1000.0, &after)]);
    let there = held(&a, &b);
    assert_eq!(there.verdict, TimeVerdict::Ambiguous);
    assert_eq!(
        there.summary,
        "undecided: not enough launches for an interval: 1 and 1, at least 5 each are needed; \
         `new` took 50 % of the time of `old`: shared-memory load bank conflicts 32-way → none"
    );
}

#[test]
fn five_launches_of_each_give_an_interval() {
    let launches = |ns: f64| {
        let times = [ns, ns + 1.0, ns + 2.0, ns + 3.0, ns + 4.0];
        report(&times.map(|ns| ("f", ns, &[][..])))
    };
    let there = held(&launches(2000.0), &launches(1000.0));
    assert_eq!(there.verdict, TimeVerdict::Faster);
    assert_eq!(there.time.unwrap().source, "launches");
    assert_eq!(held(&launches(1000.0), &launches(1000.0)).verdict, TimeVerdict::Same);
}

#[test]
fn unlike_runs_are_named_in_each_way_they_differ() {
    let mut a = run(&[("n", timing(1000.0, 3.0))]);
    let mut b = a.clone();
    assert!(differences(&a, &b).is_empty());
    (a.device, b.device) = (Some("NVIDIA H200".to_owned()), Some("NVIDIA B200".to_owned()));
    (a.run.mode, b.run.mode) = ("nsys_rep".to_owned(), "nsys_sqlite".to_owned());
    (a.run.rgpu, b.run.rgpu) = ("0.1.0".to_owned(), "0.2.0".to_owned());
    a.cases[0].sizes = vec![[("n".to_owned(), 1)].into()];
    b.cases[0].sizes = vec![[("n".to_owned(), 2)].into()];
    (a.run.command, b.run.command) =
        (vec!["rgpu".to_owned(), "--clock-control=base".to_owned()], vec!["rgpu".to_owned()]);
    let found = differences(&a, &b);
    let what: Vec<&str> = found.iter().map(|d| d.what.as_str()).collect();
    assert_eq!(what, ["gpu", "harness", "clocks", "sizes"]);
    assert_eq!((found[3].a.as_str(), found[3].b.as_str()), ("n (n=1)", "n (n=2)"));
    let forced = held(&a, &b).summary;
    assert!(forced.contains("although these differ: gpu, harness, clocks, sizes"), "{forced}");
    let mut locked = run(&[("n", timing(1000.0, 3.0))]);
    locked.run.command = vec!["rgpu".to_owned()];
    let as_found = locked.clone();
    locked.run.locked_sm_mhz = Some(1500);
    let found = differences(&as_found, &locked);
    let clocks = found.iter().map(|d| (d.what.as_str(), d.a.as_str(), d.b.as_str()));
    assert_eq!(clocks.collect::<Vec<_>>(), [("clocks", "none", "locked at 1500 MHz")]);
}

#[test]
fn without_a_gpu_there_is_no_verdict_and_wrong_results_are_said() {
    let mut a = run(&[("n", timing(1000.0, 3.0))]);
    a.timing = a.timing.map(|t| Timing { clock: "cpu_reference".into(), ..t });
    a.correctness = Some(Correctness { verdict: "wrong".into(), ..Correctness::default() });
    let there = held(&a, &a);
    assert_eq!((there.verdict, there.time.is_none()), (TimeVerdict::Ambiguous, true));
    assert!(there.summary.contains("only the references ran, on the CPU"), "{}", there.summary);
    assert!(there.gaps.iter().any(|g| g.code == "wrong_result"));
}

#[test]
fn without_a_gpu_several_sizes_have_no_verdict_either() {
    let on_cpu = |ns| Timing { clock: TimingClock::CpuReference, ..timing(ns, 3.0) };
    let mut a = run(&[("small", on_cpu(1000.0)), ("large", on_cpu(9000.0))]);
    let mut b = run(&[("small", on_cpu(1020.0)), ("large", on_cpu(9180.0))]);
    // A profile has the time of its first size, which may have none.
    (a.timing, b.timing) = (None, None);
    let there = held(&a, &b);
    assert!(there.time.is_none() && there.cases.is_empty(), "{there:?}");
    assert_eq!(there.verdict, TimeVerdict::Ambiguous);
    assert!(there.summary.contains("say nothing about the kernels"), "{}", there.summary);
}

#[test]
fn the_time_of_many_kernels_is_the_sum_of_those_that_matter() {
    let many = |scale: f64| {
        let mut all = Vec::new();
        for i in 0..6 {
            all.push(("big", scale * (1000.0 + f64::from(i)), &[][..]));
            all.push(("other", scale * (500.0 + f64::from(i)), &[][..]));
        }
        all.push(("tiny", 1.0, &[][..]));
        report(&all)
    };
    let there = held(&many(1.0), &many(0.5));
    assert_eq!((there.verdict, there.kernels.len()), (TimeVerdict::Faster, 3));
    assert!((there.time.unwrap().speedup - 2.0).abs() < 0.01);
}

#[test]
fn of_several_kernels_the_one_with_too_few_launches_is_named() {
    let mut all = vec![("rare", 9000.0, &[][..])];
    all.extend([("often", 1000.0, &[][..]); 6]);
    let there = held(&report(&all), &report(&all));
    let wanted =
        "not enough launches of `rare` for an interval: 1 and 1, at least 5 each are needed";
    assert!(there.summary.contains(wanted), "{}", there.summary);
    all[0].0 = "other";
    all.push(("third", 9000.0, &[][..]));
    let there = held(&report(&all), &report(&[("often", 1000.0, &[][..]); 6]));
    assert_eq!((there.time.is_none(), there.verdict), (true, TimeVerdict::Ambiguous));
    let wanted =
        "the sides have too little in common: kernels that only `old` has use 75 % of its time";
    assert!(there.summary.contains(wanted), "{}", there.summary);
}

#[test]
fn a_kernel_launched_more_often_is_compared_per_launch() {
    let many = |often: usize| {
        let mut all = vec![("often", 1000.0, &[][..]); often];
        all.extend([("other", 5000.0, &[][..]); 8]);
        report(&all)
    };
    for (a, b) in [(10, 100), (100, 10)] {
        let there = held(&many(a), &many(b));
        assert_eq!(there.verdict, TimeVerdict::Same, "{}", there.summary);
        let time = there.time.unwrap();
        assert_eq!((time.speedup, time.a.median_ns), (1.0, 50_000.0));
        assert!(there.summary.contains("the same time per launch"), "{}", there.summary);
        let said = format!("`often` was launched {a} and {b} times: compared per launch");
        assert_eq!(there.gaps.iter().map(|g| &g.text).collect::<Vec<_>>(), [&said]);
    }
}

#[test]
fn kernels_of_one_side_are_left_out_and_too_many_of_them_leave_it_open() {
    let with = |alone: f64| {
        let mut all = vec![("f", 1000.0, &[][..]); 10];
        all.extend([("x", alone / 2.0, &[][..]), ("y", alone / 2.0, &[][..])]);
        report(&all)
    };
    let base = report(&[("f", 1000.0, &[][..]); 10]);
    let few = held(&base, &with(200.0));
    assert_eq!((few.verdict, few.time.unwrap().speedup), (TimeVerdict::Same, 1.0));
    assert_eq!(few.gaps[0].code, "one_side_only");
    let some = held(&base, &with(2500.0));
    assert_eq!(some.verdict, TimeVerdict::Ambiguous);
    let time = some.time.unwrap();
    assert_eq!((time.speedup, time.ci95, time.verdict), (1.0, None, TimeVerdict::Ambiguous));
    assert_eq!(
        some.summary,
        "undecided: kernels that only `new` has use 20 % of its time; in the kernels of both \
         sides `new` took 100 % of the time of `old`"
    );
    assert!(held(&with(20_000.0), &base).time.is_none());
}

#[test]
fn long_names_and_the_kernels_that_differ_are_told_once() {
    let names = ["runs/of/a/folder/with/a/long/name/report.ncu-rep", "new.ncu-rep"];
    assert_eq!(super::sentence::side_names(names), ["a", "b"]);
    assert_eq!(super::sentence::side_names(["old", "new"]), ["`old`", "`new`"]);
}

#[test]
fn the_language_of_a_file_and_the_tool_behind_our_own_times_are_no_difference() {
    let mut report = report(&[("f", 1000.0, &[])]);
    let mut run = report.clone();
    report.kernel.language = "report".into();
    run.kernel.language = "cuda".into();
    assert_eq!(differences(&report, &run), []);
    let (mut nsys, mut deep) = (run.clone(), run.clone());
    (nsys.run.mode, deep.run.mode) = ("nsys".to_owned(), "deep".to_owned());
    assert_eq!(differences(&nsys, &deep)[0].what, "mode");
    (nsys.timing, deep.timing) = (Some(timing(1000.0, 3.0)), Some(timing(1000.0, 3.0)));
    assert_eq!(differences(&nsys, &deep), []);
    deep.kernel.language = "python".into();
    assert_eq!(differences(&nsys, &deep)[0].what, "language");
}

#[test]
fn one_file_is_the_same_in_every_verdict() {
    let one = report(&[("f", 1000.0, &[]), ("g", 10.0, &[])]);
    let mut there = held(&one, &one);
    assert_eq!(there.verdict, TimeVerdict::Ambiguous);
    judge_same_file(&mut there);
    let kernels = there.kernels.iter().filter_map(|k| k.time.as_ref());
    let mut all = kernels.chain(&there.time).map(|t| t.verdict).chain([there.verdict]);
    assert!(all.all(|verdict| verdict == TimeVerdict::Same));
}

#[test]
fn the_accounts_of_a_step_are_compared() {
    let profile = |count: u64, ns: u64| {
        let cause = rgpu_model::account::AccountCause::Sort;
        let part = rgpu_model::account::AccountPart { cause, ns, ..Default::default() };
        let step = rgpu_model::account::StepTime { count, median_ns: ns, ..Default::default() };
        let step = Some(step);
        let account = rgpu_model::Account { step, parts: vec![part], ..Default::default() };
        Profile { account: Some(account), ..Profile::default() }
    };
    let change = held(&profile(10, 500), &profile(30, 400)).account.unwrap();
    assert_eq!(change.ns, [500, 400]);
    assert_eq!(change.parts[0].difference_ns, -100);
    assert_eq!(held(&profile(10, 500), &Profile::default()).account, None);
}
