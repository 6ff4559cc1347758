//! The environment of steps: allowed variables of the agent's own, then the user's settings for
//! this host, then the plan's variables.
//!
//! Steps do not inherit the user's whole environment, because nsys stores every variable in its
//! reports, which leave the host. For the same reason they do not inherit a variable whose name
//! says that it holds a secret. Variables that set up communication between GPUs and processes
//! reach every step: on a host that others share, `NCCL_NVLS_ENABLE=0` must hold. So do those that
//! downloads need behind a proxy or a certificate authority of one's own, since steps install
//! Python packages.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use rgpu_protocol::plan::Arg;
use rgpu_protocol::{Plan, Rung};

use crate::job::JobFolder;
use crate::setup::ConnectionSettings;

/// Variables that steps inherit; a trailing `*` matches any rest.
const INHERITED: [&str; 28] = [
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
    "NCCL_*",
    "TORCH_*",
    "NVSHMEM_*",
    "OMPI_*",
    "SLURM_*",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "PIP_*",
    "UV_*",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
];

/// Variables of the Slurm step or task that the agent runs in ("OUTPUT ENVIRONMENT VARIABLES" of
/// srun(1)). An `srun` inside a step would take them for its own: it would be bound to one CPU.
const OF_SLURM_STEP: [&str; 11] = [
    "SLURM_STEP*",
    "SLURM_PROCID",
    "SLURM_LOCALID",
    "SLURM_NODEID",
    "SLURM_GTIDS",
    "SLURM_TASK_PID",
    "SLURM_CPU_BIND*",
    "SLURM_MEM_BIND*",
    "SLURM_LAUNCH_NODE_IPADDR",
    "SLURM_SRUN_COMM_HOST",
    "SLURM_SRUN_COMM_PORT",
];

/// Parts of the names of variables that hold secrets, such as `SLURM_JWT`.
const SECRET_PARTS: [&str; 6] = ["JWT", "TOKEN", "SECRET", "PASSWORD", "CREDENTIAL", "API_KEY"];

/// The variable that identifies a job's processes after their supervisor has died.
const MARKER: &str = "RGPU_JOB_FOLDER";

pub(crate) type Environment = BTreeMap<String, String>;

/// Returns the agent's own variables that steps inherit.
pub(crate) fn inherited() -> Environment {
    let is_setting = ConnectionSettings::is_setting();
    // A plan cannot name variables that are not UTF-8.
    let variables = std::env::vars_os()
        .filter_map(|(k, v)| Some((k.into_string().ok()?, v.into_string().ok()?)));
    let is_allowed = |(name, value): &(String, String)| {
        is_inherited(name) && !has_credentials(value) || is_setting(name)
    };
    variables.filter(is_allowed).collect()
}

/// Whether a value has a URL with a user or a password, as those of proxies and package indexes
/// may.
fn has_credentials(value: &str) -> bool {
    value.split("://").skip(1).any(|rest| {
        let authority = rest.split(['/', '?', '#', ' ', ',']).next().unwrap_or_default();
        authority.contains('@')
    })
}

fn is_inherited(name: &str) -> bool {
    let listed = |list: &[&str]| {
        list.iter().any(|item| match item.strip_suffix('*') {
            Some(start) => name.starts_with(start),
            None => name == *item,
        })
    };
    let secret = SECRET_PARTS.iter().any(|part| name.to_ascii_uppercase().contains(part));
    listed(&INHERITED) && !listed(&OF_SLURM_STEP) && !secret
}

/// Returns `NAME=value`, a variable of all processes of a job.
pub(crate) fn marker(folder: &JobFolder) -> String {
    format!("{MARKER}={}", folder.work().display())
}

