//! Checks that the host's key is the known one.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use russh::client;
use russh::keys::ssh_key::certificate::CertType;
use russh::keys::{Algorithm, Certificate, HashAlg, PublicKey, PublicKeyOrCertificate};

use super::SshError;
use super::known_hosts::{self, HostName, KeyVerdict, KnownHosts, NameForm, fingerprint};
use super::resolve::ResolvedHost;
use crate::{HostKeyQuestion, UnknownHostPolicy, UserPrompt};

/// russh's callbacks: checks the host's key and reports banners.
pub(super) struct HostKeyHandler {
    shared: Arc<HostKeyState>,
}

/// State shared by the handler and the code that waits for the handshake.
pub(super) struct HostKeyState {
    name: HostName,
    shown_as: String,
    known: KnownHosts,
    file: Option<PathBuf>,
    written: NameForm,
    unknown_host_policy: UnknownHostPolicy,
    user_prompt: Arc<dyn UserPrompt>,
    asking: AtomicBool,
    refused: Mutex<Option<SshError>>,
    /// The key that the user or `--accept-new` accepted; checked again when the connection renews
    /// its keys.
    accepted: Mutex<Option<PublicKey>>,
}

impl HostKeyState {
    /// The state for one connection.
    pub(super) fn new(
        resolved: &ResolvedHost,
        unknown_host_policy: UnknownHostPolicy,
        user_prompt: Arc<dyn UserPrompt>,
    ) -> Arc<Self> {
        let known = KnownHosts::read(&resolved.known_hosts);
        for place in &known.skipped {
            user_prompt.verbose(&format!("{place}: this line is invalid and is skipped"));
        }
        let name = match &resolved.host_key_alias {
            Some(alias) => HostName { host: alias.to_ascii_lowercase(), port: 22 },
            None => HostName { host: resolved.host.to_ascii_lowercase(), port: resolved.port },
        };
        let shown_as = if resolved.alias.eq_ignore_ascii_case(&resolved.host) {
            name.written()
        } else {
            format!("{} ({})", resolved.alias, name.written())
        };
        let unknown_host_policy =
            if resolved.accept_new { UnknownHostPolicy::AcceptNew } else { unknown_host_policy };
        Arc::new(Self {
            name,
            shown_as,
            known,
            file: resolved.known_hosts.first().cloned(),
            written: resolved.written,
            unknown_host_policy,
            user_prompt,
            asking: AtomicBool::new(false),
            refused: Mutex::new(None),
            accepted: Mutex::new(None),
        })
    }

    /// A handler for russh with this state.
    pub(super) fn handler(self: &Arc<Self>) -> HostKeyHandler {
        HostKeyHandler { shared: self.clone() }
    }

    /// Whether the user is answering a question. No time limit interrupts that.
    pub(super) fn is_asking_user(&self) -> bool {
        self.asking.load(Ordering::Relaxed)
    }

