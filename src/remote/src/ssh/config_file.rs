//! Reads the user's ssh configuration if no `ssh` is installed: Host, and the settings that matter
//! here. Anything that could change which host is meant and is not supported (Match, Include,
//! ProxyCommand …) is an error and never skipped.

#![expect(clippy::disallowed_methods, reason = "the user's ssh settings and keys")]

use std::path::Path;

use super::address::Address;
use super::known_hosts::glob;
use super::resolve::home;

/// Settings that are supported.
const PASSED_SETTINGS: [&str; 12] = [
    "hostname",
    "user",
    "port",
    "identityfile",
    "certificatefile",
    "identitiesonly",
    "identityagent",
    "userknownhostsfile",
    "hashknownhosts",
    "hostkeyalias",
    "stricthostkeychecking",
    "proxyjump",
];

/// Settings that only `ssh` can apply: they change which host is meant or how it is reached.
const NEEDS_SSH: [&str; 4] = ["match", "include", "proxycommand", "canonicalizehostname"];

/// Settings that may occur several times.
const REPEATABLE_SETTINGS: [&str; 2] = ["identityfile", "certificatefile"];

/// The supported part of the output of `ssh -G`: lines of `key value`.
pub(super) fn answer(address: &Address, config: Option<&Path>) -> Result<String, String> {
    let default_file = home().join(".ssh/config");
    let file = config.unwrap_or(&default_file);
    let text = match std::fs::read_to_string(file) {
        Ok(text) => text,
        Err(error) if config.is_none() && error.kind() == std::io::ErrorKind::NotFound => {
            String::new()
        }
        Err(error) => return Err(format!("{}: {error}", file.display())),
    };
    let login = std::env::var("USER").or_else(|_| std::env::var("LOGNAME")).unwrap_or_default();
    read(&text, address, &login).map_err(|(line, why)| format!("{}:{line}: {why}", file.display()))
}

fn read(text: &str, address: &Address, login: &str) -> Result<String, (usize, String)> {
    let mut settings: Vec<(String, String)> = Vec::new();
    if let Some(user) = &address.user {
        settings.push(("user".into(), user.clone()));
    }
    if let Some(port) = address.port {
        settings.push(("port".into(), port.to_string()));
    }
    let mut applies = true;
    for (line, number) in text.lines().zip(1..) {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (key, value) = line.split_once([' ', '\t', '=']).unwrap_or((line, ""));
        let key = key.to_ascii_lowercase();
        let value = value.trim_start_matches([' ', '\t', '=']).trim().trim_matches('"');
        if NEEDS_SSH.contains(&key.as_str()) {
            return Err((number, format!("only ssh itself supports `{key}`: install ssh")));
        }
        if key == "host" {
            let matches_any = |negated: bool| {
                value.split_whitespace().any(|pattern| match pattern.strip_prefix('!') {
                    Some(pattern) => negated && glob(pattern, &address.host),
                    None => !negated && glob(pattern, &address.host),
                })
            };
            applies = matches_any(false) && !matches_any(true);
        } else if applies && PASSED_SETTINGS.contains(&key.as_str()) {
            // The first value counts.
            if REPEATABLE_SETTINGS.contains(&key.as_str())
                || settings.iter().all(|(k, _)| *k != key)
            {
                let value = if key == "hostname" {
                    value.replace("%h", &address.host)
                } else {
                    value.to_owned()
                };
                settings.push((key, value));
            }
        }
    }
    let mut with_default = |key: &str, values: &[&str]| {
        if settings.iter().all(|(k, _)| k != key) {
            settings.extend(values.iter().map(|value| (key.to_owned(), (*value).to_owned())));
        }
    };
    with_default("user", &[login]);
    with_default("identityfile", &["~/.ssh/id_rsa", "~/.ssh/id_ecdsa", "~/.ssh/id_ed25519"]);
    with_default("userknownhostsfile", &["~/.ssh/known_hosts"]);
    with_default("globalknownhostsfile", &["/etc/ssh/ssh_known_hosts"]);
    Ok(settings.into_iter().map(|(key, value)| format!("{key} {value}\n")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_value_of_a_setting_counts() {
        let address = Address::parse("gpu").unwrap();
        let text = "Port=2222\nHost gpu !x\n  HostName %h.lab\n  User me\nHost *\n  User you\n  \
             IdentityFile ~/.ssh/lab\nHost other\n  ProxyJump x\n";
        let settings = read(text, &address, "login").unwrap();
        for line in ["port 2222", "hostname gpu.lab", "user me", "identityfile ~/.ssh/lab"] {
            assert!(settings.lines().any(|l| l == line), "{line}: {settings}");
        }
        assert!(!settings.contains("you") && !settings.contains("proxyjump"), "{settings}");
    }

    #[test]
    fn what_only_ssh_understands_is_an_error_with_its_line() {
        let address = Address::parse("gpu").unwrap();
        assert_eq!(read("Host gpu\nMatch exec x\n", &address, "me").unwrap_err().0, 2);
    }
}
