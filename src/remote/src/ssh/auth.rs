//! Logs in: first with the remote's own key, then with those of the ssh-agent, then with the
//! configuration's files, each with its certificate. A server counts every attempt, so nothing is
//! tried twice.

#![expect(clippy::disallowed_methods, reason = "the user's ssh settings and keys")]

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;

use russh::client::{AuthResult, Handle};
use russh::keys::agent::AgentIdentity;
use russh::keys::agent::client::{AgentClient, AgentStream};
use russh::keys::key::PrivateKeyWithHashAlg;
use russh::keys::{Certificate, HashAlg, PrivateKey, PublicKey, load_openssh_certificate, ssh_key};
use tokio::time::timeout;

use super::SshError;
use super::host_key::HostKeyHandler;
use super::resolve::ResolvedHost;
use crate::{UserPrompt, limits};

/// A client of the agent behind SSH_AUTH_SOCK or IdentityAgent.
type Agent = AgentClient<Box<dyn AgentStream + Send + Unpin>>;

/// One attempt to log in to a host.
pub(super) struct Login<'a> {
    pub(super) resolved: &'a ResolvedHost,
    /// The key file set for this remote.
    pub(super) identity: Option<&'a Path>,
    pub(super) user_prompt: &'a dyn UserPrompt,
}

/// The result of one attempt.
enum LoginAttempt {
    LoggedIn,
    Refused,
}

/// The attempts so far, for the error if all fail.
#[derive(Default)]
struct AttemptLog {
    tried: Vec<String>,
    /// Keys already offered to the server.
    shown: Vec<ssh_key::public::KeyData>,
    allowed: Option<String>,
    /// Methods that were skipped and that `ssh` itself supports.
    passed_over: Vec<String>,
}

