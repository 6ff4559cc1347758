//! Snapshots of plans for several kinds of hosts, with every word of the commands.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::PathBuf;

use rgpu_protocol::HostFacts;
use rgpu_protocol::pattern::{Condition, LadderAction};
use rgpu_protocol::plan::{Arg, OnFailure};
use rgpu_protocol::probe::{AgentFacts, ToolFacts};

use super::arch::target_arch;
use super::draft::BundleFile;
use super::ladder::SECOND_STEP;
use super::message_rows::{NextRungs, table};
use super::options::CaptureRange;
use super::request::{FirstPass, PlanPart, PrebuiltCode, Program, SecondPass};
use super::*;
use crate::kernel::{CaseSelection, KernelFolders, ProfileMode, find};

/// The folder of the workspace.
fn repository() -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap().to_owned()
}

fn host(name: &str) -> HostFacts {
    let file = format!(
        "{}/tests/fixtures/facts/synthetic-{name}.json",
        concat!(env!("CARGO_MANIFEST_DIR"), "/../..")
    );
    let agent: AgentFacts = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    facts::facts(name, "ssh", agent)
}

fn request(mode: ProfileMode, kernel: &str) -> Request {
    request_in(repository(), mode, kernel)
}

fn request_in(project: PathBuf, mode: ProfileMode, kernel: &str) -> Request {
    let kernel_folders = KernelFolders { project, ..KernelFolders::default() };
    let spec = find::find(kernel, &kernel_folders).unwrap().spec;
    let sources = spec.sources(&kernel_folders).unwrap();
    let cases = spec.cases(&CaseSelection::Default).unwrap();
    Request::new(mode, ProfileTarget::Kernel { spec: Box::new(spec), sources, cases, seed: 42 })
}

fn program(mode: ProfileMode) -> Request {
    let argv = vec![Arg::text("./app"), Arg::text("--steps"), Arg::text("2")];
    Request::new(
        mode,
        ProfileTarget::Program(Program { name: "app".into(), argv, ..Program::default() }),
    )
}

fn binaries() -> HostBinaries {
    HostBinaries {
        runner: Some(PathBuf::from("/libexec/rgpu-runner")),
        collector: Some(PathBuf::from("/libexec/librgpu_collector.so")),
    }
}

fn planned(request: &Request, host: &HostFacts) -> Draft {
    plan(request, host, &binaries(), &JobName { run: "r".into(), sequence: 1 }).unwrap()
}

/// The parts of a draft that a reviewer needs: all but the diagnosis tables and file contents.
fn shown(draft: &Draft) -> String {
    let mut out = crate::bundle::commands(&draft.plan);
    for step in &draft.plan.steps {
        for rung in &step.rungs {
            let jumps: Vec<String> = rung
                .diagnosis
                .iter()
                .filter_map(|row| match &row.then {
                    LadderAction::Rung(to) => Some(format!("{} → {to}", row.code)),
                    _ => None,
                })
                .collect();
            let kinds: Vec<_> =
                rung.artifacts.iter().map(|a| format!("{} ({})", a.path, a.kind)).collect();
            let _ = write!(out, "\n{}/{}", step.id, rung.id);
            let _ = write!(out, "\n  success: {:?} {:?}", rung.success.exit, rung.success.files);
            let _ = write!(out, " {:?}", rung.success.prints);
            let _ = write!(out, "\n  back: {}", kinds.join(", "));
            let mut jumps = jumps;
            jumps.dedup();
            if !jumps.is_empty() {
                let _ = write!(out, "\n  jumps: {}", jumps.join(", "));
            }
        }
        let _ =
            write!(out, "\n{} needs {:?}, on failure {:?}", step.id, step.needs, step.on_failure);
    }
    let files: Vec<_> = draft.files.iter().map(|file| file.path.as_str()).collect();
    let _ = write!(out, "\n\nfiles: {}", files.join(" "));
    for record in &draft.info.left_out {
        let _ = write!(
            out,
            "\nleft out: {}/{} {}: {}",
            record.step, record.rung, record.code, record.message
        );
    }
    for note in &draft.info.notes {
        let _ = write!(out, "\nnote: {note}");
    }
    let _ = write!(
        out,
        "\ngpu: {:?}",
        draft.plan.gpu.as_ref().map(|gpu| (&gpu.choice, gpu.known.len()))
    );
    out
}

