//! The steps of mode `sanitizer`: one for each tool of Compute Sanitizer, with the runner's guarded
//! run as the lower rung.

use rgpu_protocol::RungRecord;
use rgpu_protocol::plan::{Arg, OnFailure, Rung, Success};

use super::draft::PlanError;
use super::ladder::artifact;
use super::message_rows::{MessageRow, NextRungs, RowAction, table};
use super::options::SanitizerTool;
use super::planner::{Planner, plain_rung};
use super::request::{ProfileTarget, path_of};
use super::rungs::{RungInfo, RungTool};
use super::{RUNNER_INPUT_SANITIZER, rank_shim, reason};
use crate::kernel::ProfileMode;
use crate::tool::sanitizer;
use rgpu_model::RungId;
use rgpu_model::profile::ArtifactKind;

/// Messages of memcheck, the guarded run and the driver about accesses outside of arrays.
static OUTSIDE_ARRAYS: &[MessageRow] = &[
    MessageRow("Invalid __global__", "outside_arrays", RowAction::Stop),
    MessageRow("Invalid __shared__", "outside_arrays", RowAction::Stop),
    MessageRow("Misaligned __", "outside_arrays", RowAction::Stop),
    MessageRow("write before", "outside_arrays", RowAction::FailedStop),
    MessageRow("write after", "outside_arrays", RowAction::FailedStop),
    MessageRow("CUDA_ERROR_ILLEGAL_ADDRESS", "outside_arrays", RowAction::FailedStop),
];

