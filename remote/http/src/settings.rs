//! The command line and the token file.

use std::ffi::OsString;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use subtle::ConstantTimeEq;

/// Shorter tokens could be guessed.
const MIN_TOKEN_BYTES: usize = 16;

#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) listen: SocketAddr,
    pub(crate) token: Token,
    /// Names that clients may use for this host, besides its addresses.
    pub(crate) hosts: Vec<String>,
    /// Socket of another agent that carries out the jobs.
    pub(crate) hand_over: Option<PathBuf>,
    /// Whether to print the address as JSON.
    pub(crate) json: bool,
}

/// Why the settings are invalid.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SettingsError {
    /// The command line is invalid.
    #[error("{0}")]
    Usage(String),
    /// The token file cannot be read.
    #[error("cannot read the token's file `{path}`: {source}")]
    Read { path: PathBuf, source: io::Error },
    /// Other users can read the token file.
    #[error(
        "the token's file `{path}` {why}: `chmod 600` it, and make a new token if others saw it"
    )]
    Open { path: PathBuf, why: String },
    /// The token is too short.
    #[error("the token in `{path}` has {len} characters; at least {MIN_TOKEN_BYTES} are needed")]
    Short { path: PathBuf, len: usize },
}

impl Settings {
    /// Parses the arguments after `serve`.
    pub(crate) fn parse(args: &[OsString]) -> Result<Self, SettingsError> {
        let usage = |text: String| SettingsError::Usage(text);
        let (mut listen, mut token, mut hosts, mut json) = (None, None, Vec::new(), false);
        let mut hand_over = None;
        let mut args = args.iter();
        while let Some(flag) = args.next() {
            let flag = flag.to_string_lossy();
            if flag == "--json" {
                json = true;
                continue;
            }
            let value = args.next().ok_or_else(|| usage(format!("`{flag}` needs a value")))?;
            match &*flag {
                "--listen" => {
                    let text = value.to_string_lossy();
                    let address = text.parse().map_err(|_| {
                        usage(format!("`--listen {text}`: write an address, e.g. 127.0.0.1:8790"))
                    })?;
                    listen = Some(address);
                }
                "--token-file" => token = Some(Token::read(Path::new(value))?),
                "--hand-over" => hand_over = Some(PathBuf::from(value)),
                "--allow-host" => hosts.push(value.to_string_lossy().to_ascii_lowercase()),
                _ => return Err(usage(format!("there is no option `{flag}`"))),
            }
        }
        let listen = listen.ok_or_else(|| usage("`--listen ADDR` is missing".into()))?;
        let token = token.ok_or_else(|| usage("`--token-file FILE` is missing".into()))?;
        Ok(Self { listen, token, hosts, hand_over, json })
    }
}

/// The server's token. `Debug` does not show it.
pub(crate) struct Token(String);

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token")
    }
}

impl Token {
    fn read(path: &Path) -> Result<Self, SettingsError> {
        let read = |source| SettingsError::Read { path: path.to_owned(), source };
        let meta = std::fs::metadata(path).map_err(read)?;
        let open = |why: String| Err(SettingsError::Open { path: path.to_owned(), why });
        if meta.mode() & 0o077 != 0 {
            return open(format!("can be read by others (mode {:o})", meta.mode() & 0o7777));
        }
        let text = std::fs::read_to_string(path).map_err(read)?;
        let token = text.trim();
        if token.len() < MIN_TOKEN_BYTES {
            let len = token.len();
            return Err(SettingsError::Short { path: path.to_owned(), len });
        }
        Ok(Self(token.to_owned()))
    }

    /// Compares in constant time.
    pub(crate) fn is(&self, candidate: &[u8]) -> bool {
        self.0.as_bytes().ct_eq(candidate).into()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn file(text: &str, mode: u32) -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        (dir, path)
    }

    #[test]
    fn a_token_is_private_and_long() {
        let (_dir, path) = file("0123456789abcdef\n", 0o600);
        let token = Token::read(&path).unwrap();
        assert!(token.is(b"0123456789abcdef"));
        assert!(
            !token.is(b"0123456789abcdeF") && !token.is(b"") && !token.is(b"0123456789abcdef\n")
        );
        assert!(!format!("{token:?}").contains("0123"));
        let (_dir, path) = file("0123456789abcdef", 0o640);
        assert!(Token::read(&path).unwrap_err().to_string().contains("chmod 600"));
        let (_dir, path) = file("short", 0o600);
        assert!(Token::read(&path).unwrap_err().to_string().contains("5 characters"));
    }

    #[test]
    fn what_is_missing_or_odd_is_named() {
        let parse = |line: &str| {
            let args: Vec<OsString> = line.split_whitespace().map(Into::into).collect();
            Settings::parse(&args).unwrap_err().to_string()
        };
        assert!(parse("").contains("--listen"));
        assert!(parse("--listen 127.0.0.1:0").contains("--token-file"));
        assert!(parse("--listen box").contains("127.0.0.1:8790"));
        assert!(parse("--dance now").contains("--dance"));
        assert!(parse("--listen").contains("needs a value"));
    }
}
