//! Assembles the steps and files of a plan.

use std::collections::BTreeMap;

use rgpu_case::{Case, ClockPolicy, Reference, RunnerInput, RunnerJob, TimingPlan};
use rgpu_protocol::plan::{
    Arg, ArtifactSpec, GpuRequest, KnownGpu, Limits, OnFailure, Plan, Rung, Step, Success,
};
use rgpu_protocol::{GpuChoice, HostFacts, RungRecord};

use super::draft::{BundleFile, Draft, DraftInfo, ExpectedReport, PlanError};
use super::harness::{self, JobRunner};
use super::ladder::{self, LadderBuilder, LadderRungs, artifact};
use super::message_rows::{NextRungs, table};
use super::request::{FirstPass, HostBinaries, PlanPart, ProfileTarget, Program, Request, path_of};
use super::rungs::{RungInfo, RungTool};
use super::{
    COLLECTOR, HEADER, RAW, RUNNER, RUNNER_INPUT, RUNNER_INPUT_PLAIN, RUNNER_INPUT_SANITIZER,
};
use super::{arch, build, dsl_layouts, facts, torch_hook, wheels};
use crate::kernel::{KernelSpec, ModeStep, ProfileMode, ReferenceSpec, SourceTree};
use crate::tool::{nsys, nvidia_smi};
use rgpu_model::RungId;
use rgpu_model::agent_files;
use rgpu_model::profile::ArtifactKind;

/// Seconds that the board's program may take to start, beside its own limit.
const BOARD_START_S: u64 = 60;

/// The inputs of a kernel's plan.
pub(super) struct KernelTarget<'a> {
    pub(super) spec: &'a KernelSpec,
    pub(super) sources: &'a SourceTree,
    pub(super) input: RunnerInput,
    pub(super) arch: String,
}

/// A plan while it is being assembled.
pub(super) struct Planner<'a> {
    pub(super) request: &'a Request,
    pub(super) facts: &'a HostFacts,
    binaries: &'a HostBinaries,
    gpu: bool,
    /// Whether the host can run the reference.
    has_reference: bool,
    pub(super) jobs: JobRunner<'a>,
    pub(super) steps: Vec<Step>,
    pub(super) files: Vec<BundleFile>,
    pub(super) info: DraftInfo,
}

impl<'a> Planner<'a> {
    pub(super) fn new(
        request: &'a Request,
        facts: &'a HostFacts,
        binaries: &'a HostBinaries,
        gpu: bool,
    ) -> Self {
        let mut info = DraftInfo::default();
        if request.gpu != GpuChoice::Any && facts.gpus.is_empty() {
            info.notes.push("`--gpu` has no effect: the host has no GPU".to_owned());
        }
        Self {
            request,
            facts,
            binaries,
            gpu,
            has_reference: false,
            jobs: JobRunner::new(request, facts),
            steps: Vec::new(),
            files: Vec::new(),
            info,
        }
    }

    pub(super) fn kernel(mut self, target: &KernelTarget<'_>) -> Result<Draft, PlanError> {
        let spec = target.spec;
        let is_retry = !self.request.reuse.is_empty();
        self.info.arch.clone_from(&target.arch);
        self.info.module = build::module(spec);
        self.info.built = build::built_files(spec);
        self.info.sources = build::source_names(target.sources);
        if self.request.part == PlanPart::Build
            && self.request.arch.is_none()
            && spec.arch.is_empty()
            && self.facts.gpus.is_empty()
        {
            let arch = &target.arch;
            self.info
                .notes
                .push(format!("assumed: {arch}, since there is no GPU; `--arch` names another"));
        }
        self.bring_sources(target);
        let is_built_on_host = !self.jobs.is_python();
        if !is_retry && is_built_on_host {
            self.build(target)?;
        } else if is_retry && is_built_on_host && !self.gpu && self.request.part != PlanPart::Build
        {
            // On a CPU the reference is what runs, and its library stays in the first job's folder.
            self.reference(target);
        }
        let title = match self.request.part {
            PlanPart::Build => format!("build {} for {}", spec.name, target.arch),
            _ => format!("profile {} ({})", spec.name, self.request.mode),
        };
        if self.request.part != PlanPart::Build {
            self.bring_harness(target)?;
            if self.gpu {
                self.on_gpu(target, is_retry)?;
            } else {
                self.on_cpu(target, is_retry);
            }
            if self.request.part == PlanPart::Whole && self.request.pass <= 1 && !is_retry {
                self.keep_layouts(target);
            }
        } else if self
            .steps
            .iter()
            .any(|step| step.rungs.iter().any(|r| RungId::BuildNvrtc == *r.id))
        {
            self.bring_runner()?;
        }
        self.info.reports = self.expected_reports(&target.input);
        self.finish(title)
    }

