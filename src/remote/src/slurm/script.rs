//! What is submitted: the batch script, the options of `sbatch`, and the command on the login node
//! that submits a job once only.

use super::login::{Argv, argv};
use super::settings::Settings;

/// Submits a job: `$1` is the job's folder, `$2` the batch script, the rest `sbatch` and its
/// options.
///
/// The folder is made first. Whoever comes second, after a cut link, finds it and submits nothing:
/// it prints the job's number, if the first one came so far. Of `sbatch`'s answer no more than one
/// line of a few hundred bytes is needed, and the shell keeps 4096 bytes of it.
const SUBMIT: &str = r#"umask 077; d=$1; s=$2; shift 2
mkdir -p "${d%/*}" || exit 18
find "${d%/*}" -mindepth 1 -maxdepth 1 -mtime +30 -exec rm -rf {} + 2>/dev/null
if ! mkdir "$d" 2>/dev/null; then cat "$d/job" 2>/dev/null; exit 17; fi
printf '%s' "$s" >"$d/batch" || exit 18
j=$({ "$@" "$d/batch"; echo $? >"$d/exit"; } | head -c 4096)
e=$(cat "$d/exit"); rm -f "$d/exit"
if [ "$e" = 0 ]; then printf '%s\n' "$j" >"$d/job"; printf '%s\n' "$j"
else rm -rf "$d"; [ "$e" != 17 ] || e=1; exit "${e:-1}"; fi
"#;

/// The exit status of [`SUBMIT`] if the job's folder is there.
pub(super) const SUBMITTED_BEFORE: i32 = 17;

/// The batch script. A compute node may see new files of a shared folder late. A job that was
/// queued again must not run: its run has ended for the client.
const BATCH: &str = r#"#!/bin/sh
# Holds this node for rgpu, which runs on the user's own machine. It ends by itself once nothing
# uses it. `scancel` ends it too.
umask 077
if [ "${SLURM_RESTART_COUNT:-0}" -gt 0 ]; then echo "queued again: nothing runs twice"; exit 0; fi
[ -n "$HOME" ] || { HOME=$(getent passwd "$(id -u)" | cut -d: -f6); export HOME; }
# The first two would take the environment away from an `srun` of the user's program. The last one is
# for the agent on the login node, whose environment some clusters pass on.
unset SLURM_EXPORT_ENV SBATCH_EXPORT RGPU_AGENT_RESULTS
r=ROOT
d=$r/alloc/NAME
f=
i=0
while [ -z "$f" ]; do
  for p in "$r/bin/PROGRAM" "$HOME/.cache/rgpu/bin/PROGRAM"; do
    [ -x "$p" ] && [ -d "$d" ] && f=$p && break
  done
  [ -n "$f" ] && break
  if [ $i -ge WAIT ]; then
    echo "this node does not see $r/bin/PROGRAM: the remote's folder must be shared with it"
    exit 3
  fi
  ls "$r" "$r/bin" >/dev/null 2>&1
  i=$((i + 1))
  sleep 1
done
RGPU_AGENT_HOME=$r "$f" hold "$d" IDLE &
h=$!
done=
# The user's machine sends this when it no longer needs the node.
trap 'done=1; kill "$h" 2>/dev/null' USR1
wait "$h"
s=$?
[ -z "$done" ] || s=0
[ $s -ne 0 ] || rm -rf "$d"
exit $s
"#;

/// How many seconds files of a shared folder may take to appear on a node.
const MAX_FILE_DELAY_S: u32 = 300;

/// A job of Slurm to submit.
#[derive(Clone, Copy)]
pub(super) struct NewJob<'a> {
    pub(super) settings: &'a Settings,
    /// The job's name, which is also that of its folder.
    pub(super) name: &'a str,
    /// The absolute path of the remote's folder on the login node.
    pub(super) root: &'a str,
    /// The agent's program in the folder `bin`.
    pub(super) program: &'a str,
    /// The time limit, unless the partition's default serves.
    pub(super) time: Option<&'a str>,
    /// After how many seconds without use it ends.
    pub(super) idle_s: u64,
    /// How many nodes it has.
    pub(super) nodes: u32,
    /// The GPUs of each node, if the command asks for a number.
    pub(super) gpus: Option<u32>,
}

/// How GPUs are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GpuOption {
    /// `--gpus-per-node`, which not every cluster has.
    PerNode,
    /// `--gres`.
    Gres,
}

