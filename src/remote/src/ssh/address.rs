//! Host and user names. They reach the command lines of `ssh` and of a ProxyCommand, so a strict
//! form is enforced before any use, and none begins with `-`.

/// `[user@]host[:port]`, or an alias of the ssh configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Address {
    pub(super) user: Option<String>,
    pub(super) host: String,
    pub(super) port: Option<u16>,
}

impl Address {
    /// Parses `[ssh://][user@]host[:port]`; an IPv6 address is in brackets. The error is a message.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let text = text.strip_prefix("ssh://").unwrap_or(text);
        let text = text.strip_suffix('/').unwrap_or(text);
        let (user, rest) = match text.rsplit_once('@') {
            Some((user, rest)) => (Some(user), rest),
            None => (None, text),
        };
        let (host, port) = match rest.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((host, "")) => (host, None),
            Some((host, port)) => match port.strip_prefix(':') {
                Some(port) => (host, Some(port)),
                None => return Err(format!("`{port}` comes after the bracket")),
            },
            None => match rest.rsplit_once(':') {
                Some((host, _)) if host.contains(':') => {
                    return Err("write an IPv6 address in brackets".to_owned());
                }
                Some((host, port)) => (host, Some(port)),
                None => (rest, None),
            },
        };
        let port = match port.map(str::parse::<u16>) {
            None => None,
            Some(Ok(port)) if port > 0 => Some(port),
            Some(_) => return Err("the port is not a number from 1 to 65535".to_owned()),
        };
        if !valid_host(host) {
            return Err(format!(
                "`{}` is not a host name of letters, digits and `._-`",
                host.escape_default()
            ));
        }
        if let Some(user) = user
            && !valid_user(user)
        {
            return Err(format!(
                "`{}` is not a user name of letters, digits and `._-`",
                user.escape_default()
            ));
        }
        Ok(Self { user: user.map(str::to_owned), host: host.to_owned(), port })
    }
}

/// Letters, digits and `._-`, with `:` and `%` for IPv6; 255 bytes at most.
pub(super) fn valid_host(host: &str) -> bool {
    let is_allowed = |b: u8| b.is_ascii_alphanumeric() || b"._-:%".contains(&b);
    (1..=255).contains(&host.len())
        && host.bytes().all(is_allowed)
        && host.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric() || b"_:".contains(&b))
}

/// Letters, digits and `._-+`, not beginning with `-`; 64 bytes at most.
pub(super) fn valid_user(user: &str) -> bool {
    let is_allowed = |b: u8| b.is_ascii_alphanumeric() || b"._-+".contains(&b);
    (1..=64).contains(&user.len()) && user.bytes().all(is_allowed) && !user.starts_with(['-', '+'])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_in_all_their_forms() {
        let address = |user: Option<&str>, host: &str, port| Address {
            user: user.map(str::to_owned),
            host: host.to_owned(),
            port,
        };
        for (text, expected) in [
            ("box", address(None, "box", None)),
            ("ssh://root@gpu-box:2222", address(Some("root"), "gpu-box", Some(2222))),
            ("ssh://[::1]:22/", address(None, "::1", Some(22))),
            ("me@[fe80::1%eth0]", address(Some("me"), "fe80::1%eth0", None)),
        ] {
            assert_eq!(Address::parse(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn addresses_that_could_be_options_or_commands_are_refused() {
        for bad in [
            "",
            "-oProxyCommand=x",
            "ssh://-x",
            "-x@host",
            "a b",
            "host;id",
            "$(id)@host",
            "host:0",
            "host:70000",
            "host:",
            "::1",
            "[::1]x",
            "a@b@-c",
            "host\n",
        ] {
            assert!(Address::parse(bad).is_err(), "{bad:?}");
        }
    }
}
