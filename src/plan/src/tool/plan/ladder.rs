//! The `profile` step: the ladder of each mode, from the best rung that could work on the host to a
//! last one that always works.

use std::collections::BTreeMap;

use rgpu_protocol::plan::{Arg, ArtifactSpec, Rung, Stop, Success};
use rgpu_protocol::{HostFacts, RungRecord};

use super::draft::{BundleFile, PlanError};
use super::harness::JobRunner;
use super::message_rows::{MessageRow, NextRungs, RowAction, table};
use super::request::{
    FailedRung, FirstPass, HostBinaries, PlanPart, ProfileTarget, Program, Request, path_of,
};
use super::rungs::{Replay, RungCommand, RungInfo, RungTool};
use super::{COLLECTOR, RAW, nodes, rank_shim, torch_hook};
use crate::kernel::{KERNEL_SURVEY, ProfileMode, REGION_SURVEY};
use crate::tool::cupti;
use crate::tool::ncu::{self, NcuCollection};
use crate::tool::nsys::{self, NsysTraces};
use rgpu_model::RungId;
use rgpu_model::profile::ArtifactKind;

/// Builds the ladder of one request.
pub(super) struct LadderBuilder<'a> {
    pub(super) request: &'a Request,
    pub(super) facts: &'a HostFacts,
    pub(super) binaries: &'a HostBinaries,
    jobs: JobRunner<'a>,
    /// Rungs that cannot work on this host, with the reason.
    pub(super) left_out: Vec<RungRecord>,
    rungs: Vec<Rung>,
    /// Commands of ncu so far, without the target.
    ncu_commands: Vec<Vec<Arg>>,
    /// Files that the rungs need.
    files: Vec<BundleFile>,
}

/// The rungs of a step.
pub(super) struct LadderRungs {
    /// The rungs that are tried, best first.
    pub(super) rungs: Vec<Rung>,
    /// Rungs that cannot work on the host, with the reason.
    pub(super) left_out: Vec<RungRecord>,
    /// Files to send along.
    pub(super) files: Vec<BundleFile>,
}

/// How much later than nsys, or torch's profiler, the plan stops a program, in seconds.
const TOOL_STOP_WAIT_S: u64 = 30;

/// The id of the main step of a kernel without a GPU, and of the first `profile` step of a run.
pub(super) const STEP: &str = "profile";

/// The id of the step that runs a program without a tool.
pub const PLAIN_STEP: &str = "plain";

/// The id of the step that records a program a second time.
pub const SECOND_STEP: &str = "second";

/// The id of a request's main step.
pub(super) fn step_of(request: &Request) -> String {
    match request.part {
        PlanPart::FirstPass(_) => "survey".to_owned(),
        PlanPart::Plain => PLAIN_STEP.to_owned(),
        PlanPart::SecondPass(_) => SECOND_STEP.to_owned(),
        _ => request.numbered(STEP),
    }
}

/// The record of a rung of the main step that cannot work on the host.
pub(super) fn left_out(request: &Request, rung: &RungId, code: &str) -> RungRecord {
    RungRecord {
        step: step_of(request),
        rung: rung.to_string(),
        code: code.to_owned(),
        message: super::reason::reason(code).title.to_owned(),
        ..RungRecord::default()
    }
}

impl<'a> LadderBuilder<'a> {
    pub(super) fn new(
        request: &'a Request,
        facts: &'a HostFacts,
        binaries: &'a HostBinaries,
    ) -> Self {
        let jobs = JobRunner::new(request, facts);
        Self {
            request,
            facts,
            binaries,
            jobs,
            left_out: Vec::new(),
            rungs: Vec::new(),
            ncu_commands: Vec::new(),
            files: Vec::new(),
        }
    }

    /// The rungs on a host with a GPU.
    pub(super) fn on_gpu(mut self) -> Result<LadderRungs, PlanError> {
        let ids = match self.request.part {
            PlanPart::FirstPass(FirstPass::Ranges) => REGION_SURVEY,
            PlanPart::FirstPass(FirstPass::Kernels) => KERNEL_SURVEY,
            PlanPart::Plain => &[RungId::HostClock],
            PlanPart::SecondPass(_) => &[RungId::NsysFull],
            _ => self.request.mode.info().rungs,
        };
        let rungs: Vec<&RungInfo> = ids.iter().filter_map(RungInfo::find).collect();
        for same_tool in rungs.chunk_by(|a, b| a.tool == b.tool) {
            // A missing tool is reported once, for the best of its rungs.
            if let Some(first) = same_tool.first()
                && self.can_use_tool(first)
            {
                same_tool.iter().try_for_each(|info| self.add(info))?;
            }
        }
        Ok(self.finish())
    }

