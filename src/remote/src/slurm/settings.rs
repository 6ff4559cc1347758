//! Checks the settings of a `slurm` remote before anything is sent.
//!
//! A [`RemoteSpec`] of the user's settings comes in. `Settings` goes out: the options for
//! `sbatch`, the folder on the cluster, and the ssh address of the login node.

use std::time::Duration;

use crate::ssh;
use crate::{RemoteError, RemoteSpec, Setting, SettingValue};

/// The login node, from which the address is made.
pub(super) const LOGIN: Setting = Setting::new(
    "login",
    SettingValue::Url,
    "The login node of a Slurm cluster: ssh://user@host:port or an alias of ~/.ssh/config",
);

const PARTITION: &str = "partition";
const GPUS: &str = "gpus";
const TIME: &str = "time";
const FOLDER: &str = "folder";
const IDLE: &str = "idle";

/// The settings that become options of `sbatch` as they are, with these.
const SBATCH_OPTIONS: &[(&str, &str)] = &[
    ("cpus", "--cpus-per-task"),
    ("memory", "--mem"),
    ("account", "--account"),
    ("qos", "--qos"),
    ("constraint", "--constraint"),
    ("reservation", "--reservation"),
];

/// Every setting of a cluster.
pub(super) const ALL: &[Setting] = &[
    Setting::new(
        PARTITION,
        SettingValue::Text("NAME"),
        "The partition of jobs [default: the cluster's]",
    ),
    Setting::new(
        GPUS,
        SettingValue::Text("GPUS"),
        "The GPUs of a job: 2, h100:2, or 0 for none [default: 1]",
    ),
    Setting::new(
        TIME,
        SettingValue::Text("TIME"),
        "The time limit of a job as Slurm writes it, e.g. 30:00 or 2:00:00 [default: the \
         partition's]",
    ),
    Setting::new("cpus", SettingValue::Number, "The processors of a job"),
    Setting::new(
        "memory",
        SettingValue::Text("SIZE"),
        "The memory of a job as Slurm writes it, e.g. 32G",
    ),
    Setting::new("account", SettingValue::Text("NAME"), "The account that pays for jobs"),
    Setting::new("qos", SettingValue::Text("NAME"), "The QOS of jobs"),
    Setting::new(
        "constraint",
        SettingValue::Text("LIST"),
        "What the nodes of jobs must have, e.g. \"perf,nvperf\"",
    ),
    Setting::new("reservation", SettingValue::Text("NAME"), "The reservation of jobs"),
    Setting::new(
        FOLDER,
        SettingValue::HostFolder,
        "The folder for jobs and results, which all nodes must share [default: ~/.rgpu/slurm]",
    ),
    Setting::new(IDLE, SettingValue::Time, "When a job that nothing uses ends [default: 2m]"),
];

/// The address of the cluster behind a login node.
pub(super) fn address(login: &str) -> Result<String, RemoteError> {
    let host = login.strip_prefix("ssh://").unwrap_or(login);
    if host.contains("://") {
        let why = "that is not an address of ssh".to_owned();
        return Err(RemoteError::Address { url: login.to_owned(), why });
    }
    Ok(format!("slurm://{host}"))
}

const DEFAULT_FOLDER: &str = "~/.rgpu/slurm";

/// Long enough for a client to reconnect to an allocation whose job has ended.
const DEFAULT_IDLE: Duration = Duration::from_secs(120);

/// Longest value of a setting of the user.
const MAX_VALUE_CHARS: usize = 200;

/// The checked settings of a `slurm` remote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Settings {
    pub(super) partition: Option<String>,
    /// `N` or `TYPE:N`; `None` requests no GPU.
    pub(super) gpus: Option<String>,
    pub(super) time: Option<String>,
    /// Further arguments of `sbatch`, such as `--mem=64G`.
    pub(super) options: Vec<String>,
    pub(super) folder: String,
    pub(super) idle: Duration,
    /// The ssh address of the login node.
    pub(super) login: String,
}

