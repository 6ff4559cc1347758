//! Whole Python programs under torch's own profiler. torch is played; the hook and Python are real.

use std::fs;

use rgpu_model::Profile;

use crate::fake_host::FakeHost;
use crate::laptop::{Laptop, status};

const GPU_TRACE: &str = "tests/fixtures/torch/public/simple-add/trace.json";
const HOST_TRACE: &str = "tests/fixtures/torch/public/cpu-only/trace.json";

/// A training with this number of steps.
fn training(steps: u32) -> String {
    format!(
        "import torch\n\
         torch.cuda.init()\n\
         optimizer = torch.optim.Optimizer()\n\
         for _ in range({steps}):\n    optimizer.step()\n\
         print('trained')\n"
    )
}

/// Writes the program beside the played torch, and returns its command line.
fn program(laptop: &Laptop, text: &str, trace: &str) -> String {
    let root = env!("CARGO_MANIFEST_DIR");
    fs::copy(format!("{root}/tests/it/torch.py"), laptop.path("torch.py")).unwrap();
    let head = format!("import os\nos.environ['FAKE_TORCH_TRACE'] = '{root}/{trace}'\n");
    fs::write(laptop.path("train.py"), head + text).unwrap();
    laptop.path("train.py").display().to_string()
}

/// Profiles the program. Returns what was shown, and the profile.
fn profiled(laptop: &Laptop, line: &str) -> (String, Profile) {
    let output = laptop.run(line);
    let shown = laptop.shown(line, &output);
    assert_eq!(status(&output), 0, "{shown}");
    (shown, serde_json::from_value(laptop.latest_json("profile.json")).unwrap())
}

/// The code of the rung `torch`.
fn code_of_torch(profile: &Profile) -> &str {
    let record = profile.ladder.iter().find(|record| record.rung == "torch").unwrap();
    assert!(!record.ok, "{record:#?}");
    &record.code
}

#[test]
fn steps_of_a_training_are_recorded_without_a_change_of_the_program() {
    let laptop = Laptop::new();
    FakeHost::new(&laptop);
    // The host's own PYTHONPATH stays, and so does the `sitecustomize` in it.
    let site = laptop.path("site");
    fs::create_dir_all(&site).unwrap();
    fs::write(site.join("sitecustomize.py"), "MARK = 'of the host'\n").unwrap();
    let settings = laptop.path("config/config.toml");
    let with_site = format!("env = {{ PYTHONPATH = {site:?}, ");
    let text = fs::read_to_string(&settings).unwrap().replacen("env = { ", &with_site, 1);
    fs::write(&settings, text).unwrap();
    let customized = "import sitecustomize\nassert sitecustomize.MARK == 'of the host'\n";
    let app = program(&laptop, &format!("{customized}{}", training(9)), GPU_TRACE);
    let line = format!("profile --mode torch --remote h200 -- python3 {app}");
    let (shown, profile) = profiled(&laptop, &line);
    assert_eq!(profile.rung, "torch", "{shown}");
    assert!(profile.operators.iter().any(|operator| operator.name == "aten::add"));
    assert!(profile.launches.iter().all(|launch| launch.duration_ns.is_some()));
    let [step] = &profile.stages[..] else { panic!("{:#?}", profile.stages) };
    assert_eq!((step.region.as_str(), step.instances), ("torch@step", 3));
    assert_eq!(step.mean_ns, 1e8);
    let [memory] = &profile.memory[..] else { panic!("{:#?}", profile.memory) };
    assert_eq!((memory.peak_allocated_bytes, memory.total_bytes), (3 << 30, Some(80 << 30)));
    assert!(shown.contains("memory") && shown.contains("torch@step"), "{shown}");
    const FULL: &str = "at::native::vectorized_elementwise_kernel<";
    assert!(!shown.contains(FULL), "{shown}");
    for command in ["profile", "exec"] {
        let line = format!("{command} --mode torch --full-names --remote h200 -- python3 {app}");
        let (shown, _) = profiled(&laptop, &line);
        assert!(shown.contains(FULL), "{shown}");
    }
}