    /// The reason why the host was refused, if it was. Returned once.
    pub(super) fn refused(&self) -> Option<SshError> {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Key types in the order in which to request them: those known for this host first, so that a
    /// host known by an older type still shows that key.
    pub(super) fn key_order(&self, usual: &[Algorithm]) -> Vec<Algorithm> {
        let known = self.known.known_algorithms(&self.name);
        let is_known_type = |algorithm: &Algorithm| match algorithm {
            Algorithm::Rsa { .. } => known.iter().any(|known| known.clone().is_rsa()),
            other => known.contains(other),
        };
        let (mut order, rest): (Vec<_>, Vec<_>) = usual.iter().cloned().partition(is_known_type);
        order.extend(rest);
        order
    }

    /// Whether a certificate authority is known for this host. Only then are certificates
    /// requested.
    pub(super) fn has_authority(&self) -> bool {
        !self.known.authorities(&self.name).is_empty()
    }

    async fn judge(&self, shown: &PublicKeyOrCertificate) -> Result<(), SshError> {
        match shown {
            PublicKeyOrCertificate::PublicKey { key, .. } => self.judge_key(key).await,
            PublicKeyOrCertificate::Certificate(certificate) => {
                let key = PublicKey::from(certificate.public_key().clone());
                let authority = PublicKey::from(certificate.signature_key().clone());
                for key in [&key, &authority] {
                    if let Some(place) = self.known.revoked(&self.name, key) {
                        let (host, got) = (self.shown_as.clone(), fingerprint(key));
                        return Err(SshError::KeyRevoked { host, got, place });
                    }
                }
                let authorities = self.known.authorities(&self.name);
                if !authorities.iter().any(|ca| ca.key_data() == authority.key_data()) {
                    // A certificate of an unknown authority proves nothing; its key may still be
                    // known.
                    return self.judge_key(&key).await;
                }
                self.judge_certificate(certificate, &authority)
            }
        }
    }

    fn judge_certificate(
        &self,
        certificate: &Certificate,
        authority: &PublicKey,
    ) -> Result<(), SshError> {
        let refuse = |why: String| Err(SshError::Certificate { host: self.shown_as.clone(), why });
        if certificate.cert_type() != CertType::Host {
            return refuse("it is not one for hosts".to_owned());
        }
        if certificate.critical_options().iter().next().is_some() {
            return refuse("it has options that are not known".to_owned());
        }
        let names = certificate.valid_principals();
        // As in ssh, a name in a certificate is not a pattern.
        if !names.iter().any(|name| name.eq_ignore_ascii_case(&self.name.host)) {
            return refuse(format!("it is for {}", names.join(", ")));
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |t| t.as_secs());
        let print = authority.fingerprint(HashAlg::Sha256);
        match certificate.validate_at(now, [&print]) {
            Ok(()) => Ok(()),
            Err(_) if now < certificate.valid_after() => refuse("it is not valid yet".to_owned()),
            Err(_) if now >= certificate.valid_before() => refuse("it has expired".to_owned()),
            Err(error) => refuse(error.to_string()),
        }
    }

    async fn judge_key(&self, key: &PublicKey) -> Result<(), SshError> {
        let (host, got) = (self.shown_as.clone(), fingerprint(key));
        let algorithm = key.algorithm().to_string();
        if self.accepted.lock().unwrap_or_else(PoisonError::into_inner).as_ref() == Some(key) {
            return Ok(());
        }
        match self.known.check_key(&self.name, key) {
            KeyVerdict::Known => Ok(()),
            KeyVerdict::Revoked(place) => Err(SshError::KeyRevoked { host, got, place }),
            KeyVerdict::Changed(known) => Err(SshError::KeyChanged { host, algorithm, got, known }),
            KeyVerdict::Unknown => match self.unknown_host_policy {
                UnknownHostPolicy::Refuse => {
                    Err(SshError::KeyUnknown { host, algorithm, got, file: self.file.clone() })
                }
                UnknownHostPolicy::AcceptNew => self.remember(key),
                UnknownHostPolicy::Ask => {
                    let question = HostKeyQuestion {
                        host: host.clone(),
                        algorithm,
                        fingerprint: got.clone(),
                        file: self.file.clone().unwrap_or_default(),
                    };
                    let user_prompt = self.user_prompt.clone();
                    self.asking.store(true, Ordering::Relaxed);
                    let yes =
                        tokio::task::spawn_blocking(move || user_prompt.ask_host_key(&question))
                            .await;
                    self.asking.store(false, Ordering::Relaxed);
                    match yes {
                        Ok(true) => self.remember(key),
                        _ => Err(SshError::KeyDeclined { host, got }),
                    }
                }
            },
        }
    }

    fn remember(&self, key: &PublicKey) -> Result<(), SshError> {
        *self.accepted.lock().unwrap_or_else(PoisonError::into_inner) = Some(key.clone());
        let Some(file) = &self.file else { return Ok(()) };
        self.user_prompt.verbose(&format!(
            "host key {} of {} goes into {}",
            fingerprint(key),
            self.shown_as,
            file.display()
        ));
        known_hosts::remember(file, &self.name, key, self.written)
            .map_err(|source| SshError::Remember { file: file.clone(), source })
    }
}

impl client::Handler for HostKeyHandler {
    type Error = russh::Error;

    async fn check_server_key(
        &mut self,
        shown: &PublicKeyOrCertificate,
    ) -> Result<bool, Self::Error> {
        match self.shared.judge(shown).await {
            Ok(()) => Ok(true),
            Err(why) => {
                *self.shared.refused.lock().unwrap_or_else(PoisonError::into_inner) = Some(why);
                Ok(false)
            }
        }
    }

    async fn auth_banner(
        &mut self,
        banner: &str,
        _: &mut client::Session,
    ) -> Result<(), Self::Error> {
        self.shared.user_prompt.verbose(&format!(
            "banner of {}: {}",
            self.shared.shown_as,
            banner.trim()
        ));
        Ok(())
    }
}