    /// Whether the host has the rung's tool. If not, the rung is left out.
    fn can_use_tool(&mut self, info: &RungInfo) -> bool {
        let has_collector = self.binaries.collector.is_some();
        let missing = match info.tool {
            RungTool::Cupti | RungTool::Collector | RungTool::Torch
                if self.request.tool_per_rank().is_some() =>
            {
                "all_ranks"
            }
            RungTool::Cupti | RungTool::Collector | RungTool::Torch if self.request.nodes > 1 => {
                "one_node"
            }
            RungTool::Ncu if path_of(self.facts, "ncu").is_none() => "tool_missing",
            RungTool::Nsys => match self.facts.tool("nsys") {
                None => "tool_missing",
                Some(nsys) => {
                    let problem = nsys.problems.iter().find(|p| p.starts_with(nsys::IMPORTER));
                    if let Some(problem) = problem {
                        let record = left_out(self.request, &info.id, "importer_broken");
                        self.left_out.push(RungRecord { message: problem.clone(), ..record });
                    }
                    return problem.is_none();
                }
            },
            RungTool::Cupti | RungTool::Collector if !has_collector => "collector_missing",
            // If no libcupti is known on the host, the program may still bring one, as PyTorch
            // does.
            RungTool::Cupti
                if cupti::paths(self.facts).is_empty()
                    && !self.jobs.is_python()
                    && !runs_python(&self.request.target) =>
            {
                "cupti_missing"
            }
            _ => return true,
        };
        self.left_out.push(left_out(self.request, &info.id, missing));
        false
    }

    /// Adds a rung whose tool the host has, if it applies to the request.
    fn add(&mut self, info: &RungInfo) -> Result<(), PlanError> {
        match &info.command {
            RungCommand::Ncu { collect, replay, sudo } => {
                return self.add_ncu(info, *collect, *replay, *sudo);
            }
            RungCommand::Nsys(trace) => return self.add_nsys(info, *trace),
            RungCommand::Torch => self.add_torch(info),
            RungCommand::Cupti => self.add_cupti(info),
            RungCommand::Collector => self.add_collector(info),
            RungCommand::Time(flags) => self.add_time(info, flags),
            // Not in a ladder of a GPU, or steps of their own.
            RungCommand::Cpu
            | RungCommand::Provider(_)
            | RungCommand::Sanitizer
            | RungCommand::Guard
            | RungCommand::Verify => {}
        }
        Ok(())
    }

    /// The rungs on a host without a GPU: the reference on the CPU, or the program as it is.
    pub(super) fn on_cpu(mut self) -> LadderRungs {
        if self.request.nodes > 1 {
            self.left_out.push(left_out(self.request, &self.request.mode.best_rung(), "no_gpu"));
            return self.finish();
        }
        if self.request.part == PlanPart::Plain {
            RungInfo::find(&RungId::Cpu).into_iter().for_each(|info| self.add_cpu(info));
            return self.finish();
        }
        let best = self.request.mode.best_rung();
        // The collector and torch's profiler work without a GPU too.
        if !matches!(best, RungId::Nvtx | RungId::Torch) {
            self.left_out.push(left_out(self.request, &best, "no_gpu"));
        }
        let torch = (best == RungId::Torch).then_some(RungId::Torch);
        for id in torch.into_iter().chain([RungId::Nvtx, RungId::Cpu]) {
            let Some(info) = RungInfo::find(&id) else { continue };
            match info.command {
                RungCommand::Torch => self.add_torch(info),
                RungCommand::Collector if self.can_use_tool(info) => self.add_collector(info),
                RungCommand::Cpu => self.add_cpu(info),
                _ => {}
            }
        }
        self.finish()
    }