impl Settings {
    pub(super) fn read(spec: &RemoteSpec) -> Result<Self, RemoteError> {
        let bad =
            |setting: &str, why: String| RemoteError::Setting { setting: setting.into(), why };
        if !spec.via.is_empty() {
            let why = "a job of Slurm runs on the node itself".to_owned();
            return Err(bad("via", why));
        }
        if spec.agent_folder.is_some() {
            let why = "a `slurm` remote has `folder`, which its nodes must share".to_owned();
            return Err(bad("agent_folder", why));
        }
        for (name, value) in &spec.options {
            let fits = (1..=MAX_VALUE_CHARS).contains(&value.chars().count());
            if !fits || value.chars().any(char::is_control) || value.starts_with('-') {
                return Err(bad(name, format!("{value:?} is not a value for an option of Slurm")));
            }
        }
        let get = |name: &str| spec.options.get(name).cloned();
        let gpus = get(GPUS).unwrap_or_else(|| "1".to_owned());
        if !is_gpu_count(&gpus) {
            return Err(bad(GPUS, format!("`{gpus}` is not like `2` or `h100:2`")));
        }
        let time = get(TIME);
        if let Some(time) = time.as_ref().filter(|time| !is_time(time)) {
            let why = format!(
                "`{time}` is not a time of Slurm: minutes, HH:MM:SS or D-HH:MM:SS; a job needs an end"
            );
            return Err(bad(TIME, why));
        }
        let idle = match get(IDLE).map(|text| text.parse::<u32>()) {
            None => DEFAULT_IDLE,
            Some(Ok(seconds @ 1..)) => Duration::from_secs(seconds.into()),
            Some(_) => return Err(bad(IDLE, "it is a number of seconds".to_owned())),
        };
        let folder = get(FOLDER).unwrap_or_else(|| DEFAULT_FOLDER.to_owned());
        let plain = |b: u8| b.is_ascii_alphanumeric() || b"_./@+,:=-".contains(&b);
        let rest = folder.strip_prefix("~/").or(folder.strip_prefix('/'));
        // The start command holds it, and csh limits that command's length.
        if !rest.is_some_and(|rest| !rest.is_empty() && rest.bytes().all(plain))
            || folder.len() > 100
        {
            let why = format!(
                "`{folder}` is not `/…` or `~/…` of at most 100 letters, digits and `_./@+,:=-`"
            );
            return Err(bad(FOLDER, why));
        }
        let mut options = Vec::new();
        for (name, option) in SBATCH_OPTIONS {
            options.extend(get(name).map(|value| format!("{option}={value}")));
        }
        let login = spec.url.replacen("slurm://", "ssh://", 1);
        // Opening connects to nothing; it checks the address and the settings of the connection.
        (ssh::KIND.open)(&RemoteSpec { options: Default::default(), ..login_spec(spec, &login) })?;
        let gpus = Some(gpus).filter(|gpus| gpus != "0");
        let folder = folder.trim_end_matches('/').to_owned();
        Ok(Self { partition: get(PARTITION), gpus, time, options, folder, idle, login })
    }
}

impl Settings {
    /// The GPUs of a job as `N` or `TYPE:N`. `requested` replaces the number of the settings and
    /// keeps their type.
    pub(super) fn job_gpus(&self, requested: Option<u32>) -> Option<String> {
        let Some(number) = requested else { return self.gpus.clone() };
        let kind = self.gpus.as_ref().and_then(|gpus| gpus.rsplit_once(':'));
        Some(kind.map_or_else(|| number.to_string(), |(kind, _)| format!("{kind}:{number}")))
    }

    /// Whether a job with the GPUs of the settings has at least the requested number.
    pub(super) fn has_enough_gpus(&self, requested: Option<u32>) -> bool {
        let count = self.gpus.as_ref().and_then(|gpus| gpus.rsplit(':').next()?.parse().ok());
        requested.is_none_or(|number| number <= count.unwrap_or(0))
    }
}