    /// The reports of the planned rungs that run the kernel.
    fn expected_reports(&self, input: &RunnerInput) -> Vec<ExpectedReport> {
        let names = |cases: &[Case], job: RunnerJob| {
            let mine = cases.iter().filter(|case| case.is_for(job));
            mine.map(|case| case.name.clone()).collect()
        };
        let mut reports = Vec::new();
        for (step, rung) in self.steps.iter().flat_map(|s| s.rungs.iter().map(move |r| (s, r))) {
            let is_report = |spec: &&ArtifactSpec| ArtifactKind::CaseReport == *spec.kind;
            let cases = match &input.reference {
                // On a CPU, only the reference of the small cases can run.
                Some(
                    Reference::DeviceKernel { small, .. } | Reference::DeviceFunction { small, .. },
                ) if RungId::Cpu == *rung.id => small,
                _ => &input.cases,
            };
            reports.extend(rung.artifacts.iter().filter(is_report).map(|spec| ExpectedReport {
                step: step.id.clone(),
                rung: rung.id.as_str().into(),
                path: spec.path.clone(),
                cases: names(cases, job_of(&rung.id, self.gpu)),
            }));
        }
        reports
    }

    pub(super) fn program(mut self, program: &Program) -> Result<Draft, PlanError> {
        self.steps.extend(program.prepare.iter().cloned());
        if !program.cwd.is_empty() {
            // This file makes sure that the folder exists: tools create files in it, but no
            // folders.
            self.files.push(BundleFile::text(format!("{RAW}/.made"), ""));
        }
        let sanitize = self.request.mode.info().steps.contains(&ModeStep::Sanitize);
        if self.gpu && sanitize && self.request.part != PlanPart::Plain {
            self.add_sanitizer_steps()?;
        } else {
            self.profile(Vec::new())?;
        }
        self.finish(String::new())
    }

    fn finish(self, title: String) -> Result<Draft, PlanError> {
        let request = self.request;
        if self.steps.is_empty() {
            let left_out = self.info.left_out;
            return Err(match &request.target {
                ProfileTarget::Kernel { spec, .. } if !self.gpu => {
                    PlanError::no_gpu(&self.facts.remote, spec, request.mode, &left_out)
                }
                _ => PlanError::NoUsableRung { title, left_out },
            });
        }
        // On a host with different GPUs, only those that can run the compiled code.
        let known: Vec<KnownGpu> = self
            .facts
            .gpus
            .iter()
            .filter(|gpu| self.info.arch.is_empty() || arch::runs(&self.info.arch, gpu.sm))
            .map(|gpu| KnownGpu {
                index: gpu.index,
                uuid: gpu.uuid.clone(),
                name: gpu.name.clone(),
            })
            .collect();
        let (known, count) = match &request.gpus {
            one if one.is_one() => (known, 1),
            asked if facts::is_assumed(self.facts) => (known, asked.number().unwrap_or(1)),
            asked => asked.on_host(known, &request.gpu)?,
        };
        let smi_path = path_of(self.facts, "nvidia-smi");
        let setting = match &request.policies.clocks {
            ClockPolicy::AsFound => None,
            ClockPolicy::Locked { sm_mhz } => {
                let path = smi_path.ok_or_else(|| PlanError::Option {
                    flag: "--lock-clocks",
                    value: sm_mhz.to_string(),
                    problem: "the host has no `nvidia-smi`, which locks clocks".to_owned(),
                    near: Vec::new(),
                })?;
                Some(nvidia_smi::lock_clocks(path, *sm_mhz))
            }
        };
        let gpu = self.steps.iter().any(|step| step.gpu).then(|| GpuRequest {
            choice: request.gpu.clone(),
            count,
            share: request.share_gpu,
            known,
            processes: smi_path.map(nvidia_smi::gpu_processes).unwrap_or_default(),
            setting,
        });
        let plan = Plan {
            job: String::new(),
            title,
            facts: Some(self.facts.key()),
            files: request.reuse.clone(),
            steps: self.steps,
            gpu,
            env: request.env.iter().map(|(k, v)| (k.clone(), Arg::text(v.as_str()))).collect(),
            secrets: request.secrets.clone(),
            origin: None,
            limits: Limits {
                queue_s: request.queue_s,
                log_bytes: request.log_bytes,
                ..Limits::default()
            },
        };
        Ok(Draft { plan, files: self.files, info: self.info })
    }