#[test]
fn facts_are_made_of_answers() {
    let facts = host("h200");
    let tools: BTreeMap<_, _> = facts
        .tools
        .iter()
        .map(|t| (t.name.as_str(), format!("{} {} {:?}", t.path, t.version, t.problems)))
        .collect();
    insta::assert_debug_snapshot!((
        tools,
        facts.driver,
        facts.cuda,
        facts.counters_admin_only,
        facts.gpus
    ));
    assert_eq!(host("restricted").counters_admin_only, Some(true));
    let nsys = host("h200-no-libdw").tool("nsys").unwrap().problems.clone();
    assert_eq!(nsys, ["its importer does not start: `libdw.so.1` is missing"]);
    let sudo = host("no-gpu").tool("sudo").unwrap().problems.clone();
    assert_eq!(sudo, ["does not start: sudo: a password is required"]);
}

#[test]
fn ncu_on_a_host_with_everything() {
    insta::assert_snapshot!(shown(&planned(&request(ProfileMode::Ncu, "vecadd"), &host("h200"))));
}

#[test]
fn nsys_on_a_host_with_everything() {
    insta::assert_snapshot!(shown(&planned(
        &request(ProfileMode::Nsys, "nested-regions"),
        &host("h200")
    )));
}

#[test]
fn a_host_without_nsight_falls_to_the_collector_at_once() {
    insta::assert_snapshot!(shown(&planned(
        &request(ProfileMode::Ncu, "vecadd"),
        &host("no-nsight")
    )));
}

#[test]
fn a_host_without_a_gpu_compiles_and_runs_the_reference() {
    insta::assert_snapshot!(shown(&planned(&request(ProfileMode::Ncu, "vecadd"), &host("no-gpu"))));
}

#[test]
fn every_sanitizer_tool_is_a_step() {
    let request = request(ProfileMode::Sanitizer, "race");
    insta::assert_snapshot!(shown(&planned(&request, &host("h200"))));
}

#[test]
fn a_program_is_profiled_as_it_is() {
    let mut ncu = program(ProfileMode::Ncu);
    ncu.ncu.nvtx_include = vec!["dom@A".into(), "A::A1".into()];
    insta::assert_snapshot!(shown(&planned(&ncu, &host("h200"))));
    let mut nsys = program(ProfileMode::Nsys);
    nsys.nsys.capture_range = Some(CaptureRange::Nvtx("dom@A".into()));
    insta::assert_snapshot!(shown(&planned(&nsys, &host("h200"))));
}

#[test]
fn nsys_saves_the_trace_of_a_program_that_may_hang() {
    let option = Arg::text("--cuda-flush-interval=1000");
    let mut request = program(ProfileMode::Nsys);
    let is_saved = |request: &Request| {
        planned(request, &host("h200")).plan.steps[0].rungs[0].argv.contains(&option)
    };
    assert!(!is_saved(&request));
    request.window.hang_s = Some(120);
    assert!(is_saved(&request));
    request.nsys.nsys_args = Some(vec!["--cuda-flush-interval=50".into()]);
    assert!(!is_saved(&request));
}

#[test]
fn ncu_keeps_jax_from_reserving_memory_unless_the_user_decides() {
    let variable = "XLA_PYTHON_CLIENT_PREALLOCATE";
    let mut request = program(ProfileMode::Ncu);
    let of_rung = |request: &Request| {
        planned(request, &host("h200")).plan.steps[0].rungs[0].env.get(variable).cloned()
    };
    assert_eq!(of_rung(&request), Some(Arg::text("false")));
    request.env.insert(variable.into(), "true".into());
    assert_eq!(of_rung(&request), None);
}

/// All ten steps of a JAX program were CUDA graphs, and without their kernels the survey had only
/// those that made its random numbers.
#[test]
fn a_choice_of_kernels_sees_those_inside_cuda_graphs() {
    let is_traced = |request: &Request, version: &str| {
        let mut host = host("h200");
        let nsys = host.tools.iter_mut().find(|tool| tool.name == "nsys").unwrap();
        nsys.version = version.to_owned();
        let shown = shown(&planned(request, &host));
        shown.lines().filter(|line| line.contains("'--cuda-graph-trace=node'")).count()
    };
    let mut request = program(ProfileMode::Deep);
    request.part = PlanPart::FirstPass(FirstPass::Kernels);
    assert_eq!(is_traced(&request, "2025.3.1.90"), 2, "on the rungs nsys.full and nsys.cuda");
    assert_eq!(is_traced(&request, "2022.1.3"), 0, "it may not know the option");
    request.nsys.nsys_args = Some(vec!["--cuda-graph-trace=graph".to_owned()]);
    assert_eq!(is_traced(&request, "2025.3.1.90"), 1, "the user's own replaces ours");
    assert_eq!(is_traced(&program(ProfileMode::Nsys), "2025.3.1.90"), 0);
}

