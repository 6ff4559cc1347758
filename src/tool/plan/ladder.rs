//! The `profile` step: the ladder of each mode, from the best rung that could work on the host to a
//! last one that always works.

use std::collections::BTreeMap;

use rgpu_protocol::plan::{Arg, ArtifactSpec, Rung, Success};
use rgpu_protocol::{HostFacts, RungRecord};

use super::draft::PlanError;
use super::harness::JobRunner;
use super::message_rows::{MessageRow, NextRungs, RowAction, table};
use super::request::{FailedRung, PlanPart, Request, Survey, Target, Toolbox, path_of};
use super::{COLLECTOR, RAW};
use crate::kernel::Mode;
use crate::tool::cupti;
use crate::tool::ncu::{self, Collect};
use crate::tool::nsys::{self, Trace};

/// Builds the ladder of one request.
pub(super) struct Ladder<'a> {
    pub(super) request: &'a Request,
    pub(super) facts: &'a HostFacts,
    pub(super) toolbox: &'a Toolbox,
    jobs: JobRunner<'a>,
    /// Rungs that cannot work on this host, with the reason.
    pub(super) left_out: Vec<RungRecord>,
    rungs: Vec<Rung>,
}

/// The id of the main step of a kernel without a GPU, and of the first `profile` step of a run.
pub(super) const STEP: &str = "profile";

/// The id of a request's main step.
pub(super) fn step_of(request: &Request) -> String {
    match request.part {
        PlanPart::Survey(_) => "survey".to_owned(),
        _ => request.numbered(STEP),
    }
}

/// The rung that a mode begins with on a GPU.
pub(super) fn best(mode: Mode) -> &'static str {
    match mode {
        Mode::Ncu => "ncu.asked",
        Mode::Nsys | Mode::Deep => "nsys.full",
        Mode::Sanitizer => "sanitizer",
        Mode::Bench => "events",
        Mode::Verify => "verify",
        Mode::Nvtx => "nvtx",
        Mode::Torch => "torch",
    }
}

/// The record of a rung of the main step that cannot work on the host.
pub(super) fn left_out(request: &Request, rung: &str, code: &str) -> RungRecord {
    RungRecord {
        step: step_of(request),
        rung: rung.to_owned(),
        code: code.to_owned(),
        words: super::reason::reason(code).title.to_owned(),
        ..RungRecord::default()
    }
}

impl<'a> Ladder<'a> {
    pub(super) fn new(request: &'a Request, facts: &'a HostFacts, toolbox: &'a Toolbox) -> Self {
        let jobs = JobRunner::of(request, facts);
        Self { request, facts, toolbox, jobs, left_out: Vec::new(), rungs: Vec::new() }
    }

    /// The rungs on a host with a GPU.
    ///
    /// # Errors
    /// [`PlanError`] for invalid options.
    pub(super) fn on_gpu(mut self) -> Result<(Vec<Rung>, Vec<RungRecord>), PlanError> {
        match (self.request.part, self.request.mode) {
            (PlanPart::Survey(Survey::Ranges), _) => {
                self.add_collector();
                self.add_nsys(&[Trace::Nvtx])?;
            }
            (PlanPart::Survey(Survey::Kernels), _) => {
                self.add_nsys(&[Trace::Full, Trace::Cuda])?;
                self.add_cupti();
                self.add_ncu_times()?;
            }
            (_, mode) => self.add_rungs_of_mode(mode)?,
        }
        Ok(self.finish())
    }

    fn add_rungs_of_mode(&mut self, mode: Mode) -> Result<(), PlanError> {
        match mode {
            Mode::Ncu => {
                self.add_ncu()?;
                self.add_nsys(&[Trace::Cuda])?;
                self.add_torch();
                self.add_cupti();
                self.add_collector();
                self.add_plain();
            }
            Mode::Nsys if self.jobs.is_python() => {
                self.add_nsys(&[Trace::Full, Trace::Cuda])?;
                self.add_torch();
                self.add_cupti();
                self.add_nsys(&[Trace::Nvtx])?;
                self.add_collector();
                self.add_plain();
            }
            Mode::Torch => {
                self.add_torch();
                self.add_nsys(&[Trace::Cuda])?;
                self.add_cupti();
                self.add_collector();
                self.add_plain();
            }
            Mode::Nsys => {
                self.add_nsys(&[Trace::Full, Trace::Cuda])?;
                // CUPTI comes before `nsys.nvtx`: it records ranges as well.
                self.add_cupti();
                self.add_nsys(&[Trace::Nvtx])?;
                self.add_collector();
                self.add_plain();
            }
            Mode::Nvtx => {
                self.add_collector();
                self.add_plain();
            }
            // The time and the check of a kernel are steps of their own; a program is only run.
            Mode::Bench | Mode::Verify | Mode::Sanitizer => self.add_plain(),
            // The survey has recorded the time line already.
            Mode::Deep => self.add_ncu()?,
        }
        Ok(())
    }