impl Login<'_> {
    pub(super) async fn run(&self, handle: &mut Handle<HostKeyHandler>) -> Result<(), SshError> {
        let mut log = AttemptLog::default();
        let tried = timeout(limits::LOGIN_TIMEOUT, self.try_all(handle, &mut log)).await;
        if self.resolved.kerberos
            && !matches!(tried, Ok(Ok(LoginAttempt::LoggedIn)))
            && has_ticket().await
        {
            log.passed_over.push("you have a Kerberos ticket".to_owned());
        }
        match tried {
            Ok(Ok(LoginAttempt::LoggedIn)) => Ok(()),
            Ok(Ok(LoginAttempt::Refused)) => Err(self.denied(log)),
            // sshd hangs up after too many attempts: that is a refusal, not a broken link.
            Ok(Err(_)) if !log.tried.is_empty() => {
                log.tried.push("then the server hung up".to_owned());
                Err(self.denied(log))
            }
            Ok(Err(source)) => Err(SshError::Broken {
                address: self.resolved.address(),
                doing: "logging in",
                source,
            }),
            Err(_) => Err(SshError::Timeout {
                address: self.resolved.address(),
                stage: "logging in",
                limit: limits::LOGIN_TIMEOUT,
            }),
        }
    }

    fn denied(&self, log: AttemptLog) -> SshError {
        let allowed = log.allowed.as_deref().unwrap_or_default();
        let offered = |method: &str| allowed.split(", ").any(|word| word == method);
        let mut own_ssh_hints = log.passed_over;
        // Without a user, ssh could not ask either.
        if self.user_prompt.is_attended()
            && (offered("keyboard-interactive") || offered("password"))
        {
            own_ssh_hints.push("the host asks for a password or a second factor".to_owned());
        }
        SshError::Denied {
            own_ssh_hint: own_ssh_hints.into_iter().next(),
            user: self.resolved.user.clone(),
            host: self.resolved.address(),
            tried: log.tried,
            allowed: log.allowed.unwrap_or_else(|| "it did not say".to_owned()),
        }
    }

    async fn try_all(
        &self,
        handle: &mut Handle<HostKeyHandler>,
        log: &mut AttemptLog,
    ) -> Result<LoginAttempt, russh::Error> {
        if let Some(identity) = self.identity
            && let LoginAttempt::LoggedIn =
                self.file(handle, log, identity, MissingKeyFile::Report).await?
        {
            return Ok(LoginAttempt::LoggedIn);
        }
        if let LoginAttempt::LoggedIn = self.agent(handle, log).await? {
            return Ok(LoginAttempt::LoggedIn);
        }
        for identity in &self.resolved.identities {
            if let LoginAttempt::LoggedIn =
                self.file(handle, log, identity, MissingKeyFile::Ignore).await?
            {
                return Ok(LoginAttempt::LoggedIn);
            }
        }
        // Some servers (Tailscale's) identify their user by other means and need no key.
        let answer = handle.authenticate_none(&self.resolved.user).await?;
        let what = match missing_keys(&self.resolved.identities) {
            Some(missing) if log.shown.is_empty() => format!("without a key: {missing}"),
            _ => "without a key".to_owned(),
        };
        Ok(self.record_answer(log, &what, &answer))
    }

    /// Records the server's answer to an attempt.
    fn record_answer(&self, log: &mut AttemptLog, what: &str, answer: &AuthResult) -> LoginAttempt {
        match answer {
            AuthResult::Success => {
                self.user_prompt.verbose(&format!(
                    "logged in to {} as {}: {what}",
                    self.resolved.address(),
                    self.resolved.user
                ));
                LoginAttempt::LoggedIn
            }
            AuthResult::Failure { remaining_methods, partial_success } => {
                let methods: Vec<&str> = remaining_methods.iter().map(Into::into).collect();
                log.allowed = Some(methods.join(", "));
                let suffix =
                    if *partial_success { " (accepted, but the host asks for more)" } else { "" };
                let line = format!("tried {what}{suffix}");
                self.user_prompt.verbose(&line);
                log.tried.push(line);
                LoginAttempt::Refused
            }
        }
    }

    async fn file(
        &self,
        handle: &mut Handle<HostKeyHandler>,
        log: &mut AttemptLog,
        path: &Path,
        missing: MissingKeyFile,
    ) -> Result<LoginAttempt, russh::Error> {
        let shown = path.display();
        let text = match std::fs::read(path) {
            Ok(text) => text,
            Err(error) => {
                if matches!(missing, MissingKeyFile::Report)
                    || error.kind() != std::io::ErrorKind::NotFound
                {
                    log.tried.push(format!("`{shown}`: {error}"));
                }
                return Ok(LoginAttempt::Refused);
            }
        };
        if let Some(public) = public_half(path, &text)
            && log.shown.contains(public.key_data())
        {
            return Ok(LoginAttempt::Refused);
        }
        let key = match read_key(&text) {
            Ok(key) => Arc::new(key),
            Err(why) => {
                match why {
                    KeyFileError::Hardware => {
                        log.passed_over.push(format!("`{shown}` is a hardware key"));
                    }
                    KeyFileError::Passphrase if self.user_prompt.is_attended() => {
                        log.passed_over.push(format!("`{shown}` has a passphrase"));
                    }
                    KeyFileError::Passphrase | KeyFileError::Other(_) => {}
                }
                log.tried.push(format!("`{shown}`: {why}"));
                return Ok(LoginAttempt::Refused);
            }
        };
        let public = key.public_key().clone();
        if log.shown.contains(public.key_data()) {
            return Ok(LoginAttempt::Refused);
        }
        log.shown.push(public.key_data().clone());
        for (file, certificate) in self.certificates(log, path, &public) {
            let answer = handle
                .authenticate_openssh_cert(&self.resolved.user, key.clone(), certificate)
                .await?;
            let what = format!("`{shown}` with the certificate `{}`", file.display());
            if let LoginAttempt::LoggedIn = self.record_answer(log, &what, &answer) {
                return Ok(LoginAttempt::LoggedIn);
            }
        }
        let hash = rsa_hash(handle, &public).await?;
        let key = PrivateKeyWithHashAlg::new(key, hash);
        let answer = handle.authenticate_publickey(&self.resolved.user, key).await?;
        Ok(self.record_answer(log, &format!("`{shown}` ({})", public.algorithm()), &answer))
    }

    /// The certificates for a key: `KEY-cert.pub`, and the configured ones that match it.
    fn certificates(
        &self,
        log: &mut AttemptLog,
        path: &Path,
        key: &PublicKey,
    ) -> Vec<(PathBuf, Certificate)> {
        let mut certificate_path = path.as_os_str().to_owned();
        certificate_path.push("-cert.pub");
        std::iter::once(PathBuf::from(certificate_path))
            .chain(self.resolved.certificates.iter().cloned())
            .filter_map(|file| {
                let certificate = match load_openssh_certificate(&file) {
                    Ok(certificate) => certificate,
                    Err(error) => {
                        if file.exists() {
                            let line = format!("the certificate `{}`: {error}", file.display());
                            log.tried.push(line.clone());
                            log.passed_over.push(line);
                        }
                        return None;
                    }
                };
                (certificate.public_key() == key.key_data()).then_some((file, certificate))
            })
            .collect()
    }

    async fn agent(
        &self,
        handle: &mut Handle<HostKeyHandler>,
        log: &mut AttemptLog,
    ) -> Result<LoginAttempt, russh::Error> {
        let Some(socket) = &self.resolved.agent_socket else { return Ok(LoginAttempt::Refused) };
        let mut agent: Agent = match AgentClient::connect_uds(socket).await {
            Ok(agent) => agent.dynamic(),
            Err(error) => {
                log.tried.push(format!("the ssh-agent at `{}`: {error}", socket.display()));
                return Ok(LoginAttempt::Refused);
            }
        };
        let identities = match agent.request_identities().await {
            Ok(identities) => identities,
            Err(error) => {
                log.tried.push(format!("the ssh-agent would not list its keys: {error}"));
                return Ok(LoginAttempt::Refused);
            }
        };
        let named: Vec<PublicKey> = self
            .identity
            .into_iter()
            .chain(self.resolved.identities.iter().map(PathBuf::as_path))
            .filter_map(|path| public_half(path, &[]))
            .collect();
        let is_named = |identity: &AgentIdentity| {
            let key = identity.public_key();
            named.iter().any(|public| public.key_data() == key.key_data())
        };
        // Keys that a file names come first, because the server limits the attempts.
        let (mut order, others): (Vec<_>, Vec<_>) = identities.into_iter().partition(is_named);
        if !self.resolved.identities_only {
            order.extend(others);
        }
        for identity in order {
            if let LoginAttempt::LoggedIn =
                self.agent_key(handle, log, &mut agent, identity).await?
            {
                return Ok(LoginAttempt::LoggedIn);
            }
        }
        Ok(LoginAttempt::Refused)
    }

    async fn agent_key(
        &self,
        handle: &mut Handle<HostKeyHandler>,
        log: &mut AttemptLog,
        agent: &mut Agent,
        identity: AgentIdentity,
    ) -> Result<LoginAttempt, russh::Error> {
        let user = &self.resolved.user;
        let (answer, what) = match identity {
            AgentIdentity::Certificate { certificate, comment } => {
                let key = PublicKey::from(certificate.public_key().clone());
                let hash = rsa_hash(handle, &key).await?;
                let answer =
                    handle.authenticate_certificate_with(user, certificate, hash, agent).await;
                (answer, format!("the ssh-agent's certificate `{comment}`"))
            }
            AgentIdentity::PublicKey { key, comment } => {
                if log.shown.contains(key.key_data()) {
                    return Ok(LoginAttempt::Refused);
                }
                log.shown.push(key.key_data().clone());
                let hash = rsa_hash(handle, &key).await?;
                let what = format!("the ssh-agent's key `{comment}` ({})", key.algorithm());
                (handle.authenticate_publickey_with(user, key, hash, agent).await, what)
            }
        };
        match answer {
            Ok(answer) => Ok(self.record_answer(log, &what, &answer)),
            // The agent refused to sign; the next key may work.
            Err(error) => {
                log.tried.push(format!("{what}: {error}"));
                Ok(LoginAttempt::Refused)
            }
        }
    }
}