/// The hook's clock gives these milliseconds at the ends of the steps from the fifth on, and fails
/// after them.
#[test]
fn steps_after_the_recording_tell_how_long_one_takes_without_the_profiler() {
    let laptop = Laptop::new();
    FakeHost::new(&laptop);
    let plain_ns = |ends_ms: &[u32], steps: u32, end: &str| {
        let clock = format!(
            "import time\n\
             ends = iter({ends_ms:?})\n\
             time.monotonic_ns = lambda: next(ends) * 10**6\n"
        );
        let app = program(&laptop, &format!("{clock}{}{end}", training(steps)), GPU_TRACE);
        let line = format!("profile --mode torch --remote h200 -- python3 {app}");
        let (shown, profile) = profiled(&laptop, &line);
        assert_eq!(profile.rung, "torch", "{shown}");
        assert!(!shown.contains("stepped failed"), "{shown}");
        let [step] = &profile.stages[..] else { panic!("{:#?}", profile.stages) };
        (step.instances, step.plain_ns)
    };
    assert_eq!(plain_ns(&[50, 54, 58, 63], 8, ""), (3, Some(4_000_000)));
    assert_eq!(plain_ns(&[50, 54, 58], 7, ""), (3, None), "too few");
    assert_eq!(plain_ns(&[50, 54, 58, 62, 66, 90], 10, ""), (3, None), "uneven");
    let eleven: Vec<u32> = (0..11).map(|step| 5 * step).collect();
    assert_eq!(plain_ns(&eleven, 40, ""), (3, Some(5_000_000)), "no more than ten");
    let own = "torch.profiler.profile(\
               activities=[], record_shapes=0, profile_memory=0, with_stack=0).start()\n";
    assert_eq!(plain_ns(&[50, 54, 58, 63], 8, own), (3, None), "a profiler of its own");
}

#[test]
fn a_typed_search_path_stays_behind_the_hook() {
    let laptop = Laptop::new();
    FakeHost::new(&laptop);
    laptop.write("lib/named.py", "NAME = 'of lib'\n");
    let text = format!("import named\nassert named.NAME == 'of lib'\n{}", training(9));
    program(&laptop, &text, GPU_TRACE);
    for name in ["torch.py", "train.py"] {
        fs::copy(laptop.path(name), laptop.path("project").join(name)).unwrap();
    }
    for typed in ["--env PYTHONPATH=lib -- python3", "-- env PYTHONPATH=lib A=1 python3"] {
        let (shown, profile) =
            profiled(&laptop, &format!("profile --mode torch --remote h200 {typed} train.py"));
        assert_eq!(profile.rung, "torch", "{shown}");
    }
}

#[test]
fn a_range_can_be_chosen_and_other_ranges_are_regions() {
    let laptop = Laptop::new();
    FakeHost::new(&laptop);
    let text = "import torch\n\
        torch.cuda.init()\n\
        for name in ['warm', 'decode', 'decode', 'decode', 'decode', 'after']:\n    \
        torch.cuda.nvtx.range_push(name)\n    torch.cuda.nvtx.range_pop()\n";
    let app = program(&laptop, text, GPU_TRACE);
    let regions = |line: &str| {
        let (shown, profile) = profiled(&laptop, line);
        assert_eq!(profile.rung, "torch", "{shown}");
        let known = ["warm", "decode", "after"];
        let mut all = Vec::new();
        for region in profile.regions {
            let name = region.path.last().cloned().unwrap_or_default();
            if known.contains(&name.as_str()) {
                all.push((name, region.instances.unwrap()));
            }
        }
        all
    };
    let all = regions(&format!("profile --mode torch --remote h200 -- python3 {app}"));
    assert_eq!(all, [("warm".into(), 1), ("decode".into(), 4), ("after".into(), 1)]);
    let chosen =
        format!("profile --mode torch --capture-range decode --remote h200 -- python3 {app}");
    assert_eq!(regions(&chosen), [("decode".into(), 3)]);
    let line = format!("profile --mode torch --capture-range other --remote h200 -- python3 {app}");
    assert_eq!(code_of_torch(&profiled(&laptop, &line).1), "torch_no_range");
    let line = format!(
        "profile --mode torch --capture-range cudaProfilerApi --remote h200 -- python3 {app}"
    );
    let shown = laptop.show(&line);
    assert!(shown.contains("mode `torch` records inside an NVTX range only"), "{shown}");
}

#[test]
fn a_range_in_which_the_recording_begins_is_a_region() {
    let laptop = Laptop::new();
    FakeHost::new(&laptop);
    let text = "import torch\n\
        torch.cuda.nvtx.range_push('prefill')\n\
        torch.cuda.init()\n\
        torch.cuda.nvtx.range_pop()\n";
    let app = program(&laptop, text, GPU_TRACE);
    let line = format!("profile --mode torch --remote h200 -- python3 {app}");
    let (shown, profile) = profiled(&laptop, &line);
    let prefill = |region: &&rgpu_model::Region| region.path.last().is_some_and(|r| r == "prefill");
    let instances: Vec<_> = profile.regions.iter().filter(prefill).map(|r| r.instances).collect();
    assert_eq!(instances, [Some(1)], "{shown}");
}