    fn finish(mut self) -> LadderRungs {
        let skip = &self.request.skip;
        self.rungs.retain(|rung| !skip.contains(&rung.id));
        self.skip_failed();
        let infos: Vec<_> =
            self.rungs.iter().filter_map(|r| RungInfo::find(&r.id[..].into())).collect();
        for (index, (rung, info)) in self.rungs.iter_mut().zip(&infos).enumerate() {
            let below = infos.get(index + 1..).unwrap_or_default();
            let next_rungs = NextRungs {
                leave: below.iter().find(|other| other.tool != info.tool).map(|other| &*other.id),
                counterless: below
                    .iter()
                    .find(|other| other.is_ncu_without_user_counters())
                    .map(|other| &*other.id),
                kernel: matches!(self.request.target, ProfileTarget::Kernel { .. }),
                filtered: ncu::filtered(self.request),
            };
            rung.diagnosis = table(info.tool.messages(), next_rungs);
            if self.request.tool_per_rank().is_some() {
                rung.diagnosis.extend(table(rank_shim::MESSAGE_ROWS, next_rungs));
            }
            if self.request.nodes > 1 {
                rung.diagnosis.extend(table(nodes::MESSAGE_ROWS, next_rungs));
            }
        }
        if let Some(first) = self.rungs.first_mut()
            && self.left_out.is_empty()
            && skip.is_empty()
        {
            first.loses.clear();
        }
        LadderRungs { rungs: self.rungs, left_out: self.left_out, files: self.files }
    }

    /// Leaves out rungs that failed on this host before, and those that would fail for the same
    /// reason.
    fn skip_failed(&mut self) {
        let step = step_of(self.request);
        let mut passed_over = Vec::new();
        self.rungs.retain(|rung| {
            let id = RungId::from(&*rung.id);
            let failed = self.request.failed.iter().find(|failed| fails_like(&id, failed));
            passed_over.extend(failed.map(|failed| RungRecord {
                step: step.clone(),
                rung: rung.id.clone(),
                code: failed.code.clone(),
                message: failed.message.clone(),
                ..RungRecord::default()
            }));
            failed.is_none()
        });
        // They come before the rungs that cannot work on the host at all.
        passed_over.append(&mut self.left_out);
        self.left_out = passed_over;
    }

    /// The command that a tool profiles.
    fn target_command(&self, job: &str) -> Vec<Arg> {
        match &self.request.target {
            ProfileTarget::Kernel { .. } => self.jobs.usual_command(job, &[], job).0,
            ProfileTarget::Program(program) => program.argv.clone(),
        }
    }

    fn own_artifacts(&self, job: &str) -> Vec<ArtifactSpec> {
        match &self.request.target {
            ProfileTarget::Kernel { .. } => self.jobs.usual_command(job, &[], job).1,
            ProfileTarget::Program(_) => Vec::new(),
        }
    }

    fn rung(&self, info: &RungInfo, argv: Vec<Arg>, artifacts: Vec<ArtifactSpec>) -> Rung {
        // The exit status of a program is not checked; the tool's report decides.
        let exit = match self.request.target {
            ProfileTarget::Kernel { .. } => vec![0],
            ProfileTarget::Program(_) => Vec::new(),
        };
        let (env, cwd) = match &self.request.target {
            ProfileTarget::Program(program) if !program.cwd.is_empty() => {
                (program.env.clone(), program.cwd.clone())
            }
            ProfileTarget::Program(program) => (program.env.clone(), RAW.to_owned()),
            ProfileTarget::Kernel { .. } => (BTreeMap::new(), RAW.to_owned()),
        };
        Rung {
            id: info.id.to_string(),
            needs: Vec::new(),
            argv,
            env,
            cwd,
            success: Success { exit, ..Success::default() },
            diagnosis: Vec::new(),
            artifacts,
            loses: info.loses_in(self.request.mode).to_owned(),
            stop: self.stop(info),
            hang: None,
        }
    }

    /// When the program is stopped. nsys and our hook for torch stop it by themselves; the plan
    /// does so only if that fails.
    fn stop(&self, info: &RungInfo) -> Option<Stop> {
        let after_s = self.request.window.stop_s()?;
        let (after_s, spare) = match info.tool {
            RungTool::Nsys => (after_s.saturating_add(TOOL_STOP_WAIT_S), nsys::PROCESSES),
            RungTool::Torch => (after_s.saturating_add(TOOL_STOP_WAIT_S), &[][..]),
            RungTool::Ncu => (after_s, ncu::PROCESSES),
            _ => (after_s, &[][..]),
        };
        Some(Stop { after_s, spare: spare.iter().map(|name| (*name).to_owned()).collect() })
    }