    fn bring_sources(&mut self, target: &KernelTarget<'_>) {
        let sources = target.sources.files.iter();
        self.files.extend(
            sources.map(|(there, here)| BundleFile::copy(format!("src/{there}"), here.clone())),
        );
        if let Some((there, text)) = &target.sources.wrapper {
            self.files.push(BundleFile::text(format!("src/{there}"), text.clone()));
        }
        if !self.jobs.is_python() {
            self.files.push(BundleFile::text("include/rgpu.h", HEADER));
        }
    }

    fn bring_runner(&mut self) -> Result<(), PlanError> {
        let runner = self
            .binaries
            .runner
            .clone()
            .ok_or_else(|| PlanError::NoRunner { arch: self.facts.agent.arch.clone() })?;
        agent_files::trust(&runner);
        self.files.push(BundleFile::copy(RUNNER, runner).executable());
        Ok(())
    }

    fn bring_harness(&mut self, target: &KernelTarget<'_>) -> Result<(), PlanError> {
        let data = target.spec.data_files();
        self.files.extend(data.map(|(there, here)| BundleFile::copy(there, here)));
        if self.jobs.is_python() {
            self.files.push(harness::file(&target.input));
            return Ok(());
        }
        self.bring_runner()?;
        let plain = RunnerInput { reference: None, ..target.input.clone() };
        self.add_runner_input(RUNNER_INPUT, &target.input);
        self.add_runner_input(RUNNER_INPUT_PLAIN, &plain);
        if self.request.mode == ProfileMode::Sanitizer || target.spec.file.is_none() {
            // Warm-up launches would only repeat each finding.
            let timing = TimingPlan { warmup: 0, ..plain.timing.clone() };
            self.add_runner_input(RUNNER_INPUT_SANITIZER, &RunnerInput { timing, ..plain });
        }
        Ok(())
    }

    fn add_runner_input(&mut self, path: &str, input: &RunnerInput) {
        // A `RunnerInput` is plain data with text keys: it always serialises.
        let text = serde_json::to_vec_pretty(input).unwrap_or_default();
        self.files.push(BundleFile::text(path, text));
    }

    fn build(&mut self, target: &KernelTarget<'_>) -> Result<(), PlanError> {
        if target.spec.is_compiled() {
            if self.request.part != PlanPart::Build {
                self.reference(target);
            }
            return Ok(());
        }
        // The host may have another GPU than the one for which the code was built.
        let built = self.request.prebuilt.iter().find(|code| code.arch == target.arch);
        if let Some(built) = built {
            self.files.extend(built.files.iter().cloned());
        } else {
            let KernelTarget { spec, sources, arch, .. } = target;
            let compile =
                build::CompileRequest { spec, sources, arch, options: &self.request.build };
            if build::by_wheels(&compile, self.facts) {
                let nvcc = wheels::WheelNvcc::new();
                self.files.extend(nvcc.files);
                self.steps.push(nvcc.step);
            }
            match build::step(&compile, self.facts, self.request.timeout_s) {
                Ok(step) => self.steps.push(step),
                // Without a GPU the reference still runs, and the kernel is not compiled. But
                // whoever passes `--arch` wants the compiled code, so that this stays an error.
                Err(error)
                    if !self.gpu
                        && self.request.part != PlanPart::Build
                        && self.request.arch.is_none() =>
                {
                    let how_to_fetch = self.how_to_fetch();
                    self.info
                        .notes
                        .push(format!("{error}: the kernel is not compiled; {how_to_fetch}"));
                }
                Err(error) => return Err(error),
            }
        }
        if self.request.part == PlanPart::Build {
            return Ok(());
        }
        if self.request.mode != ProfileMode::Sanitizer || !self.gpu {
            self.reference(target);
        }
        Ok(())
    }

    /// How to get a compiler onto the host, in words.
    fn how_to_fetch(&self) -> String {
        let command = match self.request.named.as_str() {
            "" => "`rgpu build` with `--yes`".to_owned(),
            named => format!("`rgpu build {named} --remote {} --yes`", self.facts.remote),
        };
        match build::lacks_for_wheels(self.facts).join(" and ") {
            lacks if lacks.is_empty() => format!("{command} fetches one"),
            lacks => format!("install {lacks} on the host, then {command} fetches one"),
        }
    }