#[test]
fn a_second_pass_of_nsys_has_one_rung_a_report_of_its_own_and_no_export() {
    let planned_with = |request: &Request| {
        let draft = planned(request, &host("h200"));
        let steps: Vec<&str> = draft.plan.steps.iter().map(|step| step.id.as_str()).collect();
        assert_eq!(steps, [SECOND_STEP]);
        assert_eq!(draft.plan.steps[0].rungs.len(), 1);
        assert_eq!(draft.plan.steps[0].rungs[0].success.files, ["raw/second.nsys-rep"]);
        shown(&draft)
    };
    let mut request = program(ProfileMode::Nsys);
    request.part = PlanPart::SecondPass(SecondPass { stacks: true, graph_nodes: false });
    let all = planned_with(&request);
    let has = |shown: &str, argument: &str| shown.contains(&format!("'{argument}'"));
    assert!(has(&all, "--sample=process-tree") && has(&all, "--cudabacktrace=all:0"), "{all}");
    assert!(!has(&all, "--sample=none") && !has(&all, "--cuda-graph-trace=node"), "{all}");
    assert!(!has(&all, "--python-backtrace=cuda"), "it is no program of Python: {all}");
    let ProfileTarget::Program(own) = &mut request.target else { panic!() };
    own.argv.insert(0, "python3".into());
    request.nsys.nsys_args = Some(vec!["--samples-per-backtrace=4".to_owned()]);
    let python = planned_with(&request);
    assert!(has(&python, "--python-backtrace=cuda") && has(&python, "--resolve-symbols=false"));
    assert!(!has(&python, "--samples-per-backtrace=32"), "the user's own replaces ours: {python}");
    request.part = PlanPart::SecondPass(SecondPass { stacks: false, graph_nodes: true });
    let nodes = planned_with(&request);
    assert!(has(&nodes, "--cuda-graph-trace=node") && has(&nodes, "--sample=none"), "{nodes}");
    assert!(!has(&nodes, "--cudabacktrace=all:0"), "{nodes}");
}

#[test]
fn counters_that_need_root_have_a_rung_of_their_own() {
    let mut request = request(ProfileMode::Ncu, "vecadd");
    request.ncu.sudo = true;
    request.gpu = rgpu_protocol::GpuChoice::Index(1);
    let draft = planned(&request, &host("restricted"));
    insta::assert_snapshot!(shown(&draft));
    request.ncu.sudo = false;
    let profile = planned(&request, &host("restricted")).plan.steps.pop().unwrap();
    let refused = profile.rungs[0].diagnosis.iter().find(|r| r.code == "counters_refused").unwrap();
    assert_eq!(refused.then, LadderAction::Rung("ncu.launch".into()));
}

#[test]
fn a_later_plan_of_a_run_repeats_no_build_and_no_refused_rung() {
    let mut request = request(ProfileMode::Nsys, "vecadd");
    let digest = rgpu_protocol::Digest::from_bytes(&[7; 32]);
    request.reuse = vec![rgpu_protocol::plan::InputFile {
        path: "build/vecadd.cubin".into(),
        size: 1,
        digest: digest.clone(),
        blobs: vec![digest],
        piece_bytes: rgpu_protocol::PIECE_BYTES,
        executable: false,
    }];
    request.skip = ["nsys.full".to_owned()].into();
    let draft = planned(&request, &host("h200"));
    let ids: Vec<_> = draft.plan.steps.iter().map(|step| step.id.as_str()).collect();
    assert_eq!(ids, ["profile", "export"]);
    assert_eq!(draft.plan.steps[0].rungs[0].id, "nsys.cuda");
    assert_eq!(draft.plan.files.len(), 1);
}