#[test]
fn a_program_that_torch_cannot_record_is_traced_by_the_next_rung() {
    let laptop = Laptop::new();
    FakeHost::new(&laptop);
    let reached = |text: &str, trace: &str, python: &str| {
        let app = program(&laptop, text, trace);
        let line = format!("profile --mode torch --remote h200 -- {python} {app}");
        let (shown, profile) = profiled(&laptop, &line);
        assert_eq!(profile.rung, "nsys.cuda", "{shown}");
        code_of_torch(&profile).to_owned()
    };
    let trained = training(9);
    // The switch keeps Python from importing the hook.
    assert_eq!(reached(&trained, GPU_TRACE, "python3 -S"), "torch_hook_hindered");
    assert_eq!(reached("print('no torch')\n", GPU_TRACE, "python3"), "torch_not_imported");
    assert_eq!(reached("import torch\n", GPU_TRACE, "python3"), "torch_without_gpu");
    assert_eq!(reached(&training(1), GPU_TRACE, "python3"), "torch_no_step");
    // CUPTI gave the profiler nothing.
    assert_eq!(reached(&trained, HOST_TRACE, "python3"), "no_gpu_rows");
}

#[test]
fn a_profiler_of_the_program_itself_goes_first() {
    let laptop = Laptop::new();
    FakeHost::new(&laptop);
    let text = "import torch\n\
        torch.cuda.init()\n\
        own = torch.profiler.profile(activities=[], record_shapes=0, profile_memory=0, with_stack=0)\n\
        own.start()\n\
        own.stop()\n\
        print('profiled by itself')\n";
    let app = program(&laptop, text, GPU_TRACE);
    let line = format!("profile --mode torch --remote h200 -- python3 {app}");
    let (shown, profile) = profiled(&laptop, &line);
    assert_eq!(profile.rung, "torch", "{shown}");
    assert!(profile.gaps.iter().any(|gap| gap.code == "recording_cut"), "{:#?}", profile.gaps);
}

#[test]
fn a_part_of_a_server_is_recorded_and_then_it_is_stopped_with_its_children() {
    let laptop = Laptop::new();
    FakeHost::new(&laptop);
    let log = laptop.path("server.log");
    let text = format!(
        "import subprocess, time, torch\n\
         torch.cuda.init()\n\
         child = subprocess.Popen(['sleep', '600'])\n\
         def named(name):\n    \
         torch.cuda.nvtx.range_push(name)\n    time.sleep(0.02)\n    torch.cuda.nvtx.range_pop()\n\
         named('early')\n\
         try:\n    while True:\n        named('tick')\n\
         except KeyboardInterrupt:\n    \
         print('stopped', child.wait(10), file=open('{}', 'a'))\n    raise\n",
        log.display()
    );
    let app = program(&laptop, &text, GPU_TRACE);
    for command in ["profile", "exec"] {
        let window = "--mode torch --after 1s --for 1s --remote h200";
        let (shown, profile) = profiled(&laptop, &format!("{command} {window} -- python3 {app}"));
        assert_eq!(profile.rung, "torch", "{shown}");
        // The child was ended by SIGINT, too.
        assert_eq!(fs::read_to_string(&log).unwrap(), "stopped -2\n", "{shown}");
        fs::remove_file(&log).unwrap();
        laptop.wait_until_quiet();
        let named = |name: &str| {
            let found = profile.regions.iter().find(|r| r.path.last().is_some_and(|n| n == name));
            found.and_then(|region| region.instances).unwrap_or(0)
        };
        assert!(named("early") == 0 && named("tick") > 5, "{:#?}", profile.regions);
        assert!(profile.warnings.is_empty(), "{:?}", profile.warnings);
        assert!(profile.gaps.iter().all(|gap| gap.code != "recording_cut"), "{:?}", profile.gaps);
        let record = profile.ladder.iter().find(|record| record.rung == "torch").unwrap();
        assert!(record.ok && record.seconds >= 2.0 && record.seconds < 20.0, "{record:#?}");
    }
    // The end of a range can be the window's end.
    let app = program(&laptop, &text, GPU_TRACE);
    let line = "profile --mode torch --capture-range tick --for range --remote h200";
    let (shown, profile) = profiled(&laptop, &format!("{line} -- python3 {app}"));
    assert_eq!(fs::read_to_string(&log).unwrap(), "stopped -2\n", "{shown}");
    let ticks = profile.regions.iter().find(|region| region.path.last().unwrap() == "tick");
    assert_eq!(ticks.unwrap().instances, Some(3));
    // A program that ends before the window.
    let app = program(&laptop, &training(9), GPU_TRACE);
    let line = format!("profile --mode torch --after 2s --remote h200 -- python3 {app}");
    assert_eq!(code_of_torch(&profiled(&laptop, &line).1), "torch_no_window");
}
