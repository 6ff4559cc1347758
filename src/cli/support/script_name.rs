//! The name of the script that an interpreter or a launcher starts. `python3` or `torchrun` would be
//! the same title for every program.

/// Programs that start a script, each with its options that take the next word as their value.
const LAUNCHERS: &[(&str, &[&str])] = &[
    ("python", &["-W", "-X", "--check-hash-based-pycs"]),
    ("torchrun", TORCHRUN_OPTIONS),
    ("accelerate", ACCELERATE_OPTIONS),
];
const TORCHRUN_OPTIONS: &[&str] = &[
    "--nnodes",
    "--nproc-per-node",
    "--nproc_per_node",
    "--rdzv-backend",
    "--rdzv_backend",
    "--rdzv-endpoint",
    "--rdzv_endpoint",
    "--rdzv-id",
    "--rdzv_id",
    "--rdzv-conf",
    "--rdzv_conf",
    "--max-restarts",
    "--max_restarts",
    "--monitor-interval",
    "--monitor_interval",
    "--start-method",
    "--start_method",
    "--role",
    "--log-dir",
    "--log_dir",
    "-r",
    "--redirects",
    "-t",
    "--tee",
    "--local-ranks-filter",
    "--local_ranks_filter",
    "--node-rank",
    "--node_rank",
    "--master-addr",
    "--master_addr",
    "--master-port",
    "--master_port",
    "--local-addr",
    "--local_addr",
];
const ACCELERATE_OPTIONS: &[&str] = &[
    "--config_file",
    "--num_processes",
    "--num_machines",
    "--machine_rank",
    "--main_process_ip",
    "--main_process_port",
    "--mixed_precision",
    "--gpu_ids",
    "--num_cpu_threads_per_process",
    "--dynamo_backend",
    "--rdzv_backend",
    "--tee",
    "--role",
    "--log_dir",
    "--same_network",
];

/// The file name of the script, or the module's name, that this command starts. `None` if the first
/// word is the program itself, or if no script follows (`python3 -c …`).
pub(super) fn script_name(command: &[String]) -> Option<String> {
    let (program, words) = command.split_first()?;
    let program = super::profile_request::file_name(program);
    let is_python = program.starts_with("python") && !program.contains("config");
    let key = if is_python { "python" } else { program.as_str() };
    let (_, options) = LAUNCHERS.iter().find(|(name, _)| *name == key)?;
    let mut words = words.iter();
    if key == "accelerate" {
        words.next().filter(|word| *word == "launch")?;
    }
    while let Some(word) = words.next() {
        match word.as_str() {
            "-m" | "--module" => {
                let module = words.next()?;
                // `python -m torch.distributed.run` is torchrun.
                let launcher = match module.as_str() {
                    "torch.distributed.run" | "torch.distributed.launch" => "torchrun",
                    "accelerate.commands.launch" => {
                        return of_launcher(&["accelerate", "launch"], words);
                    }
                    _ => return Some(module.clone()),
                };
                return of_launcher(&[launcher], words).or_else(|| Some(module.clone()));
            }
            "-c" | "-" if key == "python" => return None,
            "--" => {}
            option if options.contains(&option) => drop(words.next()),
            option if option.starts_with('-') => {}
            script => return Some(super::profile_request::file_name(script)),
        }
    }
    None
}

/// The script of a launcher that was started as a module.
fn of_launcher(launcher: &[&str], rest: std::slice::Iter<'_, String>) -> Option<String> {
    let launcher = launcher.iter().map(|word| (*word).to_owned());
    script_name(&launcher.chain(rest.cloned()).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_gives_the_name_and_its_interpreter_does_not() {
        for (command, name) in [
            ("python3 /work/hf.py --steps 3", Some("hf.py")),
            ("/opt/py/bin/python3.12 -u -X dev train.py", Some("train.py")),
            ("python -m pkg.mod --x", Some("pkg.mod")),
            ("torchrun --nproc-per-node 2 --standalone programs/ddp.py", Some("ddp.py")),
            ("torchrun --nproc-per-node=2 -m pkg.ddp", Some("pkg.ddp")),
            ("python3 -m torch.distributed.run --nproc_per_node 2 ddp.py", Some("ddp.py")),
            ("accelerate launch --num_processes 2 hf.py", Some("hf.py")),
            ("accelerate config", None),
            ("python3 -c pass", None),
            ("python3", None),
            ("./app x.py", None),
            ("python3-config x", None),
        ] {
            let command: Vec<String> = command.split(' ').map(str::to_owned).collect();
            assert_eq!(script_name(&command).as_deref(), name, "{command:?}");
        }
    }
}