    /// The rungs on a host without a GPU: the reference on the CPU, or the program as it is.
    pub(super) fn on_cpu(mut self) -> (Vec<Rung>, Vec<RungRecord>) {
        // The collector and torch's profiler work without a GPU too.
        let applies = !matches!(self.request.mode, Mode::Nvtx | Mode::Torch);
        self.leave_out(best(self.request.mode), applies, "no_gpu");
        if self.request.mode == Mode::Torch {
            self.add_torch();
        }
        self.add_collector();
        let (argv, artifacts) = match self.request.target {
            Target::Kernel { .. } => self.jobs.logged("cpu", &[], "cpu"),
            Target::Program(_) => (self.target_command("cpu"), Vec::new()),
        };
        let mut rung = self.rung("cpu", argv, artifacts);
        rung.loses = "everything of the GPU".to_owned();
        self.rungs.push(rung);
        self.finish()
    }

    fn finish(mut self) -> (Vec<Rung>, Vec<RungRecord>) {
        let skip = &self.request.skip;
        self.rungs.retain(|rung| !skip.contains(&rung.id));
        self.skip_failed();
        let ids: Vec<String> = self.rungs.iter().map(|rung| rung.id.clone()).collect();
        for (index, rung) in self.rungs.iter_mut().enumerate() {
            let ids_below = ids.get(index + 1..).unwrap_or_default();
            let rows = rows_of(&rung.id);
            let leave = ids_below.iter().find(|id| family(id) != family(&rung.id));
            let counterless = ["ncu.sudo", "ncu.launch"]
                .into_iter()
                .find(|candidate| ids_below.iter().any(|id| id == candidate));
            let next_rungs = NextRungs {
                leave: leave.map(String::as_str),
                counterless,
                kernel: matches!(self.request.target, Target::Kernel { .. }),
                filtered: ncu::filtered(self.request),
            };
            rung.diagnosis = table(rows, next_rungs);
        }
        if let Some(first) = self.rungs.first_mut()
            && self.left_out.is_empty()
            && skip.is_empty()
        {
            first.loses.clear();
        }
        (self.rungs, self.left_out)
    }

    /// Leaves out rungs that failed on this host before, and those that would fail for the same
    /// reason.
    fn skip_failed(&mut self) {
        let step = step_of(self.request);
        let mut passed_over = Vec::new();
        self.rungs.retain(|rung| {
            let failed = self.request.failed.iter().find(|failed| fails_like(&rung.id, failed));
            passed_over.extend(failed.map(|failed| RungRecord {
                step: step.clone(),
                rung: rung.id.clone(),
                code: failed.code.clone(),
                words: failed.words.clone(),
                ..RungRecord::default()
            }));
            failed.is_none()
        });
        // They stand above the rungs that cannot work on the host at all.
        passed_over.append(&mut self.left_out);
        self.left_out = passed_over;
    }

    fn leave_out(&mut self, id: &str, applies: bool, code: &str) {
        if applies {
            self.left_out.push(left_out(self.request, id, code));
        }
    }

    /// The command that a tool profiles.
    fn target_command(&self, job: &str) -> Vec<Arg> {
        match &self.request.target {
            Target::Kernel { .. } => self.jobs.usual(job, &[], job).0,
            Target::Program(program) => program.argv.clone(),
        }
    }

    fn own_artifacts(&self, job: &str) -> Vec<ArtifactSpec> {
        match &self.request.target {
            Target::Kernel { .. } => self.jobs.usual(job, &[], job).1,
            Target::Program(_) => Vec::new(),
        }
    }