#[test]
fn on_a_cpu_a_later_plan_compiles_the_reference_again() {
    let mut request = request(ProfileMode::Nsys, "vecadd");
    request.arch = Some("sm_90".to_owned());
    let digest = rgpu_protocol::Digest::from_bytes(&[7; 32]);
    request.reuse = vec![rgpu_protocol::plan::InputFile {
        path: "build/vecadd.cubin".into(),
        size: 1,
        digest: digest.clone(),
        blobs: vec![digest],
        piece_bytes: rgpu_protocol::PIECE_BYTES,
        executable: false,
    }];
    request.skip = ["nvtx".to_owned()].into();
    let draft = planned(&request, &host("no-gpu"));
    let ids: Vec<_> = draft.plan.steps.iter().map(|step| step.id.as_str()).collect();
    assert_eq!(ids, ["reference", "profile"]);
    assert_eq!(draft.plan.steps[1].rungs[0].id, "cpu");
}

#[test]
fn a_module_built_elsewhere_replaces_the_build_step() {
    let mut request = request(ProfileMode::Bench, "vecadd");
    let built = |arch: &str| PrebuiltCode {
        arch: arch.to_owned(),
        files: vec![BundleFile::text("build/vecadd.cubin", arch)],
    };
    let arch = target_arch(&request, &host("no-nsight")).unwrap();
    request.prebuilt = vec![built("sm_80"), built(&arch)];
    let draft = planned(&request, &host("no-nsight"));
    let ids: Vec<_> = draft.plan.steps.iter().map(|step| step.id.as_str()).collect();
    assert_eq!(ids, ["reference", "verify", "time"]);
    let modules: Vec<_> =
        draft.files.iter().filter(|file| file.path == "build/vecadd.cubin").collect();
    assert_eq!(modules, [&built(&arch).files[0]]);
    // Code for the GPU of another host of the same remote.
    assert_ne!(arch, "sm_80");
    request.prebuilt = vec![built("sm_80")];
    let draft = planned(&request, &host("h200"));
    assert_eq!(draft.plan.steps[0].id, "build");
    assert!(!draft.files.iter().any(|file| file.path == "build/vecadd.cubin"));
}

#[test]
fn the_check_of_results_may_have_a_time_limit_of_its_own() {
    let mut request = request(ProfileMode::Bench, "vecadd");
    let limits = |request: &Request| {
        let steps = planned(request, &host("h200")).plan.steps;
        let of = |id: &str| steps.iter().find(|step| step.id == id).unwrap().timeout_s;
        (of("verify"), of("time"))
    };
    assert_eq!(limits(&request), (600, 600));
    request.verify_timeout_s = Some(30);
    assert_eq!(limits(&request), (30, 600));
}

#[test]
fn compilers_have_a_limit_of_output_and_the_kernels_own_steps_have_none() {
    let steps = planned(&request(ProfileMode::Bench, "vecadd"), &host("h200")).plan.steps;
    assert!(steps.iter().any(|step| step.id == "build"));
    for step in &steps {
        let is_compiler = ["build", "reference"].contains(&step.id.as_str());
        assert_eq!(step.max_output_bytes.is_some(), is_compiler, "{}", step.id);
    }
}

#[test]
fn a_word_with_a_line_break_stays_in_the_comment_of_its_rung() {
    let mut draft = planned(&request(ProfileMode::Ncu, "vecadd"), &host("h200"));
    let step = draft.plan.steps.iter_mut().find(|step| step.rungs.len() > 1).unwrap();
    let word = "a\ntouch x\n#".to_owned();
    step.rungs[1].argv.push(rgpu_protocol::plan::Arg::Text(word));
    let commands = crate::bundle::commands(&draft.plan);
    assert!(commands.contains("\n# touch x\n"), "{commands}");
    assert!(!commands.contains("\ntouch x"), "{commands}");
}

#[test]
fn timed_calls_are_given_the_reference_where_it_is_on_the_gpu() {
    for (kernel, case) in [("wagmiv67", "case.json"), ("host-entry", "case-plain.json")] {
        let draft = planned(&request(ProfileMode::Bench, kernel), &host("h200"));
        let commands = crate::bundle::commands(&draft.plan);
        let timed = commands.lines().filter(|line| line.contains(" time --out"));
        let timed: Vec<_> = timed.collect();
        assert_eq!(timed.len(), 2, "{commands}");
        assert!(timed.iter().all(|line| line.contains(&format!("/{case} time"))), "{commands}");
    }
}

#[test]
fn the_build_alone_can_be_planned_for_another_machine() {
    let mut request = request(ProfileMode::Ncu, "vecadd");
    request.part = PlanPart::Build;
    request.arch = Some("sm_100a".into());
    insta::assert_snapshot!(shown(&planned(&request, &host("no-gpu"))));
}