/// Whether the user has a Kerberos ticket. russh does not tell whether a server offers Kerberos.
async fn has_ticket() -> bool {
    let mut klist = tokio::process::Command::new("klist");
    klist.arg("-s").stdin(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
    matches!(timeout(limits::RESOLVE_TIMEOUT, klist.status()).await, Ok(Ok(status)) if status.success())
}

/// Whether a missing key file is reported.
#[derive(Clone, Copy)]
enum MissingKeyFile {
    Report,
    Ignore,
}

/// The public half of a key file, without unlocking it: an OpenSSH key contains it in the clear,
/// and `KEY.pub` may exist. If `text` is empty, the file is read.
fn public_half(path: &Path, text: &[u8]) -> Option<PublicKey> {
    let read;
    let text = if text.is_empty() {
        read = std::fs::read(path).unwrap_or_default();
        &read
    } else {
        text
    };
    if let Ok(key) = PrivateKey::from_openssh(text) {
        return Some(key.public_key().clone());
    }
    let mut public_path = path.as_os_str().to_owned();
    public_path.push(".pub");
    let text = std::fs::read_to_string(public_path).ok()?;
    PublicKey::from_openssh(text.trim()).ok()
}

/// The reason why a file cannot be used to log in.
#[derive(Debug, thiserror::Error)]
enum KeyFileError {
    /// The private key is in a hardware device.
    #[error("a hardware key works through the ssh-agent (`ssh-add`) or your own ssh only")]
    Hardware,
    /// The key has a passphrase.
    #[error("it has a passphrase, and the ssh-agent does not hold it")]
    Passphrase,
    /// The file cannot be read as a key.
    #[error("{0}")]
    Other(String),
}

/// Reads a private key without a passphrase.
fn read_key(text: &[u8]) -> Result<PrivateKey, KeyFileError> {
    let not_a_key = || KeyFileError::Other("not a private key".to_owned());
    let text = std::str::from_utf8(text).map_err(|_| not_a_key())?;
    if text.contains("-----BEGIN OPENSSH PRIVATE KEY-----")
        && let Ok(key) = PrivateKey::from_openssh(text)
        && key.algorithm().to_string().starts_with("sk-")
    {
        return Err(KeyFileError::Hardware);
    }
    if text.contains("-----BEGIN OPENSSH PRIVATE KEY-----")
        && let Ok(key) = PrivateKey::from_openssh(text)
        && key.is_encrypted()
    {
        return Err(KeyFileError::Passphrase);
    }
    match russh::keys::decode_secret_key(text, None) {
        Ok(key) if key.algorithm().to_string().starts_with("sk-") => Err(KeyFileError::Hardware),
        Ok(key) => Ok(key),
        Err(russh::keys::Error::KeyIsEncrypted) => Err(KeyFileError::Passphrase),
        Err(error) if text.contains("PRIVATE KEY") => Err(KeyFileError::Other(error.to_string())),
        Err(_) => Err(not_a_key()),
    }
}

/// The hash for a signature with an RSA key. The server is asked, which may take up to a second.
async fn rsa_hash(
    handle: &Handle<HostKeyHandler>,
    key: &PublicKey,
) -> Result<Option<HashAlg>, russh::Error> {
    if !key.algorithm().is_rsa() {
        return Ok(None);
    }
    // All servers of the last ten years accept this hash.
    Ok(handle.best_supported_rsa_hash().await?.unwrap_or(Some(HashAlg::Sha512)))
}

/// Where keys were looked for, if none of these files exists; `None` if one does.
fn missing_keys(identities: &[PathBuf]) -> Option<String> {
    if identities.is_empty() || identities.iter().any(|path| path.exists()) {
        return None;
    }
    let mut folders: Vec<String> = Vec::new();
    for folder in identities.iter().filter_map(|path| path.parent()) {
        let folder = format!("`{}`", folder.display());
        if !folders.contains(&folder) {
            folders.push(folder);
        }
    }
    let names = identities.iter().filter_map(|path| path.file_name());
    let names: Vec<String> = names.map(|name| name.to_string_lossy().into_owned()).collect();
    Some(format!("{} has none of {}", folders.join(" or "), names.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_no_key_is_the_folders_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let keys = ["id_rsa", "id_ed25519"].map(|name| folder.path().join(name));
        let text = missing_keys(&keys).unwrap();
        let wanted = format!("`{}` has none of id_rsa, id_ed25519", folder.path().display());
        assert_eq!(text, wanted);
        std::fs::write(&keys[1], "").unwrap();
        assert_eq!(missing_keys(&keys), None);
        assert_eq!(missing_keys(&[]), None);
    }
}