/// Returns the environment of a rung's program. The locked GPU overrides everything else.
pub(crate) fn rung_environment(
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
    let variables = plan.env.iter().chain(&rung.env);
    env.extend(variables.map(|(name, arg)| (name.clone(), arg.resolve(&work))));
    env.extend(secrets.iter().map(|(name, value)| (name.clone(), value.clone())));
    env.insert("RGPU_JOB".into(), plan.job.clone());
    env.insert(MARKER.into(), work);
    if let Some(uuid) = gpu {
        env.insert("CUDA_VISIBLE_DEVICES".into(), uuid.into());
    }
    // Drop variables that the kernel refuses.
    env.retain(|name, value| {
        !name.is_empty() && !name.contains(['=', '\0']) && !value.contains('\0')
    });
    env
}

/// Returns the path of a rung's program: absolute, a file in the job's folder, or found on PATH.
pub(crate) fn program(arg: &Arg, folder: &JobFolder, env: &Environment) -> Option<PathBuf> {
    let work = folder.work();
    let name = arg.resolve(&work.display().to_string());
    if name.contains('/') {
        // `join` with an absolute path drops the folder.
        return Some(work.join(name));
    }
    find_on_path(&name, env.get("PATH").map_or("", String::as_str))
}

/// Returns the first executable file named `name` in the folders of `path`.
pub(crate) fn find_on_path(name: &str, path: &str) -> Option<PathBuf> {
    let folders = path.split(':').filter(|f| f.starts_with('/'));
    folders.map(|f| Path::new(f).join(name)).find(|p| is_program(p))
}

/// Returns whether `path` is an executable file.
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
        let env = rung_environment(&plan, &rung, &folder, &BTreeMap::new(), Some("GPU-1"));
        assert_eq!(env["A"], "/r/jobs/j/work/a");
        assert_eq!(env["CUDA_VISIBLE_DEVICES"], "GPU-1");
        assert!(env["TMPDIR"].starts_with("/r/tmp/") && env["TMPDIR"].len() == 17);
        assert!(!env.keys().any(|k| k.starts_with("CARGO")));
    }

    #[test]
    fn variables_of_many_gpus_are_inherited_but_for_secrets_and_those_of_a_slurm_step() {
        let inherited = [
            "NCCL_NVLS_ENABLE",
            "TORCH_SYMM_MEM_DISABLE_MULTICAST",
            "NVSHMEM_DISABLE_NVLS",
            "OMPI_COMM_WORLD_RANK",
            "SLURM_JOB_ID",
            "LC_ALL",
            "SSL_CERT_FILE",
            "UV_DEFAULT_INDEX",
            "https_proxy",
        ];
        let dropped = [
            "SLURM_STEP_ID",
            "SLURM_STEPID",
            "SLURM_PROCID",
            "SLURM_CPU_BIND_LIST",
            "SLURM_JWT",
            "NCCL_TOKEN",
            "TORCH_API_KEY",
            "CUDA_SECRET",
            "PYTHONPATH",
            "UV_PUBLISH_TOKEN",
            "PATHS",
        ];
        assert!(inherited.into_iter().all(is_inherited));
        assert!(!dropped.into_iter().any(is_inherited));
    }

    #[test]
    fn values_with_credentials_are_known() {
        assert!(has_credentials("http://me:word@proxy:3128"));
        assert!(has_credentials("https://a/simple https://token@b/simple"));
        assert!(!has_credentials("http://proxy:3128/a@b"));
        assert!(!has_credentials("/etc/ssl/me@home.pem"));
    }

    #[test]
    fn programs_are_absolute_in_the_job_or_on_the_path() {
        let folder = JobFolder::at("/r/jobs/j".into());
        let env = Environment::from([("PATH".into(), ".:/nowhere:/bin".into())]);
        let find = |arg: Arg| program(&arg, &folder, &env);
        assert_eq!(find("sh".into()), Some("/bin/sh".into()));
        assert_eq!(find("/x/y".into()), Some("/x/y".into()));
        assert_eq!(find(Arg::in_job("bin/k")), Some("/r/jobs/j/work/bin/k".into()));
        assert_eq!(find("bin/k".into()), Some("/r/jobs/j/work/bin/k".into()));
        assert_eq!(find("no-such-program-here".into()), None);
    }
}