    fn rung(&self, id: &str, argv: Vec<Arg>, artifacts: Vec<ArtifactSpec>) -> Rung {
        // The exit status of a program is not checked; the tool's report decides.
        let exit = match self.request.target {
            Target::Kernel { .. } => vec![0],
            Target::Program(_) => Vec::new(),
        };
        let (env, cwd) = match &self.request.target {
            Target::Program(program) if !program.cwd.is_empty() => {
                (program.env.clone(), program.cwd.clone())
            }
            Target::Program(program) => (program.env.clone(), RAW.to_owned()),
            Target::Kernel { .. } => (BTreeMap::new(), RAW.to_owned()),
        };
        Rung {
            id: id.to_owned(),
            needs: Vec::new(),
            argv,
            env,
            cwd,
            success: Success { exit, ..Success::default() },
            diagnosis: Vec::new(),
            artifacts,
            loses: String::new(),
        }
    }

    fn add_ncu(&mut self) -> Result<(), PlanError> {
        let Some(path) = path_of(self.facts, "ncu") else {
            self.leave_out("ncu.asked", true, "tool_missing");
            return Ok(());
        };
        let replay = self.request.ncu.replay_mode.as_deref();
        let add_rung = |this: &mut Self,
                        id: &str,
                        collect,
                        replay: Option<&str>,
                        sudo: Option<&str>,
                        loses: &str| {
            let mut argv: Vec<Arg> = Vec::new();
            if let Some(sudo) = sudo {
                let keep = "--preserve-env=CUDA_VISIBLE_DEVICES,LD_LIBRARY_PATH,TMPDIR";
                argv.extend([sudo, "-n", keep, "--"].map(Arg::from));
            }
            argv.extend(ncu::words(this.request, path, collect, replay)?);
            argv.extend(this.target_command("once"));
            let report = format!("{}.ncu-rep", ncu::report(this.request, collect));
            let mut artifacts = vec![artifact(&report, "ncu_rep")];
            artifacts.extend(this.own_artifacts("once"));
            let mut rung = this.rung(id, argv, artifacts);
            rung.success.files = vec![report];
            rung.loses = loses.to_owned();
            // The requested sections may be the basic set already; the same command is not tried
            // twice.
            if this.rungs.iter().all(|other| other.argv != rung.argv) {
                this.rungs.push(rung);
            }
            Ok::<(), PlanError>(())
        };
        add_rung(self, "ncu.asked", Collect::Asked, replay, None, "")?;
        if replay == Some("range") {
            let loses = "one run of the range: it is run again for each pass";
            add_rung(self, "ncu.app_range", Collect::Asked, Some("app-range"), None, loses)?;
        }
        if matches!(replay, Some("range" | "app-range")) {
            let loses = "numbers of the range as a whole: each kernel has its own";
            add_rung(self, "ncu.kernel", Collect::Asked, None, None, loses)?;
        }
        let loses = "all sections except the basic ones";
        add_rung(self, "ncu.basic", Collect::Basic, None, None, loses)?;
        if self.request.sudo && !self.facts.agent.root {
            let sudo = self.facts.tool("sudo").filter(|tool| tool.problems.is_empty());
            match sudo.map(|tool| tool.path.as_str()) {
                Some(sudo) => {
                    let loses = "nothing: ncu runs as root";
                    add_rung(self, "ncu.sudo", Collect::Asked, replay, Some(sudo), loses)?;
                }
                None => self.leave_out("ncu.sudo", true, "no_sudo"),
            }
        }
        let loses = "every hardware counter: only launch facts remain";
        add_rung(self, "ncu.launch", Collect::Launch, None, None, loses)
    }

    /// Times every launch with ncu, for hosts where no tool can trace.
    fn add_ncu_times(&mut self) -> Result<(), PlanError> {
        let Some(path) = path_of(self.facts, "ncu") else {
            self.leave_out("ncu.times", true, "tool_missing");
            return Ok(());
        };
        let mut argv = ncu::words(self.request, path, Collect::Times, None)?;
        argv.extend(self.target_command("once"));
        let report = format!("{}.ncu-rep", ncu::report(self.request, Collect::Times));
        let mut artifacts = vec![artifact(&report, "ncu_rep")];
        artifacts.extend(self.own_artifacts("once"));
        let mut rung = self.rung("ncu.times", argv, artifacts);
        rung.success.files = vec![report];
        rung.loses = "the timeline: only the time of each launch remains".to_owned();
        self.rungs.push(rung);
        Ok(())
    }

