//! Reads secrets from the desktop's keychain: libsecret (`secret-tool`) or macOS (`security`). A
//! secret comes through a pipe and never appears in an argument, file or error.

use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::secret_file::CredentialError;
use super::{foreign_text, limits};

/// How often we check whether the keychain has answered.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// The largest secret in bytes.
const MAX_SECRET_BYTES: u64 = 64 << 10;

/// The secret of an account of a service. Blocks: the keychain may ask the user.
pub(super) fn secret(service: &str, account: &str) -> Result<String, CredentialError> {
    let (program, args) = if cfg!(target_os = "macos") {
        ("security", &["find-generic-password", "-w", "-s", service, "-a", account][..])
    } else {
        ("secret-tool", &["lookup", "service", service, "account", account][..])
    };
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().map_err(|e| match e.kind() {
        std::io::ErrorKind::NotFound => keychain_error(
            format!("`{program}`, which asks the keychain, is not installed"),
            "Debian has it in libsecret-tools; or",
        ),
        _ => keychain_error(format!("`{program}` cannot be started: {e}"), ""),
    })?;
    answer(program, child, limits::LOGIN_TIMEOUT)?.ok_or_else(|| CredentialError {
        why: format!("the keychain has no `{account}` of `{service}`, or is locked"),
        hint: Some(format!("store it: {}", store_command(service, account))),
    })
}

/// The error for a keychain that does not work; the hint names other sources.
fn keychain_error(why: String, hint_start: &str) -> CredentialError {
    let hint = format!("{hint_start} keep the secret in a variable, or in a file of mode 0600");
    CredentialError { why, hint: Some(hint.trim_start().to_owned()) }
}

/// The command that stores a secret.
fn store_command(service: &str, account: &str) -> String {
    if cfg!(target_os = "macos") {
        format!("`security add-generic-password -s {service} -a {account} -w`")
    } else {
        format!("`secret-tool store --label={service} service {service} account {account}`")
    }
}

/// The output of a program that reads the keychain; `None`: there is no secret.
fn answer(
    program: &str,
    mut child: Child,
    limit: Duration,
) -> Result<Option<String>, CredentialError> {
    let begun = Instant::now();
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if begun.elapsed() < limit => std::thread::sleep(POLL_INTERVAL),
            Ok(None) => {
                let _ = child.kill();
                let _ = child.wait();
                let limit = limit.as_secs();
                let why = format!("the keychain did not answer in {limit} s: is it locked?");
                return Err(keychain_error(why, "unlock it, or"));
            }
            Err(e) => {
                return Err(keychain_error(format!("`{program}` cannot be waited for: {e}"), ""));
            }
        }
    };
    let read = |from: Option<&mut dyn Read>| {
        let mut bytes = Vec::new();
        // Output that cannot be read counts as empty.
        let _ = from.map(|from| from.take(MAX_SECRET_BYTES).read_to_end(&mut bytes));
        String::from_utf8_lossy(&bytes).trim().to_owned()
    };
    let value = read(child.stdout.as_mut().map(|pipe| pipe as &mut dyn Read));
    if status.success() && !value.is_empty() {
        return Ok(Some(value));
    }
    let message = read(child.stderr.as_mut().map(|pipe| pipe as &mut dyn Read));
    if message.is_empty() || message.contains("could not be found") {
        Ok(None)
    } else {
        Err(keychain_error(
            format!("the keychain cannot be asked: {}", foreign_text::excerpt(&message)),
            "it needs a desktop's session, with a D-Bus;",
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_output(script: &str, limit: Duration) -> Result<Option<String>, CredentialError> {
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdout(Stdio::piped()).stderr(Stdio::piped());
        answer("sh", command.spawn().unwrap(), limit)
    }

    #[test]
    fn a_secret_that_is_not_there_is_told_from_a_keychain_that_cannot_be_asked() {
        let ample = Duration::from_secs(20);
        assert_eq!(read_output("echo wk-1", ample), Ok(Some("wk-1".to_owned())));
        assert_eq!(read_output("exit 1", ample), Ok(None));
        assert_eq!(read_output(":", ample), Ok(None));
        let broken = read_output("echo 'no D-Bus' >&2; exit 1", ample).unwrap_err();
        assert!(broken.why.contains("cannot be asked: no D-Bus"), "{broken:?}");
        assert!(broken.hint.unwrap().ends_with("in a variable, or in a file of mode 0600"));
        let locked = read_output("exec sleep 60", Duration::from_millis(50)).unwrap_err();
        assert!(locked.why.contains("is it locked?"), "{locked:?}");
    }
}