#[test]
fn a_case_holds_everything_that_the_runner_needs() {
    let draft = planned(&request(ProfileMode::Ncu, "softmax"), &host("h200"));
    let file = draft.files.iter().find(|file| file.path == "case.json").unwrap();
    let draft::JobFileContent::Bytes(bytes) = &file.content else { panic!() };
    insta::assert_snapshot!(String::from_utf8_lossy(bytes));
}

#[test]
fn requests_that_cannot_be_met_say_why() {
    let host = host("h200");
    let job = JobName { run: "r".into(), sequence: 1 };
    let message = |request: &Request, binaries: &HostBinaries, host: &HostFacts| {
        let error = plan(request, host, binaries, &job).unwrap_err();
        rgpu_model::error::Failure::from(error).to_string()
    };
    let with = |change: fn(&mut Request)| {
        let mut request = request(ProfileMode::Ncu, "vecadd");
        change(&mut request);
        message(&request, &binaries(), &host)
    };
    let no_compiler = self::host("restricted");
    insta::assert_snapshot!(
        [
            with(|r| r.ncu.sections = vec!["SpeedOfLigth".into()]),
            with(|r| r.ncu.set = Some("fulll".into())),
            with(|r| r.ncu.ncu_args =
                Some(["--cache-control", "none", "-o", "mine"].map(String::from).to_vec())),
            with(|r| r.ncu.nvtx_include = vec!["A::".into()]),
            with(|r| r.arch = Some("sm_100a".into())),
            with(|r| r.gpu = rgpu_protocol::GpuChoice::Name("b200".into())),
            message(&request(ProfileMode::Ncu, "vecadd"), &HostBinaries::default(), &host),
            message(&request(ProfileMode::Bench, "host-entry"), &binaries(), &no_compiler),
        ]
        .join("\n\n")
    );
}

/// The codes that the agent would report for a recorded output: the failure's, then those of notes.
fn diagnosed(tool: &str, case: &str) -> Vec<String> {
    let rows = match tool {
        "ncu" => ncu::MESSAGE_ROWS,
        "nsys" => nsys::MESSAGE_ROWS,
        _ => sanitizer::MESSAGE_ROWS,
    };
    let next_rungs = NextRungs { leave: Some("below"), kernel: true, ..NextRungs::default() };
    let folder = format!(
        "{}/tests/fixtures/{tool}/2025.3.1/{case}",
        concat!(env!("CARGO_MANIFEST_DIR"), "/../..")
    );
    let text = |name: &str| std::fs::read_to_string(format!("{folder}/{name}")).unwrap_or_default();
    let (stdout, stderr) = (text("stdout.txt"), text("stderr.txt"));
    let rows = table(rows, next_rungs);
    let matches = |row: &&rgpu_protocol::DiagnosisRule| {
        row.pattern.find(&stdout).or_else(|| row.pattern.find(&stderr)).is_some()
    };
    let mut codes: Vec<String> = rows
        .iter()
        .filter(|row| row.then != LadderAction::Note)
        .find(matches)
        .map(|row| match row.when {
            Condition::Failed => format!("{} if it failed", row.code),
            Condition::Always => row.code.clone(),
        })
        .into_iter()
        .collect();
    codes.extend(
        rows.iter()
            .filter(|row| row.then == LadderAction::Note)
            .filter(matches)
            .map(|r| format!("note {}", r.code)),
    );
    codes
}

#[test]
fn recorded_words_of_the_tools_are_understood() {
    let mut lines = Vec::new();
    for tool in ["ncu", "nsys", "sanitizer"] {
        let folder = format!(
            "{}/tests/fixtures/{tool}/2025.3.1",
            concat!(env!("CARGO_MANIFEST_DIR"), "/../..")
        );
        let mut cases: Vec<String> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        cases.sort();
        for case in cases {
            lines.push(format!("{tool}/{case}: {}", diagnosed(tool, &case).join(", ")));
        }
    }
    insta::assert_snapshot!(lines.join("\n"));
}

#[test]
fn every_code_of_a_table_has_a_reason() {
    let tables = [
        ncu::MESSAGE_ROWS,
        nsys::MESSAGE_ROWS,
        sanitizer::MESSAGE_ROWS,
        super::super::nvcc::MESSAGE_ROWS,
    ];
    for message_rows::MessageRow(_, code, _) in tables.into_iter().flatten() {
        assert_eq!(reason::reason(code).code, *code);
    }
}