impl Planner<'_> {
    pub(super) fn add_sanitizer_steps(&mut self) -> Result<(), PlanError> {
        let is_kernel = matches!(self.request.target, ProfileTarget::Kernel { .. });
        let path = path_of(self.facts, "compute-sanitizer");
        for tool in self.request.sanitizer.tools(is_kernel) {
            let name = tool.name();
            let id = format!("sanitizer-{name}");
            let mut rungs = Vec::new();
            match path {
                Some(path) => rungs.push(self.sanitizer_rung(path, tool)?),
                None => self.info.left_out.push(RungRecord {
                    step: id.clone(),
                    rung: RungId::Sanitizer.to_string(),
                    code: "tool_missing".to_owned(),
                    message: reason::reason("tool_missing").title.to_owned(),
                    ..RungRecord::default()
                }),
            }
            // Canaries do not work for a Python kernel, whose memory comes from torch's own
            // allocator.
            if is_kernel && !self.jobs.is_python() {
                let report = format!("guard-{name}");
                let (argv, artifacts) =
                    self.jobs.command("guard", RUNNER_INPUT_SANITIZER, &[], &report);
                let mut rung = plain_rung(&RungId::Guard, argv, artifacts);
                // Exit status 10 means that the guarded run found something, which is a valid
                // result.
                rung.success.exit = vec![0, 10];
                rung.loses =
                    RungInfo::find(&RungId::Guard).map_or("", |info| info.loses).to_owned();
                rungs.push(rung);
            }
            rungs.retain(|rung| !self.request.skip.contains(&format!("{id}/{}", rung.id)));
            if rungs.is_empty() {
                continue;
            }
            let step = self.step(&id, format!("check with {name}"), true, rungs);
            step.on_failure = OnFailure::Continue;
        }
        if self.steps.iter().any(|step| step.id.starts_with("sanitizer-")) {
            Ok(())
        } else {
            Err(PlanError::NoUsableRung {
                title: "check for faults".to_owned(),
                left_out: self.info.left_out.clone(),
            })
        }
    }

    /// Adds the step that looks for accesses outside of the arrays of a launch that was inferred,
    /// before anything is measured. A finding ends the run. In mode `sanitizer` the findings are the
    /// result.
    pub(super) fn add_bounds_step(&mut self) -> Result<(), PlanError> {
        if self.request.mode == ProfileMode::Sanitizer || self.jobs.is_python() {
            return Ok(());
        }
        let rows = |rows: &[MessageRow]| table(rows, NextRungs::default());
        let mut rungs = Vec::new();
        if let Some(path) = path_of(self.facts, "compute-sanitizer") {
            let tool = SanitizerTool::Memcheck;
            let mut argv: Vec<Arg> =
                [path, "--tool", tool.name(), "--print-limit", "4"].map(Arg::from).to_vec();
            let (command, _) = self.jobs.command("once", RUNNER_INPUT_SANITIZER, &[], "bounds");
            argv.extend(command);
            let mut rung = plain_rung(&RungId::Sanitizer, argv, Vec::new());
            rung.success = Success { exit: Vec::new(), ..Success::default() };
            rung.success.prints = vec![sanitizer::summary(tool)];
            rung.diagnosis = rows(OUTSIDE_ARRAYS);
            rung.diagnosis.extend(rows(RungTool::Sanitizer.messages()));
            rungs.push(rung);
        }
        let (argv, _) = self.jobs.command("guard", RUNNER_INPUT_SANITIZER, &[], "bounds");
        let mut rung = plain_rung(&RungId::Guard, argv, Vec::new());
        // Other findings of the guarded run say nothing against the launch.
        rung.success.exit = vec![0, 10];
        rung.diagnosis = rows(OUTSIDE_ARRAYS);
        rungs.push(rung);
        let title = "check that the assumed launch stays inside its arrays".to_owned();
        self.step("bounds", title, true, rungs);
        Ok(())
    }

    fn sanitizer_rung(&mut self, path: &str, tool: SanitizerTool) -> Result<Rung, PlanError> {
        let mut argv = sanitizer::command_line(self.request, path, tool)?;
        let mut rung = plain_rung(&RungId::Sanitizer, Vec::new(), Vec::new());
        rung.success = Success { exit: Vec::new(), ..Success::default() };
        rung.diagnosis = table(RungTool::Sanitizer.messages(), NextRungs::default());
        if let ProfileTarget::Program(program) = &self.request.target {
            rung.env.clone_from(&program.env);
            if !program.cwd.is_empty() {
                rung.cwd.clone_from(&program.cwd);
            }
        }
        if let Some((ranks, program)) = self.request.tool_per_rank() {
            let name = format!("sanitizer-{}", tool.name());
            let python = self.request.program_env(rank_shim::PYTHON_EXEC);
            let command = rank_shim::wrap_ranks(ranks, &argv, &program.argv, &name, python)?;
            self.files.push(command.script);
            rung.argv = command.argv;
            rung.env.extend(command.env);
            // A star stands for the number of a rank.
            let (log, xml) = (sanitizer::log(tool, ".rank*"), sanitizer::findings(tool, ".rank*"));
            rung.success.files = vec![log.clone()];
            rung.diagnosis.extend(table(rank_shim::MESSAGE_ROWS, NextRungs::default()));
            rung.artifacts = vec![
                artifact(log, ArtifactKind::SanitizerLog),
                artifact(xml, ArtifactKind::SanitizerXml),
            ];
            return Ok(rung);
        }
        rung.artifacts = vec![artifact(sanitizer::findings(tool, ""), ArtifactKind::SanitizerXml)];
        rung.success.prints = vec![sanitizer::summary(tool)];
        match &self.request.target {
            ProfileTarget::Kernel { .. } => {
                let name = format!("once-{}", tool.name());
                let (command, own) = self.jobs.command("once", RUNNER_INPUT_SANITIZER, &[], &name);
                argv.extend(command);
                rung.artifacts.extend(own);
            }
            ProfileTarget::Program(program) => argv.extend(program.argv.iter().cloned()),
        }
        rung.argv = argv;
        if self.jobs.is_python() {
            // Gives each tensor its own allocation, so that the tool knows its bounds.
            rung.env.insert("PYTORCH_NO_CUDA_MEMORY_CACHING".to_owned(), Arg::text("1"));
        }
        Ok(rung)
    }
}