    fn reference(&mut self, target: &KernelTarget<'_>) {
        // If the check is the only result, a reference that does not compile ends the run.
        let on_failure = if self.request.mode == ProfileMode::Verify || !self.gpu {
            OnFailure::Stop
        } else {
            OnFailure::Continue
        };
        let Some(reference) = &target.spec.reference else { return };
        if reference.is_python() {
            self.has_reference = path_of(self.facts, "python3").is_some();
        } else {
            let timeout = self.request.timeout_s;
            let step = build::reference_step(target.sources, self.facts, on_failure, timeout);
            self.has_reference = step.is_some();
            self.steps.extend(step);
        }
        if !self.has_reference {
            let lacks = lacks_for(reference);
            self.info.notes.push(format!("the host has no {lacks}: results are not checked"));
        }
    }

    fn has_step(&self, id: &str) -> bool {
        self.steps.iter().any(|step| step.id == id)
    }

    pub(super) fn step(
        &mut self,
        id: &str,
        title: String,
        gpu: bool,
        rungs: Vec<Rung>,
    ) -> &mut Step {
        self.steps.push(Step {
            id: id.to_owned(),
            title,
            gpu,
            needs: Vec::new(),
            on_failure: OnFailure::Stop,
            timeout_s: self.request.timeout_s,
            max_output_bytes: None,
            stdin: Default::default(),
            rungs,
        });
        // The step was pushed just now.
        let last = self.steps.len() - 1;
        &mut self.steps[last]
    }

    fn on_gpu(&mut self, target: &KernelTarget<'_>, is_retry: bool) -> Result<(), PlanError> {
        if target.spec.file.is_none() && !is_retry && self.request.part != PlanPart::Build {
            self.add_bounds_step()?;
        }
        for step in self.request.mode.info().steps {
            match step {
                ModeStep::Verify if !is_retry => self.verify(&target.spec.name),
                ModeStep::Time if !is_retry => self.time(target),
                // The survey is the main step of a plan of its own.
                ModeStep::Verify | ModeStep::Time | ModeStep::Survey => {}
                ModeStep::Profile => self.profile(Vec::new())?,
                ModeStep::Sanitize => self.add_sanitizer_steps()?,
            }
        }
        if self.request.mode == ProfileMode::Bench && !is_retry {
            self.board(target);
        }
        Ok(())
    }

    /// Adds the step with the leaderboard's own program. Its times are claims of the kernel's
    /// process; so it comes last, and its failure is only told.
    fn board(&mut self, target: &KernelTarget<'_>) {
        let Some(rules) = target.input.board.as_ref().filter(|rules| rules.program.is_some())
        else {
            return;
        };
        // The user has chosen cases; the board runs all of its own.
        if !target.input.cases.iter().any(|case| !case.jobs.is_empty()) {
            return;
        }
        let (argv, artifacts) = self.jobs.usual_command("board", &[], "board");
        let rungs = vec![plain_rung(&RungId::Board, argv, artifacts)];
        let name = &target.spec.name;
        let timeout_s = rules.timeout_s.saturating_add(BOARD_START_S);
        let step = self.step("board", format!("measure {name} as its board does"), true, rungs);
        step.timeout_s = timeout_s;
        step.on_failure = OnFailure::Continue;
    }

    /// Adds the last step of a CuTe DSL kernel: the layouts that the DSL gives its operands.
    fn keep_layouts(&mut self, target: &KernelTarget<'_>) {
        let JobRunner::Python(python) = self.jobs else { return };
        if path_of(self.facts, "cutlass-dsl").is_none() {
            return;
        }
        let case = target.input.cases.first();
        if let Some((step, files)) =
            dsl_layouts::profile_step(target.spec, target.sources, case, python)
        {
            self.files.extend(files);
            self.steps.push(step);
        }
    }

    fn verify(&mut self, name: &str) {
        let built = self.has_step("reference");
        let checked = self.has_reference || self.jobs.is_python();
        let input = if checked { RUNNER_INPUT } else { RUNNER_INPUT_PLAIN };
        let (argv, artifacts) = self.jobs.command("verify", input, &[], "verify");
        let title = if checked {
            format!("check {name} against its reference")
        } else {
            format!("run {name} twice and compare")
        };
        let rungs = vec![plain_rung(&RungId::Verify, argv, artifacts)];
        let limit_s = self.request.verify_timeout_s.unwrap_or(self.request.timeout_s);
        let step = self.step("verify", title, true, rungs);
        step.timeout_s = limit_s;
        if built {
            // If the reference does not compile, the results stay unchecked and the other steps
            // run.
            step.needs = vec!["reference".to_owned()];
        }
    }