#[test]
fn arguments_passed_on_replace_ours() {
    let mut request = request(ProfileMode::Ncu, "vecadd");
    let words = ["--clock-control=base", "--import-source", "no", "--cache-control", "none"];
    request.ncu.ncu_args = Some(words.map(String::from).to_vec());
    let draft = planned(&request, &host("h200"));
    let argv = &draft.plan.steps.iter().find(|step| step.id == "profile").unwrap().rungs[0].argv;
    let words: Vec<String> = argv.iter().map(|word| word.resolve("JOB")).collect();
    let line = words.join(" ");
    assert!(
        line.contains("--clock-control=base --import-source no --cache-control none"),
        "{line}"
    );
    assert_eq!(line.matches("clock-control").count(), 1);
    assert_eq!(line.matches("import-source").count(), 1);
}

/// Runs the planned command itself on this machine; the paths in it must fit the files.
#[test]
fn the_reference_of_every_worked_kernel_compiles_as_planned() {
    let host = host("no-gpu");
    let kernel_folders = KernelFolders { project: repository(), ..KernelFolders::default() };
    let is_compiled =
        |kernel: &find::ListedKernel| kernel.spec.as_ref().is_ok_and(|s| !s.is_python());
    for kernel in find::list(&kernel_folders).into_iter().filter(is_compiled) {
        let draft = planned(&request(ProfileMode::Verify, &kernel.name), &host);
        let job = tempfile::tempdir().unwrap();
        for file in &draft.files {
            let draft::JobFileContent::Local(from) = &file.content else {
                let draft::JobFileContent::Bytes(bytes) = &file.content else { unreachable!() };
                let to = job.path().join(&file.path);
                std::fs::create_dir_all(to.parent().unwrap()).unwrap();
                std::fs::write(to, bytes).unwrap();
                continue;
            };
            if from.starts_with(repository()) {
                let to = job.path().join(&file.path);
                std::fs::create_dir_all(to.parent().unwrap()).unwrap();
                std::fs::copy(from, to).unwrap();
            }
        }
        let step = draft.plan.steps.iter().find(|step| step.id == "reference").unwrap();
        let rung = &step.rungs[0];
        let folder = job.path().join(&rung.cwd);
        std::fs::create_dir_all(&folder).unwrap();
        let argv: Vec<String> =
            rung.argv.iter().map(|w| w.resolve(job.path().to_str().unwrap())).collect();
        let ran =
            std::process::Command::new("cc").args(&argv[1..]).current_dir(folder).output().unwrap();
        assert!(ran.status.success(), "{}: {}", kernel.name, String::from_utf8_lossy(&ran.stderr));
        assert!(job.path().join(&rung.success.files[0]).is_file());
    }
}