    /// ncu before the program.
    fn add_ncu(
        &mut self,
        info: &RungInfo,
        collect: NcuCollection,
        replay: Replay,
        as_root: bool,
    ) -> Result<(), PlanError> {
        let Some(path) = path_of(self.facts, "ncu") else { return Ok(()) };
        let asked = self.request.ncu.replay_mode.as_deref();
        let replay = match replay {
            Replay::AppRange if asked != Some("range") => return Ok(()),
            Replay::Kernel if !matches!(asked, Some("range" | "app-range")) => return Ok(()),
            Replay::Requested if collect == NcuCollection::Requested => asked,
            Replay::AppRange => Some("app-range"),
            Replay::Requested | Replay::Kernel => None,
        };
        let mut argv: Vec<Arg> = Vec::new();
        if as_root {
            if !self.request.ncu.sudo || self.facts.agent.root {
                return Ok(());
            }
            let sudo = self.facts.tool("sudo").filter(|tool| tool.problems.is_empty());
            let Some(sudo) = sudo else {
                self.left_out.push(left_out(self.request, &info.id, "no_sudo"));
                return Ok(());
            };
            let keep = "--preserve-env=CUDA_VISIBLE_DEVICES,LD_LIBRARY_PATH,TMPDIR";
            argv.extend([sudo.path.as_str(), "-n", keep, "--"].map(Arg::from));
        }
        argv.extend(ncu::command_line(self.request, path, collect, replay)?);
        // The requested sections may be the basic set already; the same command is not tried twice.
        if self.ncu_commands.contains(&argv) {
            return Ok(());
        }
        self.ncu_commands.push(argv.clone());
        let (argv, env) = self.with_target(info, argv)?;
        let report = format!("{}.ncu-rep", ncu::report(self.request, collect));
        let mut artifacts = vec![artifact(&report, ArtifactKind::NcuRep)];
        artifacts.extend(self.own_artifacts("once"));
        let mut rung = self.rung(info, argv, artifacts);
        rung.env.extend(env);
        rung.success.files = vec![report];
        if matches!(self.request.target, ProfileTarget::Program(_)) {
            for (name, value) in ncu::PROGRAM_ENV.iter() {
                if self.request.program_env(name).is_none() {
                    rung.env.insert((*name).to_owned(), Arg::text(*value));
                }
            }
        }
        self.rungs.push(rung);
        Ok(())
    }

    /// A tool's command with the target behind it, or with the launcher that starts the tool on the
    /// chosen ranks. Returns the environment variables for that, too.
    fn with_target(
        &mut self,
        info: &RungInfo,
        mut tool: Vec<Arg>,
    ) -> Result<(Vec<Arg>, BTreeMap<String, Arg>), PlanError> {
        let Some((ranks, program)) = self.request.tool_per_rank() else {
            tool.extend(self.target_command("once"));
            return Ok((tool, BTreeMap::new()));
        };
        let name = format!("{}-{}", step_of(self.request), info.id);
        let python = self.request.program_env(rank_shim::PYTHON_EXEC);
        let command = rank_shim::wrap_ranks(ranks, &tool, &program.argv, &name, python)?;
        self.files.push(command.script);
        Ok((command.argv, command.env))
    }

    /// nsys before the program.
    fn add_nsys(&mut self, info: &RungInfo, trace: NsysTraces) -> Result<(), PlanError> {
        let Some(tool) = self.facts.tool("nsys") else { return Ok(()) };
        let path = tool.path.as_str();
        let (argv, env) = nsys::command_line(self.request, (path, &tool.version), trace)?;
        if self.request.nodes > 1 {
            self.add_nsys_on_nodes(info, path, &argv, env);
            return Ok(());
        }
        let (argv, rank_env) = self.with_target(info, argv)?;
        let name = nsys::report(self.request);
        let report = format!("{name}.nsys-rep");
        let mut artifacts = vec![
            artifact(&report, ArtifactKind::NsysRep),
            artifact(format!("{name}.qdstrm"), ArtifactKind::NsysQdstrm),
        ];
        artifacts.extend(self.own_artifacts("once"));
        let mut rung = self.rung(info, argv, artifacts);
        rung.env.extend(env.into_iter().map(|(k, v)| (k.to_owned(), Arg::from(v))));
        rung.env.extend(rank_env);
        rung.success.files = vec![report];
        self.rungs.push(rung);
        Ok(())
    }

