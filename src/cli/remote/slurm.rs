//! Further arguments of `remote add NAME slurm`.

use std::time::Duration;

use clap::{Args, ValueHint};

use rgpu_model::duration::duration;
use rgpu_model::error::{Exit, Failure, Result, shell_word};
use rgpu_remote::RemoteSpec;
use rgpu_remote::slurm::settings;

/// A cluster that Slurm manages.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "A Slurm cluster")]
pub(in crate::cli) struct SlurmArgs {
    /// The login node of a Slurm cluster: ssh://user@host:port or an alias of ~/.ssh/config
    #[arg(long, value_name = "URL", value_hint = ValueHint::Url)]
    pub login: Option<String>,

    /// The partition of jobs [default: the cluster's]
    #[arg(long, value_name = "NAME")]
    pub partition: Option<String>,

    /// The GPUs of a job: 2, h100:2, or 0 for none [default: 1]
    #[arg(long, value_name = "GPUS")]
    pub gpus: Option<String>,

    /// The time limit of a job as Slurm writes it, e.g. 30:00 or 2:00:00 [default: the partition's]
    #[arg(long, value_name = "TIME")]
    pub time: Option<String>,

    /// The processors of a job
    #[arg(long, value_name = "N")]
    pub cpus: Option<u32>,

    /// The memory of a job as Slurm writes it, e.g. 32G
    #[arg(long, value_name = "SIZE")]
    pub memory: Option<String>,

    /// The account that pays for jobs
    #[arg(long, value_name = "NAME")]
    pub account: Option<String>,

    /// The QOS of jobs
    #[arg(long, value_name = "NAME")]
    pub qos: Option<String>,

    /// What the nodes of jobs must have, e.g. "perf,nvperf"
    #[arg(long, value_name = "LIST")]
    pub constraint: Option<String>,

    /// The reservation of jobs
    #[arg(long, value_name = "NAME")]
    pub reservation: Option<String>,

    /// The folder for jobs and results, which all nodes must share [default: ~/.rgpu/slurm]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::Other)]
    pub folder: Option<String>,

    /// When a job that nothing uses ends [default: 2m]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub idle: Option<Duration>,
}

impl SlurmArgs {
    /// The given flags with the names and values of their settings; without `--login`.
    fn given(&self) -> Vec<(&'static str, &'static str, String)> {
        let text = |value: &Option<String>| value.clone();
        let all = [
            ("--partition", settings::PARTITION, text(&self.partition)),
            ("--gpus", settings::GPUS, text(&self.gpus)),
            ("--time", settings::TIME, text(&self.time)),
            ("--cpus", settings::CPUS, self.cpus.map(|cpus| cpus.to_string())),
            ("--memory", settings::MEMORY, text(&self.memory)),
            ("--account", settings::ACCOUNT, text(&self.account)),
            ("--qos", settings::QOS, text(&self.qos)),
            ("--constraint", settings::CONSTRAINT, text(&self.constraint)),
            ("--reservation", settings::RESERVATION, text(&self.reservation)),
            ("--folder", settings::FOLDER, text(&self.folder)),
            ("--idle", settings::IDLE, self.idle.map(|idle| idle.as_secs().max(1).to_string())),
        ];
        let given = all.into_iter().filter_map(|(flag, key, value)| Some((flag, key, value?)));
        given.collect()
    }

    /// The first given flag.
    pub(super) fn first(&self) -> Option<&'static str> {
        let login = self.login.as_ref().map(|_| "--login");
        login.or_else(|| self.given().first().map(|(flag, ..)| *flag))
    }

    /// The address that the settings store for the cluster.
    pub(super) fn address(&self, name: &str) -> Result<String> {
        let usage = |what: String| Failure::new(Exit::Usage, "usage", what);
        let hint = |login: &str| {
            format!("a cluster: rgpu remote add {name} slurm --login {}", shell_word(login))
        };
        let Some(login) = &self.login else {
            return Err(
                usage("a cluster needs `--login`".to_owned()).hint(hint("ssh://user@login"))
            );
        };
        let host = login.strip_prefix("ssh://").unwrap_or(login);
        if host.contains("://") {
            Err(usage(format!("`--login {login}` is not an address of ssh"))
                .hint(hint("ssh://user@login")))
        } else {
            Ok(format!("slurm://{host}"))
        }
    }

    /// Applies the given flags to a remote's settings.
    pub(super) fn settings(&self, spec: &mut RemoteSpec) {
        let given = self.given().into_iter().map(|(_, key, value)| (key.to_owned(), value));
        spec.options.extend(given);
    }
}
