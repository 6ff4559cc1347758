//! The user's settings for this host: folders to put before PATH, and environment variables for
//! probes and steps.
//!
//! A connection receives them in one message and passes them to its supervisors through their
//! environment. They are not written to files, because the variables may be confidential.

use std::collections::BTreeMap;

/// Lists, in a supervisor's environment, the names of the variables from the settings, joined by
/// `=`, which no name contains.
const NAMES_VARIABLE: &str = "RGPU_AGENT_SETUP";

/// Environment variables of the user's settings for this host. Probes and steps run with them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConnectionSettings {
    env: BTreeMap<String, String>,
}

impl ConnectionSettings {
    /// Creates settings with `path` before the PATH of `env`, or before the agent's own.
    pub fn new(path: &[String], mut env: BTreeMap<String, String>) -> Self {
        env.retain(|name, value| {
            !name.is_empty() && !name.contains(['=', '\0']) && !value.contains('\0')
        });
        let folders = path.iter().filter(|p| p.starts_with('/') && !p.contains([':', '\0']));
        let mut folders: Vec<String> = folders.cloned().collect();
        if !folders.is_empty() {
            folders.extend(env.get("PATH").cloned().or_else(|| std::env::var("PATH").ok()));
            env.insert("PATH".into(), folders.join(":"));
        }
        Self { env }
    }

    /// Returns the variables for probes, which override the agent's own.
    pub(crate) fn env(&self) -> &BTreeMap<String, String> {
        &self.env
    }

    /// Returns a variable as probes see it.
    pub(crate) fn var(&self, name: &str) -> Option<String> {
        self.env.get(name).cloned().or_else(|| std::env::var(name).ok())
    }

    /// Returns the variables for a supervisor, which override the agent's own.
    pub(crate) fn for_supervisor(&self) -> BTreeMap<String, String> {
        let names: Vec<&str> = self.env.keys().map(String::as_str).collect();
        let mut env = self.env.clone();
        env.insert(NAMES_VARIABLE.into(), names.join("="));
        env
    }

    /// Returns a predicate: whether a variable in a supervisor's environment comes from the
    /// settings.
    pub(crate) fn is_setting() -> impl Fn(&str) -> bool {
        let names = std::env::var(NAMES_VARIABLE).unwrap_or_default();
        let names: Vec<String> = names.split('=').map(String::from).collect();
        move |name| !name.is_empty() && names.iter().any(|n| n == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_come_before_path_and_odd_ones_are_left_out() {
        let env = BTreeMap::from([("PATH".into(), "/bin".into()), ("A=B".into(), "x".into())]);
        let setup = ConnectionSettings::new(&["/opt/cuda/bin".into(), "relative".into()], env);
        assert_eq!(setup.var("PATH").as_deref(), Some("/opt/cuda/bin:/bin"));
        assert_eq!(setup.env().len(), 1);
        assert_eq!(setup.for_supervisor()[NAMES_VARIABLE], "PATH");
    }
}