    /// nsys before the program on each node. The first node's report must be there; of the others,
    /// a part is better than nothing.
    fn add_nsys_on_nodes(
        &mut self,
        info: &RungInfo,
        path: &str,
        tool: &[Arg],
        env: Vec<(&'static str, &'static str)>,
    ) {
        let export = nsys::export_command_line(path, &nsys::report_of_node(nodes::NODE));
        let argv = self.on_each_node(info, tool, &export);
        // Named one by one: a shared file system lists new files of other nodes late.
        let artifacts = (0..self.request.nodes).flat_map(|node| {
            let report = nsys::report_of_node(node);
            [
                artifact(format!("{report}.nsys-rep"), ArtifactKind::NsysRep),
                artifact(format!("{report}.sqlite"), ArtifactKind::NsysSqlite),
                artifact(format!("{report}.qdstrm"), ArtifactKind::NsysQdstrm),
            ]
        });
        let mut rung = self.rung(info, argv, artifacts.collect());
        rung.env.extend(env.into_iter().map(|(k, v)| (k.to_owned(), Arg::from(v))));
        rung.success.files = vec![format!("{}.nsys-rep", nsys::report_of_node(0))];
        self.rungs.push(rung);
    }

    /// The command that starts a tool with the program on each node, and another command after it.
    fn on_each_node(&mut self, info: &RungInfo, tool: &[Arg], after: &[Arg]) -> Vec<Arg> {
        let name = format!("{}-{}", step_of(self.request), info.id);
        let script = nodes::script(&name, tool, after);
        let program = self.target_command("once");
        let argv = nodes::srun(self.request, &script.path, program);
        self.files.push(script);
        argv
    }

    /// Runs the program under our NVTX collector.
    fn add_collector(&mut self, info: &RungInfo) {
        let on_cpu = self.facts.gpus.is_empty();
        let mut rung = self.collector_rung(info, if on_cpu { "cpu" } else { "once" });
        // The log is missing if the program opens no range or never loads the collector. For a
        // program on a host without a GPU no lower rung gives more, so a missing log is accepted
        // there.
        if !on_cpu || matches!(self.request.target, ProfileTarget::Kernel { .. }) {
            rung.success.files = vec![format!("{RAW}/nvtx.jsonl.*")];
        }
        if on_cpu {
            rung.loses = if self.jobs.is_python() {
                "all GPU data (it ran on the CPU)".to_owned()
            } else {
                "all GPU data (the reference ran on the CPU)".to_owned()
            };
        }
        self.rungs.push(rung);
    }

    /// A rung that runs under our collector.
    fn collector_rung(&self, info: &RungInfo, job: &str) -> Rung {
        let mut artifacts = vec![artifact(format!("{RAW}/nvtx.jsonl.*"), ArtifactKind::NvtxLog)];
        artifacts.extend(self.own_artifacts(job));
        let mut rung = self.rung(info, self.target_command(job), artifacts);
        rung.env.extend([
            ("NVTX_INJECTION64_PATH".to_owned(), Arg::in_job(COLLECTOR)),
            ("RGPU_NVTX_LOG".to_owned(), Arg::in_job(format!("{RAW}/nvtx.jsonl"))),
        ]);
        rung
    }

    /// Runs the program under our collector with CUPTI's records of the GPU.
    fn add_cupti(&mut self, info: &RungInfo) {
        let mut rung = self.collector_rung(info, "once");
        rung.env.insert("CUDA_INJECTION64_PATH".to_owned(), Arg::in_job(COLLECTOR));
        let known = cupti::paths(self.facts);
        if !known.is_empty() {
            rung.env.insert("RGPU_CUPTI".to_owned(), Arg::from(known));
        }
        rung.success.files = vec![format!("{RAW}/nvtx.jsonl.*")];
        self.rungs.push(rung);
    }

    /// Runs a Python kernel or program under torch's own profiler, which needs no tool on the host.
    fn add_torch(&mut self, info: &RungInfo) {
        if let ProfileTarget::Program(program) = &self.request.target {
            return self.add_torch_hook(info, program);
        }
        if !self.jobs.is_python() {
            return;
        }
        let trace = format!("{RAW}/torch.trace.json");
        let (mut argv, mut artifacts) = self.jobs.usual_command("torch", &[], "torch");
        argv.extend(["--trace".into(), Arg::in_job(&trace)]);
        artifacts.push(artifact(&trace, ArtifactKind::TorchTrace));
        let mut rung = self.rung(info, argv, artifacts);
        rung.success.files = vec![trace];
        if self.facts.gpus.is_empty() {
            rung.loses = "all GPU data (it ran on the CPU)".to_owned();
        }
        self.rungs.push(rung);
    }