    fn add_nsys(&mut self, traces: &[Trace]) -> Result<(), PlanError> {
        let id = |trace| match trace {
            Trace::Full => "nsys.full",
            Trace::Cuda => "nsys.cuda",
            Trace::Nvtx => "nsys.nvtx",
        };
        let first = traces.first().copied().map_or("nsys.full", id);
        let Some(tool) = self.facts.tool("nsys") else {
            self.leave_out(first, true, "tool_missing");
            return Ok(());
        };
        if let Some(problem) = tool.problems.iter().find(|p| p.starts_with(nsys::IMPORTER)) {
            let problem = problem.clone();
            self.leave_out(first, true, "importer_broken");
            if let Some(record) = self.left_out.last_mut() {
                record.words = problem;
            }
            return Ok(());
        }
        for &trace in traces {
            let (mut argv, env) = nsys::words(self.request, &tool.path, trace)?;
            argv.extend(self.target_command("once"));
            let report = format!("{}.nsys-rep", nsys::REPORT);
            let mut artifacts = vec![
                artifact(&report, "nsys_rep"),
                artifact(format!("{}.qdstrm", nsys::REPORT), "nsys_qdstrm"),
            ];
            artifacts.extend(self.own_artifacts("once"));
            let mut rung = self.rung(id(trace), argv, artifacts);
            rung.env.extend(env.into_iter().map(|(k, v)| (k.to_owned(), Arg::from(v))));
            rung.success.files = vec![report];
            rung.loses = match (trace, self.request.mode) {
                (_, Mode::Ncu) => "hardware counters: times of kernels, copies and ranges remain",
                (Trace::Full, _) => "",
                (Trace::Cuda, _) => "traces other than CUDA and NVTX, and samples of the CPU",
                (Trace::Nvtx, _) => "everything of the GPU: only NVTX ranges, in host time",
            }
            .to_owned();
            self.rungs.push(rung);
        }
        Ok(())
    }

    /// Runs the program under our NVTX collector.
    fn add_collector(&mut self) {
        if self.toolbox.collector.is_none() {
            self.leave_out("nvtx", true, "collector_missing");
            return;
        }
        let job = if self.facts.gpus.is_empty() { "cpu" } else { "once" };
        let mut rung = self.collector_rung("nvtx", job);
        // The log is missing if the program opens no range or never loads the collector. For a
        // program on a host without a GPU no lower rung gives more, so a missing log is accepted
        // there.
        if job != "cpu" || matches!(self.request.target, Target::Kernel { .. }) {
            rung.success.files = vec![format!("{RAW}/nvtx.jsonl.*")];
        }
        rung.loses = match job {
            "cpu" if self.jobs.is_python() => {
                "everything of the GPU: it runs on the CPU".to_owned()
            }
            "cpu" => "everything of the GPU: the reference runs on the CPU".to_owned(),
            _ => "everything of the GPU: only NVTX ranges, in host time".to_owned(),
        };
        self.rungs.push(rung);
    }

    /// A rung that runs under our collector.
    fn collector_rung(&self, id: &str, job: &str) -> Rung {
        let mut artifacts = vec![artifact(format!("{RAW}/nvtx.jsonl.*"), "nvtx_log")];
        artifacts.extend(self.own_artifacts(job));
        let mut rung = self.rung(id, self.target_command(job), artifacts);
        rung.env.extend([
            ("NVTX_INJECTION64_PATH".to_owned(), Arg::in_job(COLLECTOR)),
            ("RGPU_NVTX_LOG".to_owned(), Arg::in_job(format!("{RAW}/nvtx.jsonl"))),
        ]);
        rung
    }