/// The login node as an `ssh` remote with the connection settings of `spec`.
pub(super) fn login_spec(spec: &RemoteSpec, login: &str) -> RemoteSpec {
    RemoteSpec { url: login.to_owned(), options: Default::default(), ..spec.clone() }
}

/// `2` or `h100:2`.
fn is_gpu_count(text: &str) -> bool {
    let (kind, count) = text.rsplit_once(':').unwrap_or(("any", text));
    let word = |b: u8| b.is_ascii_alphanumeric() || b"_.-".contains(&b);
    !kind.is_empty() && kind.bytes().all(word) && count.parse::<u16>().is_ok()
}

/// `minutes`, `minutes:seconds`, `hours:minutes:seconds`, `days-hours` and their longer forms.
fn is_time(text: &str) -> bool {
    let (days, rest) = match text.split_once('-') {
        Some((days, rest)) => (Some(days), rest),
        None => (None, text),
    };
    let parts: Vec<&str> = days.into_iter().chain(rest.split(':')).collect();
    let number = |part: &&str| (1..=5).contains(&part.len()) && part.parse::<u32>().is_ok();
    parts.len() <= if days.is_some() { 4 } else { 3 }
        && parts.iter().all(number)
        && parts.iter().any(|part| part.parse() != Ok(0_u32))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(options: &[(&str, &str)]) -> Result<Settings, String> {
        let mut spec = RemoteSpec::new("cluster", "slurm://me@login:2222");
        let pairs = options.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        spec.options.extend(pairs);
        Settings::read(&spec).map_err(|error| error.to_string())
    }

    #[test]
    fn settings_become_options_of_sbatch() {
        let settings =
            read(&[("gpus", "h100:2"), ("account", "lab"), ("constraint", "perf&nvperf")]);
        let settings = settings.unwrap();
        assert_eq!(settings.login, "ssh://me@login:2222");
        assert_eq!(settings.gpus.as_deref(), Some("h100:2"));
        assert_eq!(settings.options, ["--account=lab", "--constraint=perf&nvperf"]);
        assert_eq!(settings.folder, DEFAULT_FOLDER);
        assert_eq!(read(&[("gpus", "0")]).unwrap().gpus, None);
    }

    #[test]
    fn a_command_may_ask_for_another_number_of_gpus_of_the_same_type() {
        for (setting, requested, gpus, is_enough) in [
            ("2", None, Some("2"), true),
            ("2", Some(1), Some("1"), true),
            ("2", Some(4), Some("4"), false),
            ("h100:2", Some(2), Some("h100:2"), true),
            ("h100:2", Some(8), Some("h100:8"), false),
            ("0", None, None, true),
            ("0", Some(1), Some("1"), false),
        ] {
            let settings = read(&[("gpus", setting)]).unwrap();
            assert_eq!(settings.job_gpus(requested).as_deref(), gpus, "{setting}, {requested:?}");
            assert_eq!(settings.has_enough_gpus(requested), is_enough, "{setting}, {requested:?}");
        }
    }

    #[test]
    fn times_are_slurms_and_have_an_end() {
        for good in ["30", "30:00", "1:30:00", "2-0", "2-12:30", "1-00:00:01"] {
            assert!(is_time(good), "{good}");
        }
        for bad in
            ["", "0", "00:00:00", "UNLIMITED", "-1", "2h", "1:2:3:4", "1-2:3:4:5", "1-", "1:"]
        {
            assert!(!is_time(bad), "{bad}");
        }
    }

    #[test]
    fn invalid_values_are_refused() {
        for (name, value) in [
            ("gpus", "many"),
            ("gpus", ":2"),
            ("gpus", "h100:"),
            ("partition", ""),
            ("partition", "--wrap=x"),
            ("qos", "a\nb"),
            ("folder", "relative"),
            ("folder", "~/it's"),
            ("idle", "0"),
        ] {
            assert!(read(&[(name, value)]).is_err(), "{name} = {value}");
        }
    }
}
