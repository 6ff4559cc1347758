//! Checks a plan before anything is created: names that become file names, paths, and ladders.

use std::collections::BTreeSet;

use rgpu_protocol::pattern::LadderAction;
use rgpu_protocol::plan::{valid_job_id, valid_relative_path};
use rgpu_protocol::{BLOB_BYTES, Plan, Step};

/// Why a plan is refused.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// A path leaves the job's folder.
    #[error("the path `{0}` does not stay in the job's folder")]
    Path(String),
    /// Something else is wrong.
    #[error("{0}")]
    Plan(String),
}

impl PlanError {
    /// Returns the code of a refusal.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Path(_) => "bad_path",
            Self::Plan(_) => "bad_plan",
        }
    }
}

/// Checks a plan.
pub fn check(plan: &Plan) -> Result<(), PlanError> {
    let bad = |text: String| Err(PlanError::Plan(text));
    if !valid_job_id(&plan.job) {
        return bad(format!("`{}` cannot be a job's name", plan.job.escape_debug()));
    }
    let mut paths = BTreeSet::new();
    for file in &plan.files {
        check_path(&file.path)?;
        if !paths.insert(file.path.as_str()) {
            return bad(format!("two input files have the path `{}`", file.path));
        }
        if !(1..=BLOB_BYTES).contains(&file.piece_bytes) {
            return bad(format!("`{}` is cut into pieces of {}", file.path, file.piece_bytes));
        }
        let pieces = file.size.div_ceil(file.piece_bytes).max(1);
        let empty = file.size == 0 && file.blobs.is_empty();
        if file.blobs.len() as u64 != pieces && !empty {
            return bad(format!("`{}` needs {pieces} blobs, not {}", file.path, file.blobs.len()));
        }
    }
    let mut steps = BTreeSet::new();
    for step in &plan.steps {
        // Log files are named after the step, so the rule is the same.
        if !valid_job_id(&step.id) {
            return bad(format!("`{}` cannot be a step's name", step.id.escape_debug()));
        }
        if let Some(needs) = step.needs.iter().find(|n| !steps.contains(n.as_str())) {
            return bad(format!("step `{}` needs `{needs}`, which no earlier step is", step.id));
        }
        if !steps.insert(step.id.as_str()) {
            return bad(format!("two steps are called `{}`", step.id));
        }
        if step.gpu && plan.gpu.is_none() {
            return bad(format!("step `{}` needs a GPU, but the plan requests none", step.id));
        }
        check_ladder(step)?;
    }
    Ok(())
}

fn check_ladder(step: &Step) -> Result<(), PlanError> {
    let bad = |text: String| Err(PlanError::Plan(text));
    if step.rungs.is_empty() {
        return bad(format!("step `{}` has no rung", step.id));
    }
    for (index, rung) in step.rungs.iter().enumerate() {
        if rung.argv.is_empty() {
            return bad(format!("rung `{}` has no command", rung.id));
        }
        if !rung.cwd.is_empty() {
            check_path(&rung.cwd)?;
        }
        let artifacts = rung.artifacts.iter().map(|a| &a.path);
        let hang_file = rung.hang.iter().map(|hang| &hang.file);
        for path in rung.success.files.iter().chain(artifacts).chain(hang_file) {
            check_path(path)?;
        }
        for path in rung.needs.iter().filter(|p| !p.starts_with('/')) {
            check_path(path)?;
        }
        for row in &rung.diagnosis {
            if let LadderAction::Rung(to) = &row.then
                && !step.rungs[index + 1..].iter().any(|r| r.id == *to)
            {
                return bad(format!("rung `{}` leads to `{to}`, which is not below it", rung.id));
            }
        }
    }
    Ok(())
}

fn check_path(path: &str) -> Result<(), PlanError> {
    if valid_relative_path(path) { Ok(()) } else { Err(PlanError::Path(path.into())) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(json: &str) -> Plan {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn paths_that_leave_the_folder_are_refused_wherever_they_stand() {
        let d = "0".repeat(64);
        for text in [
            format!(
                r#"{{"job":"j","title":"","steps":[],"files":[{{"path":"../x","size":0,"digest":"{d}","blobs":[]}}]}}"#
            ),
            r#"{"job":"j","title":"","steps":[{"id":"s","title":"","timeout_s":1,"rungs":[{"id":"r","argv":["true"],"cwd":"/etc"}]}]}"#.into(),
            r#"{"job":"j","title":"","steps":[{"id":"s","title":"","timeout_s":1,"rungs":[{"id":"r","argv":["true"],"artifacts":[{"path":"../*","kind":"k"}]}]}]}"#.into(),
        ] {
            assert_eq!(check(&plan(&text)).unwrap_err().code(), "bad_path", "{text}");
        }
    }

    #[test]
    fn a_diagnosis_leads_down_the_ladder_only() {
        let text = r#"{"job":"j","title":"","steps":[{"id":"s","title":"","timeout_s":1,"rungs":[
            {"id":"a","argv":["true"]},
            {"id":"b","argv":["true"],"diagnosis":[{"pattern":"x","code":"c","then":{"rung":"a"}}]}]}]}"#;
        assert!(check(&plan(text)).unwrap_err().to_string().contains("not below"));
    }

    #[test]
    fn steps_cannot_name_files_outside_the_log_folder() {
        let text = r#"{"job":"j","title":"","steps":[{"id":"../s","title":"","timeout_s":1,"rungs":[{"id":"a","argv":["true"]}]}]}"#;
        assert_eq!(check(&plan(text)).unwrap_err().code(), "bad_plan");
    }
}