    /// Runs the program under our collector with CUPTI's records of the GPU. If no libcupti is
    /// known on the host, the program may still bring one, as PyTorch does.
    fn add_cupti(&mut self) {
        if self.toolbox.collector.is_none() {
            self.leave_out("cupti", true, "collector_missing");
            return;
        }
        let known = cupti::paths(self.facts);
        if known.is_empty() && !self.jobs.is_python() && !runs_python(&self.request.target) {
            self.leave_out("cupti", true, "cupti_missing");
            return;
        }
        let mut rung = self.collector_rung("cupti", "once");
        rung.env.insert("CUDA_INJECTION64_PATH".to_owned(), Arg::in_job(COLLECTOR));
        if !known.is_empty() {
            rung.env.insert("RGPU_CUPTI".to_owned(), Arg::from(known));
        }
        rung.success.files = vec![format!("{RAW}/nvtx.jsonl.*")];
        rung.loses = match self.request.mode {
            Mode::Ncu => "hardware counters: times of kernels, copies and ranges remain",
            _ => "traces other than CUDA and NVTX, and samples of the CPU",
        }
        .to_owned();
        self.rungs.push(rung);
    }

    /// Runs a Python kernel under torch's own profiler, which needs no tool on the host.
    fn add_torch(&mut self) {
        if !self.jobs.is_python() {
            return;
        }
        let trace = format!("{RAW}/torch.trace.json");
        let (mut argv, mut artifacts) = self.jobs.usual("torch", &[], "torch");
        argv.extend(["--trace".into(), Arg::in_job(&trace)]);
        artifacts.push(artifact(&trace, "torch_trace"));
        let mut rung = self.rung("torch", argv, artifacts);
        rung.success.files = vec![trace];
        rung.loses = match self.request.mode {
            _ if self.facts.gpus.is_empty() => "everything of the GPU: it runs on the CPU",
            Mode::Ncu => "hardware counters: operators and times of kernels remain",
            _ => "calls of other libraries: torch's profiler sees torch and its kernels",
        }
        .to_owned();
        self.rungs.push(rung);
    }

    /// Uses no tool: CUDA events, then the host's clock.
    fn add_plain(&mut self) {
        match &self.request.target {
            Target::Kernel { .. } => {
                for (id, flags, loses) in [
                    ("events", &[][..], "everything except the kernel's time"),
                    (
                        "host",
                        &["--host-clock"][..],
                        "everything except the kernel's time by the host's clock",
                    ),
                ] {
                    let (argv, artifacts) = self.jobs.logged("time", flags, STEP);
                    let mut rung = self.rung(id, argv, artifacts);
                    rung.loses = loses.to_owned();
                    self.rungs.push(rung);
                }
            }
            Target::Program(program) => {
                let mut rung = self.rung("host", program.argv.clone(), Vec::new());
                rung.loses = "everything except the program's own time".to_owned();
                self.rungs.push(rung);
            }
        }
    }
}

/// Whether a program is a Python program, judged by its command.
fn runs_python(target: &Target) -> bool {
    let Target::Program(program) = target else { return false };
    program.argv.iter().take(2).any(|word| match word {
        Arg::Text(text) => text.contains("python") || text.ends_with(".py"),
        Arg::InJob { in_job, .. } => in_job.contains("python") || in_job.ends_with(".py"),
    })
}

/// The tool that a rung belongs to: the part of its id before the dot.
fn family(id: &str) -> &str {
    id.split('.').next().unwrap_or(id)
}

/// Whether the rung `id` fails like `failed`: it is the same rung, or another one of the same tool
/// that fails for the same reason.
fn fails_like(id: &str, failed: &FailedRung) -> bool {
    if id == failed.rung {
        return true;
    }
    let row = rows_of(&failed.rung).iter().find(|MessageRow(_, code, _)| *code == failed.code);
    family(id) == family(&failed.rung)
        && match row {
            Some(MessageRow(_, _, RowAction::Leave | RowAction::LeaveUnfiltered)) => true,
            Some(MessageRow(_, _, RowAction::Counterless)) => {
                !["ncu.sudo", "ncu.launch"].contains(&id)
            }
            _ => false,
        }
}

fn rows_of(id: &str) -> &'static [MessageRow] {
    match family(id) {
        "ncu" => ncu::ROWS,
        "nsys" => nsys::ROWS,
        _ => &[],
    }
}

pub(super) fn artifact(path: impl Into<String>, kind: &str) -> ArtifactSpec {
    ArtifactSpec { path: path.into(), kind: kind.to_owned() }
}
