//! The environment of steps: an allow-list of the agent's own, the user's settings for this host,
//! then what the plan names.
//!
//! Not all of the user's environment: nsys stores every variable in its reports, which travel.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use rgpu_protocol::plan::Arg;
use rgpu_protocol::{Plan, Rung};

use crate::job::JobFolder;
use crate::setup::Setup;

/// Variables that steps inherit; a `*` at the end stands for anything.
const INHERITED: [&str; 11] = [
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "LANG",
    "LC_*",
    "TZ",
    "LD_LIBRARY_PATH",
    "CUDA_*",
    "NVIDIA_*",
    "SHELL",
];

/// The variable by which a job's processes are found after their supervisor's death.
const MARKER: &str = "RGPU_JOB_FOLDER";

/// Variables of a step.
pub(crate) type Environment = BTreeMap<String, String>;

/// The agent's own variables that steps inherit.
pub(crate) fn inherited() -> Environment {
    let listed = |name: &str| {
        INHERITED.iter().any(|item| match item.strip_suffix('*') {
            Some(start) => name.starts_with(start),
            None => name == *item,
        })
    };
    let handed_over = Setup::handed_over();
    // Variables that are no UTF-8 cannot be named by a plan either.
    let all = std::env::vars_os()
        .filter_map(|(k, v)| Some((k.into_string().ok()?, v.into_string().ok()?)));
    all.filter(|(name, _)| listed(name) || handed_over(name)).collect()
}

/// `NAME=value` that all processes of a job carry.
pub(crate) fn marker(folder: &JobFolder) -> String {
    format!("{MARKER}={}", folder.work().display())
}

/// What a rung's program gets. The locked GPU has the last word.
pub(crate) fn of_rung(
    plan: &Plan,
    rung: &Rung,
    folder: &JobFolder,
    secrets: &BTreeMap<String, String>,
    gpu: Option<&str>,
) -> Environment {
    let work = folder.work().display().to_string();
    let mut env = inherited();
    env.entry("PATH".into()).or_insert_with(|| "/usr/local/bin:/usr/bin:/bin".into());
    env.insert("TMPDIR".into(), folder.tmp().display().to_string());
    let words = plan.env.iter().chain(&rung.env);
    env.extend(words.map(|(name, word)| (name.clone(), word.resolve(&work))));
    env.extend(secrets.iter().map(|(name, value)| (name.clone(), value.clone())));
    env.insert("RGPU_JOB".into(), plan.job.clone());
    env.insert(MARKER.into(), work);
    if let Some(uuid) = gpu {
        env.insert("CUDA_VISIBLE_DEVICES".into(), uuid.into());
    }
    // Nothing that the kernel would refuse.
    env.retain(|name, value| {
        !name.is_empty() && !name.contains(['=', '\0']) && !value.contains('\0')
    });
    env
}

/// The program a rung names: absolute, a file of the job's folder, or found on the step's PATH.
pub(crate) fn program(word: &Arg, folder: &JobFolder, env: &Environment) -> Option<PathBuf> {
    let work = folder.work();
    let name = word.resolve(&work.display().to_string());
    if name.contains('/') {
        // An absolute path replaces the folder.
        return Some(work.join(name));
    }
    find_on_path(&name, env.get("PATH").map_or("", String::as_str))
}

/// The first executable file called `name` in the folders of `path`.
pub(crate) fn find_on_path(name: &str, path: &str) -> Option<PathBuf> {
    let folders = path.split(':').filter(|f| f.starts_with('/'));
    folders.map(|f| Path::new(f).join(name)).find(|p| is_program(p))
}

/// Whether `path` is a file that may be executed.
pub(crate) fn is_program(path: &Path) -> bool {
    path.is_file() && rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_listed_variables_reach_a_step_and_the_lock_has_the_last_word() {
        let plan: Plan = serde_json::from_str(
            r#"{"job":"j","title":"","steps":[],"env":{"A":"1","CUDA_VISIBLE_DEVICES":"0"}}"#,
        )
        .unwrap();
        let rung: Rung =
            serde_json::from_str(r#"{"id":"r","argv":["x"],"env":{"A":{"in_job":"a"}}}"#).unwrap();
        let folder = JobFolder::at("/r/jobs/j".into());
        let env = of_rung(&plan, &rung, &folder, &BTreeMap::new(), Some("GPU-1"));
        assert_eq!(env["A"], "/r/jobs/j/work/a");
        assert_eq!(env["CUDA_VISIBLE_DEVICES"], "GPU-1");
        assert!(env["TMPDIR"].starts_with("/r/tmp/") && env["TMPDIR"].len() == 17);
        assert!(!env.keys().any(|k| k.starts_with("CARGO")));
    }

    #[test]
    fn programs_are_absolute_in_the_job_or_on_the_path() {
        let folder = JobFolder::at("/r/jobs/j".into());
        let env = Environment::from([("PATH".into(), ".:/nowhere:/bin".into())]);
        let find = |word: Arg| program(&word, &folder, &env);
        assert_eq!(find("sh".into()), Some("/bin/sh".into()));
        assert_eq!(find("/x/y".into()), Some("/x/y".into()));
        assert_eq!(find(Arg::in_job("bin/k")), Some("/r/jobs/j/work/bin/k".into()));
        assert_eq!(find("bin/k".into()), Some("/r/jobs/j/work/bin/k".into()));
        assert_eq!(find("no-such-program-here".into()), None);
    }
}