impl NewJob<'_> {
    /// The arguments of `sh` that submit it.
    pub(super) fn submission(&self, gpu_option: GpuOption) -> Argv {
        let folder = self.folder();
        let start = argv!["-c", SUBMIT, "rgpu", folder, self.script()];
        [start, self.sbatch(gpu_option)].concat()
    }

    /// The absolute path of the job's folder on the login node.
    pub(super) fn folder(&self) -> String {
        folder(self.root, self.name)
    }

    fn sbatch(&self, gpu_option: GpuOption) -> Argv {
        let Settings { partition, options, .. } = self.settings;
        let mut argv = argv![
            "sbatch",
            "--parsable",
            "--no-requeue",
            "--export=NONE",
            format!("--job-name={}", self.name),
            format!("--nodes={}", self.nodes),
            format!("--ntasks={}", self.nodes),
            "--chdir=/",
            // Slurm replaces `%` in the name of the log.
            format!("--output={}/log", self.folder().replace('%', "%%")),
        ];
        argv.extend((self.nodes > 1).then(|| "--ntasks-per-node=1".to_owned()));
        argv.extend(partition.as_ref().map(|partition| format!("--partition={partition}")));
        argv.extend(self.settings.job_gpus(self.gpus).map(|gpus| match gpu_option {
            GpuOption::PerNode => format!("--gpus-per-node={gpus}"),
            GpuOption::Gres => format!("--gres=gpu:{gpus}"),
        }));
        argv.extend(self.time.map(|time| format!("--time={time}")));
        argv.extend(options.iter().cloned());
        argv
    }

    fn script(&self) -> String {
        // Checked: it has no character that a shell reads otherwise.
        let root = match self.settings.folder.strip_prefix("~/") {
            Some(rest) => format!("$HOME/{rest}"),
            None => self.settings.folder.clone(),
        };
        BATCH
            .replace("ROOT", &root)
            .replace("NAME", self.name)
            .replace("PROGRAM", self.program)
            .replace("WAIT", &MAX_FILE_DELAY_S.to_string())
            .replace("IDLE", &self.idle_s.to_string())
    }
}

/// The folder of the job with this name, below the remote's folder.
pub(super) fn folder(root: &str, name: &str) -> String {
    format!("{root}/alloc/{name}")
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::process::Command;
    use std::time::Duration;

    use super::*;
    use crate::RemoteSpec;

    #[test]
    fn a_job_names_its_run_and_has_an_end() {
        let mut spec = RemoteSpec::new("cluster", "slurm://login");
        spec.options.insert("partition".into(), "gpu".into());
        let settings = Settings::read(&spec).unwrap();
        let job = NewJob {
            settings: &settings,
            name: "rgpu-r1",
            root: "/home/me/50%/slurm",
            program: "agent-abc",
            time: Some("30"),
            idle_s: 120,
            nodes: 1,
            gpus: None,
        };
        let words = job.sbatch(GpuOption::PerNode).join(" ");
        assert_eq!(
            words,
            "sbatch --parsable --no-requeue --export=NONE --job-name=rgpu-r1 --nodes=1 --ntasks=1 \
             --chdir=/ --output=/home/me/50%%/slurm/alloc/rgpu-r1/log --partition=gpu \
             --gpus-per-node=1 --time=30"
        );
        assert!(job.sbatch(GpuOption::Gres).contains(&"--gres=gpu:1".to_owned()));
        let several = NewJob { nodes: 3, gpus: Some(4), ..job };
        assert!(several.sbatch(GpuOption::Gres).contains(&"--gres=gpu:4".to_owned()));
        let several = several.sbatch(GpuOption::PerNode).join(" ");
        assert!(several.contains(" --gpus-per-node=4"), "{several}");
        assert!(several.contains("--nodes=3 --ntasks=3 "), "{several}");
        assert!(several.contains(" --ntasks-per-node=1 "), "{several}");
        let script = job.script();
        assert!(script.contains("r=$HOME/.rgpu/slurm\n"), "{script}");
        assert!(script.contains("\"$f\" hold \"$d\" 120 &\n"), "{script}");
        assert!(script.contains("\"$HOME/.cache/rgpu/bin/agent-abc\""), "{script}");
    }

    #[test]
    fn a_node_waits_for_files_that_it_sees_late() {
        let root = tempfile::tempdir().unwrap();
        let mut spec = RemoteSpec::new("cluster", "slurm://login");
        spec.options.insert("folder".into(), root.path().display().to_string());
        let settings = Settings::read(&spec).unwrap();
        let job = NewJob {
            settings: &settings,
            name: "rgpu-r1",
            root: "/",
            program: "agent-abc",
            time: None,
            idle_s: 120,
            nodes: 1,
            gpus: None,
        };
        let run = |script: &str| {
            let mut sh = Command::new("sh");
            sh.args(["-c", script]).env("HOME", root.path()).env_remove("SLURM_RESTART_COUNT");
            let output = sh.output().unwrap();
            (String::from_utf8(output.stdout).unwrap(), output.status.code())
        };
        let script = job.script();
        assert!(script.contains("-ge 300 ]"), "{script}");
        let (printed, status) = run(&script.replace("-ge 300 ]", "-ge 1 ]"));
        assert!(printed.starts_with("this node does not see"), "{printed}");
        assert_eq!(status, Some(3));
        let folder = root.path().to_owned();
        let late = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(1_500));
            fs::create_dir_all(folder.join("alloc/rgpu-r1")).unwrap();
            fs::create_dir(folder.join("bin")).unwrap();
            fs::write(folder.join("new"), "#!/bin/sh\necho \"$1 ${2##*/} $3\"\n").unwrap();
            let executable = fs::Permissions::from_mode(0o755);
            fs::set_permissions(folder.join("new"), executable).unwrap();
            fs::rename(folder.join("new"), folder.join("bin/agent-abc")).unwrap();
        });
        assert_eq!(run(&script), ("hold rgpu-r1 120\n".to_owned(), Some(0)));
        late.join().unwrap();
    }
}