#[test]
fn a_python_kernel_is_run_by_a_harness_of_its_own() {
    let mut host = host("h200");
    let tool = |name: &str, path: &str| ToolFacts {
        name: name.into(),
        path: path.into(),
        ..ToolFacts::default()
    };
    host.tools.retain(|tool| !["python3", "torch"].contains(&tool.name.as_str()));
    host.tools.push(tool("python3", "/venv/bin/python3"));
    let python_request = request(ProfileMode::Ncu, "triton-softmax");
    let job = JobName { run: "r".into(), sequence: 1 };
    let error = plan(&python_request, &host, &binaries(), &job).unwrap_err();
    assert_eq!(
        error.to_string(),
        "`/venv/bin/python3` of the host has no torch, which this kernel needs"
    );
    host.tools.push(tool("torch", "/venv/bin/python3"));
    let draft = planned(&python_request, &host);
    let steps: Vec<&str> = draft.plan.steps.iter().map(|step| step.id.as_str()).collect();
    assert_eq!(steps, ["verify", "time", "profile", "export"]);
    let ids = |mode| {
        let draft = planned(&request(mode, "triton-softmax"), &host);
        let step = draft.plan.steps.iter().find(|step| step.id == "profile").unwrap();
        step.rungs.iter().map(|rung| rung.id.clone()).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(
        ids(ProfileMode::Ncu),
        "ncu.asked ncu.basic ncu.launch nsys.cuda torch cupti nvtx events host"
    );
    assert_eq!(
        ids(ProfileMode::Nsys),
        "nsys.full nsys.cuda torch cupti nsys.nvtx nvtx events host"
    );
    assert_eq!(ids(ProfileMode::Torch), "torch nsys.cuda cupti nvtx events host");
    let commands = crate::bundle::commands(&draft.plan);
    assert!(commands.contains("/venv/bin/python3 \"$JOB\"/harness.py verify --out"), "{commands}");
    assert!(!commands.contains("rgpu-runner"), "{commands}");
    let harness = draft.files.iter().find(|file| file.path == "harness.py").unwrap();
    let draft::JobFileContent::Bytes(text) = &harness.content else { panic!("made here") };
    let text = String::from_utf8_lossy(text);
    for part in ["\"file\": \"src/softmax.py\"", "\"function\": \"reference\"", "def job_torch("] {
        assert!(text.contains(part), "{part}");
    }
    let torch = request(ProfileMode::Torch, "vecadd");
    assert!(matches!(plan(&torch, &host, &binaries(), &job), Err(PlanError::TorchNeedsPython)));
}

/// The H200 with Python, torch and another package in one environment.
fn python_host(package: &str) -> HostFacts {
    let mut host = host("h200");
    let tool = |name: &str| ToolFacts {
        name: name.into(),
        path: "/venv/bin/python3".into(),
        ..ToolFacts::default()
    };
    host.tools.retain(|tool| !["python3", "torch"].contains(&tool.name.as_str()));
    host.tools.extend(["python3", "torch", package].map(tool));
    host
}

#[test]
fn processes_of_python_kernels_alternate_in_a_pair() {
    let host = python_host("triton");
    let job = JobName { run: "r".into(), sequence: 1 };
    let sides = ["softmax", "triton-softmax"].map(|name| request(ProfileMode::Bench, name));
    let draft = pair::pair([Some(&sides[0]), Some(&sides[1])], &host, &binaries(), &job).unwrap();
    let steps = &draft.draft.plan.steps;
    let timed: Vec<&str> =
        steps.iter().map(|step| &*step.id).filter(|id| id.contains("time")).collect();
    assert_eq!(timed, ["a-time", "b-time", "b-time-again", "a-time-again"]);
    let again = steps.iter().find(|step| step.id == "b-time-again").unwrap();
    let rung = &again.rungs[0];
    assert!(rung.argv.contains(&Arg::in_job("b/raw/time-again.json")), "{:?}", rung.argv);
    assert_eq!(rung.success.files, ["b/raw/time-again.json"]);
}

#[test]
fn the_profile_of_a_cute_kernel_keeps_its_layouts() {
    let mut host = python_host("cutlass-dsl");
    let project = tempfile::tempdir().unwrap();
    let folder = project.path().join("kernels/gemm");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("gemm.py"), "import cutlass.cute as cute\n").unwrap();
    let spec = "name = \"gemm\"\nlanguage = \"python\"\nsource = \"gemm.py\"\nentry = { python = \"gemm\" }\n\
                [sizes]\nvars = [\"m\", \"n\", \"k\"]\ngroups = true\n\
                cases.two = [{ m = 80, n = 4096, k = 7168 }, { m = 40, n = 7168, k = 2048 }]\ndefault = \"two\"\n";
    std::fs::write(folder.join("kernel.toml"), spec).unwrap();
    let draft = planned(&request_in(project.path().into(), ProfileMode::Ncu, "gemm"), &host);
    let step = draft.plan.steps.last().unwrap();
    assert_eq!(
        (step.id.as_str(), step.on_failure, step.gpu),
        ("layouts", OnFailure::Continue, false)
    );
    assert_eq!(step.rungs[0].argv[0], Arg::text("/venv/bin/python3"));
    let job = draft.files.iter().find(|file| file.path == "layouts-job.json").unwrap();
    let draft::JobFileContent::Bytes(job) = &job.content else { panic!("made here") };
    let job: serde_json::Value = serde_json::from_slice(job).unwrap();
    assert_eq!(job["shape"], serde_json::json!([80, 4096, 7168, 1]));
    assert_eq!((&job["file"], &job["named_only"]), (&"src/gemm.py".into(), &true.into()));
    // Without the DSL there, and for other kernels, nothing is asked.
    host.tools.retain(|tool| tool.name != "cutlass-dsl");
    let draft = planned(&request_in(project.path().into(), ProfileMode::Ncu, "gemm"), &host);
    assert!(draft.plan.steps.iter().all(|step| step.id != "layouts"));
}