    fn time(&mut self, target: &KernelTarget<'_>) {
        let name = &target.spec.name;
        // Every timed call is compared with a reference on the GPU. A reference on the host serves
        // the `verify` step only.
        let on_gpu = matches!(
            target.input.reference,
            Some(Reference::DeviceKernel { .. } | Reference::DeviceFunction { .. })
        );
        let input =
            if on_gpu && self.has_step("reference") { RUNNER_INPUT } else { RUNNER_INPUT_PLAIN };
        let mut flags = Vec::new();
        if self.request.strict {
            flags.push("--strict");
        }
        let mut rungs = Vec::new();
        for (id, clock, loses) in [
            (RungId::CudaEvents, None, ""),
            (
                RungId::HostClock,
                Some("--host-clock"),
                "GPU-side timing (the host's clock includes launch and wait)",
            ),
        ] {
            let flags: Vec<&str> = flags.iter().copied().chain(clock).collect();
            let (argv, artifacts) = self.jobs.command("time", input, &flags, "time");
            let mut rung = plain_rung(&id, argv, artifacts);
            rung.loses = loses.to_owned();
            let next = NextRungs { kernel: true, ..NextRungs::default() };
            rung.diagnosis = table(RungTool::Runner.messages(), next);
            rungs.push(rung);
        }
        rungs.retain(|rung| {
            self.request.mode != ProfileMode::Bench || !self.request.skip.contains(&rung.id)
        });
        self.step("time", format!("measure {name} without a tool"), true, rungs);
    }

    /// Adds the step with the mode's ladder; `left_out` are rungs that were given up before it.
    fn profile(&mut self, left_out: Vec<RungRecord>) -> Result<(), PlanError> {
        self.info.left_out.extend(left_out);
        let ladder = LadderBuilder::new(self.request, self.facts, self.binaries);
        let LadderRungs { rungs, left_out, files } =
            if self.gpu { ladder.on_gpu()? } else { ladder.on_cpu() };
        self.info.left_out.extend(left_out);
        self.files.extend(files);
        if rungs.is_empty() {
            return Err(PlanError::NoUsableRung {
                title: format!("profile with `{}`", self.request.mode),
                left_out: self.info.left_out.clone(),
            });
        }
        let infos: Vec<_> =
            rungs.iter().filter_map(|rung| RungInfo::find(&rung.id[..].into())).collect();
        if infos.iter().any(|info| info.needs_collector())
            && let Some(collector) = self.binaries.collector.clone()
        {
            agent_files::trust(&collector);
            self.files.push(BundleFile::copy(COLLECTOR, collector));
        }
        if matches!(self.request.target, ProfileTarget::Program(_))
            && infos.iter().any(|info| info.tool == RungTool::Torch)
        {
            self.files.push(BundleFile::text(torch_hook::PATH, torch_hook::TEXT));
        }
        self.note_ranks();
        let nsys = infos.iter().any(|info| info.tool == RungTool::Nsys);
        let title = match self.gpu {
            _ if self.request.part == PlanPart::Plain => {
                "run the program without a tool".to_owned()
            }
            true => match self.request.part {
                PlanPart::FirstPass(FirstPass::Ranges) => "list the program's regions".to_owned(),
                PlanPart::FirstPass(FirstPass::Kernels) => {
                    "find the kernels with the most GPU time".to_owned()
                }
                PlanPart::SecondPass(_) => "record the program a second time".to_owned(),
                _ if self.request.mode == ProfileMode::Deep => {
                    "profile these kernels with ncu".to_owned()
                }
                _ => format!("profile with {}", self.request.mode),
            },
            false if matches!(self.request.target, ProfileTarget::Program(_)) => {
                "run the program without a GPU".to_owned()
            }
            false if self.jobs.is_python() => "run it on the CPU".to_owned(),
            false => "run the reference on the CPU".to_owned(),
        };
        let gpu = self.gpu;
        let id = ladder::step_of(self.request);
        let is_only_step = self.request.part == PlanPart::Whole
            && self.request.pass == 0
            && self.request.mode != ProfileMode::Deep;
        let step = self.step(&id, title, gpu, rungs);
        // A failure of this step does not end the run if the run has other results.
        if !is_only_step {
            step.on_failure = OnFailure::Continue;
        }
        // Each of several nodes exports its own report.
        let is_second = matches!(self.request.part, PlanPart::SecondPass(_));
        if nsys
            && !is_second
            && self.request.nodes <= 1
            && let Some(path) = path_of(self.facts, "nsys")
        {
            let report = format!("{}.nsys-rep", nsys::REPORT);
            let sqlite = format!("{}.sqlite", nsys::REPORT);
            let artifacts = vec![artifact(&sqlite, ArtifactKind::NsysSqlite)];
            let mut rung = plain_rung(
                &RungId::NsysExport,
                nsys::export_command_line(path, nsys::REPORT),
                artifacts,
            );
            rung.needs = vec![report];
            rung.success.files = vec![sqlite];
            let step = self.step("export", "export the timeline".to_owned(), false, vec![rung]);
            step.needs = vec![id];
            step.on_failure = OnFailure::Continue;
        }
        Ok(())
    }

