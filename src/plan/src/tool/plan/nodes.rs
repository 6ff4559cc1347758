//! Starts a program on several nodes of a cluster (`--nodes`): `srun` starts a small script of the
//! shell once on each, which runs the tool around the program. The tool's report has the number of
//! its node in its name. The job's folder is shared by the nodes.

use rgpu_protocol::plan::Arg;

use super::draft::BundleFile;
use super::gpu_selection::GpuSelection;
use super::message_rows::{MessageRow, RowAction};
use super::rank_shim::quoted;
use super::request::Request;

/// Stands for the number of the node in the paths that a tool's command names in the job's folder.
pub(crate) const NODE: &str = "{node}";

/// Meanings of the script's messages.
pub(super) static MESSAGE_ROWS: &[MessageRow] =
    &[MessageRow("rgpu nodes: the number of this node", "node_unknown", RowAction::Stop)];

/// Starts its arguments once their first one can be seen: other nodes see new files late.
const WAIT: &str = "i=0; until [ -x \"$1\" ] || [ $i -ge 300 ]; do \
                    ls \"${1%/*}\" >/dev/null 2>&1; i=$((i + 1)); sleep 1; done; exec \"$@\"";

/// The beginning of the script. What the first node has locked are no GPUs of the others.
/// `torchrun` takes defaults of its options from `PET_…`.
const HEAD: &str = r#"#!/bin/sh
# Made by rgpu. Starts the program on one node.
job=${0%/*/*}
node=$SLURM_NODEID
case $node in
'' | *[!0-9]*)
    echo "rgpu nodes: the number of this node is not known: SLURM_NODEID is not set" >&2
    exit 64
    ;;
esac
if [ "$node" != 0 ] && [ -z "$SLURM_STEP_GPUS" ]; then unset CUDA_VISIBLE_DEVICES; fi
first=$(scontrol show hostnames "$SLURM_JOB_NODELIST" 2>/dev/null | head -n 1)
export MASTER_ADDR="${MASTER_ADDR:-${first:-$SLURM_LAUNCH_NODE_IPADDR}}"
export MASTER_PORT="${MASTER_PORT:-$((20000 + SLURM_JOB_ID % 10000))}"
export PET_NNODES="${PET_NNODES:-$SLURM_NNODES}" PET_NODE_RANK="${PET_NODE_RANK:-$node}"
export PET_MASTER_ADDR="${PET_MASTER_ADDR:-$MASTER_ADDR}" PET_MASTER_PORT="${PET_MASTER_PORT:-$MASTER_PORT}"
"#;

/// The script that runs `tool` around its arguments, and then `after`. `name` tells it from those
/// of other steps and rungs.
pub(super) fn script(name: &str, tool: &[Arg], after: &[Arg]) -> BundleFile {
    let shell = |words: &[Arg]| {
        let words: Vec<String> = words.iter().map(|word| quoted(word, (NODE, "node"))).collect();
        words.join(" ")
    };
    let mut text = HEAD.to_owned();
    text.push_str(&format!("{} \"$@\"\nstatus=$?\n", shell(tool)));
    if !after.is_empty() {
        text.push_str(&format!("{} >&2\n", shell(after)));
    }
    text.push_str("exit $status\n");
    BundleFile::text(format!("nodes/{name}"), text).executable()
}

/// The command that starts a script with a program once on each node.
pub(super) fn srun(request: &Request, script: &str, program: Vec<Arg>) -> Vec<Arg> {
    let nodes = request.nodes;
    let mut argv: Vec<Arg> = vec![
        "srun".into(),
        format!("--nodes={nodes}").into(),
        format!("--ntasks={nodes}").into(),
        "--ntasks-per-node=1".into(),
        // The steps that carry the connection run beside it.
        "--overlap".into(),
        "--unbuffered".into(),
        "--cpu-bind=none".into(),
        "--mpi=none".into(),
        // The ranks of the other nodes would wait for those of one that has failed.
        "--kill-on-bad-exit=1".into(),
    ];
    if let GpuSelection::Number(gpus) = request.gpus {
        argv.push(format!("--gres=gpu:{gpus}").into());
    }
    argv.extend(["/bin/sh", "-c", WAIT, "rgpu"].map(Arg::from));
    argv.push(Arg::in_job(script));
    argv.extend(program);
    argv
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::process::Command;

    use super::*;
    use crate::tool::plan::draft::JobFileContent;

    /// What the script prints on the node with this number, with its status.
    fn run(script: &BundleFile, env: &[(&str, &str)]) -> (String, Option<i32>) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(&script.path);
        std::fs::create_dir(path.parent().unwrap()).unwrap();
        let JobFileContent::Bytes(text) = &script.content else { panic!("a text") };
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        let print = "echo \"${OUT##*/} $MASTER_ADDR:$MASTER_PORT $PET_NODE_RANK/$PET_NNODES \
                     gpus=$CUDA_VISIBLE_DEVICES\"; exit 7";
        let output = Command::new("sh")
            .args(["-c", WAIT, "rgpu"])
            .arg(&path)
            .args(["sh", "-c", print])
            .env_clear()
            .envs([("PATH", "/usr/bin:/bin"), ("SLURM_JOB_ID", "12345"), ("SLURM_NNODES", "2")])
            .env("SLURM_LAUNCH_NODE_IPADDR", "10.0.0.1")
            .env("CUDA_VISIBLE_DEVICES", "GPU-first")
            .envs(env.iter().copied())
            .output()
            .unwrap();
        let printed = [output.stdout, output.stderr].concat();
        (String::from_utf8(printed).unwrap().trim_end().to_owned(), output.status.code())
    }

    #[test]
    fn each_node_has_a_report_of_its_own_and_knows_the_first_one() {
        let tool = [
            Arg::from("env"),
            Arg::InJob { prefix: "OUT=".to_owned(), in_job: "raw/report.node{node}".to_owned() },
        ];
        let after = ["echo", "exported"].map(Arg::from);
        let script = script("x", &tool, &after);
        let first = run(&script, &[("SLURM_NODEID", "0")]);
        assert_eq!(
            first,
            ("report.node0 10.0.0.1:22345 0/2 gpus=GPU-first\nexported".to_owned(), Some(7))
        );
        // The GPUs of the first node are not those of the second.
        let env = [("SLURM_NODEID", "1"), ("MASTER_ADDR", "n0"), ("MASTER_PORT", "1")];
        let (second, _) = run(&script, &env);
        assert_eq!(second, "report.node1 n0:1 1/2 gpus=\nexported");
        let (named, _) = run(&script, &[&env[..], &[("SLURM_STEP_GPUS", "0")]].concat());
        assert_eq!(named, "report.node1 n0:1 1/2 gpus=GPU-first\nexported");
        let (printed, status) = run(&script, &[]);
        assert!(
            printed.starts_with("rgpu nodes: the number of this node is not known"),
            "{printed}"
        );
        assert_eq!(status, Some(64));
    }
}
