//! Runs a step: its rungs from best to last, until one succeeds.

use std::collections::BTreeMap;
use std::path::Path;

use rgpu_protocol::event::StartError;
use rgpu_protocol::{EventBody, Rung, RungRecord, Step};

use super::rung::ProgramLaunch;
use super::rung_verdict::{RungVerdict, judge, not_run};
use super::{EarlyEnd, Supervisor, environment};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StepResult {
    /// A rung of the step succeeded.
    Succeeded,
    /// No rung succeeded; the code of the last failure.
    Failed(String),
}

impl Supervisor {
    /// Runs the rungs of a step, best first, until one succeeds or none can help.
    pub(crate) fn run_step(
        &mut self,
        step: &Step,
        secrets: &BTreeMap<String, String>,
    ) -> Result<StepResult, EarlyEnd> {
        self.emit(EventBody::StepStarted { step: step.id.clone(), title: step.title.clone() })?;
        let mut code = String::new();
        let mut at = 0;
        while let Some(rung) = step.rungs.get(at) {
            let (record, verdict) = self.try_rung(step, rung, secrets)?;
            code.clone_from(&record.code);
            self.emit(EventBody::RungEnded(record))?;
            if !matches!(verdict, RungVerdict::Next | RungVerdict::Succeeded | RungVerdict::Rung(_))
            {
                break;
            }
            match verdict {
                RungVerdict::Succeeded => {
                    self.end_step(step, Some(rung.id.clone()), String::new())?;
                    return Ok(StepResult::Succeeded);
                }
                // The plan was checked: this rung exists, further down.
                RungVerdict::Rung(id) => {
                    let below = step.rungs.iter().skip(at + 1).position(|r| r.id == id);
                    at += 1 + below.unwrap_or(0);
                }
                _ => at += 1,
            }
        }
        self.end_step(step, None, code.clone())?;
        Ok(StepResult::Failed(code))
    }

    fn end_step(
        &mut self,
        step: &Step,
        rung: Option<String>,
        code: String,
    ) -> Result<(), EarlyEnd> {
        Ok(self.emit(EventBody::StepEnded { step: step.id.clone(), rung, code })?)
    }

    fn try_rung(
        &mut self,
        step: &Step,
        rung: &Rung,
        secrets: &BTreeMap<String, String>,
    ) -> Result<(RungRecord, RungVerdict), EarlyEnd> {
        let work = self.folder.work();
        if let Some(file) = rung.needs.iter().find(|path| !work.join(path).exists()) {
            return Ok((not_run(step, rung, "missing", file.clone()), RungVerdict::Next));
        }
        let gpu = self.gpu.as_ref().filter(|_| step.gpu).map(super::GpuLock::visible);
        let env =
            environment::rung_environment(&self.plan, rung, &self.folder, secrets, gpu.as_deref());
        let work_path = work.display().to_string();
        let mut argv: Vec<String> = rung.argv.iter().map(|word| word.resolve(&work_path)).collect();
        let program =
            rung.argv.first().and_then(|word| environment::program(word, &self.folder, &env));
        if let (Some(first), Some(program)) = (argv.first_mut(), &program) {
            *first = program.display().to_string();
        }
        let started = EventBody::RungStarted {
            step: step.id.clone(),
            rung: rung.id.clone(),
            argv: argv.clone(),
        };
        self.emit(started)?;
        let Some(program) = program else {
            let message = format!("`{}` is not on PATH", argv[0]);
            let not_found = Some(StartError::NotFound);
            return Ok((start_failed(step, rung, argv, message, not_found), RungVerdict::Next));
        };
        let folder = work.join(&rung.cwd);
        if let Err(e) = std::fs::create_dir_all(&folder) {
            let message = format!("no folder `{}`: {e}", rung.cwd);
            return Ok((start_failed(step, rung, argv, message, None), RungVerdict::Next));
        }
        let launch = ProgramLaunch {
            program: &program,
            args: &argv[1..],
            env: &env,
            folder: &folder,
            stop: rung.stop.as_ref(),
            hang: rung.hang.as_ref(),
        };
        let result = match self.run_program(step, &launch, secrets) {
            Err(stopped @ EarlyEnd::Stop(_)) => {
                self.announce_pulled(step, rung, &work)?;
                return Err(stopped);
            }
            result => result?,
        };
        let verdict = match result {
            Ok(result) => judge(step, rung, argv, &result, &work),
            Err(e) => {
                let message = format!("`{}` does not start: {e}", program.display());
                let why = match e.kind() {
                    std::io::ErrorKind::NotFound => StartError::NotFound,
                    _ => StartError::NotExecutable,
                };
                (start_failed(step, rung, argv, message, Some(why)), RungVerdict::Next)
            }
        };
        self.announce(step, rung, &work)?;
        Ok(verdict)
    }

    fn announce(&mut self, step: &Step, rung: &Rung, work: &Path) -> Result<(), EarlyEnd> {
        if rung.artifacts.is_empty() { Ok(()) } else { self.announce_artifacts(step, rung, work) }
    }
}

fn start_failed(
    step: &Step,
    rung: &Rung,
    argv: Vec<String>,
    message: String,
    start_error: Option<StartError>,
) -> RungRecord {
    RungRecord { argv, start_error, ..not_run(step, rung, "start_failed", message) }
}