    /// Says which ranks are looked at, and which of their kernels are not.
    fn note_ranks(&mut self) {
        let Some((ranks, _)) = self.request.tool_per_rank() else { return };
        if !self.gpu || self.request.part != PlanPart::Whole || self.request.pass > 1 {
            return;
        }
        let mode = self.request.mode;
        self.info.notes.push(if mode.collects_counters() {
            format!(
                "only {ranks} runs under ncu; kernels that wait for other ranks (NCCL, NVSHMEM and \
                 other collectives) are not profiled"
            )
        } else {
            format!("only {ranks} runs under {mode}")
        });
    }

    fn on_cpu(&mut self, target: &KernelTarget<'_>, is_retry: bool) {
        // torch's profiler slows everything down, so check and timing come first.
        if self.request.mode == ProfileMode::Torch && !is_retry {
            let (argv, artifacts) = self.jobs.usual_command("cpu", &[], "time");
            let mut rung = plain_rung(&RungId::Cpu, argv, artifacts);
            rung.loses = "the GPU".to_owned();
            let name = &target.spec.name;
            self.step("time", format!("check and measure {name} on the CPU"), false, vec![rung]);
        }
        let runnable = self.has_reference || self.jobs.is_python();
        if runnable && let Ok(()) = self.profile(Vec::new()) {
            return;
        }
        let without = |rung: RungId, code| ladder::left_out(self.request, &rung, code);
        let lowest = match &target.spec.reference {
            Some(reference) => RungRecord {
                message: format!("the host has no {} for the reference", lacks_for(reference)),
                ..without(RungId::Cpu, "tool_missing")
            },
            None => without(RungId::Cpu, "no_reference"),
        };
        self.info.left_out.extend([without(self.request.mode.best_rung(), "no_gpu"), lowest]);
    }
}

/// What a host needs to run a reference on its CPU.
fn lacks_for(reference: &ReferenceSpec) -> &'static str {
    if reference.is_python() { "python3" } else { "C compiler" }
}

/// The job of the runner that a rung runs. Without a GPU a rung of any tool runs what the CPU can.
fn job_of(rung: &str, has_gpu: bool) -> RunnerJob {
    let jobs = [
        (RungId::Verify, RunnerJob::Verify),
        (RungId::CudaEvents, RunnerJob::Time),
        (RungId::HostClock, RunnerJob::Time),
        (RungId::Cpu, RunnerJob::Cpu),
        (RungId::Guard, RunnerJob::Guard),
        (RungId::Torch, RunnerJob::Torch),
        (RungId::Board, RunnerJob::Board),
    ];
    let other = if has_gpu { RunnerJob::Once } else { RunnerJob::Cpu };
    let found = jobs.into_iter().find(|(id, _)| *id == *rung);
    found.map_or(other, |(_, job)| job)
}

pub(super) fn plain_rung(id: &RungId, argv: Vec<Arg>, artifacts: Vec<ArtifactSpec>) -> Rung {
    Rung {
        id: id.to_string(),
        needs: Vec::new(),
        argv,
        env: BTreeMap::new(),
        cwd: RAW.to_owned(),
        success: Success::default(),
        diagnosis: Vec::new(),
        artifacts,
        loses: String::new(),
        stop: None,
        hang: None,
    }
}