    /// Runs a program with our hook, which starts torch's profiler. Only in mode `torch`: the hook
    /// sees a part of the program, and nothing of other libraries.
    fn add_torch_hook(&mut self, info: &RungInfo, program: &Program) {
        if self.request.mode != ProfileMode::Torch {
            return;
        }
        if let Some(switch) = torch_hook::hindering_switch(program) {
            let record = left_out(self.request, &info.id, "torch_hook_hindered");
            let message = format!("`-{switch}` keeps Python from importing rgpu's hook");
            self.left_out.push(RungRecord { message, ..record });
            return;
        }
        let without_gpu = self.facts.gpus.is_empty();
        let artifacts = vec![artifact(torch_hook::TRACES, ArtifactKind::TorchTrace)];
        let mut rung = self.rung(info, torch_hook::command_line(self.request, program), artifacts);
        rung.env.extend(torch_hook::environment(self.request, without_gpu));
        rung.success.files = vec![torch_hook::TRACES.to_owned()];
        if without_gpu {
            rung.loses = "all GPU data (it ran on the CPU)".to_owned();
        }
        self.rungs.push(rung);
    }

    /// Times a kernel without a tool. A program is only run, and only once.
    fn add_time(&mut self, info: &RungInfo, flags: &[&str]) {
        match &self.request.target {
            ProfileTarget::Kernel { .. } => {
                let (argv, artifacts) = self.jobs.logged_command("time", flags, STEP);
                self.rungs.push(self.rung(info, argv, artifacts));
            }
            ProfileTarget::Program(program) if info.id == RungId::HostClock => {
                let argv = match self.request.nodes {
                    0 | 1 => program.argv.clone(),
                    _ => self.on_each_node(info, &[], &[]),
                };
                let mut rung = self.rung(info, argv, Vec::new());
                rung.loses = "all data but the program's own time".to_owned();
                self.rungs.push(rung);
            }
            ProfileTarget::Program(_) => {}
        }
    }

    /// Runs the reference on the CPU, or the program as it is.
    fn add_cpu(&mut self, info: &RungInfo) {
        let (argv, artifacts) = match self.request.target {
            ProfileTarget::Kernel { .. } => self.jobs.logged_command("cpu", &[], "cpu"),
            ProfileTarget::Program(_) => (self.target_command("cpu"), Vec::new()),
        };
        self.rungs.push(self.rung(info, argv, artifacts));
    }
}

/// Whether a program is a Python program, judged by its command.
pub fn runs_python(target: &ProfileTarget) -> bool {
    let ProfileTarget::Program(program) = target else { return false };
    program.argv.iter().take(2).any(|word| match word {
        Arg::Text(text) => text.contains("python") || text.ends_with(".py"),
        Arg::InJob { in_job, .. } => in_job.contains("python") || in_job.ends_with(".py"),
    })
}

/// Whether the rung `id` fails like `failed`: it is the same rung, or another one of the same tool
/// that fails for the same reason.
fn fails_like(id: &RungId, failed: &FailedRung) -> bool {
    if *id == failed.rung {
        return true;
    }
    let (Some(rung), Some(other)) = (RungInfo::find(id), RungInfo::find(&failed.rung)) else {
        return false;
    };
    let mut rows = other.tool.messages().iter();
    let row = rows.find(|MessageRow(_, code, _)| *code == failed.code);
    rung.tool == other.tool
        && match row {
            Some(MessageRow(
                _,
                _,
                RowAction::LeaveTool | RowAction::FailedLeave | RowAction::LeaveUnfiltered,
            )) => true,
            Some(MessageRow(_, _, RowAction::ToCounterless)) => {
                !rung.is_ncu_without_user_counters()
            }
            _ => false,
        }
}

pub(super) fn artifact(path: impl Into<String>, kind: ArtifactKind) -> ArtifactSpec {
    ArtifactSpec { path: path.into(), kind: kind.into() }
}
